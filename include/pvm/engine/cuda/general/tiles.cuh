// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pass over the weights: every warp goes through its items, loads their tiles into registers
/// and multiplies each tile by a column vector (row sums: W0 x, W1^T d1) and by a row vector
/// (partial y). Two tiles are in registers at a time: while one is multiplied, the load of the
/// other is in flight.

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
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::load(Tile& tile, const WarpItem& item,
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
  const Four* from =
      static_cast<const Four*>(history ? a.listed : a.arena) + item.offset + lane();
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
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::compute(const Tile& tile,
                                                                const WarpItem& item,
                                                                float (&sums)[RG]) const {
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
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::add_to_y(const Tile& tile,
                                                                 const WarpItem& item,
                                                                 std::uint32_t flags) const {
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

/// Runs this warp's items, with a call of `middle` between the early and the late ones. `one` and
/// `two` hold the tiles of the first two items at the start.
template <class Precision, int RG, class Known>
template <class Middle>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::run_items(bool tail, Tile& one,
                                                                             Tile& two,
                                                                             Middle middle) const {
  const WarpItem* items = warp_items();
  float sums[RG];
#pragma unroll
  for (int r = 0; r < RG; ++r) sums[r] = 0;
#pragma unroll 1
  for (std::uint32_t i = 0;; i += 2) {
    if (i == p.early_item_count) {
      middle();
      // No sum goes on behind it. That sums end here leaves their registers to `middle`.
#pragma unroll
      for (int r = 0; r < RG; ++r) sums[r] = 0;
    }
    if (i == p.item_count) break;
    const bool wraps = i + 2 == p.item_count;
    const std::uint32_t next = wraps ? 0 : i + 2;
    const WarpItem first = items[i], second = items[i + 1];
    compute(one, first, sums);
    if (!wraps) load(one, items[next], tail);
    compute(two, second, sums);
    if (!wraps) load(two, items[next + 1], tail);
  }
}

/// The items of this warp.
template <class Precision, int RG, class Known>
__device__ __forceinline__ const WarpItem* ThreadBlock<Precision, RG, Known>::warp_items() const {
  return list<WarpItem>(p.items) + static_cast<unsigned>(warp()) * p.item_count;
}

/// Issues the loads of the first two tiles.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::prefetch(Tile& one,
                                                                            Tile& two) const {
  one = Tile{};  // else lanes that load nothing would keep the old tile live across the folds
  two = Tile{};
  if (p.item_count == 0) return;
  const WarpItem* items = warp_items();
  load(one, items[0], false);
  load(two, items[1], false);
}

}  // namespace pvm::inline v0::detail::general
