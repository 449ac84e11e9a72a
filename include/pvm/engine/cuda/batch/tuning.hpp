// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The numbers to turn of batches: choices that depend on sizes. (Those of a sweep's plan are in
/// sweep_tuning.hpp.)

#include <algorithm>
#include <cstddef>

#include <pvm/engine/cuda/batch/persistence.cuh>
#include <pvm/engine/cuda/batch/tables.hpp>

namespace pvm::inline v0::detail::batch {

struct Tuning {
  static constexpr int graph_steps = 16;      ///< steps of the longer graph
  static constexpr int staged_frames = 8192;  ///< of all sequences, in a block
  static constexpr int blocks_ahead = 2;      ///< of frames
  /// Listing a gradient costs reading its rows again, an array of momenta 8 bytes a weight:
  /// listing pays while the rows of the gradients beyond the first are at most so many bytes.
  static constexpr int most_listed_bytes = 256;

  static int block_steps(int padded) {
    return std::clamp(staged_frames / padded, 8, most_block_steps);
  }
  /// Rows of a part of a forward product: about two parts for every block of threads that runs at
  /// once, and whole stages of any slice.
  static int part_rows(std::size_t rows, int multiprocessors) {
    const auto even = static_cast<int>(rows / static_cast<std::size_t>(multiprocessors));
    return std::clamp((even + 63) / 64 * 64, 256, most_part_rows);
  }
};

}  // namespace pvm::inline v0::detail::batch
