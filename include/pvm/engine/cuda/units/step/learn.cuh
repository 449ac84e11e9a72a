// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The pass of fp32 weights over W1, which makes y(t) and W1^T d1(t), and, for all precisions, what
/// makes d0(t) of the latter. (In 16 bits the passes are in multipliers.cuh and streamers.cuh.)

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/multiprocessor.cuh>
#include <pvm/engine/cuda/units/step/state.cuh>

namespace pvm::inline v0::detail::units {

template <class Precision, int Hidden, Home home>
template <class LoadNext>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::learn_block(
    WideWalk& on, const ChipWideBlock& block, const Weights& w, LoadNext load_next) const {
  const int u = unit_in(block.what);
  const int phase = phase_in(block.what);
  if (on.first) on.h = this->rows(area(u) + S::packed_hidden);
  const auto d1 = this->values(shared + p.d1 + block.out);
  typename Base::ColumnSums y;
  this->multiply_wide(on.sum, y, w, d1, on.h);
  load_next();
  const std::uint32_t* list = list_of(block.out);
  const typename Base::ListSums list_sums = this->multiply_list(list, d1);
  this->multiply_listed_rows(y, list, this->list_factors_of(u, phase));
  this->write_outputs(y, outputs_of(now().step, block.out, block.block * columns),
                      [&](float v) { return activate(v); });
  const float* coefficients = wide_coefficients_of(u, phase);
#pragma unroll
  for (int i = 0; i < Base::list_rows_per_lane; ++i) {
    on.list_sums.v[i] += coefficients[table_index(this->list_row_of(i))] * list_sums.v[i];
  }
  on.first = left_in(block.what) == 1;
  if (on.first) hand_over(u, on.sum, on.list_sums);
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::hand_over(
    int u, typename Base::Sums& sum, typename Base::ListSums& list_sums) const {
  float* to = float_area(u) + S::part1 + warp() * S::part1_words;
  this->write_wide_sums(sum, list_sums, to);
  sum = {};
  list_sums = {};
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::finish_gradient(
    int u) const {
  const unsigned long long t = now().step;
  const float* part = float_area(u) + S::part1;
  const int mine = 2 * min(lane(), (Hidden - 1) / 2);  // this lane has values mine and mine + 1
  // A part has [Hidden] sums of W1^T d1 (the remainder rows are the first list rows), one of the
  // bias, which nobody needs, and [list_d1_rows] products d1(j).d1 in the order of list rows. Lane
  // i sums product i over the warps.
  float product = 0;
  float2 z = {0, 0};
#pragma unroll(S::streams ? S::multipliers : 4)
  for (int w = 0; w < S::multipliers; ++w, part += S::part1_words) {
    product += part[S::tiles * 8 + S::remainder_rows + 1 + min(lane(), S::list_d1_rows - 1)];
    const float2 v = *reinterpret_cast<const float2*>(part + mine);
    z.x += v.x;
    z.y += v.y;
  }
  const int d1_row = now().d1_row - 1 - min(lane(), S::wide_terms - 1);  // product of age lane()
  const float weight =
      __shfl_sync(every_lane, product, d1_row < 0 ? d1_row + S::list_d1_rows : d1_row);
  const float2 of_past = weigh_rows(S::hidden, u, t - 3, S::wide_terms, weight);
  const int kind = derivative_kind();
  const float* before = history_row(S::hidden, u, 2);
  float* to = history_row(S::d0, u, 0);
  float* row =
      a.d0 + static_cast<std::size_t>(t & (history - 1)) * a.hidden_row + unit(u).unit * Hidden;
  const bool survives = row_survives_launch(history);
#pragma unroll 1
  for (int k = 0; k < 2; ++k) {
    const int i = 2 * lane() + k;
    if (i >= Hidden) continue;
    const float d0 = derive(before[i], kind) * (k == 0 ? z.x + of_past.x : z.y + of_past.y);
    to[i] = d0;
    if (survives) row[i] = d0;
  }
}

}  // namespace pvm::inline v0::detail::units
