// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The streamers of the pipelined step (pipelined.cuh has the roles and barriers): a pass over W0,
/// the due folds of W0, a pass over W1, the due folds of W1; then the next step.
///
/// A pass holds one block in registers. Each word of the next block is loaded into the register of
/// the word that has just been multiplied; the block after that is prefetched to the L2 cache.
/// Folds do not fit into this pipeline: they follow the pass over their matrix, and read the blocks
/// again.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/loops/pipelined.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// The step loop of a streamer, for one launch.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::stream_all() {
  take_registers<S::multiplier_registers>();
  Weights next{};
  load_first(next);
#pragma unroll 1
  for (;;) {
    reread_thread();
    this->mark(Part::reload);
    for (int k = 1; k < ahead_by && k < my_count(); ++k) prefetch_block(true, my_inputs()[k].slot);
    this->mark(Part::wait_inputs);
    wait_gate(gathered, now().frame);
    this->mark(Part::forward);
    forward(next);
    named_barrier_arrive(sums_made, all);
    reread_thread();
    const W0Block due_of_lane = load_due<Of::w0>(0);
    this->mark(Part::wait_tables);
    wait_gate(factors_made, now().frame);
    this->mark(Part::fold_w0);
    fold_blocks<Of::w0>(due_of_lane);
    if constexpr (S::reads_context) fold_blocks<Of::wc>(load_due<Of::wc>(0));
    load_first_w1(next);
    reread_thread();
    this->mark(Part::wait_errors);
    wait_gate(errors_made, now().frame);
    this->mark(Part::learn);
    learn(next, !first());
    named_barrier_arrive(gradients_made, all);
    reread_thread();
    this->mark(Part::fold_w1);
    fold_w1_blocks();
    arrive_gate(folded);
    const bool ends = last();
    next_step();
    if (ends) break;
    load_first(next);
  }
  reread_thread();
  load_first_w1(next);
  wait_gate(errors_made, now().frame);
  learn(next, true);
}

/// Loads this warp's first block of W0 into `next`.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::load_first(
    Weights& next) const {
  // Zero-initialised: otherwise the compiler treats the old value as live through the pass before,
  // because of the condition, and spends registers on it.
  next = {};
  if (my_count() != 0) this->load_streamed(next, tiles_of(my_inputs()->slot));
}

/// Loads this warp's first block of W1 into `next`.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::load_first_w1(
    Weights& next) const {
  next = {};
  if (my_w1_count() != 0) this->load_streamed(next, this->streamed(my_w1_blocks()[0]));
}

/// Prefetches a block of W0 to the L2 cache if `is`. `slot` is that of its W0Input.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::prefetch_block(
    bool is, std::uint32_t slot) const {
  // A lane for each line of the tiles, and one for the first line of the chunk, which has the
  // remainder rows of all its blocks, if they are one row each or the chunk has one block.
  constexpr int lines = S::block_words / line_words, more = S::remainder_rows > 0 ? 1 : 0;
  const std::uint32_t first = line_of(slot);
  const std::uint32_t line =
      lane() < lines ? first + static_cast<unsigned>(lane()) : first & ~(chunk_lines - 1U);
  prefetch_line_if(is && lane() < lines + more, a.weights + this->slot_start(line));
}

/// Prefetches a block of W1 to the L2 cache, with its list and, if the block folds in this step,
/// its low halves and the factors of the fold.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::prefetch_w1(
    const W1Block& block) const {
  this->template prefetch<S::block_words + S::list_words>(words_of(block));
  if (!this->is_w1_due(block.what)) return;
  this->prefetch_low_halves(block);
  const auto* factors =
      reinterpret_cast<const std::uint32_t*>(this->factors_of(S::fold1, unit_in(block.what)));
  if (lane() * line_words < S::factor_words) prefetch_line(factors + lane() * line_words);
}

/// Makes this warp's part of W0 x, unit by unit, and of what the context adds to outputs. The first
/// block is in `next`.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::forward(
    Weights& next) const {
  const int count = my_count();
  if (count == 0) return;
  const W0Input* inputs = my_inputs();
  const unsigned parity = (static_cast<unsigned>(now().step) & 1U) * 16;
  // W0Input::slot of this block and the next ones is read an iteration early: what begins with an
  // address, a load or a prefetch, then begins at once.
  std::uint32_t slot[ahead_by + 1];
#pragma unroll
  for (int i = 0; i <= ahead_by; ++i) slot[i] = inputs[i].slot;
  auto remainder = remainder_of(slot[0]);
  typename Base::Sums sum;
#pragma unroll 1
  for (int left = count; left > 0; --left, ++inputs) {
    const std::uint32_t here = slot[0];
    const std::uint32_t after = left > 1 ? slot[1] : here;  // the last block is loaded once more
    prefetch_block(left > ahead_by, slot[ahead_by]);
#pragma unroll
    for (int i = 0; i < ahead_by; ++i) slot[i] = slot[i + 1];
    slot[ahead_by] = inputs[ahead_by + 1].slot;
    const auto x = this->values(shared + (inputs->x >> parity & 0xffffU));
    this->multiply_and_load(sum, next, x, tiles_of(after));
    this->multiply_remainder(sum, remainder, x);
    remainder = remainder_of(after);
    if ((here & last_of_unit) == 0) continue;
    this->write_sums(sum, sums_of(here));
    this->clear(sum);
  }
}

/// Loads the descriptions of this warp's blocks of a matrix that fold in this step, one for each
/// lane: lane i returns that of the due block number `from` + i, or zeros if there is no such
/// block.
template <class Precision, int Hidden, Home home, class Own>
template <typename Pipelined<Precision, Hidden, home, Own>::Of of>
__device__ __forceinline__ W0Block
Pipelined<Precision, Hidden, home, Own>::load_due(int from) const {
  const int number = due_start<of>(0) + from + lane();
  W0Block mine{};
  if (number < due_start<of>(1)) mine = my_blocks()[number];
  return mine;
}

/// Folds this warp's due blocks, which are read again. `mine` is load_due(0).
template <class Precision, int Hidden, Home home, class Own>
template <typename Pipelined<Precision, Hidden, home, Own>::Of of>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::fold_blocks(
    W0Block mine) const {
  int left = due_start<of>(1) - due_start<of>(0);
#pragma unroll 1
  for (int from = 0; left > 0; left -= 32) {
    if (from > 0) mine = load_due<of>(from);
    fold_due<of>(mine, min(left, 32));
    from += 32;
  }
}

/// Prefetches to the L2 cache the tiles and low halves of the blocks that the lanes in the mask
/// `lanes` have in `mine`. This is done after the pass over W0: prefetched during the pass, low
/// halves would evict what finishers read.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::prefetch_blocks_of_lanes(
    const W0Block& mine, unsigned lanes) const {
  // A lane for each line, or two lines for each lane: of the low halves, then of the tiles.
  constexpr int low_lines = S::unpacked_words / line_words, lines = S::block_words / line_words;
#pragma unroll 1
  for (; lanes != 0; lanes &= lanes - 1) {
    const int from = __ffs(static_cast<int>(lanes)) - 1;
    const std::uint32_t low = __shfl_sync(every_lane, mine.block, from);
    const std::uint32_t tiles = __shfl_sync(every_lane, mine.where, from);
#pragma unroll
    for (int first = 0; first < low_lines + lines; first += 32) {
      const int i = first + lane();
      const std::uint32_t line = i < low_lines ? low + static_cast<unsigned>(i)
                                               : tiles + static_cast<unsigned>(i - low_lines);
      prefetch_line_if(i < low_lines + lines, a.weights + this->slot_start(line));
    }
  }
}

/// Folds the blocks that lanes 0 to `count` - 1 have in `mine`.
template <class Precision, int Hidden, Home home, class Own>
template <typename Pipelined<Precision, Hidden, home, Own>::Of of>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::fold_due(
    const W0Block& mine, int count) const {
  unsigned left =
      __ballot_sync(every_lane, lane() < count && any_gain(unit_of_block<of>(mine)) != 0);
  if (left == 0) return;
  // From the last block to the first: the blocks that were multiplied last are most likely still in
  // the L2 cache.
  const auto last_of = [](unsigned lanes) { return 31 - __clz(static_cast<int>(lanes)); };
  prefetch_blocks_of_lanes(mine, left);
#pragma unroll 1
  for (; left != 0; left ^= 1U << last_of(left)) {
    const W0Block block = block_of_lane(mine, last_of(left));
    if constexpr (of == Of::wc) {
      this->fold_context(block);
    } else {
      this->fold_streamed(block);
    }
  }
}

/// One pass over this warp's blocks of W1: W1^T d1(t), and y(t-1) if `outputs`. The first block is
/// in `next`.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::learn(Weights& next,
                                                                               bool outputs) const {
  const W1Block* block = my_w1_blocks();
  const W1Block* const end = block + my_w1_count();
  if (block == end) return;
  float* const y = this->outputs_of(now().step - 1, 0, 0);
  typename Base::W1Pass on;
  Listed listed = load_listed(*block);
#pragma unroll 1
  for (; block != end; ++block) {
    if (end - block > ahead_by) prefetch_w1(block[ahead_by]);
    const W1Block& after = block[block + 1 != end ? 1 : 0];
    const auto u = unit_in(block->what);
    if (on.first) on.h = this->rows(area(u) + S::packed_hidden);
    const auto d1 = this->values(shared + p.d1 + block->out);
    typename Base::ColumnSums made;
    this->multiply_w1_and_load(on.sum, made, next, d1, on.h, this->streamed(after));
    const typename Base::ListSums list_sums = this->multiply_list(listed.list, d1);
    this->multiply_listed_rows(made, listed.list, this->operand(listed.rows));
#pragma unroll
    for (int i = 0; i < Base::list_rows_per_lane; ++i) {
      on.list_sums.v[i] += listed.coefficients[i] * list_sums.v[i];
    }
    listed = load_listed(after);
    if (outputs) {
      if constexpr (S::reads_context) {
        const float* more = this->context_outputs(now().step - 1) + block->out + this->row();
        made.v[0] += more[0];
        made.v[2] += more[8];
      }
      this->write_outputs(made, y + block->block * columns,
                          [&](float v) { return this->activate(v); });
    }
    on.first = left_in(block->what) == 1;
    if (on.first) this->hand_over(u, on.sum, on.list_sums);
  }
}

/// Folds this warp's due blocks of W1.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Pipelined<Precision, Hidden, home, Own>::fold_w1_blocks() const {
  const W1Block* blocks = my_w1_blocks();
#pragma unroll 1
  for (int left = my_w1_count(); left > 0; left -= 32, blocks += 32) {
    // Each lane looks at one block.
    unsigned due = __ballot_sync(
        every_lane, lane() < left && this->w1_folds(blocks[min(lane(), left - 1)].what));
#pragma unroll 1
    for (; due != 0; due &= due - 1) {
      const W1Block& block = blocks[__ffs(static_cast<int>(due)) - 1];
      Weights w;
      this->load_streamed(w, this->streamed(block));
      this->fold_w1(block, w);
    }
  }
}

}  // namespace pvm::inline v0::detail::units
