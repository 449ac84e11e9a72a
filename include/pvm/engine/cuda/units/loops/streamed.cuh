// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The step loop where all fp32 weights stream from device memory. Two thread blocks of 8 warps
/// share a streaming multiprocessor (SM); there are no warp roles. A step is two passes over the
/// weights by all warps, first W0, then W1. A block that is due folds while its pass has it in
/// registers. Between the passes each warp finishes its own units, while the first blocks of the
/// next pass are being loaded. __syncthreads() separates the parts:
///   tables, factors, gather x(t), listed gradients | W0 x(t), folds of W0 | h(t): send; d1(t) |
///   patches; W1^T d1(t), y(t), folds of W1 | d0(t), and on to the next step
/// While a block is multiplied, the next is loaded into registers and the one after it is
/// prefetched to the L2 cache.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/units/step/thread_block.cuh>

namespace pvm::inline v0::detail::units {

template <int Hidden, Home home, class Own>
struct Streamed : ThreadBlock<fp32, Hidden, home, Own> {
  using Base = ThreadBlock<fp32, Hidden, home, Own>;
  using S = typename Base::S;
  using Weights = typename Base::Weights;
  struct Held {};  // empty: no weights stay in registers between steps
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::reread_thread, Base::warp,
      Base::float_area, Base::now, Base::launch, Base::unit, Base::unit_count, Base::any_gain,
      Base::fold_coefficients, Base::my_blocks, Base::my_count, Base::my_w1_blocks,
      Base::my_w1_count, Base::my_remainder, Base::words_of, Base::list_of;

  /// Fills W1's lists, which lie in device memory here, from the stored remainder rows and d1.
  __device__ __forceinline__ void load_weights(Held& /*held*/) const { this->load_w1_weights(); }
  /// Stores W1's remainder rows: during a launch, folds update the copies in the lists only.
  __device__ __forceinline__ void store_weights(const Held& /*held*/) const {
    for (int k = 0; k < my_w1_count(); ++k) this->store_remainder_to_memory(my_w1_blocks()[k]);
  }

  // -------------------------------------------------------------- prefetching

  /// Prefetches this warp's k-th block of W0 to the L2 cache, if there is one.
  __device__ __forceinline__ void prefetch_block(int k) const {
    if (k >= my_count()) return;
    this->template prefetch<S::block_words>(words_of(my_blocks()[k]));
  }
  /// Prefetches this warp's k-th block of W1, with its list, to the L2 cache, if there is one.
  __device__ __forceinline__ void prefetch_w1(int k) const {
    if (k >= my_w1_count()) return;
    const W1Block& block = my_w1_blocks()[k];
    this->template prefetch<S::block_words>(words_of(block));
    this->template prefetch<S::list_words>(list_of(block.out));
  }
  /// Starts the loads of the first blocks of a pass over W0.
  __device__ __forceinline__ void begin_w0_pass(Weights& next) const {
    if (my_count() == 0) return;
    this->load_streamed(next, this->streamed(my_blocks()[0]));
    for (int k = 1; k <= S::prefetched_blocks; ++k) prefetch_block(k);
  }
  /// Starts the loads of the first blocks of a pass over W1.
  __device__ __forceinline__ void begin_w1_pass(Weights& next) const {
    if (my_w1_count() == 0) return;
    this->load_streamed(next, this->streamed(my_w1_blocks()[0]));
    for (int k = 1; k <= S::prefetched_blocks; ++k) prefetch_w1(k);
  }

  // -------------------------------------------------------------- W0

  /// Makes this warp's part of W0 x, unit by unit; a block that is due folds once it has been
  /// multiplied. `next` holds the first block.
  __device__ __forceinline__ void forward(Weights& next) const {
    const W0Block* blocks = my_blocks();
    const int count = my_count();
    if (count == 0) return;
    const unsigned parity = (static_cast<unsigned>(now().step) & 1U) * 16;
    const auto place = [&](int k) { return shared + (blocks[k].x >> parity & 0xffffU); };
    auto x = this->values(place(0));
    auto remainder = this->remainder_weights(my_remainder(0));
    typename Base::Sums sum;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      const std::uint32_t what = blocks[k].what;
      const auto values = x;
      const auto remainder_here = remainder;
      const int after = min(k + 1, count - 1);
      const auto* from = this->streamed(blocks[after]);
      prefetch_block(k + 1 + S::prefetched_blocks);
      x = this->values(place(after));
      remainder = this->remainder_weights(my_remainder(after));
      if (this->folds(what)) {
        this->multiply(sum, next, values);
        this->fold_streamed(blocks[k], next, my_remainder(k));
        this->load_streamed(next, from);
      } else {
        this->multiply_and_load(sum, next, values, from);
      }
      this->multiply_remainder(sum, remainder_here, values);
      if (left_in(what) > 1) continue;
      this->write_sums(sum, float_area(unit_in(what)) + S::part0 + warp() * S::values);
      sum = {};
    }
  }

  // -------------------------------------------------------------- W1

  /// One pass over this warp's blocks of W1, for W1^T d1(t) and y(t); a block that is due folds
  /// once it has been multiplied. `next` holds the first block.
  __device__ __forceinline__ void learn(Weights& next) const {
    const W1Block* blocks = my_w1_blocks();
    const int count = my_w1_count();
    typename Base::W1Pass on;
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      const W1Block block = blocks[k];
      prefetch_w1(k + 1 + S::prefetched_blocks);
      const auto* after = this->streamed(blocks[min(k + 1, count - 1)]);
      const bool folds = this->w1_folds(block.what);
      this->learn_block(on, block, next, [&] {
        if (!folds) this->load_streamed(next, after);
      });
      if (!folds) continue;
      this->fold_w1(block, next);
      this->load_streamed(next, after);
    }
  }

  // -------------------------------------------------------------- the step

  /// Calls work(u) for this warp's units.
  template <class Work>
  __device__ __forceinline__ void each_unit(Work work) const {
#pragma unroll 1
    for (int u = warp(); u < unit_count(); u += S::warps) work(u);
  }
  /// The part of a unit's work that depends on no other unit: its tables and the factors of folds.
  __device__ __forceinline__ void begin_unit(int u) const {
    this->load_coefficients(u);
    if (this->lane() == 0) this->note_gain(u);
    this->write_factors(u, fold_coefficients(u, false));
  }
  __device__ __forceinline__ void read_patches() const {
    if (now().frame + 1 == launch().count) return;
    each_unit([&](int u) {
      if (unit(u).patch != not_a_patch) this->read_patch(u, 1);
    });
  }
  __device__ __forceinline__ void run(Held& /*held*/) {
#pragma unroll 1
    for (;;) {
      Weights next;
      reread_thread();
      this->mark(Part::tables);
      begin_w0_pass(next);
      each_unit([&](int u) { begin_unit(u); });
      reread_thread();
      this->mark(Part::gather);
      this->gather_values(now().step - 1, (now().step & 1) != 0, thread, S::threads);
      reread_thread();
      this->mark(Part::listed);
      each_unit([&](int u) { this->make_listed_part(u); });
      if (thread == S::threads - 1) this->wait_for_slowest(now().step);
      this->mark(Part::wait_inputs);
      __syncthreads();
      if (thread == 0) this->prepare_step();
      reread_thread();
      this->mark(Part::forward);
      forward(next);
      reread_thread();
      begin_w1_pass(next);
      this->mark(Part::wait_sums);
      __syncthreads();
      this->mark(Part::hidden);
      each_unit([&](int u) { this->finish_unit(u); });
      reread_thread();
      this->mark(Part::errors);
      this->errors(thread, static_cast<int>(p.out_count), S::threads);
      reread_thread();
      this->mark(Part::wait_errors);
      __syncthreads();
      this->mark(Part::patches);
      read_patches();
      reread_thread();
      this->mark(Part::learn);
      learn(next);
      reread_thread();
      this->mark(Part::wait_gradients);
      __syncthreads();
      this->mark(Part::gradient);
      each_unit([&](int u) { this->finish_gradient(u); });
      __syncwarp();  // the lanes read in the next step what other lanes stored to device memory
      const bool last = now().frame + 1 == launch().count;
      turn ^= 1;
      if (last) break;
    }
    __syncthreads();
  }
};

}  // namespace pvm::inline v0::detail::units
