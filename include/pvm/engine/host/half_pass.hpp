// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pass over a matrix of 16-bit weights: it multiplies by a vector from the right and, if asked
/// to, from the left, and does not change the weights. Sums are fp32.

#include <bit>
#include <cstddef>
#include <cstdint>

#include <pvm/core/tags.hpp>
#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0::simd {

/// Columns of a row that are contiguous: 32 weights of 16 bits are a cache line.
inline constexpr std::size_t half_group = 32;

/// A matrix M of 16-bit weights, in tiles of 8 rows by groups of 32 columns, and what a pass does:
///   dot:   dot[b][r] = M[r] . x[b]
///   axpy:  y[b] += q[b][r] * M[r]     (only in passes with Axpy)
struct HalfPass {
  const std::uint16_t* tiled = nullptr;
  std::size_t rows = 0;
  std::size_t columns = 0;  // a multiple of half_group; padding holds zeros

  std::size_t batch = 1;
  const float* x = nullptr;  // [batch][columns]
  float* dot = nullptr;      // [batch][dot_stride]
  std::size_t dot_stride = 0;

  float* y = nullptr;        // [batch][columns]
  const float* q = nullptr;  // [batch][q_stride]
  std::size_t q_stride = 0;

  Prefetcher* prefetcher = nullptr;  // is told of the cache lines used
};

/// 32 columns of a row, as two vectors.
struct LanePair {
  Lanes first, second;
};

/// How 32 weights of a row are stored in a cache line, and how they are widened to fp32.
template <class Precision>
struct HalfFormat;

/// A bf16 number is the high half of an fp32 number. Columns i (low half) and i + 16 (high half)
/// share a word, so that one shift and one mask give two vectors of 16 neighbouring columns.
template <>
struct HalfFormat<bf16> {
  [[gnu::always_inline]] static inline LanePair widen(const std::uint16_t* from) {
    const Words both = words_at(from);
    return {bits_as<Lanes>(both << 16U), bits_as<Lanes>(both & 0xffff0000U)};
  }
};

/// fp16 weights are stored in the order of the columns.
template <>
struct HalfFormat<fp16> {
  using Halves = std::uint16_t __attribute__((vector_size(32), aligned(2), may_alias));

  [[gnu::always_inline]] static inline LanePair widen(const std::uint16_t* from) {
    LanePair w;
    widen_sixteen(from, w.first);
    widen_sixteen(from + width, w.second);
    return w;
  }

  /// Converts with integer operations, because not every processor has an instruction for it.
  /// Exact, subnormal numbers included. Infinity and NaN do not occur (see narrow in
  /// weight_store.hpp).
  [[gnu::always_inline]] static inline void widen_sixteen(const std::uint16_t* from, Lanes& to) {
    constexpr std::uint32_t smallest_normal = 0x0400;
    constexpr std::uint32_t rebias = 112U << 23U;
    const Words half = __builtin_convertvector(*reinterpret_cast<const Halves*>(from), Words);
    const Words size = half & 0x7fffU;
    const Lanes subnormal = __builtin_convertvector(bits_as<SignedWords>(size), Lanes) * 0x1p-24F;
    const Words normal = (size << 13U) + rebias;
    const Words bits = size < smallest_normal ? bits_as<Words>(subnormal) : normal;
    to = bits_as<Lanes>(bits | ((half & 0x8000U) << 16U));
  }
};

/// The pass over one tile of `Rows` rows from r0 on, for sequence b. Only the `First` sequence
/// advances the prefetcher.
template <class Precision, bool Axpy, int Rows, bool First>
[[gnu::always_inline]] inline void half_tile(const HalfPass& p, const std::uint16_t* tile,
                                             std::size_t r0, std::size_t b) {
  Prefetcher prefetcher;
  if constexpr (First) prefetcher = *p.prefetcher;  // a copy, so that it stays in registers
  const float* const q = Axpy ? p.q + b * p.q_stride + r0 : nullptr;
  Lanes sums[Rows] = {};
  for (std::size_t c = 0; c < p.columns; c += half_group) {
    if constexpr (First) prefetcher.advance(Rows);
    const float* const x = p.x + b * p.columns + c;
    const Lanes x0 = at(x);
    const Lanes x1 = at(x + width);
    Lanes y0 = {}, y1 = {};
    float* const y = Axpy ? p.y + b * p.columns + c : nullptr;
    if constexpr (Axpy) {
      y0 = at(y);
      y1 = at(y + width);
    }
    for (int r = 0; r < Rows; ++r) {
      const LanePair w = HalfFormat<Precision>::widen(
          tile + (c * static_cast<std::size_t>(Rows) + static_cast<std::size_t>(r) * half_group));
      sums[r] += w.first * x0;
      sums[r] += w.second * x1;
      if constexpr (Axpy) {
        y0 += q[r] * w.first;
        y1 += q[r] * w.second;
      }
    }
    if constexpr (Axpy) {
      at(y) = y0;
      at(y + width) = y1;
    }
  }
  if constexpr (First) *p.prefetcher = prefetcher;
  for (int r = 0; r < Rows; ++r) {
    p.dot[b * p.dot_stride + r0 + static_cast<std::size_t>(r)] = sum(sums[r]);
  }
}

/// The whole pass, as a callable for simd::for_isa: tiles of eight rows, then the remainder rows
/// one by one.
template <class Precision, bool Axpy>
struct RunHalfPass {
  const HalfPass& p;

  [[gnu::always_inline]] inline void operator()() const {
    std::size_t r = 0;
    for (; r + tile_rows <= p.rows; r += tile_rows) run<static_cast<int>(tile_rows)>(r);
    for (; r < p.rows; ++r) run<1>(r);
  }

 private:
  template <int Rows>
  [[gnu::always_inline]] inline void run(std::size_t r) const {
    const std::uint16_t* const tile = p.tiled + r * p.columns;
    half_tile<Precision, Axpy, Rows, true>(p, tile, r, 0);
    for (std::size_t b = 1; b < p.batch; ++b) {
      half_tile<Precision, Axpy, Rows, false>(p, tile, r, b);
    }
  }
};

}  // namespace pvm::inline v0::simd
