// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a precision means to the batched engine: the type of the mma operands, the tensor-core
/// instructions, and the type in which values in [0, 1] are stored from step to step (`Stored`).

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include <pvm/core/config.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/instructions/arithmetic.cuh>
#include <pvm/engine/cuda/instructions/group_products.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>

namespace pvm::inline v0::detail {

/// Hidden values and outputs are in [0, 1]. Below fp32 they are stored as multiples of 1 / 65535,
/// with an error of at most 7.6e-6: finer than any 16-bit operand, in half the bytes of a float.
struct Fraction16 {
  using Type = std::uint16_t;
  PVM_HOST_DEVICE static Type encode(float v) {
#if defined(__CUDA_ARCH__)
    // The fma rounds 2^23 + n to nearest, with the integer n in the lowest bits of the float: this
    // replaces a conversion instruction.
    return static_cast<Type>(__float_as_uint(__fmaf_rn(v, 65535.0F, 8388608.0F)));
#else
    return static_cast<Type>(v * 65535.0F + 0.5F);
#endif
  }
  PVM_HOST_DEVICE static float decode(Type v) {
#if defined(__CUDA_ARCH__)
    constexpr float unit = 1.0F / 65535.0F;
    // v * unit, rounded once: 2^23 * unit is exact, and the fma cancels it before it rounds.
    return __fmaf_rn(__uint_as_float(0x4b000000U | v), unit, -8388608.0F * unit);
#else
    return static_cast<float>(v) * (1.0F / 65535.0F);
#endif
  }
  /// decode(encode(v)) for v in [0, 1].
  __device__ static float round(float v) {
    constexpr float unit = 1.0F / 65535.0F;
    return __fmaf_rn(__fmaf_rn(v, 65535.0F, 8388608.0F), unit, -8388608.0F * unit);
  }
};
struct PlainFloat {
  using Type = float;
  PVM_HOST_DEVICE static float encode(float v) { return v; }
  PVM_HOST_DEVICE static float decode(float v) { return v; }
};

/// Operands of 16 bits: an mma instruction multiplies 16 x 16 by 16 x 8.
struct SixteenBits {
  using Word = std::uint16_t;  ///< an operand's bits
  using Stored = Fraction16;
  static constexpr int block = 32;         ///< depth of a weight block
  static constexpr bool in_parts = false;  ///< whether long sums are added up from shorter ones
  static constexpr int most_tiles = 2;     ///< tiles of 16 sequences in a warp's registers
};
/// Operands of 32 bits: an mma instruction multiplies 16 x 8 by 8 x 8.
struct ThirtyTwoBits {
  using Word = std::uint32_t;
  using Stored = PlainFloat;
  static constexpr int block = 16;
};

template <class Precision>
struct Math;  // for fp32, tf32, bf16 and fp16

// Every Math has
//     operand(v), value(w)      a float rounded to an operand, and an operand as a float
//     multiply(c, a, b0, b1)    c += a b, for the tile of one mma instruction
// and with operands of 16 bits also
//     pair(low, high)           two operands in the halves of a 32-bit word
//     low_value(pair), high_value(pair)
//     multiply_shallow          c += a b, half as deep as `multiply`
//     multiply_group, multiply_square, multiply_registers    wgmma, see group_products.cuh

template <>
struct Math<bf16> : SixteenBits {
  static constexpr double epsilon = 0x1p-8;  ///< relative error of a gradient's two factors
  PVM_HOST_DEVICE static Word operand(float v) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(v));
  }
  PVM_HOST_DEVICE static float value(Word v) { return __bfloat162float(__ushort_as_bfloat16(v)); }
  __device__ static std::uint32_t pair(float low, float high) {
    const __nv_bfloat162 both = __floats2bfloat162_rn(low, high);
    return *reinterpret_cast<const std::uint32_t*>(&both);
  }
  __device__ static float low_value(std::uint32_t pair) { return __uint_as_float(pair << 16); }
  __device__ static float high_value(std::uint32_t pair) {
    return __uint_as_float(pair & 0xffff0000U);
  }
  __device__ static void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                  std::uint32_t b1) {
    multiply_bf16(c, a, b0, b1);
  }
  __device__ static void multiply_shallow(float (&c)[4], std::uint32_t a0, std::uint32_t a1,
                                          std::uint32_t b) {
    multiply_shallow_bf16(c, a0, a1, b);
  }
  template <int RowBytes>
  __device__ static void multiply_group(float (&c)[7][4], GroupOperand a, GroupOperand b) {
    multiply_group_bf16<RowBytes>(c, a, b);
  }
  template <int RowBytes>
  __device__ static void multiply_square(float (&c)[8][4], GroupOperand a, GroupOperand b) {
    multiply_square_bf16<RowBytes>(c, a, b);
  }
  template <int RowBytes, int Octets>
  __device__ static void multiply_registers(float (&c)[Octets][4], const std::uint32_t (&a)[4],
                                            GroupOperand b, bool adds) {
    multiply_registers_bf16<RowBytes>(c, a, b, adds);
  }
};

template <>
struct Math<fp16> : SixteenBits {
  static constexpr double epsilon = 0x1p-11;
  static constexpr float largest = 65504;
  /// Values out of range become the largest finite number: a weight must not become infinite.
  PVM_HOST_DEVICE static Word operand(float v) {
#if defined(__CUDA_ARCH__)
    return static_cast<Word>(pair_to_fp16(v, 0));
#else
    if (v > largest) v = largest;
    if (v < -largest) v = -largest;
    return __half_as_ushort(__float2half_rn(v));
#endif
  }
  PVM_HOST_DEVICE static float value(Word v) { return __half2float(__ushort_as_half(v)); }
  __device__ static std::uint32_t pair(float low, float high) { return pair_to_fp16(low, high); }
  __device__ static float low_value(std::uint32_t pair) {
    return value(static_cast<Word>(pair & 0xffffU));
  }
  __device__ static float high_value(std::uint32_t pair) {
    return value(static_cast<Word>(pair >> 16));
  }
  __device__ static void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                  std::uint32_t b1) {
    multiply_fp16(c, a, b0, b1);
  }
  __device__ static void multiply_shallow(float (&c)[4], std::uint32_t a0, std::uint32_t a1,
                                          std::uint32_t b) {
    multiply_shallow_fp16(c, a0, a1, b);
  }
  template <int RowBytes>
  __device__ static void multiply_group(float (&c)[7][4], GroupOperand a, GroupOperand b) {
    multiply_group_fp16<RowBytes>(c, a, b);
  }
  template <int RowBytes>
  __device__ static void multiply_square(float (&c)[8][4], GroupOperand a, GroupOperand b) {
    multiply_square_fp16<RowBytes>(c, a, b);
  }
  template <int RowBytes, int Octets>
  __device__ static void multiply_registers(float (&c)[Octets][4], const std::uint32_t (&a)[4],
                                            GroupOperand b, bool adds) {
    multiply_registers_fp16<RowBytes>(c, a, b, adds);
  }
};

template <>
struct Math<tf32> : ThirtyTwoBits {
  static constexpr double epsilon = 0x1p-11;
  static constexpr bool in_parts = false;
  static constexpr int most_tiles = 2;
  /// Rounds to nearest even, to the 10 bits of mantissa that tensor cores read.
  PVM_HOST_DEVICE static Word operand(float v) {
    Word bits;
#if defined(__CUDA_ARCH__)
    bits = __float_as_uint(v);
#else
    __builtin_memcpy(&bits, &v, sizeof(bits));
#endif
    return (bits + 0x0fffU + ((bits >> 13) & 1U)) & 0xffffe000U;
  }
  PVM_HOST_DEVICE static float value(Word v) {
#if defined(__CUDA_ARCH__)
    return __uint_as_float(v);
#else
    float out;
    __builtin_memcpy(&out, &v, sizeof(out));
    return out;
#endif
  }
  __device__ static void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                  std::uint32_t b1) {
    multiply_tf32(c, a, b0, b1);
  }
};

/// fp32 on tensor cores. Each operand is split into two tf32 numbers, its rounded value and the
/// rest. A product takes three mma instructions; the product of the two rests, 2^-22 of the whole,
/// is left out, since it is less than the rounding to fp32 over a sum. Tensor cores truncate when
/// they add, so long sums are computed in parts that are added in ordinary arithmetic.
template <>
struct Math<fp32> : ThirtyTwoBits {
  static constexpr double epsilon = 0x1p-20;
  static constexpr bool in_parts = true;
  static constexpr int most_tiles = 1;
  PVM_HOST_DEVICE static Word operand(float v) {
#if defined(__CUDA_ARCH__)
    return __float_as_uint(v);
#else
    Word bits;
    __builtin_memcpy(&bits, &v, sizeof(bits));
    return bits;
#endif
  }
  PVM_HOST_DEVICE static float value(Word v) { return Math<tf32>::value(v); }
  __device__ static void split(std::uint32_t v, std::uint32_t& large, std::uint32_t& rest) {
    large = (v + 0x1000U) & 0xffffe000U;  // to nearest; the tensor cores truncate `rest`
    rest = __float_as_uint(__uint_as_float(v) - __uint_as_float(large));
  }
  __device__ static void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                                  std::uint32_t b1) {
    std::uint32_t large[4], rest[4], b_large[2], b_rest[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) split(a[i], large[i], rest[i]);
    split(b0, b_large[0], b_rest[0]);
    split(b1, b_large[1], b_rest[1]);
    multiply_tf32(c, rest, b_large[0], b_large[1]);
    multiply_tf32(c, large, b_rest[0], b_rest[1]);
    multiply_tf32(c, large, b_large[0], b_large[1]);
  }
};

/// A Math with an activation type that the program defines.
template <class Precision, class OwnActivation>
struct MathWith : Math<Precision> {
  using Own = OwnActivation;
};
template <class Precision, class OwnActivation>
using MathOf = std::conditional_t<std::is_void_v<OwnActivation>, Math<Precision>,
                                  MathWith<Precision, OwnActivation>>;

}  // namespace pvm::inline v0::detail
