// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's instructions/matrices.cuh on the emulated device, with the
/// layouts of the PTX ISA.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail {

namespace emulated {

/// The word of matrix `matrix` that ldmatrix gives to the calling lane: two 16-bit values, of row
/// lane / 4 and columns lane % 4 * 2 and the next; with `transposed`, rows and columns change
/// roles. `lanes`: lane l gives the address of row l % 8 (16 bytes) of matrix l / 8.
inline std::uint32_t matrix_word(emulated_cuda::Lanes lanes, int matrix, bool transposed) {
  const int lane = static_cast<int>(emulated_cuda::block().now().lane);
  const auto half = [&](int row, int column) {
    const unsigned char* address;
    std::memcpy(&address, lanes[matrix * 8 + row], sizeof(address));
    std::uint16_t value;
    std::memcpy(&value, address + column * 2, 2);
    return static_cast<std::uint32_t>(value);
  };
  const int line = lane / 4, pair = lane % 4 * 2;
  return transposed ? half(pair, line) | half(pair + 1, line) << 16
                    : half(line, pair) | half(line, pair + 1) << 16;
}
/// ldmatrix of `Count` matrices. The second rendezvous keeps every lane from continuing, and so
/// from changing shared memory, before all lanes have read theirs.
template <int Count>
std::array<std::uint32_t, Count> load(const void* row, bool transposed, const char* what) {
  emulated_cuda::Block& block = emulated_cuda::block();
  if (static_cast<int>(block.now().lane) < Count * 8 &&
      reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    emulated_cuda::fail("a row of a matrix that is not aligned");
  }
  const emulated_cuda::Lanes lanes = block.meet(full_warp, what, row).lanes;
  std::array<std::uint32_t, Count> out;
  for (int i = 0; i < Count; ++i)
    out[static_cast<std::size_t>(i)] = matrix_word(lanes, i, transposed);
  block.meet(full_warp, what, char{});
  return out;
}

/// A lane's fragments of the operands of an mma: 4 words of A, then 2 of B.
struct Operands {
  std::uint32_t word[6];
};
/// Computes c[16][8] = a[16][Depth] b[Depth][8] from the fragments of all lanes, and replaces each
/// lane's data by its four values of c. `value(word, i)`: value i of a word, which holds Depth / 8
/// values.
template <int Depth, class Value>
__attribute__((optimize("O3"))) void multiply_lanes(emulated_cuda::Lanes lanes, Value value) {
  constexpr int each = Depth / 8;
  float a[16][Depth], b[Depth][8], c[16][8] = {};
  for (int lane = 0; lane < 32; ++lane) {
    Operands o;
    std::memcpy(&o, lanes[lane], sizeof(o));
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < each; ++i) {
      for (int w = 0; w < 4; ++w) {
        a[g + w % 2 * 8][w / 2 * (Depth / 2) + t * each + i] = value(o.word[w], i);
      }
      for (int w = 0; w < 2; ++w) b[w * (Depth / 2) + t * each + i][g] = value(o.word[4 + w], i);
    }
  }
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < Depth; ++k) {
      for (int n = 0; n < 8; ++n) c[m][n] += a[m][k] * b[k][n];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4 * 2;
    const float mine[4] = {c[g][t], c[g][t + 1], c[g + 8][t], c[g + 8][t + 1]};
    std::memcpy(lanes[lane], mine, sizeof(mine));
  }
}
inline void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                     const char* what, void (*finish)(emulated_cuda::Lanes)) {
  const Operands mine{{a[0], a[1], a[2], a[3], b0, b1}};
  emulated_cuda::Block& block = emulated_cuda::block();
  const emulated_cuda::Lanes lanes = block.meet(full_warp, what, mine, finish).lanes;
  float sums[4];
  std::memcpy(sums, lanes[block.now().lane], sizeof(sums));
  for (int i = 0; i < 4; ++i) c[i] += sums[i];
}

}  // namespace emulated

inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  const auto words = emulated::load<4>(row, false, "ldmatrix.x4");
  for (std::size_t i = 0; i < 4; ++i) r[i] = words[i];
}
inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  const auto words = emulated::load<4>(row, true, "ldmatrix.x4.trans");
  for (std::size_t i = 0; i < 4; ++i) r[i] = words[i];
}
inline void load_two_matrices(std::uint32_t& r0, std::uint32_t& r1, const void* row) {
  const auto words = emulated::load<2>(row, false, "ldmatrix.x2");
  r0 = words[0];
  r1 = words[1];
}
inline void load_two_matrices_transposed(std::uint32_t& r0, std::uint32_t& r1, const void* row) {
  const auto words = emulated::load<2>(row, true, "ldmatrix.x2.trans");
  r0 = words[0];
  r1 = words[1];
}
inline void store_matrices(void* row, const std::uint32_t (&r)[4]) {
  struct Given {
    void* row;
    std::uint32_t word[4];
  } given{row, {r[0], r[1], r[2], r[3]}};
  emulated_cuda::Block& block = emulated_cuda::block();
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    emulated_cuda::fail("a row of a matrix that is not aligned");
  }
  const emulated_cuda::Lanes lanes = block.meet(emulated::full_warp, "stmatrix.x4", given).lanes;
  const unsigned lane = block.now().lane;
  for (unsigned pair = 0; pair < 4; ++pair) {
    std::memcpy(&given, lanes[lane % 8 * 4 + pair], sizeof(given));
    std::memcpy(static_cast<unsigned char*>(row) + pair * 4, &given.word[lane / 8], 4);
  }
  block.meet(emulated::full_warp, "stmatrix.x4", char{});
}
inline std::uint32_t transpose(std::uint32_t v) {
  emulated_cuda::Block& block = emulated_cuda::block();
  const emulated_cuda::Lanes lanes = block.meet(emulated::full_warp, "movmatrix", v).lanes;
  const unsigned lane = block.now().lane;
  const auto half = [&](unsigned row, unsigned column) {
    std::uint16_t value;
    std::memcpy(&value, lanes[row * 4 + column / 2] + column % 2 * 2, 2);
    return static_cast<std::uint32_t>(value);
  };
  return half(lane % 4 * 2, lane / 4) | half(lane % 4 * 2 + 1, lane / 4) << 16;
}

inline void multiply_bf16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                          std::uint32_t b1) {
  emulated::multiply(c, a, b0, b1, "mma.bf16", [](emulated_cuda::Lanes lanes) {
    emulated::multiply_lanes<16>(lanes, [](std::uint32_t word, int i) {
      return std::bit_cast<float>(i == 0 ? word << 16 : word & 0xffff0000U);
    });
  });
}
inline void multiply_fp16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                          std::uint32_t b1) {
  emulated::multiply(c, a, b0, b1, "mma.fp16", [](emulated_cuda::Lanes lanes) {
    emulated::multiply_lanes<16>(lanes, [](std::uint32_t word, int i) {
      return emulated_cuda::half_from_table(word >> (16 * i) & 0xffffU);
    });
  });
}
inline void multiply_shallow_bf16(float (&c)[4], std::uint32_t a0, std::uint32_t a1,
                                  std::uint32_t b) {
  multiply_bf16(c, {a0, a1, 0, 0}, b, 0);
}
inline void multiply_shallow_fp16(float (&c)[4], std::uint32_t a0, std::uint32_t a1,
                                  std::uint32_t b) {
  multiply_fp16(c, {a0, a1, 0, 0}, b, 0);
}
/// The tensor cores read the upper 19 bits of an operand.
inline void multiply_tf32(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                          std::uint32_t b1) {
  emulated::multiply(c, a, b0, b1, "mma.tf32", [](emulated_cuda::Lanes lanes) {
    emulated::multiply_lanes<8>(
        lanes, [](std::uint32_t word, int) { return std::bit_cast<float>(word & 0xffffe000U); });
  });
}

}  // namespace pvm::inline v0::detail
