// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: an activation is a type with two functions, static float

#include <pvm/model/network.hpp>

struct NoDerivative {
  static float value(float sum) { return sum; }
};
using Net = pvm::Network<pvm::Activation<NoDerivative>>;

int main() { return Net::hidden; }
