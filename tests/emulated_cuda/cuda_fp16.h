// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The emulation of CUDA's header for IEEE half precision: rounds to nearest, ties to even.

#include <bit>
#include <cmath>
#include <cstdint>
#include <vector>

struct __half {
  unsigned short bits;
};
struct alignas(4) __half2 {
  __half x, y;
};
using half = __half;
using half2 = __half2;

namespace emulated_cuda {

inline unsigned short half_bits(float v) {
  const auto word = std::bit_cast<std::uint32_t>(v);
  const auto sign = static_cast<unsigned>(word >> 16 & 0x8000U);
  if (std::isnan(v)) return 0x7fff;
  const float size = std::fabs(v);
  if (size >= 65520.0F) return static_cast<unsigned short>(sign | 0x7c00U);
  if (size < 0x1p-14F) {  // subnormal: adding 0.5 rounds to a multiple of 2^-24
    const auto sum = std::bit_cast<std::uint32_t>(size + 0.5F);
    return static_cast<unsigned short>(sign | (sum - 0x3f000000U));
  }
  const std::uint32_t bits = word & 0x7fffffffU;
  const std::uint32_t rounded = bits + 0xfffU + (bits >> 13 & 1U);
  return static_cast<unsigned short>(sign | ((rounded >> 13) - (112U << 10)));
}
inline float half_value(unsigned short bits) {
  const std::uint32_t sign = static_cast<std::uint32_t>(bits & 0x8000U) << 16;
  const std::uint32_t rest = bits & 0x7fffU;
  if (rest >= 0x7c00U) return std::bit_cast<float>(sign | 0x7f800000U | (rest & 0x3ffU) << 13);
  if (rest < 0x400U) {
    const float size = static_cast<float>(rest) * 0x1p-24F;
    return sign != 0 ? -size : size;
  }
  return std::bit_cast<float>(sign | ((rest << 13) + (112U << 23)));
}
/// half_value by a lookup table, which makes emulated matrix products faster.
inline float half_from_table(std::uint32_t bits) {
  static const std::vector<float> values = [] {
    std::vector<float> all(65536);
    for (std::uint32_t i = 0; i < 65536; ++i) all[i] = half_value(static_cast<unsigned short>(i));
    return all;
  }();
  return values[bits];
}

}  // namespace emulated_cuda

inline __half __float2half_rn(float v) { return {emulated_cuda::half_bits(v)}; }
inline __half __float2half(float v) { return __float2half_rn(v); }
inline float __half2float(__half v) { return emulated_cuda::half_value(v.bits); }
inline unsigned short __half_as_ushort(__half v) { return v.bits; }
inline __half __ushort_as_half(unsigned short v) { return {v}; }
inline __half2 __floats2half2_rn(float x, float y) {
  return {__float2half_rn(x), __float2half_rn(y)};
}
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline float __low2float(__half2 v) { return __half2float(v.x); }
inline float __high2float(__half2 v) { return __half2float(v.y); }
