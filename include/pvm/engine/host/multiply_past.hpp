// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The inner products of a unit's newest values that the steps after it need.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/past.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0 {

/// The products of one unit's values `back` steps before `step` with those three steps and more
/// before them, [b][age][b']. `row(slot, b)` gives the values, `n` (padded) of them.
template <class Row>
[[gnu::always_inline]] inline void multiply_rows(const Past& past, std::uint64_t step,
                                                 std::size_t back, std::size_t n, Row row,
                                                 float* out, simd::Ahead& ahead) {
  const std::size_t now = past.slot(step, back);
  for (std::size_t b = 0; b < past.batch(); ++b) {
    for (std::size_t age = 0; age < past.terms(); ++age) {
      ahead.pull(8);
      const std::size_t then = past.slot(step, back + 3 + age);
      for (std::size_t c = 0; c < past.batch(); ++c)
        *out++ = simd::dot(row(now, b), row(then, c), n);
    }
  }
}

/// What step `step` - `back` leaves for the next one: the products of the unit's hidden values.
[[gnu::always_inline]] inline void multiply_hidden(const HostNetwork& n, std::uint64_t step,
                                                   std::size_t back, std::size_t u,
                                                   simd::Ahead& ahead) {
  Past& past = n.past;
  const std::uint64_t reader = step + 4 - back;  // that is step + 1 - back, kept positive
  auto raw = [&](std::size_t slot, std::size_t b) { return past.raw(slot, b, u); };
  auto squeezed = [&](std::size_t slot, std::size_t b) { return past.squeezed(slot, b, u); };
  multiply_rows(past, step, back, past.stride(), raw, n.raw_grams.at(reader, u), ahead);
  multiply_rows(past, step, back, past.stride(), squeezed, n.squeezed_grams.at(reader, u), ahead);
}

/// The products of a layer-0 unit's patch at step `step` - `back`, for that step and the next.
[[gnu::always_inline]] inline void multiply_patch(const HostNetwork& n, std::uint64_t step,
                                                  std::size_t back, std::size_t u,
                                                  simd::Ahead& ahead) {
  auto patch = [&](std::size_t slot, std::size_t b) { return n.past.patch(slot, b, u); };
  multiply_rows(n.past, step, back, n.past.patch_stride(), patch,
                n.patch_grams.at(step + 3 - back, u), ahead);
}

/// Recomputes all products that step `step` will find: after a start or a restart.
struct MultiplyPast {
  const HostNetwork& n;
  std::uint64_t step;

  [[gnu::always_inline]] inline void operator()() const {
    simd::Ahead nothing;
    for (std::size_t u = 0; u < n.net.units.size(); ++u) {
      multiply_hidden(n, step, 1, u, nothing);
      multiply_hidden(n, step, 2, u, nothing);
      if (u < n.past.patches()) multiply_patch(n, step, 1, u, nothing);
    }
  }
};

}  // namespace pvm::inline v0
