// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: this Trainer's network is a type and says everything

#include <pvm/pvm.hpp>

int main() { pvm::Trainer<pvm::fp32, 1, pvm::Network<>> trainer{pvm::Spec{}}; }
