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

#include <pvm/engine/cuda/chip/pipelined.cuh>
#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/instructions.cuh>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::stream_all() {
  Weights next{};
  load_first(next);
#pragma unroll 1
  for (;;) {
    reread_thread();
    for (int k = 1; k < ahead_by && k < my_count(); ++k) {
      prefetch_block(first_block_number() + static_cast<unsigned>(k));
    }
    wait_gate(gathered, now().frame);
    forward(next);
    named_barrier_arrive(sums_made, all);
    reread_thread();
    const ChipBlock due_of_lane = load_due(0);
    wait_gate(factors_made, now().frame);
    fold_blocks(due_of_lane);
    load_first_wide(next);
    reread_thread();
    wait_gate(errors_made, now().frame);
    learn(next, !first());
    named_barrier_arrive(gradients_made, all);
    reread_thread();
    fold_wide_blocks();
    arrive_gate(folded);
    const bool ends = last();
    next_step();
    if (ends) break;
    load_first(next);
  }
  reread_thread();
  load_first_wide(next);
  wait_gate(errors_made, now().frame);
  learn(next, true);
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::load_first(Weights& next) const {
  // Zero-initialised: otherwise the compiler treats the old value as live through the pass before,
  // because of the condition, and spends registers on it.
  next = {};
  if (my_count() != 0) this->load_streamed(next, tiles_of(first_block_number()));
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::load_first_wide(Weights& next) const {
  next = {};
  if (my_wide_count() != 0) this->load_streamed(next, this->streamed(my_wide_blocks()[0]));
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::prefetch_block(
    std::uint32_t block) const {
  this->template prefetch<S::block_words>(a.weights + this->start_of(block));
  // A cache line holds the remainder rows of line_words / remainder_words consecutive blocks, of
  // which this block's may be loaded already: prefetches the next line.
  if (lane() == 0) {
    prefetch_line(this->remainder_words_of(block + S::line_words / S::remainder_words));
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::prefetch_wide(
    const ChipWideBlock& block) const {
  this->template prefetch<S::block_words>(words_of(block));
  this->template prefetch<S::list_words>(list_of(block.out));
  if (!this->is_due(block.what)) return;
  this->prefetch_low_halves(block);
  const auto* factors =
      reinterpret_cast<const std::uint32_t*>(this->factors_of(S::fold1, unit_in(block.what)));
  if (lane() * S::line_words < S::factor_words) prefetch_line(factors + lane() * S::line_words);
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::forward(Weights& next) const {
  const int count = my_count();
  if (count == 0) return;
  const std::uint32_t* inputs = my_inputs();
  std::uint32_t block = first_block_number();
  auto remainder = this->remainder_weights(this->remainder_words_of(block));
  typename Base::Sums sum;
#pragma unroll 1
  for (int left = count; left > 0; --left) {
    const std::uint32_t input = *inputs++;
    if (left > ahead_by) prefetch_block(block + ahead_by);
    if (left > 1) ++block;  // while the last block is multiplied it is simply loaded once more
    const auto x = this->values(shared + (input & 0xffffU));
    this->multiply_and_load(sum, next, x, tiles_of(block));
    this->multiply_remainder(sum, remainder, x);
    remainder = this->remainder_weights(this->remainder_words_of(block));
    if ((input & last_of_unit) == 0) continue;
    this->write_sums(sum, float_area(unit_of(input)) + S::part0 + warp() * S::values);
    this->clear(sum);
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ ChipBlock Pipelined<Precision, Hidden>::load_due(int from) const {
  const int number = due_start(0) + from + lane();
  ChipBlock mine{};
  if (number < due_start(1)) mine = my_blocks()[number];
  return mine;
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::fold_blocks(ChipBlock mine) const {
  int left = due_start(1) - due_start(0);
#pragma unroll 1
  for (int from = 0; left > 0; left -= 32) {
    if (from > 0) mine = load_due(from);
    fold_due(mine, min(left, 32));
    from += 32;
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::prefetch_low_halves_of_lanes(
    const ChipBlock& mine, unsigned lanes) const {
#pragma unroll 1
  for (; lanes != 0; lanes &= lanes - 1) {
    const std::uint32_t block =
        __shfl_sync(every_lane, mine.block, __ffs(static_cast<int>(lanes)) - 1);
    this->template prefetch<S::unpacked_words>(
        this->low_halves_of(a.weights, this->low_start_of(block)));
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::fold_due(const ChipBlock& mine,
                                                                       int count) const {
  unsigned left = __ballot_sync(every_lane, lane() < count && any_gain(unit_in(mine.what)) != 0);
  if (left == 0) return;
  // From the last block to the first: the blocks that were multiplied last are most likely still in
  // the L2 cache.
  const auto last_of = [](unsigned lanes) { return 31 - __clz(static_cast<int>(lanes)); };
  prefetch_low_halves_of_lanes(mine, left);
#pragma unroll 1
  for (; left != 0; left ^= 1U << last_of(left)) {
    this->fold_streamed(block_of_lane(mine, last_of(left)));
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::learn(Weights& next,
                                                                    bool outputs) const {
  const ChipWideBlock* block = my_wide_blocks();
  const ChipWideBlock* const end = block + my_wide_count();
  if (block == end) return;
  float* const y = this->outputs_of(now().step - 1, 0, 0);
  typename Base::WideWalk on;
  Listed listed = load_listed(*block);
#pragma unroll 1
  for (; block != end; ++block) {
    if (end - block > ahead_by) prefetch_wide(block[ahead_by]);
    const ChipWideBlock& after = block[block + 1 != end ? 1 : 0];
    const auto u = unit_in(block->what);
    if (on.first) on.h = this->rows(area(u) + S::packed_hidden);
    const auto d1 = this->values(shared + p.d1 + block->out);
    typename Base::ColumnSums made;
    this->multiply_wide_and_load(on.sum, made, next, d1, on.h, this->streamed(after));
    const typename Base::ListSums list_sums = this->multiply_list(listed.list, d1);
    this->multiply_listed_rows(made, listed.list, this->operand(listed.rows));
#pragma unroll
    for (int i = 0; i < Base::list_rows_per_lane; ++i) {
      on.list_sums.v[i] += listed.coefficients[i] * list_sums.v[i];
    }
    listed = load_listed(after);
    if (outputs) {
      this->write_outputs(made, y + block->block * columns,
                          [&](float v) { return this->activate(v); });
    }
    on.first = left_in(block->what) == 1;
    if (on.first) this->hand_over(u, on.sum, on.list_sums);
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Pipelined<Precision, Hidden>::fold_wide_blocks() const {
  const ChipWideBlock* block = my_wide_blocks();
#pragma unroll 1
  for (int left = my_wide_count(); left > 0; --left, ++block) {
    if (!this->folds(block->what)) continue;
    Weights w;
    this->load_streamed(w, this->streamed(*block));
    this->fold_wide(*block, w);
  }
}

}  // namespace pvm::inline v0::detail::chip
