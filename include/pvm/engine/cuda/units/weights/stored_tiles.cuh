// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A lane's part of the 16-bit tiles of a block, in registers, in the form in which it is stored:
/// eight weights of each pair of tiles.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include <pvm/engine/cuda/numbers/packed.hpp>

namespace pvm::inline v0::detail::units {

/// `packed`: in 12 bits a weight (packed.hpp). Every version has
///     get(i), set(i, w)           the weights of pair i as mma operand A
///     load(from, lane, load_to)   from where `from` is this lane's first uint4 of the block; loads
///                                 are done by load_to(register, address)
///     store(to, lane)
template <int Pairs, bool packed>
struct StoredTiles {
  uint4 tiles[Pairs];

  __device__ __forceinline__ uint4 get(int i) const { return tiles[i]; }
  __device__ __forceinline__ void set(int i, const uint4& w) { tiles[i] = w; }
  template <class Load>
  __device__ __forceinline__ void load(const uint4* from, int /*lane*/, Load load_to) {
#pragma unroll
    for (int i = 0; i < Pairs; ++i) load_to(tiles[i], from + i * 32);
  }
  __device__ __forceinline__ void store(uint4* to, int /*lane*/) const {
#pragma unroll
    for (int i = 0; i < Pairs; ++i) to[i * 32] = tiles[i];
  }
};

template <int Pairs>
struct StoredTiles<Pairs, true> {
  using Order = PackedOrder<Pairs>;
  static constexpr int ones = Order::words - 4 * Order::quads;
  // At least one element each, as C++ has no empty arrays.
  uint4 quads[std::max(1, Order::quads)];
  std::uint32_t rest[std::max(1, ones)];

  __device__ __forceinline__ uint4 get(int i) const {
    const PackedTiles p = {{word(3 * i), word(3 * i + 1)}, word(3 * i + 2)};
    return make_uint4(unpacked(p, 0), unpacked(p, 1), unpacked(p, 2), unpacked(p, 3));
  }
  __device__ __forceinline__ void set(int i, const uint4& w) {
    const PackedTiles p = pack({w.x, w.y, w.z, w.w});
    word(3 * i) = p.low[0];
    word(3 * i + 1) = p.low[1];
    word(3 * i + 2) = p.high;
  }
  template <class Load>
  __device__ __forceinline__ void load(const uint4* from, int lane, Load load_to) {
#pragma unroll
    for (int i = 0; i < Order::quads; ++i) load_to(quads[i], from + i * 32);
    const std::uint32_t* more = rest_of(from, lane);
#pragma unroll
    for (int i = 0; i < ones; ++i) load_to(rest[i], more + i * 32);
  }
  __device__ __forceinline__ void store(uint4* to, int lane) const {
#pragma unroll
    for (int i = 0; i < Order::quads; ++i) to[i * 32] = quads[i];
    auto* more = const_cast<std::uint32_t*>(rest_of(to, lane));
#pragma unroll
    for (int i = 0; i < ones; ++i) more[i * 32] = rest[i];
  }

 private:
  /// Word i of this lane, in the order of PackedOrder.
  __device__ __forceinline__ std::uint32_t& word(int i) {
    if (i >= 4 * Order::quads) return rest[i - 4 * Order::quads];
    uint4& quad = quads[i / 4];
    if (i % 4 < 2) return i % 2 == 0 ? quad.x : quad.y;
    return i % 2 == 0 ? quad.z : quad.w;
  }
  __device__ __forceinline__ std::uint32_t word(int i) const {
    return const_cast<StoredTiles*>(this)->word(i);
  }
  /// This lane's first word behind the words of four.
  __device__ __forceinline__ static const std::uint32_t* rest_of(const uint4* mine, int lane) {
    return reinterpret_cast<const std::uint32_t*>(mine) + (128 * Order::quads - 3 * lane);
  }
};

}  // namespace pvm::inline v0::detail::units
