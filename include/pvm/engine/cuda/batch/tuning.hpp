// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tuning parameters of the batched engine. (Those of a sweep's plan are in sweep_tuning.hpp.)

#include <algorithm>
#include <cstddef>

#include <pvm/engine/cuda/batch/persistence.cuh>
#include <pvm/engine/cuda/batch/plan/tables.hpp>

namespace pvm::inline v0::detail::batch {

struct Tuning {
  static constexpr int graph_steps = 16;      ///< steps in the longer of the two captured graphs
  static constexpr int staged_frames = 8192;  ///< frames in a block, of all sequences together
  static constexpr int staging_slots = 2;     ///< staging slots for blocks of frames
  /// A listed gradient costs loading its rows again; a momentum array costs 8 bytes per weight.
  /// Listing pays while a row's bytes, times the gradients beyond the first, are at most this many.
  static constexpr int most_listed_bytes = 256;

  /// Most steps in a block of frames.
  static int block_steps(int padded) {
    return std::clamp(staged_frames / padded, 8, most_block_steps);
  }
  /// Most rows in a part of a forward product: the rows of all units divided by the number of SMs,
  /// rounded up to whole pipeline stages of any slice.
  static int part_rows(std::size_t rows, int multiprocessors) {
    const auto even = static_cast<int>(rows / static_cast<std::size_t>(multiprocessors));
    return std::clamp((even + 63) / 64 * 64, 256, most_part_rows);
  }
};

}  // namespace pvm::inline v0::detail::batch
