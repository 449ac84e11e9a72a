// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The smallest pieces of the fused kernels: fresh loads, activations by number, the barrier of all
/// blocks.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/memory.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::fused {

inline constexpr unsigned int full_warp = 0xffffffffU;

/// Values that other multiprocessors write: never from a stale first-level cache.
__device__ __forceinline__ float load_fresh(const float* p) { return __ldcg(p); }

/// `kind`: see StepArguments.
__device__ __forceinline__ float activate(int kind, float a) {
  return kind == 2 ? Logistic::value(a) : Polynomial::value(a);
}
__device__ __forceinline__ float derive(int kind, float v) {
  return kind == 0 ? Polynomial::derivative(v)
                   : (kind == 1 ? PolynomialTrue::derivative(v) : Logistic::derivative(v));
}

/// A barrier of all blocks in two halves; `passed` counts since the engine was made.
__device__ __forceinline__ void barrier_arrive(unsigned int* counter) {
  __syncthreads();
  if (threadIdx.x == 0) add_one_release(counter);
}
/// Polls without ordering, which would empty the first-level cache every time; orders once.
__device__ __forceinline__ void barrier_wait(const unsigned int* counter, unsigned int& passed) {
  if (threadIdx.x == 0) {
    const unsigned int target = ++passed * gridDim.x;
    while (static_cast<int>(load_relaxed(counter) - target) < 0) {
    }
    fence_device();
  }
  __syncthreads();
}

}  // namespace pvm::inline v0::detail::fused
