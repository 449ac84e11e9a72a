// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The precisions of frozen steps on a GPU. Values and weights lie in granules of 16 bytes of
/// values. Four granules are what two mma instructions multiply: which value is in which place of
/// their depth does not matter, as long as values and weights agree. So what a lane gives to both
/// is a whole granule.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <concepts>
#include <cstdint>

#include <pvm/core/config.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/instructions/matrices.cuh>
#include <pvm/engine/cuda/instructions/products_8bit.cuh>
#include <pvm/infer/e4m3.hpp>

namespace pvm::inline v0::infer::gpu {

/// Weights in int8, values as fractions of 255: the sums are those of Int8Forward.
struct Int8 {
  using Stored = std::uint8_t;  ///< a value in [0, 1]
  using Sum = std::int32_t;
  using Weights = uint4;                        ///< of a granule
  static constexpr int each = 16;               ///< values of a granule
  static constexpr float unit = 1.0F / 255.0F;  ///< of a stored value in a sum
  static constexpr const char* name = "int8";
  using Eight = uint2;  ///< values
  // Of `many_streams`. Two tiles of streams in a warp halve the reads of weights.
  static constexpr int strips = 2, stages = 4, blocks = 4;

  PVM_HOST_DEVICE static Stored store(float v) {
    return static_cast<Stored>(rintf(fminf(fmaxf(v, 0.0F), 1.0F) * 255.0F));
  }
  PVM_HOST_DEVICE static Stored store_pixel(std::uint8_t pixel) { return pixel; }
  /// Byte `i` of a granule of weights; `weight` is a whole number.
  static void encode(float weight, int i, std::uint8_t* granule) {
    granule[i] = static_cast<std::uint8_t>(static_cast<std::int8_t>(weight));
  }
  /// Adds half of the products of a chunk: `x` is of row lane / 4 of the tile, `y` of the row 8
  /// further on.
  template <int Half>
  __device__ static void multiply_half(Sum (&c)[4], uint4 x, uint4 y, Weights w) {
    if constexpr (Half == 0) {
      detail::multiply_8bit(c, {x.x, y.x, x.y, y.y}, w.x, w.y);
    } else {
      detail::multiply_8bit(c, {x.z, y.z, x.w, y.w}, w.z, w.w);
    }
  }
};

/// What bf16, fp16 and fp8 have in common: values in 16 bits, sums in fp32.
template <class Precision>
struct Values16 {
  using Stored = std::uint16_t;
  using Sum = float;
  using Eight = uint4;
  static constexpr int each = 8;
  static constexpr int strips = 1, stages = 4, blocks = 2;

  PVM_HOST_DEVICE static Stored store(float v) {
    if constexpr (std::same_as<Precision, bf16>) {
      const __nv_bfloat16 rounded = __float2bfloat16_rn(v);
      return *reinterpret_cast<const Stored*>(&rounded);
    } else {
      const __half rounded = __float2half_rn(v);
      return *reinterpret_cast<const Stored*>(&rounded);
    }
  }
  PVM_HOST_DEVICE static Stored store_pixel(std::uint8_t pixel) {
    return store(static_cast<float>(pixel) / 255.0F);
  }
};

/// Weights and values in bf16 or fp16.
template <class Precision>
struct SixteenBits : Values16<Precision> {
  using Weights = uint4;
  static constexpr float unit = 1;
  static constexpr const char* name = std::same_as<Precision, bf16> ? "bf16" : "fp16";

  static void encode(float weight, int i, std::uint8_t* granule) {
    reinterpret_cast<std::uint16_t*>(granule)[i] = Values16<Precision>::store(weight);
  }
  template <int Half>
  __device__ static void multiply_half(float (&c)[4], uint4 x, uint4 y, Weights w) {
    if constexpr (Half == 0) {
      detail::multiply_16bit<Precision>(c, {x.x, y.x, x.y, y.y}, w.x, w.y);
    } else {
      detail::multiply_16bit<Precision>(c, {x.z, y.z, x.w, y.w}, w.z, w.w);
    }
  }
};

/// Weights in fp8, which are widened to fp16, values in fp16.
struct Fp8 : Values16<fp16> {
  using Weights = uint2;
  static constexpr float unit = 256;  ///< see `widen`
  static constexpr const char* name = "fp8";

  static void encode(float weight, int i, std::uint8_t* granule) { granule[i] = to_e4m3(weight); }
  template <int Half>
  __device__ static void multiply_half(float (&c)[4], uint4 x, uint4 y, Weights w) {
    if constexpr (Half == 0) {
      detail::multiply_16bit<fp16>(c, {x.x, y.x, x.y, y.y}, widen(w.x, 0x1404), widen(w.x, 0x3424));
    } else {
      detail::multiply_16bit<fp16>(c, {x.z, y.z, x.w, y.w}, widen(w.y, 0x1404), widen(w.y, 0x3424));
    }
  }

 private:
  /// Two of four numbers as fp16, times 2^-8: both formats have the same fields, and the exponents
  /// of fp16 begin 8 further down. `places`: which two, as the upper bytes of 16-bit words.
  __device__ static std::uint32_t widen(std::uint32_t four, unsigned places) {
    const std::uint32_t high = __byte_perm(four, 0, places);
    return (high & 0x80008000U) | (high & 0x7f007f00U) >> 1;
  }
};

/// Adds the products of a chunk.
template <class Format>
__device__ __forceinline__ void multiply_chunk(typename Format::Sum (&c)[4], uint4 x, uint4 y,
                                               typename Format::Weights w) {
  Format::template multiply_half<0>(c, x, y, w);
  Format::template multiply_half<1>(c, x, y, w);
}

}  // namespace pvm::inline v0::infer::gpu
