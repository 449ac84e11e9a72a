// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tuning parameters of the engines that run a block of steps in one launch, by architecture.

#include <pvm/core/config.hpp>

namespace pvm::inline v0::detail {

struct CudaTuning {
  int warps = 14;             ///< of a fused kernel: 7 row groups of a 49-row unit, 2 column parts
  int fold_period = 15;       ///< R: steps between two folds of a panel
  int block_steps = 256;      ///< most steps of one launch
  int staging_slots = 3;      ///< one in use, one being uploaded, one being filled
  double cache_share = 0.55;  ///< share of the L2 cache in which streamed weights are to stay
};

/// The tuning for compute capability `major`.x; later ones get Hopper's.
constexpr CudaTuning cuda_tuning(int major) {
  CudaTuning tuning;
  if (major < 9) tuning.block_steps = 64;  // fewer weights stay on chip: long launches gain less
  return tuning;
}

// Compile-time constants of the fused kernels; the same for all architectures so far.

inline constexpr int step_warps = cuda_tuning(9).warps;
inline constexpr int step_threads = step_warps * 32;
inline constexpr int fold_stage_floats = 4096;  ///< [gradients][columns] staged for one fold
inline constexpr int slots_per_task = 6;  ///< sources whose inner products a warp adds up at once
inline constexpr int terms_per_task = 8;  ///< listed gradients that a warp corrects with at once

}  // namespace pvm::inline v0::detail
