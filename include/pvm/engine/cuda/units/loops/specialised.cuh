// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The step loop for 16-bit weights that stay on the chip: warp roles and their synchronisation.
/// One thread block runs on each streaming multiprocessor (SM). Each of its warps keeps one of
/// three roles for the whole launch:
///   multipliers  (8 warps, multipliers.cuh) own the weights. In step t each makes its part of
///                W0 x(t), then d1(t) = g(y(t-2)) e, W1^T d1(t) and y(t) for its own blocks of W1.
///   finishers    (4 warps, finishers.cuh) either have units or gather. With units, a finisher sums
///                up the multipliers' parts, makes and sends h(t) and its inner products, reads the
///                next patches and makes d0(t). Without, it gathers x(t+1) from the records that
///                other thread blocks send, and weighs the listed gradients. If only one finisher
///                has no unit, all finishers gather, and those with units weigh the listed
///                gradients of their own units.
///   folders      (4 warps, folders.cuh) write the factors of folds and fold the blocks that are
///                due, while or after the multipliers use these blocks. A block is due once in
///                every `period` steps, when the step number modulo `period` is its phase.
///
/// The critical path between thread blocks, from x(t) to h(t), therefore never waits for a fold of
/// the same step: a fold may take until the next step needs the block.
///
/// Order within step t for each role; rows of different columns are not simultaneous. [g] marks a
/// wait at a gate (an mbarrier that multipliers wait at), [b] one at a named barrier:
///   multipliers                    finishers                         folders
///   wait w0_folded(t-1) [g]        wait tables_free(t-1) [b] (1)     prefetch low halves
///   reload held blocks that folded load coefficients (1)             wait begun_for_folders [b]
///   load early streamed blocks     arrive begun_for_* (1)            write factors
///   wait gathered(t) [g]           wait begun_for_gatherers [b] (2)  arrive tables_free
///   W0 x(t)                        weigh listed gradients            wait factors_written [b]
///   arrive sums_made, w0_free      wait sums_made [b] (1)            fold held blocks of W0
///   wait w1_folded(t-1) [g]        h(t), inner products: send (1)    wait w0_free [b]
///   d1(t)                          arrive hidden_made (1)            fold other blocks of W0
///   arrive x_free                  wait x_free [b]                   arrive w0_folded
///   wait hidden_made [g]           read patches (1)                  wait w1_free [b]
///   W1^T d1(t), y(t)               gather x(t+1)                     fold blocks of W1
///   arrive gradients_made, w1_free arrive gathered(t+1)              arrive w1_folded
///                                  wait gradients_made [b]; d0(t) (1)
/// (1) Only finishers with units. (2) Only finishers without units; these arrive at sums_made
/// without waiting there. The first and the last step of a launch leave out what concerns a step
/// outside the launch.
///
/// Multipliers take registers from the other roles (`setmaxnreg`) to hold blocks of W0. Where
/// `setmaxnreg` is missing (anything but code for sm_90a) they spill some of these registers.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/step/thread_block.cuh>

namespace pvm::inline v0::detail::units {

template <class Precision, int Hidden, Home home, class Own>
struct Specialised : ThreadBlock<Precision, Hidden, home, Own> {
  using Base = ThreadBlock<Precision, Hidden, home, Own>;
  using S = typename Base::S;
  using Weights = typename Base::Weights;
  using HeldBlocks = Weights[S::held_blocks];
  using InFlight = Weights[S::blocks_in_flight];
  struct Held {};  ///< empty: multipliers load their held blocks themselves, in multiply_all()
  using Pixels = typename Base::Pixels;
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::reread_thread, Base::warp,
      Base::lane, Base::area, Base::now, Base::launch, Base::unit, Base::unit_count,
      Base::fold_coefficients, Base::my_blocks, Base::my_count, Base::list_of,
      Base::w1_coefficients_of, Base::table_index, Base::activate, Base::pixels_at_once, Base::gate,
      Base::arrive_gate, Base::wait_gate, Base::first, Base::last, Base::each_unit, Base::next_step;
  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return Base::template list<T>(at);
  }

  // -------------------------------------------------------------- the roles of the warps

  /// Runs the steps of a launch. Each of the three functions is the whole step loop of a role.
  __device__ __forceinline__ void run(Held& /*held*/) {
    if (warp() < S::multipliers) {
      multiply_all();  // W0 x(t), d1(t), W1^T d1(t), y(t): multipliers.cuh
    } else if (finisher() < S::finishers) {
      finish_all();  // x(t), h(t), d0(t): finishers.cuh
    } else {
      fold_all();  // the weights that are due: folders.cuh
    }
    __syncthreads();
  }

  // -------------------------------------------------------------- what all roles share

  static constexpr int multiplying = S::multipliers * 32, finishing = S::finishers * 32,
                       folding = S::folders * 32;  // threads
  __device__ __forceinline__ int finisher() const { return warp() - S::multipliers; }
  __device__ __forceinline__ int folder() const { return finisher() - S::finishers; }

  /// The gates (mbarriers) that multipliers wait at. A warp that waits at a gate waits for those
  /// who arrive only, not for the other multipliers as at a named barrier. So a multiplier with
  /// fewer blocks of one matrix can have more of the other.
  enum Gates : int {
    gathered,  ///< from all finishers: x(t) is complete
    /// From finishers with units: h(t) and this step's tables are there. d0(t-1) has been made,
    /// too, so the parts of W1^T d1(t-1) can be overwritten.
    hidden_made,
    w0_folded,  ///< from folders: the folds of W0 of step t-1 are done
    w1_folded,  ///< from folders: the folds of W1 of step t-1 are done
    gates
  };
  static_assert(gates <= Base::most_gates);
  /// One thread's work, once a launch.
  __device__ __forceinline__ void init_gates() const {
    mbarrier_init(gate(gathered), S::finishers);
    mbarrier_init(gate(hidden_made), static_cast<unsigned>(with_units()));
    mbarrier_init(gate(w0_folded), S::folders);
    mbarrier_init(gate(w1_folded), S::folders);
  }

  /// The named barriers of a step (0 is __syncthreads): which role waits, and for what. The other
  /// role arrives without waiting.
  enum Barriers : int {
    sums_made = 1,      ///< finishers with units wait for W0 x(t) and the listed gradients' part
    gradients_made,     ///< finishers with units wait for W1^T d1(t)
    x_free,             ///< finishers wait until no multiplier reads x(t) any more
    tables_free,        ///< finishers with units wait until folders have read step t-1's tables
    begun_for_folders,  ///< folders wait for this step's tables and d0(t-1)
    /// Finishers without units wait for the same. This is a barrier of its own so that all warps
    /// that wait at a barrier wait in the same instruction, as compute-sanitizer's synccheck wants.
    begun_for_gatherers,
    factors_written,  ///< folders wait for each other's factors
    w0_free,          ///< folders wait until no multiplier reads W0
    w1_free,          ///< folders wait until no multiplier reads W1
    held_loaded,      ///< once a launch: folders wait until held blocks of W0 are in registers
  };

  /// Calls work(block) for this warp's blocks of W0 in shared memory.
  template <class Work>
  __device__ __forceinline__ void each_shared(Work work) const {
    const W0Block* blocks = my_blocks();
    const int count = my_count();
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      if (blocks[k].where == in_memory) continue;
      work(blocks[k]);
    }
  }
  /// Loads this warp's blocks of weights that lie in shared memory: tiles of W0 and W1, W0's
  /// remainder rows and W1's lists. All warps call it; only multipliers have blocks.
  __device__ __forceinline__ void load_weights(Held& /*held*/) const {
    reread_thread();
    const W0Block* blocks = my_blocks();
    const int count = my_count();
    constexpr int at_once = 3;  // blocks in flight: hides the latency of device memory
#pragma unroll 1
    for (int first = 0; first < count; first += at_once) {
      Weights w[at_once] = {};
      const auto is_shared = [&](int i) {
        return first + i < count && blocks[first + i].where != in_memory;
      };
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (is_shared(i)) this->load_streamed(w[i], this->streamed(blocks[first + i]));
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (is_shared(i)) this->store(blocks[first + i], w[i]);
      }
    }
    if (count > 0) this->load_remainders();
    this->load_w1_weights();
  }
  /// At the end of a launch: stores the tiles that lie in shared memory. Device memory has the rest
  /// already: folds store remainder rows, low halves and the tiles of all other blocks there.
  __device__ __forceinline__ void store_weights(const Held& /*held*/) const {
    each_shared([&](const W0Block& block) {
      Weights w;
      this->load_shared(w, this->in_shared(block.where));
      this->write_tiles(this->streamed(block), w);
    });
    const auto* w1 = list<W1Block>(p.w1_blocks);
#pragma unroll 1
    for (std::uint32_t k = p.w1_start[warp()]; k < p.w1_start[warp() + 1]; ++k) {
      Weights w;
      this->load_w1(w, shared + w1[k].where);
      this->write_tiles(this->streamed(w1[k]), w);
    }
  }

  // -------------------------------------------------------------- multipliers.cuh

  __device__ void multiply_all();
  /// The size of a block's tiles in words of 16 bytes. It is also the stride between consecutive
  /// blocks of W0 of a warp, in device memory and in shared memory.
  static constexpr int tile_words = S::block_words / 4;
  /// This lane's first word of this warp's first held block in device memory.
  __device__ __forceinline__ const uint4* held_tiles() const {
    return this->streamed(my_blocks()->block + p.streamed_to[warp()]);
  }
  __device__ void reload_folded(HeldBlocks& held) const;
  /// The position in a multiplier's pass over its blocks of W0. The inputs of the next block are
  /// prefetched into registers while the current block is multiplied.
  struct W0Pass {
    /// `inputs`: the next entry to read of the list of blocks' first inputs (Program::inputs);
    /// `remainder_at`: the next block's remainder rows in shared memory.
    const std::uint32_t *inputs, *remainder_at;
    typename Base::Inputs next;  ///< this lane's inputs of the next block
    uint2 remainder;             ///< this lane's words of the next block's remainder rows
    std::uint32_t after;         ///< word in shared memory of the inputs of the block after next
    typename Base::Sums sum;     ///< accumulators of the current unit's part of W0 x
  };
  __device__ W0Pass begin_w0_pass() const;
  __device__ void load_next_inputs(W0Pass& on) const;
  template <class Multiply>
  __device__ void advance(W0Pass& on, Multiply&& multiply) const;
  __device__ void forward(const HeldBlocks& held, InFlight& in_flight, W0Pass& on) const;
  __device__ void multiply_on_chip(const HeldBlocks& held, W0Pass& on, const uint4*& from,
                                   std::uint32_t present) const;
  __device__ void errors() const;
  __device__ void learn() const;

  // -------------------------------------------------------------- finishers.cuh

  /// The number of finishers that have units: finisher f has units f, f + with_units() and so on.
  /// At least one finisher has none, and gathers.
  __device__ __forceinline__ int with_units() const { return min(unit_count(), S::finishers - 1); }
  __device__ __forceinline__ int with_units_threads() const { return with_units() * 32; }
  template <class Work>
  __device__ __forceinline__ void each_own_unit(Work work) const {
    each_unit(finisher(), with_units(), work);
  }
  /// The first finisher that gathers: the finishers without units do, or, where that is a single
  /// warp, all finishers.
  __device__ __forceinline__ int first_gatherer() const {
    return with_units() + 1 < S::finishers ? with_units() : 0;
  }
  __device__ __forceinline__ bool gathers() const { return finisher() >= first_gatherer(); }
  __device__ void finish_all();
  /// Calls work(u) for the units whose listed gradients this warp weighs. Where only the finishers
  /// without units gather, these weigh those of all units: the inner products needed for it arrive
  /// with the values that they have gathered. Otherwise each finisher with units weighs those of
  /// its own units.
  template <class Work>
  __device__ __forceinline__ void each_listed_unit(Work work) const {
    const int before = first_gatherer(), end = before == 0 ? with_units() : S::finishers;
    if (finisher() < before || finisher() >= end) return;
    each_unit(finisher() - before, end - before, work);
  }
  __device__ void begin_units() const;
  __device__ void finish_units() const;
  /// The first of this warp's units that sees a patch, from its unit u on; -1 if there is none.
  __device__ __forceinline__ int patch_from(int u) const {
    for (; u < unit_count(); u += with_units()) {
      if (unit(u).patch != not_a_patch) return u;
    }
    return -1;
  }
  __device__ void read_patches(Pixels& pixels) const;
  __device__ void finish_gradients() const;
  __device__ void gather(unsigned long long t) const;

  // -------------------------------------------------------------- folders.cuh

  // Below, `folding` is the program's list of the blocks to fold, by folder and phase.

  __device__ void fold_all();
  __device__ void prefetch_due_low_halves(std::uint32_t from, std::uint32_t to) const;
  /// The remainder rows of entry i of `folding`, a block of W0, where multipliers read them.
  __device__ __forceinline__ std::uint32_t* remainder_of_entry(std::uint32_t i) const {
    return shared + p.remainder_first[0] + list<std::uint32_t>(p.folding)[i] * S::remainder_words;
  }
  /// The scratch copy of the remainder rows of the i-th block that this warp folds early.
  __device__ __forceinline__ std::uint32_t* scratch_remainder(std::uint32_t i) const {
    return shared + a.areas.scratch + static_cast<std::uint32_t>(folder()) * S::scratch_words +
           i * S::remainder_words;
  }
  __device__ void fold_blocks(std::uint32_t early, std::uint32_t others, std::uint32_t w1) const;
  __device__ void fold_w1_blocks(std::uint32_t w1, std::uint32_t end) const;
};

}  // namespace pvm::inline v0::detail::units
