// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The emulation of the mma product of 8-bit whole numbers.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/matrices.cuh>

namespace pvm::inline v0::detail {

/// The sums of 32 products are whole numbers that a float holds.
inline void multiply_8bit(std::int32_t (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                          std::uint32_t b1) {
  float sums[4] = {};
  emulated::multiply(sums, a, b0, b1, "mma of 8 bits", [](emulated_cuda::Lanes lanes) {
    emulated::multiply_lanes<32>(
        lanes,
        [](std::uint32_t word, int i) { return static_cast<float>(word >> (8 * i) & 0xffU); },
        [](std::uint32_t word, int i) {
          return static_cast<float>(static_cast<std::int8_t>(word >> (8 * i)));
        });
  });
  for (int i = 0; i < 4; ++i) c[i] += static_cast<std::int32_t>(sums[i]);
}

}  // namespace pvm::inline v0::detail
