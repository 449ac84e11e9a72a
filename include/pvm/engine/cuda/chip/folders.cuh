// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Warps that fold, where warps have roles, while and after others multiply.

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

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::send_for_masters() const {
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

template <class Precision, int Hidden>
template <class RestTo>
__device__ __forceinline__ void Specialised<Precision, Hidden>::fold_blocks(std::uint32_t from,
                                                                            std::uint32_t to,
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

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::fold_wide_blocks() const {
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

}  // namespace pvm::inline v0::detail::chip
