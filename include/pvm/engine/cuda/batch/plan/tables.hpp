// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Flat tables that the batched kernels read, shared by host and device.
///
/// A *row* holds one quantity (an input, a hidden value, a gradient, ...) for all sequences,
/// contiguously: [Bp] values, where Bp is the padded batch size. A unit's input x is a list of
/// rows, in any number and order; loading a row is one contiguous copy. Products contract over the
/// rows (forward) or along them, over the sequences (updates). A *row word* names a row: a
/// `RowArray` in the upper 4 bits, the row's number in that array in the others.
///
/// A *panel* is a part of a weight matrix with two sides: m, the whole long side (W0: the inputs;
/// W1: the outputs), and n, at most 56 of the other side (W0: hidden values; W1: columns of the
/// representation r). "m" and "n" also stand for single indices along these sides. A *tile* is a
/// range of m of a panel.
///
/// The fp32 master weights of a panel are stored in the order of m16n8 mma accumulators. Every 16 m
/// are contiguous: first the full tiles of 8 n, [n / 8][lane] as float4, then the remaining n (49 =
/// 6 * 8 + 1) as [16][remaining n] floats, so that these need no padding. (A swept W0 has another
/// order, `swept_master_index`.)
/// The working copy of a panel consists of weight *blocks* of `M::block` m by 56 n in the order of
/// mma B fragments; M is the precision (precision.cuh).
///
/// In a *sweep* (sweep/kernel.cuh) one kernel makes a whole step in one pass over the master
/// weights; otherwise a products kernel (products.cuh) and an update kernel (update.cuh) make it.

#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::detail::batch {

inline constexpr int panel_width = 56;  ///< most n of a panel: 7 mma tiles of 8
inline constexpr int panel_tiles = 7;
inline constexpr int panel_depth = 64;    ///< n of a W1 panel, padded, as the depth of y = W1 r
inline constexpr int block_bytes = 3584;  ///< of a weight block: 7 x 32 lanes x 16 bytes
inline constexpr int block_words = 896;   ///< of a weight block, 32-bit words
/// 32-bit words of a swept W1's copy of 16 m by 56 n, in 16-bit weights.
inline constexpr int copy_words = 448;
inline constexpr int tile_rows = 128;  ///< m of a tile of the update kernel
inline constexpr int threads = 256;    ///< of a block, in the kernels that name no other number
inline constexpr int most_terms = 8;   ///< listed gradients
inline constexpr int most_part_rows = 2112;  ///< rows of one part of a forward product

/// The array that a row is read from. "Back" counts from the step that reads.
enum class RowArray : std::uint32_t {
  squeezed_1,       ///< c(h), one step back
  squeezed_2,       ///< c(h), two steps back
  pixels_0,         ///< c(pixel) of the step's own frame
  pixels_1,         ///< c(pixel), one step back
  hidden_0,         ///< h of the step itself
  hidden_1,         ///< h, one step back
  ones,             ///< a single row of ones, number 0
  hidden_gradient,  ///< d0
  output_gradient,  ///< d1
  count
};
inline constexpr int array_shift = 28;
inline constexpr std::uint32_t row_mask = (1U << array_shift) - 1;
PVM_HOST_DEVICE constexpr std::uint32_t row_word(RowArray array, std::uint32_t row) {
  return static_cast<std::uint32_t>(array) << array_shift | row;
}
inline constexpr std::uint32_t one_row = row_word(RowArray::ones, 0);
/// Stands for a row of zeros. Kernels fill in zeros instead of loading a row of them: hundreds of
/// thread blocks that load the same cache line would wait for each other.
inline constexpr std::uint32_t zero_row = 0xffffffffU;
/// What `row_offset` returns for `zero_row` instead of an offset.
inline constexpr std::uint32_t no_offset = 0xffffffffU;

enum class Role : std::uint32_t {
  forward,  ///< h = f(W0 x), or a part of the product
  errors,   ///< d1 = g(y) e and d0 = g(h) W1^T d1
  outputs,  ///< y = f(W1 r) of the step before
};

/// The work of one thread block of the products kernel, for each slice of the batch. Row words are
/// given by their index in `Arguments::rows`, weight blocks by their index in
/// `Arguments::working_copies` (without the offset of W1's other working copy).
struct Product {
  Role role;
  std::uint32_t rows;     ///< first row word; outputs: of [panels][64]; errors: of the targets
  std::uint32_t depth;    ///< rows contracted over; forward: in whole blocks; errors: D, the
                          ///< number of the unit's outputs; outputs: unused
  std::uint32_t weights;  ///< first weight block
  std::uint32_t blocks;   ///< weight blocks along the depth; outputs: of one group of 56 outputs
  std::uint32_t out;      ///< first row of h, d0 or y that is written
  std::uint32_t count;    ///< rows written; forward, errors: at most 56; outputs: D
  std::uint32_t parts;    ///< forward: number of parts of the product; errors: 1 if the product
                          ///< stores d1 and the score, else 0
  std::uint32_t part;     ///< forward: index of this part, from 0
  std::uint32_t scratch;  ///< forward: index of part 0's partial sums in `Arguments::scratch`
  std::uint32_t counter;  ///< forward: index of the counter of finished parts
  std::uint32_t errors;   ///< errors: first row of y and d1
  std::uint32_t pixels;   ///< errors: the first `pixels` targets are pixels of the step's frame
  std::uint32_t score;    ///< errors: index of the three score sums
  std::uint32_t pad[2];
};

/// A panel as the kernels see it. Row words are given by their index in `Arguments::rows`.
struct Panel {
  std::uint64_t master;  ///< index of its first float in the master
  std::uint32_t m_rows;  ///< first row word of m
  std::uint32_t m_end;   ///< one past the last m of the panel; in a SweepTile: of the tile
  std::uint32_t n_rows;  ///< first row word of n
  std::uint32_t n;       ///< number of n, at most 56
  std::uint32_t layer;
  /// First block of the working copy that is contracted over m, or none. Swept W1: index of its
  /// first copy of 16 m (`copy_words` each).
  std::uint32_t copy_over_m;
  /// W1: first block of the working copy that is contracted over n, or none.
  std::uint32_t copy_over_n;
  std::uint32_t group_blocks;     ///< W1: blocks of all panels for one group of 56 outputs
  std::uint32_t double_buffered;  ///< 1: working copies are double-buffered (W1)
  std::uint32_t m_begin;          ///< in a tile: its first m; else 0
  static constexpr std::uint32_t none = 0xffffffffU;
};
/// A tile as the update kernel loads it, contiguous: 128 m of a panel.
struct Tile {
  Panel panel;
  std::uint32_t rows[tile_rows + panel_width];  ///< row words of m, then of n
};
static_assert(sizeof(Tile) % 16 == 0);

/// A tile as the sweep kernel loads it: at most `sweep_rows` m of a panel, followed in memory by
/// the row words of these m (W0: x; W1: the targets) and of 56 n. The tiles of a panel that follow
/// each other in one thread block are a *part* of the panel; h or d0 of the panel is the sum over
/// its parts. Stages are the pipeline stages of the thread block, counted from the step's start.
struct alignas(16) SweepTile {
  Panel panel;
  std::uint32_t is_w0;        ///< 1: a tile of W0, multiplied with x; 0: of W1, multiplied with d1
  std::uint32_t begins;       ///< 1: first tile of its part
  std::uint32_t ends;         ///< 1: last tile of its part; 2: of its part and its thread block
  std::uint32_t part;         ///< index of the part's sums in `Arguments::scratch`
  std::uint32_t outputs;      ///< W1: row of y and d1 for the tile's first m
  std::uint32_t pixels;       ///< W1: the targets of its first `pixels` m are pixels of the step's
                              ///< frame (`pixels` may exceed `rows`)
  std::uint32_t number;       ///< index among the tiles of the thread block
  std::uint32_t part_number;  ///< index of the part among the parts of the thread block
  std::uint64_t next_first_master;  ///< `first_master` of the thread block's next tile: its masters
                                    ///< are prefetched before the tile itself may have arrived
  std::uint32_t next_rows;          ///< `rows` of the next tile; 0: there is none
  std::uint32_t next_n;             ///< `panel.n` of the next tile
  std::uint32_t next_is_w0;         ///< `is_w0` of the next tile
  std::uint32_t out;                ///< first row of h (W0) or d0 (W1) of the panel
  std::uint32_t first_part;         ///< index of the panel's first part, as `part`
  std::uint32_t parts;              ///< number of parts of the panel
  std::uint32_t adds;               ///< 1: this part adds up the sums of all parts of the panel
  std::uint32_t stage;              ///< first stage of the tile (W1: with copies of W1)
  std::uint32_t last_stage;         ///< last stage of the tile
  std::uint32_t rows;               ///< number of m of the tile
  std::uint64_t first_master;       ///< index of the tile's first float in the master
};
static_assert(sizeof(SweepTile) % 16 == 0);
/// The step's tag: the lowest bit of every partial sum that a part of a sweep stores for another
/// thread block. The reader polls until it sees the tag: sums of the step before have the opposite
/// bit.
PVM_HOST_DEVICE constexpr std::uint32_t step_tag(unsigned long long step) {
  return static_cast<std::uint32_t>(step & 1U);
}
inline constexpr int sweep_rows = 64;  ///< most m of a tile of a sweep
/// Consumer warps of a sweep's thread block; each works on 16 hidden values.
inline constexpr int sweep_consumer_warps = 4;
/// Floats of the partial sums of one part of a sweep.
PVM_HOST_DEVICE constexpr std::size_t sweep_part_floats(int padded) {
  return std::size_t{16} * sweep_consumer_warps * static_cast<std::size_t>(padded);
}
/// Bytes of a SweepTile with its row words.
inline constexpr int sweep_tile_bytes =
    static_cast<int>(sizeof(SweepTile)) + (sweep_rows + panel_width) * 4;
/// Sequences in a *chunk*, which a product processes at once: all of them, or half of more than
/// 128.
PVM_HOST_DEVICE constexpr int sweep_chunk(int padded) { return padded > 128 ? padded / 2 : padded; }
/// Stages for a tile's copies of W1(t-2) and W1(t): one where both fit into it, else two.
PVM_HOST_DEVICE constexpr std::uint32_t sweep_copy_stages(int padded) {
  return sweep_chunk(padded) == 128 ? 1 : 2;
}
/// Stages that a tile of `rows` m fills in a step. A stage holds the rows of the gradient (W0) or
/// the targets (W1) for one chunk of the sequences. W0 also needs the rows of x(t): a stage holds
/// 64 of them for all sequences, 32 where there are two chunks. W1 also needs its copies.
PVM_HOST_DEVICE constexpr std::uint32_t sweep_stages(int padded, std::uint32_t rows, bool is_w0) {
  const auto chunks = static_cast<std::uint32_t>(padded / sweep_chunk(padded));
  const std::uint32_t x_rows = sweep_rows / chunks;
  return chunks + (is_w0 ? (rows + x_rows - 1) / x_rows : sweep_copy_stages(padded));
}
/// Offset of weight (m, n) in the master of a panel with `columns` n, in floats.
PVM_HOST_DEVICE constexpr std::size_t master_index(std::size_t columns, std::size_t m,
                                                   std::size_t n) {
  const std::size_t full = columns / 8, rest = columns % 8, row = m % 16;
  const std::size_t start = m / 16 * 16 * columns;
  if (n / 8 == full) return start + full * 128 + row * rest + n % 8;
  return start + ((n / 8 * 32) + row % 8 * 4 + n % 8 / 2) * 4 + row / 8 * 2 + n % 2;
}
/// The same for a swept W0 of `height` m. Every group of `sweep_rows` m (the last one rounded up to
/// a multiple of 16) is contiguous: [n / 16][m / 8][lane] as float4, in the order of accumulators
/// whose rows are n, and the remainder of n < 16 as [n % 16][m] floats.
PVM_HOST_DEVICE constexpr std::size_t swept_master_index(std::size_t height, std::size_t columns,
                                                         std::size_t m, std::size_t n) {
  const std::size_t first = m / sweep_rows * sweep_rows;
  const std::size_t left = (height + 15) / 16 * 16 - first;
  const std::size_t rows = left < sweep_rows ? left : sweep_rows;
  const std::size_t at = m - first, row = n % 16;
  const std::size_t start = first * columns + n / 16 * 16 * rows;
  if (n / 16 == columns / 16) return start + row * rows + at;
  return start + ((at / 8 * 32) + row % 8 * 4 + at % 8 / 2) * 4 + row / 8 * 2 + at % 2;
}

/// The position of a run, on the device. There are two, so that no kernel reads the one it writes:
/// the first kernel of a step reads one and writes the other, the second kernel does the opposite.
/// (A sweep is a single kernel: each of its thread blocks has a cursor of its own and overwrites it
/// when all of its warps have read it.)
struct StepCursor {
  unsigned long long step;      ///< the step to make: number of steps done
  std::uint32_t current_copy;   ///< index (0 or 1) of the working copy that is W1(step)
  std::uint32_t previous_copy;  ///< index of the working copy that was W1(step - 1)
  std::uint32_t work_pending;  ///< 1: y(step - 1) has not been computed yet; swept: W0 has not been
                               ///< updated with the gradient of step - 1 yet
  std::uint32_t hidden, frame, gradient, y;  ///< the step's slots in the ring buffers
  /// Swept: for so many more steps, y(step - 2) is read from `Arguments::y` (a checkpoint's, or the
  /// past of a new run) and not recomputed.
  std::uint32_t saved_y_steps;
};

/// Slots of the ring of y and of the ring of a swept W1's copies. Step t of a sweep reads W1(t-2)
/// and W1(t) and overwrites W1(t-2) with W1(t+1), tile by tile; W1(t-1) stays for the next step.
inline constexpr int y_slots = 3;

/// The purposes for which a sweep reads rows. Each view reads as a step `steps_back` earlier would.
enum SweepView {
  forward_view,   ///< x(t) for the product with W0, and the targets
  gradient_view,  ///< r(t-2), for y(t-2) and for the gradient of W1
  before_view,    ///< x(t-3) and d0(t-1) for the gradient of W0 that the step before left;
                  ///< Task::write_copies: d1(t-1) and r(t-3)
  sweep_views
};
PVM_HOST_DEVICE constexpr int steps_back(int view) { return view == forward_view ? 0 : view + 1; }
/// Age in steps of the d0 and d1 that a view reads.
PVM_HOST_DEVICE constexpr int gradient_age(int view) { return view == forward_view ? 0 : 1; }

/// Number of start offsets of a step: one for every view and array.
inline constexpr int array_offset_count = sweep_views * static_cast<int>(RowArray::count);
/// What a thread block of a sweep needs at the start of a step.
struct StepStart {
  StepCursor cursor;
  /// [view][array]: where the array's rows of the view start in the arena, in units of 16 bytes.
  std::uint32_t array_offsets[array_offset_count];
};

/// Sizes and options that kernels need at run time.
struct Shape {
  int batch;    ///< N: number of sequences
  int padded;   ///< Bp: N padded, a multiple of `slice`
  int slice;    ///< sequences per thread block of the products kernel; swept: Bp
  int terms;    ///< T: number of listed gradients; 1 where the rule keeps floats beside the weights
  int ring;     ///< slots of the rings of hidden rows
  int frames;   ///< slots of the rings of frames, tables and scored flags
  int hidden;   ///< rows of h in a slot: units x hidden values
  int pixels;   ///< rows of a frame
  int outputs;  ///< rows of y in a slot
  int layers;
  int columns;     ///< most n of a panel
  int table;       ///< floats of a step's table, see RateTables
  int activation;  ///< see `activation_number`
  int sign_error;  ///< 1: units learn from the sign of their error (`opt_abs_diff`)
  float share;     ///< factor of one sequence's gradient: 1 / N for the mean, 1 for the sum
};

}  // namespace pvm::inline v0::detail::batch
