// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The bandwidth of the host's memory, which bounds the steps of the host engine.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <limits>
#include <numeric>
#include <thread>
#include <vector>

#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/engine/host/team.hpp>

namespace pvm_bench {

/// Reads an array of `n` floats once.
struct ReadAll {
  const float* data;
  std::size_t n;
  float* out;
  [[gnu::always_inline]] inline void operator()() const {
    pvm::simd::Lanes sums[4] = {};
    for (std::size_t i = 0; i + 64 <= n; i += 64) {
      for (std::size_t k = 0; k < 4; ++k) sums[k] += pvm::simd::at(data + i + 16 * k);
    }
    *out = pvm::simd::sum(sums[0] + sums[1] + sums[2] + sums[3]);
  }
};

/// The bandwidth in bytes per second at which all cores together read an array of `floats` floats.
/// Every other pass goes through the array's blocks backwards, as the engine does with its weights.
/// The best of `times` measurements of `passes` passes counts.
inline double read_bandwidth(std::size_t floats, std::size_t passes = 20, int times = 1) {
  pvm::HugeArray array(floats);
  pvm::Team team(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  const auto members = static_cast<std::size_t>(team.size());
  constexpr std::size_t block = 1 << 15;
  const std::size_t blocks = floats / block / members;
  std::vector<float> sums(members * 16);
  auto work = [&](int member) {
    const auto m = static_cast<std::size_t>(member);
    for (std::size_t pass = 0; pass < passes; ++pass) {
      for (std::size_t k = 0; k < blocks; ++k) {
        const std::size_t at = (pass % 2 == 0 ? k : blocks - 1 - k) * members + m;
        pvm::simd::for_best_isa(ReadAll{array.data() + at * block, block, &sums[m * 16]});
      }
    }
  };
  team.run(work);  // warms up
  double least = std::numeric_limits<double>::max();
  for (int i = 0; i < times; ++i) {
    const auto start = std::chrono::steady_clock::now();
    team.run(work);
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    least = std::min(least, seconds.count());
  }
  const volatile float used = std::accumulate(sums.begin(), sums.end(), 0.0F);
  (void)used;
  return static_cast<double>(passes * blocks * members * block * sizeof(float)) / least;
}

}  // namespace pvm_bench
