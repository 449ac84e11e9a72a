// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The learning coefficients of the layers of a host engine, step by step.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/host_rule.hpp>
#include <pvm/engine/host/step_inputs.hpp>
#include <pvm/engine/host/update_scheme.hpp>
#include <pvm/engine/settled_weights.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0 {

/// The spec's schedule of rates and, for each layer, the coefficients of the listed gradients.
/// `scheme` must outlive it.
class LayerRates {
 public:
  LayerRates(const Spec& spec, const UpdateScheme& scheme, const HostRule& rule)
      : spec_(spec),
        scheme_(scheme),
        rule_(rule),
        schedule_(spec),
        deferred_(spec.layer_shapes.size(), DeferredRates(scheme.plan)),
        updates_(spec.layer_shapes.size()) {}

  [[nodiscard]] std::size_t layers() const noexcept { return deferred_.size(); }

  /// The coefficients of the `steps` steps from `first` on, computed ahead for the whole block. The
  /// object's state is then that after the block. The result is valid until the next call.
  const std::vector<StepRates>& begin_block(std::uint64_t first, std::size_t steps, Mode mode) {
    block_.resize(steps);
    for (std::size_t i = 0; i < steps; ++i) {
      const std::uint64_t t = first + i;
      if (mode == Mode::freeze) {  // the schedule follows the step counter nevertheless
        write(block_[i]);
        schedule_.begin_step(t);
        continue;
      }
      for (DeferredRates& layer : deferred_) layer.begin_step(t);
      write(block_[i]);
      schedule_.begin_step(t);
      for (std::size_t l = 0; l < layers(); ++l) {
        if (scheme_.by_rule && block_[i].folds[l] != 0) ++updates_[l];
        deferred_[l].end_step(t, schedule_.layers()[l]);
      }
      gradient_pending_ = true;
    }
    return block_;
  }

  /// The coefficients that turn Z into the present W: w_j of the listed gradients, or the update
  /// that the next step would make.
  [[nodiscard]] StepRates now() const {
    StepRates rates;
    write(rates);
    return rates;
  }

  /// See Engine.
  void hold(std::size_t layer, std::optional<float> rate) { schedule_.hold(layer, rate); }

  /// Drops the listed gradients and the pending update.
  void forget_gradients() {
    deferred_.assign(layers(), DeferredRates(scheme_.plan));
    std::fill(updates_.begin(), updates_.end(), 0);
    gradient_pending_ = false;
  }

  void save(EngineState& state) const {
    state.rates = schedule_.layers();
    for (std::size_t l = 0; l < layers(); ++l) {
      auto saved = deferred_[l].save();
      if (scheme_.by_rule)
        saved.front() = static_cast<double>(updates_[l]);  // free: nothing is deferred
      state.coefficients.insert(state.coefficients.end(), saved.begin(), saved.end());
    }
  }

  /// Sets the schedule to its start, or to that of `state` if it has rates (then one per layer).
  void restore_schedule(const EngineState& state) {
    schedule_ = RateSchedule(spec_);
    if (!state.rates.empty()) schedule_.restore(state.rates, state.step);
  }

  /// Restores the coefficients of `state`, which a host engine of the same scheme has saved,
  /// exactly.
  void restore(const EngineState& state) {
    gradient_pending_ = true;
    for_each_layer_of(state, [&](std::size_t l, std::vector<double>& saved) {
      if (scheme_.by_rule) {
        constexpr double most = 1ULL << 62;  // of a file, which may say anything
        updates_[l] =
            static_cast<std::uint64_t>(std::clamp(std::exchange(saved.front(), 0.0), 0.0, most));
      }
      return deferred_[l].restore(saved);
    });
  }
  /// Takes over the coefficients of another engine's state, to go with settled_weights()
  /// (engine/settled_weights.hpp).
  void rebase(const EngineState& state) {
    const std::vector<float> momenta = detail::next_momenta(spec_, state.step);
    for_each_layer_of(state, [&](std::size_t l, std::vector<double>& saved) {
      return deferred_[l].rebase(saved, state.plan, state.step, momenta[l]);
    });
  }

 private:
  /// Writes the coefficients of the next step. An update that is still to be made has the rates of
  /// the step before: call it before the schedule moves on.
  void write(StepRates& out) const {
    const auto terms = static_cast<std::size_t>(scheme_.plan.terms);
    const auto period = static_cast<std::size_t>(scheme_.plan.period);
    out.weight.assign(layers() * period * terms, 0.0F);
    out.fold.resize(layers() * terms);
    out.folds.resize(layers());
    out.momentum.resize(layers());
    out.rule.resize(layers());
    for (std::size_t l = 0; l < layers(); ++l) {
      out.momentum[l] = schedule_.layers()[l].momentum;
      if (scheme_.immediate) {
        write_update(out, l);
      } else {
        write_listed(out, l);
      }
    }
  }
  /// For layers that update in every step.
  void write_update(StepRates& out, std::size_t l) const {
    const Rates last = schedule_.layers()[l];
    const bool is_on = schedule_.is_on(l);
    if (scheme_.by_rule) {
      out.rule[l] = rule_.begin_step({last.learning_rate, last.momentum, updates_[l]});
      out.fold[l] = scheme_.sequence_weight;
      out.folds[l] = is_on && gradient_pending_;
    } else {
      out.fold[l] = scheme_.sequence_weight * last.learning_rate;
      out.folds[l] = is_on;
    }
  }
  /// For layers whose updates are deferred.
  void write_listed(StepRates& out, std::size_t l) const {
    const auto terms = static_cast<std::size_t>(scheme_.plan.terms);
    const auto period = static_cast<std::size_t>(scheme_.plan.period);
    out.folds[l] = deferred_[l].any_fold();
    for (std::size_t s = 0; s < terms; ++s) {
      out.fold[l * terms + s] = scheme_.sequence_weight * deferred_[l].fold(s);
      for (std::size_t p = 0; p < period; ++p) {
        out.weight[(l * period + p) * terms + s] =
            scheme_.sequence_weight * deferred_[l].weight(p, s);
      }
    }
  }

  /// Calls take(layer, its saved coefficients) for every layer; throws Error (checkpoint) if one
  /// call returns false.
  template <class Take>
  void for_each_layer_of(const EngineState& state, Take&& take) {
    const std::size_t each = state.coefficients.size() / layers();
    for (std::size_t l = 0; l < layers(); ++l) {
      const auto from = state.coefficients.begin() + static_cast<std::ptrdiff_t>(l * each);
      std::vector<double> saved(from, from + static_cast<std::ptrdiff_t>(each));
      if (!take(l, saved)) {
        throw Error(Fault::checkpoint, "the checkpoint's coefficients do not fit its plan");
      }
    }
  }

  Spec spec_;
  const UpdateScheme& scheme_;
  HostRule rule_;
  RateSchedule schedule_;
  std::vector<DeferredRates> deferred_;  // [layer]
  std::vector<std::uint64_t> updates_;   // [layer]: how many updates a rule has made
  bool gradient_pending_ = false;        // whether a gradient is listed that a rule has not applied
  std::vector<StepRates> block_;
};

}  // namespace pvm::inline v0
