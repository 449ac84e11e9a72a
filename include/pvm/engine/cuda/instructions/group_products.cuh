// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// wgmma: matrix products by a warpgroup (four warps) with operands in shared memory. Only Hopper
/// has them, in code for sm_90a.

#include <cuda_runtime.h>

#include <concepts>
#include <cstdint>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/instructions/capability.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>

namespace pvm::inline v0::detail {

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define PVM_GROUP_PRODUCTS 1
#else
#define PVM_GROUP_PRODUCTS 0
#endif

/// Whether the code is compiled for sm_90a, so that wgmma is available. Otherwise the functions of
/// this file do nothing.
inline constexpr bool multiplies_in_groups = PVM_GROUP_PRODUCTS != 0;

/// The low half of the matrix descriptor of an operand that starts at `shared`. The operand has
/// rows of 128 or 64 bytes, starts at a multiple of eight rows, and is swizzled: 16-byte piece p of
/// row r is at position p ^ (r % 8) of the row, or, in rows of 64 bytes, at p ^ (r / 2 % 4). Adding
/// n to the descriptor moves the start by 16 n bytes; adding 2 moves it by 16 columns.
using GroupOperand = std::uint32_t;
__device__ __forceinline__ GroupOperand group_operand(const void* shared) {
  return (shared_address(shared) & 0x3ffffU) >> 4 | 1U << 16;
}
/// The high half of the descriptor: the swizzling mode (1: 128 bytes, 2: 64 bytes) and the stride
/// from 8 rows to the next 8, in units of 16 bytes.
template <int RowBytes>
inline constexpr unsigned group_layout = (RowBytes == 128 ? 1U : 2U) << 30 | 8 * RowBytes / 16;
/// To be called before the first wgmma of a sequence: orders earlier accesses to the accumulators
/// and to operands in registers before it.
__device__ __forceinline__ void products_begin() {
#if PVM_GROUP_PRODUCTS
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#endif
}
/// Commits the wgmma since the last commit as a group.
__device__ __forceinline__ void products_commit() {
#if PVM_GROUP_PRODUCTS
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
#endif
}
/// Waits for all groups except the `Pending` youngest ones.
template <int Pending>
__device__ __forceinline__ void products_wait() {
#if PVM_GROUP_PRODUCTS
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(Pending) : "memory");
#endif
}
/// Commits and waits for all products.
__device__ __forceinline__ void products_end() {
  products_commit();
  products_wait<0>();
}

// Lists of the accumulators: as operands %0, %1, ... in the PTX text, and as constraints of the asm
// statement. An "octet" is four accumulators of a lane, which belong to 8 columns.
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

// c += a b, both operands in shared memory. A, B and LAYOUT are asm operand names; they follow
// those of the accumulators.
#define PVM_MULTIPLY_SHARED(TYPE, COLUMNS, SUMS, A, B, LAYOUT, ...)                  \
  asm volatile(                                                                      \
      "{\n\t.reg .b64 a, b;\n\t"                                                     \
      "mov.b64 a, {" A ", " LAYOUT "};\n\tmov.b64 b, {" B ", " LAYOUT                \
      "};\n\t"                                                                       \
      "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." TYPE "." TYPE " {" SUMS \
      "}, a, b, 1, 1, 1, 0, 0;\n\t}"                                                 \
      : __VA_ARGS__                                                                  \
      : "r"(a), "r"(b), "n"(group_layout<RowBytes>))
// c += a b if `adds`, else c = a b. Operand A is in registers, B in shared memory, transposed. A,
// B, LAYOUT and ADDS are asm operand names; they follow those of the accumulators.
#define PVM_MULTIPLY_REGISTERS(TYPE, COLUMNS, SUMS, A, B, LAYOUT, ADDS, ...)                  \
  asm volatile(                                                                               \
      "{\n\t.reg .b64 b;\n\t.reg .pred adds;\n\t"                                             \
      "mov.b64 b, {" B ", " LAYOUT "};\n\tsetp.ne.u32 adds, " ADDS                            \
      ", 0;\n\t"                                                                              \
      "wgmma.mma_async.sync.aligned.m64n" COLUMNS "k16.f32." TYPE "." TYPE " {" SUMS "}, {" A \
      "}, b, adds, 1, 1, 1;\n\t}"                                                             \
      : __VA_ARGS__                                                                           \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(group_layout<RowBytes>),      \
        "r"(static_cast<unsigned>(adds)))

// MULTIPLY for operands of `Precision`, bf16 or fp16.
#define PVM_OF_PRECISION(MULTIPLY, ...)          \
  if constexpr (std::same_as<Precision, bf16>) { \
    MULTIPLY("bf16", __VA_ARGS__);               \
  } else {                                       \
    MULTIPLY("f16", __VA_ARGS__);                \
  }

/// c += a b for operands of `Precision`, bf16 or fp16, 64 x 16 by 16 x 56. A row of shared memory
/// holds a row of a, or a column of b. Warp w of the warpgroup gets rows 16 w to 16 w + 15 of c, in
/// the order of m16n8 mma accumulators.
template <class Precision, int RowBytes>
__device__ __forceinline__ void multiply_group(float (&c)[7][4], GroupOperand a, GroupOperand b) {
#if PVM_GROUP_PRODUCTS
  PVM_OF_PRECISION(PVM_MULTIPLY_SHARED, "56", PVM_SUMS_TO_27, "%28", "%29", "%30", PVM_7_OCTETS)
#endif
}
/// The same, 64 x 16 by 16 x 64.
template <class Precision, int RowBytes>
__device__ __forceinline__ void multiply_square(float (&c)[8][4], GroupOperand a, GroupOperand b) {
#if PVM_GROUP_PRODUCTS
  PVM_OF_PRECISION(PVM_MULTIPLY_SHARED, "64", PVM_SUMS_TO_31, "%32", "%33", "%34", PVM_8_OCTETS)
#endif
}
/// c += a b if `adds`, else c = a b; 64 x 16 by 16 x 128. Each warp holds 16 rows of a in
/// registers, as the fragment of mma operand A. b is given by `wide_operand`: a row of shared
/// memory holds `RowBytes` of the columns for one index of the depth, and the next columns follow
/// in other rows.
template <class Precision, int RowBytes>
__device__ __forceinline__ void multiply_registers(float (&c)[16][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_OF_PRECISION(PVM_MULTIPLY_REGISTERS, "128", PVM_SUMS_TO_63, "%64,%65,%66,%67", "%68", "%69",
                   "%70", PVM_16_OCTETS)
#endif
}
/// The same for 96, 64 and 32 columns.
template <class Precision, int RowBytes>
__device__ __forceinline__ void multiply_registers(float (&c)[12][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_OF_PRECISION(PVM_MULTIPLY_REGISTERS, "96", PVM_SUMS_TO_47, "%48,%49,%50,%51", "%52", "%53",
                   "%54", PVM_12_OCTETS)
#endif
}
template <class Precision, int RowBytes>
__device__ __forceinline__ void multiply_registers(float (&c)[8][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_OF_PRECISION(PVM_MULTIPLY_REGISTERS, "64", PVM_SUMS_TO_31, "%32,%33,%34,%35", "%36", "%37",
                   "%38", PVM_8_OCTETS)
#endif
}
template <class Precision, int RowBytes>
__device__ __forceinline__ void multiply_registers(float (&c)[4][4], const std::uint32_t (&a)[4],
                                                   GroupOperand b, bool adds) {
#if PVM_GROUP_PRODUCTS
  PVM_OF_PRECISION(PVM_MULTIPLY_REGISTERS, "32", PVM_SUMS_TO_15, "%16,%17,%18,%19", "%20", "%21",
                   "%22", PVM_4_OCTETS(0))
#endif
}
#undef PVM_OF_PRECISION
#undef PVM_MULTIPLY_REGISTERS
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

/// Low half of the descriptor of operand b of `multiply_registers`. Its columns are divided into
/// groups of `RowBytes`; each group has a row for every index of the depth, and the groups are
/// `Apart` bytes apart.
template <int Apart>
__device__ __forceinline__ GroupOperand wide_operand(const void* shared) {
  return (shared_address(shared) & 0x3ffffU) >> 4 | static_cast<unsigned>(Apart / 16) << 16;
}
/// To be called before and after asynchronous products, with the registers that they read or add
/// to: keeps the compiler from moving accesses to these registers between the products, of which it
/// does not know that they are asynchronous.
template <int Count>
__device__ __forceinline__ void fence_registers(float (&c)[Count][4]) {
#if PVM_GROUP_PRODUCTS
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    asm volatile("" : "+f"(c[i][0]), "+f"(c[i][1]), "+f"(c[i][2]), "+f"(c[i][3])::"memory");
  }
#endif
}
template <int Count>
__device__ __forceinline__ void fence_registers(std::uint32_t (&a)[Count][4]) {
#if PVM_GROUP_PRODUCTS
#pragma unroll
  for (int i = 0; i < Count; ++i) {
    asm volatile("" : "+r"(a[i][0]), "+r"(a[i][1]), "+r"(a[i][2]), "+r"(a[i][3])::"memory");
  }
#endif
}

#undef PVM_GROUP_PRODUCTS

}  // namespace pvm::inline v0::detail
