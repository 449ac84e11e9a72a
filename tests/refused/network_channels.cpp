// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: the Input has 1 channel (grey) or 3 (BGR)

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Input<60, 2, 5>>;

int main() { return Net::hidden; }
