// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: MomentumFactor is at least 0 and less than 1

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::MomentumFactor<1>>;

int main() { return Net::hidden; }
