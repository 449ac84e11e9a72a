// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The loop in which most of the time is spent: a single pass over a weight matrix that adds
/// gradients to the weights (when the unit folds), multiplies them by a vector from the right, and,
/// if asked to, by a vector from the left.

#include <cstddef>

#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0::simd {

/// Rows that a pass works on together. A matrix is stored in tiles of this many rows. Inside a tile
/// the vectors are interleaved, so that a pass reads memory from the first address to the last:
///
///     row 0, cols 0-15 | row 1, cols 0-15 | ... | row 7, cols 0-15 | row 0, cols 16-31 | ...
///
/// The remainder rows, which do not fill a tile, follow in row-major order.
inline constexpr std::size_t tile_rows = 8;

/// The index of element (r, c) of a tiled matrix. `group`: columns of a row that are contiguous; it
/// divides `columns`.
constexpr std::size_t tiled_index(std::size_t rows, std::size_t columns, std::size_t r,
                                  std::size_t c, std::size_t group = width) {
  if (r >= rows / tile_rows * tile_rows) return r * columns + c;
  return r / tile_rows * tile_rows * columns + (c / group * tile_rows + r % tile_rows) * group +
         c % group;
}

/// A matrix M and what one pass over it does, in this order for every element (the last only in
/// passes with Axpy):
///   fold:  M[r] += sum_j factor[r][j] * term[j]
///          or, with a momentum array V:  V[r] = momentum * V[r] + that sum,  M[r] += V[r]
///   dot:   dot[b][r] = M[r] . x[b]
///   axpy:  y[b] += q[b][r] * M[r]
struct MatrixPass {
  float* tiled = nullptr;       // the matrix as tiles (see tiled_index) ...
  float* const* row = nullptr;  // ... or as rows that lie anywhere
  std::size_t rows = 0;
  std::size_t columns = 0;  // a multiple of simd::width; padding holds zeros

  const float* const* term = nullptr;  // [terms]: rows of `columns` floats
  const float* factor = nullptr;       // [rows][terms]
  std::size_t terms = 0;
  std::size_t velocity_offset = 0;  // V[r] lies this many floats behind M[r]; 0: no momentum array
  float momentum = 0;

  std::size_t batch = 1;
  const float* x = nullptr;  // [batch][columns]
  float* dot = nullptr;      // [batch][dot_stride]
  std::size_t dot_stride = 0;

  float* y = nullptr;        // [batch][columns]
  const float* q = nullptr;  // [batch][q_stride]
  std::size_t q_stride = 0;

  Prefetcher* prefetcher = nullptr;  // is told of the cache lines used
};

/// What a pass does to the weights: nothing, add listed gradients, or update the momentum array and
/// add it.
enum class Update { none, fold, momentum };

/// The pass over `Rows` rows from r0 on, for the sequences b0 to b0 + Batch. `row`: start of each
/// row; its columns from c on lie at row[r] + c * step. `First`: this is the first sequence of the
/// batch, which alone advances the prefetcher.
template <Update update, bool Axpy, int Rows, int Batch, bool First>
[[gnu::always_inline]] inline void pass_tile(const MatrixPass& p, float* const* row,
                                             std::size_t step, std::size_t r0, std::size_t b0) {
  const float* factor = p.factor + r0 * p.terms;
  Prefetcher prefetcher;
  if constexpr (First) prefetcher = *p.prefetcher;  // a copy, so that it stays in registers
  Lanes sums[Rows][Batch] = {};
  for (std::size_t c = 0; c < p.columns; c += width) {
    if constexpr (First) prefetcher.advance(Rows);
    Lanes w[Rows];
    for (int r = 0; r < Rows; ++r) w[r] = at(row[r] + c * step);
    if constexpr (update != Update::none) {
      Lanes change[Rows];
      for (int r = 0; r < Rows; ++r) {
        if constexpr (update == Update::momentum) {
          change[r] = p.momentum * at(row[r] + p.velocity_offset + c * step);
        } else {
          change[r] = Lanes{};
        }
      }
      for (std::size_t j = 0; j < p.terms; ++j) {
        const Lanes term = at(p.term[j] + c);
        for (int r = 0; r < Rows; ++r) {
          change[r] += factor[static_cast<std::size_t>(r) * p.terms + j] * term;
        }
      }
      for (int r = 0; r < Rows; ++r) {
        if constexpr (update == Update::momentum)
          at(row[r] + p.velocity_offset + c * step) = change[r];
        w[r] += change[r];
        at(row[r] + c * step) = w[r];
      }
    }
    for (int b = 0; b < Batch; ++b) {
      const std::size_t at_b = (b0 + static_cast<std::size_t>(b)) * p.columns + c;
      const Lanes x = at(p.x + at_b);
      for (int r = 0; r < Rows; ++r) sums[r][b] += w[r] * x;
      if constexpr (Axpy) {
        Lanes y = at(p.y + at_b);
        const float* q = p.q + (b0 + static_cast<std::size_t>(b)) * p.q_stride + r0;
        for (int r = 0; r < Rows; ++r) y += q[r] * w[r];
        at(p.y + at_b) = y;
      }
    }
  }
  if constexpr (First) *p.prefetcher = prefetcher;
  for (int b = 0; b < Batch; ++b) {
    float* dot = p.dot + (b0 + static_cast<std::size_t>(b)) * p.dot_stride + r0;
    for (int r = 0; r < Rows; ++r) dot[r] = sum(sums[r][b]);
  }
}

/// The pass over `Rows` rows from r on. The first sequence of the batch updates the rows; the other
/// sequences read them updated, from the cache.
template <Update update, bool Axpy, int Rows>
[[gnu::always_inline]] inline void pass_rows(const MatrixPass& p, std::size_t r) {
  float* row[Rows];
  for (std::size_t k = 0; k < Rows; ++k) {
    row[k] = p.tiled != nullptr ? p.tiled + r * p.columns + k * width : p.row[r + k];
  }
  const std::size_t step = p.tiled != nullptr ? Rows : 1;
  pass_tile<update, Axpy, Rows, 1, true>(p, row, step, r, 0);
  std::size_t b = 1;
  if constexpr (Rows == 8) {
    for (; b + 4 <= p.batch; b += 4) {
      pass_tile<Update::none, Axpy, 4, 4, false>(p, row, step, r, b);
      pass_tile<Update::none, Axpy, 4, 4, false>(p, row + 4, step, r + 4, b);
    }
  }
  for (; b < p.batch; ++b) pass_tile<Update::none, Axpy, Rows, 1, false>(p, row, step, r, b);
}

template <Update update, bool Axpy>
[[gnu::always_inline]] inline void run_pass(const MatrixPass& p) {
  std::size_t r = 0;
  for (; r + tile_rows <= p.rows; r += tile_rows) pass_rows<update, Axpy, tile_rows>(p, r);
  for (; r < p.rows; ++r) pass_rows<update, Axpy, 1>(p, r);
}

/// The whole pass, as a callable for simd::for_isa.
template <bool Axpy>
struct RunPass {
  const MatrixPass& p;

  [[gnu::always_inline]] inline void operator()() const {
    if (p.terms == 0) {
      run_pass<Update::none, Axpy>(p);
    } else if (p.velocity_offset == 0) {
      run_pass<Update::fold, Axpy>(p);
    } else {
      run_pass<Update::momentum, Axpy>(p);
    }
  }
};

}  // namespace pvm::inline v0::simd
