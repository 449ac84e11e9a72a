// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels with which a ridge readout learns: one keeps the labelled steps in a buffer, one
/// adds the products of a block of them to the Gram matrices of all positions.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/readout/gpu/followed.cuh>

namespace pvm::inline v0::readout::gpu {

inline constexpr int gram_rows = 256;            ///< of a block, as Gram::block_rows
inline constexpr int kept_rows = 2 * gram_rows;  ///< of the buffer, a ring

// What a column of a position's rows is, in two bits; the others are the index of the value.
inline constexpr std::uint32_t column_kind = 3U << 30;
inline constexpr std::uint32_t hidden_column = 0U << 30, pixel_column = 1U << 30,
                               one_column = 2U << 30, target_column = 3U << 30;

struct GramArguments {
  int cells;
  int hidden;  ///< values of a step
  int frame_bytes;
  const float* steps;   ///< [slots][block_steps][1 + 2 cells]: row + 1 or 0, shares of the label
  float* kept_hidden;   ///< [kept_rows][hidden]
  float* kept_targets;  ///< [kept_rows][cells][cells]
  std::uint8_t* kept_frames;          ///< [kept_rows][frame_bytes]
  const std::uint32_t* columns;       ///< of all positions
  const std::uint32_t* column_start;  ///< by position
  const std::size_t* sum_start;       ///< by position: of its triangle
  double* sums;                       ///< the lower triangles, row by row
};

/// Keeps the steps that have a row in the buffer. Grid: one thread block for each step.
__global__ void __launch_bounds__(256)
    keep_steps(const __grid_constant__ GramArguments a, const __grid_constant__ FollowedSteps s) {
  const auto i = static_cast<int>(blockIdx.x);
  if (i >= followed_count(s)) return;
  const float* const step = a.steps + followed_row(s, i) * (1 + 2 * a.cells);
  const int row = static_cast<int>(step[0]) - 1;
  if (row < 0) return;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto threads = static_cast<int>(blockDim.x);
  const auto at = [row](auto* all, int each) { return all + static_cast<std::size_t>(row) * each; };
  const float* const hidden = followed_hidden(s, i);
  float* const values = at(a.kept_hidden, a.hidden);
  for (int k = thread; k < a.hidden; k += threads) values[k] = hidden[k];
  const std::uint8_t* const frame = followed_frame(s, i);
  std::uint8_t* const bytes = at(a.kept_frames, a.frame_bytes);
  for (int k = thread; k < a.frame_bytes; k += threads) bytes[k] = frame[k];
  float* const targets = at(a.kept_targets, a.cells * a.cells);
  const float* const rows = step + 1;
  const float* const columns = rows + a.cells;
  for (int k = thread; k < a.cells * a.cells; k += threads) {
    targets[k] = rows[k / a.cells] * columns[k % a.cells];
  }
}

inline constexpr int gram_tile = 64;   ///< columns of a tile, each way
inline constexpr int gram_chunk = 32;  ///< rows that are in shared memory at a time

/// Adds the products of `gram_rows` rows of the buffer, from row `first` on. Grid: (tiles of the
/// lower triangle, positions); each of 256 threads has 4 x 4 sums, made row by row in single
/// precision, as on the host, and added in double.
__global__ void __launch_bounds__(256)
    add_grams(const __grid_constant__ GramArguments a, int first) {
  __shared__ float left[gram_chunk][gram_tile + 4];
  __shared__ float right[gram_chunk][gram_tile + 4];
  const auto position = static_cast<int>(blockIdx.y);
  const std::uint32_t* const columns = a.columns + a.column_start[position];
  const auto count = static_cast<int>(a.column_start[position + 1] - a.column_start[position]);
  int across = static_cast<int>(blockIdx.x), down = 0;
  while (across > down) across -= ++down;  // tile (down, across), across <= down
  if (down * gram_tile >= count) return;
  const auto thread = static_cast<int>(threadIdx.x);
  const auto value = [&](int row, int column) {
    if (column >= count) return 0.0F;
    const std::uint32_t what = columns[column];
    const std::uint32_t index = what & ~column_kind;
    const auto at = static_cast<std::size_t>(row);
    switch (what & column_kind) {
      case hidden_column:
        return __fadd_rn(a.kept_hidden[at * a.hidden + index], -0.5F);
      case pixel_column:
        return __fmaf_rn(static_cast<float>(a.kept_frames[at * a.frame_bytes + index]),
                         1.0F / 255.0F, -0.5F);
      case one_column:
        return 1.0F;
      default:
        return a.kept_targets[at * a.cells * a.cells + position];
    }
  };
  float sums[4][4] = {};
  const int i0 = thread / 16 * 4, j0 = thread % 16 * 4;
  for (int chunk = 0; chunk < gram_rows; chunk += gram_chunk) {
    for (int k = thread; k < gram_chunk * gram_tile; k += 256) {
      const int row = first + chunk + k / gram_tile, column = k % gram_tile;
      left[k / gram_tile][column] = value(row, down * gram_tile + column);
      right[k / gram_tile][column] = value(row, across * gram_tile + column);
    }
    __syncthreads();
#pragma unroll 4
    for (int t = 0; t < gram_chunk; ++t) {
      float l[4], r[4];
      for (int k = 0; k < 4; ++k) {
        l[k] = left[t][i0 + k];
        r[k] = right[t][j0 + k];
      }
      for (int i = 0; i < 4; ++i) {
        for (int j = 0; j < 4; ++j) sums[i][j] = __fmaf_rn(l[i], r[j], sums[i][j]);
      }
    }
    __syncthreads();
  }
  double* const out = a.sums + a.sum_start[position];
  for (int i = 0; i < 4; ++i) {
    const int row = down * gram_tile + i0 + i;
    for (int j = 0; j < 4; ++j) {
      const int column = across * gram_tile + j0 + j;
      if (row >= count || column > row) continue;
      out[static_cast<std::size_t>(row) * (row + 1) / 2 + column] +=
          static_cast<double>(sums[i][j]);
    }
  }
}

inline void launch_keep(const GramArguments& a, const FollowedSteps& s, cudaStream_t stream) {
  cuda_check(
      pvm::detail::launch(
          keep_steps,
          {.grid = dim3(static_cast<unsigned>(s.most_steps)), .threads = 256, .stream = stream}, a,
          s),
      "launching a readout");
}
/// `most_columns`: of any position.
inline void launch_grams(const GramArguments& a, int first, int most_columns, cudaStream_t stream) {
  const int tiles = (most_columns + gram_tile - 1) / gram_tile;
  const dim3 grid(static_cast<unsigned>(tiles * (tiles + 1) / 2),
                  static_cast<unsigned>(a.cells * a.cells));
  cuda_check(
      pvm::detail::launch(add_grams, {.grid = grid, .threads = 256, .stream = stream}, a, first),
      "launching a readout");
}

}  // namespace pvm::inline v0::readout::gpu
