// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Folds of fp32 weights: a block gains one outer product for each listed gradient, in ordinary
/// arithmetic, and is changed where it is.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/chip/blocks_fp32.cuh>
#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/chip/state.cuh>

namespace pvm::inline v0::detail::chip {

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::write_factors(
    int u, const float* coefficients) const {
  const float mine = lane() < S::terms ? coefficients[lane()] : 0.0F;
  const unsigned there = __ballot_sync(every_lane, mine != 0);
  std::uint32_t* to = this->factors_of(S::fold0, u);
  if (lane() < S::terms) to[lane()] = __float_as_uint(mine);
  if (lane() == 0) to[sums - 1] = 32U - static_cast<unsigned>(__clz(static_cast<int>(there)));
}

template <int Hidden, Home home>
__device__ __forceinline__ auto Blocks<fp32, Hidden, home>::load_beside(const float* rows,
                                                                        int more) const -> Beside {
  Beside beside{};
  if (row() >= more) return beside;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    beside.of[k] = *reinterpret_cast<const float2*>(rows + beside_at(k));
  }
  return beside;
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::store_beside(float* rows,
                                                                         const Beside& beside,
                                                                         int more) const {
  if (row() >= more) return;
#pragma unroll
  for (int k = 0; k < 2; ++k) *reinterpret_cast<float2*>(rows + beside_at(k)) = beside.of[k];
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::add_outer(Weights& w, Beside& beside,
                                                                      const float* d, float c,
                                                                      Values x, int more) const {
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
  if (row() >= more) return;
  const float last = d[S::tiles * 8 + row()];
#pragma unroll
  for (int k = 0; k < 2; ++k) add(beside.of[k].x, beside.of[k].y, last, x.of[k]);
}

template <int Hidden, Home home>
__device__ __forceinline__ auto Blocks<fp32, Hidden, home>::ask_past(const ChipBlock& block) const
    -> Past {
  const auto column = static_cast<std::uint32_t>(lane() % columns);
  const std::uint32_t* from = a.past + this->place_in_past(block, column);
  const auto newest = static_cast<unsigned>(now().step) - block.back;
  Past then;
#pragma unroll
  for (int i = 0; i < (S::terms + 1) / 2; ++i) {
    const unsigned age = static_cast<unsigned>(lane() / columns + 2 * i);
    then.v[i] = __ldcg(from + ((newest - age) & (ring - 1)) * a.row_words);
  }
  return then;
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::keep_past(const Past& then) const {
  std::uint32_t* x = past_columns();
  __syncwarp();  // all lanes have read the past of the previous block
#pragma unroll
  for (int i = 0; i < (S::terms + 1) / 2; ++i) {
    const int age = lane() / columns + 2 * i;
    if (age < S::terms) x[age * columns + lane() % columns] = then.v[i];
  }
  __syncwarp();
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::add_gradients(
    Weights& w, Beside& beside, const ChipBlock& block) const {
  const std::uint32_t* x = past_columns();
  const auto u = unit_in(block.what);
  const int count = ages(u);
#pragma unroll 1
  for (int age = 0; age < count; ++age) {
    add_outer(w, beside, listed_row(S::d0, u, age), factor(u, age), values(x + age * columns),
              S::rest);
  }
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold_prepared(
    const ChipBlock& block, Weights& w, std::uint32_t* rest) const {
  auto* rows = reinterpret_cast<float*>(rest);
  Beside beside = load_beside(rows, S::rest);
  add_gradients(w, beside, block);
  store_beside(rows, beside, S::rest);
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold(const ChipBlock& block, Weights& w,
                                                                 std::uint32_t* rest) const {
  bring_past(block);
  fold_prepared(block, w, rest);
}

template <int Hidden, Home home>
template <class Block>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::store_streamed(const Block& block,
                                                                           const Weights& w) const {
  auto* to = reinterpret_cast<float4*>(master_of(block)) + lane();
#pragma unroll
  for (int i = 0; i < words; ++i) store_held(to + i * 32, w.tiles[i], policy());
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold_streamed(
    const ChipBlock& block, Weights& w, std::uint32_t* rest) const {
  fold(block, w, rest);
  store_streamed(block, w);
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::add_wide_gradients(
    Weights& w, Beside& beside, int u, const float* list) const {
  const int count = ages(u);
#pragma unroll 2
  for (int age = 0; age < count; ++age) {
    const float* d1 = list + list_place(this->column_of(age), pair());
    const Values x = {{*reinterpret_cast<const float2*>(d1),
                       *reinterpret_cast<const float2*>(d1 + list_place(0, 8))}};
    add_outer(w, beside, listed_row(S::hidden, u, age), factor(u, age), x, S::rest + 1);
  }
}

template <int Hidden, Home home>
__device__ __forceinline__ auto Blocks<fp32, Hidden, home>::load_listed(float* list) const
    -> Beside {
  Beside beside{};
  if (row() > S::rest) return beside;
#pragma unroll
  for (int k = 0; k < 2; ++k) beside.of[k] = *listed_beside(list, k);
  return beside;
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::store_listed(
    float* list, const Beside& beside) const {
  if (row() > S::rest) return;
#pragma unroll
  for (int k = 0; k < 2; ++k) *listed_beside(list, k) = beside.of[k];
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::fold_wide(const ChipWideBlock& block,
                                                                      Weights& w) const {
  auto* list = reinterpret_cast<float*>(list_of(block.out));
  Beside beside = load_listed(list);
  add_wide_gradients(w, beside, unit_in(block.what), list);
  store_listed(list, beside);
  if (block.where == in_memory) {
    store_streamed(block, w);
  } else {
    write_tiles(in_shared(block.where), w);
  }
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::materialise(const ChipBlock& block,
                                                                        std::uint32_t* all) const {
  Weights w;
  load_streamed(w, streamed(block));
  Beside beside = load_beside(rows_of(block), S::rest);
  bring_past(block);
  add_gradients(w, beside, block);
  store_master(reinterpret_cast<float*>(all + this->start_of(block)), w);
  store_beside(reinterpret_cast<float*>(all + this->beside_of(block)), beside, S::rest);
}

template <int Hidden, Home home>
__device__ __forceinline__ void Blocks<fp32, Hidden, home>::materialise(const ChipWideBlock& block,
                                                                        std::uint32_t* all) const {
  Weights w;
  load_streamed(w, streamed(block));
  Beside beside = load_beside(rows_of(block), S::rest + 1);
  add_wide_gradients(w, beside, unit_in(block.what),
                     reinterpret_cast<const float*>(list_of(block.out)));
  store_master(reinterpret_cast<float*>(all + this->start_of(block)), w);
  store_beside(reinterpret_cast<float*>(all + this->beside_of(block)), beside, S::rest + 1);
}

}  // namespace pvm::inline v0::detail::chip
