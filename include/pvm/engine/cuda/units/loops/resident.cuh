// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The step loop for fp32 weights that stay on the chip as far as there is room; the rest of them
/// is streamed (specialised.cuh is the loop for 16-bit weights). One thread block of 12 warps runs
/// on each streaming multiprocessor (SM). All warps own blocks of W0, multiply them, and fold those
/// that are due. Apart from that there are two kinds of warps:
///   unit warps   (the first `unit_count()`, warp u has unit u) weigh the unit's listed gradients
///                with the inner products that its sources sent; when all warps have made their
///                parts of W0 x(t) they make h(t), send it at once with its inner products, and
///                later make d0(t).
///   other warps  gather x(t) from what units sent in step t-1 and write the factors of folds;
///                after their part of W0 x(t) they make d1(t) = g(y(t-2)) e, read the next patches,
///                and make W1^T d1(t) and y(t) in one pass over W1.
///
/// A warp's blocks of W0 are ordered: held in registers (2) | streamed from device memory | in
/// shared memory. Two streamed blocks are being loaded into registers at any time, and the next two
/// are prefetched to the L2 cache. A streamed block folds while it is in registers for its product;
/// the other blocks fold while h(t) is waited for.
///
/// Order within step t (named barriers; a warp that arrives does not wait; no barrier ends a step):
///   unit warps                              other warps
///   load coefficients                       gather x(t)
///   arrive tables_loaded, units_begun       wait tables_loaded; factors (the first of these warps)
///   wait patch_read; weigh listed gradients arrive gathered
///   wait gathered                           wait units_begun
///   W0 x(t)                                 W0 x(t); arrive sums_made
///   wait sums_made; h(t): send              d1(t)
///   arrive hidden_made                      fold W0
///   fold W0                                 wait hidden_made; patches; arrive patch_read(t+1)
///                                           W1^T d1(t), y(t)
///   wait gradients_made; d0(t)              arrive gradients_made; fold W1

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/units/step/thread_block.cuh>

namespace pvm::inline v0::detail::units {

template <int Hidden, Home home, class Own>
struct Resident : ThreadBlock<fp32, Hidden, home, Own> {
  using Base = ThreadBlock<fp32, Hidden, home, Own>;
  using S = typename Base::S;
  using Weights = typename Base::Weights;
  using Held = Weights[S::held_blocks];
  using InFlight = Weights[S::blocks_in_flight];
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::reread_thread, Base::warp,
      Base::lane, Base::floats, Base::area, Base::float_area, Base::now, Base::launch, Base::unit,
      Base::unit_count, Base::any_gain, Base::fold_coefficients, Base::my_blocks, Base::my_count,
      Base::my_remainder, Base::list_of, Base::coefficients_of, Base::table_index, Base::activate;
  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return Base::template list<T>(at);
  }

  /// The numbers of threads of the unit warps, and of the other warps.
  __device__ __forceinline__ int unit_threads() const { return unit_count() * 32; }
  __device__ __forceinline__ int other_threads() const { return S::threads - unit_threads(); }

  __device__ __forceinline__ void load_weights(Held& held) const {
    const W0Block* blocks = my_blocks();
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
    this->load_remainders();
    this->load_w1_weights();
  }
  /// Stores the weights that were on the chip to device memory, at the end of a launch.
  __device__ __forceinline__ void store_weights(const Held& held) const {
    const W0Block* blocks = my_blocks();
    const int count = my_count();
#pragma unroll
    for (int k = 0; k < S::held_blocks; ++k) {
      if (k < count) this->store_to_memory(this->tiles_in_memory(blocks[k]), held[k]);
    }
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      this->store_remainder_to_memory(blocks[k], my_remainder(k));
      if (k >= S::held_blocks) store_shared(blocks[k]);
    }
    const auto* w1 = list<W1Block>(p.w1_blocks);
#pragma unroll 1
    for (std::uint32_t k = p.w1_start[warp()]; k < p.w1_start[warp() + 1]; ++k) {
      this->store_remainder_to_memory(w1[k]);
      store_shared(w1[k]);
    }
  }
  template <class Block>
  __device__ __forceinline__ void store_shared(const Block& block) const {
    if (block.where == in_memory) return;
    Weights w;
    this->load(w, block);
    this->store_to_memory(this->tiles_in_memory(block), w);
  }

  // -------------------------------------------------------------- forward

  /// Starts the loads of this warp's first streamed blocks: of two into registers, and of the next
  /// two into the L2 cache.
  __device__ __forceinline__ void begin_stream(InFlight& in_flight) const {
    constexpr int first = S::held_blocks, behind = first + S::blocks_in_flight;
    const auto streamed_to = static_cast<int>(p.streamed_to[warp()]);
#pragma unroll
    for (int k = first; k < behind; ++k) {
      if (k < streamed_to) {
        this->load_streamed(in_flight[k - first], this->streamed(my_blocks()[k]));
      }
    }
    for (int k = behind; k < min(behind + S::prefetched_blocks, streamed_to); ++k) {
      prefetch_block(my_blocks()[k]);
    }
  }
  /// The first of this warp's streamed blocks that folds in this step, or null. Its fold reads its
  /// inputs of past steps; these loads are started before the warp waits for x(t).
  __device__ __forceinline__ const W0Block* first_in_pass() const {
    const auto* first = list<std::uint32_t>(p.first_in_pass) + warp() * S::period;
    const std::uint32_t k = first[now().phase];
    return k == no_block ? nullptr : my_blocks() + k;
  }
  /// Folds a streamed block, whose tiles are in `next`, if it is due; stores it to device memory.
  /// `remainder_at`: its remainder rows.
  __device__ __forceinline__ void fold_if_due(const W0Block& block, Weights& next,
                                              std::uint32_t* remainder_at) const {
    if (!this->folds(block.what)) return;
    if (*this->prepared_block() != block.block) this->copy_past_inputs(block);
    this->fold_prepared(block, next, remainder_at);
    this->store_streamed(block, next);
  }
  /// Prefetches a block of W0 to the L2 cache.
  __device__ __forceinline__ void prefetch_block(const W0Block& block) const {
    this->template prefetch<S::block_words>(this->words_of(block));
  }
  /// The position in a warp's pass over its blocks of W0, unit by unit. The inputs of the next
  /// block are loaded while the current block is multiplied.
  struct W0Pass {
    const W0Block* block;         ///< the current block
    std::uint32_t* remainder_at;  ///< its remainder rows in shared memory
    unsigned parity;              ///< 0 in even steps, 16 in odd ones: a shift of W0Block::x
    typename Base::Values x;      ///< this lane's inputs of the current block
    const std::uint32_t* after;   ///< the inputs of the next block in shared memory
    typename Base::Sums sum;      ///< accumulators of the current unit's part of W0 x
  };
  __device__ __forceinline__ const std::uint32_t* input_of(const W0Block& block,
                                                           unsigned parity) const {
    return shared + (block.x >> parity & 0xffffU);
  }
  __device__ __forceinline__ W0Pass begin_w0_pass() const {
    const W0Block* block = my_blocks();
    const unsigned parity = (static_cast<unsigned>(now().step) & 1U) * 16;
    return {block,
            my_remainder(0),
            parity,
            this->values(input_of(block[0], parity)),
            input_of(block[1], parity),
            {}};
  }
  /// Advances by one block: loads the next block's inputs, calls multiply(x) with those of the
  /// current one, multiplies its remainder rows, and writes the sums behind a unit's last block.
  template <class Multiply>
  __device__ __forceinline__ void advance(W0Pass& on, Multiply&& multiply) const {
    const auto x = on.x;
    const auto remainder = this->remainder_weights(on.remainder_at);
    on.x = this->values(on.after);
    on.after = input_of(on.block[2], on.parity);
    multiply(x);
    this->multiply_remainder(on.sum, remainder, x);
    const std::uint32_t what = on.block->what;
    ++on.block;
    on.remainder_at += S::remainder_words;
    if (left_in(what) > 1) return;
    this->write_sums(on.sum, float_area(unit_in(what)) + S::part0 + warp() * S::values);
    on.sum = {};
  }
  /// Multiplies the current block, a streamed one whose tiles are in `next`, folds it if it is due,
  /// and loads the block that takes its place there. `streamed_to`: the end of the streamed blocks.
  __device__ __forceinline__ void advance_streamed(W0Pass& on, Weights& next,
                                                   const W0Block* streamed_to) const {
    constexpr int ahead = S::blocks_in_flight + S::prefetched_blocks;
    if (S::prefetched_blocks > 0 && on.block + ahead < streamed_to) {
      prefetch_block(on.block[ahead]);
    }
    const bool more = on.block + S::blocks_in_flight < streamed_to;
    const W0Block& after = more ? on.block[S::blocks_in_flight] : streamed_to[-1];
    advance(on, [&](const auto& x) {
      this->multiply(on.sum, next, x);
      // Materialises the sums here. Otherwise the compiler moves the products behind the fold and
      // keeps a copy of the weights from before the fold for them, in spilled registers.
      compute_here(on.sum.v);
      fold_if_due(*on.block, next, on.remainder_at);
      this->load_streamed(next, this->streamed(after));
    });
  }
  /// Makes this warp's part of W0 x. `in_flight` holds the first streamed blocks; streamed blocks
  /// that are due fold in this pass.
  __device__ __forceinline__ void forward(const Held& held, InFlight& in_flight) const {
    const W0Block* blocks = my_blocks();
    const W0Block* end = blocks + my_count();
    W0Pass on = begin_w0_pass();
#pragma unroll
    for (int k = 0; k < S::held_blocks; ++k) {
      if (blocks + k < end) {
        advance(on, [&](const auto& x) { this->multiply(on.sum, held[k], x); });
      }
    }
    const W0Block* streamed_to = blocks + p.streamed_to[warp()];
#pragma unroll 1
    while (on.block < streamed_to) {
#pragma unroll
      for (int i = 0; i < S::blocks_in_flight; ++i) {
        if (on.block < streamed_to) advance_streamed(on, in_flight[i], streamed_to);
      }
    }
#pragma unroll 1
    while (on.block < end) {
      advance(on, [&](const auto& x) {
        this->multiply_shared(on.sum, this->in_shared(on.block->where), x);
      });
    }
  }

  // -------------------------------------------------------------- W1

  /// Loads this warp's first block of W1.
  __device__ __forceinline__ void begin_w1_pass(Weights& next) const {
    const std::uint32_t first = p.w1_start[warp()];
    if (first < p.w1_start[warp() + 1]) {
      this->load(next, list<W1Block>(p.w1_blocks)[first]);
    }
  }
  /// Makes y(t) and W1^T d1(t) in one pass over this warp's blocks of W1. `next` holds the first.
  __device__ __forceinline__ void learn_w1(Weights& next) const {
    const auto* blocks = list<W1Block>(p.w1_blocks);
    const std::uint32_t end = p.w1_start[warp() + 1];
    typename Base::W1Pass on;
#pragma unroll 1
    for (std::uint32_t k = p.w1_start[warp()]; k < end; ++k) {
      this->learn_block(on, blocks[k], next,
                        [&] { this->load(next, blocks[min(k + 1, end - 1)]); });
    }
  }
  /// Folds this warp's due blocks of W1.
  __device__ __forceinline__ void fold_w1_blocks() const {
    const auto* blocks = list<W1Block>(p.w1_blocks);
#pragma unroll 1
    for (std::uint32_t k = p.w1_start[warp()]; k < p.w1_start[warp() + 1]; ++k) {
      const W1Block block = blocks[k];
      if (!this->w1_folds(block.what)) continue;
      Weights w;
      this->load(w, block);
      this->fold_w1(block, w);
    }
  }

  // -------------------------------------------------------------- folds

  /// Folds this warp's due blocks of W0 that are held or in shared memory; streamed ones have
  /// folded in forward().
  __device__ __forceinline__ void fold_blocks(Held& held) const {
    const W0Block* blocks = my_blocks();
    const std::uint32_t* start =
        list<std::uint32_t>(p.folding_start) + warp() * (S::period + 1) + now().phase;
    const std::uint32_t* mine = list<std::uint32_t>(p.folding);
#pragma unroll 1
    for (std::uint32_t i = start[0]; i < start[1]; ++i) {
      const auto k = static_cast<int>(mine[i]);
      const W0Block block = blocks[k];
      if (any_gain(unit_in(block.what)) == 0) continue;
      reread_thread();
      Weights w = held_or_loaded(held, k, block);
      this->fold(block, w, my_remainder(k));
      if (k >= S::held_blocks) {
        this->store(block, w);
        continue;
      }
#pragma unroll
      for (int h = 0; h < S::held_blocks; ++h) {
        if (h != k) continue;
        held[h] = w;
        // Keeps this a branch: otherwise the compiler makes it a selection between old and new
        // registers of every held block, which every fold would execute.
        __syncwarp();
      }
    }
  }
  /// The tiles of this warp's k-th block of W0, from registers if it is held, else loaded.
  __device__ __forceinline__ Weights held_or_loaded(const Held& held, int k,
                                                    const W0Block& block) const {
    Weights w = held[0];
#pragma unroll
    for (int h = 1; h < S::held_blocks; ++h) {
      if (h == k) w = held[h];
    }
    if (k >= S::held_blocks) this->load(w, block);
    return w;
  }

  // -------------------------------------------------------------- the step

  /// The named barriers of a step. The listed gradients' part is needed for h(t) only: the other
  /// warps wait until the unit warps have begun the step, not until they have weighed the listed
  /// gradients, and multiply meanwhile.
  enum Barriers : int {
    tables_loaded = 1,  ///< the warps that write factors wait for this step's tables
    units_begun,        ///< other warps wait for tables and d0(t-1)
    gathered,           ///< unit warps wait for x(t), and until h(t) may be sent (wait_for_slowest)
    sums_made,          ///< unit warps wait for the other warps' parts of W0 x(t)
    gradients_made,     ///< unit warps wait for W1^T d1(t)
    hidden_made,        ///< other warps wait for h(t) and its listed products
    patch_read          ///< and from here on one for each unit: its warp waits for its patch
  };

  __device__ __forceinline__ void run(Held& held) {
#pragma unroll 1
    for (;;) {
      reread_thread();
      typename Base::PastInputs past{};
      if (const W0Block* first = first_in_pass()) past = this->load_past_inputs(*first);
      reread_thread();
      if (warp() < unit_count()) {
        begin_unit(warp());
      } else {
        this->mark(Part::gather);
        this->gather_values(now().step - 1, (now().step & 1) != 0, thread - unit_threads(),
                            other_threads());
        reread_thread();
        this->mark(Part::factors);
        write_all_factors();
      }
      reread_thread();
      this->mark(Part::reload);
      // Zero-initialised, here and elsewhere, because it is loaded under a condition: otherwise the
      // compiler treats the undefined value as live since the launch's start and spends registers.
      InFlight in_flight{};
      begin_stream(in_flight);
      const W0Block* block = first_in_pass();
      if (block != nullptr) this->store_past_inputs(past);
      if (lane() == 0) *this->prepared_block() = block != nullptr ? block->block : ~0U;
      __syncwarp();
      this->mark(Part::wait_inputs);
      if (warp() < unit_count()) {
        named_barrier_sync(gathered, S::threads);
      } else {
        if (thread == S::threads - 1) this->wait_for_slowest(now().step);
        named_barrier_arrive(gathered, S::threads);
        named_barrier_sync(units_begun, S::threads);
      }
      if (thread == 0) this->prepare_step();
      this->mark(Part::forward);
      forward(held, in_flight);
      reread_thread();
      if (warp() < unit_count()) {
        finish(warp(), held);
      } else {
        finish_others(held);
      }
      const bool last = now().frame + 1 == launch().count;
      turn ^= 1;
      if (last) break;
    }
    __syncthreads();
  }
  /// A unit warp's work that does not need x(t).
  __device__ __forceinline__ void begin_unit(int u) const {
    this->mark(Part::tables);
    this->load_coefficients(u);
    named_barrier_arrive(tables_loaded, 2 * unit_threads());
    named_barrier_arrive(units_begun, S::threads);
    if (unit(u).patch != not_a_patch && now().frame > 0) named_barrier_sync(patch_read + u, 64);
    this->mark(Part::listed);
    this->make_listed_part(u);
  }
  /// Writes the factors of folds: the first of the other warps have one unit each.
  __device__ __forceinline__ void write_all_factors() const {
    const int u = warp() - unit_count();
    if (u >= unit_count()) return;
    named_barrier_sync(tables_loaded, 2 * unit_threads());
    if (lane() == 0) this->note_gain(u);
    this->write_factors(u, fold_coefficients(u, false));
  }
  /// A unit warp's work after its part of W0 x(t). W1^T d1(t) comes late, so the warp folds first.
  __device__ __forceinline__ void finish(int u, Held& held) const {
    this->mark(Part::wait_sums);
    named_barrier_sync(sums_made, S::threads);
    this->mark(Part::hidden);
    this->finish_unit(u);
    named_barrier_arrive(hidden_made, S::threads);
    reread_thread();
    this->mark(Part::fold_w0);
    fold_blocks(held);
    this->mark(Part::wait_gradients);
    named_barrier_sync(gradients_made, S::threads);
    this->mark(Part::gradient);
    this->finish_gradient(warp());
    reread_thread();
  }
  /// The other warps' work after their part of W0 x(t): blocks of W0 fold while h(t) is waited for,
  /// then one pass over W1 makes both products.
  __device__ __forceinline__ void finish_others(Held& held) const {
    named_barrier_arrive(sums_made, S::threads);
    this->mark(Part::errors);
    this->errors(thread - unit_threads(), static_cast<int>(p.out_count), other_threads());
    reread_thread();
    this->mark(Part::fold_w0);
    fold_blocks(held);
    reread_thread();
    Weights next{};
    begin_w1_pass(next);
    this->mark(Part::wait_hidden);
    named_barrier_sync(hidden_made, S::threads);
    this->mark(Part::patches);
    read_patches();
    reread_thread();
    this->mark(Part::learn);
    learn_w1(next);
    named_barrier_arrive(gradients_made, S::threads);
    reread_thread();
    this->mark(Part::fold_w1);
    fold_w1_blocks();
  }
  /// Reads the next frame's patches: each of the first of the other warps has one unit's.
  __device__ __forceinline__ void read_patches() const {
    if (now().frame + 1 == launch().count) return;
    for (int u = warp() - unit_count(); u < unit_count(); u += S::warps - unit_count()) {
      if (unit(u).patch == not_a_patch) continue;
      this->read_patch(u, 1);
      named_barrier_arrive(patch_read + u, 64);
    }
  }
};

}  // namespace pvm::inline v0::detail::units
