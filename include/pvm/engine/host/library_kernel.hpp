// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The library's own code for a pass over a weight matrix: a loop, compiled for each kind of
/// vectors.

#include <type_traits>

#include <pvm/core/tags.hpp>
#include <pvm/engine/host/half_pass.hpp>
#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0::detail {

/// What HostKernel is unless a program specialises it; kernel_x86.hpp has better ones for some.
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
