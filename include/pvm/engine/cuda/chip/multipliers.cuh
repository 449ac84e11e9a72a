// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Warps that have weights, where warps have roles: W0 x(t), errors, then both products of W1.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/chip/specialised.cuh>
#include <pvm/engine/cuda/instructions.cuh>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::multiply_all() {
  Mine held;
#pragma unroll
  for (int k = 0; k < S::held_blocks; ++k) {
    held[k] = Weights{};
    if (k < my_count()) this->load_streamed(held[k], held_tiles() + k * tile_words);
  }
  arrive_warps(held_loaded, multiplying + folding);
#pragma unroll 1
  for (;;) {
    begin_phase();
    if (!first()) {
      sync_warps(w0_folded, multiplying + folding);
      load_folded(held);
    }
    Coming coming{};
    const auto early = static_cast<int>(p.streamed_to[warp()]);
#pragma unroll
    for (int k = 0; k < S::under_way; ++k) {
      if (k < early) this->load_streamed(coming[k], this->streamed(my_blocks()->block + k));
    }
    sync_warps(gathered, multiplying + finishing);
    if (thread == 0) add_one_relaxed(a.begun + now().step % rounds);
    forward(held, coming);
    arrive_warps(sums_made, multiplying + with_units_threads());
    arrive_warps(w0_left, multiplying + folding);
    begin_phase();
    if (!first()) sync_warps(w1_folded, multiplying + folding);
    errors();
    begin_phase();
    const bool ends = last();
    if (!ends) arrive_warps(x_left, multiplying + finishing);
    sync_warps(hidden_made, multiplying + with_units_threads());
    learn();
    arrive_warps(gradients_made, multiplying + with_units_threads());
    arrive_warps(w1_left, multiplying + folding);
    if (ends) break;
    next_step();
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::load_folded(Mine& held) const {
  const std::uint32_t which =
      list<std::uint32_t>(p.reload)[warp() * a.period + now((turn + 3) & 3).phase];
  if (which == 0) return;
  const uint4* from = held_tiles();
#pragma unroll
  for (int k = 0; k < S::held_blocks; ++k) {
    if ((which >> k & 1U) != 0) this->load_streamed(held[k], from + k * tile_words);
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ auto Specialised<Precision, Hidden>::begin_walk() const -> Walk {
  const std::uint32_t* inputs = list<std::uint32_t>(p.inputs) + p.block_start[warp()];
  if ((now().step & 1) != 0) inputs += p.input_count;
  const std::uint32_t* rest = shared + p.rest_first[warp()];
  return {inputs + 2, rest, this->values(shared + inputs[0]), this->rest_weights(rest),
          inputs[1],  {}};
}

template <class Precision, int Hidden>
template <class Multiply>
__device__ __forceinline__ void Specialised<Precision, Hidden>::walk(Walk& on,
                                                                     Multiply&& multiply) const {
  const auto x = on.x;
  const auto beside = on.beside;
  on.x = this->values(shared + on.after);
  on.rest += S::rest_words;
  on.beside = this->rest_weights(on.rest);
  on.after = *on.inputs++;
  multiply(x);
  this->multiply_rest(on.sum, beside, x);
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::forward(const Mine& held,
                                                                        Coming& coming) const {
  const ChipBlock* blocks = my_blocks();
  const int count = my_count();
  const auto early = static_cast<int>(p.streamed_to[warp()]);
  const auto late = static_cast<int>(p.late_from[warp()]);
  const int first_shared = early + S::held_blocks;
  const std::uint32_t number = blocks->block;
  Walk on = begin_walk();
  const auto multiply_coming = [&](Weights& w, int next) {
    walk(on, [&](const auto& x) {
      this->multiply(on.sum, w, x);
      if (next < count)
        this->load_streamed(w, this->streamed(number + static_cast<unsigned>(next)));
    });
  };
#pragma unroll 1
  for (int first = 0; first < count;) {
    const int end = first + static_cast<int>(blocks[first].what >> run_shift);
    const auto is_of_unit = [&](int k) { return k >= first && k < end; };
#pragma unroll
    for (int i = 0; i < S::under_way; ++i) {
      if (i < early && is_of_unit(i)) multiply_coming(coming[i], late + i);
    }
#pragma unroll
    for (int k = 0; k < S::held_blocks; ++k) {
      if (is_of_unit(early + k)) {
        walk(on, [&](const auto& x) { this->multiply(on.sum, held[k], x); });
      }
    }
    int k = max(first, first_shared);
    if (k < min(end, late)) {
      const uint4* from = this->in_shared(blocks[k].where);
#pragma unroll 1
      for (; k < min(end, late); ++k) {
        walk(on, [&](const auto& x) { this->multiply_shared(on.sum, from, x); });
        from += tile_words;
      }
    }
#pragma unroll 1
    for (k = late; k < end; k += S::under_way) {
#pragma unroll
      for (int i = 0; i < S::under_way; ++i) {
        if (is_of_unit(k + i)) multiply_coming(coming[i], k + i + S::under_way);
      }
    }
    const auto u = static_cast<int>(blocks[first].what & 0xff);
    this->write_sums(on.sum, this->float_area(u) + S::part0 + warp() * S::values);
    this->clear(on.sum);
    first = end;
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::errors() const {
  const auto outputs_before = [&](int w) { return static_cast<int>(p.wide_start[w]) * columns; };
  Base::errors(outputs_before(warp()) + lane(), outputs_before(warp() + 1), 32);
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::learn() const {
  const ChipWideBlock* block = list<ChipWideBlock>(p.wide_blocks) + p.wide_start[warp()];
  const ChipWideBlock* end = list<ChipWideBlock>(p.wide_blocks) + p.wide_start[warp() + 1];
  if (block == end) return;
  const ChipWideBlock start = *block;
  const std::uint32_t* d1_at = shared + p.d1 + start.out;
  const std::uint32_t* tiles = shared + start.where;
  const std::uint32_t* listed = list_of(start.out);
  float* y = this->outputs_of(now().step, start.out, 0);
  typename Base::WideWalk on;
  int place[Base::listed_places];
#pragma unroll
  for (int i = 0; i < Base::listed_places; ++i) place[i] = table_place(this->place_of(i));
#pragma unroll 1
  for (; block != end; ++block) {
    const std::uint32_t what = block->what;
    const int u = static_cast<int>(what & 0xff);
    const int phase = static_cast<int>(what >> 8 & 0xff);
    if (on.first) on.h = this->rows(area(u) + S::raw);
    const auto d1 = this->values(d1_at);
    typename Base::ColumnSums sum;
    Weights w;
    this->load_wide(w, tiles);
    this->multiply(on.sum, w, d1);
    this->multiply_rows(sum, tiles, on.h);
    const typename Base::ListSums beside = this->multiply_list(listed, d1);
    this->multiply_listed_rows(sum, listed, this->listed_of(u, phase));
    const float* weights = weights_of(u, phase);
#pragma unroll
    for (int i = 0; i < Base::listed_places; ++i) on.more.v[i] += weights[place[i]] * beside.v[i];
    this->write_outputs(sum, y, [&](float v) { return this->activate(v); });
    d1_at += columns;
    tiles += S::block_words;
    listed += S::list_words;
    y += columns;
    on.first = what >> run_shift == 1;
    if (on.first) this->hand_over(u, on.sum, on.more);
  }
}

}  // namespace pvm::inline v0::detail::chip
