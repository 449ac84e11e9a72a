// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Arithmetic with other rounding than in C++.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

/// 1 / v within 1 ulp. v and the result must be normal numbers: subnormal ones are flushed to 0.
__device__ __forceinline__ float reciprocal(float v) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
}
/// Two values as fp16, `first` in the low half, rounded to nearest. Values out of range become the
/// largest finite number; NaN stays NaN.
__device__ __forceinline__ std::uint32_t pair_to_fp16(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rn.satfinite.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
/// The same, rounded towards 0 and without saturation.
__device__ __forceinline__ std::uint32_t pair_cut_to_fp16(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

// Subnormal numbers are kept whatever `-ftz` (`--use_fast_math`) says.

/// a b + c, rounded once.
__device__ __forceinline__ float fma_with_subnormals(float a, float b, float c) {
  return __fmaf_ieee_rn(a, b, c);
}
/// `v`, but at least -`most` and at most `most`; NaN becomes -`most`.
__device__ __forceinline__ float limit_with_subnormals(float v, float most) {
  float out;
  asm("max.f32 %0, %1, %2;" : "=f"(out) : "f"(v), "f"(-most));
  asm("min.f32 %0, %1, %2;" : "=f"(out) : "f"(out), "f"(most));
  return out;
}
/// The products of two pairs of bf16, in the halves of a word, rounded to nearest.
__device__ __forceinline__ std::uint32_t multiply_pair_bf16(std::uint32_t a, std::uint32_t b) {
  std::uint32_t product;
  asm("fma.rn.bf16x2 %0, %1, %2, %3;" : "=r"(product) : "r"(a), "r"(b), "r"(0x80008000U));
  return product;
}

}  // namespace pvm::inline v0::detail
