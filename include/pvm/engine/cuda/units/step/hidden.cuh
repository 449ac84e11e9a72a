// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes the hidden values of a unit and their inner products with the listed past, and sends both
/// to the units that read them.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/exchange.cuh>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/cuda/units/step/thread_block.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::units {

/// Makes h(t) of a unit from the warps' parts of W0 x(t), sends c(h(t)), then makes and sends its
/// inner products: one warp's work.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::finish_unit(
    int u) const {
  const unsigned long long t = now().step;
  const ProgramUnit& my = unit(u);
  std::uint32_t* record = past(t) + my.unit * S::record;
  std::uint32_t* words = area(u) + S::listed_part;
  float* row =
      a.hidden + static_cast<std::size_t>(t & (S::ring - 1)) * a.hidden_row + my.unit * used();
  const bool survives = row_survives_launch(S::ring);
  const auto make = [&](int i) { return keep_hidden(u, i, hidden_sum(u, i), row, survives); };
  // If all weights are streamed the area is in device memory, and reading words back from it would
  // cost a round trip. So they go from lane to lane by shuffles.
  if constexpr (S::streams) {
    std::uint32_t mine[words_per_lane] = {};
#pragma unroll
    for (int k = 0; k < words_per_lane; ++k) {
      const int i = lane() + 32 * k;
      if (i < Hidden) mine[k] = make(i);
    }
    __syncwarp();  // unit_products reads rows that all lanes have written
    send_words(
        record, S::value_pieces, [&](int i) { return word_of_lanes(mine, i); }, t);
  } else {
    // Word i of the listed gradients' part is read by the lane that overwrites it, just before.
#pragma unroll 1
    for (int i = lane(); i < Hidden; i += 32) words[i] = make(i);
    __syncwarp();
    send_words(
        record, S::value_pieces, [&](int i) { return words[i]; }, t);
  }
  finish_products(u, t, record);
}

/// Makes the inner products of h(t) of a unit and sends them to its record: one warp's work.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::finish_products(
    int u, unsigned long long t, std::uint32_t* record) const {
  if constexpr (S::row_lanes == 32) {
    send_products(record, unit_products(u, S::squeezed), t);
    write_list_factors(u, unit_products(u, S::hidden), 0);
    return;
  }
  const float sum = unit_products(u, lane() < S::row_lanes ? S::squeezed : S::hidden);
  send_products(record, sum, t);
  if constexpr (S::pipelined) {
    if (lane() >= S::table_row) {
      float_area(u)[S::products + static_cast<unsigned>(lane()) - S::table_row] = sum;
    }
  } else {
    write_list_factors(u, sum, S::row_lanes);
  }
}

/// Element i of W0 x(t) of a unit: the sum of the warps' parts and of the listed gradients' part.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ float ThreadBlock<Precision, Hidden, home, Own>::hidden_sum(
    int u, int i) const {
  const float* part = float_area(u) + S::part0 + i;
  float v = part[S::multipliers * S::values];  // the listed gradients' part, S::listed_part
#pragma unroll
  for (int w = 0; w < S::multipliers; ++w) v += part[w * S::values];
  return v;
}

/// Makes value i of h(t) of a unit from element i of W0 x(t). Stores it and c of it to the unit's
/// ring buffers, and if `survives` h also to `row`, the unit's values in a row of
/// `Arguments::hidden`. Returns the word of c(h) that is sent.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ std::uint32_t ThreadBlock<Precision, Hidden, home, Own>::keep_hidden(
    int u, int i, float sum, float* row, bool survives) const {
  const float h = is_used(i) ? activate(sum) : 0.0F;
  const std::uint32_t word = is_used(i) ? Words::pack(squeeze(h)) : 0;
  if (survives && is_used(i)) row[i] = h;
  history_row(S::hidden, u, 0)[i] = h;
  history_row(S::squeezed, u, 0)[i] = Words::unpack(word);
  if constexpr (!S::pipelined) {
    area(u)[S::packed_hidden + static_cast<std::uint32_t>(i)] = Words::pack(h);
  }
  return word;
}

template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ std::uint32_t ThreadBlock<Precision, Hidden, home, Own>::word_of_lanes(
    const std::uint32_t (&of_lane)[words_per_lane], int i) {
  std::uint32_t word = 0;
#pragma unroll
  for (int k = 0; k < words_per_lane; ++k) {
    const std::uint32_t v = __shfl_sync(every_lane, of_lane[k], i & 31);
    if (i / 32 == k) word = v;
  }
  return word;
}

/// Inner products of a unit's values in step t, `what` (S::squeezed or S::hidden), with those in
/// the steps of the listed gradients: lane i gets that of age i, as does lane row_lanes + i. If
/// `reads_context` the sum of c(h) follows its products.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ float ThreadBlock<Precision, Hidden, home, Own>::unit_products(
    int u, std::uint32_t what) const {
  const int terms = what == S::squeezed ? S::terms : S::w1_terms;
  const int age = min(lane() & (S::row_lanes - 1), terms - 1);
  const float* now_row = history_row(what, u, 0);
  const float* then = history_row(what, u, 3 + age);
  const bool sums = S::reads_context && lane() == S::terms;
  if (sums) then = float_area(u) + S::ones;
  const float sum =
      inner_product([&](int i) { return four(now_row + i); }, [&](int i) { return four(then + i); },
                    [&](int i) { return now_row[i]; }, [&](int i) { return then[i]; });
  return sums || (lane() & (S::row_lanes - 1)) < terms ? sum : 0.0F;
}

/// The sum over a unit's values of a(i) b(i), where `four_a(i)` returns a(i) to a(i + 3) and
/// `one_a(i)` returns a(i). Written with explicit fused multiply-adds, so that it is rounded alike
/// in all kernels.
template <class Precision, int Hidden, Home home, class Own>
template <class FourA, class FourB, class OneA, class OneB>
__device__ __forceinline__ float ThreadBlock<Precision, Hidden, home, Own>::inner_product(
    FourA four_a, FourB four_b, OneA one_a, OneB one_b) {
  float4 sum = {0, 0, 0, 0};
#pragma unroll
  for (int i = 0; i < Hidden / 4 * 4; i += 4) {
    const float4 v = four_a(i), w = four_b(i);
    sum.x = __fmaf_rn(v.x, w.x, sum.x);
    sum.y = __fmaf_rn(v.y, w.y, sum.y);
    sum.z = __fmaf_rn(v.z, w.z, sum.z);
    sum.w = __fmaf_rn(v.w, w.w, sum.w);
  }
#pragma unroll
  for (int i = Hidden / 4 * 4; i < Hidden; ++i) sum.x = __fmaf_rn(one_a(i), one_b(i), sum.x);
  return (sum.x + sum.y) + (sum.z + sum.w);
}

/// Sends the words word(0), word(1) and so on as `pieces` pieces (at most 32) with the tag of step
/// t. `word` is called by all lanes, also for indices behind the last value.
template <class Precision, int Hidden, Home home, class Own>
template <class Word>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::send_words(
    std::uint32_t* to, int pieces, Word word, unsigned long long t) const {
  const int i = 3 * min(lane(), pieces - 1);
  const uint4 v = make_uint4(word(i), word(i + 1), word(i + 2), static_cast<std::uint32_t>(t + 1));
  if (lane() < pieces) send_piece<S::shards>(a, to + 4 * lane(), v);
}

/// Sends inner products to their place in a unit's record, behind the values; lane i has that of
/// age i.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::send_products(
    std::uint32_t* record, float product, unsigned long long t) const {
  send_words(
      record + 4 * S::value_pieces, S::product_pieces,
      [&](int i) { return __float_as_uint(__shfl_sync(every_lane, product, i)); }, t);
}

}  // namespace pvm::inline v0::detail::units
