// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: Layers have sides of 1 to 512

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Layers<12, 0>>;

int main() { return Net::hidden; }
