// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: the network is a pvm::Network<...> or pvm::RuntimeNetwork

#include <pvm/pvm.hpp>

int main() { pvm::Trainer<pvm::fp32, 1, pvm::Hidden<7>> trainer{pvm::Spec{}}; }
