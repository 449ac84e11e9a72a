// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Who does what, and when, where 16-bit weights stay on the chip. Each warp has one of three roles
/// for as long as a launch lasts:
///   multipliers  have the weights: W0 x(t), then d1(t) = g(y(t-2)) e, W1^T d1(t) and y(t), the
///                latter for blocks of W1 of their own;
///   finishers    make h(t) of a unit, which is sent at once, its inner products, the next patch,
///                and d0(t); those without a unit gather x(t) and weigh the listed gradients, and
///                all do where that would be one;
///   folders      write the factors of folds and fold the blocks whose turn it is, while or after
///                multipliers use them.
/// So what is waited for by other multiprocessors, from x(t) to h(t), does not wait for folds,
/// which have until the next step begins. Multipliers take registers from the others for their
/// weights; where there is no `setmaxnreg` (anything but code for sm_90a) some of these spill.
/// What each role does is in the files that are named below.

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
  using Pixels = typename Base::Pixels;
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::begin_phase, Base::warp,
      Base::lane, Base::area, Base::now, Base::launch, Base::unit, Base::unit_count, Base::folds_of,
      Base::my_blocks, Base::my_count, Base::list_of, Base::weights_of, Base::table_place,
      Base::activate, Base::pixels_at_once, Base::gate, Base::open_gate, Base::pass_gate,
      Base::first, Base::last, Base::each_unit, Base::next_step;
  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return Base::template list<T>(at);
  }

  // -------------------------------------------------------------- what all roles share

  static constexpr int multiplying = S::multipliers * 32, finishing = S::finishers * 32,
                       folding = S::folders * 32;  // threads
  __device__ __forceinline__ int finisher() const { return warp() - S::multipliers; }
  __device__ __forceinline__ int folder() const { return finisher() - S::finishers; }

  /// What multipliers wait for in a step. Those who wait at a gate do not wait for each other, so
  /// that one who has less of one thing may have more of another.
  enum Gates : int {
    gathered,     ///< x(t), by finishers
    hidden_made,  ///< h(t), tables, and d0(t-1), by finishers with units
    w0_folded,    ///< folds of W0 of the step before, by folders
    w1_folded,    ///< and of W1
    gates
  };
  static_assert(gates <= Base::most_gates);
  /// One thread's work, once a launch.
  __device__ __forceinline__ void close_gates() const {
    barrier_init(gate(gathered), S::finishers);
    barrier_init(gate(hidden_made), static_cast<unsigned>(with_units()));
    barrier_init(gate(w0_folded), S::folders);
    barrier_init(gate(w1_folded), S::folders);
  }

  /// The other barriers of a step, by who waits and for what.
  enum Barriers : int {
    sums_made = 1,   ///< finishers for W0 x(t) and what listed gradients add
    gradients_made,  ///< finishers for W1^T d1(t)
    x_left,          ///< finishers until nobody reads x(t) any more
    factors_made,    ///< finishers until nobody reads the tables of the step before
    unit_ready,      ///< folders for tables and d0(t-1)
    unit_listed,     ///< and finishers without units, which have a barrier of their own so that all
                     ///< who wait at one do so at one place (synccheck wants that)
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
    const ChipBlock* blocks = my_blocks();
    const int count = my_count();
    constexpr int at_once = 3;  // because a launch begins with many trips to memory
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

  // -------------------------------------------------------------- multipliers.cuh

  /// A launch of a warp that multiplies.
  __device__ void multiply_all();
  /// This warp's blocks are one behind the other in device memory.
  static constexpr int tile_words = S::block_words / 4;
  __device__ __forceinline__ const uint4* held_tiles() const {
    return this->streamed(my_blocks()->block + p.streamed_to[warp()]);
  }
  /// The held blocks that were folded in the step before, from where they were folded to.
  __device__ void load_folded(Mine& held) const;
  /// The way through a warp's blocks: what the next one is multiplied by is on its way while one is
  /// multiplied.
  struct Walk {
    const std::uint32_t *inputs, *rest;
    typename Base::Inputs next;  ///< inputs of the next block
    uint2 beside;                ///< its rows beside the tiles
    std::uint32_t after;         ///< where the inputs of the one behind it are
    typename Base::Sums sum;
  };
  /// What needs no x(t), then the first block's inputs.
  __device__ Walk begin_walk() const;
  __device__ void ask_inputs(Walk& on) const;
  /// Calls multiply(x) with the inputs of the current block, whose rows beside the tiles are
  /// multiplied behind it; the next one's are loaded before.
  template <class Multiply>
  __device__ void walk(Walk& on, Multiply&& multiply) const;
  /// What this warp's blocks have of W0 x, unit by unit. `coming` are the first, which are
  /// streamed; the last of those take their place, and come while others are multiplied.
  __device__ void forward(const Mine& held, Coming& coming, Walk& on) const;
  /// Of a unit's blocks those that are held, then those in shared memory.
  __device__ void multiply_on_chip(const Mine& held, Walk& on, const uint4*& from,
                                   std::uint32_t there) const;
  /// d1(t) of this warp's blocks of W1, which are numbered like their outputs.
  __device__ void errors() const;
  /// What this warp's blocks have of W1^T d1 and of d1(j).d1, the latter with its coefficients, and
  /// their y(t). The blocks' tiles, lists and outputs lie one behind the other.
  __device__ void learn() const;

  // -------------------------------------------------------------- finishers.cuh

  /// Of the finishers, how many have units; the others gather.
  __device__ __forceinline__ int with_units() const { return min(unit_count(), S::finishers - 1); }
  __device__ __forceinline__ int with_units_threads() const { return with_units() * 32; }
  template <class Work>
  __device__ __forceinline__ void each_own_unit(Work work) const {
    each_unit(finisher(), with_units(), work);
  }
  /// Those without units gather, and, where that is one warp only, all do.
  __device__ __forceinline__ int first_gatherer() const {
    return with_units() + 1 < S::finishers ? with_units() : 0;
  }
  __device__ __forceinline__ bool gathers() const { return finisher() >= first_gatherer(); }
  /// A launch of a warp that finishes units or gathers. x(t) is gathered as soon as nobody reads
  /// x(t-1).
  __device__ void finish_all();
  /// Of the units whose listed gradients this warp weighs: where some only gather, those do that,
  /// too, because they have been waiting for what it takes.
  template <class Work>
  __device__ __forceinline__ void each_listed_unit(Work work) const {
    const int before = first_gatherer(), end = before == 0 ? with_units() : S::finishers;
    if (finisher() < before || finisher() >= end) return;
    each_unit(finisher() - before, end - before, work);
  }
  /// This step's tables.
  __device__ void begin_units() const;
  /// From the sums to h(t) and its inner products.
  __device__ void finish_units() const;
  /// The first of this warp's units from u on that sees a patch; -1: none.
  __device__ __forceinline__ int patch_from(int u) const {
    for (; u < unit_count(); u += with_units()) {
      if (unit(u).patch != not_a_patch) return u;
    }
    return -1;
  }
  /// The next frame's patches. The first pixels have been asked for, in the step before, and those
  /// of the frame behind it are asked for.
  __device__ void read_patches(Pixels& pixels) const;
  /// d0(t).
  __device__ void finish_gradients() const;
  /// x(t), but for the patches.
  __device__ void gather(unsigned long long t) const;

  // -------------------------------------------------------------- folders.cuh

  /// A launch of a warp that folds.
  __device__ void fold_all();
  /// The smaller halves of what this warp folds in this step, `from` to `to` among those that fold,
  /// to the second-level cache: a block a lane.
  __device__ void send_for_masters(std::uint32_t from, std::uint32_t to) const;
  /// The rows beside the tiles of block i of those that fold: where they are multiplied from, and
  /// where the i-th that a warp folds early keeps them.
  __device__ __forceinline__ std::uint32_t* rest_of_any(std::uint32_t i) const {
    return shared + p.rest_first[0] + list<std::uint32_t>(p.folding)[i] * S::rest_words;
  }
  __device__ __forceinline__ std::uint32_t* kept_rest(std::uint32_t i) const {
    return shared + a.areas.scratch + static_cast<std::uint32_t>(folder()) * S::scratch_words +
           i * S::rest_words;
  }
  /// Blocks of W0 among those that fold: from `early` on while others multiply them, but for the
  /// rows beside their tiles, from `others` on when nobody reads W0.
  __device__ void fold_blocks(std::uint32_t early, std::uint32_t others, std::uint32_t wide) const;
  /// And those of W1.
  __device__ void fold_wide_blocks(std::uint32_t wide, std::uint32_t end) const;
};

}  // namespace pvm::inline v0::detail::chip
