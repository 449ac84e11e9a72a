// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Counter-based random numbers: each number is a function of a seed and an index, so there is no
/// state to save, and any thread can compute any number.

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011): 128 random
/// bits for a 128-bit counter and a 64-bit key.
constexpr std::array<std::uint32_t, 4> philox(std::array<std::uint32_t, 4> counter,
                                              std::array<std::uint32_t, 2> key) noexcept {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t p = std::uint64_t{0xD2511F53} * counter[0];
    const std::uint64_t q = std::uint64_t{0xCD9E8D57} * counter[2];
    counter = {
        static_cast<std::uint32_t>(q >> 32) ^ counter[1] ^ key[0], static_cast<std::uint32_t>(q),
        static_cast<std::uint32_t>(p >> 32) ^ counter[3] ^ key[1], static_cast<std::uint32_t>(p)};
    key = {key[0] + 0x9E3779B9U, key[1] + 0xBB67AE85U};
  }
  return counter;
}

/// Number `index` of the random sequence `seed`: uniform in [0, 1), a multiple of 2^-24.
constexpr float uniform(std::uint64_t seed, std::uint64_t index) noexcept {
  const std::uint64_t block = index / 4;
  const auto bits =
      philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
             {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
  return static_cast<float>(bits[index % 4] >> 8) * 0x1p-24F;
}

/// Fills `out` with the numbers from `first` on of the random sequence `seed`. They are those of
/// `uniform`, bit by bit, for a quarter of the work: 128 random bits make four of them.
constexpr void fill_uniform(std::uint64_t seed, std::uint64_t first,
                            std::span<float> out) noexcept {
  std::size_t i = 0;
  for (; i < out.size() && (first + i) % 4 != 0; ++i) out[i] = uniform(seed, first + i);
  for (; i + 4 <= out.size(); i += 4) {
    const std::uint64_t block = (first + i) / 4;
    const auto bits =
        philox({static_cast<std::uint32_t>(block), static_cast<std::uint32_t>(block >> 32), 0, 0},
               {static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32)});
    for (std::size_t k = 0; k < 4; ++k) out[i + k] = static_cast<float>(bits[k] >> 8) * 0x1p-24F;
  }
  for (; i < out.size(); ++i) out[i] = uniform(seed, first + i);
}

}  // namespace pvm::inline v0
