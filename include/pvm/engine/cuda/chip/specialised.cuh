// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Who does what, and when, where 16-bit weights stay on the chip. Each warp has one of three roles
/// for as long as a launch lasts:
///   multipliers  have the weights: W0 x(t), then d1(t) = g(y(t-2)) e, W1^T d1(t) and y(t), the
///                latter for blocks of W1 of their own;
///   finishers    weigh a unit's listed gradients, make h(t), which is sent at once, its inner
///                products, the next patch and d0(t); those without a unit gather
///                x(t), and all do where that would be one;
///   folders      write the factors of folds and fold the blocks whose turn it is, while or after
///                multipliers use them.
/// So what is waited for by other multiprocessors, from x(t) to h(t), does not wait for folds,
/// which have until the next step begins. Multipliers take registers from the others for their
/// weights; where there is no `setmaxnreg` (anything but code for sm_90a) some of these spill.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/chip/multiprocessor.cuh>
#include <pvm/engine/cuda/instructions.cuh>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden>
struct Specialised : Multiprocessor<Precision, Hidden, Home::chip> {
  using Base = Multiprocessor<Precision, Hidden, Home::chip>;
  using S = typename Base::S;
  using Weights = typename Base::Weights;
  using Mine = Weights[S::held_blocks];
  using Coming = Weights[S::under_way];
  struct Held {};  ///< each multiplier loads its own
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::begin_phase, Base::warp,
      Base::lane, Base::floats, Base::area, Base::now, Base::launch, Base::unit, Base::unit_count,
      Base::folds_of, Base::my_blocks, Base::my_count, Base::list_of, Base::weights_of,
      Base::table_place;
  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return Base::template list<T>(at);
  }

  static constexpr int multiplying = S::multipliers * 32, finishing = S::finishers * 32,
                       folding = S::folders * 32;  // threads
  __device__ __forceinline__ int finisher() const { return warp() - S::multipliers; }
  __device__ __forceinline__ int folder() const { return finisher() - S::finishers; }

  /// The barriers of a step, by who waits and for what.
  enum Barriers : int {
    gathered = 1,     ///< multipliers for x(t)
    w0_folded,        ///< multipliers for the folds of W0 of the step before
    w1_folded,        ///< and of W1
    hidden_made,      ///< multipliers for h(t), tables, and d0(t-1)
    sums_made,        ///< finishers for W0 x(t)
    gradients_made,   ///< finishers for W1^T d1(t)
    x_left,           ///< finishers until nobody reads x(t) any more
    factors_made,     ///< finishers until nobody reads the tables of the step before
    unit_ready,       ///< folders for tables and d0(t-1)
    factors_written,  ///< folders for each other
    w0_left,          ///< folders until nobody reads W0
    w1_left,          ///< and W1
    held_loaded,      ///< folders, once a launch, until held W0 is in registers
  };

  /// Calls work(block) for this warp's blocks of W0 in shared memory.
  template <class Work>
  __device__ __forceinline__ void each_shared(Work work) const {
    const ChipBlock* blocks = my_blocks();
    const int count = my_count();
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      if (blocks[k].where == in_memory) continue;
      work(blocks[k]);
    }
  }
  /// What all warps load together.
  __device__ __forceinline__ void load_weights(Held& /*held*/) const {
    begin_phase();
    const int count = my_count();
    each_shared([&](const ChipBlock& block) {
      Weights w;
      this->load_streamed(w, this->streamed(block));
      this->store(block, w);
    });
    if (count > 0) this->load_rests();
    this->load_wide_weights();
  }
  /// What folds have not put into device memory: weights in shared memory.
  __device__ __forceinline__ void store_weights(const Held& /*held*/) const {
    each_shared([&](const ChipBlock& block) {
      Weights w;
      this->load_shared(w, this->in_shared(block.where));
      this->write_tiles(this->streamed(block), w);
    });
    const auto* wide = list<ChipWideBlock>(p.wide_blocks);
#pragma unroll 1
    for (std::uint32_t k = p.wide_start[warp()]; k < p.wide_start[warp() + 1]; ++k) {
      Weights w;
      this->load_wide(w, shared + wide[k].where);
      this->write_tiles(this->streamed(wide[k]), w);
    }
  }
  __device__ __forceinline__ bool first() const { return now().frame == 0; }
  __device__ __forceinline__ bool last() const { return now().frame + 1 == launch().count; }
  __device__ __forceinline__ void next_step() { turn = (turn + 1) & 3; }

  __device__ __forceinline__ void run(Held& /*held*/) {
    if (warp() < S::multipliers) {
      take_registers<S::multiplier_registers>();
      multiply_all();
    } else if (finisher() < S::finishers) {
      leave_registers<S::finisher_registers>();
      finish_all();
    } else {
      leave_registers<S::folder_registers>();
      fold_all();
    }
    __syncthreads();
  }

  // -------------------------------------------------------------- multipliers

  __device__ __forceinline__ void multiply_all() {
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
  /// This warp's blocks are one behind the other in device memory.
  static constexpr int tile_words = S::block_words / 4;
  __device__ __forceinline__ const uint4* held_tiles() const {
    return this->streamed(my_blocks()->block + p.streamed_to[warp()]);
  }
  /// The held blocks that were folded in the step before, from where they were folded to.
  __device__ __forceinline__ void load_folded(Mine& held) const {
    const std::uint32_t which =
        list<std::uint32_t>(p.reload)[warp() * a.period + now((turn + 3) & 3).phase];
    if (which == 0) return;
    const uint4* from = held_tiles();
#pragma unroll
    for (int k = 0; k < S::held_blocks; ++k) {
      if ((which >> k & 1U) != 0) this->load_streamed(held[k], from + k * tile_words);
    }
  }
  /// The way through a warp's blocks: what the next one is multiplied by is on its way while one is
  /// multiplied.
  struct Walk {
    const std::uint32_t *inputs, *rest;
    typename Base::Values x;
    uint2 beside;         ///< its rows beside the tiles
    std::uint32_t after;  ///< where the next one's inputs are
    typename Base::Sums sum;
  };
  __device__ __forceinline__ Walk begin_walk() const {
    const std::uint32_t* inputs = list<std::uint32_t>(p.inputs) + p.block_start[warp()];
    if ((now().step & 1) != 0) inputs += p.input_count;
    const std::uint32_t* rest = shared + p.rest_first[warp()];
    return {inputs + 2, rest, this->values(shared + inputs[0]), this->rest_weights(rest),
            inputs[1],  {}};
  }
  template <class Multiply>
  __device__ __forceinline__ void walk(Walk& on, Multiply&& multiply) const {
    const auto x = on.x;
    const auto beside = on.beside;
    on.x = this->values(shared + on.after);
    on.rest += S::rest_words;
    on.beside = this->rest_weights(on.rest);
    on.after = *on.inputs++;
    multiply(x);
    this->multiply_rest(on.sum, beside, x);
  }
  /// What this warp's blocks have of W0 x, unit by unit. `coming` are the first, which are
  /// streamed; the last of those take their place, and come while others are multiplied.
  __device__ __forceinline__ void forward(const Mine& held, Coming& coming) const {
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
  /// d1(t) of this warp's blocks of W1, which are numbered like their outputs.
  __device__ __forceinline__ void errors() const {
    const auto outputs_before = [&](int w) { return static_cast<int>(p.wide_start[w]) * columns; };
    Base::errors(outputs_before(warp()) + lane(), outputs_before(warp() + 1), 32);
  }
  /// What this warp's blocks have of W1^T d1 and of d1(j).d1, the latter with its coefficients, and
  /// their y(t). The blocks' tiles, lists and outputs lie one behind the other.
  __device__ __forceinline__ void learn() const {
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

  // -------------------------------------------------------------- finishers

  template <class Work>
  __device__ __forceinline__ void each_unit(int first_unit, int step, Work work) const {
#pragma unroll 1
    for (int u = first_unit; u < unit_count(); u += step) work(u);
  }
  template <class Work>
  __device__ __forceinline__ void each_own_unit(Work work) const {
    each_unit(finisher(), with_units(), work);
  }
  /// Of the finishers, how many have units; the others gather.
  __device__ __forceinline__ int with_units() const { return min(unit_count(), S::finishers - 1); }
  __device__ __forceinline__ int with_units_threads() const { return with_units() * 32; }

  /// Those without units gather, and, where that is one warp only, all do.
  __device__ __forceinline__ int first_gatherer() const {
    return with_units() + 1 < S::finishers ? with_units() : 0;
  }
  __device__ __forceinline__ bool gathers() const { return finisher() >= first_gatherer(); }

  /// x(t) is gathered as soon as nobody reads x(t-1).
  __device__ __forceinline__ void finish_all() {
    const bool finishes = finisher() < with_units();
    if (gathers()) gather(now().step);
    arrive_warps(gathered, multiplying + finishing);
#pragma unroll 1
    for (;;) {
      begin_phase();
      if (finishes) finish_units();
      begin_phase();
      const bool ends = last();
      if (!ends) {
        sync_warps(x_left, multiplying + finishing);
        if (finishes) read_patches();
        begin_phase();
        if (gathers()) gather(now().step + 1);
        begin_phase();
        arrive_warps(gathered, multiplying + finishing);
      }
      if (finishes) finish_gradients();
      if (ends) break;
      next_step();
    }
  }
  __device__ __forceinline__ void finish_units() const {
    if (thread == multiplying) this->prepare(now((turn + 1) & 3));
    if (!first()) sync_warps(factors_made, with_units_threads() + folding);
    each_own_unit([&](int u) { this->open_tables(u); });
    arrive_warps(unit_ready, with_units_threads() + folding);
    each_own_unit([&](int u) { this->listed_share(u); });
    begin_phase();
    sync_warps(sums_made, multiplying + with_units_threads());
    each_own_unit([&](int u) { this->finish_unit(u); });
    arrive_warps(hidden_made, multiplying + with_units_threads());
  }
  __device__ __forceinline__ void read_patches() const {
    each_own_unit([&](int u) {
      if (unit(u).patch != not_a_patch) this->read_patch(u, 1);
    });
  }
  __device__ __forceinline__ void finish_gradients() const {
    sync_warps(gradients_made, multiplying + with_units_threads());
    each_own_unit([&](int u) { this->finish_gradient(u); });
  }
  /// x(t), but for the patches.
  __device__ __forceinline__ void gather(unsigned long long t) const {
    const int before = multiplying + first_gatherer() * 32;
    const unsigned int begun = this->ask_slowest(t);
    this->gather_values(t - 1, (t & 1) != 0, thread - before, S::threads - folding - before);
    begin_phase();
    if (lane() == 0) this->wait_for_slowest(t, begun);
    __syncwarp();
  }
  // -------------------------------------------------------------- folders

  __device__ __forceinline__ void fold_all() {
    sync_warps(held_loaded, multiplying + folding);
#pragma unroll 1
    for (;;) {
      begin_phase();
      send_for_masters();
      sync_warps(unit_ready, with_units_threads() + folding);
      each_unit(folder(), S::folders, [&](int u) { this->write_factors(u, folds_of(u)); });
      const bool ends = last();
      if (!ends) arrive_warps(factors_made, with_units_threads() + folding);
      sync_warps(factors_written, folding);
      begin_phase();
      const std::uint32_t* start =
          list<std::uint32_t>(p.folding_start) + 2 * (folder() * (a.period + 1) + now().phase);
      const std::uint32_t early = start[0], others = start[1], end = start[2];
      fold_blocks(early, others, [&](std::uint32_t i) { return kept_rest(i - early); });
      sync_warps(w0_left, multiplying + folding);
      begin_phase();
      for (std::uint32_t i = early; i < others; ++i) {
        if (lane() < S::rest_words) rest_of_any(i)[lane()] = kept_rest(i - early)[lane()];
      }
      fold_blocks(others, end, [&](std::uint32_t i) { return rest_of_any(i); });
      begin_phase();
      if (!ends) arrive_warps(w0_folded, multiplying + folding);
      sync_warps(w1_left, multiplying + folding);
      fold_wide_blocks();
      if (ends) break;
      arrive_warps(w1_folded, multiplying + folding);
      next_step();
    }
  }
  /// The smaller halves of what this warp folds in this step, to the second-level cache: a block a
  /// lane.
  __device__ __forceinline__ void send_for_masters() const {
    const int row = folder() * (a.period + 1) + now().phase;
    const auto send_for = [&](const auto* blocks, const std::uint32_t* mine, std::uint32_t from,
                              std::uint32_t to) {
      for (std::uint32_t i = from + static_cast<unsigned>(lane()); i < to; i += 32) {
        prefetch_bulk(this->masters_of(blocks[mine[i]]), S::block_words * 4);
      }
    };
    const auto* start = list<std::uint32_t>(p.folding_start) + 2 * row;
    send_for(list<ChipBlock>(p.blocks), list<std::uint32_t>(p.folding), start[0], start[2]);
    const auto* wide = list<std::uint32_t>(p.wide_folding_start) + row;
    send_for(list<ChipWideBlock>(p.wide_blocks), list<std::uint32_t>(p.wide_folding), wide[0],
             wide[1]);
  }
  /// The rows beside the tiles of block i of those that fold: where they are multiplied from, and
  /// where the i-th that a warp folds early keeps them.
  __device__ __forceinline__ std::uint32_t* rest_of_any(std::uint32_t i) const {
    return shared + p.rest_first[0] + list<std::uint32_t>(p.folding)[i] * S::rest_words;
  }
  __device__ __forceinline__ std::uint32_t* kept_rest(std::uint32_t i) const {
    return shared + a.areas.scratch + static_cast<std::uint32_t>(folder()) * S::scratch_words +
           i * S::rest_words;
  }
  template <class RestTo>
  __device__ __forceinline__ void fold_blocks(std::uint32_t from, std::uint32_t to,
                                              RestTo rest_to) const {
    const auto* mine = list<std::uint32_t>(p.folding);
    const auto* blocks = list<ChipBlock>(p.blocks);
#pragma unroll 1
    for (std::uint32_t i = from; i < to; ++i) {
      begin_phase();
      const ChipBlock block = blocks[mine[i]];
      this->fold(block, rest_of_any(i), rest_to(i));
    }
  }
  __device__ __forceinline__ void fold_wide_blocks() const {
    const auto* start =
        list<std::uint32_t>(p.wide_folding_start) + folder() * (a.period + 1) + now().phase;
    const auto* mine = list<std::uint32_t>(p.wide_folding);
    const auto* blocks = list<ChipWideBlock>(p.wide_blocks);
#pragma unroll 1
    for (std::uint32_t i = start[0]; i < start[1]; ++i) {
      begin_phase();
      this->fold_wide(blocks[mine[i]]);
    }
  }
};

}  // namespace pvm::inline v0::detail::chip
