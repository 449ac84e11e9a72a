// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The choice of the code that runs a pass on the present processor: the host engine's
/// customisation point.

#include <type_traits>

#include <pvm/core/tags.hpp>
#include <pvm/engine/host/half_pass.hpp>
#include <pvm/engine/host/kernel_x86.hpp>
#include <pvm/engine/host/library_kernel.hpp>
#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0 {

/// The pass over a weight matrix in `Precision` on processors whose best instruction set is `isa`.
/// The primary template is the library's own kernel. Specialise it to replace the pass for one
/// instruction set, in every file that trains, before the first Trainer of that precision:
///
///     template <>
///     struct pvm::HostKernel<pvm::fp32, pvm::simd::Isa::avx2> {
///       template <bool Axpy>
///       static void run(const pvm::simd::MatrixPass& pass);   // bf16, fp16: const HalfPass&
///     };
///
/// `run` does what the comment at MatrixPass (HalfPass) says, for any number of rows, columns and
/// sequences, and tells `*pass.prefetcher` of the cache lines that it has used (or prefetches in
/// its own way). It is called on many threads at once. The order of its sums must depend on the
/// sizes alone, so that the same inputs give the same bits.
template <class Precision, simd::Isa isa>
struct HostKernel : detail::LibraryKernel<Precision, isa> {};

/// Precisions other than bf16 have no use for the bf16 instructions: they use the AVX-512 kernel.
template <class Precision>
struct HostKernel<Precision, simd::Isa::avx512_bf16>
    : std::conditional_t<std::is_same_v<Precision, bf16>,
                         detail::LibraryKernel<bf16, simd::Isa::avx512_bf16>,
                         HostKernel<Precision, simd::Isa::avx512>> {};

namespace simd {

/// Calls the kernel, and refuses a specialisation without a fitting `run` in one sentence.
template <class Precision, Isa isa, bool Axpy, class Pass>
void run_kernel(const Pass& pass) {
  using Kernel = HostKernel<Precision, isa>;
  constexpr bool fits = requires { Kernel::template run<Axpy>(pass); };
  static_assert(
      fits,
      "pvm::HostKernel: a specialisation needs template <bool Axpy> static void run(const "
      "pvm::simd::MatrixPass&) for fp32, or (const pvm::simd::HalfPass&) for bf16 and fp16");
  if constexpr (fits) Kernel::template run<Axpy>(pass);
}

/// Runs one pass over a weight matrix with the kernel for this processor.
template <class Precision, bool Axpy, class Pass>
[[gnu::noinline]] void matrix_pass(const Pass& pass) {
#if defined(__x86_64__)
  switch (best_isa()) {
    case Isa::avx512_bf16:
      return run_kernel<Precision, Isa::avx512_bf16, Axpy>(pass);
    case Isa::avx512:
      return run_kernel<Precision, Isa::avx512, Axpy>(pass);
    case Isa::avx2:
      return run_kernel<Precision, Isa::avx2, Axpy>(pass);
    case Isa::baseline:
      break;
  }
#endif
  run_kernel<Precision, Isa::baseline, Axpy>(pass);
}

}  // namespace simd

}  // namespace pvm::inline v0
