// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// h = f(W0 x), with x gathered row by row. Units with many inputs are split into parts along x,
/// one thread block each; the thread block that finishes last adds up the sums of all parts, in
/// their order, and stores h and c(h).

#include <cstdint>

#include <pvm/engine/cuda/batch/hidden_rows.cuh>
#include <pvm/engine/cuda/batch/two_kernels/product_core.cuh>

namespace pvm::inline v0::detail::batch {

/// What a thread block of the products kernel has in static shared memory.
struct BlockState {
  /// Where the rows of each array start in the arena, in units of 16 bytes.
  std::uint32_t array_offsets[static_cast<int>(RowArray::count)];
  StepCursor cursor;
  bool last;          ///< forward: whether the other parts have been finished before
  double sums[8][3];  ///< errors: each warp's sums for the score
};

/// The partial sums, in device memory, of a product that is split into parts along its depth.
template <int Slice>
struct PartialSums {
  const Arguments& a;
  const Product& p;
  std::size_t slice;  ///< index of the slice of the batch
  float* scratch;     ///< the slice's partial sums of all products

  /// The partial sums of part `k` for row n, sequences b to b + 3 of the slice.
  [[nodiscard]] __device__ __forceinline__ float4* at(std::uint32_t k, int n, int b) const {
    const std::size_t at =
        (static_cast<std::size_t>(p.scratch + k) * panel_width + static_cast<std::size_t>(n)) *
            Slice +
        static_cast<std::size_t>(b);
    return reinterpret_cast<float4*>(scratch + at);
  }
  /// Counts that this thread block has stored its part. Returns whether all parts are stored now,
  /// so that this thread block is to add them up. Called by all threads.
  [[nodiscard]] __device__ __forceinline__ bool all_stored(BlockState& state) const {
    __threadfence();
    __syncthreads();
    if (threadIdx.x == 0) {
      unsigned int* counter = a.counters + slice * a.counter_slice + p.counter;
      state.last = atomicAdd(counter, 1U) == p.parts - 1;
      if (state.last) *counter = 0;
    }
    __syncthreads();
    if (!state.last) return false;
    __threadfence();
    return true;
  }
  /// The sums of all parts, added in their order.
  [[nodiscard]] __device__ __forceinline__ float4 total(int n, int b) const {
    float4 sum = __ldcg(at(0, n, b));
    for (std::uint32_t k = 1; k < p.parts; ++k) {
      const float4 more = __ldcg(at(k, n, b));
      sum.x += more.x;
      sum.y += more.y;
      sum.z += more.z;
      sum.w += more.w;
    }
    return sum;
  }
};

/// The work of a thread block with product `p` of the forward role.
template <class M, int Slice>
__device__ __forceinline__ void forward(const Arguments& a, const Product& p, BlockState& state,
                                        unsigned char* shared) {
  using S = ProductShape<M, Slice>;
  auto* offsets = reinterpret_cast<std::uint32_t*>(shared);
  unsigned char* pipe = shared + S::words_bytes;
  const auto slice = static_cast<std::size_t>(blockIdx.y);
  const int rows = static_cast<int>(p.blocks) * M::block;
  const std::size_t row_bytes = static_cast<std::size_t>(a.shape.padded) * sizeof(typename M::Word);
  for (int i = static_cast<int>(threadIdx.x); i < rows; i += threads) {
    offsets[i] = row_offset(state.array_offsets, a.rows[p.rows + static_cast<std::uint32_t>(i)],
                            static_cast<std::uint32_t>(row_bytes / 16));
  }
  __syncthreads();
  const unsigned char* from =
      a.arena + slice * S::row_bytes + threadIdx.x % static_cast<unsigned>(S::chunks) * 16;
  product<M, S>(
      pipe, a.working_copies + static_cast<std::size_t>(p.weights) * block_words,
      static_cast<int>(p.blocks),
      [&](int first, int count, unsigned char* to) {
        load_rows<S>(offsets + first, count, from, to);
      },
      [](int, unsigned char*) {});
  const int quads = static_cast<int>(p.count) * (Slice / 4);
  const auto each_quad = [&](auto&& what) {
    for (int i = static_cast<int>(threadIdx.x); i < quads; i += threads) {
      what(i / (Slice / 4), i % (Slice / 4) * 4);
    }
  };
  const std::uint32_t slot = state.cursor.hidden;
  const auto finish = [&](int n, int b, const float4& v) {
    const float sum[4] = {v.x, v.y, v.z, v.w};
    store_hidden<M>(a, slot, p.out + static_cast<std::size_t>(n),
                    slice * Slice + static_cast<std::size_t>(b), sum);
  };
  if (p.parts == 1) {
    each_quad([&](int n, int b) { finish(n, b, read_sum<M, Slice>(pipe, n, b)); });
    return;
  }
  const PartialSums<Slice> parts{a, p, slice, a.scratch + slice * a.scratch_slice};
  each_quad([&](int n, int b) { *parts.at(p.part, n, b) = read_sum<M, Slice>(pipe, n, b); });
  if (!parts.all_stored(state)) return;
  each_quad([&](int n, int b) { finish(n, b, parts.total(n, b)); });
}

}  // namespace pvm::inline v0::detail::batch
