// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The inner products of a unit's newest values that the steps after it need.

#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>
#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/past.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0 {

/// The products of a unit's values of one step with those of three steps and more before it,
/// [b][age][b'].
struct RowProducts {
  const Past& past;
  Past::Ring values;
  std::size_t now;  ///< slot of the step
  float* out;
  simd::Ahead& ahead;

  [[gnu::always_inline]] inline void operator()() const {
    float* to = out;
    for (std::size_t b = 0; b < past.batch(); ++b) {
      for (std::size_t age = 0; age < past.terms(); ++age) {
        ahead.pull(8);
        const std::size_t then = past.slot(now, 3 + age);
        for (std::size_t c = 0; c < past.batch(); ++c)
          *to++ = simd::dot(values.row(now, b), values.row(then, c), values.length);
      }
    }
  }
};

/// The same code for steps and for restarts: copies in files that are compiled with other flags may
/// round otherwise (-O2 makes one operation of a product and a sum, -O1 does not), and a run that
/// is resumed would not continue bit by bit.
PVM_ONE_COPY inline void multiply_rows(const RowProducts& products) {
  simd::for_best_isa(products);
}

/// What step `step` - `back` leaves for the next one: the products of the unit's hidden values.
inline void multiply_hidden(const HostNetwork& n, std::uint64_t step, std::size_t back,
                            std::size_t u, simd::Ahead& ahead) {
  Past& past = n.past;
  const std::uint64_t reader = step + 4 - back;  // that is step + 1 - back, kept positive
  const std::size_t now = past.slot(step, back);
  multiply_rows({past, past.raw_ring(u), now, n.raw_grams.at(reader, u), ahead});
  multiply_rows({past, past.squeezed_ring(u), now, n.squeezed_grams.at(reader, u), ahead});
}

/// The products of a layer-0 unit's patch at step `step` - `back`, for that step and the next.
inline void multiply_patch(const HostNetwork& n, std::uint64_t step, std::size_t back,
                           std::size_t u, simd::Ahead& ahead) {
  Past& past = n.past;
  multiply_rows({past, past.patch_ring(u), past.slot(step, back),
                 n.patch_grams.at(step + 3 - back, u), ahead});
}

/// Recomputes all products that step `step` will find: after a start or a restart.
inline void multiply_past(const HostNetwork& n, std::uint64_t step) {
  simd::Ahead nothing;
  for (std::size_t u = 0; u < n.net.units.size(); ++u) {
    multiply_hidden(n, step, 1, u, nothing);
    multiply_hidden(n, step, 2, u, nothing);
    if (u < n.past.patches()) multiply_patch(n, step, 1, u, nothing);
  }
}

}  // namespace pvm::inline v0
