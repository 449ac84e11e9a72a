// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Matrix fragments distributed over the lanes of a warp: loads and stores in shared memory, and
/// mma products.

#include <cuda_runtime.h>

#include <concepts>
#include <cstdint>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/instructions/capability.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>

namespace pvm::inline v0::detail {

/// Loads four 8 x 8 matrices of 16-bit values (or 8 x 4 of 32-bit values). Every lane gives the
/// address of one row: lanes 0 to 7 those of the first matrix, and so on. The functions with "two"
/// load two matrices, with the addresses of lanes 0 to 15.
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
/// Stores four matrices, with lanes and addresses as in `load_matrices`. Needs compute capability
/// 9.0 (else it does nothing).
__device__ __forceinline__ void store_matrices(void* row, const std::uint32_t (&r)[4]) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1,%2,%3,%4};" ::"r"(shared_address(row)),
      "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
      : "memory");
#endif
}
/// Transposes an 8 x 8 matrix of 16-bit values that is distributed over a warp.
__device__ __forceinline__ std::uint32_t transpose(std::uint32_t v) {
  std::uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(v));
  return out;
}

// MULTIPLY for operands of `Precision`, bf16 or fp16.
#define PVM_OF_PRECISION(MULTIPLY)               \
  if constexpr (std::same_as<Precision, bf16>) { \
    MULTIPLY("bf16");                            \
  } else {                                       \
    MULTIPLY("f16");                             \
  }
#define PVM_MULTIPLY(TYPE)                                            \
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32." TYPE "." TYPE \
               ".f32 "                                                \
               "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"   \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])       \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
#define PVM_MULTIPLY_SHALLOW(TYPE)                                   \
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32." TYPE "." TYPE \
               ".f32 "                                               \
               "{%0,%1,%2,%3},{%4,%5},{%6},{%0,%1,%2,%3};"           \
               : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])      \
               : "r"(a0), "r"(a1), "r"(b))

/// c += a b, with fp32 accumulators and operands of `Precision`, bf16 or fp16: a is 16 x 16 and b
/// 16 x 8.
template <class Precision>
__device__ __forceinline__ void multiply_16bit(float (&c)[4], const std::uint32_t (&a)[4],
                                               std::uint32_t b0, std::uint32_t b1) {
  PVM_OF_PRECISION(PVM_MULTIPLY)
}
/// The same with half the depth: a is 16 x 8 and b 8 x 8.
template <class Precision>
__device__ __forceinline__ void multiply_shallow(float (&c)[4], std::uint32_t a0, std::uint32_t a1,
                                                 std::uint32_t b) {
  PVM_OF_PRECISION(PVM_MULTIPLY_SHALLOW)
}
#undef PVM_MULTIPLY_SHALLOW
#undef PVM_MULTIPLY
#undef PVM_OF_PRECISION
/// c += a b for tf32: a is 16 x 8 and b 8 x 8.
__device__ __forceinline__ void multiply_tf32(float (&c)[4], const std::uint32_t (&a)[4],
                                              std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace pvm::inline v0::detail
