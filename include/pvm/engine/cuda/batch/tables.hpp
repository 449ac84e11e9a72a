// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the batched kernels read: flat tables that host and device share.
///
/// Everything that exists once per sequence is a *row*: the values of all sequences one behind the
/// other ([Bp], the batch padded). A unit's input x is then a list of rows, of any length and
/// order, each a contiguous copy; products contract over rows (forward) or along them (updates).
///
/// A *panel* is a part of a weight matrix that one block of threads updates at once: all m along
/// one side (W0: the inputs; W1: the outputs), and n of at most 56 along the other (W0: hidden
/// values; W1: columns of the representation). Its master weights lie in the order of the
/// accumulators of m16n8 products: [m / 16][n / 8][lane] in float4, and for a remainder of n < 8
/// [m / 16][16][n % 8] floats, so that 49 hidden values take no padding. (A swept W0 has
/// another order, `swept_master_index`.)
/// Its working copy lies in *blocks* in the order of the second operand: of `block` m by 56 n.

#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::detail::batch {

inline constexpr int panel_width = 56;  ///< n of a panel: 7 tiles of 8
inline constexpr int panel_tiles = 7;
inline constexpr int panel_depth = 64;       ///< a W1 panel's n as the depth of y = W1 r
inline constexpr int block_bytes = 3584;     ///< 7 x 32 lanes x 16 bytes
inline constexpr int block_words = 896;      ///< the same in 32-bit words
inline constexpr int copy_words = 448;       ///< of 16 m by 56 n of a swept W1, two a word
inline constexpr int tile_rows = 128;        ///< m that a block of threads updates
inline constexpr int threads = 256;          ///< of every kernel
inline constexpr int most_terms = 8;         ///< listed gradients
inline constexpr int most_part_rows = 2112;  ///< of one part of a forward product

/// Where a row comes from: the upper 4 bits of a row word; the rest is the row's number there.
enum class Stream : std::uint32_t {
  squeezed_1,       ///< c(h) one step back
  squeezed_2,       ///< ... two
  pixels_0,         ///< the step's frame, c(pixel)
  pixels_1,         ///< the one before
  hidden_0,         ///< h of the step
  hidden_1,         ///< h one step back
  ones,             ///< row 0
  hidden_gradient,  ///< d0
  output_gradient,  ///< d1
  count
};
inline constexpr int stream_shift = 28;
inline constexpr std::uint32_t row_mask = (1U << stream_shift) - 1;
PVM_HOST_DEVICE constexpr std::uint32_t row_word(Stream stream, std::uint32_t row) {
  return static_cast<std::uint32_t>(stream) << stream_shift | row;
}
inline constexpr std::uint32_t one_row = row_word(Stream::ones, 0);
/// A row of zeros: none is read. (Hundreds of blocks that read the same line wait for each other.)
inline constexpr std::uint32_t zero_row = 0xffffffffU;
inline constexpr std::uint32_t nowhere = 0xffffffffU;  ///< the place of such a row

enum class Role : std::uint32_t {
  forward,  ///< part of h = f(W0 x)
  errors,   ///< d1 = g(y) e and d0 = g(h) W1^T d1
  outputs,  ///< y = f(W1 r) of the step before
};

/// What one block of threads of the products kernel does, for each slice of the batch.
struct Product {
  Role role;
  std::uint32_t rows;     ///< first row word; outputs: [panels][64]; errors: the targets
  std::uint32_t depth;    ///< rows that count; errors: D
  std::uint32_t weights;  ///< first block
  std::uint32_t blocks;   ///< of weights along the depth; outputs: of one group of 56
  std::uint32_t out;      ///< first row of h, d0 or y
  std::uint32_t count;    ///< forward, errors: rows made, at most 56; outputs: D
  std::uint32_t parts;    ///< forward: of this product; errors: 1 if it writes d1
  std::uint32_t part;     ///< forward: its number
  std::uint32_t scratch;  ///< forward: of part 0
  std::uint32_t counter;  ///< forward: place of the parts' counter
  std::uint32_t errors;   ///< errors: first row of y and d1
  std::uint32_t pixels;   ///< errors: so many targets are pixels of this frame
  std::uint32_t score;    ///< errors: place of the sums
  std::uint32_t pad[2];
};

/// A panel as the update kernel sees it.
struct Panel {
  std::uint64_t master;  ///< first float
  std::uint32_t m_rows;  ///< first row word of m
  std::uint32_t m;       ///< rows that count
  std::uint32_t n_rows;  ///< first row word of n
  std::uint32_t n;       ///< at most 56
  std::uint32_t layer;
  std::uint32_t work;    ///< first block, m deep; none: not wanted; swept: first 16 m of W1's copy
  std::uint32_t work_y;  ///< W1: first block, n deep
  std::uint32_t group;   ///< W1: blocks of all panels for a group of 56 outputs
  std::uint32_t flips;   ///< 1: two working copies, read and written in turns (W1)
  std::uint32_t first;   ///< in a tile: its first m
  static constexpr std::uint32_t none = 0xffffffffU;
};
/// A tile as the update kernel reads it, in one piece: 128 m of a panel.
struct Tile {
  Panel panel;
  std::uint32_t rows[tile_rows + panel_width];  ///< row words of m, then of n
};
static_assert(sizeof(Tile) % 16 == 0);

/// A tile as the sweep kernel reads it: `sweep_rows` m of a panel, followed by the row words of
/// those m (W0: x; W1: the targets) and of all 56 n. Tiles of a panel that one block of threads
/// works on are one *part*.
struct alignas(16) SweepTile {
  Panel panel;
  std::uint32_t forward;      ///< 1: of W0, multiplied with x at once; 0: of W1, with d1
  std::uint32_t begins;       ///< 1: the first tile of a part
  std::uint32_t ends;         ///< 1: the last one; 2: and the last of the block of threads
  std::uint32_t part;         ///< place of the part's sums
  std::uint32_t outputs;      ///< W1: row of y and d1 of its first m
  std::uint32_t pixels;       ///< W1: so many of its m are of pixels of this frame
  std::uint32_t number;       ///< among the tiles of the block of threads, from 0
  std::uint32_t turn;         ///< ... the part's among its parts
  std::uint64_t next_master;  ///< first float of the block's next tile, which may not be here yet
  std::uint32_t next_m;       ///< m of that one; 0: there is none
  std::uint32_t next_n;
  std::uint32_t next_forward;
  std::uint32_t out;           ///< first row of the panel's h, or of its d0
  std::uint32_t first_part;    ///< of the panel
  std::uint32_t parts;         ///< ... and how many it has
  std::uint32_t adds;          ///< 1: this part adds the others' sums to its own
  std::uint32_t stage;         ///< which of the stages of a step its rows come in first
  std::uint32_t last_stage;    ///< ... and last
  std::uint32_t rows;          ///< m that the tile has
  std::uint64_t first_master;  ///< first float of it
};
static_assert(sizeof(SweepTile) % 16 == 0);
/// The last bit of the sums that a part of a sweep leaves to another in a step: who adds them sees
/// that they are of this step, as those of the step before have the other one.
PVM_HOST_DEVICE constexpr std::uint32_t sum_mark(unsigned long long step) {
  return static_cast<std::uint32_t>(step & 1U);
}
inline constexpr int sweep_rows = 64;  ///< m of a tile of a sweep
/// Warps of a block of threads that compute, 16 hidden values each.
inline constexpr int sweep_warps = 4;
/// Floats of the sums that a part of a sweep leaves.
PVM_HOST_DEVICE constexpr std::size_t sweep_part_floats(int padded) {
  return std::size_t{16} * sweep_warps * static_cast<std::size_t>(padded);
}
/// Bytes of one with its row words.
inline constexpr int sweep_tile_bytes =
    static_cast<int>(sizeof(SweepTile)) + (sweep_rows + panel_width) * 4;
/// Sequences that products work on together: all, or half of more than 128.
PVM_HOST_DEVICE constexpr int sweep_chunk(int padded) { return padded > 128 ? padded / 2 : padded; }
/// Stages that W1(t-2) and W1(t) of a tile come in: two where both have no room in one.
PVM_HOST_DEVICE constexpr std::uint32_t sweep_copy_stages(int padded) {
  return sweep_chunk(padded) == 128 ? 1 : 2;
}
/// Stages that a tile's rows come in, in a step: those that a gradient is made of in chunks of the
/// sequences, and for W0 those that W is multiplied with, 32 at a time where there are two chunks;
/// else one of each.
PVM_HOST_DEVICE constexpr std::uint32_t sweep_stages(int padded, std::uint32_t rows, bool forward) {
  const auto chunks = static_cast<std::uint32_t>(padded / sweep_chunk(padded));
  const std::uint32_t part = sweep_rows / chunks;
  return chunks + (forward ? (rows + part - 1) / part : sweep_copy_stages(padded));
}
/// Where weight (m, n) of a panel with so many `columns` n lies behind its first.
PVM_HOST_DEVICE constexpr std::size_t master_index(std::size_t columns, std::size_t m,
                                                   std::size_t n) {
  const std::size_t full = columns / 8, rest = columns % 8, row = m % 16;
  const std::size_t start = m / 16 * 16 * columns;
  if (n / 8 == full) return start + full * 128 + row * rest + n % 8;
  return start + ((n / 8 * 32) + row % 8 * 4 + n % 8 / 2) * 4 + row / 8 * 2 + n % 2;
}
/// The same of a swept W0, of `height` m: in every `sweep_rows` m, as many of them as there are in
/// whole 16, [n / 16][m / 8][lane] in float4, as accumulators with n as rows lie across a warp, and
/// for a remainder of n < 16 [n % 16][m] floats.
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

/// Where the run stands. A step's first kernel reads one of these and writes the other for the
/// second kernel, which writes the first: no kernel reads what it writes. (A sweep is one kernel:
/// each of its blocks of threads has its own, and writes it when all of its warps have read it.)
struct Cursor {
  unsigned long long step;
  std::uint32_t now;                         ///< which of W1's two working copies is W1(step)
  std::uint32_t then;                        ///< ... and which was W1(step - 1)
  std::uint32_t owed;                        ///< 1: y(step - 1) is still to be computed; swept:
                                             ///< what it taught W0 is still to be learned
  std::uint32_t hidden, frame, gradient, y;  ///< the step's slots in the rings
  std::uint32_t given;  ///< swept: for so many steps y(step - 2) is what a checkpoint gave
};

/// Slots of y, and of a swept W1's copies: two that are read, one that is written.
inline constexpr int y_slots = 3;

/// What rows are read for by a sweep, and how many steps further back than the step does itself.
enum SweepView {
  forward_view,   ///< the product
  gradient_view,  ///< y of two steps ago, and what the step teaches W1
  before_view,    ///< what the step before left W0 to learn
  sweep_views
};
PVM_HOST_DEVICE constexpr int steps_back(int view) { return view == forward_view ? 0 : view + 1; }
/// How many steps before gradients are of.
PVM_HOST_DEVICE constexpr int gradient_age(int view) { return view == forward_view ? 0 : 1; }

/// Where in the arena the rows of each stream start, in units of 16 bytes: views, streams of each.
inline constexpr int start_places = sweep_views * static_cast<int>(Stream::count);
/// What a step begins with: where the run stands, and these places.
struct StepStart {
  Cursor cursor;
  std::uint32_t places[start_places];
};

/// Sizes that kernels need at run time.
struct Shape {
  int batch;    ///< N
  int padded;   ///< Bp
  int slice;    ///< sequences a products block works on
  int terms;    ///< T: gradients listed (1: the update is whole)
  int ring;     ///< slots of hidden rows
  int frames;   ///< slots of frames and of tables
  int hidden;   ///< rows of h: units x hidden values
  int pixels;   ///< rows of a frame
  int outputs;  ///< rows of y
  int layers;
  int columns;  ///< most n of a panel
  int table;    ///< floats of a step's table: 4, then per layer rate and momentum or 2 T
  int activation;
  int sign_error;
  float share;
};

}  // namespace pvm::inline v0::detail::batch
