// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Addresses in shared memory, and what of it a launch asks for.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

/// The 32-bit address of something in shared memory.
__device__ __forceinline__ unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

/// The shared memory that a launch asks for, of the block of threads that asks.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char pvm_dynamic_shared[];
  return reinterpret_cast<T*>(pvm_dynamic_shared);
}
/// The same where products of four warps want it: at a multiple of 1,024 bytes. (To find the next
/// one instead would take part in every address.)
__device__ __forceinline__ unsigned char* aligned_dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char pvm_aligned_shared[];
  if (shared_address(pvm_aligned_shared) % 1024 != 0) __trap();
  return pvm_aligned_shared;
}

}  // namespace pvm::inline v0::detail
