// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the engines need to know about the current CUDA device.

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/imagined.hpp>
#include <pvm/engine/cuda/device/tuning.hpp>

namespace pvm::inline v0::detail {

struct DeviceFacts {
  std::string name;
  int multiprocessors = 0;
  std::size_t shared_bytes = 0;  ///< most shared memory of a thread block
  std::size_t cache_bytes = 0;   ///< the part of the L2 cache meant for weights that stay in it
  /// Compute capability 9.0 or later, of the device and of what the kernels were compiled for:
  /// there are programmatic dependent launch (a kernel starts while its predecessor ends) and bulk
  /// copies.
  bool is_hopper_or_later = false;
  CudaTuning tuning;
};

/// A kernel that is in every program. (A template, so that it may be in several of its files.)
template <int>
__global__ void empty_kernel() {}

/// The compute capability that the kernels which the current device runs were compiled for, times
/// ten. It is less than the device's if they were compiled for an older one only: the driver then
/// compiles their PTX code, which does without the instructions of later ones.
inline int compiled_capability() {
  cudaFuncAttributes attributes{};
  cuda_check(cudaFuncGetAttributes(&attributes, empty_kernel<0>), "looking for the kernels");
  return attributes.ptxVersion;
}

/// The current device, or the one that this thread imagines. Throws Error (device) if there is no
/// GPU, or one older than compute capability 8.0.
inline DeviceFacts describe_device() {
  if (imagined_gpu() != nullptr) return *imagined_gpu();
  int device = 0;
  cuda_check(cudaGetDevice(&device), "looking for a GPU");
  cudaDeviceProp properties{};
  cuda_check(cudaGetDeviceProperties(&properties, device), "looking at the GPU");
  if (properties.major < 8) {
    throw Error(Fault::device, std::string("the GPU ") + properties.name +
                                   " is older than compute capability 8.0; use the host backend");
  }
  DeviceFacts facts;
  facts.name = properties.name;
  facts.multiprocessors = properties.multiProcessorCount;
  facts.tuning = cuda_tuning(properties.major);
  facts.shared_bytes = properties.sharedMemPerBlockOptin;
  facts.is_hopper_or_later = properties.major >= 9 && compiled_capability() >= 90;
  facts.cache_bytes = static_cast<std::size_t>(static_cast<double>(properties.l2CacheSize) *
                                               facts.tuning.cache_fraction);
  return facts;
}

}  // namespace pvm::inline v0::detail
