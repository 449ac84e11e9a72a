// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The listed gradients, which are not in the weights yet: what they weigh, and what they add.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/chip/multiprocessor.cuh>
#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/chip/state.cuh>
#include <pvm/engine/cuda/instructions.cuh>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::open_tables(int u) const {
  const std::uint32_t table = area(u)[S::rates + static_cast<unsigned>(now().frame)];
  if (table == area(u)[S::opened]) return;
  __syncwarp();
  if (lane() == 0) area(u)[S::opened] = table;
  const float* from = launch().coefficients + static_cast<std::size_t>(table) * a.table_stride;
  const int square = a.period * S::terms;
#pragma unroll 1
  for (int k = lane(); k < (a.period + 1) * sums; k += 32) {
    const int since = k / sums;
    const int age = k % sums;
    const bool folds = since == a.period;
    float v = 0;
    if (age < S::terms) v = __ldg(from + (folds ? 2 * square : since * S::terms) + age);
    if (age == sums - 2) v = 1;
    // Of the row of folds: how many of them there are.
    if (age == sums - 1 && folds) v = __ldg(from + 2 * square + S::terms);
    (folds ? folds_of(u) : float_area(u) + S::tables + since * sums)[age] = v;
  }
  __syncwarp();
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::listed_share(int u) const {
  const unsigned long long t = now().step;
  const ChipUnit& my = unit(u);
  const bool patch = my.patch != not_a_patch;
  const std::uint32_t first = patch ? 0 : 1;
  const std::uint32_t* sent = past(t - 1 + ring);
  const auto mark = static_cast<std::uint32_t>(t);
  constexpr int at_once = S::streams ? 3 : 4;
  Asked primary{};
  if (!patch) primary = ask_primary(u, t - 1, 0);
  Products sum = {{0, 0, 0}};
#pragma unroll 1
  for (std::uint32_t from = first; from < my.panels; from += at_once) {
    uint4 piece[at_once] = {};
    std::uint32_t at[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      at[i] = from + i < my.panels ? product_place(my, from + i) : no_product;
      if (at[i] != no_product) piece[i] = receive_piece(sent + at[i]);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (at[i] == no_product) continue;
      while (piece[i].w != mark) piece[i] = receive_piece(sent + at[i]);
      const ChipPanel& panel = list<ChipPanel>(p.panels)[my.first_panel + from + i];
      add_products(sum, piece[i],
                   weights_of(u, static_cast<int>(panel.phase)) + 3 * (lane() % S::product_pieces));
    }
  }
  __syncwarp();
  float total = over_sources(sum);
  float products = 0;  // of A
  if (patch) {
    if (lane() < sums) products = primary_sums(u, t)[lane()];
  } else {
    products = primary_products(u, t - 1, primary);
    if (lane() < sums) primary_sums(u, t)[lane()] = products;
  }
  if (lane() < S::terms) {
    total += weights_of(u, static_cast<int>(my.own_phase[0]))[lane()] * products;
    total +=
        weights_of(u, static_cast<int>(my.own_phase[1]))[lane()] * primary_sums(u, t + 1)[lane()];
    total += weights_of(u, static_cast<int>(my.own_phase[2]))[lane()];
  }
  weigh_gradients(u, t, total);
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::weigh_gradients(
    int u, unsigned long long t, float total) const {
  constexpr int rows = (Hidden + 31) / 32;
  float share[rows];
#pragma unroll
  for (int k = 0; k < rows; ++k) share[k] = 0;
#pragma unroll
  for (int age = 0; age < S::terms; ++age) {
    const float weight = __shfl_sync(every_lane, total, age);
    const float* d0 = history_row(S::d0, u, t - 1 - age + history);
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const int i = lane() + 32 * k;
      if (i < Hidden) share[k] += weight * d0[i];
    }
  }
#pragma unroll
  for (int k = 0; k < rows; ++k) {
    const int i = lane() + 32 * k;
    if (i < Hidden) float_area(u)[S::listed_part + i] = share[k];
  }
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::list_representation(
    int u, float sum) const {
  const int e = lane() & (sums - 1);
  const int age = e > S::rest ? age_of(e) : 0;
  const float product = __shfl_sync(every_lane, sum, sums + (age < S::terms ? age : 0)) + 1.0F;
  float v = 1;  // the bias
  if (e < S::rest) v = history_row(S::hidden, u, now().step)[S::tiles * 8 + e];
  if (e > S::rest) v = product;
  const int place = table_place(e);
  const float* tables = float_area(u) + S::tables + place;
  std::uint32_t* to = area(u) + S::listed + e;
#pragma unroll 1
  for (int since = lane() / sums; since < a.period; since += 32 / sums) {
    to[since * sums] = Words::pack(tables[since * sums] * v);
  }
}

}  // namespace pvm::inline v0::detail::chip
