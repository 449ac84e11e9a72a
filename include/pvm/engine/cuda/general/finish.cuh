// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The end of a step's sums: h, d0 and y are computed from them and stored in device memory, where
/// all SMs read them.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::general {

/// The sum of a row: over the column parts, then over the sections of corrections that lie behind
/// them. `sum`: offset of [part + section][padded rows].
template <class Precision, int RG, class Known>
__device__ __forceinline__ float ThreadBlock<Precision, RG, Known>::total(std::uint32_t sum,
                                                                          int row) const {
  float v = 0;
  const int pieces = parts() + a.sections;
#pragma unroll 4
  for (int i = 0; i < pieces; ++i) v += area[sum + i * padded() + row];
  return v;
}

/// Publishes h(t) and c(h(t)).
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::finish_hidden(
    const Team& team) const {
  const HiddenUnit* units = list<HiddenUnit>(p.hidden_units);
#pragma unroll 1
  for (int k = team.thread(); k < static_cast<int>(p.hidden_count) * hidden();
       k += team.threads()) {
    const int n = by_hidden(k);
    const HiddenUnit& unit = units[n];
    const int row = k - n * hidden();
    const float h = activated(total(unit.sum, row));
    float* at = a.past + past_row(0) + unit.unit * hidden() + row;
    at[0] = squeeze(h);
    at[a.first_raw] = h;
    area[unit.squeezed_h + row] = squeeze(h);
  }
}

/// Publishes d0(t) = g(h(t-2)) * (W1^T d1(t)).
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::finish_gradient(
    const Team& team) const {
  const OutputUnit* units = list<OutputUnit>(p.output_units);
#pragma unroll 1
  for (int k = team.thread(); k < static_cast<int>(p.output_count) * hidden();
       k += team.threads()) {
    const int n = by_hidden(k);
    const OutputUnit& unit = units[n];
    const int row = k - n * hidden();
    const float h_two_back = area[unit.h_two_back + row];
    a.past[past_row(0) + a.first_d0 + unit.unit * hidden() + row] =
        derived(h_two_back) * total(unit.sum, row);
  }
}

/// Adds up partial y and publishes y(t-1).
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::finish_outputs(
    const Team& team) const {
  float* y = a.y + static_cast<std::size_t>(1 - now.y) * a.y_columns + p.outputs;
  const float* partial = reinterpret_cast<const float*>(y_part);
  const int pieces = groups_at_once();
#pragma unroll 1
  for (std::uint32_t c = static_cast<unsigned>(team.thread()); c < p.column_count;
       c += static_cast<unsigned>(team.threads())) {
    float sum = 0;
#pragma unroll 4
    for (int g = 0; g < pieces; ++g) sum += partial[g * p.column_count + c];
    y[c] = activated(sum);
  }
}

}  // namespace pvm::inline v0::detail::general
