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

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::write_factors(
    int u, const float* coefficients) const {
  const float mine = lane() < S::terms ? coefficients[lane()] : 0.0F;
  const unsigned there = __ballot_sync(every_lane, mine != 0);
  std::uint32_t* to = this->factors_of(S::fold0, u);
  if (lane() < S::terms) to[lane()] = __float_as_uint(mine);
  if (lane() == 0) to[table_row - 1] = 32U - static_cast<unsigned>(__clz(static_cast<int>(there)));
}

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

template <int Hidden, Home home>
__device__ __forceinline__ auto Blocks<fp32, Hidden, home>::load_past_inputs(
    const ChipBlock& block) const -> PastInputs {
  const auto column = static_cast<std::uint32_t>(lane() % columns);
  const std::uint32_t* from = a.past + this->place_in_past(block, column);
  const auto newest = static_cast<unsigned>(now().step) - block.back;
  PastInputs past;
#pragma unroll
  for (int i = 0; i < (S::terms + 1) / 2; ++i) {
    const unsigned age = static_cast<unsigned>(lane() / columns + 2 * i);
    past.v[i] = __ldcg(from + ((newest - age) & (ring - 1)) * a.row_words);
  }
  return past;
}

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

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::add_gradients(
    Weights& w, Remainder& remainder, const ChipBlock& block) const {
  const std::uint32_t* x = past_inputs();
  const auto u = unit_in(block.what);
  const int count = ages(u);
#pragma unroll 1
  for (int age = 0; age < count; ++age) {
    add_outer(w, remainder, listed_row(S::d0, u, age), factor(u, age), values(x + age * columns),
              S::remainder_rows);
  }
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold_prepared(
    const ChipBlock& block, Weights& w, std::uint32_t* remainder_at) const {
  auto* rows = reinterpret_cast<float*>(remainder_at);
  Remainder remainder = load_remainder(rows, S::remainder_rows);
  add_gradients(w, remainder, block);
  store_remainder(rows, remainder, S::remainder_rows);
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold(
    const ChipBlock& block, Weights& w, std::uint32_t* remainder_at) const {
  copy_past_inputs(block);
  fold_prepared(block, w, remainder_at);
}

template <int Hidden, Home home>
template <class Block>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::store_streamed(const Block& block,
                                                                           const Weights& w) const {
  auto* to = reinterpret_cast<float4*>(tiles_in_memory(block)) + lane();
#pragma unroll
  for (int i = 0; i < words; ++i) store_with_policy(to + i * 32, w.tiles[i], policy());
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold_streamed(
    const ChipBlock& block, Weights& w, std::uint32_t* remainder_at) const {
  fold(block, w, remainder_at);
  store_streamed(block, w);
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::add_wide_gradients(
    Weights& w, Remainder& remainder, int u, const float* list) const {
  const int count = ages(u);
#pragma unroll 2
  for (int age = 0; age < count; ++age) {
    const float* d1 = list + list_index(this->list_row_of_age(age), pair());
    const Values x = {{*reinterpret_cast<const float2*>(d1),
                       *reinterpret_cast<const float2*>(d1 + list_index(0, 8))}};
    add_outer(w, remainder, listed_row(S::hidden, u, age), factor(u, age), x,
              S::remainder_rows + 1);
  }
}

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

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold_wide(const ChipWideBlock& block,
                                                                      Weights& w) const {
  auto* list = reinterpret_cast<float*>(list_of(block.out));
  Remainder remainder = load_list_remainder(list);
  add_wide_gradients(w, remainder, unit_in(block.what), list);
  store_list_remainder(list, remainder);
  if (this->is_in_memory(block.where)) {
    store_streamed(block, w);
  } else {
    write_tiles(in_shared(block.where), w);
  }
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::materialise(const ChipBlock& block,
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
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::materialise(const ChipWideBlock& block,
                                                                        std::uint32_t* to) const {
  Weights w;
  load_streamed(w, streamed(block));
  Remainder remainder = load_remainder(remainder_in_memory(block), S::remainder_rows + 1);
  add_wide_gradients(w, remainder, unit_in(block.what),
                     reinterpret_cast<const float*>(list_of(block.out)));
  store_to_memory(reinterpret_cast<float*>(to + this->start_of(block)), w);
  store_remainder(reinterpret_cast<float*>(to + this->remainder_start_of(block)), remainder,
                  S::remainder_rows + 1);
}

}  // namespace pvm::inline v0::detail::units
