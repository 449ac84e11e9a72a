// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Products of four warps, whose operands lie in shared memory: Hopper's own.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/capability.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>

namespace pvm::inline v0::detail {

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

#undef PVM_GROUP_PRODUCTS

}  // namespace pvm::inline v0::detail
