// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: Hidden is 1 to 64

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Hidden<65>>;

int main() { return Net::hidden; }
