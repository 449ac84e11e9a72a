// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How much device memory is free, and whether that is enough.

#include <cuda_runtime.h>

#include <cstddef>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/imagined.hpp>

namespace pvm::inline v0::detail {

/// Free device memory, in bytes.
inline std::size_t free_memory() {
  std::size_t free = 0, all = 0;
  cuda_check(cudaMemGetInfo(&free, &all), "asking for free memory");
  return free;
}

/// Throws Error (memory) unless there is room for `need` bytes. `with` and `smaller` are parts of the
/// message: what the network needs the memory for, and what to make smaller.
inline void require_memory(std::size_t need, const std::string& with, const char* smaller) {
  const std::size_t free = free_memory();
  if (need <= free) return;
  throw Error(Fault::memory, "this network needs " + std::to_string(need >> 20) +
                                 " MiB of device memory" + with + " and " +
                                 std::to_string(free >> 20) + " MiB are free; use a smaller " +
                                 smaller + ", or the host backend");
}

/// The same for the `memory_needed()` bytes, those of `memory_parts()`, that `engine` is about to
/// take. If this thread imagines a GPU, throws Planned.
template <class Engine>
  requires requires(const Engine& engine) { engine.memory_parts(); }
void require_memory(const Engine& engine, const std::string& with, const char* smaller) {
  if (imagined_gpu() != nullptr) throw Planned{engine.description(), engine.memory_parts()};
  require_memory(engine.memory_needed(), with, smaller);
}

}  // namespace pvm::inline v0::detail
