// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Global memory: L2 eviction policies and prefetches, and communication between thread blocks.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

// -------------------------------------------------------------- the L2 cache

// A policy is passed to loads, stores and copies, and decides how soon the L2 cache evicts the
// lines that they touch.

/// Evict last: for data that should stay in the L2 cache from step to step.
__device__ __forceinline__ unsigned long long evict_last() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// Evict first: for data that is read once a step and does not fit into the L2 cache.
__device__ __forceinline__ unsigned long long evict_first() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
  return policy;
}
/// Evict last for `Percent` % of the lines, chosen by address, and evict first for the rest: of
/// data that is read in every step but does not fit into the L2 cache, this part stays there.
template <int Percent>
__device__ __forceinline__ unsigned long long evict_last_fraction() {
  unsigned long long policy;
  asm("createpolicy.fractional.L2::evict_last.L2::evict_first.b64 %0, %1;"
      : "=l"(policy)
      : "f"(static_cast<float>(Percent) * 0.01F));
  return policy;
}
/// Loads four floats from the L2 cache, bypassing L1, with an eviction policy.
__device__ __forceinline__ float4 load_l2_with_policy(const float4* p, unsigned long long policy) {
  float4 v;
  asm volatile("ld.global.cg.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p), "l"(policy)
               : "memory");
  return v;
}
/// Loads a word likewise.
__device__ __forceinline__ std::uint32_t load_l2_with_policy(const std::uint32_t* p,
                                                             unsigned long long policy) {
  std::uint32_t v;
  asm volatile("ld.global.cg.L2::cache_hint.u32 %0, [%1], %2;"
               : "=r"(v)
               : "l"(p), "l"(policy)
               : "memory");
  return v;
}
/// The same loads into the registers of `v`, which must have a value. Where a loop loads what its
/// next iteration uses, the compiler may otherwise load it to other registers, and copy these at
/// the end of the iteration, which waits for the load.
__device__ __forceinline__ void load_l2_in_place(uint4& v, const uint4* p,
                                                 unsigned long long policy) {
  asm volatile("ld.global.cg.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], %5;"
               : "+r"(v.x), "+r"(v.y), "+r"(v.z), "+r"(v.w)
               : "l"(p), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void load_l2_in_place(std::uint32_t& v, const std::uint32_t* p,
                                                 unsigned long long policy) {
  asm volatile("ld.global.cg.L2::cache_hint.u32 %0, [%1], %2;"
               : "+r"(v)
               : "l"(p), "l"(policy)
               : "memory");
}
/// Loads four floats without allocating a line in the L1 cache.
__device__ __forceinline__ float4 load_streamed(const float4* p, unsigned long long policy) {
  float4 v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v4.f32 {%0, %1, %2, %3}, [%4], %5;"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w)
               : "l"(p), "l"(policy)
               : "memory");
  return v;
}
__device__ __forceinline__ uint2 load_streamed(const uint2* p, unsigned long long policy) {
  uint2 v;
  asm volatile("ld.global.L1::no_allocate.L2::cache_hint.v2.u32 {%0, %1}, [%2], %3;"
               : "=r"(v.x), "=r"(v.y)
               : "l"(p), "l"(policy)
               : "memory");
  return v;
}

/// Stores with an eviction policy.
__device__ __forceinline__ void store_with_policy(float* p, float v, unsigned long long policy) {
  asm volatile("st.global.L2::cache_hint.f32 [%0], %1, %2;" ::"l"(p), "f"(v), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void store_with_policy(float4* p, float4 v, unsigned long long policy) {
  asm volatile("st.global.L2::cache_hint.v4.f32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(p), "f"(v.x),
               "f"(v.y), "f"(v.z), "f"(v.w), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void store_with_policy(uint4* p, uint4 v, unsigned long long policy) {
  asm volatile("st.global.L2::cache_hint.v4.u32 [%0], {%1, %2, %3, %4}, %5;" ::"l"(p), "r"(v.x),
               "r"(v.y), "r"(v.z), "r"(v.w), "l"(policy)
               : "memory");
}
__device__ __forceinline__ void store_with_policy(uint2* p, uint2 v, unsigned long long policy) {
  asm volatile("st.global.L2::cache_hint.v2.u32 [%0], {%1, %2}, %3;" ::"l"(p), "r"(v.x), "r"(v.y),
               "l"(policy)
               : "memory");
}

/// Prefetches the cache line that contains `p` into the L2 cache.
__device__ __forceinline__ void prefetch_line(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
}
/// The same if `is`. It is a predicate, not a branch, after which a warp would have to converge.
__device__ __forceinline__ void prefetch_line_if(bool is, const void* p) {
  asm volatile(
      "{\n\t.reg .pred is;\n\tsetp.ne.u32 is, %0, 0;\n\t@is prefetch.global.L2 [%1];\n\t}" ::"r"(
          is ? 1U : 0U),
      "l"(p));
}
/// Prefetches `bytes` bytes, a multiple of 16, into the L2 cache; called by one thread. Only a
/// hint: it does nothing before compute capability 9.0.
__device__ __forceinline__ void prefetch_bulk(const void* p, unsigned int bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes));
#endif
}

/// The number of the SM that runs this thread.
__device__ __forceinline__ unsigned int sm_number() {
  unsigned int number;
  asm volatile("mov.u32 %0, %smid;" : "=r"(number));
  return number;
}
/// The GPU's timer, which all SMs share, in nanoseconds. It ticks about every 32 ns, or more
/// rarely.
__device__ __forceinline__ unsigned long long nanosecond_timer() {
  unsigned long long now;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(now)::"memory");
  return now;
}
/// The cycles of an atomic operation that leaves `*p` as it is. Where the L2 cache has two sides,
/// it is done by the side that the address belongs to. `sink` is a word of shared memory.
__device__ __forceinline__ int time_atomic(std::uint32_t* p, std::uint32_t* sink) {
  unsigned int start, end;
  std::uint32_t v;
  asm volatile("mov.u32 %0, %clock;" : "=r"(start)::"memory");
  asm volatile("atom.relaxed.gpu.global.or.b32 %0, [%1], 0;" : "=r"(v) : "l"(p) : "memory");
  // Instructions are issued in order, and the store waits for the value.
  asm volatile("st.volatile.shared.u32 [%0], %1;" ::"r"(
                   static_cast<unsigned int>(__cvta_generic_to_shared(sink))),
               "r"(v)
               : "memory");
  asm volatile("mov.u32 %0, %clock;" : "=r"(end)::"memory");
  return static_cast<int>(end - start);
}

// -------------------------------------------------------------- between thread blocks

/// Adds 1 with release semantics: a thread that acquires the new value sees what this thread wrote
/// before.
__device__ __forceinline__ void add_one_release(unsigned int* counter) {
  asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
/// Loads without ordering other accesses, for polling.
__device__ __forceinline__ unsigned int load_relaxed(const unsigned int* counter) {
  unsigned int seen;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  return seen;
}
/// Adds 1 without ordering other accesses.
__device__ __forceinline__ void add_one_relaxed(unsigned int* counter) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
/// Stores 16 bytes, aligned, that another SM polls with `load_relaxed_16`. The four words carry
/// data and a tag. They need no fence: an aligned 16-byte store becomes visible in the L2 cache as
/// a whole, so that a load that sees the tag sees the data. (NCCL's low-latency protocol relies on
/// the same.)
__device__ __forceinline__ void store_relaxed_16(void* to, uint4 v) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ uint4 load_relaxed_16(const void* from) {
  uint4 v;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}
__device__ __forceinline__ void fence_device() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }

// -------------------------------------------------------------- between GPUs

// The same where the other side may be another GPU: the scope is the system.
__device__ __forceinline__ unsigned int load_relaxed_system(const unsigned int* counter) {
  unsigned int seen;
  asm volatile("ld.relaxed.sys.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
  return seen;
}
__device__ __forceinline__ void add_one_system(unsigned int* counter) {
  asm volatile("red.relaxed.sys.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
}
/// What this thread's thread block has stored before, also before a barrier of it, comes before
/// what this thread stores next, and what it loads next comes after what it has loaded.
__device__ __forceinline__ void fence_system() { asm volatile("fence.acq_rel.sys;" ::: "memory"); }
__device__ __forceinline__ void store_relaxed_16_system(void* to, uint4 v) {
  asm volatile("st.relaxed.sys.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(v.x), "r"(v.y),
               "r"(v.z), "r"(v.w)
               : "memory");
}
__device__ __forceinline__ uint4 load_relaxed_16_system(const void* from) {
  uint4 v;
  asm volatile("ld.relaxed.sys.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
               : "l"(from)
               : "memory");
  return v;
}

}  // namespace pvm::inline v0::detail
