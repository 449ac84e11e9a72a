// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: the square of FanIn is 1 unit wide at least, and must fit

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::FanIn<3>>;

int main() { return Net::hidden; }
