// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How a weight moves along its gradient.

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// What a learning rule is told at each step.
struct RuleStep {
  float rate;      ///< learning rate, the share of one sequence in the update included
  float momentum;  ///< of the layer, from the spec
  unsigned long long step;
};

/// A learning rule is a type with the number of floats it keeps per weight (`state`, all 0 at the
/// start) and a function `apply` that returns the new weight. `gradient` has the sign of the
/// update: w moves by +rate * gradient.

/// dW <- m dW + rate g, W <- W + dW: the rule of the original.
struct Momentum {
  static constexpr int state = 1;
  PVM_HOST_DEVICE static float apply(float w, float* state, float gradient, RuleStep s) {
    state[0] = s.momentum * state[0] + s.rate * gradient;
    return w + state[0];
  }
};

/// W <- W + rate g.
struct Sgd {
  static constexpr int state = 0;
  PVM_HOST_DEVICE static float apply(float w, float*, float gradient, RuleStep s) {
    return w + s.rate * gradient;
  }
};

}  // namespace pvm::inline v0
