// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Control over the compiler's use of registers, and over the number of registers of a thread.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

/// Keeps the compiler from merging the code of branches that do the same with different registers.
/// Merged code would have to index the registers by a variable, so that they would be moved to
/// local memory. Every branch calls this with its values and a `Case` of its own.
template <int Case>
__device__ __forceinline__ void keep_branches_apart(float (&v)[4]) {
  asm volatile("// case %4" : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]) : "n"(Case));
}

/// Keeps an address that was computed as a sum in one register. Otherwise the compiler would
/// rearrange the sum and compute it again at every use.
__device__ __forceinline__ const unsigned char* keep_in_one_register(const unsigned char* sum) {
  asm volatile("" : "+l"(sum));
  return sum;
}

/// Sets values to 0 in the registers that they occupy. Where one branch clears accumulators and
/// another keeps them, the compiler would otherwise copy all of them in both branches.
__device__ __forceinline__ void clear_in_place(float (&v)[4]) {
  asm volatile("mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;"
               : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]));
}

/// Forces values to be computed here. Otherwise the compiler may compute them at their first use,
/// which extends the live range of their inputs up to there.
template <int Count>
__device__ __forceinline__ void compute_here(float (&v)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(v[i]));
}

/// Changes the number of registers of a thread (setmaxnreg): `take_registers` raises it,
/// `release_registers` lowers it. All threads of a warpgroup (four warps) must call it. Only for
/// sm_90a.
template <int Count>
__device__ __forceinline__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
#endif
}
template <int Count>
__device__ __forceinline__ void release_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
#endif
}

}  // namespace pvm::inline v0::detail
