// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pass of fp32 weights over W1, which makes y(t) and W1^T d1(t), and, for all precisions, what
/// makes d0(t) of the latter. (In 16 bits the passes are in multipliers.cuh and streamers.cuh.)

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/cuda/units/step/thread_block.cuh>

namespace pvm::inline v0::detail::units {

/// In fp32: makes y(t) of a block of W1 whose tiles are in `w`, and adds up what the block
/// contributes to W1^T d1 and, times their coefficients, to the products d1(j).d1. `load_next()` is
/// called when the tiles have been multiplied: it may start to load the next tiles to `w`.
template <class Precision, int Hidden, Home home, class Own>
template <class LoadNext>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::learn_block(
    W1Pass& on, const W1Block& block, const Weights& w, LoadNext load_next) const {
  const int u = unit_in(block.what);
  const int phase = phase_in(block.what);
  if (on.first) on.h = this->rows(area(u) + S::packed_hidden);
  const auto d1 = this->values(shared + p.d1 + block.out);
  typename Base::ColumnSums y;
  this->multiply_w1(on.sum, y, w, d1, on.h);
  load_next();
  const std::uint32_t* list = list_of(block.out);
  const typename Base::ListSums list_sums = this->multiply_list(list, d1);
  this->multiply_listed_rows(y, list, this->list_factors_of(u, phase));
  this->write_outputs(y, outputs_of(now().step, block.out, block.block * columns),
                      [&](float v) { return activate(v); });
  const float* coefficients = w1_coefficients_of(u, phase);
#pragma unroll
  for (int i = 0; i < Base::list_rows_per_lane; ++i) {
    on.list_sums.v[i] += coefficients[table_index(this->list_row_of(i))] * list_sums.v[i];
  }
  on.first = left_in(block.what) == 1;
  if (on.first) hand_over(u, on.sum, on.list_sums);
}

/// Writes this warp's sums to its part in the unit's area (S::part1), for `finish_gradient`, and
/// clears them.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::hand_over(
    int u, typename Base::Sums& sum, typename Base::ListSums& list_sums) const {
  float* to = float_area(u) + S::part1 + warp() * S::part1_words;
  this->write_w1_sums(sum, list_sums, to);
  sum = {};
  list_sums = {};
}

/// Makes d0(t) of a unit from the warps' parts of W1^T d1(t): one warp's work.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::finish_gradient(
    int u) const {
  const unsigned long long t = now().step;
  const float* part = float_area(u) + S::part1;
  // A part has [Hidden] sums of W1^T d1 (the remainder rows are the first list rows), one of the
  // bias, which nobody needs, and [list_d1_rows] products d1(j).d1 in the order of list rows. Lane
  // i sums product i over the warps.
  float product = 0;
  ValuePairs z;
#pragma unroll(S::streams ? S::multipliers : 4)
  for (int w = 0; w < S::multipliers; ++w, part += S::part1_words) {
    product += part[S::tiles * 8 + S::first_d1_row + min(lane(), S::list_d1_rows - 1)];
#pragma unroll
    for (int k = 0; k < pairs_per_lane; ++k) {
      const float2 v = reinterpret_cast<const float2*>(part)[valid_pair(k)];
      z.v[k].x += v.x;
      z.v[k].y += v.y;
    }
  }
  const int d1_row = now().d1_row - 1 - min(lane(), S::w1_terms - 1);  // product of age lane()
  const float weight =
      __shfl_sync(every_lane, product, d1_row < 0 ? d1_row + S::list_d1_rows : d1_row);
  const ValuePairs of_past = weigh_rows(S::hidden, u, 3, S::w1_terms, weight);
  const int kind = derivative_kind();
  const float* before = history_row(S::hidden, u, 2);
  float* to = history_row(S::d0, u, 0);
  float* row =
      a.d0 + static_cast<std::size_t>(t & (S::history - 1)) * a.hidden_row + unit(u).unit * used();
  const bool survives = row_survives_launch(S::history);
#pragma unroll
  for (int k = 0; k < pairs_per_lane; ++k) {
    const float2 sum = {z.v[k].x + of_past.v[k].x, z.v[k].y + of_past.v[k].y};
#pragma unroll 1
    for (int odd = 0; odd < 2; ++odd) {
      const int i = 2 * value_pair(k) + odd;
      if (i >= Hidden) continue;
      const float d0 = derive(before[i], kind) * (odd == 0 ? sum.x : sum.y);
      to[i] = d0;
      if (survives && is_used(i)) row[i] = d0;
    }
  }
}

}  // namespace pvm::inline v0::detail::units
