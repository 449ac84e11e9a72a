// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tuning parameters of the engines that run a block of steps in one launch, by architecture.

#include <pvm/core/config.hpp>

namespace pvm::inline v0::detail {

struct CudaTuning {
  int fold_period = 15;          ///< R: steps between two folds of a panel
  int block_steps = 256;         ///< most steps of one launch
  int staging_slots = 3;         ///< one in use, one being uploaded, one being filled
  double cache_fraction = 0.55;  ///< of the L2 cache in which streamed weights are to stay
};

/// The tuning for compute capability `major`.x; later ones get Hopper's.
constexpr CudaTuning cuda_tuning(int major) {
  CudaTuning tuning;
  if (major < 9) tuning.block_steps = 64;  // fewer weights stay on chip: long launches gain less
  return tuning;
}

}  // namespace pvm::inline v0::detail
