// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The listed gradients, which are not in the weights yet (docs/design.md, deferred updates): their
/// coefficients, what they add to W0 x, and what W1's lists are multiplied by for y.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/exchange.cuh>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/cuda/units/step/thread_block.cuh>

namespace pvm::inline v0::detail::units {

/// Copies this step's coefficients to a unit's area unless they are there: one warp's work.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::load_coefficients(
    int u) const {
  const std::uint32_t table = table_numbers(u)[now().frame];
  if (table == area(u)[S::loaded_table]) return;
  __syncwarp();
  if (lane() == 0) area(u)[S::loaded_table] = table;
  const float* from = launch().coefficients + static_cast<std::size_t>(table) * a.table_stride;
  float* to = float_area(u);
  if constexpr (S::two_plans) {
    copy_table(from, S::terms, S::period, to + S::tables, nullptr);
    from += a.second_part;
  }
  copy_table(from, S::w1_terms, S::w1_period, to + S::w1_tables,
             S::pipelined ? to + S::tables_after : nullptr);
  __syncwarp();
}

/// Copies the coefficients of a matrix with `terms` listed gradients and `period` phases: `from`
/// its part of a table `to` rows of the unit's area, and those for y(t-1) to the rows `after`,
/// unless that is null.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::copy_table(
    const float* from, int terms, int period, float* to, float* after) const {
  const int square = period * terms;
#pragma unroll 1
  for (int k = lane(); k < (period + 1) * S::table_row; k += 32) {
    const int since = k / S::table_row;
    const int age = k % S::table_row;
    const bool folds = since == period;
    float v = age == S::table_row - 2 ? 1 : 0;
    if (age < terms) v = __ldg(from + (folds ? 2 * square : since * terms) + age);
    // In the row of folds this is the number of coefficients that are not 0.
    if (age == S::table_row - 1 && folds) v = __ldg(from + 2 * square + terms);
    to[k] = v;
    if (after == nullptr || folds) continue;
    after[k] = age < terms ? __ldg(from + square + since * terms + age) : v;
  }
}

/// Makes what the listed gradients add to W0 x(t) of a unit: one warp's work. It is the sum, by
/// age, of T(age) d0(j), where T(age) is the sum, over the panels of x, of the panel's coefficient
/// w(age) times the panel's part of x(j-2).x(t).
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::make_listed_part(
    int u) const {
  const unsigned long long t = now().step;
  const ProgramUnit& my = unit(u);
  const bool patch = my.patch != not_a_patch;
  const std::uint32_t* sent = past(t - 1 + S::ring);
  const auto tag = static_cast<std::uint32_t>(t);
  // Unless the unit sees a patch, the first group is its primary sources. Their products are summed
  // without coefficients, because the next step uses them for B, with other coefficients.
  Products sum = {{0, 0, 0}}, of_primary = {{0, 0, 0}};
  [[maybe_unused]] Products of_context = {{0, 0, 0}};
#pragma unroll 1
  for (std::uint32_t from = 0; from < my.groups; from += pieces_at_once) {
    uint4 piece[pieces_at_once];
    std::uint32_t at[pieces_at_once];
    Products weigh[pieces_at_once];  // coefficients in device memory are loaded before the pieces
#pragma unroll
    for (int i = 0; i < pieces_at_once; ++i) {
      at[i] = from + i < my.groups ? source_place(my, from + i) : no_source;
      piece[i] = make_uint4(0, 0, 0, tag);
      if constexpr (S::streams) {
        const float* of = source_coefficients(u, at[i]);
        weigh[i] = {{of[0], of[1], of[2]}};
      }
      if (at[i] != no_source) piece[i] = receive_piece<S::shards>(sent + (at[i] & no_source));
    }
    poll_pieces(piece, at, sent, tag);
#pragma unroll
    for (int i = 0; i < pieces_at_once; ++i) {
      const float ones[3] = {1, 1, 1};
      if (i == 0 && from == 0 && !patch) {
        add_products(of_primary, piece[i], ones);
        continue;
      }
      if constexpr (S::reads_context) add_products(of_context, piece[i], ones);
      add_products(sum, piece[i], S::streams ? weigh[i].v : source_coefficients(u, at[i]));
    }
  }
  if (my.primary > S::group_sources) {  // the first group does not have all primary sources
    const Products others = primary_products(u, t - 1, S::group_sources);
#pragma unroll
    for (int i = 0; i < 3; ++i) of_primary.v[i] += others.v[i];
  }
  __syncwarp();
  float total = sum_over_sources(sum);
  if constexpr (S::reads_context) keep_context_products(u, t, sum_over_sources(of_context));
  add_own_products(u, my, patch, t, patch ? 0.0F : sum_over_sources(of_primary), total);
  ValuePairs part = weigh_rows(S::d0, u, 1, S::terms, total);
#pragma unroll
  for (int k = 0; k < pairs_per_lane; ++k) {
    const int pair = value_pair(k);
    if (2 * pair + 1 >= Hidden) part.v[k].y = 0;
    if (2 * pair < Hidden) {
      reinterpret_cast<float2*>(float_area(u) + S::listed_part)[pair] = part.v[k];
    }
  }
}

/// If `reads_context`: keeps for the outputs of step t the inner products of the context's hidden
/// values h with those of the listed gradients, and the coefficients of outputs that fold in step
/// t: one warp's work. `products` of lane i is the product of the squeezed values c at age i;
/// behind the last one is the sum of c(t). As h = 1.25 c - 0.125, these are enough. The gradients
/// of steps 0 and 1 are products with a representation of ones.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::keep_context_products(
    int u, unsigned long long t, float products) const {
  float* const of_unit = float_area(u);
  const float sum = __shfl_sync(every_lane, products, S::terms);
  const int age = min(lane(), S::w1_terms - 1);
  const auto values = static_cast<float>(static_cast<int>(unit(u).context) * Hidden);
  const float then =
      of_unit[S::context_sums +
              (static_cast<unsigned>(t) - 3U - static_cast<unsigned>(age)) % S::history];
  float product = fmaf(1.5625F, products, fmaf(-0.15625F, sum + then, values * 0.015625F));
  if (t < static_cast<unsigned>(age) + 3U) product = fmaf(1.25F, sum, -0.125F * values);
  if (lane() < S::table_row) {
    const bool listed = lane() < S::w1_terms;
    of_unit[S::context_products + static_cast<unsigned>(lane())] = listed ? product : 0.0F;
    of_unit[S::folded_coefficients + static_cast<unsigned>(lane())] =
        of_unit[S::w1_tables + static_cast<unsigned>(lane())];
  }
  __syncwarp();
  if (lane() == 0) of_unit[S::context_sums + static_cast<unsigned>(t) % S::history] = sum;
}

/// Makes the sums of the context of the steps before t, at the start of a launch: one warp's work.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::load_context_sums(
    int u, unsigned long long t) const {
#pragma unroll 1
  for (unsigned back = 1; back < S::history; ++back) {
    const unsigned long long step = t + 2 * S::ring - back;
    const float products = sum_over_sources(context_products(u, step - 1));
    const float sum = __shfl_sync(every_lane, products, S::terms);
    if (lane() == 0)
      float_area(u)[S::context_sums + static_cast<unsigned>(step) % S::history] = sum;
  }
}

/// The coefficients of this lane's piece of a source's inner products. `source`: an element of
/// `ProgramUnit::products`; if it is `no_source`, any coefficients.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ const float*
ThreadBlock<Precision, Hidden, home, Own>::source_coefficients(int u, std::uint32_t source) const {
  const int phase = source == no_source ? 0 : static_cast<int>(source >> phase_shift);
  return coefficients_of(u, phase) + 3 * (lane() % S::product_pieces);
}

/// Loads pieces again, from `sent` (a row of the past) + `at`, until their tags are `tag`.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::poll_pieces(
    uint4 (&piece)[pieces_at_once], const std::uint32_t (&at)[pieces_at_once],
    const std::uint32_t* sent, std::uint32_t tag) {
  bool all_there = true;
#pragma unroll
  for (int i = 0; i < pieces_at_once; ++i) all_there = all_there && piece[i].w == tag;
  if (!all_there) {
#pragma unroll
    for (int i = 0; i < pieces_at_once; ++i) {
      while (piece[i].w != tag) piece[i] = receive_piece<S::shards>(sent + (at[i] & no_source));
    }
  }
}

/// Adds to `total`, which is T(age) of age lane(), what A, B and the bias contribute. `products` of
/// lane i is the inner product of A(t) at age i. It is kept in `primary_sums`, for the next step's
/// B. If the unit sees a patch, `products` is not used: `finish_patch` has already stored the inner
/// products there.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::add_own_products(
    int u, const ProgramUnit& my, bool patch, unsigned long long t, float products,
    float& total) const {
  if (lane() < S::table_row) {
    if (patch) {
      products = primary_sums(u, t)[lane()];
    } else {
      primary_sums(u, t)[lane()] = products;
    }
  }
  if (lane() < S::terms) {
    total += coefficients_of(u, static_cast<int>(my.own_phase[0]))[lane()] * products;
    total += coefficients_of(u, static_cast<int>(my.own_phase[1]))[lane()] *
             primary_sums(u, t + 1)[lane()];
    total += coefficients_of(u, static_cast<int>(my.own_phase[2]))[lane()];
  }
}

/// The sum over `terms` ages of weight(age) times the row of step t - newest - age of the ring
/// buffer `what` (S::hidden or S::d0). `weight` of lane i is that of age i.
///
/// Rows are summed in the order in which the ring buffer has them, so that their addresses are
/// constants; the weights are rotated instead.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ auto ThreadBlock<Precision, Hidden, home, Own>::weigh_rows(
    std::uint32_t what, int u, int newest, int terms, float weight) const -> ValuePairs {
  if (lane() >= terms) weight = 0;
  if constexpr (S::streams) {
    return weigh_device_rows(history_rows(what, u), now().step - static_cast<unsigned>(newest),
                             weight);
  } else {
    return weigh_shared_rows(what, u, newest, weight);
  }
}

/// `weigh_rows` where all weights are streamed, so that the unit's area is in device memory: the
/// weights, one for each row, go from lane to lane by shuffles, which saves a round trip, and eight
/// rows are in flight. `rows`: the ring buffer.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ auto ThreadBlock<Precision, Hidden, home, Own>::weigh_device_rows(
    const float* rows, unsigned long long newest, float weight) const -> ValuePairs {
  ValuePairs sum;
  constexpr int at_once = 8;
#pragma unroll
  for (int k = 0; k < pairs_per_lane; ++k) {
#pragma unroll
    for (int first = 0; first < S::history; first += at_once) {
      float2 v[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        v[i] = reinterpret_cast<const float2*>(rows + (first + i) * S::values)[valid_pair(k)];
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const auto age = static_cast<int>(newest - static_cast<unsigned>(first + i));
        const float of_row = __shfl_sync(every_lane, weight, age & (S::history - 1));
        sum.v[k].x += of_row * v[i].x;
        sum.v[k].y += of_row * v[i].y;
      }
    }
  }
  return sum;
}

/// `weigh_rows` where the unit's area is in shared memory: the rotated weights are written there,
/// too.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ auto ThreadBlock<Precision, Hidden, home, Own>::weigh_shared_rows(
    std::uint32_t what, int u, int newest, float weight) const -> ValuePairs {
  static_assert(pairs_per_lane == 1);
  ValuePairs sum;
  const int mine = valid_pair(0);
  const auto add = [&](float of_row, const float* row) {
    const float2 v = reinterpret_cast<const float2*>(row)[mine];
    sum.v[0].x += of_row * v.x;
    sum.v[0].y += of_row * v.y;
  };
  // S::listed_part is free here: `make_listed_part` writes it after this call, and `finish_unit`
  // has read it before `finish_gradient` makes its call.
  float* weights = float_area(u) + S::listed_part;
  if (lane() < S::unit_rows) {
    const int back = newest + lane();  // those of other rows have weight 0
    weights[this->recent_row(back < S::unit_rows ? back : back - S::unit_rows)] = weight;
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < S::unit_rows; i += 4) {
    const float4 w = four(weights + i);
    const float* rows = history_rows(what, u) + i * S::values;
    add(w.x, rows);
    add(w.y, rows + S::values);
    add(w.z, rows + 2 * S::values);
    add(w.w, rows + 3 * S::values);
  }
  __syncwarp();
  return sum;
}

/// Writes what the rows of W1's lists are multiplied by for y(t), S::list_factors, for blocks by
/// the number of steps since they last folded: the hidden values of the remainder rows, 1 for the
/// bias, and w r(j-2).r(t) for each listed gradient. `sum` has the products of h, that of age i in
/// lane first + i.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::write_list_factors(
    int u, float sum, int first) const {
  const int e = lane() & (S::row_lanes - 1);
  const int age = e >= S::first_d1_row ? age_of(min(e, S::list_rows - 1)) : 0;
  const float product = __shfl_sync(every_lane, sum, first + (age < S::w1_terms ? age : 0)) + 1.0F;
  if (e >= S::list_rows) return;
  float v = 1;  // the bias
  if (e < S::remainder_rows) v = history_row(S::hidden, u, 0)[S::tiles * 8 + e];
  if (e >= S::first_d1_row) v = product;
  const int index = table_index(e);
  const float* tables = float_area(u) + S::w1_tables + index;
  std::uint32_t* to = area(u) + S::list_factors + e;
#pragma unroll 1
  for (int since = lane() / S::row_lanes; since < S::w1_period; since += 32 / S::row_lanes) {
    to[since * S::table_row] = Words::pack(tables[since * S::table_row] * v);
  }
}

/// The same for y(t - 1), in step t, where h(t) is made before y(t - 1) (`pipelined`). Also writes
/// h(t - 1) to S::packed_hidden.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::write_last_list_factors(
    int u) const {
  const float* h = history_row(S::hidden, u, 1);
  for (int i = lane(); i < Hidden; i += 32) {
    area(u)[S::packed_hidden + static_cast<std::uint32_t>(i)] = Words::pack(h[i]);
  }
  const int e = lane() & (S::table_row - 1);
  // Ages here are those in step t - 1. The gradient of step t - 1 (age -1) was not listed then. The
  // oldest one (age w1_terms - 1) is left out: step t overwrites its list row with d1(t). All
  // blocks have folded it, and what its momentum still lacked has died out (`dies_out` in
  // plan.hpp).
  const int age = e >= S::first_d1_row ? age_of(e) - 1 : 0;
  const bool listed = age >= 0 && age < S::w1_terms - 1;
  float v = 1;  // the bias
  if (e < S::remainder_rows) v = h[S::tiles * 8 + e];
  if (e >= S::first_d1_row) {
    v = listed ? float_area(u)[S::products + static_cast<unsigned>(age)] + 1.0F : 0;
  }
  const int index = e < S::first_d1_row ? S::table_row - 2 : (listed ? age : 0);
  const float* tables = float_area(u) + S::tables_after + index;
  std::uint32_t* to = area(u) + S::list_factors + e;
  // What the context adds. Its products were made before the folds of step t - 1: blocks that
  // folded then have the coefficients before it.
  float context = 0, before = 0;
  if constexpr (S::reads_context) {
    if (listed && e >= S::first_d1_row) {
      context = float_area(u)[S::context_products + static_cast<unsigned>(age)];
      before = float_area(u)[S::folded_coefficients + static_cast<unsigned>(age)];
    }
  }
  // The tables are in device memory: all loads are in flight at once.
  constexpr int each = 32 / S::table_row, at_once = (S::w1_period + each - 1) / each;
#pragma unroll 1
  for (int first = lane() / S::table_row; first < S::w1_period; first += at_once * each) {
    float coefficient[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      coefficient[i] = tables[min(first + i * each, S::w1_period - 1) * S::table_row];
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (i > 0 && first + i * each >= S::w1_period) continue;
      float factor = coefficient[i] * v;
      if constexpr (S::reads_context) {
        factor += (first + i * each == 1 ? before : coefficient[i]) * context;
      }
      to[(first + i * each) * S::table_row] = Words::pack(factor);
    }
  }
}

}  // namespace pvm::inline v0::detail::units
