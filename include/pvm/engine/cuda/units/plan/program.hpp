// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes a thread block's program (Program, then its lists) when all lists are complete.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <pvm/engine/cuda/units/plan/draft.hpp>
#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// Appends the program to those of the thread blocks before. In a pipelined step the blocks of W0
/// lie behind the `words` words that the kernel copies to shared memory, sorted by phase.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::append(Draft& draft) {
  Program& p = draft.p;
  p.unit_count = narrow(draft.units.size());
  p.source_count = narrow(draft.sources.size());
  p.out_count = draft.out;
  auto blocks_of_all = join(draft.blocks, p.block_start);
  const auto w1_of_all = join(draft.w1, p.w1_start);
  const std::vector<UnitRun> runs_of_all = runs(draft);
  const std::size_t start = programs.size();
  program_start.push_back(narrow(start));
  const std::size_t apart = S::pipelined ? (blocks_of_all.size() + 2) * sizeof(W0Block) / 4 : 0;
  programs.resize(start + p.words + apart);
  p.number = narrow(program_start.size() - 1);
  program_first_block.push_back(numbered_ - blocks_of_all.size());
  program_blocks.push_back(blocks_of_all.size());
  program_w1_blocks.push_back(w1_of_all.size());
  const auto put = [&](std::uint32_t at, const auto& values) {
    if (values.empty()) return;
    std::memcpy(programs.data() + start + at - p.start, values.data(),
                values.size() * sizeof(values[0]));
  };
  std::memcpy(programs.data() + start, &p, sizeof(p));
  put(p.units, draft.units);
  put(p.sources, draft.sources);
  if constexpr (S::specialised) put(p.inputs, first_inputs(p, blocks_of_all));
  if constexpr (S::pipelined) {
    put(p.inputs, inputs_of(blocks_of_all));
    put(p.folding_start, sort_by_phase(p, blocks_of_all));
  }
  put(p.blocks, blocks_of_all);  // two more, which the kernel reads, stay zero
  put(p.w1_blocks, w1_of_all);
  put(p.products, draft.products);
  put(p.places, draft.places);
  put(p.targets, draft.targets);
  put(p.row_groups, draft.row_groups);
  put(p.folding, draft.folding);
  put(p.folding_start, draft.folding_start);
  put(p.first_in_pass, draft.first_in_pass);
  put(p.reload, draft.reload);
  put(p.runs, runs_of_all);
}

/// Sorts each warp's blocks by phase. Returns the index in `all` of the first block of each phase,
/// and behind the last phase the end of the warp's: [multipliers][phases + 1].
template <class Precision, int Hidden, Home home>
std::vector<std::uint32_t> Plan<Precision, Hidden, home>::sort_by_phase(
    const Program& p, std::vector<W0Block>& all) const {
  std::vector<std::uint32_t> starts;
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    const auto first = all.begin() + p.block_start[w], end = all.begin() + p.block_start[w + 1];
    std::stable_sort(first, end, [&](const W0Block& one, const W0Block& other) {
      return phase_of(one) < phase_of(other);
    });
    for (std::uint32_t phase = 0; phase <= S::phases; ++phase) {
      const auto at =
          std::find_if(first, end, [&](const W0Block& block) { return phase_of(block) >= phase; });
      starts.push_back(narrow(static_cast<std::size_t>(at - all.begin())));
    }
  }
  return starts;
}

/// With warp roles: the runs of all multipliers, a UnitRun for each unit that a warp has blocks of.
/// Sets `run_start`.
template <class Precision, int Hidden, Home home>
std::vector<UnitRun> Plan<Precision, Hidden, home>::runs(Draft& draft) const {
  std::vector<UnitRun> all;
  for (std::size_t w = 0; S::specialised && w < S::multipliers; ++w) {
    draft.p.run_start[w] = narrow(all.size());
    const auto& list = draft.blocks[w];
    for (std::size_t first = 0; first < list.size();) {
      const std::size_t end = first + left_in(list[first].what);
      all.push_back(run(draft, w, first, end));
      first = end;
    }
    if (!list.empty()) all.back().late |= last_run;
  }
  return all;
}

/// The run of blocks `first` to `end` (exclusive) of warp w, which belong to one unit.
template <class Precision, int Hidden, Home home>
UnitRun Plan<Precision, Hidden, home>::run(const Draft& draft, std::size_t w, std::size_t first,
                                           std::size_t end) const {
  const auto& list = draft.blocks[w];
  const auto [first_held, first_shared] = held_of(draft, w);
  const std::size_t late = draft.p.late_from[w];
  // The number of blocks before block k among blocks `from` to `to`.
  const auto among = [&](std::size_t k, std::size_t from, std::size_t to) {
    return std::clamp(k, from, to) - from;
  };
  std::uint32_t present = 0;
  for (std::size_t k = first; k < std::min(end, first_shared); ++k) {
    present |= 1U << (k < first_held ? k : S::blocks_in_flight + k - first_held);
  }
  const std::size_t shared_here = among(end, first_shared, late) - among(first, first_shared, late);
  const auto unit = static_cast<std::uint32_t>(unit_in(list[first].what));
  return {areas.units + unit * S::unit_words + S::part0 + narrow(w) * S::values,
          list[0].block + narrow(late), present | narrow(shared_here) << 16,
          narrow(among(first, late, list.size()) | among(end, late, list.size()) << 8 |
                 (list.size() - late) << 16)};
}

/// Concatenates the blocks of all warps. `start` gets each warp's first index, and the end behind
/// the last warp; warps that do not multiply have no blocks.
template <class Precision, int Hidden, Home home>
template <class Lists>
typename Lists::value_type Plan<Precision, Hidden, home>::join(
    const Lists& lists, std::uint32_t (&start)[most_warps + 1]) {
  typename Lists::value_type all;
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    start[w] = narrow(all.size());
    all.insert(all.end(), lists[w].begin(), lists[w].end());
  }
  for (std::size_t w = S::multipliers; w <= S::warps; ++w) start[w] = narrow(all.size());
  return all;
}

/// The word in shared memory of each block's first input on even steps, then on odd steps,
/// [2][input_count]. The entries behind the last block point to x, because a warp reads beyond its
/// own.
template <class Precision, int Hidden, Home home>
std::vector<std::uint32_t> Plan<Precision, Hidden, home>::first_inputs(
    const Program& p, const std::vector<W0Block>& all) {
  std::vector<std::uint32_t> inputs(2 * p.input_count, p.x);
  for (std::size_t k = 0; k < p.input_count && k < all.size(); ++k) {
    inputs[k] = all[k].x & 0xffffU;
    inputs[p.input_count + k] = all[k].x >> 16;
  }
  return inputs;
}

/// In a pipelined step: what the pass over W0 needs of each block. W0Input::slot is the block's
/// number until place_in_slots() replaces it.
template <class Precision, int Hidden, Home home>
std::vector<W0Input> Plan<Precision, Hidden, home>::inputs_of(const std::vector<W0Block>& all) {
  std::vector<W0Input> inputs;
  for (const W0Block& block : all) {
    const auto unit = static_cast<std::uint32_t>(unit_in(block.what));
    inputs.push_back({block.x, block.block | unit << input_unit_shift |
                                   (left_in(block.what) == 1 ? last_of_unit : 0)});
  }
  return inputs;
}

}  // namespace pvm::inline v0::detail::units
