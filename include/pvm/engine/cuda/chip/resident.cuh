// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Who does what, and when, where weights stay on the chip. In step t one warp a unit
///   begins    by weighing the listed gradients with what the sources sent,
///   finishes  the unit when all warps have their part of W0 x(t): h(t), sent at once, its inner
///             products, and later d0(t);
/// the others
///   gather    x(t) from what the units sent in step t - 1, and write the factors of folds,
///   learn     after their part of W0 x(t): d1(t) = g(y(t-2)) e, W1^T d1(t), the next patches,
///   y(t);
/// all multiply, and fold the blocks whose turn it is. Barriers are between those that need each
/// other; no warp waits for the end of a step.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/chip/multiprocessor.cuh>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden>
struct Resident : Multiprocessor<Precision, Hidden, Home::chip> {
  using Base = Multiprocessor<Precision, Hidden, Home::chip>;
  using S = typename Base::S;
  using Weights = typename Base::Weights;
  using Held = Weights[S::held_blocks];
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::begin_phase, Base::warp,
      Base::lane, Base::floats, Base::area, Base::float_area, Base::now, Base::launch, Base::unit,
      Base::unit_count, Base::gains, Base::folds_of, Base::my_blocks, Base::my_count, Base::rest_of,
      Base::master_of, Base::list_of, Base::weights_of, Base::table_place, Base::activate;
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
      if (k < count) this->load_master(held[k], master_of(blocks[k]));
    }
#pragma unroll 1
    for (int k = S::held_blocks; k < count; ++k) {
      Weights w;
      this->load_master(w, master_of(blocks[k]));
      this->store(blocks[k], w);
    }
#pragma unroll 1
    for (int k = 0; k < count; ++k) this->load_rest(rest_of(k), master_of(blocks[k]));
    this->load_wide_weights();
  }

  // -------------------------------------------------------------- forward

  /// Asks for the first of this warp's blocks that are streamed.
  __device__ __forceinline__ void begin_stream(Weights& next) const {
    constexpr int first = S::held_blocks;
    const auto streamed_to = static_cast<int>(p.streamed_to[warp()]);
    if (first < streamed_to) this->load_streamed(next, this->streamed(my_blocks()[first]));
    if constexpr (S::sent_for > 0) {
      for (int k = first + 1; k < min(first + 1 + S::sent_for, streamed_to); ++k) send_for(k);
    }
  }
  /// Brings this warp's k-th block to the second-level cache.
  __device__ __forceinline__ void send_for(int k) const {
    this->template prefetch<S::tile_floats>(master_of(my_blocks()[0]) + k * S::master0);
  }
  /// What this warp's blocks have of W0 x, unit by unit. What the next block is multiplied by is on
  /// its way while one is multiplied, and so is `next`, the next of those that are streamed.
  __device__ __forceinline__ void forward(const Held& held, Weights& next) const {
    const ChipBlock* blocks = my_blocks();
    const int count = my_count();
    if (count == 0) return;
    const auto streamed_to = static_cast<int>(p.streamed_to[warp()]);
    const unsigned parity = (static_cast<unsigned>(now().step) & 1U) * 16;
    const auto* stream = this->streamed(blocks[0]);
    const auto place = [&](int k) {
      return shared + (blocks[min(k, count - 1)].x >> parity & 0xffffU);
    };
    const std::uint32_t* beside = rest_of(0);
    auto x = this->values(place(0));
    auto rest = this->rest_weights(beside);
    const std::uint32_t* after = place(1);
#pragma unroll 1
    for (int begin = 0, end = 0; begin < count; begin = end) {
      const std::uint32_t what = blocks[begin].what;
      end = begin + static_cast<int>(what >> run_shift);
      typename Base::Sums sum;
      const auto multiply_block = [&](int k, auto&& multiply) {
        const auto values = x;
        const auto rest_here = rest;
        x = this->values(after);
        after = place(k + 2);
        rest = this->rest_weights(beside + min(k + 1, count - 1) * S::rest_words);
        multiply(values);
        this->multiply_rest(sum, rest_here, values);
      };
#pragma unroll
      for (int k = 0; k < S::held_blocks; ++k) {
        if (k < begin || k >= end) continue;
        multiply_block(k, [&](const auto& v) { this->multiply(sum, held[k], v); });
      }
#pragma unroll 1
      for (int k = max(begin, S::held_blocks); k < min(end, streamed_to); ++k) {
        const auto* from = stream + min(k + 1, streamed_to - 1) * S::stream_words / 4;
        if constexpr (S::sent_for > 0) {
          if (k + 1 + S::sent_for < streamed_to) send_for(k + 1 + S::sent_for);
        }
        multiply_block(k, [&](const auto& v) { this->multiply_and_load(sum, next, v, from); });
      }
#pragma unroll 1
      for (int k = max(begin, streamed_to); k < end; ++k) {
        multiply_block(k, [&](const auto& v) {
          this->multiply_shared(sum, this->in_shared(blocks[k].where), v);
        });
      }
      this->write_sums(sum,
                       float_area(static_cast<int>(what & 0xff)) + S::part0 + warp() * S::values);
    }
  }

  // -------------------------------------------------------------- W1

  /// What this warp's blocks have of W1^T d1 and of d1(j).d1, the latter with its coefficients.
  __device__ __forceinline__ void backward() const {
    const auto* blocks = list<ChipWideBlock>(p.wide_blocks);
    typename Base::Sums sum;
    typename Base::ListSums more;
    int place[Base::listed_places];
#pragma unroll
    for (int i = 0; i < Base::listed_places; ++i) place[i] = table_place(this->place_of(i));
#pragma unroll 1
    for (std::uint32_t k = p.wide_start[warp()]; k < p.wide_start[warp() + 1]; ++k) {
      const ChipWideBlock block = blocks[k];
      const int u = static_cast<int>(block.what & 0xff);
      const auto d1 = this->values(shared + p.d1 + block.out);
      Weights w;
      this->load_wide(w, block);
      this->multiply(sum, w, d1);
      const typename Base::ListSums beside = this->multiply_list(list_of(block.out), d1);
      const float* weights = weights_of(u, static_cast<int>(block.what >> 8 & 0xff));
#pragma unroll
      for (int i = 0; i < Base::listed_places; ++i) more.v[i] += weights[place[i]] * beside.v[i];
      if (block.what >> run_shift > 1) continue;
      float* to = float_area(u) + S::part1 + warp() * S::part1_words;
      this->write_tiles(sum, to);
      this->write_list(more, to + S::tiles * 8);
      sum = {};
      more = {};
    }
  }

  /// y(t) of this warp's blocks, and the folds of those whose turn it is.
  __device__ __forceinline__ void outputs() const {
    const auto* blocks = list<ChipWideBlock>(p.wide_blocks);
    const int next_phase = now().phase + 1 == a.period ? 0 : now().phase + 1;
    typename Base::Rows h;
    int held = -1;  // whose hidden values are in h
#pragma unroll 1
    for (std::uint32_t k = p.wide_start[warp()]; k < p.wide_start[warp() + 1]; ++k) {
      const ChipWideBlock block = blocks[k];
      const int u = static_cast<int>(block.what & 0xff);
      const int phase = static_cast<int>(block.what >> 8 & 0xff);
      if (u != held) {
        held = u;
        h = this->rows(area(u) + S::raw);
      }
      typename Base::ColumnSums sum;
      this->multiply_rows(sum, block, h);
      this->multiply_listed_rows(sum, list_of(block.out), this->listed_of(u, phase));
      float* y = floats(p.y) + static_cast<unsigned>(now().step & 1) * p.out_count + block.out;
      this->write_outputs(sum, y, [&](float v) { return activate(v); });
      begin_phase();
      if (phase == next_phase) this->template prefetch<S::master1>(master_of(block));
      if (phase == now().phase && gains(u) != 0) this->fold_wide(block, master_of(block), true);
    }
  }

  // -------------------------------------------------------------- folds

  /// This warp's blocks of W0 whose turn it is; those that come next are sent for.
  __device__ __forceinline__ void fold_blocks(Held& held) const {
    const ChipBlock* blocks = my_blocks();
    const std::uint32_t* start =
        list<std::uint32_t>(p.folding_start) + warp() * (a.period + 1) + now().phase;
    const std::uint32_t* mine = list<std::uint32_t>(p.folding);
    const std::uint32_t* next = now().phase + 1 == a.period ? start - now().phase : start + 1;
#pragma unroll 1
    for (std::uint32_t i = next[0]; i < next[1]; ++i) {
      this->template prefetch<S::master0>(master_of(blocks[mine[i]]));
    }
#pragma unroll 1
    for (std::uint32_t i = start[0]; i < start[1]; ++i) {
      const auto k = static_cast<int>(mine[i]);
      const ChipBlock block = blocks[k];
      if (gains(static_cast<int>(block.what & 0xff)) == 0) continue;
      begin_phase();
      Weights w;
      this->fold_block(block, master_of(block), w, rest_of(k));
#pragma unroll
      for (int h = 0; h < S::held_blocks; ++h) {
        if (h == k) held[h] = w;
      }
      if (k >= S::held_blocks) this->store(block, w);
    }
  }

  // -------------------------------------------------------------- the step

  /// The barriers of a step but for the one that all wait at.
  enum : int { sums_made = 1, errors_made, gradients_made, hidden_made, tables_open, patch_read };

  __device__ __forceinline__ void run(Held& held) {
#pragma unroll 1
    for (;;) {
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
      Weights next;
      begin_stream(next);
      if (thread == S::threads - 1) this->wait_for_slowest();
      __syncthreads();
      if (thread == 0) this->prepare_step();
      forward(held, next);
      begin_phase();
      if (warp() < unit_count()) {
        finish(warp());
      } else {
        learn();
      }
      begin_phase();
      fold_blocks(held);
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
  /// And the rest that one warp does.
  __device__ __forceinline__ void finish(int u) const {
    sync_warps(sums_made, S::threads);
    this->finish_unit(u);
    arrive_warps(hidden_made, S::threads);
    begin_phase();
    sync_warps(gradients_made, S::threads);
    this->finish_gradient(u);
  }
  /// What the other warps do meanwhile.
  __device__ __forceinline__ void learn() const {
    arrive_warps(sums_made, S::threads);
    this->errors(thread - unit_threads(), other_threads());
    begin_phase();
    sync_warps(errors_made, other_threads());
    backward();
    arrive_warps(gradients_made, S::threads);
    begin_phase();
    sync_warps(hidden_made, S::threads);
    read_patches();
    begin_phase();
    outputs();
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
