// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: the Input has 1 channel (grey), 2 (grey and alpha), 3 (BGR) or 4

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Input<60, 5, 5>>;

int main() { return Net::hidden; }
