// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Kernel launches: with arguments converted to the kernel's parameter types, and with as much
/// dynamic shared memory as the kernel needs.

#include <cuda_runtime.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <type_traits>
#include <utility>

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

/// How much dynamic shared memory kernels may have, by device and kernel, as far as it is known.
struct SharedMemoryLimits {
  std::mutex one_by_one;
  std::map<std::pair<int, const void*>, std::size_t> bytes;

  static SharedMemoryLimits& of_program() {
    static SharedMemoryLimits limits;
    return limits;
  }
};

/// Raises `kernel`'s limit of dynamic shared memory to `bytes`. The limit belongs to the kernel,
/// not to an engine, so it is never lowered: another engine of the process may need more.
///
/// Call it in the function that launches the kernel: where several files of a program have the same
/// kernel, each has a handle of its own for it, and the linker takes each function of a class from
/// any of these files. Only the function that launches has the right handle for certain.
template <class... Parameters>
cudaError_t reserve_shared(void (*kernel)(Parameters...), std::size_t bytes) {
  int device = 0;
  if (const cudaError_t fault = cudaGetDevice(&device); fault != cudaSuccess) return fault;
  SharedMemoryLimits& limits = SharedMemoryLimits::of_program();
  const std::lock_guard lock(limits.one_by_one);
  const auto [limit, unknown] =
      limits.bytes.try_emplace({device, reinterpret_cast<const void*>(kernel)}, 0);
  if (unknown) {
    cudaFuncAttributes now{};
    const cudaError_t fault = cudaFuncGetAttributes(&now, kernel);
    if (fault != cudaSuccess) {
      limits.bytes.erase(limit);
      return fault;
    }
    limit->second = static_cast<std::size_t>(now.maxDynamicSharedSizeBytes);
  }
  if (limit->second >= bytes) return cudaSuccess;
  const cudaError_t fault = cudaFuncSetAttribute(
      kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes));
  if (fault == cudaSuccess) limit->second = bytes;
  return fault;
}

template <class... Parameters, class... Values>
cudaError_t launch(void (*kernel)(Parameters...), const LaunchShape& shape,
                   const Values&... values) {
  const cudaError_t fault = reserve_shared(kernel, shape.shared_bytes);
  if (fault != cudaSuccess) return fault;
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

/// A cooperative launch, for thread blocks that wait for each other and so must run together.
template <class Arguments>
cudaError_t launch_together(void (*kernel)(Arguments), const LaunchShape& shape,
                            const std::remove_cvref_t<Arguments>& arguments) {
  const cudaError_t fault = reserve_shared(kernel, shape.shared_bytes);
  if (fault != cudaSuccess) return fault;
  void* parameters[] = {const_cast<std::remove_cvref_t<Arguments>*>(&arguments)};
  return cudaLaunchCooperativeKernel(kernel, shape.grid, dim3(static_cast<unsigned>(shape.threads)),
                                     parameters, shape.shared_bytes, shape.stream);
}

}  // namespace pvm::inline v0::detail
