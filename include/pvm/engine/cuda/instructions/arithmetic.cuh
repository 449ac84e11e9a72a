// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Arithmetic that is rounded in another way than C++ does it.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

/// 1 / v to a unit in the last place, for v that are far from the ends of the range.
__device__ __forceinline__ float reciprocal(float v) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}
/// Two values as fp16, the first in the lower half, rounded to nearest. What is out of range
/// becomes the largest number; what is none stays so.
__device__ __forceinline__ std::uint32_t pair_to_fp16(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
/// The same, cut towards 0.
__device__ __forceinline__ std::uint32_t pair_cut_to_fp16(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

}  // namespace pvm::inline v0::detail
