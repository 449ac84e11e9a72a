// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Folds of 16-bit weights: the rank-L update of its L listed gradients is added to a block. The
/// update is a product on tensor cores, (Hidden x L) factors by (L x 16) past inputs (W0) or d1
/// (W1). Each weight's halves are joined to an fp32 weight, the update is added, and the sum is
/// split again into the high half, which products read, and the low half in device memory
/// (masters.cuh).

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/cuda/units/weights/blocks_16bit.cuh>
#include <pvm/engine/cuda/units/weights/masters.cuh>

namespace pvm::inline v0::detail::units {

/// Writes the factors of the folds of unit u, times `coefficients` (by age) and Masters::scale, as
/// operands A in its area. For blocks of W0 (`w1` false) they are the listed d0 by age; for blocks
/// of W1 the listed r = [h | 1] by list row, in the order in which a block's list has d1. Reads
/// behind the last value of a row only affect rows of operands that nobody uses.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::write_factors(
    int u, bool w1, const float* coefficients) const {
  float weight[4];
  const float* from[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int e = operand_k(i);
    int age = e;
    if (w1) age = e < S::first_d1_row ? S::w1_terms : this->age_of(e);
    const bool is = age < (w1 ? S::w1_terms : S::terms);
    weight[i] = is ? M::scale * coefficients[age] : 0.0F;
    from[i] = this->listed_row(w1 ? S::hidden : S::d0, u, is ? age : 0);
  }
  uint4* to = factor_operands(w1 ? S::fold1 : S::fold0, u);
  if constexpr (S::pipelined) {
    // The rows are in device memory. Load the values of two operands before storing either of them:
    // a store in between would make the second load wait for another round trip. Of an odd number
    // of operands the last one is written twice.
    const auto tile_of = [](int k) { return S::operands % 2 == 0 ? k : min(k, S::operands - 1); };
#pragma unroll 1
    for (int first = 0; first < S::operands; first += 2) {
      float d[2][4][2];
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const int r = 16 * tile_of(first + k / 4) + row() + k % 2 * 8, pair = k % 4 / 2 * 2;
        d[k / 4][k % 4][0] = from[pair][r];
        d[k / 4][k % 4][1] = from[pair + 1][r];
      }
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        std::uint32_t v[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const int pair = i / 2 * 2;
          v[i] = Math::pair(weight[pair] * d[k][i][0], weight[pair + 1] * d[k][i][1]);
        }
        to[tile_of(first + k) * 32] = make_uint4(v[0], v[1], v[2], v[3]);
      }
    }
  } else {
#pragma unroll 1
    for (int tile = 0; tile < S::operands; ++tile) {
      std::uint32_t v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = 16 * tile + row() + i % 2 * 8;
        const int k = i / 2 * 2;
        v[i] = Math::pair(weight[k] * from[k][r], weight[k + 1] * from[k + 1][r]);
      }
      to[tile * 32] = make_uint4(v[0], v[1], v[2], v[3]);
    }
  }
}

/// Loads this lane's words of remainder row row(); returns zeros in lanes whose row() is not below
/// `rows`.
template <class Precision, int Hidden, Home home>
template <class Block>
__device__ __forceinline__ uint2 Blocks<Precision, Hidden, home>::load_remainder(const Block& block,
                                                                                 int rows) const {
  uint2 words{};
  if (row() < rows) {
    words = __ldcg(reinterpret_cast<const uint2*>(a.weights + lane_remainder_start(block)));
  }
  return words;
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ auto Blocks<Precision, Hidden, home>::load_low_halves(
    const Place& at) const -> LowHalves {
  LowHalves low{};
  const std::uint32_t* from = low_halves_of(a.weights, at.low_start);
#pragma unroll
  for (int i = 0; i < S::pairs; ++i) low.tiles[i] = M::load(from, i, lane());
  if (row() < at.rows) {
    low.remainder =
        __ldcg(reinterpret_cast<const uint2*>(low_halves_of(a.weights, remainder_low_start(at))));
  }
  return low;
}

/// Makes what a fold adds to a pair of tiles. Tensor cores truncate when they accumulate, which
/// would pull weights towards 0 over many folds. So they compute only what is added, which happens
/// in ordinary arithmetic.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::multiply_factors(
    Additions& added, const uint4& factors, const Columns& columns) {
  const std::uint32_t v[4] = {factors.x, factors.y, factors.z, factors.w};
#pragma unroll
  for (int right = 0; right < 2; ++right) {
    Math::multiply(added[right], v, columns.v[right][0], columns.v[right][1]);
  }
}

/// Adds it to pair `i` of the tiles in `w`, and stores their low halves to `sink`.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::add_to_tiles(
    int i, const Additions& added, LowHalves& low, Weights& w, std::uint32_t* sink) const {
  Word tiles = w.get(i);
  M::add(tiles, low.tiles[i], added);
  w.set(i, tiles);
  M::store(sink, i, lane(), low.tiles[i]);
}

/// Adds the rank-L update factors * columns, of all L listed gradients, to the block at `at`, whose
/// tiles are in `w` and whose remainder rows are in `remainder`. The low halves and the remainder
/// rows are stored to `to`, which is laid out like all weights; storing `w` is left to the caller.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::fold(
    const Place& at, std::uint32_t* to, const Factors& factors, const Columns& columns,
    LowHalves& low, Weights& w, uint2& remainder) const {
  std::uint32_t* sink = low_halves_of(to, at.low_start);
#pragma unroll
  for (int i = 0; i < S::operands; ++i) {
    Additions added = {};
    multiply_factors(added, factors.operand(i), columns);
    if (i < S::pairs) {
      add_to_tiles(i, added, low, w, sink);
    } else if (row() < at.rows) {
      M::add_row(remainder, low.remainder, added);
      *reinterpret_cast<uint2*>(low_halves_of(to, remainder_low_start(at))) = low.remainder;
      *reinterpret_cast<uint2*>(to + at.remainder) = remainder;
    }
  }
}

/// Starts the loads of the inputs of a block's columns in the steps of listed gradients: word i is
/// of the gradient of age age_of_word(i). There are `terms`; beyond them the oldest one is
/// repeated.
template <class Precision, int Hidden, Home home>
template <class Age>
__device__ __forceinline__ auto Blocks<Precision, Hidden, home>::load_past_inputs(
    const W0Block& block, Age age_of_word, int terms) const -> PastInputs {
  std::uint32_t at[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    at[half] = this->place_in_past(block, static_cast<std::uint32_t>(8 * half + row()));
  }
  const std::uint32_t newest = static_cast<std::uint32_t>(now().step) - block.back;
  PastInputs past;
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const auto age = static_cast<std::uint32_t>(min(age_of_word(i), terms - 1));
    const std::uint32_t then = ((newest - age) & (S::ring - 1)) * a.row_words;
#pragma unroll
    for (int half = 0; half < 2; ++half) past.word[half][i] = load_past(a.past + (at[half] + then));
  }
  return past;
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ auto Blocks<Precision, Hidden, home>::past_columns(
    const PastInputs& past) -> Columns {
  Columns b;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    b.v[half][0] = __byte_perm(past.word[half][0], past.word[half][1], 0x5410);
    b.v[half][1] = __byte_perm(past.word[half][2], past.word[half][3], 0x5410);
  }
  return b;
}

/// Folds a block of W0 whose tiles are in `w`, with the factors of its unit; see `fold`.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::fold_block(
    const W0Block& block, std::uint32_t* to, Weights& w, uint2& remainder) const {
  const Place at = place(block);
  LowHalves low = load_low_halves(at);
  const Factors factors = load_factors(S::fold0, unit_in(block.what));
  // The factors of ages beyond the list are 0.
  const PastInputs past = load_past_inputs(
      block, [&](int i) { return operand_k(i); }, S::terms);
  fold(at, to, factors, past_columns(past), low, w, remainder);
}

/// Loads, folds and stores a block of W0: in shared memory if it is multiplied from there,
/// otherwise in device memory (for a held block, too, which its warp then loads again). Its
/// remainder rows are read from `remainder_from` and written to `remainder_to`.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::fold(
    const W0Block& block, const std::uint32_t* remainder_from, std::uint32_t* remainder_to) const {
  Weights w;
  if (block.where == in_memory) {
    load_streamed(w, streamed(block));
  } else {
    load_shared(w, in_shared(block.where));
  }
  uint2 remainder = remainder_weights(remainder_from);
  fold_block(block, a.weights, w, remainder);
  if (row() < S::remainder_rows) {
    *reinterpret_cast<uint2*>(remainder_to + remainder_offset(row())) = remainder;
  }
  store(block, w);
}

/// Folds a streamed block of W0, whose remainder rows are in device memory, too. Everything that
/// the fold reads is requested before anything is used: one round trip.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::fold_streamed(
    const W0Block& block) const {
  Weights w;
  load_streamed(w, streamed(block));
  uint2 remainder = load_remainder(block, S::remainder_rows);
  fold_block(block, a.weights, w, remainder);
  write_tiles(streamed(block), w);
}

/// The second factor of a fold of Wc: hidden values of the context by list row, times the row's
/// coefficient, which is 0 for rows without a listed gradient.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ auto Blocks<Precision, Hidden, home>::context_columns(
    const PastInputs& past, const float* coefficients) const -> Columns {
  float weight[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int e = operand_k(i), age = e < S::first_d1_row ? S::w1_terms : this->age_of(e);
    weight[i] = age < S::w1_terms ? M::scale * coefficients[age] : 0.0F;
  }
  Columns b;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const auto value = [&](int i) { return weight[i] * this->context_value(past.word[half][i]); };
    b.v[half][0] = Math::pair(value(0), value(1));
    b.v[half][1] = Math::pair(value(2), value(3));
  }
  return b;
}

/// Adds the listed gradients to a block of Wc whose tiles are in `w`; low halves are stored to
/// `to`. The first factor is d1, which the lists of the group's blocks of W1 have.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::fold_context_block(
    const W0Block& block, const float* coefficients, std::uint32_t* to, Weights& w) const {
  const RowGroup& group = this->row_group(unit_in(block.what));
  const Place at{low_start_of(block), 0, 0};
  LowHalves low = load_low_halves(at);
  uint4 listed[S::pairs];
  const auto last = group.out + (group.phase >> 8) - columns;
#pragma unroll
  for (int i = 0; i < S::pairs; ++i) {
    listed[i] = tiles_at(this->list_of(min(group.out + i * columns, last)));
  }
  const PastInputs past = load_past_inputs(
      block, [&](int i) { return operand_k(i) < S::first_d1_row ? 0 : this->age_of(operand_k(i)); },
      S::w1_terms);
  const Columns columns_of_past = context_columns(past, coefficients);
  std::uint32_t* sink = low_halves_of(to, at.low_start);
#pragma unroll
  for (int i = 0; i < S::pairs; ++i) {
    Additions added = {};
    multiply_factors(added, transposed(listed[i]), columns_of_past);
    add_to_tiles(i, added, low, w, sink);
  }
}

/// Folds a block of Wc.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::fold_context(
    const W0Block& block) const {
  Weights w;
  load_streamed(w, streamed(block));
  const auto u = static_cast<int>(this->row_group(unit_in(block.what)).unit);
  fold_context_block(block, this->fold_coefficients(u, true), a.weights, w);
  write_tiles(streamed(block), w);
}

/// Folds a block of W1 in shared memory.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::fold_w1(
    const W1Block& block) const {
  Weights w;
  load_w1(w, shared + block.where);
  fold_w1(block, w);
}

/// Writes the block's W(t), its weights with all listed gradients added, to `to`, which is laid out
/// like all weights. The block itself does not change. The factors of its unit must have been
/// written with the present coefficients of its phase.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::materialise(
    const W0Block& block, std::uint32_t* to) const {
  Weights w;
  load_streamed(w, streamed(block));
  uint2 remainder = load_remainder(block, S::remainder_rows);
  fold_block(block, to, w, remainder);
  write_tiles(reinterpret_cast<uint4*>(to + this->start_of(block)) + lane(), w);
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::materialise(
    const W1Block& block, std::uint32_t* to) const {
  Weights w;
  load_streamed(w, streamed(block));
  fold_w1_block(block, to, w, false);
  write_tiles(reinterpret_cast<uint4*>(to + this->start_of(block)) + lane(), w);
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::materialise_context(
    const W0Block& block, std::uint32_t* to) const {
  Weights w;
  load_streamed(w, streamed(block));
  const auto u = static_cast<int>(this->row_group(unit_in(block.what)).unit);
  const int phase = phase_in(block.what) - S::period;
  fold_context_block(block, this->w1_coefficients_of(u, phase), to, w);
  write_tiles(reinterpret_cast<uint4*>(to + this->start_of(block)) + lane(), w);
}

/// Adds the listed gradients to a block of W1 whose tiles are in `w`. Low halves and remainder rows
/// are stored to `to`; with `keep` the tiles and the list of the block are updated as well.
template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Blocks<Precision, Hidden, home>::fold_w1_block(const W1Block& block,
                                                                               std::uint32_t* to,
                                                                               Weights& w,
                                                                               bool keep) const {
  std::uint32_t* list = this->list_of(block);
  uint4 listed = tiles_at(list);
  uint2 remainder = make_uint2(listed.x, listed.z);
  const Place at = place(block);
  LowHalves low = load_low_halves(at);
  const Factors factors = load_factors(S::fold1, unit_in(block.what));
  fold(at, to, factors, listed_columns(list, listed), low, w, remainder);
  if (!keep) return;
  listed.x = remainder.x;
  listed.z = remainder.y;
  __syncwarp();  // all lanes have read the list
  store_w1(block, w);
  store_tiles(list, listed);
}

}  // namespace pvm::inline v0::detail::units
