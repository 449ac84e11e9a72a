// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The masters of 16-bit weights, to which folds add: what is multiplied, and what rounding left
/// out of it (halves.hpp), which lies in device memory, behind all weights, in the same order. So a
/// fold moves half of what it would with fp32 masters.

#include <cuda_runtime.h>

#include <concepts>
#include <cstdint>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/chip/halves.hpp>

namespace pvm::inline v0::detail::chip {

/// What is gained by the weights of a lane's word of two tiles, or of one beside them: of the left
/// and right eight columns, upper rows and lower ones.
using Gains = float[2][4];

/// Smaller halves of a lane: of word i of its tiles, and how both halves gain.
template <class Precision>
struct Masters {
  /// Gains, and the factors they are made of, are so many times as large: a rate times d0 may be
  /// less than fp16 can say, which ends at 2^-24.
  static constexpr float scale = std::same_as<Precision, fp16> ? 0x1p12F : 1.0F;

  __device__ __forceinline__ static uint4 load(const std::uint32_t* masters, int i, int lane) {
    return __ldcg(reinterpret_cast<const uint4*>(masters) + i * 32 + lane);
  }
  __device__ __forceinline__ static void store(std::uint32_t* masters, int i, int lane,
                                               const uint4& m) {
    reinterpret_cast<uint4*>(masters)[i * 32 + lane] = m;
  }
  __device__ __forceinline__ static void add(uint4& w, uint4& m, const Gains& gain) {
    add_pair(w.x, m.x, gain[0][0], gain[0][1]);
    add_pair(w.y, m.y, gain[0][2], gain[0][3]);
    add_pair(w.z, m.z, gain[1][0], gain[1][1]);
    add_pair(w.w, m.w, gain[1][2], gain[1][3]);
  }
  __device__ __forceinline__ static void add_row(uint2& w, uint2& m, const Gains& gain) {
    add_pair(w.x, m.x, gain[0][0], gain[0][1]);
    add_pair(w.y, m.y, gain[1][0], gain[1][1]);
  }

 private:
  __device__ __forceinline__ static void add_pair(std::uint32_t& high, std::uint32_t& low,
                                                  float first, float second) {
    const WeightPair w = Halves<Precision>::join({high, low});
    const WordPair sum =
        Halves<Precision>::split({w.first + first * (1 / scale), w.second + second * (1 / scale)});
    high = sum.high;
    low = sum.low;
  }
};

}  // namespace pvm::inline v0::detail::chip
