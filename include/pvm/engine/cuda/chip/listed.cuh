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
  const std::uint32_t* sent = past(t - 1 + ring);
  const auto mark = static_cast<std::uint32_t>(t);
  constexpr int at_once = S::streams ? 3 : 5;
  Products sum = {{0, 0, 0}}, of_primary = {{0, 0, 0}};  // the first panel is the primary sources
#pragma unroll 1
  for (std::uint32_t from = 0; from < my.panels; from += at_once) {
    uint4 piece[at_once];
    std::uint32_t at[at_once];
    bool all_there = true;
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      at[i] = from + i < my.panels ? product_place(my, from + i) : no_product;
      piece[i] = make_uint4(0, 0, 0, mark);
      if (at[i] != no_product) piece[i] = receive_piece(sent + (at[i] & no_product));
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) all_there = all_there && piece[i].w == mark;
    if (!all_there) {
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        while (piece[i].w != mark) piece[i] = receive_piece(sent + (at[i] & no_product));
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (i == 0 && from == 0 && !patch) {
        const float ones[3] = {1, 1, 1};
        add_products(of_primary, piece[i], ones);
        continue;
      }
      const int phase = at[i] == no_product ? 0 : static_cast<int>(at[i] >> phase_shift);
      add_products(sum, piece[i], weights_of(u, phase) + 3 * (lane() % S::product_pieces));
    }
  }
  if (!patch && list<ChipPanel>(p.panels)[my.first_panel].count > panel_slots) {
    const Products others = primary_products(u, t - 1, panel_slots);
#pragma unroll
    for (int i = 0; i < 3; ++i) of_primary.v[i] += others.v[i];
  }
  __syncwarp();
  float total = 0, products = 0;  // of A
#pragma unroll 1
  for (int of_context = 0; of_context < 2; ++of_context) {
    Products of;
#pragma unroll
    for (int i = 0; i < 3; ++i) of.v[i] = of_context != 0 ? sum.v[i] : of_primary.v[i];
    const float over = over_sources(of);
    if (of_context != 0) {
      total = over;
    } else {
      products = over;
    }
  }
  if (lane() < sums) {
    if (patch) {
      products = primary_sums(u, t)[lane()];
    } else {
      primary_sums(u, t)[lane()] = products;
    }
  }
  if (lane() < S::terms) {
    total += weights_of(u, static_cast<int>(my.own_phase[0]))[lane()] * products;
    total +=
        weights_of(u, static_cast<int>(my.own_phase[1]))[lane()] * primary_sums(u, t + 1)[lane()];
    total += weights_of(u, static_cast<int>(my.own_phase[2]))[lane()];
  }
  constexpr int rows = (Hidden + 31) / 32;
  float share[rows] = {};
  weigh_rows(share, S::d0, u, t - 1, total);
#pragma unroll
  for (int k = 0; k < rows; ++k) {
    const int i = lane() + 32 * k;
    if (i < Hidden) float_area(u)[S::listed_part + i] = share[k];
  }
}

template <class Precision, int Hidden, Home home>
template <int Rows>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::weigh_rows(
    float (&sum)[Rows], std::uint32_t what, int u, unsigned long long newest, float weight) const {
  const auto add = [&](float of_row, const float* row) {
#pragma unroll
    for (int k = 0; k < Rows; ++k) {
      if (lane() + 32 * k < Hidden) sum[k] += of_row * row[lane() + 32 * k];
    }
  };
  if constexpr (S::streams) {
#pragma unroll
    for (int age = 0; age < S::terms; ++age) {
      add(__shfl_sync(every_lane, weight, age), history_row(what, u, newest - age + history));
    }
  } else {
    // In the order in which rows lie, which spares finding them: a lane takes the weight of the row
    // of its number.
    if (lane() >= S::terms) weight = 0;
    const int age = static_cast<int>(newest - static_cast<unsigned>(lane())) & (history - 1);
    weight = __shfl_sync(every_lane, weight, age);
#pragma unroll 4
    for (int i = 0; i < history; ++i) {
      add(__shfl_sync(every_lane, weight, i), float_area(u) + what + i * S::values);
    }
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
  for (int i = 0; i < S::most_period; i += 32 / sums) {
    const int since = i + lane() / sums;
    if (since < a.period) to[since * sums] = Words::pack(tables[since * sums] * v);
  }
}

}  // namespace pvm::inline v0::detail::chip
