// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The step loop where all 16-bit weights stream from device memory: a pipeline of two warp roles.
/// Two thread blocks share a streaming multiprocessor (SM). Each warp keeps its role for the whole
/// launch:
///   streamers  (8 warps, streamers.cuh) pass over their blocks of W0 for W0 x(t), and fold those
///              that are due; then over their blocks of W1 for W1^T d1(t) and y(t-1), and fold
///              those that are due.
///   finishers  (4 warps, this file) do everything else for their units: x(t), d1(t), h(t), the
///              next patch, d0(t), and the factors of folds.
///
/// Weights stream while units are finished: W1 while h(t) is made, sent and gathered to x(t+1); W0
/// while d0(t-1), d1(t) and the listed gradients' part of W0 x(t) are made. For this, outputs are
/// made a step late, y(t-1) in the pass over W1 of step t: for y(t) that pass would have to wait
/// for h(t). A launch ends with one more pass over W1, for the outputs of its last step.
///
/// Order within step t for each role; rows of different columns are not simultaneous. [g] marks a
/// wait at a gate (an mbarrier), [b] one at a named barrier:
///   streamers                           finishers
///   load the first block of W0          load tables, write factors of folds
///   prefetch the second one             arrive factors_made
///   wait gathered(t) [g]                operands of y(t-1): h(t-1) and the factors of W1's lists
///   W0 x(t); arrive sums_made           wait gathered(t) [g]; d1(t); arrive errors_made
///   wait factors_made [g]               weigh listed gradients
///   fold W0                             wait sums_made [b]; h(t): send
///   load the first block of W1          wait errors_made [g]; read patches, gather x(t+1)
///   wait errors_made [g]                arrive gathered(t+1)
///   W1^T d1(t), y(t-1)                  wait values_made [b]; inner products of h(t): send
///   arrive gradients_made               wait gradients_made [b]; d0(t)
///   fold W1; arrive folded              wait folded [g]

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/step/thread_block.cuh>

namespace pvm::inline v0::detail::units {

template <class Precision, int Hidden, Home home, class Own>
struct Pipelined : ThreadBlock<Precision, Hidden, home, Own> {
  using Base = ThreadBlock<Precision, Hidden, home, Own>;
  using S = typename Base::S;
  using Weights = typename Base::Weights;
  struct Held {};  // empty: no weights stay in registers between steps
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::reread_thread, Base::warp,
      Base::lane, Base::area, Base::float_area, Base::now, Base::launch, Base::unit, Base::any_gain,
      Base::fold_coefficients, Base::my_blocks, Base::my_count, Base::my_w1_blocks,
      Base::my_w1_count, Base::words_of, Base::list_of, Base::gate, Base::arrive_gate,
      Base::wait_gate, Base::first, Base::last, Base::next_step;

  // -------------------------------------------------------------- the roles of the warps

  /// Runs the steps of a launch. Each of the two functions is the whole step loop of a role.
  __device__ __forceinline__ void run(Held& /*held*/) {
    if (warp() < S::multipliers) {
      stream_all();  // W0 x(t), W1^T d1(t), y(t-1), folds: streamers.cuh
    } else {
      finish_all();  // x(t), d1(t), h(t), d0(t): below
    }
    __syncthreads();
  }

  // -------------------------------------------------------------- what both roles share

  static constexpr int streaming = S::multipliers * 32, finishing = S::finishers * 32;  // threads
  static constexpr int all = streaming + finishing;
  /// How many blocks ahead of the one being multiplied a block is prefetched to the L2 cache. The
  /// block in between is being loaded into registers.
  static constexpr int ahead_by = 1 + S::prefetched_blocks;

  /// The gates (mbarriers) of a step. A warp that waits at a gate waits for those who arrive only,
  /// not for other warps that wait there.
  enum Gates : int {
    gathered,      ///< from finishers: x(t) is complete
    factors_made,  ///< from finishers: tables and factors of folds are there
    /// From finishers: d1(t) and the operands of y(t-1) are there, which streamers wait for, and
    /// no finisher reads x(t) any more, which the other finishers wait for.
    errors_made,
    folded,  ///< from streamers: the step's folds are done
    gates
  };
  static_assert(gates <= Base::most_gates);
  /// One thread's work, once a launch.
  __device__ __forceinline__ void init_gates() const {
    mbarrier_init(gate(gathered), S::finishers);
    mbarrier_init(gate(factors_made), S::finishers);
    mbarrier_init(gate(errors_made), S::finishers);
    mbarrier_init(gate(folded), S::multipliers);
  }
  /// Finishers wait for the streamers' passes at named barriers, where they sleep. These waits are
  /// long, and at a gate a warp may poll (before compute capability 9.0 it always does), which
  /// takes issue slots from the streamers.
  enum Barriers : int {
    sums_made = 1,   ///< streamers have made W0 x(t)
    gradients_made,  ///< streamers have made W1^T d1(t) and y(t-1)
    values_made,     ///< finishers have made h(t); only they wait here
  };

  /// Fills W1's lists, which lie in device memory here, from the stored remainder rows and d1.
  __device__ __forceinline__ void load_weights(Held& /*held*/) const { this->load_w1_weights(); }

  // -------------------------------------------------------------- streamers.cuh

  __device__ void stream_all();
  __device__ void load_first(Weights& next) const;
  __device__ void load_first_w1(Weights& next) const;
  __device__ void prefetch_block(bool is, std::uint32_t slot) const;
  __device__ void prefetch_w1(const W1Block& block) const;
  __device__ void forward(Weights& next) const;
  /// The matrix that blocks described as W0Block are of.
  enum class Of { w0, wc };
  template <Of of>
  __device__ W0Block load_due(int from) const;
  template <Of of>
  __device__ void fold_blocks(W0Block mine) const;
  __device__ void prefetch_blocks_of_lanes(const W0Block& mine, unsigned lanes) const;
  template <Of of>
  __device__ void fold_due(const W0Block& mine, int count) const;
  __device__ void learn(Weights& next, bool outputs) const;
  __device__ void fold_w1_blocks() const;

  /// Of a block of W0, by the `slot` of its W0Input: the first line of its slot.
  __device__ __forceinline__ static std::uint32_t line_of(std::uint32_t slot) {
    return slot & (input_lines - 1);
  }
  /// This lane's first word of its tiles.
  __device__ __forceinline__ const typename Base::Word* tiles_of(std::uint32_t slot) const {
    const std::uint32_t* tiles = a.weights + this->slot_start(line_of(slot));
    return reinterpret_cast<const typename Base::Word*>(tiles) + lane();
  }
  /// This lane's words of its remainder rows.
  __device__ __forceinline__ uint2 remainder_of(std::uint32_t slot) const {
    return this->remainder_weights(a.weights + this->slot_remainder_start(line_of(slot)));
  }
  /// The local number of its unit.
  __device__ __forceinline__ static int unit_of(std::uint32_t slot) {
    return static_cast<int>(slot >> input_unit_shift & 0x7fU);
  }
  /// Where this warp's sums of a unit's W0 x go, or of a group of Wc; `slot`: of its last block.
  __device__ __forceinline__ float* sums_of(std::uint32_t slot) const {
    if constexpr (S::reads_context) {
      const std::uint32_t at = this->row_group(unit_of(slot)).sums;
      return reinterpret_cast<float*>(a.unit_areas) + at + warp() * S::values;
    }
    return float_area(unit_of(slot)) + S::part0 + warp() * S::values;
  }
  /// This warp's blocks of W0, in the order of the pass, and then those of Wc.
  __device__ __forceinline__ const W0Input* my_inputs() const {
    return this->template list<W0Input>(p.inputs) + p.block_start[warp()];
  }
  /// my_blocks() is sorted by phase. The index there of the first block that folds in this step
  /// (`after` = 0), or the end of these (`after` = 1).
  template <Of of>
  __device__ __forceinline__ int due_start(int after) const {
    const std::uint32_t* starts = this->template list<std::uint32_t>(p.folding_start);
    const int phase = of == Of::w0 ? now().phase : S::period + now().w1_phase;
    return static_cast<int>(starts[warp() * (S::phases + 1) + phase + after] -
                            p.block_start[warp()]);
  }
  /// The unit of a block.
  template <Of of>
  __device__ __forceinline__ int unit_of_block(const W0Block& block) const {
    const int number = unit_in(block.what);
    if constexpr (of == Of::wc) return static_cast<int>(this->row_group(number).unit);
    return number;
  }
  /// Broadcasts the block description of lane `from`, without what folds do not use.
  __device__ __forceinline__ static W0Block block_of_lane(const W0Block& mine, int from) {
    const auto of_lane = [&](std::uint32_t v) { return __shfl_sync(every_lane, v, from); };
    const std::uint32_t both = of_lane(mine.cut | static_cast<std::uint32_t>(mine.back) << 16);
    return {0,
            of_lane(mine.what),
            of_lane(mine.where),
            of_lane(mine.block),
            of_lane(mine.first),
            of_lane(mine.second),
            of_lane(mine.from),
            static_cast<std::uint16_t>(both),
            static_cast<std::uint16_t>(both >> 16)};
  }
  /// What the pass over W1 loads for a block beside its tiles: `list`, this lane's words of the
  /// block's list; `rows`, those of the factors that the list rows are multiplied by for y(t-1)
  /// (`write_last_list_factors`); and the coefficients of this lane's ListSums.
  struct Listed {
    typename Base::List list;
    typename Base::Inputs rows;
    float coefficients[Base::list_rows_per_lane];
  };
  __device__ __forceinline__ Listed load_listed(const W1Block& block) const {
    const auto u = unit_in(block.what);
    const auto phase = phase_in(block.what);
    Listed listed;
    listed.list = this->load_list(list_of(block));
    listed.rows = this->inputs(this->list_factors_of(u, phase));
    const float* coefficients = this->w1_coefficients_of(u, phase);
#pragma unroll
    for (int i = 0; i < Base::list_rows_per_lane; ++i) {
      listed.coefficients[i] = coefficients[this->table_index(this->list_row_of(i))];
    }
    return listed;
  }

  // -------------------------------------------------------------- finishers

  __device__ __forceinline__ int finisher() const { return warp() - S::multipliers; }
  /// Calls work(u) for this warp's units.
  template <class Work>
  __device__ __forceinline__ void each_own_unit(Work work) const {
    this->each_unit(finisher(), S::finishers, work);
  }
  /// The step loop of a finisher, for one launch.
  __device__ __forceinline__ void finish_all() {
    release_registers<S::finisher_registers>();
    gather(now().step);
    arrive_gate(gathered);
#pragma unroll 1
    for (;;) {
      reread_thread();
      this->mark(Part::tables);
      begin_units();
      arrive_gate(factors_made);
      each_own_unit([&](int u) { this->write_last_list_factors(u); });
      this->mark(Part::wait_inputs);
      wait_gate(gathered, now().frame);
      this->mark(Part::errors);
      this->errors(thread - streaming, static_cast<int>(p.out_count), finishing);
      arrive_gate(errors_made);
      reread_thread();
      this->mark(Part::listed);
      each_own_unit([&](int u) { this->make_listed_part(u); });
      reread_thread();
      each_own_unit([&](int u) {
        prefetch_history(u, S::hidden);
        prefetch_history(u, S::squeezed);
      });
      this->mark(Part::wait_sums);
      named_barrier_sync(sums_made, all);
      this->mark(Part::hidden);
      make_values();
      if constexpr (S::reads_context) make_context_outputs();
      const bool ends = last();
      if (!ends) {
        this->mark(Part::wait_errors);
        wait_gate(errors_made, now().frame);  // until all finishers have read x(t) for their errors
        reread_thread();
        this->mark(Part::patches);
        read_patches();
        reread_thread();
        this->mark(Part::gather);
        gather(now().step + 1);
        arrive_gate(gathered);
      }
      reread_thread();
      this->mark(Part::wait_hidden);
      named_barrier_sync(values_made, finishing);
      this->mark(Part::products);
      each_own_unit([&](int u) {
        const unsigned long long t = now().step;
        this->finish_products(u, t, this->past(t) + unit(u).unit * S::record);
      });
      each_own_unit([&](int u) {
        prefetch_history(u, S::hidden);
        prefetch_history(u, S::d0);
      });
      this->mark(Part::wait_gradients);
      named_barrier_sync(gradients_made, all);
      this->mark(Part::gradient);
      each_own_unit([&](int u) { this->finish_gradient(u); });
      __syncwarp();  // the lanes read in the next step what other lanes stored to device memory
      this->mark(Part::wait_w0_folds);
      wait_gate(folded, now().frame);
      next_step();
      if (ends) break;
    }
    // For the pass that makes the outputs of the launch's last step.
    each_own_unit([&](int u) {
      this->load_coefficients(u);
      this->write_last_list_factors(u);
    });
    arrive_gate(errors_made);
  }
  /// Prepares the next step's Now, counts that this step has begun, loads this step's tables of
  /// coefficients and writes the factors of folds. Depends on no other unit.
  __device__ __forceinline__ void begin_units() const {
    if (thread == streaming) {
      this->prepare(now((turn + 1) & 3));
      count_begun<S::shards>(a, now().step);
    }
    each_own_unit([&](int u) {
      this->load_coefficients(u);
      if (lane() == 0) this->note_gain(u);
      if (this->has_due_blocks(u)) this->write_factors(u, false, fold_coefficients(u, false));
      this->write_factors(u, true, fold_coefficients(u, true));
    });
  }
  /// Makes h(t) of all units and sends c(h(t)). Each thread makes pieces of three values, so that
  /// all finishers share the work and no value waits for more than one round trip to the L2 cache.
  __device__ __forceinline__ void make_values() const {
    const unsigned long long t = now().step;
    const bool survives = this->row_survives_launch(S::ring);
    float* const hidden = a.hidden + static_cast<std::size_t>(t & (S::ring - 1)) * a.hidden_row;
    const int pieces = this->unit_count() * S::value_pieces;
#pragma unroll 1
    for (int k = thread - streaming; k < pieces; k += finishing) {
      const int u = k / S::value_pieces, piece = k % S::value_pieces;
      const std::uint32_t number = unit(u).unit;
      float sum[3];
#pragma unroll
      for (int i = 0; i < 3; ++i) sum[i] = this->hidden_sum(u, min(3 * piece + i, Hidden - 1));
      std::uint32_t word[3] = {};
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        if (3 * piece + i < Hidden) {
          word[i] =
              this->keep_hidden(u, 3 * piece + i, sum[i], hidden + number * this->used(), survives);
        }
      }
      const auto tag = static_cast<std::uint32_t>(t + 1);
      send_piece<S::shards>(a, this->past(t) + number * S::record + 4 * piece,
                            make_uint4(word[0], word[1], word[2], tag));
    }
  }
  /// Makes what the context adds to y(t): the sums of Wc's groups over the warps. The oldest listed
  /// gradient of groups that fold in this step is added here, because its row of W1's lists is
  /// overwritten before the pass that makes y(t).
  __device__ __forceinline__ void make_context_outputs() const {
    const unsigned long long t = now().step;
    const int rows = (static_cast<int>(p.row_group_count) - this->unit_count()) * S::group_outputs;
    constexpr int oldest = S::w1_terms - 1;
    float* const to = this->context_outputs(t);
#pragma unroll 1
    for (int k = thread - streaming; k < rows; k += finishing) {
      const RowGroup group = this->row_group(this->unit_count() + k / S::group_outputs);
      const auto row = static_cast<unsigned>(k % S::group_outputs);
      if (row >= group.phase >> 8) continue;
      const float* sums = reinterpret_cast<const float*>(a.unit_areas) + group.sums + row;
      float sum = 0;
#pragma unroll
      for (int w = 0; w < S::multipliers; ++w) sum += sums[w * S::values];
      const std::uint32_t o = group.out + row;
      if ((group.phase & 0xffU) == static_cast<unsigned>(this->w1_phase())) {
        const float* of_unit = float_area(static_cast<int>(group.unit));
        const int index =
            this->list_index(this->list_row_of_age(oldest), static_cast<int>(o) % columns);
        sum += of_unit[S::w1_tables + oldest] * of_unit[S::context_products + oldest] *
               this->list_value(list_of(o), index);
      }
      to[o] = sum;
    }
  }
  /// Prefetches to the L2 cache the rows `what` (S::hidden, squeezed or d0) of a unit's last steps,
  /// if they are in device memory.
  __device__ __forceinline__ void prefetch_history(int u, std::uint32_t what) const {
    const bool squeezed = what == S::squeezed;
    if ((squeezed ? unit(u).squeezed : unit(u).history) != in_memory) return;
    const float* line = this->history_rows(what, u);
    const int words = (squeezed ? S::past_rows : S::history) * S::values;
#pragma unroll 1
    for (int i = lane() * line_words; i < words; i += 32 * line_words) prefetch_line(line + i);
  }
  __device__ __forceinline__ void read_patches() const {
    each_own_unit([&](int u) {
      if (unit(u).patch != not_a_patch) this->read_patch(u, 1);
    });
  }
  /// Gathers x(t) except for the patches. Then waits until step t may overwrite its row of the past
  /// (`wait_for_slowest`).
  __device__ __forceinline__ void gather(unsigned long long t) const {
    const unsigned int begun = this->load_slowest(t);
    this->gather_values(t - 1, (t & 1) != 0, thread - streaming, finishing);
    reread_thread();
    if (lane() == 0) this->wait_for_slowest(t, begun);
    __syncwarp();
  }
};

}  // namespace pvm::inline v0::detail::units
