// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Receives what the SMs of the sources sent: values c(h), which become inputs, and their inner
/// products with the listed past. Records are in tagged pieces (sizes.hpp); a thread polls a piece
/// until it has the tag of the expected step, with loads of several pieces in flight.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/multiprocessor.cuh>
#include <pvm/engine/cuda/units/step/state.cuh>

namespace pvm::inline v0::detail::units {

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::gather_values(
    unsigned long long step, bool odd, int me, int count) const {
  constexpr int at_once = S::specialised ? 6 : 4;  // pieces that a thread has in flight
  constexpr std::uint32_t whole = 1U << 31;        // flag in `to`: all three words are values
  const std::uint32_t* from = past(step);
  const auto tag = static_cast<std::uint32_t>(step + 1);
  const int pieces = static_cast<int>(p.slot_count) * S::value_pieces;
  const auto* slots = list<ChipSlot>(p.slots);
#pragma unroll 1
  for (int first = me; first < pieces; first += at_once * count) {
    uint4 v[at_once];
    std::uint32_t at[at_once], to[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const auto k = static_cast<std::uint32_t>(min(first + i * count, pieces - 1));
      const ChipSlot slot = slots[k / S::value_pieces];
      const std::uint32_t piece = k % S::value_pieces;
      at[i] = slot.from + piece * 4;
      to[i] = (odd ? slot.to >> 16 : slot.to & 0xffffU) + piece * 3;
      if (piece * 3 + 2 < Hidden) to[i] |= whole;
      v[i] = load_relaxed_16(from + at[i]);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      while (v[i].w != tag) v[i] = load_relaxed_16(from + at[i]);
      std::uint32_t* words = shared + (to[i] & ~whole);
      words[0] = v[i].x;
      if (Hidden % 3 == 2 || (to[i] & whole) != 0) words[1] = v[i].y;
      if ((to[i] & whole) != 0) words[2] = v[i].z;
    }
  }
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ std::uint32_t Multiprocessor<Precision, Hidden, home>::products_at(
    const ChipSlot& slot) const {
  return slot.from + 4 * (S::value_pieces + lane() % S::product_pieces);
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::add_products(
    Products& sum, uint4 piece, const float* w) {
  sum.v[0] += w[0] * __uint_as_float(piece.x);
  sum.v[1] += w[1] * __uint_as_float(piece.y);
  sum.v[2] += w[2] * __uint_as_float(piece.z);
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ float Multiprocessor<Precision, Hidden, home>::sum_over_sources(
    const Products& sum) const {
  // Lane s * product_pieces + k has piece k of source s. The first product_pieces lanes get the
  // complete sums; lane i then takes word i % 3 of piece i / 3.
  float out = 0;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    float v = sum.v[i];
    float all = v;
#pragma unroll
    for (int s = 1; s < group_slots; ++s) {
      all += __shfl_sync(every_lane, v, (lane() + s * S::product_pieces) & 31);
    }
    const float mine = __shfl_sync(every_lane, all, lane() / 3);
    if (lane() % 3 == i) out = mine;
  }
  return out;
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ Products Multiprocessor<Precision, Hidden, home>::primary_products(
    int u, unsigned long long step, std::uint32_t from) const {
  const ChipUnit& my = unit(u);
  const float ones[3] = {1, 1, 1};
  Products sum = {{0, 0, 0}};
#pragma unroll 1
  for (; from < my.primary; from += group_slots) {
    const std::uint32_t s = from + static_cast<std::uint32_t>(lane() / S::product_pieces);
    if (s >= my.primary || lane() >= group_slots * S::product_pieces) continue;
    const std::uint32_t* at = past(step) + products_at(list<ChipSlot>(p.slots)[my.first_slot + s]);
    uint4 piece = load_relaxed_16(at);
    while (piece.w != static_cast<std::uint32_t>(step + 1)) piece = load_relaxed_16(at);
    add_products(sum, piece, ones);
  }
  return sum;
}

}  // namespace pvm::inline v0::detail::units
