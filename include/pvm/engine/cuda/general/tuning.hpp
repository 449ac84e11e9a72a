// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Compile-time constants of the general engine's kernels; the same for all architectures so far.

#include <pvm/engine/cuda/device/tuning.hpp>

namespace pvm::inline v0::detail {

inline constexpr int step_warps = cuda_tuning(9).warps;
inline constexpr int step_threads = step_warps * 32;
inline constexpr int fold_stage_floats = 4096;  ///< [gradients][columns] staged for one fold
inline constexpr int slots_per_task = 6;  ///< sources whose inner products a warp adds up at once
inline constexpr int terms_per_task = 8;  ///< listed gradients that a warp corrects with at once

}  // namespace pvm::inline v0::detail
