// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: an argument is not a part of a network

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Hidden<7>, int>;

int main() { return Net::hidden; }
