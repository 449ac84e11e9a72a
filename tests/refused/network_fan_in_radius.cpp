// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: within the radius of FanIn there is no unit below

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::FanIn<2, 0.5>>;

int main() { return Net::hidden; }
