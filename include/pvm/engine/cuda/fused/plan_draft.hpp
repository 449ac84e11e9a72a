// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A multiprocessor's program while it is being written.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/cuda/fused/program.hpp>

namespace pvm::inline v0::detail::fused {

enum class Work : std::uint32_t {
  none = 0,
  hidden = 1,   ///< W0: rows . x
  history = 2,  ///< listed d1: rows . d1, and their share of y
  output = 3,   ///< W1^T, hidden rows: rows . d1, and their share of y
  context = 4,  ///< W1^T, fed context rows: their share of y only
};

/// What all warps do with a panel. "f4" offsets count float4, others floats; offsets other than
/// `weight` are in shared memory.
struct Item {
  std::uint32_t weight;    ///< f4, in the arena, or in the history for Work::history
  std::int32_t resident;   ///< f4 in shared memory, or -1
  std::uint32_t width;     ///< f4 columns
  std::uint32_t each;      ///< f4 columns of one part
  std::uint32_t rows;      ///< rows that exist
  std::uint32_t vec;       ///< f4: the column vector (x or d1)
  std::uint32_t coef;      ///< the row vector (r, or the listed gradients' weights)
  std::uint32_t sum;       ///< where row sums go, [part][rows padded]
  std::uint32_t y;         ///< f4: partial y, [row group of a pass][y_stride]
  std::uint32_t y_stride;  ///< f4
  std::uint32_t pass;
  Work work;
  std::uint32_t flags;
  std::uint32_t slab;  ///< of the history
};

/// An SM's tables, not in their final form: see Program for what the lists are.
struct Draft {
  std::vector<Item> first, second;  ///< of phase 1, of phase 2
  std::vector<SlotTask> slot_tasks;
  std::vector<Slot> slots;
  std::vector<HiddenUnit> hidden_units;
  std::vector<RawTask> raw_tasks;
  std::vector<OutputUnit> output_units;
  std::vector<OutputBlock> blocks;
  std::vector<std::uint32_t> phases;
  std::vector<Fold> folds;
  std::vector<std::uint32_t> r_words, targets;
  std::vector<std::uint32_t> layers, patches;
  std::vector<std::uint32_t> output_ids, first_column;  ///< units with a W1 here, where d1 starts
  std::uint32_t next_phase = 0;
  std::uint32_t shared = 0;  ///< floats taken so far
  Program program{};

  // What follows from these when all are known.
  std::vector<Item> items;           ///< of both phases
  std::vector<WarpItem> warp_items;  ///< the same, [warp][items]
  std::vector<std::uint32_t> fold_start;
  std::vector<std::uint32_t> resident_list;

  /// The place of a layer in `layers`.
  [[nodiscard]] std::uint32_t local_layer(int layer) {
    const auto id = static_cast<std::uint32_t>(layer);
    const auto found = std::find(layers.begin(), layers.end(), id);
    const auto at = static_cast<std::uint32_t>(found - layers.begin());
    if (found == layers.end()) layers.push_back(id);
    return at;
  }
  /// Room in shared memory: the offset of the first of so many floats.
  std::uint32_t take(std::size_t floats) {
    const std::uint32_t at = shared;
    shared += static_cast<std::uint32_t>((floats + 3) / 4 * 4);
    return at;
  }
};

}  // namespace pvm::inline v0::detail::fused
