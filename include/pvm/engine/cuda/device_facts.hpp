// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The device that is current, as far as engines plan with it.

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/check.hpp>
#include <pvm/engine/cuda/tuning.hpp>

namespace pvm::inline v0::detail {

/// What the engine asks about the current device.
struct DeviceFacts {
  std::string name;
  int multiprocessors = 0;
  std::size_t shared_bytes = 0;  ///< a block may have
  std::size_t cache_bytes = 0;   ///< of the second-level cache, for weights that stay in it
  bool overlaps = false;  ///< 9.0 and later: a kernel can start while the one before it ends, and
                          ///< bulk copies
  CudaTuning tuning;
};

inline DeviceFacts describe_device() {
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
  facts.overlaps = properties.major >= 9;
  facts.cache_bytes = static_cast<std::size_t>(static_cast<double>(properties.l2CacheSize) *
                                               facts.tuning.cache_share);
  return facts;
}

}  // namespace pvm::inline v0::detail
