// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A lane's part of the 16-bit tiles of a block, in registers, in the form in which it is stored:
/// eight weights of each pair of tiles.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/chip/packed.hpp>

namespace pvm::inline v0::detail::chip {

/// `packed`: in 12 bits a weight (packed.hpp). Every version has
///     get(i), set(i, w)           the weights of pair i as mma operand A
///     load(from, lane, word)      from where `from` is this lane's first uint4 of the block; loads
///                                 are done by word(address)
///     store(to, lane)
template <int Pairs, bool packed>
struct StoredTiles {
  uint4 tiles[Pairs];

  __device__ __forceinline__ uint4 get(int i) const { return tiles[i]; }
  __device__ __forceinline__ void set(int i, const uint4& w) { tiles[i] = w; }
  template <class LoadWord>
  __device__ __forceinline__ void load(const uint4* from, int /*lane*/, LoadWord word) {
#pragma unroll
    for (int i = 0; i < Pairs; ++i) tiles[i] = word(from + i * 32);
  }
  __device__ __forceinline__ void store(uint4* to, int /*lane*/) const {
#pragma unroll
    for (int i = 0; i < Pairs; ++i) to[i * 32] = tiles[i];
  }
};

template <int Pairs>
struct StoredTiles<Pairs, true> {
  using Order = PackedOrder<Pairs>;
  std::uint32_t v[Order::words];

  __device__ __forceinline__ uint4 get(int i) const {
    const PackedTiles p = {{v[3 * i], v[3 * i + 1]}, v[3 * i + 2]};
    return make_uint4(unpacked(p, 0), unpacked(p, 1), unpacked(p, 2), unpacked(p, 3));
  }
  __device__ __forceinline__ void set(int i, const uint4& w) {
    const PackedTiles p = pack({w.x, w.y, w.z, w.w});
    v[3 * i] = p.low[0];
    v[3 * i + 1] = p.low[1];
    v[3 * i + 2] = p.high;
  }
  template <class LoadWord>
  __device__ __forceinline__ void load(const uint4* from, int lane, LoadWord word) {
#pragma unroll
    for (int i = 0; i < Order::quads; ++i) {
      const uint4 w = word(from + i * 32);
      v[4 * i] = w.x;
      v[4 * i + 1] = w.y;
      v[4 * i + 2] = w.z;
      v[4 * i + 3] = w.w;
    }
    const std::uint32_t* rest = rest_of(from, lane);
#pragma unroll
    for (int i = 4 * Order::quads; i < Order::words; ++i) {
      v[i] = word(rest + (i - 4 * Order::quads) * 32);
    }
  }
  __device__ __forceinline__ void store(uint4* to, int lane) const {
#pragma unroll
    for (int i = 0; i < Order::quads; ++i) {
      to[i * 32] = make_uint4(v[4 * i], v[4 * i + 1], v[4 * i + 2], v[4 * i + 3]);
    }
    auto* rest = const_cast<std::uint32_t*>(rest_of(to, lane));
#pragma unroll
    for (int i = 4 * Order::quads; i < Order::words; ++i) rest[(i - 4 * Order::quads) * 32] = v[i];
  }

 private:
  /// This lane's first word behind the words of four.
  __device__ __forceinline__ static const std::uint32_t* rest_of(const uint4* mine, int lane) {
    return reinterpret_cast<const std::uint32_t*>(mine) + (128 * Order::quads - 3 * lane);
  }
};

}  // namespace pvm::inline v0::detail::chip
