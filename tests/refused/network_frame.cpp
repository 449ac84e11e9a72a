// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: the Input's side must be the first layer's side times the Input's block

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Input<64, 3, 5>, pvm::Layers<12, 8, 1>>;

int main() { return Net::hidden; }
