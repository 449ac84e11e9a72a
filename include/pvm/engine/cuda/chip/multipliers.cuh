// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The multipliers of the specialised step (specialised.cuh has the roles and barriers): W0 x(t),
/// errors, then both products with W1.
///
/// A multiplier's blocks of W0 are ordered by unit. Their places, in the order of the list, are
///   early streamed | held in registers | in shared memory | late streamed
///   (at most 2)      (at most 8)
/// Streamed blocks lie in device memory. The early ones are loaded before x(t) is waited for. The
/// late ones are loaded into the same registers, two blocks in flight, once a block there has been
/// multiplied, so that their latency overlaps the products of blocks on the chip.

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
  arrive_warps(held_loaded, multiplying + folding);  // folders may overwrite the blocks from here
#pragma unroll 1
  for (;;) {
    begin_phase();
    if (!first()) {
      pass_gate(w0_folded, now().frame - 1);
      load_folded(held);
    }
    Coming coming{};
    const auto early = static_cast<int>(p.streamed_to[warp()]);
#pragma unroll
    for (int k = 0; k < S::under_way; ++k) {
      if (k < early) this->load_streamed(coming[k], this->streamed(my_blocks()->block + k));
    }
    Walk on = begin_walk();
    pass_gate(gathered, now().frame);
    forward(held, coming, on);
    arrive_warps(sums_made, multiplying + finishing);
    arrive_warps(w0_left, multiplying + folding);
    begin_phase();
    if (!first()) pass_gate(w1_folded, now().frame - 1);
    errors();
    begin_phase();
    const bool ends = last();
    if (!ends) arrive_warps(x_left, multiplying + finishing);
    pass_gate(hidden_made, now().frame);
    learn();
    arrive_warps(gradients_made, multiplying + with_units_threads());
    arrive_warps(w1_left, multiplying + folding);
    if (ends) break;
    next_step();
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::load_folded(Mine& held) const {
  // The previous step is three places on in the ring of four ChipNow. Bit k: held block k folded.
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
  return {inputs + 1, rest, {}, this->rest_weights(rest), inputs[0], {}};
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::ask_inputs(Walk& on) const {
  on.next = this->inputs(shared + on.after);
  on.after = *on.inputs++;
}

template <class Precision, int Hidden>
template <class Multiply>
__device__ __forceinline__ void Specialised<Precision, Hidden>::walk(Walk& on,
                                                                     Multiply&& multiply) const {
  const auto x = this->operand(on.next);
  const auto beside = on.beside;
  ask_inputs(on);
  on.rest += S::rest_words;
  on.beside = this->rest_weights(on.rest);
  multiply(x);
  this->multiply_rest(on.sum, beside, x);
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::forward(const Mine& held,
                                                                        Coming& coming,
                                                                        Walk& on) const {
  const ChipRun* run = list<ChipRun>(p.runs) + p.run_start[warp()];
  const uint4* from = this->in_shared(p.shared_from[warp()]);
  ask_inputs(on);
  if (my_count() == 0) return;
#pragma unroll 1
  for (bool more = true; more; ++run) {
    this->clear(on.sum);
    const std::uint32_t there = run->there, late = run->late;
    const auto late_count = static_cast<int>(late >> 16 & 0xff);
    // Multiplies the streamed block in `w`, then loads the warp's late block `next` in its place.
    const auto multiply_coming = [&](Weights& w, int next) {
      walk(on, [&](const auto& x) {
        this->multiply(on.sum, w, x);
        if (next < late_count) {
          this->load_streamed(w, this->streamed(run->block + static_cast<unsigned>(next)));
        }
      });
    };
    const auto first = static_cast<int>(late & 0xff), end = static_cast<int>(late >> 8 & 0xff);
    // One loop for both groups of streamed blocks, two blocks an iteration, to keep the code short:
    // at k < 0 the unit's early blocks, followed by its blocks on the chip; then its late blocks,
    // numbers `first` to `end` among the warp's late blocks. Late block k is in coming[k % 2].
#pragma unroll 1
    for (int k = -S::under_way;;) {
#pragma unroll
      for (int i = 0; i < S::under_way; ++i) {
        const bool is = k < 0 ? (there >> i & 1U) != 0 : k + i >= first && k + i < end;
        if (is) multiply_coming(coming[i], k + i + S::under_way);
      }
      if (k < 0) {
        multiply_on_chip(held, on, from, there);
        k = first / S::under_way * S::under_way;
      } else {
        k += S::under_way;
      }
      if (k >= end) break;
    }
    this->write_sums(on.sum, reinterpret_cast<float*>(shared + run->sums));
    more = (late & last_run) == 0;
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::multiply_on_chip(
    const Mine& held, Walk& on, const uint4*& from, std::uint32_t there) const {
#pragma unroll
  for (int k = 0; k < S::held_blocks; ++k) {
    if ((there >> (S::under_way + k) & 1U) != 0) {
      walk(on, [&](const auto& x) { this->multiply(on.sum, held[k], x); });
    }
  }
  auto left = static_cast<int>(there >> 16);
  if (left == 0) return;
  Weights w;
  this->load_shared(w, from);
#pragma unroll 1
  for (; left > 0; --left) {
    from += left > 1 ? tile_words : 0;
    walk(on, [&](const auto& x) { this->multiply_and_load_shared(on.sum, w, x, from); });
  }
  from += tile_words;
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
  const std::uint32_t* tiles = shared + start.where;
  const std::uint32_t* listed = list_of(start.out);
  float* y = this->outputs_of(now().step, start.out, 0);  // holds d1(t) until y(t) overwrites it
  typename Base::WideWalk on;
  int place[Base::listed_places];
#pragma unroll
  for (int i = 0; i < Base::listed_places; ++i) place[i] = table_place(this->place_of(i));
#pragma unroll 1
  for (; block != end; ++block) {
    const std::uint32_t what = block->what;
    const int u = unit_in(what);
    const int phase = phase_in(what);
    if (on.first) on.h = this->rows(area(u) + S::raw);
    const auto d1 = this->values(reinterpret_cast<const std::uint32_t*>(y));
    typename Base::ColumnSums sum, more;  // two, to halve the chain of dependent mma instructions
    Weights w;
    this->load_wide(w, tiles);
    this->multiply(on.sum, w, d1);
    this->multiply_rows(sum, tiles, on.h, 0, (S::pairs + 1) / 2);
    const typename Base::ListSums beside = this->multiply_list(this->load_list(listed), d1);
    this->multiply_rows(more, tiles, on.h, (S::pairs + 1) / 2, S::pairs);
    this->multiply_listed_rows(more, listed, this->listed_of(u, phase));
    this->add(sum, more);
    const float* weights = weights_of(u, phase);
#pragma unroll
    for (int i = 0; i < Base::listed_places; ++i) on.more.v[i] += weights[place[i]] * beside.v[i];
    this->write_outputs(sum, y, [&](float v) { return this->activate(v); });
    tiles += S::block_words;
    listed += S::list_words;
    y += columns;
    on.first = left_in(what) == 1;
    if (on.first) this->hand_over(u, on.sum, on.more);
  }
}

}  // namespace pvm::inline v0::detail::chip
