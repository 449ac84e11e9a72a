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
      const Fold& fold = folds[f];
      const FoldedGradients gradients = of(fold);
      if (base >= gradients.count) continue;
      const int tiles = fold_place(fold, 0).lanes > 0 ? groups() : 0;
#pragma unroll 1
      for (int g = group(); g < tiles; g += groups_at_once()) {
        FoldedTile tile;
        load_halves(tile, fold, g, base == 0 ? source(fold) : sink(fold));
        add_staged(tile, fold, f, g, sink(fold));
      }
      if (fold.bias != 0) add_to_bias(fold, gradients, base, bias_sink);
    }
  }
}

/// Stages the factors of gradients `base` to `base + fold_depth - 1` of a panel in slot `slot`;
/// beyond the last gradient zeros. A warp has two gradients, and columns or rows.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::stage_factors(
    const Fold& fold, int slot, const FoldedGradients& gradients, int base) const {
  static_assert(!Weights::two_halves || warps == fold_depth);
  const int pair = warp() & 7;
  const bool output = fold.row_back != 0;
  bool there[2];
  int age[2];
  float factor[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    there[i] = base + 2 * pair + i < gradients.count;
    age[i] = there[i] ? gradients.age(base + 2 * pair + i) : 0;
    factor[i] = there[i] ? fold_scale * gradients.weights[age[i]] : 0.0F;
  }
  if (warp() < 8) {
    const int columns = static_cast<int>(fold.width) * 4;
    const float* listed[2] = {listed_d1(age[0]) + fold.columns, listed_d1(age[1]) + fold.columns};
    const std::uint32_t* words = source_words() + (output ? 0 : fold.columns);
    stage_pair(
        staged_columns(slot) + pair * fold_stride(columns), columns, there, [&](int c, int i) {
          const std::uint32_t word = output ? 0 : words[c];
          const int back = 3 + static_cast<int>(word >> back_shift) + age[i];
          return load_fresh(output ? listed[i] + c : a.past + past_row(back) + (word & place_mask));
        });
  } else {
    const unsigned int place =
        (output ? a.first_raw : a.first_d0) + fold.row_source * static_cast<unsigned>(hidden());
    const int back = output ? static_cast<int>(fold.row_back) + 2 : 1;
    const float* from[2] = {a.past + past_row(back + age[0]) + place,
                            a.past + past_row(back + age[1]) + place};
    stage_pair(
        staged_rows(slot) + pair * fold_stride(padded()), padded(), there,
        [&](int row, int i) { return factor[i] * load_fresh(from[i] + min(row, hidden() - 1)); });
  }
}

/// to[k] = the pair of value(k, 0) and value(k, 1), for k < count; 0 for a value that is not there.
/// One warp calls it; it loads eight values at a time.
template <class Precision, int RG, class Known>
template <class Value>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::stage_pair(
    std::uint32_t* to, int count, const bool (&there)[2], Value value) const {
  constexpr int together = 4;
#pragma unroll 1
  for (int first = lane(); first < count; first += 32 * together) {
    float v[together][2];
#pragma unroll
    for (int n = 0; n < together; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        v[n][i] = there[i] ? value(min(first + 32 * n, count - 1), i) : 0.0F;
      }
    }
#pragma unroll
    for (int n = 0; n < together; ++n) {
      if (first + 32 * n < count) to[first + 32 * n] = Weights::Math::pair(v[n][0], v[n][1]);
    }
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

/// Loads a lane's weights of this warp's tile in a row group of the panel.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::load_halves(FoldedTile& tile,
                                                                               const Fold& fold,
                                                                               int group,
                                                                               Home source) const {
  const FoldPlace at = fold_place(fold, group);
#pragma unroll
  for (int j = 0; j < 4; ++j) {
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      tile.high[j][r] = tile.low[j][r] = make_uint2(0, 0);
      if (!at.has(j, r)) continue;
      tile.high[j][r] = source.weights[at.of(j, r)];
      tile.low[j][r] = __ldcg(source.low + at.of(j, r));
    }
  }
}

/// Adds what is staged in a slot to the tile, and stores it. Padding rows get the factors of the
/// unit's last row: no result depends on them, but they have to be finite.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::add_staged(FoldedTile& tile,
                                                                              const Fold& fold,
                                                                              int slot, int group,
                                                                              Home sink) const {
  const FoldPlace at = fold_place(fold, group);
  const int e = lane() >> 2, q = lane() & 3;
  const int column_stride = fold_stride(static_cast<int>(fold.width) * 4);
  const int row_stride = fold_stride(padded());
  const std::uint32_t* columns = staged_columns(slot) + q * column_stride + 4 * at.first;
  const std::uint32_t* rows = staged_rows(slot) + q * row_stride + group * RG + e;
  const std::uint32_t b[2] = {rows[0], rows[4 * row_stride]};
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const std::uint32_t* x = columns + 4 * min(e + 8 * j, at.lanes - 1);
    const uint4 newer = *reinterpret_cast<const uint4*>(x);
    const uint4 older = *reinterpret_cast<const uint4*>(x + 4 * column_stride);
    const std::uint32_t left[4] = {newer.x, newer.y, older.x, older.y};
    const std::uint32_t right[4] = {newer.z, newer.w, older.z, older.w};
    float sum[2][4] = {};
    Weights::Math::multiply(sum[0], left, b[0], b[1]);
    Weights::Math::multiply(sum[1], right, b[0], b[1]);
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      if (!at.has(j, r)) continue;
      float4 w = Weights::join(tile.high[j][r], tile.low[j][r]);
      w.x += sum[0][r] * (1 / fold_scale);
      w.y += sum[0][2 + r] * (1 / fold_scale);
      w.z += sum[1][r] * (1 / fold_scale);
      w.w += sum[1][2 + r] * (1 / fold_scale);
      Weights::split(w, tile.high[j][r], tile.low[j][r]);
      sink.weights[at.of(j, r)] = tile.high[j][r];
      store_with_policy(sink.low + at.of(j, r), tile.low[j][r], evict_first());
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
