// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The weights of a new run.

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/core/large_vector.hpp>
#include <pvm/core/parallel.hpp>
#include <pvm/core/random.hpp>

namespace pvm::inline v0 {

/// `count` weights 0.03 (u - 0.5), u uniform in [0, 1): weight i is made of random number i of
/// `seed`, so that the same seed gives the same bits whatever the number of threads.
inline std::vector<float> initial_weights(std::size_t count, std::uint64_t seed) {
  auto weights = detail::large_vector<float>(count);
  detail::in_parallel_ranges(count, 4, [&](std::size_t begin, std::size_t end) {
    const std::span<float> part = std::span(weights).subspan(begin, end - begin);
    fill_uniform(seed, begin, part);
    for (float& weight : part) weight = 0.03F * (weight - 0.5F);
  });
  return weights;
}

}  // namespace pvm::inline v0
