// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Copies of frames and results from one place of device memory to another, those of all streams of
/// a step at once.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::infer::gpu {

struct Move {
  const void* from = nullptr;
  void* to = nullptr;
  std::uint32_t bytes = 0;  ///< 0: nothing is to be copied
};

inline constexpr int move_threads = 256;  ///< of a thread block
inline constexpr int move_blocks = 4;     ///< that share a copy

/// Copies moves[z * apart + y]; the x dimension shares the work. A program's frame may begin at any
/// byte, so whole granules are copied only where both places allow it.
template <class Granule>
__global__ void move_all(const Move* moves, unsigned apart) {
  const Move move = moves[blockIdx.z * apart + blockIdx.y];
  const std::uint32_t first = blockIdx.x * blockDim.x + threadIdx.x;
  const std::uint32_t step = gridDim.x * blockDim.x;
  const auto places =
      reinterpret_cast<std::uintptr_t>(move.from) | reinterpret_cast<std::uintptr_t>(move.to);
  constexpr std::uint32_t granule = sizeof(Granule);
  const std::uint32_t granules = places % granule == 0 ? move.bytes / granule : 0;
  for (std::uint32_t i = first; i < granules; i += step) {
    static_cast<Granule*>(move.to)[i] = static_cast<const Granule*>(move.from)[i];
  }
  for (std::uint32_t i = granules * granule + first; i < move.bytes; i += step) {
    static_cast<std::uint8_t*>(move.to)[i] = static_cast<const std::uint8_t*>(move.from)[i];
  }
}

}  // namespace pvm::inline v0::infer::gpu
