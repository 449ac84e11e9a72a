// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What an engine that computes only some of the units sends the others, and what it does with what
/// they send: it puts that into its past, as if it had computed it.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/past.hpp>
#include <pvm/engine/unit_exchange.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0 {

/// What units send: their hidden values, and the inner products of these with their past, as far as
/// they are needed. The products could be computed from the values, but every rank would read the
/// past of all units for them: that took 4 % of a step of small on each of two ranks.
class SharedUnits {
 public:
  SharedUnits(const HostNetwork& network, UnitExchange& exchange)
      : n_(network),
        exchange_(exchange),
        hidden_(n_.past.hidden()),
        products_(n_.past.terms() * n_.past.batch() * n_.past.batch()),
        squeezed_products_(!n_.updates_immediately()),
        raw_products_(squeezed_products_ && n_.spec.feed_context_in_complex_layer) {
    const std::size_t kinds = (squeezed_products_ ? 1U : 0U) + (raw_products_ ? 1U : 0U);
    exchange.prepare(n_.past.batch() * hidden_ + kinds * products_);
  }

  /// Begins to send what the units that are computed here have to send of step `t`.
  void send(std::uint64_t t) {
    const std::size_t now = n_.past.slot(t, 0);
    for (std::size_t u = exchange_.first(); u < exchange_.end(); ++u) {
      float* to = exchange_.values(u);
      for (std::size_t b = 0; b < n_.past.batch(); ++b)
        to = std::copy_n(n_.past.raw(now, b, u), hidden_, to);
      if (squeezed_products_) to = std::copy_n(n_.squeezed_products.at(t + 1, u), products_, to);
      if (raw_products_) std::copy_n(n_.raw_products.at(t + 1, u), products_, to);
    }
    exchange_.start();
  }

  /// Takes what unit `u` has sent of step `t`, if it is computed elsewhere.
  [[gnu::always_inline]] inline void take(std::uint64_t t, std::size_t u) const {
    if (exchange_.has(u)) return;
    const std::size_t now = n_.past.slot(t, 0);
    const float* from = exchange_.values(u);
    for (std::size_t b = 0; b < n_.past.batch(); ++b, from += hidden_) {
      float* raw = n_.past.raw(now, b, u);
      float* squeezed = n_.past.squeezed(now, b, u);
      for (std::size_t i = 0; i < hidden_; ++i) {
        raw[i] = from[i];
        squeezed[i] = squeeze(from[i]);
      }
    }
    if (squeezed_products_) {
      std::copy_n(from, products_, n_.squeezed_products.at(t + 1, u));
      from += products_;
    }
    if (raw_products_) std::copy_n(from, products_, n_.raw_products.at(t + 1, u));
  }
  [[nodiscard]] std::size_t units() const { return n_.net.units.size(); }

 private:
  const HostNetwork& n_;
  UnitExchange& exchange_;
  std::size_t hidden_, products_;  // of a unit: values of a sequence; products of one kind
  bool squeezed_products_, raw_products_;
};

/// Takes what all other units have sent of step `t`: thread `thread`'s part of this. A callable for
/// simd::for_best_isa, so that values are squeezed by the same instructions as in the step of a
/// unit.
struct TakeUnits {
  const SharedUnits& shared;
  std::uint64_t t;
  std::size_t thread, threads;

  [[gnu::always_inline]] inline void operator()() const {
    for (std::size_t u = thread; u < shared.units(); u += threads) shared.take(t, u);
  }
};

}  // namespace pvm::inline v0
