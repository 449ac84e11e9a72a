// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The arguments of the general engine's kernels: sizes, and pointers to tables, state and staging.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/run/cursor.hpp>

namespace pvm::inline v0::detail::general {

/// Division by a divisor that is known at launch, as a multiplication; exact while n * d < 2^31.
struct Divider {
  unsigned int d = 1, magic = 1U << 31;

  Divider() = default;
  explicit Divider(int divisor)
      : d(static_cast<unsigned>(divisor)), magic(((1U << 31) + d - 1) / d) {}
  __device__ __forceinline__ int quotient(int n) const {
    return static_cast<int>((static_cast<unsigned long long>(n) * magic) >> 31);
  }
};

/// Arguments of a launch. All but `most_steps` are the same in every launch of a run.
struct StepArguments {
  // Sizes; see StepShape for those without a comment.
  int hidden, padded, groups, parts, rounds;
  int terms, period, history, history_rows, sections;
  int ring;  ///< steps that the past holds
  // Counts (one patch per unit of layer 0); values of a patch; width of a patch; of a frame.
  int units, layers, patches, patch, block_size, channels, side;
  unsigned int past_row;                          ///< floats of a row of the past
  unsigned int first_raw, first_d0, first_pixel;  ///< where h, d0 and the frame start in a row
  int y_columns;                                  ///< columns of all SMs, padding included
  int activation;                          ///< 0 polynomial, 1 with the true derivative, 2 logistic
  int sign_error;                          ///< 1: learn from the sign of the error (opt_abs_diff)
  int staging, block_steps, table_stride;  ///< staging blocks; steps of one; see StepShape
  int most_steps;                          ///< steps of this launch, at most
  Divider by_terms, by_hidden, by_history_rows, by_sections, by_padded, by_row_factors, by_parts;
  // Tables.
  const std::uint32_t* blobs;         ///< the programs of all SMs
  const std::uint32_t* blob_start;    ///< [SM]: offset in words of its program in `blobs`
  const std::uint32_t* source_words;  ///< source words of x, r and the targets, SM by SM
  // State.
  /// Z, panel by panel, without the bias of W1, and its low halves, if it has any (Stored).
  void *arena, *low_halves;
  /// The listed d1 and the bias as products read them: in 16 bits a rounded copy of past_d1.
  void* listed;
  float* past_d1;  ///< listed d1, SM by SM: [history rows][its columns]. Row `history` of
                   ///< each SM, behind the listed d1, is Z of the bias
  float* past;     ///< [ring][c(h) | h | d0 | frame | 0 | 1 | padding]
  float* y;        ///< [2][y_columns]
  /// Inner products of sources with the listed inputs, [3][units + patches + 1][terms]. The
  /// last source is the bias, whose products are 1.
  float* inner;
  double* score;  ///< [thread blocks][threads][3]: prediction, persistence, loss, see Score
  /// [thread blocks][y_scratch_floats]: partial y where shared memory has no room.
  float* y_scratch;
  unsigned long long y_scratch_floats;
  Cursor* cursor;         ///< where the run stands; each launch advances it
  unsigned int* barrier;  ///< counter of the grid-wide barrier
  // Staging: [staging][...]
  const std::uint8_t* const* frames;  ///< [staging][block_steps]: [side][side][channels]
  const float* squeezed;              ///< [staging][block_steps][...], for blocks of floats
  const std::uint8_t* scored;         ///< [staging][block_steps]
  /// [staging][1 + (block_steps + 1) * layers]: the number of steps (or'ed with
  /// `frames_are_floats`), then, for every step and the one after the last, every layer's table
  /// number.
  const std::uint32_t* index;
  const float* coefficients;  ///< [staging][(block_steps + 1) * layers][table_stride]
};

}  // namespace pvm::inline v0::detail::general
