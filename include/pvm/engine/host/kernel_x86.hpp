// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Kernels with intrinsics for 16-bit weights on x86: AVX-512 BF16 for products of pairs, F16C for
/// widening fp16, and AVX2 for bf16.

#include <pvm/engine/host/library_kernel.hpp>

#if defined(__x86_64__)

#include <cstddef>
#include <cstdint>

#include <immintrin.h>

namespace pvm::inline v0 {

namespace detail {

/// Calls tile.run<Rows>(p, first row, sequence) for the tiles of eight rows, then for the remainder
/// rows one by one, and tells the prefetcher what will be used: one cache line per row and group of
/// columns.
template <class Tile>
void for_half_tiles(const simd::HalfPass& p, Tile tile) {
  constexpr std::size_t rows = simd::tile_rows;
  const auto lines = static_cast<std::ptrdiff_t>(p.columns / simd::half_group);
  std::size_t r = 0;
  for (; r + rows <= p.rows; r += rows) {
    for (std::ptrdiff_t i = 0; i < lines; ++i)
      p.prefetcher->advance(static_cast<std::ptrdiff_t>(rows));
    for (std::size_t b = 0; b < p.batch; ++b) tile.template run<static_cast<int>(rows)>(p, r, b);
  }
  for (; r < p.rows; ++r) {
    p.prefetcher->advance(lines);
    for (std::size_t b = 0; b < p.batch; ++b) tile.template run<1>(p, r, b);
  }
}

/// bf16 with vdpbf16ps, which multiplies pairs of bf16 and adds both products to an fp32 sum. So x
/// is rounded to bf16 as well. The factors q of axpy stay fp32.
template <bool Axpy>
struct Bf16Tile {
  template <int Rows>
  [[gnu::target(PVM_X86_64_V4 ",avx512bf16")]] static void run(const simd::HalfPass& p,
                                                               std::size_t r0, std::size_t b) {
    using simd::at, simd::Lanes, simd::Words, simd::bits_as;
    const std::uint16_t* w = p.tiled + r0 * p.columns;
    const float* x = p.x + b * p.columns;
    const float* q = Axpy ? p.q + b * p.q_stride + r0 : nullptr;
    float* y = Axpy ? p.y + b * p.columns : nullptr;
    __m512 sums[Rows];
    for (int r = 0; r < Rows; ++r) sums[r] = _mm512_setzero_ps();
    for (std::size_t c = 0; c < p.columns; c += simd::half_group) {
      // x as pairs of bf16 like the weights: columns i and i + 16 share a word.
      const Words low = (bits_as<Words>(at(x + c)) + 0x8000U) >> 16U;
      const Words high = (bits_as<Words>(at(x + c + simd::width)) + 0x8000U) & 0xffff0000U;
      const Words both = low | high;
      // An unaligned load: Words need not be aligned, __m512i must be.
      const __m512i pairs = _mm512_loadu_si512(&both);
      Lanes y0 = {}, y1 = {};
      if constexpr (Axpy) {
        y0 = at(y + c);
        y1 = at(y + c + simd::width);
      }
      for (int r = 0; r < Rows; ++r, w += simd::half_group) {
        const __m512i two = _mm512_loadu_si512(w);
        sums[r] = _mm512_dpbf16_ps(sums[r], bits_as<__m512bh>(two), bits_as<__m512bh>(pairs));
        if constexpr (Axpy) {
          y0 += q[r] * bits_as<Lanes>(bits_as<Words>(two) << 16U);
          y1 += q[r] * bits_as<Lanes>(bits_as<Words>(two) & 0xffff0000U);
        }
      }
      if constexpr (Axpy) {
        at(y + c) = y0;
        at(y + c + simd::width) = y1;
      }
    }
    float* dot = p.dot + b * p.dot_stride + r0;
    for (int r = 0; r < Rows; ++r) dot[r] = simd::sum(bits_as<Lanes>(sums[r]));
  }
};

/// fp16, sixteen numbers widened by one instruction.
template <bool Axpy>
struct Fp16Tile512 {
  template <int Rows>
  [[gnu::target(PVM_X86_64_V4)]] static void run(const simd::HalfPass& p, std::size_t r0,
                                                 std::size_t b) {
    using simd::at, simd::Lanes, simd::bits_as;
    const std::uint16_t* w = p.tiled + r0 * p.columns;
    const float* x = p.x + b * p.columns;
    const float* q = Axpy ? p.q + b * p.q_stride + r0 : nullptr;
    float* y = Axpy ? p.y + b * p.columns : nullptr;
    Lanes sums[Rows] = {};
    for (std::size_t c = 0; c < p.columns; c += simd::half_group) {
      const Lanes x0 = at(x + c), x1 = at(x + c + simd::width);
      Lanes y0 = {}, y1 = {};
      if constexpr (Axpy) {
        y0 = at(y + c);
        y1 = at(y + c + simd::width);
      }
      for (int r = 0; r < Rows; ++r, w += simd::half_group) {
        const __m512 wide0 = widen(w), wide1 = widen(w + simd::width);
        const Lanes w0 = bits_as<Lanes>(wide0), w1 = bits_as<Lanes>(wide1);
        sums[r] += w0 * x0;
        sums[r] += w1 * x1;
        if constexpr (Axpy) {
          y0 += q[r] * w0;
          y1 += q[r] * w1;
        }
      }
      if constexpr (Axpy) {
        at(y + c) = y0;
        at(y + c + simd::width) = y1;
      }
    }
    float* dot = p.dot + b * p.dot_stride + r0;
    for (int r = 0; r < Rows; ++r) dot[r] = simd::sum(sums[r]);
  }

 private:
  [[gnu::target(PVM_X86_64_V4), gnu::always_inline]] static inline __m512 widen(
      const std::uint16_t* from) {
    return _mm512_maskz_cvtph_ps(0xffff,
                                 _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)));
  }
};

/// Sum of eight floats, always in the same order.
[[gnu::target(PVM_X86_64_V3)]] inline float sum_of_eight(__m256 v) {
  alignas(32) float lane[8];
  _mm256_store_ps(lane, v);
  return ((lane[0] + lane[4]) + (lane[2] + lane[6])) + ((lane[1] + lane[5]) + (lane[3] + lane[7]));
}

/// bf16 in AVX2 vectors of eight words. The library's loop over sixteen would spill its sums.
template <bool Axpy>
struct Bf16Tile256 {
  template <int Rows>
  [[gnu::target(PVM_X86_64_V3)]] static void run(const simd::HalfPass& p, std::size_t r0,
                                                 std::size_t b) {
    const std::uint16_t* w = p.tiled + r0 * p.columns;
    const float* x = p.x + b * p.columns;
    const float* q = Axpy ? p.q + b * p.q_stride + r0 : nullptr;
    float* y = Axpy ? p.y + b * p.columns : nullptr;
    const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000U));
    __m256 sums[Rows];
    for (int r = 0; r < Rows; ++r) sums[r] = _mm256_setzero_ps();
    for (std::size_t c = 0; c < p.columns; c += simd::half_group, w += Rows * simd::half_group) {
      for (std::size_t k = 0; k < 2; ++k) {  // eight words (16 columns) of every row
        const std::size_t low = c + 8 * k;
        const std::size_t high = low + simd::width;
        const __m256 x0 = _mm256_loadu_ps(x + low), x1 = _mm256_loadu_ps(x + high);
        __m256 y0 = Axpy ? _mm256_loadu_ps(y + low) : x0;
        __m256 y1 = Axpy ? _mm256_loadu_ps(y + high) : x1;
        for (int r = 0; r < Rows; ++r) {
          const auto* from = w + static_cast<std::size_t>(r) * simd::half_group + 16 * k;
          const __m256i two = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
          const __m256 w0 = _mm256_castsi256_ps(_mm256_slli_epi32(two, 16));
          const __m256 w1 = _mm256_castsi256_ps(_mm256_and_si256(two, upper));
          sums[r] = _mm256_fmadd_ps(w1, x1, _mm256_fmadd_ps(w0, x0, sums[r]));
          if constexpr (Axpy) {
            const __m256 factor = _mm256_set1_ps(q[r]);
            y0 = _mm256_fmadd_ps(factor, w0, y0);
            y1 = _mm256_fmadd_ps(factor, w1, y1);
          }
        }
        if constexpr (Axpy) {
          _mm256_storeu_ps(y + low, y0);
          _mm256_storeu_ps(y + high, y1);
        }
      }
    }
    float* dot = p.dot + b * p.dot_stride + r0;
    for (int r = 0; r < Rows; ++r) dot[r] = sum_of_eight(sums[r]);
  }
};

/// fp16, eight numbers widened by one instruction.
template <bool Axpy>
struct Fp16Tile256 {
  static constexpr int parts = 4;  // vectors of eight in a group of columns

  template <int Rows>
  [[gnu::target(PVM_X86_64_V3)]] static void run(const simd::HalfPass& p, std::size_t r0,
                                                 std::size_t b) {
    const std::uint16_t* w = p.tiled + r0 * p.columns;
    const float* x = p.x + b * p.columns;
    const float* q = Axpy ? p.q + b * p.q_stride + r0 : nullptr;
    float* y = Axpy ? p.y + b * p.columns : nullptr;
    __m256 sums[Rows];
    for (int r = 0; r < Rows; ++r) sums[r] = _mm256_setzero_ps();
    for (std::size_t c = 0; c < p.columns; c += simd::half_group, w += Rows * simd::half_group) {
      for (std::size_t k = 0; k < parts; ++k) {  // eight columns, all rows
        const std::size_t at = c + 8 * k;
        const __m256 here = _mm256_loadu_ps(x + at);
        __m256 out = Axpy ? _mm256_loadu_ps(y + at) : here;
        for (int r = 0; r < Rows; ++r) {
          const auto* from = w + static_cast<std::size_t>(r) * simd::half_group + 8 * k;
          const __m256 wide =
              _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from)));
          sums[r] = _mm256_fmadd_ps(wide, here, sums[r]);
          if constexpr (Axpy) out = _mm256_fmadd_ps(_mm256_set1_ps(q[r]), wide, out);
        }
        if constexpr (Axpy) _mm256_storeu_ps(y + at, out);
      }
    }
    float* dot = p.dot + b * p.dot_stride + r0;
    for (int r = 0; r < Rows; ++r) dot[r] = sum_of_eight(sums[r]);
  }
};

/// The HostKernel interface for a tile type.
template <template <bool> class Tile>
struct HalfKernel {
  template <bool Axpy>
  static void run(const simd::HalfPass& pass) {
    for_half_tiles(pass, Tile<Axpy>{});
  }
};

template <>
struct LibraryKernel<bf16, simd::Isa::avx512_bf16> : HalfKernel<Bf16Tile> {};
template <>
struct LibraryKernel<bf16, simd::Isa::avx2> : HalfKernel<Bf16Tile256> {};
template <>
struct LibraryKernel<fp16, simd::Isa::avx512> : HalfKernel<Fp16Tile512> {};
template <>
struct LibraryKernel<fp16, simd::Isa::avx2> : HalfKernel<Fp16Tile256> {};

}  // namespace detail

}  // namespace pvm::inline v0

#endif
