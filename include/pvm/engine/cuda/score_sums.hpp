// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A score is made of sums that kernels leave, and of how many values they are of, which the host
/// counts.

#include <cstddef>
#include <cstdint>
#include <span>

#include <pvm/engine/engine.hpp>

namespace pvm::inline v0::detail {

/// `sums` are prediction, persistence, loss, and again.
inline void add_sums(Score& score, std::span<const double> sums) {
  for (std::size_t i = 0; i < sums.size(); i += 3) {
    score.prediction += sums[i];
    score.persistence += sums[i + 1];
    score.loss += sums[i + 2];
  }
}
/// For a block of frames of so many values. `outputs`: of all sequences in a step.
inline void add_counts(Score& score, const FrameBlock& block, std::size_t frame_size,
                       std::size_t outputs) {
  for (const std::uint8_t scored : block.scored) {
    if (scored != 0) score.pixels += frame_size;
  }
  score.outputs += static_cast<std::size_t>(block.steps) * outputs;
}

}  // namespace pvm::inline v0::detail
