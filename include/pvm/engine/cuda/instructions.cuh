// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The instructions that CUDA C++ has no name for, and nothing else: every line of PTX is here, so
/// that a header of the same path (tests/emulated_cuda) can stand in where there is no GPU.

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
#error \
    "pvm's kernels need compute capability 8.0 or later: compile for that of your GPU, by nvcc -arch=native or CMake's -DCMAKE_CUDA_ARCHITECTURES=native"
#endif

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace pvm::inline v0::detail {

/// The shared memory that a launch asks for, of the block of threads that asks.
template <class T>
__device__ __forceinline__ T* dynamic_shared() {
  extern __shared__ __align__(128) unsigned char pvm_dynamic_shared[];
  return reinterpret_cast<T*>(pvm_dynamic_shared);
}
/// Number of this thread in a block of one dimension, kept rather than asked for again.
__device__ __forceinline__ int thread_number() {
  int number;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(number));
  return number;
}
/// The 32-bit address of something in shared memory.
__device__ __forceinline__ unsigned shared_address(const void* shared) {
  return static_cast<unsigned>(__cvta_generic_to_shared(shared));
}

/// The same where products of four warps want it: at a multiple of 1,024 bytes. (To find the next
/// one instead would take part in every address.)
__device__ __forceinline__ unsigned char* aligned_dynamic_shared() {
  extern __shared__ __align__(1024) unsigned char pvm_aligned_shared[];
  if (shared_address(pvm_aligned_shared) % 1024 != 0) __trap();
  return pvm_aligned_shared;
}

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

// -------------------------------------------------------------- arithmetic

/// 1 / v to a unit in the last place, for v that are far from the ends of the range.
__device__ __forceinline__ float reciprocal(float v) {
  float out;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(out) : "f"(v));
  return out;
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

/// Brings the line with that address to the second-level cache.
__device__ __forceinline__ void prefetch_line(const void* p) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(p));
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

// -------------------------------------------------------------- asynchronous copies

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

// What devices before 9.0 do not have: there, kernels that use it are never launched.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
#define PVM_BULK_COPIES 1
#else
#define PVM_BULK_COPIES 0
#endif
inline constexpr bool has_bulk_copies = PVM_BULK_COPIES != 0;

/// A barrier in shared memory that opens when so many threads have arrived, and all bytes they
/// expect; from compute capability 9.0 on, like bulk copies.
using CopyBarrier = unsigned long long;

/// One thread's work, before the others use it (__syncthreads).
__device__ __forceinline__ void barrier_init(CopyBarrier* barrier, unsigned int arrivals) {
#if PVM_BULK_COPIES
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(barrier)),
               "r"(arrivals)
               : "memory");
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
#if PVM_BULK_COPIES
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}
/// Arrives once all asynchronous copies of this thread so far are there.
__device__ __forceinline__ void copies_arrive(CopyBarrier* barrier) {
#if PVM_BULK_COPIES
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(barrier))
               : "memory");
#endif
}
/// Waits until the barrier has opened; `parity` is 0 the first time, then 1, then 0 again. The
/// thread sleeps for up to 10 ms at a time: one that asks again and again takes others' turns.
__device__ __forceinline__ void barrier_wait(CopyBarrier* barrier, unsigned int parity) {
#if PVM_BULK_COPIES
  unsigned int open;
  do {
    asm volatile(
        "{\n\t.reg .pred p;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2, %3;\n\t"
        "selp.u32 %0, 1, 0, p;\n\t}"
        : "=r"(open)
        : "r"(shared_address(barrier)), "r"(parity), "r"(10000000U)
        : "memory");
  } while (open == 0);
#endif
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

/// One thread brings `bytes` bytes, whole 16s, to the second-level cache. A hint: before 9.0
/// nothing comes.
__device__ __forceinline__ void prefetch_bulk(const void* p, unsigned int bytes) {
#if PVM_BULK_COPIES
  asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(p), "r"(bytes));
#endif
}
/// What this thread wrote to shared memory is what bulk copies read that are asked for later.
__device__ __forceinline__ void show_to_copies() {
#if PVM_BULK_COPIES
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/// One lane of a whole warp, always the same. The compiler knows that it is one, and does not look
/// whether there are others with other places for a bulk copy, as it does behind a question for the
/// number of a lane.
__device__ __forceinline__ bool is_elected() {
#if PVM_BULK_COPIES
  unsigned int elected;
  asm volatile("{\n\t.reg .pred p;\n\telect.sync _|p, 0xffffffff;\n\tselp.u32 %0, 1, 0, p;\n\t}"
               : "=r"(elected));
  return elected != 0;
#else
  return false;
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

// -------------------------------------------------------------- matrices across a warp

/// Four 8 x 8 matrices of 16-bit values (or 8 x 4 of 32), a row address from every lane.
__device__ __forceinline__ void load_matrices(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_two_matrices(std::uint32_t& r0, std::uint32_t& r1,
                                                  const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0,%1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(shared_address(row)));
}
__device__ __forceinline__ void load_two_matrices_transposed(std::uint32_t& r0, std::uint32_t& r1,
                                                             const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0,%1}, [%2];"
               : "=r"(r0), "=r"(r1)
               : "r"(shared_address(row)));
}
/// Back to where `load_matrices` took them from; from compute capability 9.0 on.
__device__ __forceinline__ void store_matrices(void* row, const std::uint32_t (&r)[4]) {
#if PVM_BULK_COPIES
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
#endif
}
/// An 8 x 8 matrix of 16-bit values that lies across a warp, transposed.
__device__ __forceinline__ std::uint32_t transpose(std::uint32_t v) {
  std::uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(v));
  return out;
}

#undef PVM_BULK_COPIES

/// c += a b: 16 x 16 by 16 x 8, or by 8 of tf32, sums in fp32.
__device__ __forceinline__ void multiply_bf16(float (&c)[4], const std::uint32_t (&a)[4],
                                              std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ void multiply_fp16(float (&c)[4], const std::uint32_t (&a)[4],
                                              std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
/// The same of 16 x 8 by 8 x 8.
__device__ __forceinline__ void multiply_shallow_bf16(float (&c)[4], std::uint32_t a0,
                                                      std::uint32_t a1, std::uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
      "{%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}
__device__ __forceinline__ void multiply_shallow_fp16(float (&c)[4], std::uint32_t a0,
                                                      std::uint32_t a1, std::uint32_t b) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a0), "r"(a1), "r"(b));
}
/// Two values as fp16, the first in the lower half, cut towards 0.
__device__ __forceinline__ std::uint32_t pair_cut_to_fp16(float first, float second) {
  std::uint32_t pair;
  asm("cvt.rz.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
__device__ __forceinline__ void multiply_tf32(float (&c)[4], const std::uint32_t (&a)[4],
                                              std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// -------------------------------------------------------------- products of four warps

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PVM_GROUP_PRODUCTS 1
#else
#define PVM_GROUP_PRODUCTS 0
#endif

/// Whether four warps can multiply what lies in shared memory as one: Hopper's own, for sm_90a.
inline constexpr bool multiplies_in_groups = PVM_GROUP_PRODUCTS != 0;

/// An operand of such a product, which starts there: rows of 128 bytes, or of 64, from a multiple
/// of eight rows on. The 16-byte pieces of row r are at (piece ^ r % 8), and where rows are of 64
/// bytes at (piece ^ r / 2 % 4). It is moved on by adding to it, 1 for 16 bytes: 2 for the next 16
/// columns.
using GroupOperand = std::uint32_t;
__device__ __forceinline__ GroupOperand group_operand(const void* shared) {
  return (shared_address(shared) & 0x3ffffU) >> 4 | 1U << 16;
}
/// The upper half of its descriptor: how pieces are moved, and how far it is from 8 rows to the
/// next 8.
template <int RowBytes>
inline constexpr unsigned group_layout = (RowBytes == 128 ? 1U : 2U) << 30 | 8 * RowBytes / 16;
/// What this thread wrote to shared memory, or saw there, is what products read that come later.
__device__ __forceinline__ void show_to_products() {
#if PVM_GROUP_PRODUCTS
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}
/// Before the first of some products: sums and what lies in shared memory are ready.
__device__ __forceinline__ void products_begin() {
#if PVM_GROUP_PRODUCTS
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/// Closes the group of the products since the last one was closed.
__device__ __forceinline__ void products_commit() {
#if PVM_GROUP_PRODUCTS
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/// Waits for all groups but the youngest `Pending`.
template <int Pending>
__device__ __forceinline__ void products_wait() {
#if PVM_GROUP_PRODUCTS
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
#endif
}
/// After the last: waits for them.
__device__ __forceinline__ void products_end() {
  products_commit();
  products_wait<0>();
}

// Sums of such products, as the assembler names them and as the compiler does.
#define PVM_SUMS_TO_15 "%0,%1,%2,%3,%4,%5,%6,%7,%8,%9,%10,%11,%12,%13,%14,%15"
#define PVM_SUMS_TO_27 PVM_SUMS_TO_15 ",%16,%17,%18,%19,%20,%21,%22,%23,%24,%25,%26,%27"
#define PVM_SUMS_TO_31 PVM_SUMS_TO_27 ",%28,%29,%30,%31"
#define PVM_SUMS_TO_47 \
  PVM_SUMS_TO_31 ",%32,%33,%34,%35,%36,%37,%38,%39,%40,%41,%42,%43,%44,%45,%46,%47"
#define PVM_SUMS_TO_63 \
  PVM_SUMS_TO_47 ",%48,%49,%50,%51,%52,%53,%54,%55,%56,%57,%58,%59,%60,%61,%62,%63"
#define PVM_OCTET(n) "+f"(c[n][0]), "+f"(c[n][1]), "+f"(c[n][2]), "+f"(c[n][3])
#define PVM_4_OCTETS(n) PVM_OCTET(n), PVM_OCTET(n + 1), PVM_OCTET(n + 2), PVM_OCTET(n + 3)
#define PVM_7_OCTETS PVM_4_OCTETS(0), PVM_OCTET(4), PVM_OCTET(5), PVM_OCTET(6)
#define PVM_8_OCTETS PVM_4_OCTETS(0), PVM_4_OCTETS(4)
#define PVM_12_OCTETS PVM_8_OCTETS, PVM_4_OCTETS(8)
#define PVM_16_OCTETS PVM_12_OCTETS, PVM_4_OCTETS(12)

// c += a b, both operands in shared memory; A, B and LAYOUT are the numbers behind the sums.
#define PVM_MULTIPLY_SHARED(TYPE, COLUMNS, SUMS, A, B, LAYOUT, ...)                  \
  asm volatile(                                                                      \
      "{\n\t.reg .b64 a, b;\n\t"                                                     \
      "mov.b64 a, {" A ", " LAYOUT "};\n\tmov.b64 b, {" B ", " LAYOUT                \
      "};\n\t"                                                                       \
      "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." TYPE "." TYPE " {" SUMS \
      "}, a, b, 1, 1, 1, 0, 0;\n\t}"                                                 \
      : __VA_ARGS__                                                                  \
      : "r"(a), "r"(b), "n"(group_layout<RowBytes>))
// c += a b, or c = a b unless it `adds`, the first operand in registers, numbers A.
#define PVM_MULTIPLY_HELD(TYPE, COLUMNS, SUMS, A, B, LAYOUT, ADDS, ...)                       \
  asm volatile(                                                                               \
      "{\n\t.reg .b64 b;\n\t.reg .pred adds;\n\t"                                             \
      "mov.b64 b, {" B ", " LAYOUT "};\n\tsetp.ne.u32 adds, " ADDS                            \
      ", 0;\n\t"                                                                              \
      "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." TYPE "." TYPE " {" SUMS "}, {" A \
      "}, b, adds, 1, 1, 1;\n\t}"                                                             \
      : __VA_ARGS__                                                                           \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(group_layout<RowBytes>),      \
        "r"(static_cast<unsigned>(adds)))

/// c += a b: 64 x 16 by 16 x 56, rows and columns in rows of the operands. The sums lie as those of
/// four warps' smaller products, 16 rows a warp.
template <int RowBytes>
__device__ __forceinline__ void multiply_group_bf16(float (&c)[7][4], GroupOperand a,
                                                    GroupOperand b) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_SHARED("bf16", "56", PVM_SUMS_TO_27, "%28", "%29", "%30", PVM_7_OCTETS);
#endif
}
template <int RowBytes>
__device__ __forceinline__ void multiply_group_fp16(float (&c)[7][4], GroupOperand a,
                                                    GroupOperand b) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_SHARED("f16", "56", PVM_SUMS_TO_27, "%28", "%29", "%30", PVM_7_OCTETS);
#endif
}
/// The same by 64.
template <int RowBytes>
__device__ __forceinline__ void multiply_square_bf16(float (&c)[8][4], GroupOperand a,
                                                     GroupOperand b) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_SHARED("bf16", "64", PVM_SUMS_TO_31, "%32", "%33", "%34", PVM_8_OCTETS);
#endif
}
template <int RowBytes>
__device__ __forceinline__ void multiply_square_fp16(float (&c)[8][4], GroupOperand a,
                                                     GroupOperand b) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_SHARED("f16", "64", PVM_SUMS_TO_31, "%32", "%33", "%34", PVM_8_OCTETS);
#endif
}
/// c += a b, or c = a b unless it `adds`: 64 x 16, 16 rows a warp as the first operand of a smaller
/// product lies in registers, by 16 x 128, columns in pieces of a row's bytes, each in rows of the
/// depth. `b` as told by `wide_operand`.
template <int RowBytes>
__device__ __forceinline__ void multiply_held_bf16(float (&c)[16][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_HELD("bf16", "128", PVM_SUMS_TO_63, "%64,%65,%66,%67", "%68", "%69", "%70",
                    PVM_16_OCTETS);
#endif
}
template <int RowBytes>
__device__ __forceinline__ void multiply_held_fp16(float (&c)[16][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_HELD("f16", "128", PVM_SUMS_TO_63, "%64,%65,%66,%67", "%68", "%69", "%70",
                    PVM_16_OCTETS);
#endif
}
/// The same by 96, 64 and 32.
template <int RowBytes>
__device__ __forceinline__ void multiply_held_bf16(float (&c)[12][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_HELD("bf16", "96", PVM_SUMS_TO_47, "%48,%49,%50,%51", "%52", "%53", "%54",
                    PVM_12_OCTETS);
#endif
}
template <int RowBytes>
__device__ __forceinline__ void multiply_held_fp16(float (&c)[12][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_HELD("f16", "96", PVM_SUMS_TO_47, "%48,%49,%50,%51", "%52", "%53", "%54",
                    PVM_12_OCTETS);
#endif
}
template <int RowBytes>
__device__ __forceinline__ void multiply_held_bf16(float (&c)[8][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_HELD("bf16", "64", PVM_SUMS_TO_31, "%32,%33,%34,%35", "%36", "%37", "%38",
                    PVM_8_OCTETS);
#endif
}
template <int RowBytes>
__device__ __forceinline__ void multiply_held_fp16(float (&c)[8][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_HELD("f16", "64", PVM_SUMS_TO_31, "%32,%33,%34,%35", "%36", "%37", "%38",
                    PVM_8_OCTETS);
#endif
}
template <int RowBytes>
__device__ __forceinline__ void multiply_held_bf16(float (&c)[4][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_HELD("bf16", "32", PVM_SUMS_TO_15, "%16,%17,%18,%19", "%20", "%21", "%22",
                    PVM_4_OCTETS(0));
#endif
}
template <int RowBytes>
__device__ __forceinline__ void multiply_held_fp16(float (&c)[4][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_MULTIPLY_HELD("f16", "32", PVM_SUMS_TO_15, "%16,%17,%18,%19", "%20", "%21", "%22",
                    PVM_4_OCTETS(0));
#endif
}
#undef PVM_MULTIPLY_HELD
#undef PVM_MULTIPLY_SHARED
#undef PVM_16_OCTETS
#undef PVM_12_OCTETS
#undef PVM_8_OCTETS
#undef PVM_7_OCTETS
#undef PVM_4_OCTETS
#undef PVM_OCTET
#undef PVM_SUMS_TO_63
#undef PVM_SUMS_TO_47
#undef PVM_SUMS_TO_31
#undef PVM_SUMS_TO_27
#undef PVM_SUMS_TO_15

/// An operand whose columns lie in such pieces, `Apart` bytes from one to the next.
template <int Apart>
__device__ __forceinline__ GroupOperand wide_operand(const void* shared) {
  return (shared_address(shared) & 0x3ffffU) >> 4 | static_cast<unsigned>(Apart / 16) << 16;
}
/// Registers that products read or add to are ready before them, and are not touched until they
/// have ended: the compiler does not know that such instructions go on behind each other.
template <int Count>
__device__ __forceinline__ void hold(float (&c)[Count][4]) {
#if PVM_GROUP_PRODUCTS
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])::"memory");
  }
#endif
}
template <int Count>
__device__ __forceinline__ void hold(std::uint32_t (&a)[Count][4]) {
#if PVM_GROUP_PRODUCTS
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
  }
#endif
}

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

/// A thread may have so many registers from here on, more than the kernel started with, or fewer:
/// for all threads of four warps.
template <int Count>
__device__ __forceinline__ void take_registers() {
#if PVM_GROUP_PRODUCTS
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(Count));
#endif
}
template <int Count>
__device__ __forceinline__ void leave_registers() {
#if PVM_GROUP_PRODUCTS
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(Count));
#endif
}

#undef PVM_GROUP_PRODUCTS

}  // namespace pvm::inline v0::detail
