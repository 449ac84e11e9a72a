// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The library's own code for a pass over a weight matrix: a loop, compiled for each instruction
/// set.

#include <type_traits>

#include <pvm/core/tags.hpp>
#include <pvm/engine/host/half_pass.hpp>
#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0::detail {

/// The kernel that HostKernel is, unless a program specialises that. kernel_x86.hpp has faster
/// specialisations of this template for some instruction sets.
template <class Precision, simd::Isa isa>
struct LibraryKernel {
  template <bool Axpy, class Pass>
  static void run(const Pass& pass) {
    if constexpr (std::is_same_v<Precision, fp32>) {
      simd::for_isa<isa>(simd::RunPass<Axpy>{pass});
    } else {
      simd::for_isa<isa>(simd::RunHalfPass<Precision, Axpy>{pass});
    }
  }
};

}  // namespace pvm::inline v0::detail
