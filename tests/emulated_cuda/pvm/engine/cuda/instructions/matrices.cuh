// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's instructions/matrices.cuh on the emulated device, with the
/// layouts of the PTX ISA.

#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail {

namespace emulated {

/// The value of the bits of a bf16 or fp16 number.
template <class Precision>
struct ValueOf {
  float operator()(std::uint16_t bits) const {
    if constexpr (std::same_as<Precision, bf16>) {
      return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    } else {
      return emulated_cuda::half_from_table(bits);
    }
  }
};

/// ldmatrix of `Count` matrices for all lanes: replaces the addresses that they give, lane l that
/// of row l % 8 (16 bytes) of matrix l / 8, by the words that they get. A word holds two 16-bit
/// values, of row lane / 4 and columns lane % 4 * 2 and the next; with `Transposed`, rows and
/// columns change roles.
template <int Count, bool Transposed>
__attribute__((optimize("O3"))) void load_lanes(emulated_cuda::Lanes lanes) {
  const unsigned char* rows[Count * 8];
  for (int row = 0; row < Count * 8; ++row) std::memcpy(&rows[row], lanes[row], sizeof(rows[row]));
  for (int lane = 0; lane < 32; ++lane) {
    const int line = lane / 4, pair = lane % 4 * 2;
    for (int matrix = 0; matrix < Count; ++matrix) {
      const unsigned char* const* at = rows + matrix * 8;
      unsigned char* word = lanes[lane] + matrix * 4;
      if (Transposed) {
        std::memcpy(word, at[pair] + line * 2, 2);
        std::memcpy(word + 2, at[pair + 1] + line * 2, 2);
      } else {
        std::memcpy(word, at[line] + pair * 2, 4);
      }
    }
  }
}
/// The last lane to arrive reads for all: no lane can change shared memory before.
template <int Count, bool Transposed>
std::array<std::uint32_t, Count> load(const void* row, const char* what) {
  emulated_cuda::Block& block = emulated_cuda::block();
  const unsigned lane = block.now().lane;
  if (lane < Count * 8 && reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    emulated_cuda::fail("a row of a matrix that is not aligned");
  }
  const emulated_cuda::Lanes lanes =
      block.meet(full_warp, what, row, load_lanes<Count, Transposed>).lanes;
  std::array<std::uint32_t, Count> out;
  std::memcpy(out.data(), lanes[lane], sizeof(out));
  return out;
}

/// What a lane gives to stmatrix of four matrices.
struct Stored {
  unsigned char* row;
  std::uint32_t word[4];
};
/// stmatrix for all lanes.
inline void store_lanes(emulated_cuda::Lanes lanes) {
  Stored given[32];
  for (int lane = 0; lane < 32; ++lane) std::memcpy(&given[lane], lanes[lane], sizeof(Stored));
  for (int lane = 0; lane < 32; ++lane) {
    for (int pair = 0; pair < 4; ++pair) {
      const Stored& from = given[lane % 8 * 4 + pair];
      std::memcpy(given[lane].row + pair * 4, &from.word[lane / 8], 4);
    }
  }
}

/// A lane's fragments of the operands of an mma: 4 words of A, then 2 of B.
struct Operands {
  std::uint32_t word[6];
};
/// Computes c[16][8] = a[16][Depth] b[Depth][8] from the fragments of all lanes, and replaces each
/// lane's data by its four values of c. `value(word, i)`: value i of a word of A, which holds
/// Depth / 8 values; `value_of_b`: the same of B.
template <int Depth, class Value, class ValueOfB>
__attribute__((optimize("O3"))) void multiply_lanes(emulated_cuda::Lanes lanes, Value value,
                                                    ValueOfB value_of_b) {
  using emulated_cuda::Four;
  constexpr int each = Depth / 8;
  float a[16][Depth], b[Depth][8];
  for (int lane = 0; lane < 32; ++lane) {
    Operands o;
    std::memcpy(&o, lanes[lane], sizeof(o));
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < each; ++i) {
      for (int w = 0; w < 4; ++w) {
        a[g + w % 2 * 8][w / 2 * (Depth / 2) + t * each + i] = value(o.word[w], i);
      }
      for (int w = 0; w < 2; ++w)
        b[w * (Depth / 2) + t * each + i][g] = value_of_b(o.word[4 + w], i);
    }
  }
  for (int m = 0; m < 16; ++m) {
    Four row[2] = {};
    for (int k = 0; k < Depth; ++k) {
      for (int half = 0; half < 2; ++half) {
        Four factors;
        std::memcpy(&factors, b[k] + half * 4, sizeof(factors));
        row[half] += a[m][k] * factors;
      }
    }
    float c[8];
    std::memcpy(c, row, sizeof(c));
    for (int t = 0; t < 4; ++t) std::memcpy(lanes[m % 8 * 4 + t] + m / 8 * 8, c + t * 2, 8);
  }
}
template <int Depth, class Value>
void multiply_lanes(emulated_cuda::Lanes lanes, Value value) {
  multiply_lanes<Depth>(lanes, value, value);
}
inline void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                     const char* what, void (*finish)(emulated_cuda::Lanes)) {
  Operands mine;
  std::memcpy(mine.word, a, sizeof(a));
  mine.word[4] = b0;
  mine.word[5] = b1;
  emulated_cuda::Block& block = emulated_cuda::block();
  const unsigned lane = block.now().lane;
  const emulated_cuda::Lanes lanes = block.meet(full_warp, what, mine, finish).lanes;
  emulated_cuda::Four sums;
  std::memcpy(&sums, lanes[lane], sizeof(sums));
  emulated_cuda::add(c, sums);
}

}  // namespace emulated

inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  const auto words = emulated::load<4, false>(row, "ldmatrix.x4");
  for (std::size_t i = 0; i < 4; ++i) r[i] = words[i];
}
inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  const auto words = emulated::load<4, true>(row, "ldmatrix.x4.trans");
  for (std::size_t i = 0; i < 4; ++i) r[i] = words[i];
}
inline void load_two_matrices(std::uint32_t& r0, std::uint32_t& r1, const void* row) {
  const auto words = emulated::load<2, false>(row, "ldmatrix.x2");
  r0 = words[0];
  r1 = words[1];
}
inline void load_two_matrices_transposed(std::uint32_t& r0, std::uint32_t& r1, const void* row) {
  const auto words = emulated::load<2, true>(row, "ldmatrix.x2.trans");
  r0 = words[0];
  r1 = words[1];
}
inline void store_matrices(void* row, const std::uint32_t (&r)[4]) {
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    emulated_cuda::fail("a row of a matrix that is not aligned");
  }
  const emulated::Stored given{static_cast<unsigned char*>(row), {r[0], r[1], r[2], r[3]}};
  emulated_cuda::block().meet(emulated::full_warp, "stmatrix.x4", given, emulated::store_lanes);
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

template <class Precision>
void multiply_16bit(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                    std::uint32_t b1) {
  emulated::multiply(c, a, b0, b1, "mma of 16 bits", [](emulated_cuda::Lanes lanes) {
    emulated::multiply_lanes<16>(lanes, [](std::uint32_t word, int i) {
      return emulated::ValueOf<Precision>{}(static_cast<std::uint16_t>(word >> (16 * i)));
    });
  });
}
template <class Precision>
void multiply_shallow(float (&c)[4], std::uint32_t a0, std::uint32_t a1, std::uint32_t b) {
  multiply_16bit<Precision>(c, {a0, a1, 0, 0}, b, 0);
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
