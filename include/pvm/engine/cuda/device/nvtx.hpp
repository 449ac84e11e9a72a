// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Shows spans of time (core/trace.hpp) to NVIDIA's profilers, where the toolkit has NVTX's
/// headers: `nsys profile pvm ...` has the stages of a run beside its kernels. Without a profiler a
/// call returns at once.

#include <pvm/core/trace.hpp>

#if __has_include(<nvtx3/nvToolsExt.h>)
#include <nvtx3/nvToolsExt.h>
#define PVM_NVTX 1
#endif

namespace pvm::inline v0::detail {

/// From now on, all threads' spans are NVTX ranges, too.
inline void show_spans_to_profilers() noexcept {
#if defined(PVM_NVTX)
  static constexpr trace::Ranges nvtx{[](const char* name) { (void)nvtxRangePushA(name); },
                                      [] { (void)nvtxRangePop(); }};
  trace::also_show(&nvtx);
#endif
}

}  // namespace pvm::inline v0::detail
