// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: a learning rule is a type with static constexpr int state

#include <pvm/model/network.hpp>

struct NoState {
  static float apply(float w, float*, float gradient, pvm::RuleStep s) {
    return w + s.rate * gradient;
  }
};
using Net = pvm::Network<pvm::LearningRule<NoState>>;

int main() { return Net::hidden; }
