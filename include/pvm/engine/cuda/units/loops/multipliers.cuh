// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The multipliers of the specialised step (specialised.cuh has the roles and barriers): W0 x(t),
/// d1(t), then both products with W1.
///
/// A multiplier's blocks of W0 are ordered by unit. Their places, in the order of the list, are
///   early streamed | held in registers | in shared memory | late streamed
///   (at most 2)      (at most 8)
/// Streamed blocks lie in device memory. The early ones are loaded before x(t) is waited for. The
/// late ones are loaded into the same registers, two blocks in flight, once a block there has been
/// multiplied, so that their latency overlaps the products of blocks on the chip.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/loops/specialised.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// The step loop of a multiplier, for one launch.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::multiply_all() {
  take_registers<S::multiplier_registers>();
  HeldBlocks held;
#pragma unroll
  for (int k = 0; k < S::held_blocks; ++k) {
    held[k] = Weights{};
    if (k < my_count()) this->load_streamed(held[k], held_tiles() + k * tile_words);
  }
  // From here on folders may overwrite the held blocks in device memory.
  named_barrier_arrive(held_loaded, multiplying + folding);
#pragma unroll 1
  for (;;) {
    reread_thread();
    this->mark(Part::wait_w0_folds);
    if (!first()) {
      wait_gate(w0_folded, now().frame - 1);
      this->mark(Part::reload);
      reload_folded(held);
    }
    InFlight in_flight{};
    const auto early = static_cast<int>(p.streamed_to[warp()]);
#pragma unroll
    for (int k = 0; k < S::blocks_in_flight; ++k) {
      if (k < early) this->load_streamed(in_flight[k], this->streamed(my_blocks()->block + k));
    }
    W0Pass on = begin_w0_pass();
    this->mark(Part::wait_inputs);
    wait_gate(gathered, now().frame);
    this->mark(Part::forward);
    forward(held, in_flight, on);
    named_barrier_arrive(sums_made, multiplying + finishing);
    named_barrier_arrive(w0_free, multiplying + folding);
    reread_thread();
    this->mark(Part::wait_w1_folds);
    if (!first()) wait_gate(w1_folded, now().frame - 1);
    this->mark(Part::errors);
    errors();
    reread_thread();
    const bool ends = last();
    if (!ends) named_barrier_arrive(x_free, multiplying + finishing);
    this->mark(Part::wait_hidden);
    wait_gate(hidden_made, now().frame);
    this->mark(Part::learn);
    learn();
    named_barrier_arrive(gradients_made, multiplying + with_units_threads());
    named_barrier_arrive(w1_free, multiplying + folding);
    if (ends) break;
    next_step();
  }
}

/// Reloads the held blocks that were folded in the previous step, from device memory, where the
/// folders stored them.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::reload_folded(
    HeldBlocks& held) const {
  // The previous step's Now is three places on in the ring of four. Bit k of `which`: held block k
  // folded in that step.
  const std::uint32_t which =
      list<std::uint32_t>(p.reload)[warp() * S::period + now((turn + 3) & 3).phase];
  if (which == 0) return;
  const uint4* from = held_tiles();
#pragma unroll
  for (int k = 0; k < S::held_blocks; ++k) {
    if ((which >> k & 1U) != 0) this->load_streamed(held[k], from + k * tile_words);
  }
}

/// Starts the pass: loads what does not depend on x(t). Call load_next_inputs() next, with x(t).
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ auto Specialised<Precision, Hidden, home, Own>::begin_w0_pass() const
    -> W0Pass {
  const std::uint32_t* inputs = list<std::uint32_t>(p.inputs) + p.block_start[warp()];
  if ((now().step & 1) != 0) inputs += p.input_count;
  const std::uint32_t* remainder_at = shared + p.remainder_first[warp()];
  return {inputs + 1, remainder_at, {}, this->remainder_weights(remainder_at), inputs[0], {}};
}

/// Loads the inputs of the next block (W0Pass::next), and the word where the inputs of the block
/// after it are (W0Pass::after).
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::load_next_inputs(
    W0Pass& on) const {
  on.next = this->inputs(shared + on.after);
  on.after = *on.inputs++;
}

/// Advances by one block: starts the loads for the next block, then calls multiply(x) with the
/// inputs of the current one and multiplies its remainder rows.
template <class Precision, int Hidden, Home home, class Own>
template <class Multiply>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::advance(
    W0Pass& on, Multiply&& multiply) const {
  const auto x = this->operand(on.next);
  const auto remainder = on.remainder;
  load_next_inputs(on);
  on.remainder_at += S::remainder_words;
  on.remainder = this->remainder_weights(on.remainder_at);
  multiply(x);
  this->multiply_remainder(on.sum, remainder, x);
}

/// Makes this warp's part of W0 x, unit by unit (UnitRun). `in_flight` holds the early streamed
/// blocks on entry; as they are used up, the late streamed blocks are loaded into their registers
/// while blocks on the chip are multiplied.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::forward(
    const HeldBlocks& held, InFlight& in_flight, W0Pass& on) const {
  const UnitRun* run = list<UnitRun>(p.runs) + p.run_start[warp()];
  const uint4* from = this->in_shared(p.shared_from[warp()]);
  load_next_inputs(on);
  if (my_count() == 0) return;
#pragma unroll 1
  for (bool more = true; more; ++run) {
    this->clear(on.sum);
    const std::uint32_t present = run->present, late = run->late;
    const auto late_count = static_cast<int>(late >> 16 & 0xff);
    // Multiplies the streamed block in `w`, then loads the warp's late block `next` in its place.
    const auto multiply_in_flight = [&](Weights& w, int next) {
      advance(on, [&](const auto& x) {
        this->multiply(on.sum, w, x);
        if (next < late_count) {
          this->load_streamed(w, this->streamed(run->block + static_cast<unsigned>(next)));
        }
      });
    };
    const auto first = static_cast<int>(late & 0xff), end = static_cast<int>(late >> 8 & 0xff);
    // One loop for both groups of streamed blocks, two blocks an iteration, to keep the code short:
    // at k < 0 the unit's early blocks, followed by its blocks on the chip; then its late blocks,
    // numbers `first` to `end` among the warp's late blocks. in_flight[k % 2] holds late block k.
#pragma unroll 1
    for (int k = -S::blocks_in_flight;;) {
#pragma unroll
      for (int i = 0; i < S::blocks_in_flight; ++i) {
        const bool is = k < 0 ? (present >> i & 1U) != 0 : k + i >= first && k + i < end;
        if (is) multiply_in_flight(in_flight[i], k + i + S::blocks_in_flight);
      }
      if (k < 0) {
        multiply_on_chip(held, on, from, present);
        k = first / S::blocks_in_flight * S::blocks_in_flight;
      } else {
        k += S::blocks_in_flight;
      }
      if (k >= end) break;
    }
    this->write_sums(on.sum, reinterpret_cast<float*>(shared + run->sums));
    more = (late & last_run) == 0;
  }
}

/// Multiplies the held blocks of a unit, then its blocks in shared memory. `from` is this lane's
/// first word of the warp's next block in shared memory, and is advanced past the unit's blocks;
/// `present` is UnitRun::present.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::multiply_on_chip(
    const HeldBlocks& held, W0Pass& on, const uint4*& from, std::uint32_t present) const {
#pragma unroll
  for (int k = 0; k < S::held_blocks; ++k) {
    if ((present >> (S::blocks_in_flight + k) & 1U) != 0) {
      advance(on, [&](const auto& x) { this->multiply(on.sum, held[k], x); });
    }
  }
  auto left = static_cast<int>(present >> 16);
  if (left == 0) return;
  Weights w;
  this->load_shared(w, from);
#pragma unroll 1
  for (; left > 0; --left) {
    from += left > 1 ? tile_words : 0;
    advance(on, [&](const auto& x) { this->multiply_and_load_shared(on.sum, w, x, from); });
  }
  from += tile_words;
}

/// d1(t) of the outputs of this warp's blocks of W1. Blocks have the order of their outputs.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::errors() const {
  const auto outputs_before = [&](int w) { return static_cast<int>(p.w1_start[w]) * columns; };
  Base::errors(outputs_before(warp()) + lane(), outputs_before(warp() + 1), 32);
}

/// One pass over this warp's blocks of W1: adds up their parts of W1^T d1(t) and of the inner
/// products d1(j).d1(t), the latter times the coefficients of listed gradients, and makes their
/// y(t). The blocks' tiles, lists and outputs are consecutive in shared memory.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::learn() const {
  const W1Block* block = list<W1Block>(p.w1_blocks) + p.w1_start[warp()];
  const W1Block* end = list<W1Block>(p.w1_blocks) + p.w1_start[warp() + 1];
  if (block == end) return;
  const W1Block start = *block;
  const std::uint32_t* tiles = shared + start.where;
  const std::uint32_t* listed = list_of(start.out);
  float* y = this->outputs_of(now().step, start.out, 0);  // holds d1(t) until y(t) overwrites it
  typename Base::W1Pass on;
  int index[Base::list_rows_per_lane];
#pragma unroll
  for (int i = 0; i < Base::list_rows_per_lane; ++i) index[i] = table_index(this->list_row_of(i));
#pragma unroll 1
  for (; block != end; ++block) {
    const std::uint32_t what = block->what;
    const int u = unit_in(what);
    const int phase = phase_in(what);
    if (on.first) on.h = this->rows(area(u) + S::packed_hidden);
    const auto d1 = this->values(reinterpret_cast<const std::uint32_t*>(y));
    typename Base::ColumnSums sum, more;  // two, to halve the chain of dependent mma instructions
    Weights w;
    this->load_w1(w, tiles);
    this->multiply(on.sum, w, d1);
    this->multiply_rows(sum, tiles, on.h, 0, (S::pairs + 1) / 2);
    const typename Base::ListSums list_sums = this->multiply_list(this->load_list(listed), d1);
    this->multiply_rows(more, tiles, on.h, (S::pairs + 1) / 2, S::pairs);
    this->multiply_listed_rows(more, listed, this->list_factors_of(u, phase));
    this->add(sum, more);
    const float* coefficients = w1_coefficients_of(u, phase);
#pragma unroll
    for (int i = 0; i < Base::list_rows_per_lane; ++i) {
      on.list_sums.v[i] += coefficients[index[i]] * list_sums.v[i];
    }
    this->write_outputs(sum, y, [&](float v) { return this->activate(v); });
    tiles += S::block_words;
    listed += S::list_words;
    y += columns;
    on.first = left_in(what) == 1;
    if (on.first) this->hand_over(u, on.sum, on.list_sums);
  }
}

}  // namespace pvm::inline v0::detail::units
