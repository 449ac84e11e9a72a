// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Master weights in two 16-bit halves, to which folds add. The high half is the working copy that
/// is multiplied; the low half is what rounding left out (halves.hpp). Low halves are in device
/// memory, behind the high halves of all weights, in the same order. A fold therefore moves half
/// the bytes that fp32 master weights beside a working copy would take.

#include <cuda_runtime.h>

#include <concepts>
#include <cstdint>
#include <type_traits>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/numbers/halves.hpp>
#include <pvm/engine/cuda/numbers/packed.hpp>

namespace pvm::inline v0::detail::units {

/// What a fold adds to a lane's weights of two tiles, as mma accumulators: [0] for the left eight
/// columns, [1] for the right ones; in each two weights of the upper tile, two of the lower one.
/// For remainder rows only the upper ones count.
using Gains = float[2][4];

/// Loads and stores a lane's low halves, and adds gains to both halves. `packed`: those of tiles
/// are PackedHalves. Low halves that are stored are marked to leave the L2 cache first, as nothing
/// reads them for a whole period.
template <class Precision, bool packed>
struct Masters {
  using OfTiles = std::conditional_t<packed, PackedHalves, Halves<Precision>>;
  /// Gains, and the factors they are made of, are `scale` times their value: in fp16 a learning
  /// rate times d0 may be smaller than the smallest number, 2^-24.
  static constexpr float scale = std::same_as<Precision, fp16> ? 0x1p12F : 1.0F;

  /// The low halves of word i of this lane's tiles.
  __device__ __forceinline__ static uint4 load(const std::uint32_t* low_halves, int i, int lane) {
    return __ldcg(reinterpret_cast<const uint4*>(low_halves) + i * 32 + lane);
  }
  __device__ __forceinline__ static void store(std::uint32_t* low_halves, int i, int lane,
                                               const uint4& m) {
    uint4* to = reinterpret_cast<uint4*>(low_halves) + i * 32 + lane;
    store_with_policy(to, m, evict_first());
  }
  /// Adds to the high halves `w` and the low halves `m` of two tiles.
  __device__ __forceinline__ static void add(uint4& w, uint4& m, const Gains& gain) {
    add_pair<OfTiles>(w.x, m.x, gain[0][0], gain[0][1]);
    add_pair<OfTiles>(w.y, m.y, gain[0][2], gain[0][3]);
    add_pair<OfTiles>(w.z, m.z, gain[1][0], gain[1][1]);
    add_pair<OfTiles>(w.w, m.w, gain[1][2], gain[1][3]);
  }
  /// Adds to those of a remainder row.
  __device__ __forceinline__ static void add_row(uint2& w, uint2& m, const Gains& gain) {
    add_pair<Halves<Precision>>(w.x, m.x, gain[0][0], gain[0][1]);
    add_pair<Halves<Precision>>(w.y, m.y, gain[1][0], gain[1][1]);
  }

 private:
  template <class H>
  __device__ __forceinline__ static void add_pair(std::uint32_t& high, std::uint32_t& low,
                                                  float first, float second) {
    constexpr float unit = H::unit / scale;
    const auto add = [](float w, float gain) {
      if constexpr (std::same_as<H, PackedHalves>) return fma_with_subnormals(gain, unit, w);
      return w + gain * unit;
    };
    const WeightPair w = H::join({high, low});
    const WordPair sum = H::split({add(w.first, first), add(w.second, second)});
    high = sum.high;
    low = sum.low;
  }
};

}  // namespace pvm::inline v0::detail::units
