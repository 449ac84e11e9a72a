// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's instructions/group_products.cuh on the emulated device, with the
/// layouts of the PTX ISA.

#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include <pvm/engine/cuda/instructions/matrices.cuh>
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

using emulated_cuda::Four;

/// The address of (row, column) of an operand whose rows have `RowBytes` bytes, swizzled.
template <int RowBytes>
__attribute__((always_inline)) inline const void* group_address(GroupOperand operand, int row,
                                                                int column) {
  std::uintptr_t at = operand * 16 + static_cast<std::uintptr_t>(row * RowBytes + column * 2);
  at ^= (at >> 7 & (RowBytes == 128 ? 7U : 3U)) << 4;
  return reinterpret_cast<const void*>(at);
}
/// Reads the first 16 values of row `row`. Eight of them are not torn apart by the swizzle.
template <int RowBytes, class Value>
__attribute__((always_inline)) inline void read_line(float (&line)[16], GroupOperand operand,
                                                     int row, Value value) {
  for (int first = 0; first < 16; first += 8) {
    std::uint16_t eight[8];
    std::memcpy(eight, group_address<RowBytes>(operand, row, first), sizeof(eight));
    for (int k = 0; k < 8; ++k) line[first + k] = value(eight[k]);
  }
}

/// The factors of four sums of a lane that are computed together: of two rows with two columns
/// each.
inline Four of_rows(float first, float second) { return Four{first, first, second, second}; }
inline Four of_columns(float first, float second) { return Four{first, second, first, second}; }

/// Adds the calling lane's part of a 64 x 16 by 16 x (Octets * 8) product. Its warp meets first,
/// because the whole warp executes the instruction.
template <int RowBytes, int Octets, class Value>
__attribute__((optimize("O3"))) void multiply_group(float (&c)[Octets][4], GroupOperand a,
                                                    GroupOperand b, Value value) {
  emulated_cuda::block().meet(full_warp, "wgmma", char{});
  const int warp = thread_number() / 32 % 4, lane = thread_number() % 32;
  float lines[2][16];
  for (int i = 0; i < 2; ++i) {
    read_line<RowBytes>(lines[i], a, warp * 16 + lane / 4 + i * 8, value);
  }
  Four rows[16];
  for (int k = 0; k < 16; ++k) rows[k] = of_rows(lines[0][k], lines[1][k]);
  for (int n = 0; n < Octets; ++n) {
    for (int j = 0; j < 2; ++j) read_line<RowBytes>(lines[j], b, n * 8 + lane % 4 * 2 + j, value);
    Four sums = {};
    for (int k = 0; k < 16; ++k) sums += rows[k] * of_columns(lines[0][k], lines[1][k]);
    emulated_cuda::add(c[n], sums);
  }
}
/// The same for operand A in registers (16 x 16 for each warp) and B of 16 x 32 (up to 128). B
/// consists of pieces of `RowBytes` / 2 columns, which lie `b >> 48` units of 16 bytes apart.
template <int RowBytes, int Octets, class Value>
__attribute__((optimize("O3"))) void multiply_registers(float (&c)[Octets][4],
                                                        const std::uint32_t (&a)[4], GroupOperand b,
                                                        bool adds, Value value) {
  struct Words {
    std::uint32_t word[4];
  } words{{a[0], a[1], a[2], a[3]}};
  const emulated_cuda::Lanes lanes =
      emulated_cuda::block().meet(full_warp, "wgmma of registers", words).lanes;
  const int lane = thread_number() % 32;
  Four rows[16];
  for (int k = 0; k < 16; ++k) {
    std::memcpy(&words, lanes[lane / 4 * 4 + k % 8 / 2], sizeof(words));
    const auto from = [&](int row) {
      return value(static_cast<std::uint16_t>(words.word[k / 8 * 2 + row] >> (k % 2 * 16)));
    };
    rows[k] = of_rows(from(0), from(1));
  }
  const GroupOperand apart = b >> 48, start = b & 0xffffffffffffU;
  for (int n = 0; n < Octets; ++n) {
    constexpr int piece = RowBytes / 2;
    const int column = n * 8 + lane % 4 * 2;
    const GroupOperand at = start + static_cast<GroupOperand>(column / piece) * apart;
    Four sums = {};
    for (int k = 0; k < 16; ++k) {
      std::uint16_t pair[2];
      std::memcpy(pair, group_address<RowBytes>(at, k, column % piece), sizeof(pair));
      sums += rows[k] * of_columns(value(pair[0]), value(pair[1]));
    }
    if (!adds) std::memset(c[n], 0, sizeof(c[n]));
    emulated_cuda::add(c[n], sums);
  }
}

}  // namespace emulated

template <class Precision, int RowBytes>
void multiply_group(float (&c)[7][4], GroupOperand a, GroupOperand b) {
  emulated::multiply_group<RowBytes>(c, a, b, emulated::ValueOf<Precision>{});
}
template <class Precision, int RowBytes>
void multiply_square(float (&c)[8][4], GroupOperand a, GroupOperand b) {
  emulated::multiply_group<RowBytes>(c, a, b, emulated::ValueOf<Precision>{});
}
template <class Precision, int RowBytes, int Octets>
void multiply_registers(float (&c)[Octets][4], const std::uint32_t (&a)[4], GroupOperand b,
                        bool adds) {
  emulated::multiply_registers<RowBytes>(c, a, b, adds, emulated::ValueOf<Precision>{});
}
/// The operand with the distance of its pieces, in units of 16 bytes, in the upper 16 bits.
template <int Apart>
GroupOperand wide_operand(const void* shared) {
  return group_operand(shared) | static_cast<GroupOperand>(Apart / 16) << 48;
}
template <class Registers>
void fence_registers(Registers&) {}

}  // namespace pvm::inline v0::detail
