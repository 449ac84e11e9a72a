// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The corrections of a step's sums for the listed gradients, which the stored weights Z do not
/// (fully) contain:
///
///     W0 x    += sum over j of w_j (x_j . x) d0_j     q_j: correction_factors; sum: correct_hidden
///     W1^T d1 += sum over j of w_j (d1_j . d1) h_j    products: run_items; sum: correct_output
///     y(t-1)  += sum over j of w_j (r_j . r) d1_j     factors: correction_factors; sum: run_items
///
/// q_j is the factor of d0_j. Of W1^T d1 only the hidden part is needed.

#include <cstdint>

#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/general/tuning.hpp>

namespace pvm::inline v0::detail::general {

/// Computes q_j for W0 (skipped in a tail), and the weights of the listed d1 in y(t-1).
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::correction_factors(
    bool tail) const {
  const HiddenUnit* hidden_units = list<HiddenUnit>(p.hidden_units);
  const SourceTask* tasks = list<SourceTask>(p.source_tasks);
  const int qs = tail ? 0 : static_cast<int>(p.hidden_count) * a.terms;
#pragma unroll 1
  for (int k = threadIdx.x; k < qs; k += threads) {
    const int n = a.by_terms.quotient(k);
    const HiddenUnit& unit = hidden_units[n];
    const int age = k - n * a.terms;
    float q = 0;
#pragma unroll 4
    for (std::uint32_t i = 0; i < unit.tasks; ++i) {
      q += area[tasks[unit.first_task + i].out + age];
    }
    area[unit.q + age] = q;
  }
  const OutputBlock* blocks = list<OutputBlock>(p.blocks);
  const OutputUnit* units = list<OutputUnit>(p.output_units);
  const RepresentationTask* slab_tasks = list<RepresentationTask>(p.representation_tasks);
  const int rows = a.history_rows;
#pragma unroll 1
  for (int k = threads - 1 - threadIdx.x; k < static_cast<int>(p.block_count) * rows;
       k += threads) {  // starts with the last threads: the first ones compute q above
    const int n = a.by_history_rows.quotient(k);
    const OutputBlock& block = blocks[n];
    const int row = k - n * rows;
    const OutputUnit& unit = units[block.unit];
    float weight = row == a.history ? 1.0F : 0.0F;  // 1 for the bias row
    int age = now.history - 2 - row;                // W(t-1) contains the gradients up to t-2
    age = age < 0 ? age + a.history : age;
    // Excludes the gradients of t-1 (age -1 or terms + 1) and of t (age terms); the history has
    // terms + 2 steps.
    if (row < a.history && age >= 0 && age < a.terms) {
      const float* table = layer_table(unit.layer) + a.period * a.terms;
#pragma unroll 1
      for (std::uint32_t s = 0; s < unit.slabs; ++s) {
        const float product = area[slab_tasks[unit.first_task + s].out + age];
        const std::uint32_t phase = list<std::uint32_t>(p.phases)[block.first_phase + s];
        weight += table[phase_row(phase) + age] * (s == 0 ? product + 1.0F : product);
      }
    }
    area[block.history_weights + row] = weight;
  }
}

/// out[section][row] = sum, over the ages of the section, of factor(age) times the value of step t
/// - (back + age) at place + row. One warp calls it.
template <class Precision, int RG, class Known>
template <class Factor>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::correct(int section, float* out,
                                                                           std::uint32_t place,
                                                                           int back,
                                                                           Factor factor) const {
  const int first = section * terms_per_task;
  const int last = min(first + terms_per_task, a.terms) - 1;
  const float mine = lane() <= last - first ? factor(first + lane()) : 0.0F;
#pragma unroll 1
  for (int start = 0; start < padded(); start += 64) {  // all lanes: shuffles inside
    const int row = start + lane();
    const int low = min(row, hidden() - 1);
    const int high = min(row + 32, hidden() - 1);
    float loaded[terms_per_task][2];
#pragma unroll
    for (int i = 0; i < terms_per_task; ++i) {
      const float* from = a.past + past_row(back + min(first + i, last)) + place;
      loaded[i][0] = load_fresh(from + low);
      loaded[i][1] = load_fresh(from + high);
    }
    float sum[2] = {0, 0};
#pragma unroll
    for (int i = 0; i < terms_per_task; ++i) {
      const float weight = __shfl_sync(full_warp, mine, i);
      sum[0] += weight * loaded[i][0];
      sum[1] += weight * loaded[i][1];
    }
    if (row < padded()) out[section * padded() + row] = sum[0];
    if (row + 32 < padded()) out[section * padded() + row + 32] = sum[1];
  }
}

/// What the listed gradients add to W0 x: the sum of q_j d0_j.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::correct_hidden() const {
  const HiddenUnit* units = list<HiddenUnit>(p.hidden_units);
#pragma unroll 1
  for (int k = warp(); k < static_cast<int>(p.hidden_count) * a.sections; k += warps) {
    const int n = a.by_sections.quotient(k);
    const HiddenUnit& unit = units[n];
    correct(k - n * a.sections, area + unit.corrections, a.first_d0 + unit.unit * hidden(), 1,
            [&](int age) { return area[unit.q + age]; });
  }
}

/// What the listed gradients add to W1^T d1: the sum of w_j (d1_j . d1) h_j.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::correct_output(
    const Team& team) const {
  const OutputUnit* units = list<OutputUnit>(p.output_units);
  const OutputBlock* blocks = list<OutputBlock>(p.blocks);
#pragma unroll 1
  for (int k = team.my_warp(); k < static_cast<int>(p.output_count) * a.sections; k += team.count) {
    const int n = a.by_sections.quotient(k);
    const OutputUnit& unit = units[n];
    const float* table = layer_table(unit.layer);
    correct(k - n * a.sections, area + unit.corrections, a.first_raw + unit.unit * hidden(), 3,
            [&](int age) {
              int row = now.history - 1 - age;
              row = row < 0 ? row + a.history : row;
              const int slab = a.by_padded.quotient(row);
              float u = 0;
#pragma unroll 1
              for (std::uint32_t c = 0; c < unit.blocks; ++c) {
                const OutputBlock& block = blocks[unit.first_block + c];
                const float* sums = area + block.sum + slab * (parts() - 1) * padded() + row;
                float piece = 0;
#pragma unroll 1
                for (int i = 0; i < parts(); ++i) piece += sums[i * padded()];
                u += table[phase_row(block.phase) + age] * piece;
              }
              return u;
            });
  }
}

}  // namespace pvm::inline v0::detail::general
