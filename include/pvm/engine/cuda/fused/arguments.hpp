// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the fused kernels are told at launch: sizes, and where tables, state and staging lie.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/cursor.hpp>

namespace pvm::inline v0::detail::fused {

/// Division by a number that is known at launch; exact while n * d < 2^31.
struct Divider {
  unsigned int d = 1, magic = 1U << 31;

  Divider() = default;
  explicit Divider(int divisor)
      : d(static_cast<unsigned>(divisor)), magic(((1U << 31) + d - 1) / d) {}
  __device__ __forceinline__ int quotient(int n) const {
    return static_cast<int>((static_cast<unsigned long long>(n) * magic) >> 31);
  }
};

/// A run's, but for `most_steps`: the same in every launch.
struct StepArguments {
  // Sizes.
  int hidden, padded, groups, parts, passes;
  int terms, period, batch, list, history, history_rows, chunks;
  int ring;  ///< rows of the past
  int units, layers, patches, patch, block_size, channels, side;
  unsigned int past_row;                          ///< floats of a row, one sequence
  unsigned int first_raw, first_d0, first_pixel;  ///< where h, d0 and the frame start in a row
  int y_columns;
  int activation;  ///< 0 polynomial, 1 with the true derivative, 2 logistic
  int sign_error;
  int staging, block_steps, table_stride;
  int most_steps;  ///< steps of this launch
  Divider by_list, by_hidden, by_history_rows, by_chunks, by_padded, by_batch, by_stage_row,
      by_parts;
  // Tables.
  const std::uint32_t* blobs;
  const std::uint32_t* blob_start;
  const std::uint32_t* words;
  // State.
  float4* arena;     ///< Z
  float* past_d1;    ///< SM by SM [history rows][its columns]; Z of the bias is the row behind them
  float* past;       ///< [ring][batch][c(h) | h | d0 | frame | 0 | 1]
  float* y;          ///< [2][batch][columns]
  float* inner;      ///< [3][batch][units + patches + 1][list], the last row is 1
  double* score;     ///< [blocks][threads][3]
  float* y_scratch;  ///< [blocks][y_scratch_floats]
  unsigned long long y_scratch_floats;
  Cursor* cursor;
  unsigned int* barrier;
  // Staging: [staging][...]
  const std::uint8_t* const* frames;  ///< [staging][block_steps][batch]: [side][side][channels]
  const float* squeezed;       ///< [staging][block_steps][batch][...], where a block brings floats
  const std::uint8_t* scored;  ///< [staging][block_steps][batch]
  /// [staging][1 + (block_steps + 1) * layers]: the number of steps (with `frames_are_floats`),
  /// then for every step, and the one after them, which table every layer has.
  const std::uint32_t* index;
  const float* coefficients;  ///< [staging][(block_steps + 1) * layers][table_stride]
};

}  // namespace pvm::inline v0::detail::fused
