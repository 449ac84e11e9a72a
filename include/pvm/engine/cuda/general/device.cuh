// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Small device functions of the general engine's kernels: loads past the L1 cache, activations by
/// number, and the grid-wide barrier.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/memory.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::general {

inline constexpr unsigned int full_warp = 0xffffffffU;

/// Loads a value that other SMs write: from the L2 cache, because the L1 cache may be stale.
__device__ __forceinline__ float load_fresh(const float* p) { return __ldcg(p); }

/// `kind`: see StepArguments.
__device__ __forceinline__ float activate(int kind, float a) {
  return kind == 2 ? Logistic::value(a) : Polynomial::value(a);
}
__device__ __forceinline__ float derive(int kind, float v) {
  return kind == 0 ? Polynomial::derivative(v)
                   : (kind == 1 ? PolynomialTrue::derivative(v) : Logistic::derivative(v));
}

/// The grid-wide barrier, in two halves: arrive, and wait until all blocks have arrived. `passed`
/// counts the barriers since the engine was made; the counter is never reset and may wrap around.
__device__ __forceinline__ void grid_barrier_arrive(unsigned int* counter) {
  __syncthreads();
  if (threadIdx.x == 0) add_one_release(counter);
}
/// Polls with relaxed loads and orders memory once at the end: an acquire load would invalidate the
/// L1 cache at every poll.
__device__ __forceinline__ void grid_barrier_wait(const unsigned int* counter,
                                                  unsigned int& passed) {
  if (threadIdx.x == 0) {
    const unsigned int target = ++passed * gridDim.x;
    while (static_cast<int>(load_relaxed(counter) - target) < 0) {
    }
    fence_device();
  }
  __syncthreads();
}

}  // namespace pvm::inline v0::detail::general
