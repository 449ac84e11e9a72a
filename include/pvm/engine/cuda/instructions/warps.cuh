// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which of the threads one is, and what warps and kernels wait for.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

/// Number of this thread in a block of one dimension, kept rather than asked for again.
__device__ __forceinline__ int thread_number() {
  int number;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
  return number;
}
/// One lane of a whole warp, always the same. The compiler knows that it is one, and does not look
/// whether there are others with other places for a bulk copy, as it does behind a question for the
/// number of a lane.
__device__ __forceinline__ bool is_elected() {
#if __CUDA_ARCH__ >= 900
  unsigned int elected;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(elected));
  return elected != 0;
#else
  return false;
#endif
}

// -------------------------------------------------------------- between the warps of a block

/// One of the block's barriers, 1 to 15 (0 is __syncthreads): opens when `threads` threads, whole
/// warps, have come. What they wrote before is seen by those who waited.
__device__ __forceinline__ void sync_warps(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// Comes to such a barrier and does not wait.
__device__ __forceinline__ void arrive_warps(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// -------------------------------------------------------------- between kernels

/// A kernel may start while the one before it ends: it must wait before it reads or writes what
/// that one does, and lets the next one start in turn.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace pvm::inline v0::detail
