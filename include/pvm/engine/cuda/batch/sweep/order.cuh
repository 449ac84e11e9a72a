// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reorders W0 between the layout of a swept master (`swept_master_index`) and that of all other
/// masters (`master_index`), which the update kernel reads.

#include <cstddef>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>

namespace pvm::inline v0::detail::batch {

/// Reorders `weights` in place, `to_swept` or back. Grid: two thread blocks for each tile, `Rows` m
/// each. Every `Rows` m of a panel take the same range of memory in both layouts, so that thread
/// blocks do not touch each other's weights.
template <int Rows>
__global__ void __launch_bounds__(threads)
    reorder_kernel(const __grid_constant__ Arguments a, float* weights, bool to_swept) {
  static_assert(tile_rows == 2 * Rows);
  constexpr int each = Rows * panel_width / threads;
  const Panel& p = a.tiles[blockIdx.x / 2].panel;
  const unsigned first = p.m_begin + blockIdx.x % 2 * Rows;
  const unsigned end = min(first + Rows, (p.m_end + 15) / 16 * 16);
  if (p.copy_over_m != Panel::none || first >= end) return;  // W1 has the same layout in both
  float* panel = weights + p.master;
  const auto index = [&](int i, bool swept) {
    const unsigned k = threadIdx.x + static_cast<unsigned>(i * threads);
    const std::size_t m = first + k / p.n, n = k % p.n;
    return swept ? swept_master_index(p.m_end, p.n, m, n) : master_index(p.n, m, n);
  };
  const auto exists = [&](int i) {
    return threadIdx.x + static_cast<unsigned>(i * threads) < (end - first) * p.n;
  };
  float v[each];
#pragma unroll
  for (int i = 0; i < each; ++i) {
    if (exists(i)) v[i] = panel[index(i, !to_swept)];
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < each; ++i) {
    if (exists(i)) panel[index(i, to_swept)] = v[i];
  }
}

/// Reorders all weights.
inline void reorder(const Arguments& a, float* weights, bool to_swept, cudaStream_t stream) {
  cuda_check(launch(reorder_kernel<sweep_rows>, {dim3(2 * a.tile_count), threads, 0, stream, false},
                    a, weights, to_swept),
             "putting weights in order");
}

}  // namespace pvm::inline v0::detail::batch
