// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What comes to a step from outside: its rates and its frames.

#include <cstdint>
#include <vector>

#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// The coefficients of one step, as every unit of a layer reads them.
struct StepRates {
  std::vector<float> weight;    ///< [layer][phase][term]: w_j, divided among the batch
  std::vector<float> fold;      ///< [layer][term]: what the units that fold add
  std::vector<char> folds;      ///< [layer]: whether anything is to be folded
  std::vector<float> momentum;  ///< [layer]: for engines with a momentum array
  std::vector<RuleStep> rule;   ///< [layer]: for engines with a learning rule that is not deferred
};

/// The frames of one step: in a FrameBlock or in the store.
struct StepFrames {
  const std::uint8_t* const* pixels;  ///< each sequence's frame
  const float* squeezed;              ///< instead of the pixels, or null
  const std::uint8_t* scored;
};

}  // namespace pvm::inline v0
