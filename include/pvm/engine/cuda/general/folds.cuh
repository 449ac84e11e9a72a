// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Folding: adds listed gradients to the stored weights Z, one panel after the other, each at the
/// steps of its phase; here of fp32 weights, in folds_16bit.cuh of others. The factors of the
/// gradients are staged in shared memory by asynchronous copies, at most 16 gradients at a time.
/// Also the transfer of the resident panels between the arena and shared memory.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/engine/cuda/instructions/copies.cuh>

namespace pvm::inline v0::detail::general {

/// Folds the panels whose phase is that of step t. stage_first_fold() has issued the copies for the
/// first of them.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::fold_step() const {
  const std::uint32_t* start = list<std::uint32_t>(p.fold_start);
#pragma unroll 1
  for (std::uint32_t k = start[now.phase]; k < start[now.phase + 1]; ++k) {
    const Fold& fold = list<Fold>(p.folds)[k];
    const float* table = layer_table(fold.layer) + 2 * a.period * a.terms;
    const float* ages = table + a.terms;  // their number, then the ages
    Four* home = fold.resident >= 0 ? resident + fold.resident : in_arena(fold.weight).weights;
    fold_panel(
        fold, static_cast<int>(ages[0]), k == start[now.phase],
        [&](int n) { return static_cast<int>(ages[1 + n]); },
        [&](int n) { return table[static_cast<int>(ages[1 + n])]; }, home, home, a.past_d1);
  }
}

/// Issues the copies of the gradients that the first fold of the step needs.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::stage_first_fold() const {
  const std::uint32_t* start = list<std::uint32_t>(p.fold_start);
  if (start[now.phase] == start[now.phase + 1]) return;
  const Fold& fold = list<Fold>(p.folds)[start[now.phase]];
  const float* ages = layer_table(fold.layer) + (2 * a.period + 1) * a.terms;
  stage_gradients(fold, 0, min(most_terms(fold), static_cast<int>(ages[0])),
                  [&](int n) { return static_cast<int>(ages[1 + n]); });
}

/// Adds listed gradients to a panel: sink = source + sum over n < terms of factor(n) g(age(n)), and
/// the same for the bias row in `bias_sink`. `staged`: the copies of the first terms have been
/// issued. All threads call it.
template <class Precision, int RG, class Known>
template <class Age, class Factor>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::fold_panel(
    const Fold& fold, int terms, bool staged, Age age, Factor factor, const Four* source,
    Four* sink, float* bias_sink) const {
  const int most = most_terms(fold);
#pragma unroll 1
  for (int base = 0; base < terms; base += most) {
    const int count = min(most, terms - base);
    if (base > 0 || !staged) {
      __syncthreads();
      stage_gradients(fold, base, count, age);
    }
    copies_wait_all();
    __syncthreads();
    fold_tiles(fold, base, count, factor, base == 0 ? source : sink, sink);
    if (fold.bias != 0) fold_bias(fold, base, count, factor, bias_sink);
  }
}

/// How many terms can be staged at a time.
template <class Precision, int RG, class Known>
__device__ __forceinline__ int ThreadBlock<Precision, RG, Known>::most_terms(const Fold& fold) {
  return min(16, fold_stage_floats / static_cast<int>(fold.width * 4));
}

/// Issues the asynchronous copies of the factors of `count` terms from `base` on: the row factors
/// (W0: d0, W1: r) to [term][row group][8] and the column factors (W0: x, W1: d1) to
/// [term][column].
template <class Precision, int RG, class Known>
template <class Age>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::stage_gradients(const Fold& fold,
                                                                                   int base,
                                                                                   int count,
                                                                                   Age age) const {
  const int each = groups() * 8;
  const int columns = static_cast<int>(fold.width) * 4;
  const bool output = fold.row_back != 0;
  const unsigned int place =
      (output ? a.first_raw : a.first_d0) + fold.row_source * static_cast<unsigned>(hidden());
  const int back = output ? static_cast<int>(fold.row_back) + 2 : 1;
#pragma unroll 2
  for (int k = threadIdx.x; k < count * each; k += threads) {
    const int i = by_row_factors(k);
    const int inside = k - i * each;
    const int row = min((inside >> 3) * RG + min(inside & 7, RG - 1), hidden() - 1);
    copy_word_async(area + p.row_factors + k,
                    a.past + past_row(back + age(base + i)) + place + row);
  }
  // The first half of the threads copies the even terms, the second half the odd terms.
  const int half = threadIdx.x >= threads / 2 ? 1 : 0;
#pragma unroll 1
  for (int c = threadIdx.x - half * (threads / 2); c < columns; c += threads / 2) {
    const std::uint32_t word = output ? 0 : source_words()[fold.columns + c];
    const int from_back = 3 + static_cast<int>(word >> back_shift);
    const float* from = output
                            ? a.past_d1 + static_cast<std::size_t>(p.history) * 4 + fold.columns + c
                            : a.past + (word & place_mask);
#pragma unroll 4
    for (int i = half; i < count; i += 2) {
      const int old = age(base + i);
      int m = now.history - 1 - old;
      m = m < 0 ? m + a.history : m;
      const unsigned int listed = static_cast<unsigned>(m) * p.column_count;
      copy_word_async(area + p.column_factors + i * columns + c,
                      from + (output ? listed : past_row(from_back + old)));
    }
  }
}

/// Adds the staged terms to the panel. Padding rows get the row factors of the unit's last row. No
/// result depends on them: their row sums are not used, and y multiplies them by 0, for which they
/// only have to be finite.
template <class Precision, int RG, class Known>
template <class Factor>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::fold_tiles(
    const Fold& fold, int base, int count, Factor factor, const Four* source, Four* sink) const {
  const int width = static_cast<int>(fold.width);
  const int first = part() * static_cast<int>(fold.part_width);
  const int lanes = min(static_cast<int>(fold.part_width), width - first);
  const float4* column_factors =
      reinterpret_cast<const float4*>(area + p.column_factors) + first + lane();
#pragma unroll 1
  for (int g = group(); g < groups() && lane() < lanes; g += groups_at_once()) {
    const int offset = g * RG * width + first * RG + lane();
    float4 w[RG];
#pragma unroll
    for (int r = 0; r < RG; ++r) w[r] = source[offset + r * lanes];
#pragma unroll 2
    for (int i = 0; i < count; ++i) {
      const float f = factor(base + i);
      float4 x = column_factors[i * width];
      x = make_float4(f * x.x, f * x.y, f * x.z, f * x.w);
      const float4* row_factors =
          reinterpret_cast<const float4*>(area + p.row_factors) + (i * groups() + g) * 2;
      const float4 low = row_factors[0];
      const float4 high = row_factors[1];
      const float d[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
      for (int r = 0; r < RG; ++r) {
        w[r].x += d[r] * x.x;
        w[r].y += d[r] * x.y;
        w[r].z += d[r] * x.z;
        w[r].w += d[r] * x.w;
      }
    }
#pragma unroll
    for (int r = 0; r < RG; ++r) sink[offset + r * lanes] = w[r];
  }
}

/// Adds the staged terms to the bias column of W1 (r = 1). It is stored as a row behind the listed
/// d1, in `a.past_d1` or in a copy of it, `sink`.
template <class Precision, int RG, class Known>
template <class Factor>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::fold_bias(const Fold& fold,
                                                                             int base, int count,
                                                                             Factor factor,
                                                                             float* sink) const {
  const int columns = static_cast<int>(fold.width) * 4;
  const std::size_t at = static_cast<std::size_t>(p.history) * 4 + fold.columns +
                         static_cast<std::size_t>(a.history) * p.column_count;
#pragma unroll 1
  for (int c = threadIdx.x; c < columns; c += threads) {
    float v = (base == 0 ? a.past_d1 : sink)[at + c];
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      v += factor(base + i) * area[p.column_factors + i * columns + c];
    }
    sink[at + c] = v;
  }
}

/// Copies the resident panels from the arena to shared memory, or back.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::move_resident(bool in) const {
  const std::uint32_t* which = list<std::uint32_t>(p.resident_list);
  const Fold* folds = list<Fold>(p.folds);
#pragma unroll 1
  for (std::uint32_t k = 0; k < p.resident_count; ++k) {
    const Fold& fold = folds[which[k]];
    const int size = static_cast<int>(fold.width) * padded();
    Four* home = in_arena(fold.weight).weights;
    Four* here = resident + fold.resident;
#pragma unroll 4
    for (int i = threadIdx.x; i < size; i += threads) {
      if (in) {
        here[i] = __ldcg(home + i);
      } else {
        home[i] = here[i];
      }
    }
  }
}

}  // namespace pvm::inline v0::detail::general
