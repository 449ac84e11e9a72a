// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: a specialisation needs template <bool Axpy> static void run

#include <pvm/engine/host/kernel.hpp>

/// A kernel for processors without special vectors that has no `run`.
template <>
struct pvm::HostKernel<pvm::fp32, pvm::simd::Isa::baseline> {};

int main() { pvm::simd::matrix_pass<pvm::fp32, false>(pvm::simd::MatrixPass{}); }
