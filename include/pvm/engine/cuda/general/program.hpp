// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The program of every streaming multiprocessor (SM): what it does in a step, as flat tables that
/// the host writes (Plan, Planner) and the device reads (ThreadBlock).
///
/// A *panel* is all (padded) hidden rows of a unit times up to 128 * min(parts, 2) columns of W0,
/// or of W1 transposed. It is cut into *tiles*: a row group of RG rows times one of `parts` column
/// parts, which are at most 32 float4 wide. A panel lies in memory tile by tile:
///
///     [row group][part][row of the tile][lane], in float4; lane = float4 column inside the part
///
/// One warp works on one tile. An *item* is one panel, or one *slab* of the listed d1 (a panel-high
/// range of their rows). All warps of a thread block run through the same items, each with its own
/// tile. If a unit has more row groups than the thread block has warps, a panel takes several
/// *rounds*, and each round is an item.

#include <cstdint>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::detail::general {

/// A source word says where a value comes from: the upper 2 bits say how many steps back, the lower
/// 30 bits are the index in that step's row of the past. A row is
/// [c(h) | h | d0 | frame in patch order | 0 | 1 | padding], see StepShape.
inline constexpr std::uint32_t back_shift = 30;
inline constexpr std::uint32_t place_mask = (1U << back_shift) - 1;

/// Flags of an item. The next bits are TileFlags.
inline constexpr std::uint32_t starts_sum = 1;   ///< row sums start at 0 with this item
inline constexpr std::uint32_t ends_sum = 2;     ///< and are stored after this item
inline constexpr std::uint32_t starts_y = 4;     ///< partial y of these columns starts at 0
inline constexpr std::uint32_t stays_in_l2 = 8;  ///< loaded with an L2 policy that keeps it there

/// An item as one warp sees it, packed into 16 bytes: its tile, the vectors that multiply it, and
/// where the results go. Here and below "f4" is an offset or a size in float4. Offsets count from
/// `ThreadBlock::area` in shared memory if nothing else is said.
struct alignas(16) WarpItem {
  std::uint32_t offset;  ///< f4 of the tile's first row, lane 0, in the array that the flags name
  /// f4 of the column vector | lanes << 16 | (item and tile flags) << 22
  std::uint32_t vector_lanes_flags;
  std::uint32_t row_vector_and_sums;  ///< floats: the row vector | row sums << 16
  std::uint32_t y;                    ///< f4 in the partial sums of y
};
/// Items that a warp copies at once to its window, one by each lane.
inline constexpr std::uint32_t item_chunk = 32;
enum TileFlags : std::uint32_t {
  in_shared = 16,     ///< the tile is resident in shared memory; else see in_history
  in_history = 32,    ///< it is a part of the listed d1, row stride column_count; else of the arena
  makes_sums = 64,    ///< multiply by the column vector (row sums)
  makes_y = 128,      ///< multiply by the row vector (partial y)
  has_rows = 256,     ///< if not set, the tile has no rows: at most partial y is set to 0
  hidden_only = 512,  ///< belongs to W0, which a tail does not need
};

// In the lists below: T = terms, the listed gradients. "rows" are a unit's padded hidden rows.
// "layer" is an index into `Program::layer_list`. "phase" is the step modulo R at which the panel
// folds. `out`, `q`, `corrections`, `sum`, `squeezed_h`, `r`, `h_two_back` and `history_weights`
// are float offsets from `ThreadBlock::area`.

/// A few consecutive sources (at most sources_per_task) of a unit's x: one warp computes their part
/// of the weighted inner products with the listed inputs.
struct SourceTask {
  std::uint32_t first, count;  ///< range of sources
  std::uint32_t layer;
  std::uint32_t out;  ///< [T]
};
/// One source in a unit's x. Its columns of W0 belong to panels of one phase.
struct Source {
  std::uint32_t number;  ///< a unit; units + a patch number; or units + patches for the bias
  std::uint32_t phase;
  std::uint32_t in_b_half;  ///< 1: in the B half of x, which is the A half of the step before
  static constexpr std::uint32_t none = 0xffffffffU;  ///< see HiddenUnit::patch
};
/// A unit whose W0 this SM owns.
struct HiddenUnit {
  std::uint32_t unit, layer;
  std::uint32_t first_task, tasks;  ///< range of source tasks
  /// [T]: q_j, the weighted inner products with x_j; corrections [sections][rows], which lie behind
  /// the row sums; row sums [part][rows].
  std::uint32_t q, corrections, sum;
  std::uint32_t squeezed_h;  ///< c(h(t)) in the first [rows]; room for twice as many
  std::uint32_t patch;       ///< layer 0: patch number, else Source::none
};
/// Inner products of one slab of r(t-1), the hidden values of one unit, with their past.
struct RepresentationTask {
  std::uint32_t source;  ///< unit
  std::uint32_t back;    ///< the slab of r(t-1) holds h(t - back): 1 for slab 0, else 2
  std::uint32_t out;     ///< [T]
};
/// A unit whose W1 this SM owns. W1 transposed has *slabs* of rows: slab 0 multiplies the unit's
/// own hidden values, slab s > 0 those of its context source s - 1 (if the context is fed to it).
struct OutputUnit {
  std::uint32_t unit, layer;
  std::uint32_t first_block, blocks;  ///< range of column blocks
  std::uint32_t first_task, slabs;    ///< representation tasks, one per slab
  std::uint32_t sum, corrections;     ///< row sums [part][rows], then corrections [sections][rows]
  std::uint32_t r, h_two_back;        ///< r(t-1), [slab][rows]; h(t-2), [rows]
};
/// A block of columns of a W1: one panel per slab, and the same columns of the listed d1.
struct OutputBlock {
  std::uint32_t unit;         ///< index of the OutputUnit
  std::uint32_t phase;        ///< of slab 0
  std::uint32_t first_phase;  ///< index into `phases`: one phase per slab
  std::uint32_t sum;          ///< products of the listed d1 with d1(t), [history slab][part][rows]
  std::uint32_t history_weights;  ///< weights of the listed d1 in y(t-1), [history rows]
};
/// One panel, for folding.
struct Fold {
  std::uint32_t weight;      ///< f4 in the arena
  std::int32_t resident;     ///< f4 in `ThreadBlock::resident`, or -1
  std::uint32_t width;       ///< f4 columns of the panel
  std::uint32_t part_width;  ///< f4 columns of one part
  std::uint32_t layer;
  std::uint32_t phase;
  std::uint32_t row_source;  ///< W0: unit of d0; W1: unit of h
  std::uint32_t row_back;    ///< W0: 0; W1: its slab of r(t-1) holds h(t - row_back)
  std::uint32_t columns;     ///< first column. W0: among the SM's source_words; W1: among its d1
  std::uint32_t bias;        ///< 1: the bias row of these columns folds with the panel
};

/// The start of an SM's blob. The lists follow it; their offsets count 32-bit words from the start
/// of the blob.
struct Program {
  std::uint32_t blob_words;  ///< length of the blob in shared memory
  /// WarpItems, [warp][item_stride]; item i of a warp is its entry i & item_mask. If `windowed`
  /// there is no room for all: shared memory has a window, a ring buffer of two chunks for each
  /// warp, and all of them, [warp][item_count], lie in device memory, behind the blob.
  std::uint32_t items, item_stride, item_mask, windowed;
  std::uint32_t early_item_count, item_count;              ///< early items; all items
  std::uint32_t source_tasks, source_task_count, sources;  ///< SourceTask, Source
  std::uint32_t hidden_units, hidden_count;
  std::uint32_t representation_tasks, representation_count;
  std::uint32_t output_units, output_count;
  std::uint32_t blocks, block_count, phases;    ///< OutputBlock; phases by block and slab
  std::uint32_t folds, fold_start, fold_count;  ///< sorted by phase; first of each phase, [R + 1]
  std::uint32_t layer_list, layer_count;        ///< layers of which this SM owns matrices
  std::uint32_t patches, patch_count;           ///< patch numbers of its hidden units
  // The offset in StepArguments::source_words of the source words of x, and how many words of x, r
  // and the targets lie there, in this order. column_count is also the number of this SM's d1 and
  // y.
  std::uint32_t source_words, x_count, r_count, column_count;
  std::uint32_t history;  ///< f4 in past_d1: the listed d1, [history rows][column_count / 4]
  std::uint32_t outputs;  ///< column of the SM's first y
  // Offsets from `ThreadBlock::area`, in floats:
  //   x               x(t), then r(t-1) and h(t-2)
  //   d1              d1(t), [column_count]
  //   y               partial sums of y, if y_shared
  //   column_factors  of a fold, [term][column]; in 16 bits see folds_16bit.cuh, and of several
  //   row_factors     of a fold, [term][row group][8]; likewise
  //   table_numbers   numbers of the current coefficient tables, [layer_count]
  //   now             struct Now
  //   tables          coefficient tables, [layer_count][table_stride], if tables_shared
  //   words_copy      the source words, if words_shared
  //   resident        resident panels
  std::uint32_t x, d1, y, column_factors, row_factors, table_numbers, now, tables, words_copy,
      resident;
  std::uint32_t folds_at_once, fold_slot;  ///< 16-bit panels staged together; words of each
  /// Teams of warps, each by the warp behind its last one:
  ///     gather_teams  gather_inputs, representation_products, weigh_sources, gather_errors
  ///     hidden_teams  finish_hidden, correct_output
  ///     finish_teams  publish_products, finish_gradient, finish_outputs
  std::uint32_t gather_teams[4], hidden_teams[4], finish_teams[4];
  std::uint32_t y_shared, tables_shared, words_shared;  ///< 0: in device memory
  std::uint32_t resident_f4;                            ///< size of all resident panels
  std::uint32_t resident_list, resident_count;          ///< their indices in `folds`
};

}  // namespace pvm::inline v0::detail::general
