// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the compiler is to keep in registers and how, and how many of them a thread has.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

/// What comes of these values is not made in one piece of code with what comes of others, `Case`
/// telling one from another: the compiler would keep in memory what it has to choose from.
template <int Case>
__device__ __forceinline__ void keep_apart(float (&v)[4]) {
  asm volatile("// case %4" : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]) : "n"(Case));
}

/// A sum: the compiler would take it apart, and add it up anew wherever it is needed.
__device__ __forceinline__ const unsigned char* as_one(const unsigned char* sum) {
  asm volatile("" : "+l"(sum));
  return sum;
}

/// Values become 0 in the registers where they are: where some cases clear sums and others go on
/// with them, the compiler would copy all of them in every case.
__device__ __forceinline__ void clear_in_place(float (&v)[4]) {
  asm volatile("mov.b32 %0, 0; mov.b32 %1, 0; mov.b32 %2, 0; mov.b32 %3, 0;"
               : "+f"(v[0]), "+f"(v[1]), "+f"(v[2]), "+f"(v[3]));
}

/// Values are made before what comes next, not later, where somebody looks at them: the compiler
/// would keep what they are made of as long as that.
template <int Count>
__device__ __forceinline__ void make_here(float (&v)[Count]) {
#pragma unroll
  for (int i = 0; i < Count; ++i) asm volatile("" : "+f"(v[i]));
}

/// A thread may have so many registers from here on, more than the kernel started with, or fewer:
/// for all threads of four warps.
template <int Count>
__device__ __forceinline__ void take_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
#endif
}
template <int Count>
__device__ __forceinline__ void leave_registers() {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
#endif
}

}  // namespace pvm::inline v0::detail
