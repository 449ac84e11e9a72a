// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Hidden values and their inner products, and how they are sent.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/chip/multiprocessor.cuh>
#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/chip/state.cuh>
#include <pvm/engine/cuda/instructions.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::finish_unit(int u) const {
  constexpr int rows = (Hidden + 31) / 32;
  const unsigned long long t = now().step;
  const ChipUnit& my = unit(u);
  std::uint32_t* record = past(t) + my.unit * S::record;
  float h[rows];
  std::uint32_t word[rows];
#pragma unroll
  for (int k = 0; k < rows; ++k) {
    const int i = lane() + 32 * k;
    h[k] = 0;
    word[k] = 0;
    if (i >= Hidden) continue;
    const float* part = float_area(u) + S::part0 + i;
    float v = part[S::multipliers * S::values];  // of the listed gradients
#pragma unroll
    for (int w = 0; w < S::multipliers; ++w) v += part[w * S::values];
    h[k] = activate(v);
    word[k] = Words::pack(squeeze(h[k]));
  }
  send(record, S::value_pieces, word, t);
  float* row =
      a.hidden + static_cast<std::size_t>(t & (ring - 1)) * a.hidden_row + my.unit * Hidden;
  const bool keeps = keeps_row(ring);
#pragma unroll
  for (int k = 0; k < rows; ++k) {
    const int i = lane() + 32 * k;
    if (i >= Hidden) continue;
    if (keeps) row[i] = h[k];
    history_row(S::hidden, u, t)[i] = h[k];
    history_row(S::squeezed, u, t)[i] = Words::unpack(word[k]);
    area(u)[S::raw + static_cast<std::uint32_t>(i)] = Words::pack(h[k]);
  }
  __syncwarp();  // the lanes read what all have written
  const float sum = unit_products(u, t);
  const std::uint32_t products[1] = {__float_as_uint(sum)};
  send(record + 4 * S::value_pieces, S::product_pieces, products, t);
  list_representation(u, sum);
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ float Multiprocessor<Precision, Hidden, home>::unit_products(
    int u, unsigned long long t) const {
  const std::uint32_t what = lane() < sums ? S::squeezed : S::hidden;
  const int age = min(lane() & (sums - 1), S::terms - 1);
  const float* now_row = history_row(what, u, t);
  const float* then = history_row(what, u, t - 3 - static_cast<unsigned>(age) + history);
  const float sum =
      inner_product([&](int i) { return four(now_row + i); }, [&](int i) { return four(then + i); },
                    [&](int i) { return now_row[i]; }, [&](int i) { return then[i]; });
  return (lane() & (sums - 1)) < S::terms ? sum : 0.0F;
}

template <class Precision, int Hidden, Home home>
template <class FourA, class FourB, class OneA, class OneB>
__device__ __forceinline__ float Multiprocessor<Precision, Hidden, home>::inner_product(
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

template <class Precision, int Hidden, Home home>
template <int Rows>
__device__ __forceinline__ std::uint32_t Multiprocessor<Precision, Hidden, home>::value_of(
    const std::uint32_t (&word)[Rows], int i) const {
  std::uint32_t out = 0;
#pragma unroll
  for (int k = 0; k < Rows; ++k) {
    const std::uint32_t v = __shfl_sync(every_lane, word[k], i & 31);
    if (i / 32 == k) out = v;
  }
  return out;
}

template <class Precision, int Hidden, Home home>
template <int Rows>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::send(
    std::uint32_t* to, int pieces, const std::uint32_t (&word)[Rows], unsigned long long t) const {
  uint4 v;
  const int i = 3 * min(lane(), pieces - 1);
  v.x = value_of(word, i);
  v.y = value_of(word, i + 1);
  v.z = value_of(word, i + 2);
  v.w = static_cast<std::uint32_t>(t + 1);
  if (lane() < pieces) send_piece(to + 4 * lane(), v);
}

}  // namespace pvm::inline v0::detail::chip
