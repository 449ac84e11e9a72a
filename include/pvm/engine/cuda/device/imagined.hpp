// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Lets engines plan for a GPU that need not be there. While a thread imagines a GPU, what an
/// engine's constructor does before it takes memory needs none: `describe_device` returns the
/// imagined GPU, streams and events are not made. `require_memory`, which the constructor calls
/// before it takes any, then ends it with what it would take. So the engines' own plans tell the
/// sizes, and nobody else has to know them.

#include <cstddef>
#include <string>

#include <pvm/engine/memory_part.hpp>

namespace pvm::inline v0::detail {

struct DeviceFacts;

/// What this thread imagines; null: nothing.
inline const DeviceFacts*& imagined_gpu() {
  static thread_local const DeviceFacts* facts = nullptr;
  return facts;
}

/// Imagines a GPU during its lifetime. `facts` must outlive it.
class Imagining {
 public:
  explicit Imagining(const DeviceFacts& facts) : before_(imagined_gpu()) {
    imagined_gpu() = &facts;
  }
  ~Imagining() { imagined_gpu() = before_; }
  Imagining(const Imagining&) = delete;
  Imagining& operator=(const Imagining&) = delete;

 private:
  const DeviceFacts* before_;
};

/// Thrown by the constructor of an engine that has planned for an imagined GPU.
struct Planned {
  std::string engine;  ///< its description
  MemoryParts parts;   ///< of the GPU's memory
};

}  // namespace pvm::inline v0::detail
