// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernels of the engine whose weights stay on the chip are given, and what they keep: in
/// device memory from launch to launch, in shared memory while one runs.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/cursor.hpp>

namespace pvm::inline v0::detail::chip {

struct ChipArguments {
  ChipAreas areas;
  int units, layers, patches, patch, block_size, channels, side;
  int period;
  unsigned int row_words, first_patch, patch_record, patch_products;  ///< of a row of the past
  unsigned int patch_row;               ///< words of a row of a patch's history in shared memory
  unsigned int hidden_row, output_row;  ///< floats of a row of the others
  int activation;                       ///< 0 polynomial, 1 with the true derivative, 2 logistic
  int sign_error;
  int staging, block_steps, table_stride;
  int most_steps;  ///< of this launch
  const std::uint32_t* programs;
  const std::uint32_t* program_start;
  std::uint32_t* weights;  ///< tiles of W0, of W1, then the rows beside them, in this order
  unsigned long long wide, beside, wide_beside;  ///< where the latter three begin
  unsigned long long masters;                    ///< and the same of the masters of 16-bit weights
  std::uint32_t *lists, *unit_areas;             ///< where all is streamed: of W1, and of all units
  std::uint32_t* past;                           ///< [ring]: units' records, patches' records, 0, 1
  float* hidden;                                 ///< [ring][units][Hidden]
  float* d0;                                     ///< [history][units][Hidden]
  float* d1;                                     ///< [history][outputs]
  float* y;                                      ///< [2][outputs]
  double* score;                                 ///< [multiprocessors][warps][3]
  Cursor* cursor;
  unsigned int* barrier;  ///< multiprocessors that have ended
  unsigned int* begun;    ///< [rounds]: how often step i, i + rounds and so on began, in all
  const std::uint8_t* const* frames;  ///< [staging][block_steps]
  const float* squeezed;              ///< [staging][block_steps][...]
  const std::uint8_t* scored;         ///< [staging][block_steps]
  const std::uint32_t* index;         ///< see fused::StepArguments
  const float* coefficients;
};

inline constexpr unsigned int every_lane = 0xffffffffU;

/// What a block of threads knows of the launch, in shared memory.
struct ChipLaunch {
  const std::uint32_t* index;  ///< tables of its steps, [steps][layers]
  const float* coefficients;
  const std::uint8_t* const* frames;
  const std::uint8_t* scored;
  const float* squeezed;
  int count;  ///< of its steps
  bool ends;  ///< the block of frames
};
/// And of the step. There are several: warps do not begin a step all at once.
struct ChipNow {
  unsigned long long step;
  int frame;  ///< of the launch's
  int phase;  ///< step % period
  int lag;    ///< step % lags: which column beside W1 is being written
};
static_assert(sizeof(ChipNow) <= 8 * sizeof(float), "the plan keeps 8 words for each");
static_assert(sizeof(ChipLaunch) <= 16 * sizeof(float), "the plan keeps 16 words for it");

}  // namespace pvm::inline v0::detail::chip
