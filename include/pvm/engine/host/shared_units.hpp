// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What an engine that computes only some of the units does with what the others send: it puts
/// their hidden values into its past, as if it had computed them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/past_products.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/engine/unit_exchange.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0 {

/// By unit: whether a unit that is computed here reads its hidden values.
inline std::vector<char> units_read(const Connectome& net) {
  std::vector<char> read(net.units.size());
  for (std::size_t u = 0; u < net.units.size(); ++u) {
    if (!net.units[u].is_here()) continue;
    for (const auto s : net.primary[u]) read[s] = 1;
    for (const auto s : net.context[u]) read[s] = 1;
  }
  return read;
}

/// Begins to send the hidden values of step `t` of the units that are computed here.
inline void send_units(const HostNetwork& n, UnitExchange& exchange, std::uint64_t t) {
  const std::size_t now = n.past.slot(t, 0);
  for (std::size_t u = exchange.first(); u < exchange.end(); ++u) {
    for (std::size_t b = 0; b < n.past.batch(); ++b) {
      std::copy_n(n.past.raw(now, b, u), n.past.hidden(), exchange.values(u) + b * n.past.hidden());
    }
  }
  exchange.start();
}

/// Puts the hidden values of step `t` of all other units into the past, and computes the inner
/// products of those that are read here: thread `thread`'s part of this. A callable for
/// simd::for_best_isa, so that values are squeezed by the same instructions as in the step of a
/// unit.
struct TakeUnits {
  const HostNetwork& n;
  UnitExchange& exchange;
  const std::vector<char>& needed;  ///< units_read
  std::uint64_t t;
  std::size_t thread, threads;

  [[gnu::always_inline]] inline void operator()() const {
    simd::Prefetcher nothing;
    for (std::size_t u = thread; u < n.net.units.size(); u += threads) {
      if (exchange.has(u)) continue;
      take(u);
      if (needed[u] != 0) compute_hidden_products(n, t, 0, u, nothing);
    }
  }

 private:
  [[gnu::always_inline]] inline void take(std::size_t u) const {
    const std::size_t now = n.past.slot(t, 0);
    for (std::size_t b = 0; b < n.past.batch(); ++b) {
      const float* from = exchange.values(u) + b * n.past.hidden();
      float* raw = n.past.raw(now, b, u);
      float* squeezed = n.past.squeezed(now, b, u);
      for (std::size_t i = 0; i < n.past.hidden(); ++i) {
        raw[i] = from[i];
        squeezed[i] = squeeze(from[i]);
      }
    }
  }
};

}  // namespace pvm::inline v0
