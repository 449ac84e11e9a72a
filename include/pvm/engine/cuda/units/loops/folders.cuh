// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The folders of the specialised step (specialised.cuh has the roles and barriers): they fold the
/// blocks that are due, while and after the multipliers use them.
///
/// A fold reads and writes a block where multipliers read it, so in general it waits until they no
/// longer read the matrix (W0 or W1). Held blocks of W0 are the exception: multipliers use the
/// copies in their registers, so folders may overwrite the tiles in device memory at once, and the
/// multipliers reload these blocks in the next step. Only the remainder rows of a held block are
/// read from shared memory; the new ones are kept in scratch memory until no multiplier reads W0.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/loops/specialised.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// The step loop of a folder, for one launch.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::fold_all() {
  release_registers<S::folder_registers>();
  named_barrier_sync(held_loaded, multiplying + folding);
#pragma unroll 1
  for (;;) {
    reread_thread();
    // Indices in `folding`: from start[0] on, the held blocks of W0 that fold early; from start[1]
    // on, the other blocks of W0; from start[2] on, the blocks of W1; start[3] is the end.
    const std::uint32_t* start =
        list<std::uint32_t>(p.folding_start) + 3 * (folder() * S::period + now().phase);
    this->mark(Part::reload);
    prefetch_due_low_halves(start[0], start[3]);
    this->mark(Part::wait_tables);
    named_barrier_sync(begun_for_folders, with_units_threads() + folding);
    this->mark(Part::factors);
    // Item k: the factors for unit k / 2, for W0 where k is even, for W1 where it is odd.
#pragma unroll 1
    for (int k = folder(); k < 2 * unit_count(); k += S::folders) {
      this->write_factors(k / 2, k % 2 != 0, fold_coefficients(k / 2, k % 2 != 0));
    }
    if (!last()) named_barrier_arrive(tables_free, with_units_threads() + folding);
    named_barrier_sync(factors_written, folding);
    fold_blocks(start[0], start[1], start[2]);
    reread_thread();
    if (!last()) arrive_gate(w0_folded);
    this->mark(Part::wait_w1_free);
    named_barrier_sync(w1_free, multiplying + folding);
    this->mark(Part::fold_w1);
    fold_w1_blocks(start[2], start[3]);
    if (last()) break;
    arrive_gate(w1_folded);
    next_step();
  }
}

/// Prefetches to the L2 cache the low halves of the blocks that this warp folds in this step,
/// entries `from` to `to` (exclusive) of `folding`. Each lane prefetches whole blocks.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::prefetch_due_low_halves(
    std::uint32_t from, std::uint32_t to) const {
#pragma unroll 1
  for (std::uint32_t i = from + static_cast<unsigned>(lane()); i < to; i += 32) {
    const std::uint32_t k = list<std::uint32_t>(p.folding)[i];
    const std::size_t start = (k & of_w1) != 0
                                  ? this->low_start_of(list<W1Block>(p.w1_blocks)[k & ~of_w1])
                                  : this->low_start_of(list<W0Block>(p.blocks)[k]);
    prefetch_bulk(this->low_halves_of(a.weights, start), S::unpacked_words * 4);
  }
}

/// Folds blocks of W0, by their entries in `folding`. [early, others) are held in registers and
/// fold while multipliers use them: their new tiles go to device memory, their new remainder rows
/// to scratch memory. [others, w1) fold when no multiplier reads W0 any more.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::fold_blocks(
    std::uint32_t early, std::uint32_t others, std::uint32_t w1) const {
  this->mark(Part::fold_held);
#pragma unroll 1
  for (std::uint32_t i = early;; ++i) {
    reread_thread();
    if (i == others) {
      this->mark(Part::wait_w0_free);
      named_barrier_sync(w0_free, multiplying + folding);
      this->mark(Part::fold_w0);
      // Publishes the remainder rows of the blocks that were folded early.
#pragma unroll 1
      for (std::uint32_t k = early; k < others; ++k) {
        if (lane() < S::remainder_words) {
          remainder_of_entry(k)[lane()] = scratch_remainder(k - early)[lane()];
        }
      }
    }
    if (i == w1) break;
    const W0Block block = list<W0Block>(p.blocks)[list<std::uint32_t>(p.folding)[i]];
    this->fold(block, remainder_of_entry(i),
               i < others ? scratch_remainder(i - early) : remainder_of_entry(i));
  }
}

/// Folds the blocks of W1 that entries [w1, end) of `folding` name.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::fold_w1_blocks(
    std::uint32_t w1, std::uint32_t end) const {
#pragma unroll 1
  for (std::uint32_t i = w1; i < end; ++i) {
    reread_thread();
    const std::uint32_t k = list<std::uint32_t>(p.folding)[i] & ~of_w1;
    this->fold_w1(list<W1Block>(p.w1_blocks)[k]);
  }
}

}  // namespace pvm::inline v0::detail::units
