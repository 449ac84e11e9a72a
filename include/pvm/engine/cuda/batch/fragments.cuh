// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A warp's part of a panel, 16 m by up to 56 n, as accumulators: loading it from the master,
/// changing and storing it, and making the working copies.

#include <cstdint>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>
#include <pvm/engine/cuda/instructions/memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail::batch {

/// A warp's 16 m by 56 n of a panel in the layout of mma accumulators: of every 8 columns lane l
/// holds columns 2(l%4) and 2(l%4) + 1, in elements 0 and 1 of row l/4, in 2 and 3 of row l/4 + 8.
using Fragment = float[panel_tiles][4];

__device__ __forceinline__ void clear(Fragment& f) {
#pragma unroll
  for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) f[n][k] = 0.0F;
  }
}
/// to += factor f.
__device__ __forceinline__ void add(Fragment& to, float factor, const Fragment& f) {
#pragma unroll
  for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) to[n][k] += factor * f[n][k];
  }
}

/// Goes through the lane's elements of a 16 x `columns` part of a panel. Calls f4(tile, index) for
/// each full tile of 8 columns, and f1(tile, element, index) for each element in the remaining
/// columns. `index`: where, in floats from the part's start, the quad or element lies in a master
/// (`master_index`).
template <class F4, class F1>
__device__ __forceinline__ void each_float(std::uint32_t columns, F4&& f4, F1&& f1) {
  const int lane = thread_number() & 31;
  const int full = static_cast<int>(columns) / 8;
  const int rest = static_cast<int>(columns) % 8;
  const int column = (lane & 3) * 2;
  const auto few = [&](int n) {
    if (column >= rest) return;
    const int at = n * 128 + (lane >> 2) * rest + column;
    f1(n, 0, at);
    f1(n, 2, at + 8 * rest);
    if (column + 1 >= rest) return;
    f1(n, 1, at + 1);
    f1(n, 3, at + 8 * rest + 1);
  };
  if (full == panel_tiles - 1) {  // the usual case of 49 hidden values, without branches
#pragma unroll
    for (int n = 0; n < panel_tiles - 1; ++n) f4(n, (n * 32 + lane) * 4);
    few(panel_tiles - 1);
    return;
  }
#pragma unroll
  for (int n = 0; n < panel_tiles; ++n) {
    if (n < full) {
      f4(n, (n * 32 + lane) * 4);
    } else if (n == full) {
      few(n);
    }
  }
}
/// Replaces each of the lane's floats of a 16 x `columns` part of a panel in shared memory by
/// change(tile, element, float). Several are loaded before the first is stored, to overlap
/// latencies: the compiler does not reorder these itself, as it cannot tell that they do not alias.
template <class Change>
__device__ __forceinline__ void change_floats(float* part, std::uint32_t columns, Change&& change) {
  const int lane = thread_number() & 31;
  const int full = static_cast<int>(columns) / 8;
  const int rest = static_cast<int>(columns) % 8;
  const int column = (lane & 3) * 2;
  auto* quads = reinterpret_cast<float4*>(part) + lane;
  float* few = part + full * 128 + (lane >> 2) * rest + column;
  const auto exists = [&](int k) { return column + (k & 1) < rest; };
  const auto index = [&](int k) { return (k >> 1) * 8 * rest + (k & 1); };
  float v[4] = {};
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    if (exists(k)) v[k] = few[index(k)];
  }
  const auto change_quad = [&](int n, const float4& z) {
    quads[n * 32] =
        make_float4(change(n, 0, z.x), change(n, 1, z.y), change(n, 2, z.z), change(n, 3, z.w));
  };
  const auto change_few = [&](int n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (exists(k)) few[index(k)] = change(n, k, v[k]);
    }
  };
  if (full == panel_tiles - 1) {  // the usual case of 49 hidden values, without branches
#pragma unroll
    for (int n = 0; n < panel_tiles - 1; n += 3) {
      const float4 first = quads[n * 32], second = quads[n * 32 + 32], third = quads[n * 32 + 64];
      change_quad(n, first);
      change_quad(n + 1, second);
      change_quad(n + 2, third);
    }
    change_few(panel_tiles - 1);
    return;
  }
#pragma unroll
  for (int n = 0; n < panel_tiles; ++n) {
    if (n < full) {
      change_quad(n, quads[n * 32]);
    } else if (n == full) {
      change_few(n);
    }
  }
}
/// Stores a part of a panel in a master.
__device__ __forceinline__ void store_fragment(const Fragment& w, float* to,
                                               std::uint32_t columns) {
  each_float(
      columns,
      [&](int n, int at) {
        __stcs(reinterpret_cast<float4*>(to + at), make_float4(w[n][0], w[n][1], w[n][2], w[n][3]));
      },
      [&](int n, int k, int at) { __stcs(to + at, w[n][k]); });
}
/// Copies a part of a master to shared memory, asynchronously: each lane copies what it will read
/// itself in `read_fragment`.
__device__ __forceinline__ void copy_fragment_async(float* shared, const float* from,
                                                    std::uint32_t columns) {
  const unsigned long long policy = evict_first();
  each_float(
      columns, [&](int, int at) { copy_async(shared + at, from + at, policy); },
      [&](int, int, int at) { copy_word_async(shared + at, from + at); });
}
/// Reads what `copy_fragment_async` has copied; columns that do not exist become 0.
__device__ __forceinline__ void read_fragment(Fragment& w, const float* shared,
                                              std::uint32_t columns) {
  clear(w);
  each_float(
      columns,
      [&](int n, int at) {
        const float4 v = *reinterpret_cast<const float4*>(shared + at);
        w[n][0] = v.x;
        w[n][1] = v.y;
        w[n][2] = v.z;
        w[n][3] = v.w;
      },
      [&](int n, int k, int at) { w[n][k] = shared[at]; });
}

/// Stores 16 m of the working copy for products that contract over m. `copy`: the panel's first
/// weight block; `m16`: which 16 m of the panel. They are one half of a 16-bit weight block (its 8
/// x 8 matrices transposed across the warp, because mma operand B has m along a register's pair),
/// or a whole 32-bit one.
template <class M>
__device__ __forceinline__ void store_copy_over_m(std::uint32_t* copy, const Fragment& w, int m16) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  if constexpr (sizeof(typename M::Word) == 2) {
    const unsigned long long policy = evict_last();
    std::uint32_t r[14];
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
      r[2 * n] = transpose(M::pair(w[n][0], w[n][1]));
      r[2 * n + 1] = transpose(M::pair(w[n][2], w[n][3]));
    }
    std::uint32_t* at = copy + static_cast<std::size_t>(m16 / 2) * block_words + lane * 4;
    if (m16 % 2 == 0) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        store_with_policy(reinterpret_cast<uint4*>(at + i * 128),
                          make_uint4(r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3]), policy);
      }
      store_with_policy(reinterpret_cast<uint2*>(at + 3 * 128), make_uint2(r[12], r[13]), policy);
    } else {
      store_with_policy(reinterpret_cast<uint2*>(at + 3 * 128 + 2), make_uint2(r[0], r[1]), policy);
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        store_with_policy(reinterpret_cast<uint4*>(at + (4 + i) * 128),
                          make_uint4(r[4 * i + 2], r[4 * i + 3], r[4 * i + 4], r[4 * i + 5]),
                          policy);
      }
    }
  } else {
    std::uint32_t* at = copy + static_cast<std::size_t>(m16) * block_words;
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int depth = lane >> 2;  // m in half k / 2 of the block, of 8
        const int column = (lane & 3) * 2 + (k & 1);
        const int e = ((k >> 1) * 7 + n) * 2 + depth / 4;
        at[(e / 4) * 128 + (column * 4 + depth % 4) * 4 + e % 4] = M::operand(w[n][k]);
      }
    }
  }
}

/// Stores 16 m of the working copy of W1 for y = W1 r, which contracts over n. In this copy groups
/// of 56 m are the columns of weight blocks, and n, padded to 64, is their depth. `group_blocks`:
/// weight blocks of a group.
template <class M>
__device__ __forceinline__ void store_copy_over_n(std::uint32_t* copy, const Fragment& w, int m16,
                                                  std::uint32_t group_blocks) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  [[maybe_unused]] const unsigned long long policy = evict_last();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int eight = m16 * 2 + half;      // which 8 outputs of the unit
    const int tile = eight % panel_tiles;  // ... of their group
    std::uint32_t* group =
        copy + static_cast<std::size_t>(eight / panel_tiles) * group_blocks * block_words;
    if constexpr (sizeof(typename M::Word) == 2) {
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        const std::uint32_t low = M::pair(w[n][2 * half], w[n][2 * half + 1]);
        std::uint32_t high = 0;
        if (n + 1 < panel_tiles) high = M::pair(w[n + 1][2 * half], w[n + 1][2 * half + 1]);
        const int e = ((n / 2 % 2) * 7 + tile) * 2;
        store_with_policy(reinterpret_cast<uint2*>(group + (n / 4) * block_words + (e / 4) * 128 +
                                                   lane * 4 + e % 4),
                          make_uint2(low, high), policy);
      }
    } else {
#pragma unroll
      for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int depth = (lane & 3) * 2 + k;  // n in the tile, of 8
          const int e = ((n % 2) * 7 + tile) * 2 + depth / 4;
          group[(n / 2) * block_words + (e / 4) * 128 + ((lane >> 2) * 4 + depth % 4) * 4 + e % 4] =
              M::operand(w[n][2 * half + k]);
        }
      }
    }
  }
}

}  // namespace pvm::inline v0::detail::batch
