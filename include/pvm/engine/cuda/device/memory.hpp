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

/// Throws Error (memory) unless there is room for `engine`, which is about to take
/// `memory_needed()` bytes, those of `memory_parts()`. `with` and `smaller` are parts of the
/// message: what the network needs the memory for, and what to make smaller. If this thread
/// imagines a GPU, throws Planned.
template <class Engine>
void require_memory(const Engine& engine, const std::string& with, const char* smaller) {
  if (imagined_gpu() != nullptr) throw Planned{engine.description(), engine.memory_parts()};
  const std::size_t need = engine.memory_needed();
  const std::size_t free = free_memory();
  if (need <= free) return;
  throw Error(Fault::memory, "this network needs " + std::to_string(need >> 20) +
                                 " MiB of device memory" + with + " and " +
                                 std::to_string(free >> 20) + " MiB are free; use a smaller " +
                                 smaller + ", or the host backend");
}

}  // namespace pvm::inline v0::detail
