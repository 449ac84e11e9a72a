// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Launches a kernel with arguments of its own types, and with the shared memory that it needs.

#include <cuda_runtime.h>

#include <cstddef>
#include <mutex>

#include <pvm/engine/cuda/check.hpp>

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

/// Lets `kernel` be launched with so many bytes of shared memory beside what it declares. The limit
/// is the kernel's, not an engine's: where another engine of the process needs more, it stays.
template <class... Parameters>
void allow_shared(void (*kernel)(Parameters...), std::size_t bytes) {
  static std::mutex one_by_one;
  const std::lock_guard lock(one_by_one);
  cudaFuncAttributes now{};
  cuda_check(cudaFuncGetAttributes(&now, kernel), "reserving shared memory");
  const int needed = static_cast<int>(bytes);
  if (now.maxDynamicSharedSizeBytes >= needed) return;
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, needed),
             "reserving shared memory");
}

}  // namespace pvm::inline v0::detail
