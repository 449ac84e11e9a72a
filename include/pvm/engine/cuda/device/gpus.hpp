// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The GPUs of this machine, and the one that this process uses.

#include <cuda_runtime.h>

#include <atomic>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/gpu_info.hpp>

namespace pvm::inline v0::detail {

/// All GPUs that the process sees; none, and why, if there are none. Takes no memory on them.
inline std::vector<GpuInfo> list_gpus(std::string* why) {
  int devices = 0;
  cudaError_t error = cudaGetDeviceCount(&devices);
  if (error == cudaSuccess && devices == 0) error = cudaErrorNoDevice;
  std::vector<GpuInfo> gpus;
  for (int i = 0; error == cudaSuccess && i < devices; ++i) {
    cudaDeviceProp properties{};
    error = cudaGetDeviceProperties(&properties, i);
    gpus.push_back({i, properties.name, properties.totalGlobalMem, properties.multiProcessorCount,
                    10 * properties.major + properties.minor});
  }
  if (error == cudaSuccess) return gpus;
  (void)cudaGetLastError();
  if (why != nullptr) *why = cuda_sentence(error, "looking for a GPU");
  return {};
}

/// The GPU that was chosen for the process; -1: none was.
inline std::atomic<int>& chosen_gpu() {
  static std::atomic<int> index = -1;
  return index;
}

/// Makes GPU `index` that of this thread, and of those threads of the library that use one. Throws
/// Error (device) if there is none of that number; the sentence lists those there are.
inline void choose_gpu(int index) {
  std::string why;
  const std::vector<GpuInfo> gpus = list_gpus(&why);
  const std::string number = std::to_string(index);
  if (gpus.empty()) throw Error(Fault::device, "GPU " + number + " cannot be used: " + why);
  if (index < 0 || index >= static_cast<int>(gpus.size())) {
    throw Error(Fault::device, "there is no GPU " + number + "; there " +
                                   (gpus.size() == 1 ? "is " : "are ") + list_of(gpus));
  }
  cuda_check(cudaSetDevice(index), "choosing the GPU");
  chosen_gpu() = index;
}

/// The GPU that this thread is to use: it is made the thread's own if one was chosen for the
/// process. Returns what cudaGetDevice or cudaSetDevice return.
inline cudaError_t gpu_of_thread(int* index) {
  *index = chosen_gpu();
  return *index >= 0 ? cudaSetDevice(*index) : cudaGetDevice(index);
}

}  // namespace pvm::inline v0::detail
