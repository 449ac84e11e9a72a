// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: learning rates are 0 to 1000

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::LearningRate<-0.5>>;

int main() { return Net::hidden; }
