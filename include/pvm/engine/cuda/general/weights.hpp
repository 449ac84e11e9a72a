// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How the general engine stores weights in a precision. In fp32 the arena holds each weight as a
/// float. In 16 bits a weight is two halves (numbers/halves.hpp): the arena holds the high halves,
/// which products read, and behind them in the same order the low halves, which only folds read
/// and write. Either way the arena has four bytes a weight.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/numbers/halves.hpp>
#include <pvm/engine/cuda/numbers/precision.cuh>

namespace pvm::inline v0::detail::general {

/// Every version has
///     Four                   four adjacent weights of a row, as products read them
///     two_halves             whether there are low halves
///     tiles_in_flight        tiles whose loads a warp has in flight, as registers allow
///     held_tiles             those of them that stay in registers during other work; of tiles
///     held_tall_tiles        with eight rows
///     values(four)           the four weights that products multiply
///     get(arena, i), set     weight i of the `arena`, on the host
template <class Precision>
struct Stored {
  using Math = detail::Math<Precision>;
  using Halves = detail::Halves<Precision>;
  using Four = uint2;
  static constexpr bool two_halves = true;
  static constexpr int tiles_in_flight = 4, held_tiles = 2, held_tall_tiles = 1;

  __device__ __forceinline__ static float4 values(Four w) {
    return make_float4(Math::low_value(w.x), Math::high_value(w.x), Math::low_value(w.y),
                       Math::high_value(w.y));
  }
  __device__ __forceinline__ static float4 join(Four high, Four low) {
    const WeightPair first = Halves::join({high.x, low.x}), second = Halves::join({high.y, low.y});
    return make_float4(first.first, first.second, second.first, second.second);
  }
  __device__ __forceinline__ static void split(float4 w, Four& high, Four& low) {
    const WordPair first = Halves::split({w.x, w.y}), second = Halves::split({w.z, w.w});
    high = make_uint2(first.high, second.high);
    low = make_uint2(first.low, second.low);
  }
  /// Four values rounded to the precision.
  __device__ __forceinline__ static Four rounded(float4 v) {
    return make_uint2(Math::pair(v.x, v.y), Math::pair(v.z, v.w));
  }

  static float get(const std::vector<float>& arena, std::size_t i) {
    const std::uint16_t high = half_of(arena, i), low = half_of(arena, arena.size() + i);
    return Halves::join({high, low}).first;
  }
  template <class Floats>
  static void set(Floats& arena, std::size_t i, float weight) {
    const WordPair words = Halves::split({weight, 0});
    set_half(arena, i, words.high);
    set_half(arena, arena.size() + i, words.low);
  }

 private:
  static std::uint16_t half_of(const std::vector<float>& arena, std::size_t i) {
    std::uint16_t half;
    std::memcpy(&half, reinterpret_cast<const unsigned char*>(arena.data()) + 2 * i, sizeof(half));
    return half;
  }
  template <class Floats>
  static void set_half(Floats& arena, std::size_t i, std::uint32_t word) {
    const auto half = static_cast<std::uint16_t>(word & 0xffffU);
    std::memcpy(reinterpret_cast<unsigned char*>(arena.data()) + 2 * i, &half, sizeof(half));
  }
};

template <>
struct Stored<fp32> {
  using Four = float4;
  static constexpr bool two_halves = false;
  static constexpr int tiles_in_flight = 2, held_tiles = 2, held_tall_tiles = 2;

  __device__ __forceinline__ static float4 values(Four w) { return w; }
  static float get(const std::vector<float>& arena, std::size_t i) { return arena[i]; }
  template <class Floats>
  static void set(Floats& arena, std::size_t i, float weight) {
    arena[i] = weight;
  }
};

}  // namespace pvm::inline v0::detail::general
