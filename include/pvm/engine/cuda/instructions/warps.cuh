// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Thread and lane identity, named barriers, and the order of kernels.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

/// threadIdx.x, read once here. (The compiler would read threadIdx.x again at every use, which is
/// slow, instead of keeping it in a register.)
__device__ __forceinline__ int thread_number() {
  int number;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
  return number;
}
/// True in exactly one lane of a warp, always the same; all 32 lanes must call it. (Before compute
/// capability 9.0 it is false in all lanes.) Unlike after a test of the lane number, the compiler
/// knows that a single lane is active, and generates no loop over the different addresses that
/// several lanes could pass to a bulk copy.
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

/// Arrives at a named barrier of the thread block and waits. The barrier, 1 to 15 (0 is
/// __syncthreads), opens when `threads` threads (whole warps) have arrived. What these wrote before
/// is then visible to the threads that waited.
__device__ __forceinline__ void named_barrier_sync(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
/// Arrives at a named barrier without waiting.
__device__ __forceinline__ void named_barrier_arrive(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}

// -------------------------------------------------------------- between kernels

// Programmatic dependent launch (LaunchShape::early): a kernel may start while the kernel before it
// is still running. Before 9.0 these functions do nothing.

/// Waits until the kernel before this one has completed and its results are visible. To be called
/// before memory is read or written that the other kernel writes or reads.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
/// Allows the next kernel to start as soon as all thread blocks of this one have called this or
/// ended.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace pvm::inline v0::detail
