// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How much device memory is free, and whether that is enough.

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>

namespace pvm::inline v0::detail {

/// Free device memory, in bytes.
inline std::size_t free_memory() {
  std::size_t free = 0, all = 0;
  cuda_check(cudaMemGetInfo(&free, &all), "asking for free memory");
  return free;
}

/// Throws Error (memory) unless `need` bytes are free. `with` and `smaller` are parts of the
/// message: what the network needs the memory for, and what to make smaller.
inline void require_memory(std::size_t need, const std::string& with, const char* smaller) {
  const std::size_t free = free_memory();
  if (need <= free) return;
  throw Error(Fault::memory, "this network needs " + std::to_string(need >> 20) +
                                 " MiB of device memory" + with + " and " +
                                 std::to_string(free >> 20) + " MiB are free; use a smaller " +
                                 smaller + ", or the host backend");
}

}  // namespace pvm::inline v0::detail
