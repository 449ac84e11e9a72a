// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The products of frozen weights with the vectors of many streams. A weight is read once for
/// all of them. Every sum has the order of the host engine's passes (engine/host/matrix_pass.hpp),
/// whatever the number of streams, so that both have the same bits in fp32.

#include <cstddef>

#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0::infer {

/// dot[b][r] = M[r] . x[b], for the rows r0 to r0 + Rows and the vectors b0 to b0 + Batch. `row`:
/// the columns of row r from c on lie at row + (r - r0) * width + c * step.
template <int Rows, int Batch>
[[gnu::always_inline]] inline void dot_tile(const float* row, std::size_t step, std::size_t columns,
                                            const float* x, float* dot, std::size_t dot_stride) {
  simd::Lanes sums[Rows][Batch] = {};
  for (std::size_t c = 0; c < columns; c += simd::width) {
    simd::Lanes w[Rows];
    for (int r = 0; r < Rows; ++r) {
      w[r] = simd::at(row + static_cast<std::size_t>(r) * simd::width + c * step);
    }
    for (int b = 0; b < Batch; ++b) {
      const simd::Lanes v = simd::at(x + static_cast<std::size_t>(b) * columns + c);
      for (int r = 0; r < Rows; ++r) sums[r][b] += w[r] * v;
    }
  }
  for (int b = 0; b < Batch; ++b) {
    for (int r = 0; r < Rows; ++r) {
      dot[static_cast<std::size_t>(b) * dot_stride + static_cast<std::size_t>(r)] =
          simd::sum(sums[r][b]);
    }
  }
}

/// dot[b][r] = M[r] . x[b] for a matrix in tiles (simd::tiled_index), `batch` vectors x.
[[gnu::always_inline]] inline void dot_pass(const float* tiled, std::size_t rows,
                                            std::size_t columns, const float* x, std::size_t batch,
                                            float* dot, std::size_t dot_stride) {
  constexpr std::size_t tile = simd::tile_rows;
  std::size_t r = 0;
  for (; r + tile <= rows; r += tile) {
    const float* row = tiled + r * columns;
    std::size_t b = 0;
    for (; b + 4 <= batch; b += 4) {
      const float* v = x + b * columns;
      float* out = dot + b * dot_stride + r;
      dot_tile<4, 4>(row, tile, columns, v, out, dot_stride);
      dot_tile<4, 4>(row + 4 * simd::width, tile, columns, v, out + 4, dot_stride);
    }
    for (; b < batch; ++b) {
      dot_tile<tile, 1>(row, tile, columns, x + b * columns, dot + b * dot_stride + r, dot_stride);
    }
  }
  for (; r < rows; ++r) {
    const float* row = tiled + r * columns;
    std::size_t b = 0;
    for (; b + 4 <= batch; b += 4) {
      dot_tile<1, 4>(row, 1, columns, x + b * columns, dot + b * dot_stride + r, dot_stride);
    }
    for (; b < batch; ++b) {
      dot_tile<1, 1>(row, 1, columns, x + b * columns, dot + b * dot_stride + r, dot_stride);
    }
  }
}

/// y[b] = sum over r of q[b][r] * M[r], in the order of r, for `Panels` panels of 16 columns from
/// column c on. M is stored panel by panel, [columns / width][rows][width].
template <int Panels, int Batch>
[[gnu::always_inline]] inline void sum_tile(const float* panel, std::size_t rows, const float* q,
                                            std::size_t q_stride, float* y, std::size_t y_stride) {
  simd::Lanes sums[Panels][Batch] = {};
  for (std::size_t r = 0; r < rows; ++r) {
    for (int p = 0; p < Panels; ++p) {
      const simd::Lanes w =
          simd::at(panel + (static_cast<std::size_t>(p) * rows + r) * simd::width);
      for (int b = 0; b < Batch; ++b) {
        sums[p][b] += q[static_cast<std::size_t>(b) * q_stride + r] * w;
      }
    }
  }
  for (int p = 0; p < Panels; ++p) {
    for (int b = 0; b < Batch; ++b) {
      simd::at(y + static_cast<std::size_t>(b) * y_stride +
               static_cast<std::size_t>(p) * simd::width) = sums[p][b];
    }
  }
}

/// y[b] = sum over r of q[b][r] * M[r], see sum_tile. `columns`: a multiple of the width, and the
/// distance of the rows of y.
[[gnu::always_inline]] inline void sum_pass(const float* panels, std::size_t rows,
                                            std::size_t columns, const float* q,
                                            std::size_t q_stride, std::size_t batch, float* y) {
  std::size_t c = 0;
  for (; c + 2 * simd::width <= columns; c += 2 * simd::width) {
    std::size_t b = 0;
    for (; b + 4 <= batch; b += 4) {
      sum_tile<2, 4>(panels + c * rows, rows, q + b * q_stride, q_stride, y + b * columns + c,
                     columns);
    }
    for (; b < batch; ++b) {
      sum_tile<2, 1>(panels + c * rows, rows, q + b * q_stride, q_stride, y + b * columns + c,
                     columns);
    }
  }
  if (c == columns) return;
  for (std::size_t b = 0; b < batch; ++b) {
    sum_tile<1, 1>(panels + c * rows, rows, q + b * q_stride, q_stride, y + b * columns + c,
                   columns);
  }
}

}  // namespace pvm::inline v0::infer
