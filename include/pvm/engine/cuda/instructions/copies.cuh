// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Asynchronous copies between global and shared memory, by threads and in bulk, and the barriers
/// that wait for them.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/capability.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>

namespace pvm::inline v0::detail {

// -------------------------------------------------------------- by threads

/// 16 bytes from global to shared memory.
__device__ __forceinline__ void copy_async(void* shared, const void* global) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared_address(shared)),
               "l"(global));
}
__device__ __forceinline__ void copy_async(void* shared, const void* global,
                                           unsigned long long policy) {
  asm volatile(
      "cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
      "l"(global), "l"(policy));
}
/// 4 bytes.
__device__ __forceinline__ void copy_word_async(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global)
               : "memory");
}
/// `bytes` bytes, 16 or none, and zeros up to 16; if none, `global` may point anywhere.
__device__ __forceinline__ void copy_async_or_zero(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes));
}
/// Closes the group of this thread's copies since the last one was closed.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;"); }
/// Waits for this thread's groups but the youngest `Pending`.
template <int Pending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending));
}
/// Waits for all of this thread's copies, in groups or not.
__device__ __forceinline__ void copies_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// -------------------------------------------------------------- in bulk

// What devices before 9.0 do not have: there, kernels that use it are never launched.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define PVM_BULK_COPIES 1
#else
#define PVM_BULK_COPIES 0
#endif
inline constexpr bool has_bulk_copies = PVM_BULK_COPIES != 0;

/// A barrier in shared memory that opens when so many threads have arrived, and all bytes they
/// expect, which are of bulk copies.
using CopyBarrier = unsigned long long;

/// One thread's work, before the others use it (__syncthreads).
__device__ __forceinline__ void barrier_init(CopyBarrier* barrier, unsigned int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
#if PVM_BULK_COPIES
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
/// Arrives, and lets the barrier wait for `bytes` bytes of bulk copies more.
__device__ __forceinline__ void barrier_expect(CopyBarrier* barrier, unsigned int bytes) {
#if PVM_BULK_COPIES
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}
/// Arrives.
__device__ __forceinline__ void barrier_arrive(CopyBarrier* barrier) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(
                   shared_address(barrier))
               : "memory");
}
/// Arrives once all asynchronous copies of this thread so far are there.
__device__ __forceinline__ void copies_arrive(CopyBarrier* barrier) {
#if PVM_BULK_COPIES
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}
/// Waits until the barrier has opened; `parity` is 0 the first time, then 1, then 0 again. From
/// compute capability 9.0 on the thread sleeps for up to 10 ms at a time: one that asks again and
/// again takes others' turns.
__device__ __forceinline__ void barrier_wait(CopyBarrier* barrier, unsigned int parity) {
  unsigned int open;
  do {
#if PVM_BULK_COPIES
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(open)
        : "r"(shared_address(barrier)), "r"(parity), "r"(10000000U)
        : "memory");
#else
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.test_wait.parity.shared.b64 p, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(open)
        : "r"(shared_address(barrier)), "r"(parity)
        : "memory");
#endif
  } while (open == 0);
}
/// One thread's copy of a multiple of 16 bytes, both ends aligned to 16, that `barrier` waits for.
__device__ __forceinline__ void copy_bulk_async(void* shared, const void* global,
                                                unsigned int bytes, CopyBarrier* barrier) {
#if PVM_BULK_COPIES
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}

__device__ __forceinline__ void copy_bulk_async(void* shared, const void* global,
                                                unsigned int bytes, CopyBarrier* barrier,
                                                unsigned long long policy) {
#if PVM_BULK_COPIES
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
#endif
}

/// What this thread wrote to shared memory is what bulk copies read that are asked for later.
__device__ __forceinline__ void show_to_copies() {
#if PVM_BULK_COPIES
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/// The other way: from shared to global memory, and the thread has a way to wait.
__device__ __forceinline__ void store_bulk_async(void* global, const void* shared,
                                                 unsigned int bytes, unsigned long long policy) {
#if PVM_BULK_COPIES
  asm volatile(
      "cp.async.bulk.global.shared::cta.bulk_group.L2::cache_hint [%0], [%1], %2, %3;\n\t"
      "cp.async.bulk.commit_group;" ::"l"(global),
      "r"(shared_address(shared)), "r"(bytes), "l"(policy)
      : "memory");
#endif
}
/// Waits until all such copies of this thread are there, for whoever starts behind the kernel.
__device__ __forceinline__ void stores_have_landed() {
#if PVM_BULK_COPIES
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}
/// Waits until all such copies of this thread have read what they store.
__device__ __forceinline__ void stores_have_read() {
#if PVM_BULK_COPIES
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

#undef PVM_BULK_COPIES

}  // namespace pvm::inline v0::detail
