// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: the names momentum, sgd and adam are those of the library's

#include <pvm/model/network.hpp>

struct Mine : pvm::Momentum {
  static float apply(float w, float*, float gradient, pvm::RuleStep s) {
    return w + 2 * s.rate * gradient;
  }
};

using Net = pvm::Network<pvm::LearningRule<Mine>>;

int main() { return Net::hidden; }
