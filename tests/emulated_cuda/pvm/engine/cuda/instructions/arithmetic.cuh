// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's instructions/arithmetic.cuh on the emulated device.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>

namespace pvm::inline v0::detail {

inline float reciprocal(float v) { return 1.0F / v; }
inline std::uint32_t pair_to_fp16(float first, float second) {
  const auto rounded = [](float v) {
    if (std::fabs(v) > 65504) v = std::copysign(65504.0F, v);
    return static_cast<std::uint32_t>(emulated_cuda::half_bits(v));
  };
  return rounded(first) | rounded(second) << 16;
}
inline std::uint32_t pair_cut_to_fp16(float first, float second) {
  const auto cut = [](float v) {
    unsigned short bits = emulated_cuda::half_bits(v);
    if (std::fabs(emulated_cuda::half_value(bits)) > std::fabs(v)) --bits;
    return static_cast<std::uint32_t>(bits);
  };
  return cut(first) | cut(second) << 16;
}

inline float fma_with_subnormals(float a, float b, float c) { return std::fma(a, b, c); }
inline float limit_with_subnormals(float v, float most) {
  const auto bits = std::bit_cast<std::uint32_t>(v);
  const std::uint32_t size = std::min(bits & 0x7fffffffU, std::bit_cast<std::uint32_t>(most));
  return std::bit_cast<float>((bits & 0x80000000U) | size);
}
inline std::uint32_t multiply_pair_bf16(std::uint32_t a, std::uint32_t b) {
  const auto product = [](std::uint32_t first, std::uint32_t second) {
    const auto value = [](std::uint32_t v) {
      return __bfloat162float(__ushort_as_bfloat16(static_cast<unsigned short>(v)));
    };
    return static_cast<std::uint32_t>(
        __bfloat16_as_ushort(__float2bfloat16_rn(value(first) * value(second))));
  };
  return product(a & 0xffffU, b & 0xffffU) | product(a >> 16, b >> 16) << 16;
}

}  // namespace pvm::inline v0::detail
