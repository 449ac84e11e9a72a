// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Folds of fp32 weights: a block gains one outer product for each listed gradient, in ordinary
/// arithmetic, and is changed where it is.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/cuda/units/weights/blocks_fp32.cuh>

namespace pvm::inline v0::detail::units {

/// Writes the coefficients of the folds of unit u, by age, to its area, and the number of ages up
/// to the last coefficient that is not 0, where the loops of folds end. The folds read the listed
/// d0 and r from the unit's history themselves.
template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::write_factors(
    int u, const float* coefficients) const {
  const float mine = lane() < S::terms ? coefficients[lane()] : 0.0F;
  const unsigned there = __ballot_sync(every_lane, mine != 0);
  std::uint32_t* to = this->factors_of(S::fold0, u);
  if (lane() < S::terms) to[lane()] = __float_as_uint(mine);
  if (lane() == 0)
    to[S::table_row - 1] = 32U - static_cast<unsigned>(__clz(static_cast<int>(there)));
}

/// Load and store the remainder rows of a block, of which there are `row_count`; lanes of other
/// rows get zeros and store nothing.
template <int Hidden, Home home>
__device__ __forceinline__ auto Blocks<fp32, Hidden, home>::load_remainder(const float* rows,
                                                                           int row_count) const
    -> Remainder {
  Remainder remainder{};
  if (row() >= row_count) return remainder;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    remainder.of[k] = *reinterpret_cast<const float2*>(rows + remainder_offset(k));
  }
  return remainder;
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::store_remainder(
    float* rows, const Remainder& remainder, int row_count) const {
  if (row() >= row_count) return;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    *reinterpret_cast<float2*>(rows + remainder_offset(k)) = remainder.of[k];
  }
}

/// Adds the outer product c d x^T, where d is a row of a unit's history (d0 or r), to a block with
/// `row_count` remainder rows.
template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::add_outer(
    Weights& w, Remainder& remainder, const float* d, float c, Values x, int row_count) const {
  const auto add = [](float& low, float& high, float factor, float2 v) {
    low = __fmaf_rn(factor, v.x, low);
    high = __fmaf_rn(factor, v.y, high);
  };
#pragma unroll
  for (int k = 0; k < 2; ++k) x.of[k] = make_float2(c * x.of[k].x, c * x.of[k].y);
#pragma unroll
  for (int i = 0; i < S::pairs; ++i) {
    const float upper = d[16 * i + row()], lower = d[16 * i + 8 + row()];
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      float4& tile = w.tiles[2 * i + k];
      add(tile.x, tile.y, upper, x.of[k]);
      add(tile.z, tile.w, lower, x.of[k]);
    }
  }
  if (row() >= row_count) return;
  const float last = d[S::tiles * 8 + row()];
#pragma unroll
  for (int k = 0; k < 2; ++k) add(remainder.of[k].x, remainder.of[k].y, last, x.of[k]);
}

/// Starts the loads of the past inputs of a block's columns.
template <int Hidden, Home home>
__device__ __forceinline__ auto Blocks<fp32, Hidden, home>::load_past_inputs(
    const W0Block& block) const -> PastInputs {
  const auto column = static_cast<std::uint32_t>(lane() % columns);
  const std::uint32_t* from = a.past + this->place_in_past(block, column);
  const auto newest = static_cast<unsigned>(now().step) - block.back;
  PastInputs past;
#pragma unroll
  for (int i = 0; i < (S::terms + 1) / 2; ++i) {
    const unsigned age = static_cast<unsigned>(lane() / columns + 2 * i);
    past.v[i] = __ldcg(from + ((newest - age) & (S::ring - 1)) * a.row_words);
  }
  return past;
}

/// Stores the loaded values to `past_inputs`.
template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::store_past_inputs(
    const PastInputs& past) const {
  std::uint32_t* x = past_inputs();
  __syncwarp();  // all lanes have read the past of the previous block
#pragma unroll
  for (int i = 0; i < (S::terms + 1) / 2; ++i) {
    const int age = lane() / columns + 2 * i;
    if (age < S::terms) x[age * columns + lane() % columns] = past.v[i];
  }
  __syncwarp();
}

/// Adds all listed gradients, with the factors of its unit, to a block of W0 whose past inputs are
/// in `past_inputs`.
template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::add_gradients(
    Weights& w, Remainder& remainder, const W0Block& block) const {
  const std::uint32_t* x = past_inputs();
  const auto u = unit_in(block.what);
  const int count = ages(u);
#pragma unroll 1
  for (int age = 0; age < count; ++age) {
    add_outer(w, remainder, listed_row(S::d0, u, age), factor(u, age), values(x + age * columns),
              S::remainder_rows);
  }
}

/// Folds a block of W0 whose tiles are in `w`, whose remainder rows are at `remainder_at`, and
/// whose past inputs are in `past_inputs`.
template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold_prepared(
    const W0Block& block, Weights& w, std::uint32_t* remainder_at) const {
  auto* rows = reinterpret_cast<float*>(remainder_at);
  Remainder remainder = load_remainder(rows, S::remainder_rows);
  add_gradients(w, remainder, block);
  store_remainder(rows, remainder, S::remainder_rows);
}

/// Folds a block of W0 like `fold_prepared`, and loads its past inputs first.
template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold(
    const W0Block& block, Weights& w, std::uint32_t* remainder_at) const {
  copy_past_inputs(block);
  fold_prepared(block, w, remainder_at);
}

/// Stores the tiles of a streamed block to device memory, with the cache policy of its loads,
/// because the next step reads it again.
template <int Hidden, Home home>
template <class Block>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::store_streamed(const Block& block,
                                                                           const Weights& w) const {
  auto* to = reinterpret_cast<float4*>(tiles_in_memory(block)) + lane();
#pragma unroll
  for (int i = 0; i < words; ++i) store_with_policy(to + i * 32, w.tiles[i], policy());
}

/// Folds and stores a streamed block of W0.
template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold_streamed(
    const W0Block& block, Weights& w, std::uint32_t* remainder_at) const {
  fold(block, w, remainder_at);
  store_streamed(block, w);
}

/// Adds all listed gradients of unit u to a block of W1, whose listed d1 are in `list`.
template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::add_w1_gradients(
    Weights& w, Remainder& remainder, int u, const float* list) const {
  const int count = ages(u);
#pragma unroll 2
  for (int age = 0; age < count; ++age) {
    const int e = this->list_row_of_age(age);
    const float* d1 = list + list_index(e, pair());
    const int apart =
        S::long_lists && e >= 16 ? list_index(16, 8) - list_index(16, 0) : list_index(0, 8);
    const Values x = {
        {*reinterpret_cast<const float2*>(d1), *reinterpret_cast<const float2*>(d1 + apart)}};
    add_outer(w, remainder, listed_row(S::hidden, u, age), factor(u, age), x,
              S::remainder_rows + 1);
  }
}

/// Load and store the remainder rows and the bias in a list.
template <int Hidden, Home home>
__device__ __forceinline__ auto Blocks<fp32, Hidden, home>::load_list_remainder(float* list) const
    -> Remainder {
  Remainder remainder{};
  if (row() > S::remainder_rows) return remainder;
#pragma unroll
  for (int k = 0; k < 2; ++k) remainder.of[k] = *list_remainder(list, k);
  return remainder;
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::store_list_remainder(
    float* list, const Remainder& remainder) const {
  if (row() > S::remainder_rows) return;
#pragma unroll
  for (int k = 0; k < 2; ++k) *list_remainder(list, k) = remainder.of[k];
}

/// Folds a block of W1 whose tiles are in `w`, and stores it.
template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold_w1(const W1Block& block,
                                                                    Weights& w) const {
  auto* list = reinterpret_cast<float*>(list_of(block.out));
  Remainder remainder = load_list_remainder(list);
  add_w1_gradients(w, remainder, unit_in(block.what), list);
  store_list_remainder(list, remainder);
  if (this->is_in_memory(block.where)) {
    store_streamed(block, w);
  } else {
    write_tiles(in_shared(block.where), w);
  }
}

/// Writes the block's W(t), its weights with all listed gradients added, to `to`, which is laid out
/// like all weights. The block itself does not change. The factors of its unit must have been
/// written with the present coefficients of its phase.
template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::materialise(const W0Block& block,
                                                                        std::uint32_t* to) const {
  Weights w;
  load_streamed(w, streamed(block));
  Remainder remainder = load_remainder(remainder_in_memory(block), S::remainder_rows);
  copy_past_inputs(block);
  add_gradients(w, remainder, block);
  store_to_memory(reinterpret_cast<float*>(to + this->start_of(block)), w);
  store_remainder(reinterpret_cast<float*>(to + this->remainder_start_of(block)), remainder,
                  S::remainder_rows);
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::materialise(const W1Block& block,
                                                                        std::uint32_t* to) const {
  Weights w;
  load_streamed(w, streamed(block));
  Remainder remainder = load_remainder(remainder_in_memory(block), S::remainder_rows + 1);
  add_w1_gradients(w, remainder, unit_in(block.what),
                   reinterpret_cast<const float*>(list_of(block.out)));
  store_to_memory(reinterpret_cast<float*>(to + this->start_of(block)), w);
  store_remainder(reinterpret_cast<float*>(to + this->remainder_start_of(block)), remainder,
                  S::remainder_rows + 1);
}

}  // namespace pvm::inline v0::detail::units
