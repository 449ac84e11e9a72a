// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Launches a kernel with arguments of its own types.

#include <cuda_runtime.h>

#include <cstddef>

namespace pvm::inline v0::detail {

/// Where a kernel runs and with what.
struct LaunchShape {
  dim3 grid;
  int threads = 0;               ///< of a block
  std::size_t shared_bytes = 0;  ///< of a block, beside what the kernel declares
  cudaStream_t stream = nullptr;
  bool early = false;  ///< may start while the kernel before it ends, and waits for it itself
};

/// Calls the template what() with the constant of the list that is `n`, or with the last one.
template <int First, int... Rest, class What>
void with_constant(int n, What&& what) {
  if constexpr (sizeof...(Rest) > 0) {
    if (n != First) return with_constant<Rest...>(n, what);
  }
  what.template operator()<First>();
}

template <class... Parameters, class... Values>
cudaError_t launch(void (*kernel)(Parameters...), const LaunchShape& shape,
                   const Values&... values) {
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = shape.grid;
  config.blockDim = dim3(static_cast<unsigned>(shape.threads));
  config.dynamicSmemBytes = shape.shared_bytes;
  config.stream = shape.stream;
  config.attrs = &attribute;
  config.numAttrs = shape.early ? 1 : 0;
  return cudaLaunchKernelEx(&config, kernel, values...);
}

}  // namespace pvm::inline v0::detail
