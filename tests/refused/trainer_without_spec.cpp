// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: a Trainer needs to know its network

#include <pvm/pvm.hpp>

int main() { pvm::Trainer<> trainer; }
