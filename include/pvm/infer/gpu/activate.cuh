// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From the sum of a row to its value.

#include <cuda_runtime.h>

#include <cmath>
#include <concepts>

#include <pvm/engine/cuda/instructions/arithmetic.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::infer::gpu {

/// Polynomial::value, with its bits, for sums below 2^125. A division asks whether its numbers are
/// extreme, and no two of a thread overlap because of that. Here the divisor is at least 2, and
/// what a tiny sum loses is far below the 0.5 that is added.
__device__ __forceinline__ float polynomial(float a) {
  const float divisor = 2.0F * (fabsf(a) + 1.0F);
  float inverse = detail::reciprocal(divisor);
  inverse = detail::fma_with_subnormals(
      inverse, detail::fma_with_subnormals(-divisor, inverse, 1.0F), inverse);
  const float near = a * inverse;
  const float rest = detail::fma_with_subnormals(-divisor, near, a);
  return detail::fma_with_subnormals(inverse, rest, near) + 0.5F;
}

/// The value of a sum, with a row's scale and offset. Rounded after each operation, as the host
/// rounds.
template <class Function>
__device__ __forceinline__ float value_of_sum(float2 scale, float sum) {
  const float a = __fadd_rn(__fmul_rn(scale.x, sum), scale.y);
  if constexpr (std::same_as<Function, Polynomial>) {
    return polynomial(a);
  } else {
    return Function::value(a);
  }
}

}  // namespace pvm::inline v0::infer::gpu
