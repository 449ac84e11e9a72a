// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: more than 4 thousand million weights

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Input<512, 3, 1>, pvm::Layers<512, 512>, pvm::Hidden<64>>;

int main() { return Net::hidden; }
