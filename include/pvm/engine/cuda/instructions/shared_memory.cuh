// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Addresses in shared memory, and the dynamic shared memory of a launch.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

/// The 32-bit shared-memory address of a generic pointer into shared memory.
__device__ __forceinline__ unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

/// Proxy fence: makes what this thread wrote to shared memory, or saw there, visible to bulk copies
/// and wgmma that are issued later. Nothing before compute capability 9.0, which has neither.
__device__ __forceinline__ void fence_async_proxy() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

/// The dynamic shared memory of the calling thread block, aligned to 128 bytes.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char pvm_dynamic_shared[];
  return reinterpret_cast<T*>(pvm_dynamic_shared);
}
/// The same, aligned to 1,024 bytes as wgmma operands with swizzling require. It traps if the
/// memory is not: rounding the address up would make every address computation depend on it.
__device__ __forceinline__ unsigned char* aligned_dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char pvm_aligned_shared[];
  if (shared_address(pvm_aligned_shared) % 1024 != 0) __trap();
  return pvm_aligned_shared;
}

}  // namespace pvm::inline v0::detail
