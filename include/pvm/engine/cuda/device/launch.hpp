// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Kernel launches: with arguments converted to the kernel's parameter types, and with as much
/// dynamic shared memory as the kernel needs.

#include <cuda_runtime.h>

#include <cstddef>
#include <mutex>

#include <pvm/engine/cuda/device/check.hpp>

namespace pvm::inline v0::detail {

/// The launch configuration of a kernel.
struct LaunchShape {
  dim3 grid;
  int threads = 0;               ///< per thread block
  std::size_t shared_bytes = 0;  ///< dynamic shared memory of a thread block
  cudaStream_t stream = nullptr;
  bool early = false;  ///< programmatic dependent launch: the kernel may start while the kernel
                       ///< before it ends, and itself waits for the end of that kernel
};

/// Calls `what.operator()<N>()` with the constant N of the list that equals `n`, or with the last
/// one if none does.
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

/// Raises `kernel`'s limit of dynamic shared memory to `bytes`. The limit belongs to the kernel,
/// not to an engine, so it is never lowered: another engine of the process may need more.
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
