// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The inner products of a unit's newest values with its past, which later steps need for their
/// corrections.

#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>
#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/past.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0 {

/// Computes the inner products of a unit's values of one step with its values of 3 + age steps
/// before, [b][age][b'].
struct RowProducts {
  const Past& past;
  Past::Ring values;
  std::size_t now;  ///< slot of the step
  float* out;       ///< [b][age][b']
  simd::Prefetcher& prefetcher;

  [[gnu::always_inline]] inline void operator()() const {
    float* to = out;
    for (std::size_t b = 0; b < past.batch(); ++b) {
      for (std::size_t age = 0; age < past.terms(); ++age) {
        prefetcher.prefetch(8);
        const std::size_t then = past.slot(now, 3 + age);
        for (std::size_t c = 0; c < past.batch(); ++c)
          *to++ = simd::dot(values.row(now, b), values.row(then, c), values.length);
      }
    }
  }
};

/// Steps and restarts share one copy of this code. Copies in files that are compiled with other
/// flags may round differently (-O2 contracts a product and a sum into one operation, -O1 does
/// not), and a resumed run would not continue bit by bit.
PVM_ONE_COPY inline void compute_products(const RowProducts& products) {
  simd::for_best_isa(products);
}

/// The products of the unit's hidden values of step `step` - `back`. They are stored under the
/// number of the step after that (see HostNetwork). The unit itself reads the raw ones at once; the
/// units that it feeds read them in the next step and, for the B half of x, in the one after it.
/// Does nothing if no gradients are listed, which alone need the products.
inline void compute_hidden_products(const HostNetwork& n, std::uint64_t step, std::size_t back,
                                    std::size_t u, simd::Prefetcher& prefetcher) {
  if (n.updates_immediately()) return;
  Past& past = n.past;
  const std::uint64_t reader = step + 4 - back;  // that is step + 1 - back, kept positive
  const std::size_t now = past.slot(step, back);
  compute_products({past, past.raw_ring(u), now, n.raw_products.at(reader, u), prefetcher});
  compute_products(
      {past, past.squeezed_ring(u), now, n.squeezed_products.at(reader, u), prefetcher});
}

/// The products of a layer-0 unit's patch of step `step` - `back`, which that step and the next
/// read.
inline void compute_patch_products(const HostNetwork& n, std::uint64_t step, std::size_t back,
                                   std::size_t u, simd::Prefetcher& prefetcher) {
  if (n.updates_immediately()) return;
  Past& past = n.past;
  compute_products({past, past.patch_ring(u), past.slot(step, back),
                    n.patch_products.at(step + 3 - back, u), prefetcher});
}

/// Recomputes all products that step `step` reads from earlier steps, after a start or a restart.
inline void restore_products(const HostNetwork& n, std::uint64_t step) {
  simd::Prefetcher nothing;
  for (std::size_t u = 0; u < n.net.units.size(); ++u) {
    compute_hidden_products(n, step, 1, u, nothing);
    compute_hidden_products(n, step, 2, u, nothing);
    if (u < n.past.patches()) compute_patch_products(n, step, 1, u, nothing);
  }
}

}  // namespace pvm::inline v0
