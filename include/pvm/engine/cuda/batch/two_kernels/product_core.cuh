// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The matrix product of the products kernel, for one thread block on tensor cores:
/// sums[b][n] = sum over k of rows[k][b] weights[k][n], with b over a slice of the batch, k over
/// any depth and n < 56. Rows and weights are loaded into shared memory through a ring of stages
/// (cp.async); one __syncthreads a stage.

#include <cstdint>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>

namespace pvm::inline v0::detail::batch {

/// Dynamic shared memory that a thread block of the products kernel may take: what GPUs of compute
/// capability 8.6, 8.9 and 12.0 have for one, the least of all, less 1 KB for static variables.
inline constexpr int product_shared_limit = (99 - 1) << 10;

/// How 8 warps share a slice of `Slice` sequences, and the layout of shared memory. The warps are
/// arranged `across` along the batch by `deep` along the depth; those along the depth take turns at
/// the weight blocks and make partial sums of the same values. `Pairs`: every row has a second one
/// beside it (for errors). Stages are as deep as lets three of them fit `product_shared_limit`.
///
/// A stage is [rows][stride] rows, `blocks` weight blocks, and with `Pairs` [rows][stride] second
/// rows. After the product the partial sums, [deep][56][sum_stride] floats, replace the stages.
template <class M, int Slice, bool Pairs = false>
struct ProductShape {
  static constexpr int larger(int a, int b) { return a > b ? a : b; }
  static constexpr int smaller(int a, int b) { return a < b ? a : b; }
  static constexpr int tiles = Slice >= 32 ? M::most_tiles : 1;  ///< a warp's, of 16 sequences
  static constexpr int across = Slice / (16 * tiles);            ///< warps along the batch
  static constexpr int deep = 8 / across;                        ///< warps along the depth
  static constexpr int row_bytes = Slice * sizeof(typename M::Word);
  static constexpr int chunks = row_bytes / 16;  ///< units of 16 bytes in a row
  /// A row in shared memory is padded so that a warp's loads have no bank conflicts.
  static constexpr int stride = row_bytes + (sizeof(typename M::Word) == 2 ? 16 : 32);
  static constexpr int words_bytes = most_part_rows * 4;  ///< where rows lie, before the stages
  static constexpr int pipe_room = product_shared_limit - words_bytes;
  /// Bytes of a weight block, `M::block` deep, and of the rows that it is multiplied by.
  static constexpr int bytes_of_block = block_bytes + (Pairs ? 2 : 1) * M::block * stride;
  /// Weight blocks of a stage. Threads share the copying of its rows evenly (load_rows).
  static constexpr int blocks = [] {
    int n = larger(deep, 2);
    while (n > 1 && 3 * n * bytes_of_block > pipe_room) n /= 2;
    return n;
  }();
  static constexpr int rows = blocks * M::block;                       ///< rows of a stage
  static constexpr int second = rows * stride + blocks * block_bytes;  ///< offset of second rows
  static constexpr int stage_bytes = blocks * bytes_of_block;
  static constexpr int stages = smaller(pipe_room / stage_bytes, 4);
  static_assert(stages >= 2);
  static constexpr int sum_stride = Slice + 4;
  static constexpr int sum_bytes = deep * panel_width * sum_stride * 4;
  static constexpr int pipe_bytes = stages * stage_bytes;
  /// For outputs (outputs.cuh): the rows of r, and for each warp [56][output_row] bytes to stage
  /// 16-bit results of up to 32 sequences (a row is padded by 16 bytes).
  static constexpr int output_row = 32 * 2 + 16;
  static constexpr int output_bytes =
      panel_depth * stride + (sizeof(typename M::Word) == 2 ? 8 * panel_width * output_row : 0);
  static constexpr int shared_bytes =
      words_bytes + larger(larger(pipe_bytes, sum_bytes), output_bytes);
  static_assert(shared_bytes <= product_shared_limit);
};

/// Dynamic shared memory of a thread block, enough for any role.
template <class M, int Slice>
constexpr int product_shared_bytes() {
  using One = ProductShape<M, Slice>;
  return One::larger(One::shared_bytes, ProductShape<M, Slice, true>::shared_bytes);
}

/// A warp's accumulators: `Tiles` tiles of 16 sequences (rows) by 7 tiles of 8 n (columns).
template <int Tiles>
using Sums = float[Tiles][panel_tiles][4];

template <int Tiles>
__device__ __forceinline__ void clear(Sums<Tiles>& sums) {
#pragma unroll
  for (int i = 0; i < Tiles; ++i) {
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sums[i][n][k] = 0.0F;
    }
  }
}

/// Loads mma operand A: 16 sequences by half a weight block of k (16 rows of 16-bit operands, 8 of
/// 32-bit ones). `rows`: the first sequence in the first row.
template <class M>
__device__ __forceinline__ void load_sequences(std::uint32_t (&a)[4], const unsigned char* rows,
                                               int stride) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  if constexpr (sizeof(typename M::Word) == 2) {
    const int k = (lane & 7) + (lane >> 4) * 8;
    load_matrices_transposed(a, rows + k * stride + ((lane >> 3) & 1) * 16);
  } else {
    const unsigned char* at = rows + (lane & 3) * stride + (lane >> 2) * 4;
    a[0] = *reinterpret_cast<const std::uint32_t*>(at);
    a[1] = *reinterpret_cast<const std::uint32_t*>(at + 32);
    a[2] = *reinterpret_cast<const std::uint32_t*>(at + 4 * stride);
    a[3] = *reinterpret_cast<const std::uint32_t*>(at + 4 * stride + 32);
  }
}

/// sums += rows^T x weight block, over its M::block rows. `rows`: the warp's first sequence in the
/// first row; `block`: in shared or device memory.
template <class M, int Tiles>
__device__ __forceinline__ void multiply_block(Sums<Tiles>& sums, const unsigned char* rows,
                                               int stride, const uint4* block) {
  constexpr int sequences = 16 * static_cast<int>(sizeof(typename M::Word));
  union {
    uint4 quad[7];
    std::uint32_t word[28];
  } w;
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int i = 0; i < 7; ++i) w.quad[i] = block[i * 32 + lane];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
      std::uint32_t a[4];
      load_sequences<M>(a, rows + half * (M::block / 2) * stride + i * sequences, stride);
#pragma unroll
      for (int n = 0; n < panel_tiles; ++n) {
        M::multiply(sums[i][n], a, w.word[(half * 7 + n) * 2], w.word[(half * 7 + n) * 2 + 1]);
      }
    }
  }
}

/// Has `multiply(to)` add products to `sums`. For fp32 (M::in_parts), where tensor cores truncate
/// and only short sums are exact enough, the products are accumulated from zero, and the result is
/// added to `sums` in ordinary fp32 arithmetic.
template <class M, int Tiles, class Multiply>
__device__ __forceinline__ void multiply_part(Sums<Tiles>& sums, Multiply&& multiply) {
  if constexpr (M::in_parts) {
    Sums<Tiles> part;
    clear<Tiles>(part);
    multiply(part);
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
#pragma unroll
      for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
        for (int k = 0; k < 4; ++k) sums[i][n][k] += part[i][n][k];
      }
    }
  } else {
    multiply(sums);
  }
}

/// Stores a lane's partial sums to shared memory, [deep][56][sum_stride], in place of the stages.
/// `across` and `deep` are the warp's indices along the batch and along the depth. Called by all
/// threads, which see all sums afterwards.
template <class S>
__device__ __forceinline__ void replace_stages(const Sums<S::tiles>& sums, unsigned char* shared,
                                               int across, int deep, int lane) {
  copies_wait<0>();
  __syncthreads();
  float* out = reinterpret_cast<float*>(shared) + deep * panel_width * S::sum_stride;
#pragma unroll
  for (int i = 0; i < S::tiles; ++i) {
    const int b = (across * S::tiles + i) * 16 + (lane >> 2);
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
      float* at = out + (n * 8 + (lane & 3) * 2) * S::sum_stride + b;
      at[0] = sums[i][n][0];
      at[S::sum_stride] = sums[i][n][1];
      at[8] = sums[i][n][2];
      at[S::sum_stride + 8] = sums[i][n][3];
    }
  }
  __syncthreads();
}

/// A product over `blocks` weight blocks, which lie from `weights` on. `shared`: the stages.
/// `load(first_row, rows, to)` copies `rows` rows to the stage `to`, asynchronously (cp.async).
/// `transform(first_row, to)` is called once the rows of a stage are there, before other threads
/// read them: a thread may change those that it has copied itself. The partial sums end up in
/// shared memory, [deep][56][sum_stride], where `read_sum` adds them in a fixed order.
template <class M, class S, class Load, class Transform>
__device__ __forceinline__ void product(unsigned char* shared, const std::uint32_t* weights,
                                        int blocks, Load&& load, Transform&& transform) {
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int across = warp % S::across;
  const int deep = warp / S::across;
  const int count = (blocks + S::blocks - 1) / S::blocks;
  const auto issue = [&](int stage) {  // starts loading a stage, if there is one
    if (stage < count) {
      unsigned char* to = shared + stage % S::stages * S::stage_bytes;
      const int first = stage * S::blocks;
      const int here = min(S::blocks, blocks - first);
      unsigned char* w = to + S::rows * S::stride;
      const auto* from = reinterpret_cast<const unsigned char*>(weights) +
                         static_cast<std::size_t>(first) * block_bytes;
      constexpr int pieces = (S::blocks * (block_bytes / 16) + threads - 1) / threads;
#pragma unroll
      for (int k = 0; k < pieces; ++k) {
        const int i = static_cast<int>(threadIdx.x) + k * threads;
        if (i < here * (block_bytes / 16)) copy_async(w + i * 16, from + i * 16);
      }
      load(first * M::block, here * M::block, to);
    }
    copies_commit();
  };
  // The first block of a stage that is the warp's turn: of all blocks it takes deep, deep + S::deep
  // and so on, whatever stages they are in.
  const auto first_of = [deep](int stage) { return (deep - stage * S::blocks) & (S::deep - 1); };
  Sums<S::tiles> sums;
  clear<S::tiles>(sums);
#pragma unroll
  for (int i = 0; i < S::stages - 1; ++i) issue(i);
  for (int stage = 0; stage < count; ++stage) {
    copies_wait<S::stages - 2>();
    transform(stage * S::rows, shared + stage % S::stages * S::stage_bytes);
    __syncthreads();
    issue(stage + S::stages - 1);
    const unsigned char* at = shared + stage % S::stages * S::stage_bytes;
    const int here = min(S::blocks, blocks - stage * S::blocks);
    multiply_part<M, S::tiles>(sums, [&](Sums<S::tiles>& to) {
      for (int b = first_of(stage); b < here; b += S::deep) {
        const unsigned char* rows =
            at + b * M::block * S::stride +
            across * 16 * S::tiles * static_cast<int>(sizeof(typename M::Word));
        const auto* block =
            reinterpret_cast<const uint4*>(at + S::rows * S::stride + b * block_bytes);
        multiply_block<M, S::tiles>(to, rows, S::stride, block);
      }
    });
  }
  replace_stages<S>(sums, shared, across, deep, lane);
}

/// Copies `count` rows to the stage `to`, asynchronously. `offsets`: where they lie in the arena,
/// in units of 16 bytes; `from`: the arena plus the byte offset in a row of the 16 bytes that the
/// thread copies of each row.
template <class S>
__device__ __forceinline__ void load_rows(const std::uint32_t* offsets, int count,
                                          const unsigned char* from, unsigned char* to) {
  constexpr int each = S::rows * S::chunks / threads;
  static_assert(threads % S::chunks == 0 && each * threads == S::rows * S::chunks);
  const int first = static_cast<int>(threadIdx.x) / S::chunks;
  to += first * S::stride + static_cast<int>(threadIdx.x) % S::chunks * 16;
  std::uint32_t offset[each];
#pragma unroll
  for (int k = 0; k < each; ++k) {
    const int row = first + k * (threads / S::chunks);
    offset[k] = row < count ? offsets[row] : 0;
  }
#pragma unroll
  for (int k = 0; k < each; ++k) {
    const int row = first + k * (threads / S::chunks);
    if (row < count) {
      copy_row_async(to + k * (threads / S::chunks) * S::stride, from, offset[k]);
    }
  }
}

/// The complete sums of row n for sequences b to b + 3 of the slice.
template <class M, int Slice>
__device__ __forceinline__ float4 read_sum(const unsigned char* shared, int n, int b) {
  using S = ProductShape<M, Slice>;
  const float* at = reinterpret_cast<const float*>(shared) + n * S::sum_stride + b;
  float4 sum = *reinterpret_cast<const float4*>(at);
#pragma unroll
  for (int deep = 1; deep < S::deep; ++deep) {
    const float4 more = *reinterpret_cast<const float4*>(at + deep * panel_width * S::sum_stride);
    sum.x += more.x;
    sum.y += more.y;
    sum.z += more.z;
    sum.w += more.w;
  }
  return sum;
}

}  // namespace pvm::inline v0::detail::batch
