// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The outputs role of the products kernel: y = f(W1 r) of the step before. r is short and y is
/// long: the rows of r stay in shared memory (one panel of 64 at a time), and every warp computes
/// groups of 56 outputs of its own, with weights read from device memory through the caches.

#include <cstdint>

#include <pvm/engine/cuda/batch/two_kernels/forward.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>

namespace pvm::inline v0::detail::batch {

/// Stores a warp's outputs: a group of 56 rows of 16 * tiles sequences.
template <class M, int Slice>
struct OutputWriter {
  using S = ProductShape<M, Slice>;
  using Stored = typename M::Stored;
  const Arguments& a;
  const Product& p;
  unsigned char* staging;  ///< the warp's shared memory, [56][output_row], used for 16-bit y only
  unsigned char* y;        ///< the step's slot in device memory, at the warp's first sequence

  /// Applies the activation to the sums of group `group` and stores y.
  __device__ void write(const Sums<S::tiles>& sums, int group) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    const int outputs = min(panel_width, static_cast<int>(p.count) - group * panel_width);
    const std::size_t row_bytes =
        static_cast<std::size_t>(a.shape.padded) * sizeof(typename Stored::Type);
    unsigned char* first =
        y + (static_cast<std::size_t>(p.out) + static_cast<std::size_t>(group * panel_width)) *
                row_bytes;
    if constexpr (sizeof(typename Stored::Type) == 2) {
      each(sums, [&](int n, int b, float v) {
        *reinterpret_cast<std::uint16_t*>(staging + n * S::output_row + b * 2) = Stored::encode(v);
      });
      __syncwarp();
      constexpr int chunks = 2 * S::tiles;
      for (int i = lane; i < outputs * chunks; i += 32) {
        *reinterpret_cast<uint4*>(first + static_cast<std::size_t>(i / chunks) * row_bytes +
                                  i % chunks * 16) =
            *reinterpret_cast<const uint4*>(staging + i / chunks * S::output_row + i % chunks * 16);
      }
      __syncwarp();
    } else {
      each(sums, [&](int n, int b, float v) {
        if (n >= outputs) return;
        *reinterpret_cast<float*>(first + static_cast<std::size_t>(n) * row_bytes + b * 4) = v;
      });
    }
  }

 private:
  /// Calls what(output in the group, sequence of the warp, y) for the lane's accumulators.
  template <class What>
  __device__ void each(const Sums<S::tiles>& sums, What&& what) const {
    const int lane = static_cast<int>(threadIdx.x) & 31;
    with_activation<M>(a.shape.activation, [&](auto activation) {
#pragma unroll
      for (int i = 0; i < S::tiles; ++i) {
#pragma unroll
        for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
          for (int k = 0; k < 4; ++k) {
            what(n * 8 + (lane & 3) * 2 + (k & 1), i * 16 + (lane >> 2) + (k >> 1) * 8,
                 activation.value(sums[i][n][k]));
          }
        }
      }
    });
  }
};

/// Loads the rows of r of panel number `panel` to `shared`, once all threads have done with the
/// rows there, and waits until all have been loaded.
template <class M, int Slice>
__device__ __forceinline__ void load_panel(const Arguments& a, const Product& p,
                                           const BlockState& state, int panel,
                                           unsigned char* shared) {
  using S = ProductShape<M, Slice>;
  const auto slice = static_cast<std::size_t>(blockIdx.y);
  const std::size_t row_bytes = static_cast<std::size_t>(a.shape.padded) * sizeof(typename M::Word);
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < panel_depth * S::chunks; i += threads) {
    const int row = i / S::chunks;
    const int chunk = i % S::chunks;
    const std::uint32_t word =
        a.rows[p.rows + static_cast<std::uint32_t>(panel * panel_depth + row)];
    const std::uint32_t offset =
        row_offset(state.array_offsets, word, static_cast<std::uint32_t>(row_bytes / 16));
    copy_row_async(shared + row * S::stride + chunk * 16,
                   a.arena + slice * S::row_bytes + chunk * 16, offset);
  }
  copies_commit();
  copies_wait<0>();
  __syncthreads();
}

/// The work of a thread block with product `p` of the outputs role. The warps along the depth
/// (ProductShape) have a group of outputs each here.
template <class M, int Slice>
__device__ __forceinline__ void outputs(const Arguments& a, const Product& p, BlockState& state,
                                        unsigned char* shared) {
  using S = ProductShape<M, Slice>;
  constexpr int deep_blocks = panel_depth / M::block;  // weight blocks along a panel's depth
  const auto slice = static_cast<std::size_t>(blockIdx.y);
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  const int across = warp % S::across;
  const std::size_t row_bytes = static_cast<std::size_t>(a.shape.padded) * sizeof(typename M::Word);
  const std::size_t sequence = slice * Slice + static_cast<std::size_t>(across * 16 * S::tiles);
  const int groups = (static_cast<int>(p.count) + panel_width - 1) / panel_width;
  const int panels = static_cast<int>(p.blocks) / deep_blocks;
  const std::uint32_t* weights = a.working_copies + state.cursor.previous_copy * a.copy_stride +
                                 static_cast<std::size_t>(p.weights) * block_words;
  const OutputWriter<M, Slice> writer{
      a, p, shared + panel_depth * S::stride + warp * panel_width * S::output_row,
      a.y +
          slot_before(state.cursor.y, y_slots, 1) * row_bytes *
              static_cast<std::size_t>(a.shape.outputs) +
          sequence * sizeof(typename M::Stored::Type)};
  for (int pass = 0; pass * S::deep < groups; ++pass) {
    const int group = pass * S::deep + warp / S::across;
    Sums<S::tiles> sums;
    clear<S::tiles>(sums);
    for (int panel = 0; panel < panels; ++panel) {
      if (panels > 1 || pass == 0) load_panel<M, Slice>(a, p, state, panel, shared);
      if (group >= groups) continue;
      const auto multiply = [&](Sums<S::tiles>& to) {
        for (int b = 0; b < deep_blocks; ++b) {
          const unsigned char* rows =
              shared + b * M::block * S::stride +
              across * 16 * S::tiles * static_cast<int>(sizeof(typename M::Word));
          const std::size_t block = static_cast<std::size_t>(group) * p.blocks +
                                    static_cast<std::size_t>(panel * deep_blocks + b);
          multiply_block<M, S::tiles>(
              to, rows, S::stride, reinterpret_cast<const uint4*>(weights + block * block_words));
        }
      };
      if (panels == 1) {  // the whole sum is one short part, and registers are scarce
        multiply(sums);
      } else {
        multiply_part<M, S::tiles>(sums, multiply);
      }
    }
    if (group < groups) writer.write(sums, group);
  }
}

}  // namespace pvm::inline v0::detail::batch
