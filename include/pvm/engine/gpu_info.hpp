// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What is known about a GPU of this machine.

#include <cstddef>
#include <string>
#include <vector>

namespace pvm::inline v0 {

/// An NVIDIA GPU that this process sees. CUDA_VISIBLE_DEVICES decides which these are, and in which
/// order.
struct GpuInfo {
  int index = 0;           ///< as `use_gpu` takes it
  std::string name;        ///< as the driver has it
  std::size_t memory = 0;  ///< bytes
  int multiprocessors = 0;
  int capability = 0;  ///< compute capability, times ten
};

namespace detail {

/// "0: NVIDIA H200, 1: NVIDIA H200", for messages.
inline std::string list_of(const std::vector<GpuInfo>& gpus) {
  std::string text;
  for (const GpuInfo& gpu : gpus) {
    text += (text.empty() ? "" : ", ") + std::to_string(gpu.index) + ": " + gpu.name;
  }
  return text;
}

}  // namespace detail

}  // namespace pvm::inline v0
