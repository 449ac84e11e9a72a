// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The numbers to turn: one place, by architecture.

#include <pvm/core/config.hpp>

namespace pvm::inline v0::detail {

/// Threads and registers of the fused kernels. A warp works on tiles of `rows` rows times 32 lanes
/// times 4 columns, held in registers.
struct CudaTuning {
  int warps = 14;             ///< 7 row groups of a 49-row unit, twice
  int fold_period = 15;       ///< R: steps between two folds of a panel
  int block_steps = 256;      ///< steps of one launch
  int blocks_ahead = 3;       ///< staging blocks: one used, one going up, one being filled
  double cache_share = 0.55;  ///< of the second-level cache: streamed weights asked to stay in it
};

/// The tuning for compute capability `major`.x; newer ones get Hopper's.
constexpr CudaTuning cuda_tuning(int major) {
  CudaTuning tuning;
  if (major < 9) tuning.block_steps = 64;  // fewer weights stay on the chip: less to win
  return tuning;
}

/// Compile-time constants of the fused kernels; the same for all architectures so far.
inline constexpr int step_warps = cuda_tuning(9).warps;
inline constexpr int step_threads = step_warps * 32;
inline constexpr int fold_stage_floats = 4096;  ///< [gradients][columns] staged for one fold
inline constexpr int slots_per_task = 6;        ///< sources whose inner products a warp weighs
inline constexpr int terms_per_task = 8;        ///< listed gradients one warp corrects with

}  // namespace pvm::inline v0::detail
