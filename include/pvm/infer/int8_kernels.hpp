// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels of int8_pass.hpp: with VNNI, the instructions for products of 8 bits, and without.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/host/simd.hpp>
#include <pvm/infer/int8_pass.hpp>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#endif

namespace pvm::inline v0::infer {

/// Runs a pass in tiles: Tile::run<Rows, Batch>(weights, step, columns, x, sums, stride), where
/// group g of row r lies at weights + (g * step + r) * int8_group.
template <class Tile>
void int8_pass(const Int8Pass& p) {
  constexpr std::size_t tile = int8_tile_rows;
  std::size_t r = 0;
  for (; r + tile <= p.rows; r += tile) {
    const std::int8_t* w = p.weights + r * p.columns;
    std::size_t b = 0;
    for (; b + 4 <= p.batch; b += 4) {
      const std::uint8_t* x = p.x + b * p.columns;
      std::int32_t* out = p.sums + b * p.stride + r;
      Tile::template run<4, 4>(w, tile, p.columns, x, out, p.stride);
      Tile::template run<4, 4>(w + 4 * int8_group, tile, p.columns, x, out + 4, p.stride);
    }
    for (; b < p.batch; ++b) {
      Tile::template run<8, 1>(w, tile, p.columns, p.x + b * p.columns, p.sums + b * p.stride + r,
                               p.stride);
    }
  }
  for (; r < p.rows; ++r) {
    for (std::size_t b = 0; b < p.batch; ++b) {
      Tile::template run<1, 1>(p.weights + r * p.columns, 1, p.columns, p.x + b * p.columns,
                               p.sums + b * p.stride + r, p.stride);
    }
  }
}

/// In plain loops, compiled for the best instruction set of before VNNI.
struct PlainInt8Tile {
  template <int Rows, int Batch>
  struct Work {
    const std::int8_t* w;
    std::size_t step, columns;
    const std::uint8_t* x;
    std::int32_t* sums;
    std::size_t stride;

    [[gnu::always_inline]] inline void operator()() const {
      for (std::size_t b = 0; b < Batch; ++b) {
        for (std::size_t r = 0; r < Rows; ++r) sums[b * stride + r] = dot(r, x + b * columns);
      }
    }
    [[gnu::always_inline]] inline std::int32_t dot(std::size_t r, const std::uint8_t* v) const {
      std::int32_t sum = 0;
      const std::int8_t* row = w + r * int8_group;
      for (std::size_t c = 0; c < columns; c += int8_group, row += step * int8_group) {
        for (std::size_t i = 0; i < int8_group; ++i) sum += row[i] * v[c + i];
      }
      return sum;
    }
  };
  template <int Rows, int Batch>
  static void run(const std::int8_t* w, std::size_t step, std::size_t columns,
                  const std::uint8_t* x, std::int32_t* sums, std::size_t stride) {
    simd::for_best_isa(Work<Rows, Batch>{w, step, columns, x, sums, stride});
  }
};

#if defined(__x86_64__)
#define PVM_VNNI512 PVM_X86_64_V4 ",avx512vnni"
#define PVM_VNNI256 PVM_X86_64_V3 ",avxvnni"

/// With AVX-512 VNNI: 64 products an instruction.
struct Vnni512Tile {
  template <int Rows, int Batch>
  [[gnu::target(PVM_VNNI512)]] static void run(const std::int8_t* w, std::size_t step,
                                               std::size_t columns, const std::uint8_t* x,
                                               std::int32_t* sums, std::size_t stride) {
    __m512i sum[Batch][Rows];
    for (auto& of_row : sum) {
      for (__m512i& one : of_row) one = _mm512_setzero_si512();
    }
    for (std::size_t c = 0; c < columns; c += int8_group, w += step * int8_group) {
      __m512i v[Batch];
      for (int b = 0; b < Batch; ++b) {
        v[b] = _mm512_loadu_si512(x + static_cast<std::size_t>(b) * columns + c);
      }
      for (int r = 0; r < Rows; ++r) {
        const __m512i row = _mm512_loadu_si512(w + static_cast<std::size_t>(r) * int8_group);
        for (int b = 0; b < Batch; ++b) sum[b][r] = _mm512_dpbusd_epi32(sum[b][r], v[b], row);
      }
    }
    for (int b = 0; b < Batch; ++b) {
      std::int32_t* out = sums + static_cast<std::size_t>(b) * stride;
      if constexpr (Rows == 1) {
        *out = _mm_cvtsi128_si32(four_sums(sum[b], 0));
      } else {
        for (int r = 0; r < Rows; r += 4) {
          _mm_storeu_si128(reinterpret_cast<__m128i*>(out + r), four_sums(sum[b] + r, 1));
        }
      }
    }
  }

 private:
  /// The sums of v[0], v[step], v[2 step] and v[3 step]. (GCC 12 warns of the functions without a
  /// mask.)
  [[gnu::target(PVM_VNNI512)]] static __m128i four_sums(const __m512i* v, int step) {
    __m256i half[4];
    for (int i = 0; i < 4; ++i) {
      half[i] = _mm256_add_epi32(_mm512_maskz_extracti64x4_epi64(0xff, v[i * step], 0),
                                 _mm512_maskz_extracti64x4_epi64(0xff, v[i * step], 1));
    }
    const __m256i all =
        _mm256_hadd_epi32(_mm256_hadd_epi32(half[0], half[1]), _mm256_hadd_epi32(half[2], half[3]));
    return _mm_add_epi32(_mm256_castsi256_si128(all), _mm256_extracti128_si256(all, 1));
  }
};

/// With AVX-VNNI: 32 products an instruction. It has half as many registers.
struct Vnni256Tile {
  template <int Rows, int Batch>
  [[gnu::target(PVM_VNNI256)]] static void run(const std::int8_t* w, std::size_t step,
                                               std::size_t columns, const std::uint8_t* x,
                                               std::int32_t* sums, std::size_t stride) {
    if constexpr (Batch > 2) {
      run<Rows, 2>(w, step, columns, x, sums, stride);
      run<Rows, Batch - 2>(w, step, columns, x + 2 * columns, sums + 2 * stride, stride);
    } else {
      __m256i sum[Batch][Rows];
      for (auto& of_row : sum) {
        for (__m256i& one : of_row) one = _mm256_setzero_si256();
      }
      for (std::size_t c = 0; c < columns; c += int8_group, w += step * int8_group) {
        for (std::size_t half = 0; half < int8_group; half += 32) {
          __m256i v[Batch];
          for (int b = 0; b < Batch; ++b) {
            v[b] = at(x + static_cast<std::size_t>(b) * columns + c + half);
          }
          for (int r = 0; r < Rows; ++r) {
            const __m256i row = at(w + static_cast<std::size_t>(r) * int8_group + half);
            for (int b = 0; b < Batch; ++b) {
              sum[b][r] = _mm256_dpbusd_avx_epi32(sum[b][r], v[b], row);
            }
          }
        }
      }
      for (int b = 0; b < Batch; ++b) {
        for (int r = 0; r < Rows; ++r) {
          sums[static_cast<std::size_t>(b) * stride + static_cast<std::size_t>(r)] =
              sum_of(sum[b][r]);
        }
      }
    }
  }

 private:
  [[gnu::target(PVM_VNNI256)]] static __m256i at(const void* from) {
    return _mm256_loadu_si256(static_cast<const __m256i*>(from));
  }
  [[gnu::target(PVM_VNNI256)]] static std::int32_t sum_of(__m256i v) {
    const __m128i four = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
    const __m128i two = _mm_add_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_add_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
  }
};
#undef PVM_VNNI512
#undef PVM_VNNI256
#endif

/// The kernels that this processor can run, the fastest first.
inline std::vector<Int8Kernel> int8_kernels() {
  std::vector<Int8Kernel> all;
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (simd::best_isa() >= simd::Isa::avx512 && __builtin_cpu_supports("avx512vnni")) {
    all.push_back({int8_pass<Vnni512Tile>, "AVX-512 VNNI"});
  }
  if (simd::best_isa() >= simd::Isa::avx2 && __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 &&
      (a >> 4 & 1U) != 0) {
    all.push_back({int8_pass<Vnni256Tile>, "AVX-VNNI"});
  }
#endif
  all.push_back({int8_pass<PlainInt8Tile>, simd::isa_name()});
  return all;
}

}  // namespace pvm::inline v0::infer
