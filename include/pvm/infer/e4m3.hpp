// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Floats of 8 bits: 1 of sign, 4 of exponent, 3 of mantissa, without infinities (E4M3).

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace pvm::inline v0::infer {

inline constexpr float e4m3_largest = 448.0F;

/// The number that the bits stand for. 0x7f and 0xff are not numbers.
inline float from_e4m3(std::uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float size = exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                                   : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10);
  if ((bits & 0x7f) == 0x7f) return std::nanf("");
  return (bits & 0x80) != 0 ? -size : size;
}

/// The nearest number, of two the one with an even mantissa; those beyond the largest become it.
inline std::uint8_t to_e4m3(float value) {
  const float size = std::min(std::fabs(value), e4m3_largest);
  const std::uint8_t sign = std::signbit(value) ? 0x80 : 0;
  int exponent = size > 0 ? std::ilogb(size) : -6;
  exponent = std::max(exponent, -6);
  // In units of the last place there; 16 of them are 8 of the next exponent, which the sum carries.
  const auto steps = static_cast<int>(std::nearbyint(std::ldexp(size, 3 - exponent)));
  const int bits = steps < 8 ? steps : ((exponent + 6) << 3) + steps;
  return static_cast<std::uint8_t>(sign | bits);
}

}  // namespace pvm::inline v0::infer
