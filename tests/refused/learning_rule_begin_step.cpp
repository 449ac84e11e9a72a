// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: if it has a begin_step, that is static void begin_step(pvm::RuleStep&)

#include <pvm/model/network.hpp>

struct KeepsNothing {
  static constexpr int state = 0;
  static void begin_step(pvm::RuleStep step) { step.own[0] = 0.5F * step.rate; }
  static float apply(float w, float*, float gradient, pvm::RuleStep s) {
    return w + s.own[0] * gradient;
  }
};
using Net = pvm::Network<pvm::LearningRule<KeepsNothing>>;

int main() { return Net::hidden; }
