// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A Score consists of sums, which kernels compute, and of the numbers of values in these sums,
/// which the host counts.

#include <cstddef>
#include <cstdint>
#include <span>

#include <pvm/engine/engine.hpp>

namespace pvm::inline v0::detail {

/// Adds the sums of the kernels: [n][prediction, persistence, loss].
inline void add_sums(Score& score, std::span<const double> sums) {
  for (std::size_t i = 0; i < sums.size(); i += 3) {
    score.prediction += sums[i];
    score.persistence += sums[i + 1];
    score.loss += sums[i + 2];
  }
}
/// Counts the values of a block. `frame_size`: values of a frame; `outputs`: outputs of all
/// sequences in a step.
inline void add_counts(Score& score, const FrameBlock& block, std::size_t frame_size,
                       std::size_t outputs) {
  for (const std::uint8_t scored : block.scored) {
    if (scored != 0) score.pixels += frame_size;
  }
  score.outputs += static_cast<std::size_t>(block.steps) * outputs;
}

}  // namespace pvm::inline v0::detail
