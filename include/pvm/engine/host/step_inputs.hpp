// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The inputs of a step: its learning coefficients and its frames.

#include <cstdint>
#include <vector>

#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// The learning coefficients of one step, the same for all units of a layer.
struct StepRates {
  std::vector<float> weight;    ///< [layer][phase][slot]: w_j, times `sequence_weight`
  std::vector<float> fold;      ///< [layer][slot]: coefficient in a fold, times the same
  std::vector<char> folds;      ///< [layer]: whether there is anything to fold or to update
  std::vector<float> momentum;  ///< [layer]: for engines with a momentum array
  std::vector<RuleStep> rule;   ///< [layer]: for engines with a learning rule that is not deferred
};

/// The frames of one step: in a FrameBlock or in the store.
struct StepFrames {
  const std::uint8_t* const* pixels;  ///< [batch]: each sequence's frame
  const float* squeezed;              ///< [batch][frame]: instead of the pixels, or null
  const std::uint8_t* scored;         ///< [batch], see FrameBlock
};

}  // namespace pvm::inline v0
