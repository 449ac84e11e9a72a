// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Numbers as two 16-bit numbers.
///   Split   a value (an input, h or d1) as one word: the rounded value and its residual. Products
///           with both keep 16 or more bits of the value's mantissa.
///   Halves  an fp32 master weight as two words for each pair of weights: the high halves are the
///           working copy that is multiplied, the low halves the residuals. A master weight then
///           costs two bytes more than the working copy, and no byte is read or written twice.

#include <cstdint>

#include <pvm/core/config.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/numbers/precision.cuh>

namespace pvm::inline v0::detail {

/// `v` as a 16-bit operand, truncated towards 0.
template <class Precision>
PVM_HOST_DEVICE std::uint16_t cut_operand(float v);
template <>
PVM_HOST_DEVICE inline std::uint16_t cut_operand<bf16>(float v) {
  return static_cast<std::uint16_t>(detail::Math<fp32>::operand(v) >> 16);
}
template <>
PVM_HOST_DEVICE inline std::uint16_t cut_operand<fp16>(float v) {
#if defined(__CUDA_ARCH__)
  return static_cast<std::uint16_t>(pair_cut_to_fp16(v, 0));
#else
  using Math = detail::Math<fp16>;
  std::uint16_t cut = Math::operand(v);
  const float rounded = Math::value(cut);
  if ((rounded < 0 ? -rounded : rounded) > (v < 0 ? -v : v)) --cut;
  return cut;
#endif
}

/// A value as a word: the value rounded to 16 bits in the low 16 bits, the residual in the high 16
/// bits. The residual is truncated, not rounded, so that unpack(pack(v)) packs to the same word.
template <class Precision>
struct Split {
  using Math = detail::Math<Precision>;
  PVM_HOST_DEVICE static std::uint32_t pack(float v) {
    const auto large = Math::operand(v);
    return large | static_cast<std::uint32_t>(cut_operand<Precision>(v - Math::value(large))) << 16;
  }
  PVM_HOST_DEVICE static float unpack(std::uint32_t word) {
    return Math::value(static_cast<std::uint16_t>(word & 0xffffU)) +
           Math::value(static_cast<std::uint16_t>(word >> 16));
  }
};

/// In fp32 the word is the bits of the value.
template <>
struct Split<fp32> {
  PVM_HOST_DEVICE static std::uint32_t pack(float v) { return detail::Math<fp32>::operand(v); }
  PVM_HOST_DEVICE static float unpack(std::uint32_t word) {
    return detail::Math<fp32>::value(word);
  }
};

/// The high halves and the low halves of two weights; in either word the first weight's is in the
/// low 16 bits.
struct WordPair {
  std::uint32_t high, low;
};
struct WeightPair {
  float first, second;
};

template <class Precision>
struct Halves;

/// Exact. The halves are the upper and lower 16 bits of the fp32 bit pattern plus 2^15: the
/// addition rounds the upper half to nearest, and `join` takes it back.
template <>
struct Halves<bf16> {
  using Bits = detail::Math<fp32>;
  static constexpr std::uint32_t half = 0x8000U;
  static constexpr float unit = 1;  ///< what a joined weight of 1 is

  PVM_HOST_DEVICE static WordPair split(WeightPair w) {
    const std::uint32_t first = Bits::operand(w.first) + half,
                        second = Bits::operand(w.second) + half;
    return {upper_halves(first, second), lower_halves(first, second)};
  }
  PVM_HOST_DEVICE static WeightPair join(WordPair p) {
    return {Bits::value(lower_halves(p.low, p.high) - half),
            Bits::value(upper_halves(p.low, p.high) - half)};
  }

 private:
  PVM_HOST_DEVICE static std::uint32_t lower_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(a, b, 0x5410);
#else
    return (a & 0xffffU) | b << 16;
#endif
  }
  PVM_HOST_DEVICE static std::uint32_t upper_halves(std::uint32_t a, std::uint32_t b) {
#if defined(__CUDA_ARCH__)
    return __byte_perm(a, b, 0x7632);
#else
    return a >> 16 | (b & 0xffff0000U);
#endif
  }
};

/// Exact to a unit in the last place, or to 2^-36 if that is larger. The high half is rounded to
/// nearest. The residual is kept 2^12 times as large, because the smallest fp16 number is 2^-24. It
/// is truncated, not rounded, so that the joined halves round to the same high half as the weight.
template <>
struct Halves<fp16> {
  using Math = detail::Math<fp16>;
  static constexpr float scale = 0x1p12F;
  static constexpr float unit = 1;

  PVM_HOST_DEVICE static WordPair split(WeightPair w) {
    const std::uint32_t high = rounded(w);
    return {high, cut({(w.first - first_of(high)) * scale, (w.second - second_of(high)) * scale})};
  }
  PVM_HOST_DEVICE static WeightPair join(WordPair p) {
    return {first_of(p.high) + first_of(p.low) * (1 / scale),
            second_of(p.high) + second_of(p.low) * (1 / scale)};
  }

 private:
  PVM_HOST_DEVICE static float first_of(std::uint32_t word) {
    return Math::value(static_cast<std::uint16_t>(word & 0xffffU));
  }
  PVM_HOST_DEVICE static float second_of(std::uint32_t word) {
    return Math::value(static_cast<std::uint16_t>(word >> 16));
  }
  PVM_HOST_DEVICE static std::uint32_t rounded(WeightPair w) {
#if defined(__CUDA_ARCH__)
    return Math::pair(w.first, w.second);
#else
    return Math::operand(w.first) | static_cast<std::uint32_t>(Math::operand(w.second)) << 16;
#endif
  }
  PVM_HOST_DEVICE static std::uint32_t cut(WeightPair w) {
#if defined(__CUDA_ARCH__)
    return pair_cut_to_fp16(w.first, w.second);
#else
    return cut_operand<fp16>(w.first) | static_cast<std::uint32_t>(cut_operand<fp16>(w.second))
                                            << 16;
#endif
  }
};

}  // namespace pvm::inline v0::detail
