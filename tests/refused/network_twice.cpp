// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: a part is given twice

#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Hidden<7>, pvm::Lateral<2>, pvm::Hidden<5>>;

int main() { return Net::hidden; }
