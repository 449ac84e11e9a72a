// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tiles of 16-bit weights, and their products on tensor cores. With e = lane / 4 and q = lane % 4,
/// a lane has of its warp's tile row e and of it the eight columns of each chunk q + 4 i, i = 0 to
/// 3. (A tile has at most 16 chunks; rows and chunks that do not exist are 0.)
///
/// Row sums: the weights are operand B (16 columns by 8 rows) of mma m16n8k16, and operand A has the
/// column vector in two of its rows: values rounded to 16 bits in row 0, what rounding left out in
/// row 1. So only weights are rounded to 16 bits.
///
/// Partial y: transposed, the weights are operand A (16 columns by 8 rows) of m16n8k8. Operand B has
/// the row vector, in even columns rounded and in odd ones what is left.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>
#include <pvm/engine/cuda/instructions/memory.cuh>

namespace pvm::inline v0::detail::general {

/// Loads the item's tile. Where it has no rows the registers keep what they have.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::load_16bit(
    Tile& tile, const WarpItem& item, bool tail) const {
  const std::uint32_t flags = item.vector_lanes_flags >> 22;
  if ((flags & has_rows) == 0 || (tail && (flags & hidden_only) != 0)) return;
  const int e = lane() >> 2, q = lane() & 3;
  const int lanes = lanes_of(item);
  const int chunks = e < RG ? lanes / 2 - q : 0;  // those that this lane has begin at multiples of 4
  const bool history = (flags & in_history) != 0;
  const int stride = history ? static_cast<int>(p.column_count / 4) : lanes;
  const auto each = [&](const Four* base, auto load_word) {
    const uint4* from = reinterpret_cast<const uint4*>(base + item.offset + e * stride) + q;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      tile.w[i] = 4 * i < chunks ? load_word(from + 4 * i) : make_uint4(0, 0, 0, 0);
    }
  };
  if ((flags & in_shared) != 0) {
    each(resident, [](const uint4* from) { return *from; });
    return;
  }
  const Four* base = static_cast<const Four*>(history ? a.listed : a.arena);
  // See `load` about the policies.
  if ((flags & stays_in_l2) != 0) {
    each(base, [](const uint4* from) { return load_streamed(from, evict_last()); });
  } else {
    each(base, [](const uint4* from) { return load_streamed(from, evict_first()); });
  }
}

/// Writes value `c` of a column vector, which is at `vector` in `area`. In 16 bits a vector is
/// chunks of eight values, first the rounded values, then what rounding left out.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::keep_column_value(
    std::uint32_t vector, std::uint32_t c, float v) const {
  if constexpr (Weights::two_halves) {
    auto* at = reinterpret_cast<std::uint16_t*>(area + vector) + c / 8 * 16 + c % 8;
    const std::uint16_t rounded = Weights::Math::operand(v);
    at[0] = rounded;
    at[8] = Weights::Math::operand(v - Weights::Math::value(rounded));
  } else {
    area[vector + c] = v;
  }
}

/// Computes the products that the item's flags name.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::compute_16bit(
    const Tile& tile, const WarpItem& item, RowSums& sums) const {
  const std::uint32_t flags = item.vector_lanes_flags >> 22;
  if ((flags & starts_sum) != 0) sums = RowSums{};
  const int chunks = lanes_of(item) / 2;
  if (chunks > 0) {
    if ((flags & makes_sums) != 0) {
      const int e = lane() >> 2, q = lane() & 3;
      const std::uint32_t* vector = reinterpret_cast<const std::uint32_t*>(area) +
                                    4 * (item.vector_lanes_flags & 0xffffU) + 4 * (e & 1);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const uint4 x = *reinterpret_cast<const uint4*>(vector + 8 * min(q + 4 * i, chunks - 1));
        const std::uint32_t left[4] = {x.x, 0, x.y, 0}, right[4] = {x.z, 0, x.w, 0};
        Weights::Math::multiply(sums.v[0], left, tile.w[i].x, tile.w[i].y);
        Weights::Math::multiply(sums.v[1], right, tile.w[i].z, tile.w[i].w);
      }
    }
    if ((flags & makes_y) != 0) add_to_y_16bit(tile, item, flags, chunks);
  }
  if ((flags & ends_sum) != 0) {
    float* out = area + (item.row_vector_and_sums >> 16);
    float v[2];
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      v[r] = sums.v[0][r] + sums.v[1][r];
      v[r] += __shfl_down_sync(full_warp, v[r], 4);  // lanes 4 to 7 have the residuals' part
    }
    const int row = 2 * lane();
    if (row < RG) out[row] = v[0];
    if (row + 1 < RG) out[row + 1] = v[1];
  }
}

/// y_part += sum over the tile's rows r of coefficient(r) * row r.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::add_to_y_16bit(
    const Tile& tile, const WarpItem& item, std::uint32_t flags, int chunks) const {
  const int e = lane() >> 2, q = lane() & 3;
  std::uint32_t rows = 0;
  if ((flags & has_rows) != 0) {
    const float* row_vector = area + (item.row_vector_and_sums & 0xffffU) + 2 * q;
    const float first = row_vector[0], second = 2 * q + 1 < RG ? row_vector[1] : 0.0F;
    rows = Weights::Math::pair(first, second);
    if ((e & 1) != 0) {
      rows = Weights::Math::pair(first - Weights::Math::low_value(rows),
                                 second - Weights::Math::high_value(rows));
    }
  }
  float* y = reinterpret_cast<float*>(y_part + item.y) + 8 * (e >> 1) + (e & 1);
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const std::uint32_t words[4] = {tile.w[i].x, tile.w[i].y, tile.w[i].z, tile.w[i].w};
    float sum[2] = {0, 0};
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float c[4] = {};
      Weights::Math::multiply_shallow(c, transpose(words[2 * half]), transpose(words[2 * half + 1]),
                                      rows);
      // All four lanes of a row have its sum. Lane q keeps that of the columns 2 q and 2 q + 1.
      if ((q >> 1) == half) {
        sum[0] = c[0] + c[1];
        sum[1] = c[2] + c[3];
      }
    }
    if (4 * i + (e >> 1) >= chunks) continue;
    float* at = y + 32 * i + 4 * (q >> 1) + 2 * (q & 1);
    const float mine = (q & 1) != 0 ? sum[1] : sum[0];
    *at = ((flags & starts_y) != 0 ? 0.0F : *at) + mine;
  }
}

}  // namespace pvm::inline v0::detail::general
