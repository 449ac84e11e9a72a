// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Asynchronous copies between global and shared memory, by single threads (cp.async) and in bulk
/// (cp.async.bulk), and the mbarriers that wait for them.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/instructions/capability.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>

namespace pvm::inline v0::detail {

// -------------------------------------------------------------- by threads

/// Copies 16 bytes from global to shared memory; `policy`: an L2 eviction policy (memory.cuh).
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
/// Copies 4 bytes.
__device__ __forceinline__ void copy_word_async(void* shared, const void* global) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared_address(shared)), "l"(global)
               : "memory");
}
/// Copies `bytes` bytes, 16 or 0, and fills the rest of 16 bytes with zeros. If `bytes` is 0,
/// `global` is not read and may point anywhere.
__device__ __forceinline__ void copy_async_or_zero(void* shared, const void* global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared_address(shared)),
               "l"(global), "r"(bytes));
}
/// Commits this thread's copies since the last commit as a group.
__device__ __forceinline__ void copies_commit() { asm volatile("cp.async.commit_group;"); }
/// Waits for all of this thread's groups except the `Pending` youngest ones.
template <int Pending>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(Pending));
}
/// Waits for all of this thread's copies, committed or not.
__device__ __forceinline__ void copies_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

// -------------------------------------------------------------- in bulk

// Devices before compute capability 9.0 do not have these. There the functions are empty, and
// kernels that use them are never launched.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define PVM_BULK_COPIES 1
#else
#define PVM_BULK_COPIES 0
#endif
inline constexpr bool has_bulk_copies = PVM_BULK_COPIES != 0;

/// An mbarrier: a barrier in shared memory that opens when a fixed number of threads have arrived
/// and all bytes of bulk copies that these threads announced have been copied. It then starts its
/// next phase.
using MBarrier = unsigned long long;

/// Initialises the barrier for `arrivals` arrivals per phase. One thread calls it; __syncthreads
/// must follow before other threads use the barrier.
__device__ __forceinline__ void mbarrier_init(MBarrier* barrier, unsigned int arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(shared_address(barrier)), "r"(arrivals)
               : "memory");
#if PVM_BULK_COPIES
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
}
/// Arrives, and announces `bytes` bytes of bulk copies that the barrier also waits for.
__device__ __forceinline__ void mbarrier_expect(MBarrier* barrier, unsigned int bytes) {
#if PVM_BULK_COPIES
  asm volatile(
      "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)),
      "r"(bytes)
      : "memory");
#endif
}
/// Arrives at the barrier, without waiting.
__device__ __forceinline__ void mbarrier_arrive(MBarrier* barrier) {
  asm volatile("{\n\t.reg .b64 state;\n\tmbarrier.arrive.shared.b64 state, [%0];\n\t}" ::"r"(
                   shared_address(barrier))
               : "memory");
}
/// Makes the thread arrive asynchronously, as soon as all cp.async copies that it has issued so far
/// have completed. Counts as one of the arrivals that the barrier was initialised with.
__device__ __forceinline__ void mbarrier_arrive_after_copies(MBarrier* barrier) {
#if PVM_BULK_COPIES
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}
/// Waits until the phase with this parity is complete: 0 for the first phase, 1 for the second, 0
/// for the third, and so on. From compute capability 9.0 on, the thread sleeps for up to 10 ms at a
/// time, because polling would take issue slots from other warps.
__device__ __forceinline__ void mbarrier_wait(MBarrier* barrier, unsigned int parity) {
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
/// Bulk copy from global to shared memory, issued by one thread. `bytes` is a multiple of 16, both
/// addresses are aligned to 16 bytes; its bytes count for `barrier`, see `mbarrier_expect`.
__device__ __forceinline__ void copy_bulk_async(void* shared, const void* global,
                                                unsigned int bytes, MBarrier* barrier) {
#if PVM_BULK_COPIES
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::
          "r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier))
      : "memory");
#endif
}

__device__ __forceinline__ void copy_bulk_async(void* shared, const void* global,
                                                unsigned int bytes, MBarrier* barrier,
                                                unsigned long long policy) {
#if PVM_BULK_COPIES
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint "
      "[%0], [%1], %2, [%3], %4;" ::"r"(shared_address(shared)),
      "l"(global), "r"(bytes), "r"(shared_address(barrier)), "l"(policy)
      : "memory");
#endif
}

/// Bulk copy from shared to global memory, with an L2 eviction policy. Forms a group of its own,
/// for which this thread can wait.
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
/// Waits until all bulk stores of this thread have completed, so that the next kernel sees them.
__device__ __forceinline__ void stores_wait_all() {
#if PVM_BULK_COPIES
  asm volatile("cp.async.bulk.wait_group 0;" ::: "memory");
#endif
}
/// Waits until all bulk stores of this thread have read their source, which may then be
/// overwritten.
__device__ __forceinline__ void stores_wait_read() {
#if PVM_BULK_COPIES
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
#endif
}

#undef PVM_BULK_COPIES

}  // namespace pvm::inline v0::detail
