// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One step of one unit, for all sequences of the batch: docs/model.md, "One step t", with the last
/// updates of the weights kept as factors (unit/deferred.hpp).

#include <cstddef>
#include <cstdint>

#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/output_work.hpp>
#include <pvm/engine/host/past_products.hpp>
#include <pvm/engine/host/scratch.hpp>
#include <pvm/engine/host/step_inputs.hpp>
#include <pvm/engine/host/unit_portions.hpp>

namespace pvm::inline v0 {

/// The step of a unit. `Precision`: of the weights that products read. `Hidden`: the number of
/// hidden values, or `dynamic`.
template <class Precision, int Hidden>
class UnitStep : OutputWork<Precision, Hidden> {
  using Base = OutputWork<Precision, Hidden>;

 public:
  using typename Base::Weights;

  UnitStep(const HostNetwork& network, Weights& weights, Scratch& scratch)
      : Base(network, weights, scratch) {}

  /// Step `t` of unit `u`. Unit `next` will follow it, or none if `next` is no unit number.
  [[gnu::always_inline]] inline void operator()(std::uint64_t t, std::size_t u, std::size_t next,
                                                const StepFrames& frames, const StepRates& rates,
                                                Mode mode) {
    Base::begin(t, u, next, rates, mode);
    Base::gather_input(frames);
    Base::compute_hidden();
    compute_hidden_products(Base::n_, t, 0, u, Base::prefetcher_);
    Base::compute_errors(frames.scored);
    Base::compute_outputs();
    if (mode == Mode::learn) Base::list_gradient();
  }
};

/// One thread's part of a step: a callable for simd::for_best_isa.
template <class Step>
struct StepUnits {
  Step& unit_step;
  UnitPortions& portions;
  std::size_t thread;
  std::size_t i;  ///< number of the step in its block
  std::uint64_t t;
  StepFrames frames;
  const StepRates& rates;
  Mode mode;

  [[gnu::always_inline]] inline void operator()() const {
    // A thread takes its next unit before it works on the present one, so that the prefetcher knows
    // which weights follow.
    std::size_t now = portions.take(thread, i, t);
    while (now < portions.units()) {
      const std::size_t then = portions.take(thread, i, t);
      unit_step(t, now, then, frames, rates, mode);
      now = then;
    }
  }
};

}  // namespace pvm::inline v0
