// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: the precision is pvm::fp32, pvm::tf32, pvm::bf16 or pvm::fp16

#include <pvm/pvm.hpp>

int main() { pvm::Trainer<float> trainer{pvm::Spec{}}; }
