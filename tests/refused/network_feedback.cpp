// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: Feedback comes from 1 layer above, or from 2

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Feedback<3>>;

int main() { return Net::hidden; }
