// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Deals the blocks of a thread block's units to its warps: W0 with its folds in mind, then W1.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/units/plan/draft.hpp>
#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// Deals the blocks of W0, phase by phase: each block goes to the warp with the fewest blocks so
/// far that has room for its unit. With 16-bit weights a warp with fewer blocks of this phase goes
/// first, because a warp loads again what folds. (Most fp32 blocks fold while they are streamed.)
/// fp32 counts are divided by the portion of the warp's duty, so that on an H200 all warps are busy
/// for the same time.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::deal(Draft& draft, const std::vector<W0Panel>& panels) {
  const auto portion_of = [&](std::size_t w) {
    return S::streams || S::specialised ? 1 : S::portions[static_cast<std::size_t>(draft.duty(w))];
  };
  const auto load = [&](std::size_t w) {
    return static_cast<double>(draft.blocks[w].size()) / portion_of(w);
  };
  for (auto& due : draft.due) due.assign(period, 0);
  auto limits = block_limits(draft, panels);
  for (std::size_t phase = 0; phase < period; ++phase) {
    const auto before = [&](std::size_t a, std::size_t b) {
      return std::pair(draft.due[a][phase], load(a)) < std::pair(draft.due[b][phase], load(b));
    };
    for (const W0Panel& panel : panels) {
      if (panel.phase != phase) continue;
      for (std::size_t b = 0; b < panel.blocks; ++b) {
        std::size_t to = S::multipliers;
        for (std::size_t w = 0; w < S::multipliers; ++w) {
          if (limits[w][panel.unit] > 0 && (to == S::multipliers || before(w, to))) to = w;
        }
        --limits[to][panel.unit];
        draft.blocks[to].push_back(block_of(draft.units[panel.unit], panel, b));
        list_places(draft, panel, b, draft.blocks[to].back());
        if constexpr (!S::fp32_weights) ++draft.due[to][phase];
      }
    }
  }
}

/// If `reads_context`: deals the blocks of Wc, group by group, each to the warp that has the fewest
/// of those that fold in the same phase, and of all blocks. So all warps fold about as many blocks
/// in a step.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::deal_context(Draft& draft,
                                                 const std::vector<W0Panel>& panels) const {
  add_groups(draft);
  for (auto& due : draft.w1_due) due.assign(w1_period, 0);
  for (std::size_t number = draft.units.size(); number < draft.row_groups.size(); ++number) {
    const RowGroup& group = draft.row_groups[number];
    const std::size_t phase = group.phase & 0xffU;
    const auto load = [&](std::size_t w) {
      return std::pair(draft.w1_due[w][phase], draft.blocks[w].size());
    };
    for (const W0Panel& panel : panels) {
      if (panel.unit != group.unit || !is_context(draft, panel)) continue;
      for (std::size_t b = 0; b < panel.blocks; ++b) {
        std::size_t to = 0;
        for (std::size_t w = 1; w < S::multipliers; ++w) {
          if (load(w) < load(to)) to = w;
        }
        draft.blocks[to].push_back(context_block(draft, number, panel, b));
        ++draft.w1_due[to][phase];
      }
    }
  }
}

/// Adds the row groups of the program, and gives those of Wc their phases, in turn.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::add_groups(Draft& draft) const {
  const auto areas_end = net_.units.size() * S::unit_words;
  for (std::size_t i = 0; i < draft.units.size(); ++i) {
    draft.row_groups.push_back({narrow(i), draft.units[i].unit * S::unit_words + S::part0, 0, 0});
  }
  std::size_t turn = 0;
  for (std::size_t i = 0; i < draft.units.size(); ++i) {
    const ProgramUnit& unit = draft.units[i];
    for (std::size_t g = 0; g < groups(unit.unit); ++g, ++turn) {
      const std::size_t first = g * S::group_outputs;
      const std::size_t size = std::min<std::size_t>(S::group_outputs, 2 * unit.padded - first);
      const std::size_t number = first_group_[unit.unit] + g;
      draft.row_groups.push_back({narrow(i),
                                  narrow(areas_end + number * S::multipliers * S::values),
                                  unit.out + narrow(first), narrow(turn % w1_period | size << 8)});
    }
  }
}

/// The description of block b of a panel of the context in a group of Wc, likewise. Its inputs are
/// those of the block of W0, but for the bias, behind the inputs of all units.
template <class Precision, int Hidden, Home home>
W0Block Plan<Precision, Hidden, home>::context_block(const Draft& draft, std::size_t number,
                                                     const W0Panel& panel, std::size_t b) const {
  const RowGroup& group = draft.row_groups[number];
  const ProgramUnit& unit = draft.units[group.unit];
  const std::size_t column = panel.column - 2 * unit.padded + b * columns;
  const std::size_t g = (group.out - unit.out) / S::group_outputs;
  W0Block block = block_of(unit, panel, b);
  const std::uint32_t x = (block.x & 0xffffU) + draft.x;
  block.x = x | x << 16;
  block.what = narrow(number | (period + (group.phase & 0xffU)) << 8);
  block.block =
      narrow(first_context_index_[unit.unit] + (g * context_width(unit.unit) + column) / columns);
  for (std::uint32_t* record : {&block.first, &block.second}) {
    if (*record == one) *record = narrow(zero);
  }
  return block;
}

/// How many blocks of each unit each warp may get. Without warp roles there is no limit. With warp
/// roles each warp gets a consecutive run of the blocks of all units. Most warps then have blocks
/// of one unit only, and do once what has to be done once for each unit. `most` is the smallest
/// number for which all blocks find room.
template <class Precision, int Hidden, Home home>
auto Plan<Precision, Hidden, home>::block_limits(const Draft& draft,
                                                 const std::vector<W0Panel>& panels) const
    -> BlockLimits {
  std::vector<std::size_t> size(draft.units.size());
  std::size_t all = 0;
  for (const W0Panel& panel : panels) {
    size[panel.unit] += panel.blocks;
    all += panel.blocks;
  }
  BlockLimits limits;
  if constexpr (S::specialised) {
    for (std::size_t most = all / S::multipliers; !fill_in_turn(size, most, limits);) ++most;
  } else {
    limits.fill(size);
  }
  return limits;
}

/// Gives each warp blocks of one unit after the other until it has `most`; going on to another unit
/// counts as `unit_switch_cost` blocks. `left` are the blocks of each unit. Returns false if some
/// blocks are left.
template <class Precision, int Hidden, Home home>
bool Plan<Precision, Hidden, home>::fill_in_turn(std::vector<std::size_t> left, std::size_t most,
                                                 BlockLimits& limits) {
  std::size_t u = 0;
  for (auto& mine : limits) {
    mine.assign(left.size(), 0);
    for (std::size_t room = most; room > 0 && u < left.size();) {
      mine[u] = std::min(left[u], room);
      left[u] -= mine[u];
      room -= mine[u];
      if (left[u] > 0) break;
      ++u;
      room -= std::min(room, S::unit_switch_cost);
    }
  }
  return u == left.size();
}

/// Sorts each warp's blocks by unit and numbers them in this order, which is that of device memory.
/// With warp roles every second block of a unit comes first. A warp's held blocks are near the
/// start of its list, and only held blocks can fold while they are multiplied. As blocks were dealt
/// by phase, this makes about half of what folds in a step held blocks.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::number_blocks(Draft& draft) {
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    auto& list = draft.blocks[w];
    std::vector<std::pair<std::size_t, W0Block>> ordered;  // key: 2 * unit + (0 or 1)
    for (std::size_t k = 0; k < list.size(); ++k) {
      const std::size_t second = S::specialised ? (k + w) % 2 : 0;
      ordered.emplace_back(2 * static_cast<std::size_t>(unit_in(list[k].what)) + second, list[k]);
    }
    std::stable_sort(ordered.begin(), ordered.end(),
                     [](const auto& a, const auto& b) { return a.first < b.first; });
    std::transform(ordered.begin(), ordered.end(), list.begin(),
                   [](const auto& block) { return block.second; });
    count_runs(list);
    for (W0Block& block : list) {
      block_number_[block.block] = numbered_;
      block.block = narrow(numbered_++);
    }
  }
}

/// The description of block b of a panel, before it has a place in shared memory. W0Block::block is
/// the block's index among those of all units, which number_blocks() replaces by its number.
template <class Precision, int Hidden, Home home>
W0Block Plan<Precision, Hidden, home>::block_of(const ProgramUnit& unit, const W0Panel& panel,
                                                std::size_t b) const {
  const std::size_t column = panel.column + b * columns;
  const std::size_t part = column / unit.padded;  // 0: A, 1: B, 2 or more: the context
  const std::uint32_t even = unit.x + narrow(column);
  W0Block block{};
  block.x = part < 2 ? both_steps(even, unit.padded, part == 1) : even | even << 16;
  block.what = narrow(panel.unit | panel.phase << 8);
  block.block = narrow(panel.first_block_index + b);
  // In step t the newest listed gradient is that of step t-1, whose input is x(t-3). The values of
  // x(t-3) are c(h(t-4)), in row t-4 of the past; those of B are a row older. Of a patch, the
  // pixels of A(t-3) are in row t-3.
  block.back = static_cast<std::uint16_t>(4 + (part == 1 ? 1 : 0) -
                                          (part < 2 && unit.patch != not_a_patch ? 1 : 0));
  const InputPlace first = input_place(unit, panel, b * columns);
  block.first = narrow(first.record);
  block.from = narrow(first.value);
  block.cut = columns;
  for (std::uint16_t c = columns; c-- > 1;) {
    const InputPlace place = input_place(unit, panel, b * columns + c);
    // Comparing records alone would not do: a unit can be a source twice in succession.
    if (place.record == first.record && place.value == first.value + c) break;
    block.cut = c;
    block.second = narrow(place.record);
  }
  return block;
}

/// Lists the places of the inputs of block b of a panel one by one, if they are of more than two
/// records.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::list_places(Draft& draft, const W0Panel& panel, std::size_t b,
                                                W0Block& block) const {
  if constexpr (S::lists_places) {
    std::array<std::uint32_t, columns> places;
    bool listed = false;
    for (std::uint32_t c = 0; c < columns; ++c) {
      const InputPlace place = input_place(draft.units[panel.unit], panel, b * columns + c);
      places[c] = narrow(place.record) + in_pieces(narrow(place.value));
      listed |= places[c] != (c < block.cut ? block.first + in_pieces(block.from + c)
                                            : block.second + in_pieces(c - block.cut));
    }
    if (!listed) return;
    block.cut = listed_places;
    block.first = narrow(draft.places.size());
    draft.places.insert(draft.places.end(), places.begin(), places.end());
  }
}

/// Where in a row of the past the input of column k of a panel is: a source's value, a pixel, the 1
/// of the bias, or a 0 for padding.
template <class Precision, int Hidden, Home home>
InputPlace Plan<Precision, Hidden, home>::input_place(const ProgramUnit& unit, const W0Panel& panel,
                                                      std::size_t k) const {
  if (panel.column < 2 * unit.padded) {
    if (k >= unit.base) return {zero, k - unit.base};
    if (unit.patch != not_a_patch) return {first_patch + unit.patch * patch_record, k};
    return {net_.primary[unit.unit][k / used()] * S::record, k % used()};
  }
  const auto& contexts = context_panels_[unit.unit];
  const std::size_t column = panel.column - 2 * unit.padded;
  const auto context =
      std::find_if(contexts.begin(), contexts.end(),
                   [&](const ContextPanel& one_) { return one_.column == column; });
  const std::size_t end = context->count * used();
  const bool has_bias = context + 1 == contexts.end();
  if (k >= end) return {has_bias ? one : zero, k - end};
  const auto slots = net_.context[unit.unit].subspan(context->first, context->count);
  return {slots[k / used()] * S::record, k % used()};
}

/// Deals the blocks of W1 in consecutive runs: to all multipliers, or, with fp32 weights on the
/// chip, to the warps that neither finish a unit nor read a patch. Then gives each block a phase.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::deal_w1(Draft& draft) const {
  std::vector<std::size_t> to;
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    const Duty is = draft.duty(w);
    if (S::streams || S::specialised || is == Duty::writes || is == Duty::others) to.push_back(w);
  }
  if (to.empty()) return;
  const std::size_t count = draft.targets.size();
  std::size_t next = 0;
  for (std::size_t u = 0; u < draft.units.size(); ++u) {
    const ProgramUnit& unit = draft.units[u];
    const std::uint32_t blocks_of_unit = 2 * unit.padded / columns;
    // The blocks of a group of outputs fold in the same step, so they go to different warps.
    const std::uint32_t stride = S::reads_context ? S::group_blocks : 1;
    for (std::uint32_t first = 0; first < stride; ++first) {
      for (std::uint32_t b = first; b < blocks_of_unit; b += stride, ++next) {
        draft.w1[to[next * to.size() / count]].push_back(
            {narrow(u), unit.out + b * columns, 0, unit.all_out / columns + b});
      }
    }
  }
  if constexpr (S::reads_context) {
    for (auto& list : draft.w1) {
      for (W1Block& block : list) block.what |= group_phase(draft, block) << 8;
      count_runs(list);
    }
    return;
  }
  // Without phases of its own W1 shares those of W0.
  draft.w1_due = draft.due;
  if constexpr (S::two_plans) {
    for (auto& due : draft.w1_due) due.assign(w1_period, 0);
  }
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    for (W1Block& block : draft.w1[w]) {
      block.what |= narrow(least_loaded_phase(draft, w) << 8);
    }
    count_runs(draft.w1[w]);
  }
}

/// The phase in which warp w folds least so far. Of several such phases the one in which all warps
/// together fold least; or, where W1 has phases of its own, the first one: a step takes as long as
/// the warp that folds most, so all warps fold one block more in the same steps. With warp roles on
/// the chip folders fold for all, so only what all warps fold counts. The block that gets the phase
/// is counted in `draft.w1_due`.
template <class Precision, int Hidden, Home home>
std::size_t Plan<Precision, Hidden, home>::least_loaded_phase(Draft& draft, std::size_t w) {
  auto& mine = draft.w1_due[w];
  const auto own = [&](std::size_t phase) { return S::specialised ? 0 : mine[phase]; };
  const auto of_all = [&](std::size_t phase) {
    unsigned sum = 0;
    if constexpr (!S::two_plans) {
      for (const auto& due : draft.w1_due) sum += due[phase];
    }
    return sum;
  };
  std::size_t best = 0;
  for (std::size_t phase = 1; phase < mine.size(); ++phase) {
    if (std::pair(own(phase), of_all(phase)) < std::pair(own(best), of_all(best))) best = phase;
  }
  ++mine[best];
  return best;
}

/// Writes into each block of a warp's list how many blocks of its unit are left from there on, the
/// block itself included (`left_in`).
template <class Precision, int Hidden, Home home>
template <class Block>
void Plan<Precision, Hidden, home>::count_runs(std::vector<Block>& list) {
  for (std::size_t k = list.size(), run = 0; k-- > 0;) {
    const bool last = k + 1 == list.size() || unit_in(list[k + 1].what) != unit_in(list[k].what);
    run = last ? 1 : run + 1;
    list[k].what |= narrow(run << run_shift);
  }
}

}  // namespace pvm::inline v0::detail::units
