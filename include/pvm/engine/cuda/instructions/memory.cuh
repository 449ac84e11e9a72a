// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Global memory: what is to stay in the second-level cache, and what passes between blocks of
/// threads.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

// -------------------------------------------------------------- the second-level cache

/// Marks what is to stay in the cache from step to step.
__device__ __forceinline__ unsigned long long leaves_last() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// Marks what is read once a step, and is larger than the cache, as the first to leave it.
__device__ __forceinline__ unsigned long long leaves_first() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// Marks so large a part of what is read again and again, chosen by address, that it stays in the
/// cache; the rest leaves first.
template <int Percent>
__device__ __forceinline__ unsigned long long partly_stays() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.L2::evict_first.b64 %0, %1;"
      : "=l"(policy)
      : "f"(static_cast<float>(Percent) * 0.01F));
  return policy;
}
/// Four floats from the second-level cache, with such a mark.
__device__ __forceinline__ float4 load_marked(const float4* p, unsigned long long policy) {
  float4 v;
  asm volatile("ld.global.cg.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p), "l"(policy)
               : "memory");
  return v;
}
/// Four floats that pass by the first-level cache.
__device__ __forceinline__ float4 load_streamed(const float4* p, unsigned long long policy) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p), "l"(policy)
               : "memory");
  return v;
}

/// Stores with such a mark.
__device__ __forceinline__ void store_held(float4* p, float4 v, unsigned long long policy) {
  asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(p), "f"(v.x),
               "f"(v.y), "f"(v.z), "f"(v.w), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void store_held(uint4* p, uint4 v, unsigned long long policy) {
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(p), "r"(v.x),
               "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void store_held(uint2* p, uint2 v, unsigned long long policy) {
  asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;" ::"l"(p), "r"(v.x), "r"(v.y),
               "l"(policy)
               : "memory");
}

/// Brings the line with that address to the second-level cache.
__device__ __forceinline__ void prefetch_line(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
/// One thread brings `bytes` bytes, whole 16s, to the second-level cache. A hint: before 9.0
/// nothing comes.
__device__ __forceinline__ void prefetch_bulk(const void* p, unsigned int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes));
#endif
}

// -------------------------------------------------------------- between blocks of threads

/// Adds 1; what this thread wrote before is seen by whoever sees the sum.
__device__ __forceinline__ void add_one_release(unsigned int* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
/// Reads without ordering anything, for loops that wait.
__device__ __forceinline__ unsigned int load_relaxed(const unsigned int* counter) {
  unsigned int seen;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  return seen;
}
/// Adds 1 and orders nothing.
__device__ __forceinline__ void add_one_relaxed(unsigned int* counter) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
/// Three words and a mark, aligned to 16 bytes, go between multiprocessors in one piece: no load
/// of the second-level cache sees part of a store. (NCCL's low-latency protocol rests on the same.)
__device__ __forceinline__ void send_piece(void* to, uint4 v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ uint4 receive_piece(const void* from) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ __forceinline__ void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

}  // namespace pvm::inline v0::detail
