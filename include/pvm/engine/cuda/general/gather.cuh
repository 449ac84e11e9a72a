// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The start of a step: loads what the SMs have published in earlier steps into shared memory, and
/// computes d1(t).

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::general {

/// Loads x(t), r(t-1) and h(t-2); in a tail without x(t).
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::gather_inputs(const Team& team,
                                                                                 bool tail) const {
  constexpr int together = 7;
  const std::uint32_t threads_here = static_cast<unsigned>(team.threads());
  const std::uint32_t* words = source_words();
  const std::uint32_t end = p.x_count + p.r_count;
  const unsigned int rows[3] = {past_row(0), past_row(1), past_row(2)};
#pragma unroll 1
  for (std::uint32_t c = (tail ? p.x_count : 0) + static_cast<unsigned>(team.thread()); c < end;
       c += together * threads_here) {
    float v[together];
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const std::uint32_t word = words[min(c + i * threads_here, end - 1)];
      const std::uint32_t back = word >> back_shift;
      const unsigned int row = back == 0 ? rows[0] : (back == 1 ? rows[1] : rows[2]);
      v[i] = load_fresh(a.past + row + (word & place_mask));
    }
#pragma unroll
    for (int i = 0; i < together; ++i) {
      const std::uint32_t at = c + i * threads_here;
      if (at < end) area[p.x + at] = v[i];
    }
  }
}

/// Weighted inner products for W0: for every source task and every listed gradient j the sum over
/// the task's sources of w_j * (x_j . x). correction_factors adds these up to q_j.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::weigh_sources(
    const Team& team) const {
  const SourceTask* tasks = list<SourceTask>(p.source_tasks);
  const Source* sources = list<Source>(p.sources);
#pragma unroll 1
  for (std::uint32_t k = static_cast<unsigned>(team.my_warp()); k < p.source_task_count;
       k += static_cast<unsigned>(team.count)) {
    const SourceTask task = tasks[k];
    const float* weights = layer_table(task.layer);
#pragma unroll 1
    for (int age = lane(); age < a.terms; age += 32) {
      float product[sources_per_task], weight[sources_per_task];
#pragma unroll
      for (int i = 0; i < sources_per_task; ++i) {
        const bool real = i < static_cast<int>(task.count);
        const Source source = sources[task.first + (real ? i : 0)];
        product[i] = load_fresh(
            inner_row(now.inner + 3 - static_cast<int>(source.in_b_half), source.number) + age);
        weight[i] = real ? weights[phase_row(source.phase) + age] : 0.0F;
      }
      float q = 0;
#pragma unroll
      for (int i = 0; i < sources_per_task; ++i) q += weight[i] * product[i];
      area[task.out + age] = q;
    }
  }
}

/// Writes a value to the listed d1 and biases, at index `at`.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::list_d1(std::size_t at,
                                                                           float v) const {
  a.past_d1[at] = v;
  if constexpr (Weights::two_halves) {
    static_cast<std::uint16_t*>(a.listed)[at] = Weights::Math::operand(v);
  }
}

/// d1(t) = g(y(t-2)) e, in shared memory and as this step's row of the listed d1; and the scores.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::gather_errors(
    const Team& team, bool scored) const {
  const std::uint32_t threads_here = static_cast<unsigned>(team.threads());
  const std::uint32_t* words = source_words() + p.x_count + p.r_count;
  const float* y = a.y + static_cast<std::size_t>(now.y) * a.y_columns + p.outputs;
  const std::size_t row = static_cast<std::size_t>(p.history) * 4 +
                          static_cast<std::size_t>(now.history) * p.column_count;
  double* score = a.score + (static_cast<std::size_t>(blockIdx.x) * threads + threadIdx.x) * 3;
  const std::uint32_t zero = a.first_pixel + a.patches * a.patch;
  const unsigned int rows[3] = {past_row(0), past_row(1), past_row(2)};
#pragma unroll 1
  for (std::uint32_t base = static_cast<unsigned>(team.thread()); base < p.column_count;
       base += 2 * threads_here) {
    float before[2], target[2], then[2];
    std::uint32_t word[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t c = min(base + i * threads_here, p.column_count - 1);
      word[i] = words[c];
      const std::uint32_t back = word[i] >> back_shift;
      const unsigned int row = back == 0 ? rows[0] : (back == 1 ? rows[1] : rows[2]);
      before[i] = load_fresh(y + c);
      target[i] = load_fresh(a.past + row + (word[i] & place_mask));
      then[i] = word[i] < zero && scored ? load_fresh(a.past + rows[2] + word[i]) : 0.0F;
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const std::uint32_t c = base + i * threads_here;
      if (c >= p.column_count) break;
      float e = target[i] - before[i];
      if (word[i] == zero) e = 0;  // a padding column
      score[2] += static_cast<double>(e * e);
      if (scored && word[i] < zero) {  // a pixel of this frame
        const float missed = (target[i] - 0.1F) * 1.25F - unsqueeze(before[i]);
        const float moved = (target[i] - then[i]) * 1.25F;
        score[0] += static_cast<double>(missed * missed);
        score[1] += static_cast<double>(moved * moved);
      }
      if (a.sign_error && word[i] != zero) e = copysignf(1.0F, e);
      const float d1 = derived(before[i]) * e;
      area[p.d1 + c] = d1;
      list_d1(row + c, d1);
    }
  }
}

}  // namespace pvm::inline v0::detail::general
