// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Folds of 16-bit weights. What listed gradients add to a tile is a product of their row factors
/// and column factors, which tensor cores make of both rounded to 16 bits; it is added to the
/// weights, joined from their halves, in ordinary arithmetic. The factors of several panels are
/// staged at once, so that a step waits for them once.
///
/// A product (mma m16n8k16) has 16 columns of the tile as rows, hidden values as columns, and 16
/// listed gradients as depth. With e = lane / 4 and q = lane % 4, a lane has the four columns of
/// float4 column e + 8 j of the tile, for j = 0 to 3, and rows 2 q and 2 q + 1. A staged word has
/// the factors of two gradients: the column factors are [pair of gradients][column], the row
/// factors [pair of gradients][padded row], with rows of fold_stride words.

#include <cuda_runtime.h>

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/engine/cuda/instructions/memory.cuh>

namespace pvm::inline v0::detail::general {

/// The gradients that a fold adds: `count` of them, with these ages (null: 0, 1, 2 ...), and their
/// weights by age.
struct FoldedGradients {
  int count;
  const float* ages;
  const float* weights;
  __device__ __forceinline__ int age(int n) const {
    return ages == nullptr ? n : static_cast<int>(ages[n]);
  }
};

/// Adds listed gradients to `count` panels, at most `p.folds_at_once`. `of(fold)`: which;
/// `source(fold)` and `sink(fold)`: where the weights are and go. Bias rows go to `bias_sink`. All
/// threads call it.
template <class Precision, int RG, class Known>
template <class Of, class From, class To>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::fold_together(
    const Fold* folds, int count, Of of, From source, To sink, float* bias_sink) const {
  int most = 0;
#pragma unroll 1
  for (int f = 0; f < count; ++f) most = max(most, of(folds[f]).count);
#pragma unroll 1
  for (int base = 0; base < most; base += fold_depth) {
    __syncthreads();  // what was staged before has been read
#pragma unroll 1
    for (int f = 0; f < count; ++f) stage_factors(folds[f], f, of(folds[f]), base);
    __syncthreads();
#pragma unroll 1
    for (int f = 0; f < count; ++f) {
      const FoldedGradients gradients = of(folds[f]);
      if (base >= gradients.count) continue;
      add_staged(folds[f], f, base == 0 ? source(folds[f]) : sink(folds[f]), sink(folds[f]));
      if (folds[f].bias != 0) add_to_bias(folds[f], gradients, base, bias_sink);
    }
  }
}

/// Stages the factors of gradients `base` to `base + fold_depth - 1` of a panel in slot `slot`;
/// beyond the last gradient zeros. A warp has two gradients and every other 32 columns and rows.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::stage_factors(
    const Fold& fold, int slot, const FoldedGradients& gradients, int base) const {
  static_assert(!Weights::two_halves || warps == fold_depth);
  const int pair = warp() & 7, first = (warp() >> 3) * 32 + lane();
  const int columns = static_cast<int>(fold.width) * 4;
  const bool output = fold.row_back != 0;
  const bool there[2] = {base + 2 * pair < gradients.count, base + 2 * pair + 1 < gradients.count};
  int age[2];
  float factor[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    age[i] = there[i] ? gradients.age(base + 2 * pair + i) : 0;
    factor[i] = there[i] ? fold_scale * gradients.weights[age[i]] : 0.0F;
  }
  std::uint32_t* to = staged_columns(slot) + pair * fold_stride(columns);
#pragma unroll 2
  for (int c = first; c < columns; c += 64) {
    const std::uint32_t word = output ? 0 : source_words()[fold.columns + c];
    float v[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float* from = output ? listed_d1(age[i]) + fold.columns + c
                                 : a.past + (word & place_mask) +
                                       past_row(3 + static_cast<int>(word >> back_shift) + age[i]);
      v[i] = there[i] ? load_fresh(from) : 0.0F;
    }
    to[c] = Weights::Math::pair(v[0], v[1]);
  }
  const unsigned int place =
      (output ? a.first_raw : a.first_d0) + fold.row_source * static_cast<unsigned>(hidden());
  const int back = output ? static_cast<int>(fold.row_back) + 2 : 1;
  to = staged_rows(slot) + pair * fold_stride(padded());
#pragma unroll 2
  for (int row = first; row < padded(); row += 64) {
    float v[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      v[i] = there[i] ? factor[i] * load_fresh(a.past + past_row(back + age[i]) + place +
                                               min(row, hidden() - 1))
                      : 0.0F;
    }
    to[row] = Weights::Math::pair(v[0], v[1]);
  }
}

/// The row of the listed d1 for the gradient of this age, at this SM's first column.
template <class Precision, int RG, class Known>
__device__ __forceinline__ const float* ThreadBlock<Precision, RG, Known>::listed_d1(
    int age) const {
  int row = now.history - 1 - age;
  row = row < 0 ? row + a.history : row;
  return a.past_d1 + static_cast<std::size_t>(p.history) * 4 +
         static_cast<unsigned>(row) * p.column_count;
}

/// Adds what is staged in a slot to this warp's tiles of the panel. Padding rows get the factors of
/// the unit's last row: no result depends on them, but they have to be finite.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::add_staged(const Fold& fold,
                                                                              int slot, Home source,
                                                                              Home sink) const {
  const int width = static_cast<int>(fold.width);
  const int first = part() * static_cast<int>(fold.part_width);
  const int lanes = min(static_cast<int>(fold.part_width), width - first);
  if (lanes <= 0) return;
  const int e = lane() >> 2, q = lane() & 3;
  const int column_stride = fold_stride(width * 4), row_stride = fold_stride(padded());
  const std::uint32_t* columns = staged_columns(slot) + q * column_stride + 4 * first;
#pragma unroll 1
  for (int g = group(); g < groups(); g += warps) {
    const int at = (g * width + first) * RG + e;
    Four high[4][2], low[4][2];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        high[j][r] = low[j][r] = make_uint2(0, 0);
        if (e + 8 * j >= lanes || 2 * q + r >= RG) continue;
        high[j][r] = source.weights[at + (2 * q + r) * lanes + 8 * j];
        low[j][r] = __ldcg(source.low + at + (2 * q + r) * lanes + 8 * j);
      }
    }
    const std::uint32_t* rows = staged_rows(slot) + q * row_stride + g * RG + e;
    const std::uint32_t b[2] = {rows[0], rows[4 * row_stride]};
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const std::uint32_t* x = columns + 4 * min(e + 8 * j, lanes - 1);
      const uint4 newer = *reinterpret_cast<const uint4*>(x);
      const uint4 older = *reinterpret_cast<const uint4*>(x + 4 * column_stride);
      const std::uint32_t left[4] = {newer.x, newer.y, older.x, older.y};
      const std::uint32_t right[4] = {newer.z, newer.w, older.z, older.w};
      float sum[2][4] = {};
      Weights::Math::multiply(sum[0], left, b[0], b[1]);
      Weights::Math::multiply(sum[1], right, b[0], b[1]);
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        if (e + 8 * j >= lanes || 2 * q + r >= RG) continue;
        float4 w = Weights::join(high[j][r], low[j][r]);
        w.x += sum[0][r] * (1 / fold_scale);
        w.y += sum[0][2 + r] * (1 / fold_scale);
        w.z += sum[1][r] * (1 / fold_scale);
        w.w += sum[1][2 + r] * (1 / fold_scale);
        Weights::split(w, high[j][r], low[j][r]);
        sink.weights[at + (2 * q + r) * lanes + 8 * j] = high[j][r];
        store_with_policy(sink.low + at + (2 * q + r) * lanes + 8 * j, low[j][r], evict_first());
      }
    }
  }
}

/// Adds gradients `base` to `base + fold_depth - 1` to the bias column of W1 (r = 1), which is fp32
/// and stored as a row behind the listed d1, in `a.past_d1` or in a copy of it, `sink`.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::add_to_bias(
    const Fold& fold, const FoldedGradients& gradients, int base, float* sink) const {
  const std::size_t at = static_cast<std::size_t>(p.history) * 4 + fold.columns +
                         static_cast<std::size_t>(a.history) * p.column_count;
  const int count = min(fold_depth, gradients.count - base);
#pragma unroll 1
  for (int c = threadIdx.x; c < static_cast<int>(fold.width) * 4; c += threads) {
    float v = (base == 0 ? a.past_d1 : sink)[at + c];
#pragma unroll 4
    for (int i = 0; i < count; ++i) {
      const int age = gradients.age(base + i);
      v += gradients.weights[age] * load_fresh(listed_d1(age) + fold.columns + c);
    }
    if (sink == a.past_d1) {
      list_d1(at + c, v);
    } else {
      sink[at + c] = v;
    }
  }
}

/// Folds the panels whose phase is that of step t.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::fold_step_16bit() const {
  const std::uint32_t* start = list<std::uint32_t>(p.fold_start);
  const Fold* folds = list<Fold>(p.folds);
  const auto home = [&](const Fold& fold) {
    Home h = in_arena(fold.weight);
    if (fold.resident >= 0) h.weights = resident + fold.resident;
    return h;
  };
  const auto due = [&](const Fold& fold) -> FoldedGradients {
    const float* table = layer_table(fold.layer) + 2 * a.period * a.terms;
    const float* ages = table + a.terms;  // their number, then the ages
    return {static_cast<int>(ages[0]), ages + 1, table};
  };
#pragma unroll 1
  for (std::uint32_t k = start[now.phase]; k < start[now.phase + 1]; k += p.folds_at_once) {
    fold_together(folds + k, min(p.folds_at_once, start[now.phase + 1] - k), due, home, home,
                  a.past_d1);
  }
}

/// Prefetches to the L2 cache what the folds of step t read.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::prefetch_folds() const {
  const std::uint32_t* start = list<std::uint32_t>(p.fold_start);
#pragma unroll 1
  for (std::uint32_t k = start[now.phase]; k < start[now.phase + 1]; ++k) {
    const Fold& fold = list<Fold>(p.folds)[k];
    const Home home = in_arena(fold.weight);
    const int bytes = static_cast<int>(fold.width * sizeof(Four)) * padded();
    const auto prefetch_all = [&](const Four* from) {
#pragma unroll 1
      for (int at = threadIdx.x * 128; at < bytes; at += threads * 128) {
        prefetch_line(reinterpret_cast<const unsigned char*>(from) + at);
      }
    };
    prefetch_all(home.low);
    if (fold.resident < 0) prefetch_all(home.weights);
  }
}

}  // namespace pvm::inline v0::detail::general
