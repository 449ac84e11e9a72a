// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Decides when each panel of W0 folds, and lists the blocks to fold for each warp and phase. A
/// phase is a step number modulo `period`.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/units/plan/draft.hpp>
#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// The panels of the multiprocessor's units, without phases: unit by unit, A, B, then those of the
/// context. add_unit() counts on this order.
template <class Precision, int Hidden, Home home>
std::vector<Panel> Plan<Precision, Hidden, home>::panels_of(
    const std::vector<std::size_t>& units) const {
  std::vector<Panel> all;
  for (std::size_t i = 0; i < units.size(); ++i) {
    const std::size_t u = units[i];
    const std::size_t side = padded(u) / columns;
    all.push_back({i, first_block_index_[u], side, 0});
    all.push_back({i, first_block_index_[u] + side, side, padded(u)});
    for (const ContextPanel& panel : context_panels_[u]) {
      const std::size_t column = 2 * padded(u) + panel.column;
      all.push_back({i, first_block_index_[u] + column / columns, panel.width / columns, column});
    }
  }
  return all;
}

/// Gives each panel a phase: the largest panel first, each to the phase that has the fewest blocks
/// so far.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::give_phases(std::vector<Panel>& panels) const {
  std::vector<std::size_t> load(period);
  std::vector<std::size_t> order(panels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return panels[a].blocks > panels[b].blocks;
  });
  for (const std::size_t i : order) {
    const auto phase =
        static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
    panels[i].phase = phase;
    load[phase] += panels[i].blocks;
  }
}

/// Without warp roles, on the chip: lists each warp's blocks of W0 by phase, as indices among the
/// warp's blocks. Streamed fp32 blocks fold in the pass over W0; of these only the first of each
/// phase is noted, in `first_in_pass`.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::list_folding_by_warp(Draft& draft) const {
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    const auto& list = draft.blocks[w];
    for (std::size_t phase = 0; phase <= period; ++phase) {
      draft.folding_start.push_back(narrow(draft.folding.size()));
      std::uint32_t first = no_block;
      for (std::size_t k = 0; k < list.size(); ++k) {
        if (phase_of(list[k]) != phase) continue;
        if (!S::fp32_weights || k < S::held_blocks || k >= draft.p.streamed_to[w]) {
          draft.folding.push_back(narrow(k));
        } else if (first == no_block) {
          first = narrow(k);
        }
      }
      if (S::fp32_weights && phase < period) draft.first_in_pass.push_back(first);
    }
  }
}

/// With warp roles: deals the blocks of a phase to the folders in turn. For each folder and phase
/// there are three groups: held blocks of W0, which fold early, while multipliers use them, at most
/// `early_folds` for each folder; the other blocks of W0; blocks of W1 (`wide_fold`). Entries are
/// indices among all blocks of W0, or of W1, of the multiprocessor.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::list_folding_by_folder(Draft& draft) const {
  const std::vector<DueBlock> due = due_blocks(draft);
  std::vector<DueBlock> wide_due;
  for (const auto& list : draft.wide) {
    for (const ChipWideBlock& block : list) wide_due.push_back({phase_of(block), false});
  }
  for (std::size_t f = 0; f < S::folders; ++f) {
    for (std::size_t phase = 0; phase < period; ++phase) {
      std::size_t turn = 0, early = S::folders * S::early_folds;
      const auto deal_to = [&](const std::vector<DueBlock>& all, bool before, std::uint32_t is) {
        draft.folding_start.push_back(narrow(draft.folding.size()));
        std::size_t held = 0;
        for (std::size_t k = 0; k < all.size(); ++k) {
          if (all[k].phase != phase) continue;
          if ((all[k].held && held++ < early) != before) continue;
          if (turn++ % S::folders == f) draft.folding.push_back(narrow(k) | is);
        }
      };
      deal_to(due, true, 0);
      deal_to(due, false, 0);
      deal_to(wide_due, false, wide_fold);
    }
  }
  draft.folding_start.push_back(narrow(draft.folding.size()));
}

/// Of all blocks of W0, warp by warp: when they fold, and whether they are held.
template <class Precision, int Hidden, Home home>
std::vector<DueBlock> Plan<Precision, Hidden, home>::due_blocks(const Draft& draft) {
  std::vector<DueBlock> due;
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    const auto [first, behind] = held_of(draft, w);
    const auto& list = draft.blocks[w];
    for (std::size_t k = 0; k < list.size(); ++k) {
      due.push_back({phase_of(list[k]), k >= first && k < behind});
    }
  }
  return due;
}

/// For each multiplier and phase: a bit for each of its held blocks, set if the block folds in this
/// phase and has to be loaded again.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::list_reloads(Draft& draft) const {
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    const auto [first, behind] = held_of(draft, w);
    for (std::size_t phase = 0; phase < period; ++phase) {
      std::uint32_t held_due = 0;
      for (std::size_t k = first; k < behind; ++k) {
        if (phase_of(draft.blocks[w][k]) == phase) held_due |= 1U << (k - first);
      }
      draft.reload.push_back(held_due);
    }
  }
}

/// With warp roles: the first of a warp's held blocks among its blocks, and the end of these.
template <class Precision, int Hidden, Home home>
std::pair<std::size_t, std::size_t> Plan<Precision, Hidden, home>::held_of(const Draft& draft,
                                                                           std::size_t w) {
  const std::size_t first = draft.p.streamed_to[w];
  return {first, std::min<std::size_t>(draft.blocks[w].size(), first + S::held_blocks)};
}

}  // namespace pvm::inline v0::detail::units
