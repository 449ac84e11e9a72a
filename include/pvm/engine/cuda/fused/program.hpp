// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What every multiprocessor does in a step, as flat tables that host and device share.
///
/// A *panel* is a unit's rows times up to 32 * parts * 4 columns of W0, or of W1 transposed. A
/// panel lies in memory tile by tile: [row group][part][row][lane] in float4. One warp works on one
/// tile. An *item* is a panel (one pass over it, where a unit has more row groups than there are
/// warps). All warps of a block run through the same items.

#include <cstdint>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::detail::fused {

/// A source word says where a value comes from: the upper 2 bits how many steps back, the rest
/// where in that step's row of the past. A row is [c(h) | h | d0 | frame in patch order | 0 | 1 |
/// pad].
inline constexpr std::uint32_t back_shift = 30;
inline constexpr std::uint32_t place_mask = (1U << back_shift) - 1;

/// Flags of an item, and behind them those of its tiles.
inline constexpr std::uint32_t starts_sum = 1;
inline constexpr std::uint32_t ends_sum = 2;
inline constexpr std::uint32_t starts_y = 4;
inline constexpr std::uint32_t stays_in_l2 = 8;

/// What an item is for one warp, in one word of 16 bytes: a panel's tile and where its sums go.
/// Here and below "f4" counts float4, and offsets that do not say where they start are in shared
/// memory.
struct alignas(16) WarpItem {
  std::uint32_t offset;  ///< f4 of lane 0's first row, from the start of what the flags name
  std::uint32_t what;    ///< f4 of the column vector | lanes << 16 | TileFlags << 22
  std::uint32_t places;  ///< floats: the row vector | row sums << 16
  std::uint32_t y;       ///< f4 of partial y
};
enum TileFlags : std::uint32_t {
  in_shared = 16,   ///< among the residents; else in the arena
  in_history = 32,  ///< among the listed d1; rows lie column_count apart, else lanes
  makes_sums = 64,  ///< row sums are asked for
  makes_y = 128,
  has_rows = 256,     ///< else only y may have to be started
  hidden_only = 512,  ///< not needed in a tail
};

/// Up to a few slots of a unit's x: their part of the inner products with the listed inputs.
struct SlotTask {
  std::uint32_t first, count;  ///< slots
  std::uint32_t layer;
  std::uint32_t out;  ///< [T]
};
struct Slot {
  std::uint32_t source;  ///< unit, or units + patch; none: the bias
  std::uint32_t phase;
  std::uint32_t older;  ///< 1: last step's inner products
  static constexpr std::uint32_t none = 0xffffffffU;
};
struct HiddenUnit {
  std::uint32_t unit, layer, batch_stride;
  std::uint32_t first_task, tasks;  ///< slot tasks
  std::uint32_t q, corr, sum;       ///< [T], [chunks][rows] behind [part][rows]
  std::uint32_t now;                ///< [2][rows]: h and c(h) of this step
  std::uint32_t patch;              ///< layer 0: patch number, else Slot::none
};
/// Inner products of a row part of r with the listed ones: of one unit's hidden values.
struct RawTask {
  std::uint32_t source;
  std::uint32_t back;  ///< r(t-1) holds h(t - back)
  std::uint32_t out;   ///< [T]
};
struct OutputUnit {
  std::uint32_t unit, layer;
  std::uint32_t first_block, blocks;  ///< column blocks
  std::uint32_t first_raw, raws;      ///< raw tasks: hidden, then fed context
  std::uint32_t sum, corr;            ///< [chunks][rows] behind [part][rows]
  std::uint32_t r, older;             ///< r(t-1); h(t-2)
};
/// A column block of a W1.
struct OutputBlock {
  std::uint32_t unit;         ///< index of the OutputUnit
  std::uint32_t phase;        ///< of slab 0; slab s: phases[s]
  std::uint32_t first_phase;  ///< in the phase list, one a slab
  std::uint32_t sum;          ///< u, [slab of history][part][rows]
  std::uint32_t coef;         ///< weights of the listed d1 for y, [history rows]
};
/// One panel, for folding.
struct Fold {
  std::uint32_t weight;   ///< f4
  std::int32_t resident;  ///< f4, or -1
  std::uint32_t width;    ///< f4
  std::uint32_t each;     ///< f4 of one part
  std::uint32_t layer;
  std::uint32_t phase;
  std::uint32_t row_source;  ///< W0: unit of d0; W1: unit of h
  std::uint32_t row_back;    ///< W0: 0; W1: r(t-1) holds h(t - back)
  std::uint32_t columns;     ///< W0: among the SM's source words; W1: among its columns of d1
  std::uint32_t bias;        ///< 1: the bias row folds with it
};

/// Start of an SM's blob; offsets in 32-bit words from the blob's start. "layer" in the lists above
/// is a place in `layer_list`: the layers this SM has to do with.
struct Program {
  std::uint32_t words;                   ///< of the blob
  std::uint32_t items;                   ///< WarpItems, [warp][all_items]
  std::uint32_t first_items, all_items;  ///< of phase 1; all; both even
  std::uint32_t slot_tasks, slot_task_count, slots;
  std::uint32_t hidden_units, hidden_count;
  std::uint32_t raw_tasks, raw_count;
  std::uint32_t output_units, output_count;
  std::uint32_t blocks, block_count, phases;
  std::uint32_t folds, fold_start, fold_count;  ///< sorted by phase; [R + 1]
  std::uint32_t layer_list, layer_count;
  std::uint32_t patches, patch_count;  ///< of the units of layer 0
  // In global tables: source words of x, r and the targets, in this order.
  std::uint32_t x_words, x_count, r_count, column_count;
  std::uint32_t history;  ///< f4: this SM's listed d1, [history rows][column_count / 4]
  std::uint32_t outputs;  ///< this SM's y
  // In shared memory (floats):
  std::uint32_t x, d1, y, stage, rows, terms, now, tables, words_copy, resident;
  std::uint32_t y_shared, tables_shared, words_shared;  ///< 0: in global memory
  std::uint32_t resident_f4;                            ///< how much is resident
  std::uint32_t resident_list, resident_count;          ///< folds (panels) to load and store
};

}  // namespace pvm::inline v0::detail::fused
