// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's instructions/group_products.cuh on the emulated device, with the
/// layouts of the PTX ISA.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <bit>
#include <cstdint>
#include <cstring>

#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail {

#if !defined(PVM_EMULATED_GROUPS)
#define PVM_EMULATED_GROUPS true
#endif
inline constexpr bool multiplies_in_groups = PVM_EMULATED_GROUPS;

using GroupOperand = std::uint64_t;
inline GroupOperand group_operand(const void* shared) {
  return reinterpret_cast<std::uintptr_t>(shared) / 16;
}
inline void products_begin() {}
inline void products_commit() {}
template <int>
void products_wait() {}
inline void products_end() {}

namespace emulated {

/// The value at (row, column) of an operand whose rows have `RowBytes` bytes, swizzled.
template <int RowBytes>
std::uint16_t group_value(GroupOperand operand, int row, int column) {
  std::uintptr_t at = operand * 16 + static_cast<std::uintptr_t>(row * RowBytes + column * 2);
  at ^= (at >> 7 & (RowBytes == 128 ? 7U : 3U)) << 4;
  std::uint16_t value;
  std::memcpy(&value, reinterpret_cast<const void*>(at), sizeof(value));
  return value;
}
/// Adds the calling lane's part of a 64 x 16 by 16 x 56 product. Its warp meets first, because the
/// whole warp executes the instruction.
template <int RowBytes, class Value>
void multiply_group(float (&c)[7][4], GroupOperand a, GroupOperand b, Value value) {
  emulated_cuda::block().meet(full_warp, "wgmma", char{});
  const auto operand = [&](GroupOperand from, int line, int k) {
    return value(group_value<RowBytes>(from, line, k));
  };
  const int warp = thread_number() / 32 % 4, lane = thread_number() % 32;
  float rows[2][16];
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 16; ++k) rows[i][k] = operand(a, warp * 16 + lane / 4 + i * 8, k);
  }
  for (int n = 0; n < 7; ++n) {
    for (int j = 0; j < 2; ++j) {
      float sums[2] = {};
      for (int k = 0; k < 16; ++k) {
        const float column = operand(b, n * 8 + lane % 4 * 2 + j, k);
        for (int i = 0; i < 2; ++i) sums[i] += rows[i][k] * column;
      }
      for (int i = 0; i < 2; ++i) c[n][i * 2 + j] += sums[i];
    }
  }
}

/// The same for 64 x 16 by 16 x 64.
template <int RowBytes, class Value>
void multiply_square(float (&c)[8][4], GroupOperand a, GroupOperand b, Value value) {
  emulated_cuda::block().meet(full_warp, "wgmma", char{});
  const int warp = thread_number() / 32 % 4, lane = thread_number() % 32;
  for (int n = 0; n < 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      const int row = warp * 16 + lane / 4 + e / 2 * 8, column = n * 8 + lane % 4 * 2 + e % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k) {
        sum += value(group_value<RowBytes>(a, row, k)) * value(group_value<RowBytes>(b, column, k));
      }
      c[n][e] += sum;
    }
  }
}
/// The same for operand A in registers (16 x 16 for each warp) and B of 16 x 32 (up to 128). B
/// consists of pieces of `RowBytes` / 2 columns, which lie `b >> 48` units of 16 bytes apart.
template <int RowBytes, int Octets, class Value>
void multiply_registers(float (&c)[Octets][4], const std::uint32_t (&a)[4], GroupOperand b,
                        bool adds, Value value) {
  struct Words {
    std::uint32_t word[4];
  } words{{a[0], a[1], a[2], a[3]}};
  const emulated_cuda::Lanes lanes =
      emulated_cuda::block().meet(full_warp, "wgmma of registers", words).lanes;
  const int lane = thread_number() % 32;
  float rows[2][16];
  for (int k = 0; k < 16; ++k) {
    std::memcpy(&words, lanes[lane / 4 * 4 + k % 8 / 2], sizeof(words));
    for (int i = 0; i < 2; ++i) {
      rows[i][k] = value(static_cast<std::uint16_t>(words.word[k / 8 * 2 + i] >> (k % 2 * 16)));
    }
  }
  const GroupOperand apart = b >> 48, start = b & 0xffffffffffffU;
  for (int n = 0; n < Octets; ++n) {
    for (int e = 0; e < 4; ++e) {
      const int column = n * 8 + lane % 4 * 2 + e % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k) {
        constexpr int piece = RowBytes / 2;
        const GroupOperand at = start + static_cast<GroupOperand>(column / piece) * apart;
        sum += rows[e / 2][k] * value(group_value<RowBytes>(at, k, column % piece));
      }
      c[n][e] = adds ? c[n][e] + sum : sum;
    }
  }
}

}  // namespace emulated

template <int RowBytes>
void multiply_group_bf16(float (&c)[7][4], GroupOperand a, GroupOperand b) {
  emulated::multiply_group<RowBytes>(c, a, b, [](std::uint16_t v) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
  });
}
template <int RowBytes>
void multiply_group_fp16(float (&c)[7][4], GroupOperand a, GroupOperand b) {
  emulated::multiply_group<RowBytes>(
      c, a, b, [](std::uint16_t v) { return emulated_cuda::half_from_table(v); });
}

template <int RowBytes>
void multiply_square_bf16(float (&c)[8][4], GroupOperand a, GroupOperand b) {
  emulated::multiply_square<RowBytes>(c, a, b, [](std::uint16_t v) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
  });
}
template <int RowBytes, int Octets>
void multiply_registers_bf16(float (&c)[Octets][4], const std::uint32_t (&a)[4], GroupOperand b,
                             bool adds) {
  emulated::multiply_registers<RowBytes>(c, a, b, adds, [](std::uint16_t v) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
  });
}
template <int RowBytes>
void multiply_square_fp16(float (&c)[8][4], GroupOperand a, GroupOperand b) {
  emulated::multiply_square<RowBytes>(
      c, a, b, [](std::uint16_t v) { return emulated_cuda::half_from_table(v); });
}
template <int RowBytes, int Octets>
void multiply_registers_fp16(float (&c)[Octets][4], const std::uint32_t (&a)[4], GroupOperand b,
                             bool adds) {
  emulated::multiply_registers<RowBytes>(
      c, a, b, adds, [](std::uint16_t v) { return emulated_cuda::half_from_table(v); });
}
/// The operand with the distance of its pieces, in units of 16 bytes, in the upper 16 bits.
template <int Apart>
GroupOperand wide_operand(const void* shared) {
  return group_operand(shared) | static_cast<GroupOperand>(Apart / 16) << 48;
}
template <class Registers>
void fence_registers(Registers&) {}

}  // namespace pvm::inline v0::detail
