// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Who does what, and when, where fp32 weights stay on the chip (those of 16 bits:
/// specialised.cuh). In step t one warp a unit
///   begins    by weighing the listed gradients with what the sources sent,
///   finishes  the unit when all warps have their part of W0 x(t): h(t), sent at once, its inner
///             products, and later d0(t);
/// the others
///   gather    x(t) from what the units sent in step t - 1, and write the factors of folds,
///   learn     after their part of W0 x(t): d1(t) = g(y(t-2)) e, W1^T d1(t), the next patches,
///   y(t);
/// all multiply, and fold the blocks whose turn it is; those that are streamed fold while they are
/// there. Barriers are between those that need each other; no warp waits for the end of a
/// step.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/chip/multiprocessor.cuh>

namespace pvm::inline v0::detail::chip {

template <int Hidden>
struct Resident : Multiprocessor<fp32, Hidden, Home::chip> {
  using Base = Multiprocessor<fp32, Hidden, Home::chip>;
  using S = typename Base::S;
  using Weights = typename Base::Weights;
  using Held = Weights[S::held_blocks];
  using Coming = Weights[S::under_way];
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::begin_phase, Base::warp,
      Base::lane, Base::floats, Base::area, Base::float_area, Base::now, Base::launch, Base::unit,
      Base::unit_count, Base::gains, Base::folds_of, Base::my_blocks, Base::my_count, Base::rest_of,
      Base::list_of, Base::weights_of, Base::table_place, Base::activate;
  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return Base::template list<T>(at);
  }

  /// Warps that finish units' hidden values; the others meanwhile do what nobody waits for.
  __device__ __forceinline__ int unit_threads() const { return unit_count() * 32; }
  __device__ __forceinline__ int other_threads() const { return S::threads - unit_threads(); }

  __device__ __forceinline__ void load_weights(Held& held) const {
    const ChipBlock* blocks = my_blocks();
    const int count = my_count();
#pragma unroll
    for (int k = 0; k < S::held_blocks; ++k) {
      held[k] = Weights{};
      if (k < count) this->load_streamed(held[k], this->streamed(blocks[k]));
    }
#pragma unroll 1
    for (int k = max(static_cast<int>(p.streamed_to[warp()]), S::held_blocks); k < count; k += 2) {
      Weights w[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        this->load_streamed(w[i], this->streamed(blocks[min(k + i, count - 1)]));
      }
      this->store(blocks[k], w[0]);
      if (k + 1 < count) this->store(blocks[k + 1], w[1]);
    }
    this->load_rests();
    this->load_wide_weights();
  }
  /// Weights that were on the chip, to device memory.
  __device__ __forceinline__ void store_weights(const Held& held) const {
    const ChipBlock* blocks = my_blocks();
    const int count = my_count();
#pragma unroll
    for (int k = 0; k < S::held_blocks; ++k) {
      if (k < count) this->store_master(this->master_of(blocks[k]), held[k]);
    }
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      this->store_rest(blocks[k], rest_of(k));
      if (k >= S::held_blocks) store_shared(blocks[k]);
    }
    const auto* wide = list<ChipWideBlock>(p.wide_blocks);
#pragma unroll 1
    for (std::uint32_t k = p.wide_start[warp()]; k < p.wide_start[warp() + 1]; ++k) {
      this->store_rest(wide[k]);
      store_shared(wide[k]);
    }
  }
  template <class Block>
  __device__ __forceinline__ void store_shared(const Block& block) const {
    if (block.where == in_memory) return;
    Weights w;
    this->load(w, block);
    this->store_master(this->master_of(block), w);
  }

  // -------------------------------------------------------------- forward

  /// Asks for the first of this warp's blocks that are streamed.
  __device__ __forceinline__ void begin_stream(Coming& coming) const {
    constexpr int first = S::held_blocks, behind = first + S::under_way;
    const auto streamed_to = static_cast<int>(p.streamed_to[warp()]);
#pragma unroll
    for (int k = first; k < behind; ++k) {
      if (k < streamed_to) {
        this->load_streamed(coming[k - first], this->streamed(my_blocks()[k]));
      }
    }
    for (int k = behind; k < min(behind + S::sent_for, streamed_to); ++k) {
      send_for(my_blocks()[k].block);
    }
  }
  /// The first of this warp's blocks that fold while they are streamed in this step, or null. What
  /// it gains needs the past of its inputs, which are asked for before others are waited for.
  __device__ __forceinline__ const ChipBlock* first_in_pass() const {
    const auto* first = list<std::uint32_t>(p.first_in_pass) + warp() * a.period;
    const std::uint32_t k = first[now().phase];
    return k == no_block ? nullptr : my_blocks() + k;
  }
  /// A block that is being streamed, if it is its turn.
  __device__ __forceinline__ void fold_next(const ChipBlock& block, Weights& next,
                                            std::uint32_t* rest) const {
    if (!this->folds(block.what)) return;
    if (*this->prepared() != block.block) this->bring_past(block);
    this->fold_prepared(block, next, rest);
    this->store_streamed(block, next);
  }
  /// Brings block `number` to the second-level cache.
  __device__ __forceinline__ void send_for(std::uint32_t number) const {
    this->template prefetch<S::block_words>(a.weights + this->start_of(number));
  }
  /// The way through a warp's blocks, unit by unit: what the next one is multiplied by is on its
  /// way while one is multiplied.
  struct Walk {
    const ChipBlock* block;
    std::uint32_t* rest;
    unsigned parity;
    typename Base::Values x;
    const std::uint32_t* after;
    typename Base::Sums sum;
  };
  __device__ __forceinline__ const std::uint32_t* input_of(const ChipBlock& block,
                                                           unsigned parity) const {
    return shared + (block.x >> parity & 0xffffU);
  }
  __device__ __forceinline__ Walk begin_walk() const {
    const ChipBlock* block = my_blocks();
    const unsigned parity = (static_cast<unsigned>(now().step) & 1U) * 16;
    return {block,
            rest_of(0),
            parity,
            this->values(input_of(block[0], parity)),
            input_of(block[1], parity),
            {}};
  }
  template <class Multiply>
  __device__ __forceinline__ void walk(Walk& on, Multiply&& multiply) const {
    const auto x = on.x;
    const auto rest = this->rest_weights(on.rest);
    on.x = this->values(on.after);
    on.after = input_of(on.block[2], on.parity);
    multiply(x);
    this->multiply_rest(on.sum, rest, x);
    const std::uint32_t what = on.block->what;
    ++on.block;
    on.rest += S::rest_words;
    if (left_in(what) > 1) return;
    this->write_sums(on.sum, float_area(unit_in(what)) + S::part0 + warp() * S::values);
    on.sum = {};
  }
  /// A streamed block, which is in `next`; the one that comes to its place is asked for.
  __device__ __forceinline__ void walk_streamed(Walk& on, Weights& next,
                                                const ChipBlock* streamed_to) const {
    constexpr int ahead = S::under_way + S::sent_for;
    if (S::sent_for > 0 && on.block + ahead < streamed_to) send_for(on.block->block + ahead);
    const bool more = on.block + S::under_way < streamed_to;
    const ChipBlock& after = more ? on.block[S::under_way] : streamed_to[-1];
    walk(on, [&](const auto& x) {
      this->multiply(on.sum, next, x);
      make_here(on.sum.v);  // with the weights from before they fold
      fold_next(*on.block, next, on.rest);
      this->load_streamed(next, this->streamed(after));
    });
  }
  /// What this warp's blocks have of W0 x. `coming` are the next of those that are streamed, which
  /// fold meanwhile.
  __device__ __forceinline__ void forward(const Held& held, Coming& coming) const {
    const ChipBlock* blocks = my_blocks();
    const ChipBlock* end = blocks + my_count();
    Walk on = begin_walk();
#pragma unroll
    for (int k = 0; k < S::held_blocks; ++k) {
      if (blocks + k < end) {
        walk(on, [&](const auto& x) { this->multiply(on.sum, held[k], x); });
      }
    }
    const ChipBlock* streamed_to = blocks + p.streamed_to[warp()];
#pragma unroll 1
    while (on.block < streamed_to) {
#pragma unroll
      for (int i = 0; i < S::under_way; ++i) {
        if (on.block < streamed_to) walk_streamed(on, coming[i], streamed_to);
      }
    }
#pragma unroll 1
    while (on.block < end) {
      walk(on, [&](const auto& x) {
        this->multiply_shared(on.sum, this->in_shared(on.block->where), x);
      });
    }
  }

  // -------------------------------------------------------------- W1

  /// The first of this warp's blocks.
  __device__ __forceinline__ void begin_wide(Weights& next) const {
    const std::uint32_t first = p.wide_start[warp()];
    if (first < p.wide_start[warp() + 1]) {
      this->load(next, list<ChipWideBlock>(p.wide_blocks)[first]);
    }
  }
  /// y(t) and W1^T d1 in one pass.
  __device__ __forceinline__ void learn_wide(Weights& next) const {
    const auto* blocks = list<ChipWideBlock>(p.wide_blocks);
    const std::uint32_t end = p.wide_start[warp() + 1];
    typename Base::WideWalk on;
#pragma unroll 1
    for (std::uint32_t k = p.wide_start[warp()]; k < end; ++k) {
      this->learn_block(on, blocks[k], next,
                        [&] { this->load(next, blocks[min(k + 1, end - 1)]); });
    }
  }
  /// And those of this warp's blocks fold whose turn it is.
  __device__ __forceinline__ void fold_wide_blocks() const {
    const auto* blocks = list<ChipWideBlock>(p.wide_blocks);
#pragma unroll 1
    for (std::uint32_t k = p.wide_start[warp()]; k < p.wide_start[warp() + 1]; ++k) {
      const ChipWideBlock block = blocks[k];
      if (!this->folds(block.what)) continue;
      Weights w;
      this->load(w, block);
      this->fold_wide(block, w);
    }
  }

  // -------------------------------------------------------------- folds

  /// This warp's blocks of W0 whose turn it is and that were not folded while they were streamed.
  __device__ __forceinline__ void fold_blocks(Held& held) const {
    const ChipBlock* blocks = my_blocks();
    const std::uint32_t* start =
        list<std::uint32_t>(p.folding_start) + warp() * (a.period + 1) + now().phase;
    const std::uint32_t* mine = list<std::uint32_t>(p.folding);
#pragma unroll 1
    for (std::uint32_t i = start[0]; i < start[1]; ++i) {
      const auto k = static_cast<int>(mine[i]);
      const ChipBlock block = blocks[k];
      if (gains(unit_in(block.what)) == 0) continue;
      begin_phase();
      Weights w = chosen(held, k, block);
      this->fold(block, w, rest_of(k));
      if (k >= S::held_blocks) {
        this->store(block, w);
        continue;
      }
#pragma unroll
      for (int h = 0; h < S::held_blocks; ++h) {
        if (h != k) continue;
        held[h] = w;
        __syncwarp();  // or all of them would be selections, which every fold would go through
      }
    }
  }
  __device__ __forceinline__ Weights chosen(const Held& held, int k, const ChipBlock& block) const {
    Weights w = held[0];
#pragma unroll
    for (int h = 1; h < S::held_blocks; ++h) {
      if (h == k) w = held[h];
    }
    if (k >= S::held_blocks) this->load(w, block);
    return w;
  }

  // -------------------------------------------------------------- the step

  /// The barriers of a step. What the warps that begin units make of the listed gradients is needed
  /// for h(t) only: the others wait until these have begun, and multiply meanwhile.
  enum Barriers : int {
    tables_open = 1,
    units_begun,
    gathered,
    sums_made,
    gradients_made,
    hidden_made,
    patch_read
  };

  __device__ __forceinline__ void run(Held& held) {
#pragma unroll 1
    for (;;) {
      begin_phase();
      typename Base::Past past{};
      if (const ChipBlock* first = first_in_pass()) past = this->ask_past(*first);
      begin_phase();
      if (warp() < unit_count()) {
        begin_unit(warp());
      } else {
        this->gather_values(now().step - 1, (now().step & 1) != 0, thread - unit_threads(),
                            other_threads());
        begin_phase();
        write_all_factors();
      }
      begin_phase();
      // What is loaded under a condition starts as zeros, here and elsewhere: for undefined values
      // the compiler keeps registers from the launch's start.
      Coming coming{};
      begin_stream(coming);
      const ChipBlock* block = first_in_pass();
      if (block != nullptr) this->keep_past(past);
      if (lane() == 0) *this->prepared() = block != nullptr ? block->block : ~0U;
      __syncwarp();
      if (warp() < unit_count()) {
        sync_warps(gathered, S::threads);
      } else {
        if (thread == S::threads - 1) this->wait_for_slowest(now().step);
        arrive_warps(gathered, S::threads);
        sync_warps(units_begun, S::threads);
      }
      if (thread == 0) this->prepare_step();
      forward(held, coming);
      begin_phase();
      if (warp() < unit_count()) {
        finish(warp(), held);
      } else {
        learn(held);
      }
      const bool last = now().frame + 1 == launch().count;
      turn ^= 1;
      if (last) break;
    }
    __syncthreads();
  }
  /// What of a unit's work needs nothing of x(t).
  __device__ __forceinline__ void begin_unit(int u) const {
    this->open_tables(u);
    arrive_warps(tables_open, 2 * unit_threads());
    arrive_warps(units_begun, S::threads);
    if (unit(u).patch != not_a_patch && now().frame > 0) sync_warps(patch_read + u, 64);
    this->listed_share(u);
  }
  /// The factors of the units' folds, a unit for each of the first of the other warps.
  __device__ __forceinline__ void write_all_factors() const {
    const int u = warp() - unit_count();
    if (u >= unit_count()) return;
    sync_warps(tables_open, 2 * unit_threads());
    if (lane() == 0) gains(u) = folds_of(u)[sums - 1] != 0 ? 1 : 0;
    this->write_factors(u, folds_of(u));
  }
  /// What a unit's warp does when all have their part of W0 x(t). W1^T d1 comes late: folds go
  /// before.
  __device__ __forceinline__ void finish(int u, Held& held) const {
    sync_warps(sums_made, S::threads);
    this->finish_unit(u);
    arrive_warps(hidden_made, S::threads);
    begin_phase();
    fold_blocks(held);
    sync_warps(gradients_made, S::threads);
    this->finish_gradient(warp());
    begin_phase();
  }
  /// What the other warps do meanwhile: blocks of W0 fold while hidden values are waited for, then
  /// both products of W1 are made in one pass.
  __device__ __forceinline__ void learn(Held& held) const {
    arrive_warps(sums_made, S::threads);
    this->errors(thread - unit_threads(), static_cast<int>(p.out_count), other_threads());
    begin_phase();
    fold_blocks(held);
    begin_phase();
    Weights next{};
    begin_wide(next);
    sync_warps(hidden_made, S::threads);
    read_patches();
    begin_phase();
    learn_wide(next);
    arrive_warps(gradients_made, S::threads);
    begin_phase();
    fold_wide_blocks();
  }
  /// The next frame for units that see a patch, one for each of the first of the other warps.
  __device__ __forceinline__ void read_patches() const {
    if (now().frame + 1 == launch().count) return;
    for (int u = warp() - unit_count(); u < unit_count(); u += S::warps - unit_count()) {
      if (unit(u).patch == not_a_patch) continue;
      this->read_patch(u, 1);
      arrive_warps(patch_read + u, 64);
    }
  }
};

}  // namespace pvm::inline v0::detail::chip
