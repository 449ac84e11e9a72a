// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What crosses between thread blocks: pieces of records, and the counters of begun steps. Here
/// alone a shard (`shards`) differs from a launch that has a whole network: it stores each piece to
/// its own ring and to those of all other shards, which may lie on other GPUs, counts the steps
/// that it begins for all of them, and reads its own ring and counters only.
///
/// Why that is enough without a fence, between GPUs as within one:
///   - A piece is its own message: a 16-byte aligned vector of three words and the tag, which one
///     instruction stores and one instruction loads. NVLink and PCIe carry it in one packet, as
///     parts of a packet are not smaller than 32 bytes, and it is written to the L2 cache of the
///     GPU that has the ring, the one place at which all accesses to this ring meet. So a load that
///     sees the tag sees the three words. (NCCL's LL128 protocol relies on more: 128 bytes of a
///     warp, over NVLink. Compute capability 7.0 and later guarantee it for ld and st of 128 bits.)
///   - Nothing is concluded from one piece about another, so their order does not matter. A reader
///     polls every piece that it needs in step t, those of values and those of products.
///   - Folds read values again, steps later and without looking at tags: of the sources of their
///     own unit only, whose pieces a thread of this thread block has polled before a barrier, so
///     that they are in the L2 cache; these loads bypass the L1 cache.
///   - Both sides are relaxed operations whose scope includes the other side: `sys` for what
///     crosses GPUs (morally strong, in the words of PTX's memory model), so no store may be held
///     back for good, and no poll may be served by a cache that is not kept up to date.
///   - A row of a ring is written again after `ring` steps. The writer's own counter says that all
///     thread blocks of all shards have begun step t - ahead. Each of them has then used what it
///     loaded for the steps before: the values went through a barrier into its sums before a thread
///     counted. And `ahead` + `terms` + 6 <= `ring`: what the writer writes over is older than what
///     the slowest reads. A count that arrives late only makes the writer wait.
///   - A count is added at the memory that has the counter. GPUs over whose link atomic operations
///     are not native are refused (shards.hpp).

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/state.cuh>

namespace pvm::inline v0::detail::units {

/// Stores a piece to its place `to` in this launch's ring `a.past`, and in those of other shards.
template <bool shards>
__device__ __forceinline__ void send_piece(const Arguments& a, std::uint32_t* to, uint4 v) {
  if constexpr (shards) {
    const std::ptrdiff_t at = to - a.past;
    // The way to other GPUs is the longest.
#pragma unroll 1
    for (int k = 0; k < a.peers.count; ++k) store_relaxed_16_system(a.peers.past[k] + at, v);
  }
  store_relaxed_16(to, v);
}

/// Loads a piece that any thread block may have sent, for polling.
template <bool shards>
__device__ __forceinline__ uint4 receive_piece(const void* from) {
  if constexpr (shards) return load_relaxed_16_system(from);
  return load_relaxed_16(from);
}

/// Counts that this thread block has begun a step: one thread's work.
template <bool shards>
__device__ __forceinline__ void count_begun(const Arguments& a, unsigned long long step) {
  add_one_relaxed(a.begun + step % rounds);
  if constexpr (shards) {
#pragma unroll 1
    for (int k = 0; k < a.peers.count; ++k) add_one_system(a.peers.begun[k] + step % rounds);
  }
}

/// Loads an element of `Arguments::begun`, for polling.
template <bool shards>
__device__ __forceinline__ unsigned int load_begun(const unsigned int* counter) {
  if constexpr (shards) return load_relaxed_system(counter);
  return load_relaxed(counter);
}

/// How many thread blocks count in `Arguments::begun`.
template <bool shards>
__device__ __forceinline__ unsigned int all_thread_blocks(const Arguments& a) {
  if constexpr (shards) return a.peers.thread_blocks;
  return gridDim.x;
}

}  // namespace pvm::inline v0::detail::units
