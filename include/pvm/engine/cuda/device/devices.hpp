// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Several GPUs of a host: which one is current in this process, and their access to each other's
/// memory. A thread that imagines a GPU (imagined.hpp) imagines all of them, connected.

#include <cuda_runtime.h>

#include <array>
#include <set>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/imagined.hpp>

namespace pvm::inline v0::detail {

inline int current_device() {
  int device = 0;
  if (imagined_gpu() != nullptr) return device;
  cuda_check(cudaGetDevice(&device), "looking for a GPU");
  return device;
}

/// Makes a GPU current in this thread for the lifetime of the object.
class OnDevice {
 public:
  explicit OnDevice(int device) : before_(current_device()) {
    if (device != before_ && imagined_gpu() == nullptr)
      cuda_check(cudaSetDevice(device), "choosing a GPU");
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;
  ~OnDevice() {
    if (imagined_gpu() == nullptr) (void)cudaSetDevice(before_);
  }

 private:
  int before_;
};

/// Throws Error (usage) if there is no GPU of one of these numbers.
inline void require_devices(const std::vector<int>& devices) {
  int there = 0;
  if (imagined_gpu() != nullptr) return;
  cuda_check(cudaGetDeviceCount(&there), "looking for GPUs");
  for (const int device : devices) {
    if (device >= 0 && device < there) continue;
    throw Error(Fault::usage, "there is no GPU " + std::to_string(device) + "; this process sees " +
                                  std::to_string(there) + ", numbered from 0");
  }
}

/// A GPU's place on the PCI bus, which tells it from the others of its host in every process.
using BusId = std::array<char, 32>;
inline BusId bus_id(int device) {
  BusId id{};
  if (imagined_gpu() != nullptr) return id;
  cuda_check(cudaDeviceGetPCIBusId(id.data(), static_cast<int>(id.size()), device),
             "looking for the GPU's place");
  return id;
}

/// Throws Error (device) if kernels on GPU `from` cannot access the memory of GPU `to`, another
/// one, with atomic operations: they must be connected by NVLink or the like.
inline void require_access(int from, int to) {
  int atomics = 0, access = 0;
  cuda_check(cudaDeviceCanAccessPeer(&access, from, to), "looking at links between GPUs");
  if (access != 0) {
    cuda_check(cudaDeviceGetP2PAttribute(&atomics, cudaDevP2PAttrNativeAtomicSupported, from, to),
               "looking at links between GPUs");
  }
  if (atomics != 0) return;
  throw Error(Fault::device,
              "GPU " + std::to_string(from) + " has no direct access to the memory of GPU " +
                  std::to_string(to) + (access != 0 ? " that keeps atomic operations whole" : "") +
                  ", so they cannot share a network; take GPUs that NVLink connects, or one");
}

/// Lets kernels on each of these GPUs access the memory of all others. Throws what `require_access`
/// throws.
inline void connect_devices(const std::set<int>& devices) {
  if (imagined_gpu() != nullptr) return;
  for (const int from : devices) {
    const OnDevice on(from);
    for (const int to : devices) {
      if (from == to) continue;
      require_access(from, to);
      const cudaError_t enabled = cudaDeviceEnablePeerAccess(to, 0);
      if (enabled == cudaErrorPeerAccessAlreadyEnabled) {
        (void)cudaGetLastError();  // by another engine of this process
      } else {
        cuda_check(enabled, "connecting GPUs");
      }
    }
  }
}

}  // namespace pvm::inline v0::detail
