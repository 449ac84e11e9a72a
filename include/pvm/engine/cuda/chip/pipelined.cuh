// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Who does what, and when, where all 16-bit weights stream from device memory. Each warp has one
/// of two roles for as long as a launch lasts:
///   streamers  pass over their blocks of W0, for W0 x(t), and fold those whose turn it is, and
///              then over those of W1, for W1^T d1(t) and y(t-1), which fold in the same way;
///   finishers  make everything else: x(t) and errors, h(t) of a unit, the next patch, d0(t), and
///              the factors of folds.
/// Weights stream while units are finished: W1 while h(t) is made, sent and gathered to x(t+1), W0
/// while d0(t-1) and d1(t) are made, and what listed gradients add. That is why outputs are made a
/// step later: for y(t) W1 would have to wait for h(t). A launch's last are made behind it.
/// What streamers do is in streamers.cuh.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/chip/multiprocessor.cuh>
#include <pvm/engine/cuda/instructions.cuh>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden>
struct Pipelined : Multiprocessor<Precision, Hidden, Home::memory> {
  using Base = Multiprocessor<Precision, Hidden, Home::memory>;
  using S = typename Base::S;
  using Weights = typename Base::Weights;
  struct Held {};  // nothing is held from step to step
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::begin_phase, Base::warp,
      Base::lane, Base::area, Base::float_area, Base::now, Base::launch, Base::unit, Base::gains,
      Base::folds_of, Base::my_blocks, Base::my_count, Base::my_wide_blocks, Base::my_wide_count,
      Base::first_block, Base::words_of, Base::list_of, Base::gate, Base::open_gate,
      Base::pass_gate, Base::first, Base::last, Base::next_step;

  // -------------------------------------------------------------- what both roles share

  static constexpr int streaming = S::multipliers * 32, finishing = S::finishers * 32;  // threads
  static constexpr int all = streaming + finishing;
  /// How many blocks before it is multiplied one is sent for to the second-level cache.
  static constexpr int ahead_by = 1 + S::sent_for;

  /// Who waits at a gate does not wait for others who wait.
  enum Gates : int {
    gathered,      ///< x(t), by finishers
    factors_made,  ///< tables and factors of folds, by finishers
    errors_made,   ///< d1(t), and what y(t-1) is made of, by finishers
    folded,        ///< all that folds in a step, by streamers
    gates
  };
  static_assert(gates <= Base::most_gates);
  /// One thread's work, once a launch.
  __device__ __forceinline__ void close_gates() const {
    barrier_init(gate(gathered), S::finishers);
    barrier_init(gate(factors_made), S::finishers);
    barrier_init(gate(errors_made), S::finishers);
    barrier_init(gate(folded), S::multipliers);
  }
  /// Finishers wait for streamers at barriers, where they sleep: who waits long at a gate asks
  /// again and again, and takes the others' turns.
  enum Barriers : int {
    sums_made = 1,   ///< W0 x(t)
    gradients_made,  ///< W1^T d1(t) and y(t-1)
  };

  /// W1's lists, from what is in device memory from launch to launch.
  __device__ __forceinline__ void load_weights(Held& /*held*/) const { this->load_wide_weights(); }

  __device__ __forceinline__ void run(Held& /*held*/) {
    if (warp() < S::multipliers) {
      take_registers<S::multiplier_registers>();
      stream_all();
    } else {
      leave_registers<S::finisher_registers>();
      finish_all();
    }
    __syncthreads();
  }

  // -------------------------------------------------------------- streamers.cuh

  /// A launch of a warp that streams.
  __device__ void stream_all();
  /// To registers: the first block of a pass.
  __device__ void load_first(Weights& next) const;
  __device__ void load_first_wide(Weights& next) const;
  /// To the second-level cache: a block of W0.
  __device__ void send_for_block(std::uint32_t block) const;
  /// And a block of W1, with what else it is multiplied by.
  __device__ void send_for_wide(const ChipWideBlock& block) const;
  /// What this warp's blocks have of W0 x, unit by unit. The first is in `next`.
  __device__ void forward(Weights& next) const;
  /// Of those whose turn it is to fold lane i asks for number `from` + i.
  __device__ ChipBlock ask_turns(int from) const;
  /// They fold, `mine` being the first of them: they are read again, from the second-level cache
  /// mostly.
  __device__ void fold_blocks(ChipBlock mine) const;
  /// To the second-level cache: the smaller halves of the blocks that `lanes` know. During the pass
  /// they would push out what finishers read.
  __device__ void send_for_smaller_halves(const ChipBlock& mine, unsigned lanes) const;
  /// `count` of them that lanes know.
  __device__ void fold_turns(const ChipBlock& mine, int count) const;
  /// One pass over this warp's blocks of W1, for this step's gradients, and for the outputs of the
  /// step before if these are to be made. The first block is in `next`.
  __device__ void learn(Weights& next, bool outputs) const;
  /// And those fold whose turn it is.
  __device__ void fold_wide_blocks() const;

  /// Of block number `block` of W0.
  __device__ __forceinline__ const typename Base::Word* tiles_of(std::uint32_t block) const {
    return reinterpret_cast<const typename Base::Word*>(a.weights + this->start_of(block)) + lane();
  }
  /// What is known of this warp's blocks of W0 in this step: where in shared memory their inputs
  /// are, and of which unit they are.
  __device__ __forceinline__ const std::uint32_t* my_inputs() const {
    return this->template list<std::uint32_t>(p.inputs) + p.block_start[warp()] +
           ((now().step & 1) != 0 ? p.input_count : 0);
  }
  /// Where, among this warp's blocks by when they fold, those start that do in this step, or end.
  __device__ __forceinline__ int turns_start(int after) const {
    const std::uint32_t* starts = this->template list<std::uint32_t>(p.folding_start);
    return static_cast<int>(starts[warp() * (a.period + 1) + now().phase + after] -
                            p.block_start[warp()]);
  }
  __device__ __forceinline__ static int unit_of(std::uint32_t input) {
    return static_cast<int>(input >> input_unit_shift & 0x7fU);
  }
  /// What lane `from` knows of its block of W0, but for its inputs' place in shared memory.
  __device__ __forceinline__ static ChipBlock block_of_lane(const ChipBlock& mine, int from) {
    const auto of_lane = [&](std::uint32_t v) { return __shfl_sync(every_lane, v, from); };
    const std::uint32_t both = of_lane(mine.cut | static_cast<std::uint32_t>(mine.back) << 16);
    return {0,
            of_lane(mine.what),
            in_memory,
            of_lane(mine.block),
            of_lane(mine.first),
            of_lane(mine.second),
            of_lane(mine.from),
            static_cast<std::uint16_t>(both),
            static_cast<std::uint16_t>(both >> 16)};
  }
  /// What a block of W1 has beside its tiles, and what that is multiplied by and with.
  struct Listed {
    typename Base::List list;
    typename Base::Inputs rows;
    float weights[Base::listed_places];
  };
  __device__ __forceinline__ Listed ask_listed(const ChipWideBlock& block) const {
    const auto u = unit_in(block.what);
    const auto phase = phase_in(block.what);
    Listed listed;
    listed.list = this->load_list(list_of(block.out));
    listed.rows = this->inputs(this->listed_of(u, phase));
    const float* weights = this->weights_of(u, phase);
#pragma unroll
    for (int i = 0; i < Base::listed_places; ++i) {
      listed.weights[i] = weights[this->table_place(this->place_of(i))];
    }
    return listed;
  }

  // -------------------------------------------------------------- finishers

  __device__ __forceinline__ int finisher() const { return warp() - S::multipliers; }
  /// Calls work(u) for the units that are this warp's.
  template <class Work>
  __device__ __forceinline__ void each_own_unit(Work work) const {
    this->each_unit(finisher(), S::finishers, work);
  }
  /// A launch of a warp that finishes units.
  __device__ __forceinline__ void finish_all() {
    gather(now().step);
    open_gate(gathered);
#pragma unroll 1
    for (;;) {
      begin_phase();
      begin_units();
      open_gate(factors_made);
      each_own_unit([&](int u) { this->list_last_representation(u); });
      pass_gate(gathered, now().frame);
      this->errors(thread - streaming, static_cast<int>(p.out_count), finishing);
      open_gate(errors_made);
      begin_phase();
      each_own_unit([&](int u) { this->listed_share(u); });
      begin_phase();
      each_own_unit([&](int u) {
        send_for_history(u, S::hidden);
        send_for_history(u, S::squeezed);
      });
      sync_warps(sums_made, all);
      each_own_unit([&](int u) { this->finish_unit(u); });
      const bool ends = last();
      if (!ends) {
        pass_gate(errors_made, now().frame);  // until nobody reads x(t)
        begin_phase();
        read_patches();
        begin_phase();
        gather(now().step + 1);
        open_gate(gathered);
      }
      begin_phase();
      each_own_unit([&](int u) {
        send_for_history(u, S::hidden);
        send_for_history(u, S::d0);
      });
      sync_warps(gradients_made, all);
      each_own_unit([&](int u) { this->finish_gradient(u); });
      __syncwarp();  // what a warp has put into device memory for itself
      pass_gate(folded, now().frame);
      next_step();
      if (ends) break;
    }
    each_own_unit([&](int u) {
      this->open_tables(u);
      this->list_last_representation(u);
    });
    open_gate(errors_made);
  }
  /// What of a unit's work needs nothing of the other units.
  __device__ __forceinline__ void begin_units() const {
    if (thread == streaming) {
      this->prepare(now((turn + 1) & 3));
      add_one_relaxed(a.begun + now().step % rounds);
    }
    each_own_unit([&](int u) {
      this->open_tables(u);
      if (lane() == 0) gains(u) = folds_of(u)[sums - 1] != 0 ? 1 : 0;
      this->write_factors(u, folds_of(u));
    });
  }
  /// Of what a unit had in the last steps `what`, if it is in device memory, to the second-level
  /// cache.
  __device__ __forceinline__ void send_for_history(int u, std::uint32_t what) const {
    if ((what == S::squeezed ? unit(u).squeezed : unit(u).past) != in_memory) return;
    const float* line = this->history_rows(what, u);
#pragma unroll 1
    for (int i = lane() * S::line_words; i < history * S::values; i += 32 * S::line_words)
      prefetch_line(line + i);
  }
  __device__ __forceinline__ void read_patches() const {
    each_own_unit([&](int u) {
      if (unit(u).patch != not_a_patch) this->read_patch(u, 1);
    });
  }
  /// x(t), but for the patches.
  __device__ __forceinline__ void gather(unsigned long long t) const {
    const unsigned int begun = this->ask_slowest(t);
    this->gather_values(t - 1, (t & 1) != 0, thread - streaming, finishing);
    begin_phase();
    if (lane() == 0) this->wait_for_slowest(t, begun);
    __syncwarp();
  }
};

}  // namespace pvm::inline v0::detail::chip
