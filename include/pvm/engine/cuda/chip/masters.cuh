// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The masters of 16-bit weights, to which folds add. Beside weights that stay on the chip they are
/// fp32 numbers: a fold there is bound by its instructions. Beside weights that are streamed they
/// are what rounding left out (halves.hpp): those folds are bound by their bytes. In device memory
/// all weights lie as they are multiplied, rounded (of those that stay on the chip these are not
/// kept up to date), and behind them, in the same order, their masters.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/batch/precision.cuh>
#include <pvm/engine/cuda/chip/halves.hpp>
#include <pvm/engine/cuda/chip/sizes.hpp>

namespace pvm::inline v0::detail::chip {

/// What is gained by the weights of a lane's word of two tiles, or of one beside them: of the left
/// and right eight columns, upper rows and lower ones.
using Gains = float[2][4];

template <class Precision, Home home>
struct Masters {
  using Math = batch::Math<Precision>;
  /// Of a lane's two tiles, eight columns each.
  struct Tiles {
    float4 left, right;
  };
  using Beside = float4;

  __device__ __forceinline__ static Tiles load(const std::uint32_t* masters, int i, int lane) {
    const float4* from = reinterpret_cast<const float4*>(masters) + 2 * i * 32 + lane;
    return {__ldcg(from), __ldcg(from + 32)};
  }
  __device__ __forceinline__ static void store(std::uint32_t* masters, int i, int lane,
                                               const Tiles& m) {
    float4* to = reinterpret_cast<float4*>(masters) + 2 * i * 32 + lane;
    __stcs(to, m.left);  // they are not read again before the next fold
    __stcs(to + 32, m.right);
  }
  /// A lane's words of two tiles, and a word beside them, as they are multiplied.
  __device__ __forceinline__ static uint4 rounded(const Tiles& m) {
    const uint2 left = rounded(m.left), right = rounded(m.right);
    return make_uint4(left.x, left.y, right.x, right.y);
  }
  __device__ __forceinline__ static std::uint32_t rounded_word(const std::uint32_t* masters,
                                                               std::size_t at) {
    const float2 m = __ldcg(reinterpret_cast<const float2*>(masters) + at);
    return Math::pair(m.x, m.y);
  }
  __device__ __forceinline__ static void add(uint4& w, Tiles& m, const Gains& gain) {
    add(m.left, gain[0][0], gain[0][1], gain[0][2], gain[0][3]);
    add(m.right, gain[1][0], gain[1][1], gain[1][2], gain[1][3]);
    w = rounded(m);
  }
  __device__ __forceinline__ static void add_row(uint2& w, Beside& m, const Gains& gain) {
    add(m, gain[0][0], gain[0][1], gain[1][0], gain[1][1]);
    w = rounded(m);
  }

 private:
  __device__ __forceinline__ static uint2 rounded(const float4& m) {
    return make_uint2(Math::pair(m.x, m.y), Math::pair(m.z, m.w));
  }
  __device__ __forceinline__ static void add(float4& m, float x, float y, float z, float w) {
    m = make_float4(m.x + x, m.y + y, m.z + z, m.w + w);
  }
};

template <class Precision>
struct Masters<Precision, Home::memory> {
  using Tiles = uint4;
  using Beside = uint2;

  __device__ __forceinline__ static Tiles load(const std::uint32_t* masters, int i, int lane) {
    return __ldcg(reinterpret_cast<const uint4*>(masters) + i * 32 + lane);
  }
  __device__ __forceinline__ static void store(std::uint32_t* masters, int i, int lane,
                                               const Tiles& m) {
    reinterpret_cast<uint4*>(masters)[i * 32 + lane] = m;
  }
  __device__ __forceinline__ static void add(uint4& w, Tiles& m, const Gains& gain) {
    add_pair(w.x, m.x, gain[0][0], gain[0][1]);
    add_pair(w.y, m.y, gain[0][2], gain[0][3]);
    add_pair(w.z, m.z, gain[1][0], gain[1][1]);
    add_pair(w.w, m.w, gain[1][2], gain[1][3]);
  }
  __device__ __forceinline__ static void add_row(uint2& w, Beside& m, const Gains& gain) {
    add_pair(w.x, m.x, gain[0][0], gain[0][1]);
    add_pair(w.y, m.y, gain[1][0], gain[1][1]);
  }

 private:
  __device__ __forceinline__ static void add_pair(std::uint32_t& high, std::uint32_t& low,
                                                  float first, float second) {
    const WeightPair w = Halves<Precision>::join({high, low});
    const WordPair sum = Halves<Precision>::split({w.first + first, w.second + second});
    high = sum.high;
    low = sum.low;
  }
};

}  // namespace pvm::inline v0::detail::chip
