// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One step of one unit, for all sequences of the batch: docs/model.md, "One step t", with the last
/// updates of the weights kept as factors (unit/deferred.hpp).

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/output_work.hpp>
#include <pvm/engine/host/past_products.hpp>
#include <pvm/engine/host/scratch.hpp>
#include <pvm/engine/host/step_inputs.hpp>
#include <pvm/engine/host/unit_portions.hpp>
#include <pvm/engine/unit_exchange.hpp>

namespace pvm::inline v0 {

/// The parts of a unit's step that are computed at once: all, or those up to the hidden values,
/// which other units wait for, or those after them.
enum class StepPart { whole, hidden, outputs };

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
                                                Mode mode, StepPart part = StepPart::whole) {
    Base::begin(t, u, next, rates, mode);
    Base::gather_input(frames, part != StepPart::outputs);
    if (part != StepPart::outputs) {
      Base::compute_hidden();
      compute_hidden_products(Base::n_, t, 0, u, Base::prefetcher_);
    }
    if (part == StepPart::hidden) return;
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
  UnitExchange* exchange = nullptr;  ///< if other engines compute some of the units
  bool outputs_only = false;         ///< the outputs of split units, while `exchange` is going on

  [[gnu::always_inline]] inline void operator()() const {
    // A thread takes its next unit before it works on the present one, so that the prefetcher knows
    // which weights follow.
    std::size_t now = take();
    while (now < portions.units()) {
      const std::size_t then = take();
      const StepPart part = outputs_only              ? StepPart::outputs
                            : portions.splits(now, t) ? StepPart::hidden
                                                      : StepPart::whole;
      const auto began = clock();
      unit_step(t, now, then, frames, rates, mode, part);
      if (began) note_time(now, *began);
      if (outputs_only && thread == 0) exchange->progress();
      now = then;
    }
  }

 private:
  using Clock = std::chrono::steady_clock;

  [[nodiscard]] std::size_t take() const {
    return outputs_only ? portions.take_split(thread, i, t) : portions.take(thread, i, t);
  }
  [[nodiscard]] std::optional<Clock::time_point> clock() const {
    if (exchange == nullptr || exchange->seconds.empty()) return std::nullopt;
    return Clock::now();
  }
  void note_time(std::size_t unit, Clock::time_point began) const {
    const std::chrono::duration<float> time = Clock::now() - began;
    exchange->seconds[unit].push_back(time.count());
  }
};

}  // namespace pvm::inline v0
