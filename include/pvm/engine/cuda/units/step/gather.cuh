// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Receives what the thread blocks of the sources sent: values c(h), which become inputs, and their
/// inner products with the listed past. Records are in tagged pieces (sizes.hpp); a thread polls a
/// piece until it has the tag of the expected step, with loads of several pieces in flight.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/exchange.cuh>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/cuda/units/step/thread_block.cuh>

namespace pvm::inline v0::detail::units {

/// Copies the values that all sources of this thread block's units sent in step `step` to x, to the
/// places for odd or even steps; polls until they are there. If `reads_context` also the hidden
/// values of the context. The work of `count` threads, of which this is number `me`.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::gather_values(
    unsigned long long step, bool odd, int me, int count) const {
  constexpr int at_once = S::specialised ? 6 : 4;  // pieces that a thread has in flight
  // Flag in `to`: all three words are values. (Units that are padded have n^2 values, which leaves
  // none or one behind whole pieces.)
  constexpr std::uint32_t whole = 1U << 31;
  const std::uint32_t* from = past(step);
  const auto tag = static_cast<std::uint32_t>(step + 1);
  const auto of_source = static_cast<std::uint32_t>(S::pads ? a.used_pieces : S::value_pieces);
  const int pieces = static_cast<int>(p.source_count * of_source);
  const auto* sources = list<Source>(p.sources);
#pragma unroll 1
  for (int first = me; first < pieces; first += at_once * count) {
    uint4 v[at_once];
    std::uint32_t at[at_once], to[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const auto k = static_cast<std::uint32_t>(min(first + i * count, pieces - 1));
      const std::uint32_t s = S::pads ? __umulhi(2 * k, a.pieces_inverse) : k / S::value_pieces;
      const Source source = sources[s];
      const std::uint32_t piece = k - s * of_source;
      at[i] = source.from + piece * 4;
      to[i] = (odd ? source.to >> 16 : source.to & 0xffffU) + piece * 3;
      if (piece * 3 + 2 < used()) to[i] |= whole;
      v[i] = receive_piece<S::shards>(from + at[i]);
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      while (v[i].w != tag) v[i] = receive_piece<S::shards>(from + at[i]);
      std::uint32_t* words = shared + (to[i] & ~whole);
      words[0] = v[i].x;
      if (Hidden % 3 == 2 || (to[i] & whole) != 0) words[1] = v[i].y;
      if ((to[i] & whole) != 0) words[2] = v[i].z;
      if constexpr (S::reads_context) {
        // Primary sources have other places in odd steps. Others are the context.
        const Source& source =
            sources[static_cast<unsigned>(min(first + i * count, pieces - 1)) / S::value_pieces];
        if ((source.to & 0xffffU) != source.to >> 16) continue;
        words += p.x_words;
        words[0] = Words::pack(this->context_value(v[i].x));
        if (Hidden % 3 == 2 || (to[i] & whole) != 0)
          words[1] = Words::pack(this->context_value(v[i].y));
        if ((to[i] & whole) != 0) words[2] = Words::pack(this->context_value(v[i].z));
      }
    }
  }
}

/// Word, in a row of the past, of this lane's piece of a source's inner products.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ std::uint32_t ThreadBlock<Precision, Hidden, home, Own>::products_at(
    const Source& source) const {
  return source.from + 4 * (S::value_pieces + lane() % S::product_pieces);
}

/// Adds a received piece, each age times its coefficient w[0] to w[2].
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::add_products(
    Products& sum, uint4 piece, const float* w) {
  sum.v[0] += w[0] * __uint_as_float(piece.x);
  sum.v[1] += w[1] * __uint_as_float(piece.y);
  sum.v[2] += w[2] * __uint_as_float(piece.z);
}

/// Sums over the sources of a group, which are in different lanes; lane i gets the sum of age i.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ float ThreadBlock<Precision, Hidden, home, Own>::sum_over_sources(
    const Products& sum) const {
  // Lane s * product_pieces + k has piece k of source s. The first product_pieces lanes get the
  // complete sums; lane i then takes word i % 3 of piece i / 3.
  float out = 0;
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    float v = sum.v[i];
    float all = v;
#pragma unroll
    for (int s = 1; s < S::group_sources; ++s) {
      all += __shfl_sync(every_lane, v, (lane() + s * S::product_pieces) & 31);
    }
    const float mine = __shfl_sync(every_lane, all, lane() / 3);
    if (lane() % 3 == i) out = mine;
  }
  return out;
}

/// The inner products that the primary sources of a unit sent in step `step`, from source number
/// `from` on: this lane's piece, summed over the groups of sources. Polls until they are there.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ Products ThreadBlock<Precision, Hidden, home, Own>::primary_products(
    int u, unsigned long long step, std::uint32_t from) const {
  const ProgramUnit& my = unit(u);
  const float ones[3] = {1, 1, 1};
  Products sum = {{0, 0, 0}};
#pragma unroll 1
  for (; from < my.primary; from += S::group_sources) {
    const std::uint32_t s = from + static_cast<std::uint32_t>(lane() / S::product_pieces);
    if (s >= my.primary || lane() >= S::group_sources * S::product_pieces) continue;
    const std::uint32_t* at =
        past(step) + products_at(list<Source>(p.sources)[my.first_source + s]);
    uint4 piece = receive_piece<S::shards>(at);
    while (piece.w != static_cast<std::uint32_t>(step + 1)) piece = receive_piece<S::shards>(at);
    add_products(sum, piece, ones);
  }
  return sum;
}

/// The inner products that the sources of a unit's context sent in step `step`, which must be
/// there, likewise: in the order in which `make_listed_part` adds them.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ Products
ThreadBlock<Precision, Hidden, home, Own>::context_products(int u, unsigned long long step) const {
  const ProgramUnit& my = unit(u);
  const float ones[3] = {1, 1, 1};
  Products sum = {{0, 0, 0}};
#pragma unroll 1
  for (std::uint32_t group = my.primary > 0 ? 1 : 0; group < my.groups; ++group) {
    const std::uint32_t at = source_place(my, group) & no_source;
    if (at != no_source) add_products(sum, receive_piece<S::shards>(past(step) + at), ones);
  }
  return sum;
}

}  // namespace pvm::inline v0::detail::units
