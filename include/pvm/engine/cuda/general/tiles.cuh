// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pass over the weights: every warp goes through its items, loads their tiles into registers
/// and multiplies each tile by a column vector (row sums: W0 x, W1^T d1) and by a row vector
/// (partial y). Several tiles are in registers at a time: while one is multiplied, the loads of the
/// others are in flight.

#include <cstdint>

#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/instructions/memory.cuh>

namespace pvm::inline v0::detail::general {

/// The number of lanes that have columns of the item's tile.
template <class Precision, int RG, class Known>
__device__ __forceinline__ int ThreadBlock<Precision, RG, Known>::lanes_of(const WarpItem& item) {
  return static_cast<int>(item.vector_lanes_flags >> 16 & 63U);
}

/// Loads the item's tile. Lanes without columns of it keep their old values, which `compute` does
/// not use.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::load(Tile& tile,
                                                                        const WarpItem& item,
                                                                        bool tail) const {
  const std::uint32_t flags = item.vector_lanes_flags >> 22;
  const int lanes = lanes_of(item);
  if (lane() >= lanes || (flags & has_rows) == 0 || (tail && (flags & hidden_only) != 0)) return;
  if ((flags & in_shared) != 0) {
    const Four* from = resident + item.offset + lane();
#pragma unroll
    for (int r = 0; r < RG; ++r) tile.w[r] = from[r * lanes];
    return;
  }
  const bool history = (flags & in_history) != 0;
  const int stride = history ? static_cast<int>(p.column_count / 4) : lanes;
  const Four* from = static_cast<const Four*>(history ? a.listed : a.arena) + item.offset + lane();
  // A part of the weights stays in the L2 cache from step to step. The rest is loaded with an
  // evict-first policy, so that it does not evict that part.
  // (Where both policies are constants, loads need no registers for them.)
  if ((flags & stays_in_l2) != 0) {
#pragma unroll
    for (int r = 0; r < RG; ++r) tile.w[r] = load_streamed(from + r * stride, evict_last());
  } else {
#pragma unroll
    for (int r = 0; r < RG; ++r) tile.w[r] = load_streamed(from + r * stride, evict_first());
  }
}

/// w . x. The four products are added up before they enter a sum over many columns: that is more
/// accurate.
template <class Precision, int RG, class Known>
__device__ __forceinline__ float ThreadBlock<Precision, RG, Known>::dot(float4 w, float4 x) {
  return w.x * x.x + w.y * x.y + w.z * x.z + w.w * x.w;
}

/// out[r] = the sum of sums[r] over the lanes of the warp.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::sum_rows(const float (&sums)[RG],
                                                                            float* out) const {
  // A transposing butterfly: each exchange halves the number of sums in a lane, so that eight sums
  // cost 7 + 2 shuffles. Then lanes 4r to 4r + 3 hold the sum of row r.
  float v[8];
#pragma unroll
  for (int r = 0; r < 8; ++r) v[r] = r < RG ? sums[r] : 0.0F;
#pragma unroll
  for (int half = 4; half >= 1; half /= 2) {
    const bool upper = (lane() & (half * 4)) != 0;
#pragma unroll
    for (int i = 0; i < half; ++i) {
      const float send = upper ? v[i] : v[i + half];
      const float keep = upper ? v[i + half] : v[i];
      v[i] = keep + __shfl_xor_sync(full_warp, send, half * 4);
    }
  }
  v[0] += __shfl_xor_sync(full_warp, v[0], 2);
  v[0] += __shfl_xor_sync(full_warp, v[0], 1);
  const int row = lane() >> 2;
  if ((lane() & 3) == 0 && row < RG) out[row] = v[0];
}

/// Computes the products that the item's flags name: adds to the row sums in `sums`, and to partial
/// y in `y_part`.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::compute(
    const Tile& tile, const WarpItem& item, float (&sums)[RG]) const {
  const std::uint32_t flags = item.vector_lanes_flags >> 22;
  if ((flags & starts_sum) != 0) {
#pragma unroll
    for (int r = 0; r < RG; ++r) sums[r] = 0;
  }
  if (lane() < lanes_of(item)) {
    if ((flags & makes_sums) != 0) {
      const float4 x =
          reinterpret_cast<const float4*>(area)[(item.vector_lanes_flags & 0xffffU) + lane()];
#pragma unroll
      for (int r = 0; r < RG; ++r) sums[r] += dot(Weights::values(tile.w[r]), x);
    }
    if ((flags & makes_y) != 0) add_to_y(tile, item, flags);
  }
  if ((flags & ends_sum) != 0) {
    __syncwarp();
    sum_rows(sums, area + (item.row_vector_and_sums >> 16));
  }
}

/// y_part += sum over the tile's rows r of coefficient(r) * row r.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::add_to_y(
    const Tile& tile, const WarpItem& item, std::uint32_t flags) const {
  float4* at = y_part + item.y + lane();
  float4 sum = (flags & starts_y) != 0 ? make_float4(0, 0, 0, 0) : *at;
  if ((flags & has_rows) != 0) {
    const float* row_vector = area + (item.row_vector_and_sums & 0xffffU);
#pragma unroll
    for (int r = 0; r < RG; ++r) {
      const float c = row_vector[r];
      const float4 w = Weights::values(tile.w[r]);
      sum.x += c * w.x;
      sum.y += c * w.y;
      sum.z += c * w.z;
      sum.w += c * w.w;
    }
  }
  *at = sum;
}

/// Runs this warp's items, with a call of `middle` between the early and the late ones. `tiles`
/// hold those of the first `held_tiles` items at the start.
template <class Precision, int RG, class Known>
template <class Middle>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::run_items(bool tail,
                                                                             Tiles& tiles,
                                                                             Middle middle) const {
  const WarpItem* items = warp_items();
  // Items are done in groups of `tiles_in_flight`, early and late ones apart. The last group of
  // either may be shorter, unless they are `whole`. This is the end of those of item `i`:
  constexpr bool whole = whole_groups(RG);
  const auto end_of = [&](std::uint32_t i) {
    return i < p.early_item_count ? p.early_item_count : p.item_count;
  };
  // The loads of a group of items that were not ahead of other work.
  const auto load_rest = [&](std::uint32_t i) {
    if (i == p.item_count) return;
    const std::uint32_t end = end_of(i);
    for_each_tile(tiles, [&](int k, Tile& tile) {
      const std::uint32_t at = i + static_cast<unsigned>(k);
      if (k >= held_tiles && (whole || at < end)) load(tile, item_of(items, at), tail);
    });
  };
  if (p.early_item_count != 0) load_rest(0);
  float sums[RG] = {};
#pragma unroll 1
  for (std::uint32_t i = 0;;) {
    if (i == p.early_item_count) {
      middle();
      load_rest(i);
      // No sum goes on behind it. That sums end here leaves their registers to `middle`.
#pragma unroll
      for (int r = 0; r < RG; ++r) sums[r] = 0;
    }
    if (i == p.item_count) break;
    const std::uint32_t next = whole ? i + tiles_in_flight : min(i + tiles_in_flight, end_of(i));
    const std::uint32_t end = whole ? p.item_count : end_of(next);
    for_each_tile(tiles, [&](int k, Tile& tile) {
      const std::uint32_t at = i + static_cast<unsigned>(k);
      const std::uint32_t later = next + static_cast<unsigned>(k);
      if (whole || at < next) compute(tile, item_of(items, at), sums);
      const bool held = k < held_tiles || next != p.early_item_count;
      if (held && (whole ? next : later) < end) load(tile, item_of(items, later), tail);
    });
    if (p.windowed != 0 && (i ^ next) >= item_chunk) open_chunk(next / item_chunk + 1);
    i = next;
  }
}

/// The items of this warp, of which number i is item_of(items, i). If there is only a window of
/// them, it has the chunk of the current item and the next one.
template <class Precision, int RG, class Known>
__device__ __forceinline__ const WarpItem* ThreadBlock<Precision, RG, Known>::warp_items() const {
  return list<WarpItem>(p.items) + static_cast<unsigned>(warp()) * p.item_stride;
}
template <class Precision, int RG, class Known>
__device__ __forceinline__ const WarpItem& ThreadBlock<Precision, RG, Known>::item_of(
    const WarpItem* items, std::uint32_t i) const {
  return items[i & p.item_mask];
}

/// Copies a chunk of this warp's items to its window.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::open_chunk(
    std::uint32_t chunk) const {
  const auto* all =
      reinterpret_cast<const uint4*>(a.blobs + a.blob_start[blockIdx.x] + p.blob_words) +
      static_cast<unsigned>(warp()) * p.item_count;
  const std::uint32_t i = chunk * item_chunk + static_cast<unsigned>(lane());
  const uint4 item = __ldg(all + min(i, p.item_count - 1));
  auto* window =
      reinterpret_cast<uint4*>(blob + p.items) + static_cast<unsigned>(warp()) * p.item_stride;
  __syncwarp();  // every lane has read what the chunk replaces
  window[i & p.item_mask] = item;
  __syncwarp();
}

/// Issues the loads of the first tiles.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::prefetch(Tiles& tiles) const {
  tiles = Tiles{};  // else lanes that load nothing would keep old tiles live across the folds
  if (p.item_count == 0) return;
  if (p.windowed != 0) {
#pragma unroll 1
    for (std::uint32_t chunk = 0; chunk < 2; ++chunk) open_chunk(chunk);
  }
  const WarpItem* items = warp_items();
  const std::uint32_t end = p.early_item_count != 0 ? p.early_item_count : p.item_count;
  for_each_tile(tiles, [&](int k, Tile& tile) {
    const bool here = whole_groups(RG) || static_cast<unsigned>(k) < end;
    if (k < held_tiles && here) load(tile, items[k], false);
  });
}

}  // namespace pvm::inline v0::detail::general
