// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// y = f(W1 r) of a swept network, from the 16-bit copies of W1. A warp makes 16 outputs by 16
/// sequences at a time. The sweep computes y(t-2) with these functions when it needs errors; the
/// kernel in this file computes and stores the y of a step when it is read, with the same bits.

#include <cstdint>
#include <type_traits>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/plan/sizes.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>

namespace pvm::inline v0::detail::batch {

/// A lane's registers of 16 rows of W1 as mma operand A of y = W1 r: for columns 0 to 47 three
/// times four (16 x 16), for the last 8 columns two (16 x 8).
using OutputWeights = std::uint32_t[2 * panel_tiles];

/// Loads from device memory, past the L1 cache.
struct FromDevice {
  template <class T>
  __device__ T operator()(const T* at) const {
    return __ldcg(at);
  }
};
/// Loads from shared memory.
struct FromShared {
  template <class T>
  __device__ T operator()(const T* at) const {
    return *at;
  }
};
/// Reads 16 rows from `copy`, `copy_words` words as SweepConsumerBase's `store_copy` lays them out:
/// [3][lane] of 16 bytes, then [lane] of 8.
template <class Load>
__device__ __forceinline__ void read_output_weights(OutputWeights& w, const unsigned char* copy,
                                                    int lane, Load load) {
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    const uint4 v = load(reinterpret_cast<const uint4*>(copy) + i * 32 + lane);
    w[4 * i] = v.x;
    w[4 * i + 1] = v.y;
    w[4 * i + 2] = v.z;
    w[4 * i + 3] = v.w;
  }
  const uint2 v = load(reinterpret_cast<const uint2*>(copy + 3 * 512) + lane);
  w[12] = v.x;
  w[13] = v.y;
}

/// sums = w r for `Count` times 16 sequences; sums[i][0] are the accumulators of the first 8 of the
/// i-th 16 sequences, sums[i][1] of the next 8. r lies in shared memory; `rows` and `last` return
/// the address that lane l passes to ldmatrix. `rows(i, k)`: row 16 k + l % 16, at the first 8
/// sequences for lanes 0 to 15, at the next 8 for lanes 16 to 31. `last(i)`: row 48 + l % 8, at the
/// first 8 sequences where l / 8 is even, at the next 8 where it is odd.
template <class M, int Count, class Rows, class Last>
__device__ __forceinline__ void multiply_outputs(float (&sums)[Count][2][4], const OutputWeights& w,
                                                 Rows&& rows, Last&& last) {
#pragma unroll
  for (int i = 0; i < Count * 8; ++i) sums[i / 8][i / 4 % 2][i % 4] = 0.0F;
#pragma unroll
  for (int k = 0; k < 3; ++k) {
    const std::uint32_t a[4] = {w[4 * k], w[4 * k + 1], w[4 * k + 2], w[4 * k + 3]};
    std::uint32_t b[Count][4];
#pragma unroll
    for (int i = 0; i < Count; ++i) load_matrices_transposed(b[i], rows(i, k));
#pragma unroll
    for (int i = 0; i < Count; ++i) {
      M::multiply(sums[i][0], a, b[i][0], b[i][1]);
      M::multiply(sums[i][1], a, b[i][2], b[i][3]);
    }
  }
  std::uint32_t b[Count][2];
#pragma unroll
  for (int i = 0; i < Count; ++i) load_two_matrices_transposed(b[i][0], b[i][1], last(i));
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    M::multiply_shallow(sums[i][0], w[12], w[13], b[i][0]);
    M::multiply_shallow(sums[i][1], w[12], w[13], b[i][1]);
  }
}

/// The activation that belongs to a derivative of `with_derivative`.
template <class M, class Derivative>
using ActivationOf = std::conditional_t<std::is_same_v<Derivative, FastDerivative> ||
                                            std::is_same_v<Derivative, PolynomialTrue>,
                                        FastPolynomial<M>, Derivative>;
/// Turns a sum into y, rounded as it is stored, because a run that is resumed from a checkpoint has
/// no other y.
template <class M, class Activation>
__device__ __forceinline__ void activate_output(float& sum, Activation) {
  sum = M::Stored::round(Activation::value(sum));
}

/// Bytes of a row of r in the shared memory of `outputs_kernel`: padded, so that there are no bank
/// conflicts between eight rows.
template <int Bp>
inline constexpr int output_row_stride = Bp * 2 + 16;
/// Copies the 56 rows of r that `words` name to `to`, [56][output_row_stride], asynchronously.
template <int Bp>
__device__ __forceinline__ void load_output_rows(const Arguments& a, const std::uint32_t* words,
                                                 const std::uint32_t* array_offsets,
                                                 unsigned char* to) {
  constexpr int row_bytes = Bp * 2;
  constexpr int chunks = row_bytes / 16;
  for (int i = static_cast<int>(threadIdx.x); i < panel_width * chunks; i += threads) {
    const int at = i % chunks * 16;
    copy_row_async(to + i / chunks * output_row_stride<Bp> + at, a.arena + at,
                   row_offset(array_offsets, words[i / chunks], row_bytes / 16));
  }
}
/// Stores a lane's values of 16 m by 16 sequences of y to slot `slot`. `first`: row of y of the
/// tile's first m; `row`: the first of the 16 m, counted from the tile's first; `rows`: number of m
/// of the tile; `byte`: byte offset of the first of the 16 sequences in a row.
template <class M, int Bp>
__device__ __forceinline__ void store_outputs(const Arguments& a, const float (&y)[2][4],
                                              std::uint32_t slot, std::uint32_t first, int row,
                                              int rows, int byte) {
  constexpr int row_bytes = Bp * 2;
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int k = 0; k < 8; ++k) {
    const int m = row + (lane >> 2) + (k >> 1 & 1) * 8;
    if (m >= rows) continue;
    const std::size_t line =
        static_cast<std::size_t>(slot) * static_cast<std::size_t>(a.shape.outputs) + first +
        static_cast<unsigned>(m);
    auto* to = reinterpret_cast<typename M::Stored::Type*>(
        a.y + line * static_cast<unsigned>(row_bytes) + byte);
    to[(k >> 2) * 8 + (lane & 3) * 2 + (k & 1)] = M::Stored::encode(y[k >> 2][k & 3]);
  }
}

/// Computes and stores y of the step that is `back` (1 or 2) before the cursor's. Grid: the tiles
/// of the sweep; thread blocks with a tile of W0 return at once.
template <class M, int Bp>
__global__ void __launch_bounds__(threads)
    outputs_kernel(const __grid_constant__ Arguments a, int back) {
  const auto* tile = reinterpret_cast<const SweepTile*>(a.sweep_tiles +
                                                        std::size_t{blockIdx.x} * sweep_tile_bytes);
  if (tile->is_w0 != 0) return;
  const auto* words = reinterpret_cast<const std::uint32_t*>(tile + 1) + sweep_rows;
  const StepCursor cursor = a.step_start->cursor;
  __shared__ std::uint32_t array_offsets[static_cast<int>(RowArray::count)];
  if (threadIdx.x < static_cast<unsigned>(RowArray::count)) {
    array_offsets[threadIdx.x] =
        array_offset<M>(a, static_cast<RowArray>(threadIdx.x), cursor, back, 0);
  }
  __syncthreads();
  constexpr int stride = output_row_stride<Bp>;
  __shared__ __align__(16) unsigned char r[panel_width * stride];
  load_output_rows<Bp>(a, words, array_offsets, r);
  copies_commit();
  copies_wait<0>();
  __syncthreads();
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int rows = static_cast<int>(tile->panel.m_end - tile->panel.m_begin);
  const std::uint32_t slot = slot_before(cursor.y, y_slots, back);
  for (int i = static_cast<int>(threadIdx.x) >> 5; i < (rows + 15) / 16 * (Bp / 16);
       i += threads / 32) {
    const int row = i / (Bp / 16) * 16;
    const int byte = i % (Bp / 16) * 32;
    OutputWeights w;
    const std::size_t copy =
        tile->panel.copy_over_m + (tile->panel.m_begin + static_cast<unsigned>(row)) / 16;
    read_output_weights(w,
                        reinterpret_cast<const unsigned char*>(
                            a.working_copies + slot * a.copy_stride + copy * copy_words),
                        lane, FromDevice{});
    float sums[1][2][4];
    multiply_outputs<M>(
        sums, w,
        [&](int, int k) { return r + (k * 16 + (lane & 15)) * stride + byte + (lane >> 4) * 16; },
        [&](int) { return r + (48 + (lane & 7)) * stride + byte + (lane >> 3 & 1) * 16; });
    float(&y)[2][4] = sums[0];
    with_activation<M>(a.shape.activation, [&](auto activation) {
#pragma unroll
      for (int k = 0; k < 8; ++k) activate_output<M>(y[k / 4][k % 4], activation);
    });
    store_outputs<M, Bp>(a, y, slot, tile->outputs, row, rows, byte);
  }
}

/// Launches `outputs_kernel` for the `tiles` tiles of the sweep.
template <class M, int Batch>
void make_swept_outputs(const Arguments& a, int back, unsigned int tiles, cudaStream_t stream) {
  with_swept_size<Batch>(a.shape.padded, [&]<int Bp>() {
    cuda_check(launch(outputs_kernel<M, Bp>, {dim3(tiles), threads, 0, stream, false}, a, back),
               "making outputs");
  });
}

}  // namespace pvm::inline v0::detail::batch
