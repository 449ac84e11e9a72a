// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The mma product of 8-bit whole numbers.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/capability.cuh>

namespace pvm::inline v0::detail {

/// c += a b in whole numbers: a is 16 x 32 of unsigned, b 32 x 8 of signed numbers of 8 bits.
__device__ __forceinline__ void multiply_8bit(std::int32_t (&c)[4], const std::uint32_t (&a)[4],
                                              std::uint32_t b0, std::uint32_t b1) {
  asm volatile(
      "mma.sync.aligned.m16n8k32.row.col.s32.u8.s8.s32 "
      "{%0,%1,%2,%3},{%4,%5,%6,%7},{%8,%9},{%0,%1,%2,%3};"
      : "+r"(c[0]), "+r"(c[1]), "+r"(c[2]), "+r"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

}  // namespace pvm::inline v0::detail
