// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The folders of the specialised step (specialised.cuh has the roles and barriers): they fold the
/// blocks that are due, while and after the multipliers use them.
///
/// A fold reads and writes a block where multipliers read it, so in general it waits until they are
/// done with the matrix. Held blocks of W0 are the exception: multipliers use the copies in their
/// registers, so folders may overwrite the tiles in device memory at once, and the multipliers
/// reload these blocks in the next step. Only the remainder rows of a held block are read from
/// shared memory; the new ones are kept in scratch memory until no multiplier reads W0.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/chip/specialised.cuh>
#include <pvm/engine/cuda/instructions.cuh>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::fold_all() {
  sync_warps(held_loaded, multiplying + folding);
#pragma unroll 1
  for (;;) {
    begin_phase();
    // Entries of `folding`: [0] held blocks of W0, [1] other blocks of W0, [2] blocks of W1,
    // [3] the end.
    const std::uint32_t* start =
        list<std::uint32_t>(p.folding_start) + 3 * (folder() * a.period + now().phase);
    send_for_masters(start[0], start[3]);
    sync_warps(unit_ready, with_units_threads() + folding);
    // Item k: the factors for unit k / 2, for W0 where k is even, for W1 where it is odd.
#pragma unroll 1
    for (int k = folder(); k < 2 * unit_count(); k += S::folders) {
      this->write_factors(k / 2, k % 2 != 0, folds_of(k / 2));
    }
    if (!last()) arrive_warps(factors_made, with_units_threads() + folding);
    sync_warps(factors_written, folding);
    fold_blocks(start[0], start[1], start[2]);
    begin_phase();
    if (!last()) open_gate(w0_folded);
    sync_warps(w1_left, multiplying + folding);
    fold_wide_blocks(start[2], start[3]);
    if (last()) break;
    open_gate(w1_folded);
    next_step();
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::send_for_masters(
    std::uint32_t from, std::uint32_t to) const {
#pragma unroll 1
  for (std::uint32_t i = from + static_cast<unsigned>(lane()); i < to; i += 32) {
    const std::uint32_t k = list<std::uint32_t>(p.folding)[i];
    const std::size_t start =
        (k & wide_fold) != 0 ? this->start_of(list<ChipWideBlock>(p.wide_blocks)[k & ~wide_fold])
                             : this->start_of(list<ChipBlock>(p.blocks)[k]);
    prefetch_bulk(this->masters_of(a.weights, start), S::block_words * 4);
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::fold_blocks(
    std::uint32_t early, std::uint32_t others, std::uint32_t wide) const {
#pragma unroll 1
  for (std::uint32_t i = early;; ++i) {
    begin_phase();
    if (i == others) {
      sync_warps(w0_left, multiplying + folding);
      // Publishes the remainder rows of the blocks that were folded early.
#pragma unroll 1
      for (std::uint32_t k = early; k < others; ++k) {
        if (lane() < S::rest_words) rest_of_any(k)[lane()] = kept_rest(k - early)[lane()];
      }
    }
    if (i == wide) break;
    const ChipBlock block = list<ChipBlock>(p.blocks)[list<std::uint32_t>(p.folding)[i]];
    this->fold(block, rest_of_any(i), i < others ? kept_rest(i - early) : rest_of_any(i));
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::fold_wide_blocks(
    std::uint32_t wide, std::uint32_t end) const {
#pragma unroll 1
  for (std::uint32_t i = wide; i < end; ++i) {
    begin_phase();
    const std::uint32_t k = list<std::uint32_t>(p.folding)[i] & ~wide_fold;
    this->fold_wide(list<ChipWideBlock>(p.wide_blocks)[k]);
  }
}

}  // namespace pvm::inline v0::detail::chip
