// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The program of a streaming multiprocessor (SM) while it is being written.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/cuda/general/program.hpp>

namespace pvm::inline v0::detail::general {

/// What an item is a pass over, and which products it makes: row sums with the column vector x or
/// d1(t), and partial y with the row vector.
enum class Work : std::uint32_t {
  none = 0,
  hidden = 1,   ///< W0: row sums with x
  history = 2,  ///< listed d1: row sums with d1, and partial y
  output = 3,   ///< W1^T, hidden rows: row sums with d1, and partial y
  context = 4,  ///< W1^T, rows of fed context: partial y only
};

/// An item for all warps: one pass over a panel, or over a slab of the listed d1. Offsets named f4
/// count float4, others floats. Offsets other than `weight` and `resident` are in Block::area;
/// plan/places.hpp completes them.
struct Item {
  std::uint32_t weight;         ///< f4 in the arena; in past_d1 for Work::history
  std::int32_t resident;        ///< f4 in Block::resident, or -1
  std::uint32_t width;          ///< f4 columns
  std::uint32_t part_width;     ///< f4 columns of one part
  std::uint32_t rows;           ///< rows that exist
  std::uint32_t column_vector;  ///< f4: x or d1
  std::uint32_t row_vector;     ///< r, or the weights of the listed d1
  std::uint32_t sum;            ///< where row sums go, [part][padded rows]
  std::uint32_t y;              ///< f4: partial y, [row group of a pass][y_stride]
  std::uint32_t y_stride;       ///< f4
  std::uint32_t pass;           ///< 0 to passes - 1
  Work work;
  std::uint32_t flags;  ///< item flags, see program.hpp
  std::uint32_t slab;   ///< of the listed d1, for Work::history
};

/// The lists of an SM before they are packed into its blob; Program describes them.
struct Draft {
  std::vector<Item> phase1_items, phase2_items;
  std::vector<SlotTask> slot_tasks;
  std::vector<Slot> slots;
  std::vector<HiddenUnit> hidden_units;
  std::vector<RepresentationTask> representation_tasks;
  std::vector<OutputUnit> output_units;
  std::vector<OutputBlock> blocks;
  std::vector<std::uint32_t> phases;
  std::vector<Fold> folds;
  std::vector<std::uint32_t> r_words, targets;  ///< source words
  std::vector<std::uint32_t> layers, patches;
  std::vector<std::uint32_t> output_ids, first_column;  ///< units with W1 here; first d1 column
  std::uint32_t next_phase = 0;
  std::uint32_t shared = 0;  ///< floats of Block::area taken so far
  Program program{};

  // Derived from the lists above once they are complete.
  std::vector<Item> items;           ///< of both phases
  std::vector<WarpItem> warp_items;  ///< the same, [warp][item]
  std::vector<std::uint32_t> fold_start;
  std::vector<std::uint32_t> resident_list;

  /// The index of a layer in `layers`, which gets the layer if it is not there yet.
  [[nodiscard]] std::uint32_t local_layer(int layer) {
    const auto id = static_cast<std::uint32_t>(layer);
    const auto found = std::find(layers.begin(), layers.end(), id);
    const auto at = static_cast<std::uint32_t>(found - layers.begin());
    if (found == layers.end()) layers.push_back(id);
    return at;
  }
  /// Takes room for `floats` floats, aligned to 16 bytes, in Block::area; returns its offset.
  std::uint32_t allocate(std::size_t floats) {
    const std::uint32_t at = shared;
    shared += static_cast<std::uint32_t>((floats + 3) / 4 * 4);
    return at;
  }
};

}  // namespace pvm::inline v0::detail::general
