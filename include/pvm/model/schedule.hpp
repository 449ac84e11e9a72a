// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The schedule of rates: the learning rate and momentum of each layer at each step.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <pvm/model/spec.hpp>
#include <pvm/unit/rates.hpp>

namespace pvm::inline v0 {

/// `spec` with the same learning rate from start to end; layer l learns from step l on.
inline Spec at_constant_rate(Spec spec, double rate) {
  spec.initial_learning_rate = rate;
  spec.delay_each_layer_learning = 1;
  spec.delay_final_learning_rate = spec.delay_intermediate_learning_rate = std::nullopt;
  spec.final_learning_rate = spec.intermediate_learning_rate = 0;
  return spec;
}

/// The rates of every layer. They are a state, not a function of the step: if a layer is switched
/// on after the final rate was set, it gets the initial rate again.
class RateSchedule {
 public:
  explicit RateSchedule(const Spec& spec)
      : spec_(spec),
        rates_(spec.layer_shapes.size()),
        on_(rates_.size()),
        held_(rates_.size()),
        current_(rates_),
        current_on_(on_) {}

  /// Makes `layers()` the rates of step `step`. Call it once before each step, in order.
  void begin_step(std::uint64_t step) {
    if (std::exchange(restored_, false)) skip_to(step);
    change_at(step);
    show();
    for (std::size_t l = 0; l < held_.size(); ++l) {
      if (!held_[l]) continue;
      current_[l].learning_rate = *held_[l];
      if (*held_[l] != 0) current_on_[l] = true;
    }
  }

  /// From the next `begin_step` on, the layer has this learning rate, whatever the schedule says;
  /// without a value it has the schedule's again. Its momentum is the schedule's in any case.
  void hold(std::size_t layer, std::optional<float> rate) { held_[layer] = rate; }

  /// The current rates, one for each layer.
  [[nodiscard]] const std::vector<Rates>& layers() const noexcept { return current_; }
  /// Whether the layer's rates have been set, even to 0. Before that it has nothing to update.
  [[nodiscard]] bool is_on(std::size_t layer) const { return current_on_[layer]; }

  /// Makes `layers()` the rates that a run from step 0 has just before step `step`.
  void skip_to(std::uint64_t step) {
    std::fill(rates_.begin(), rates_.end(), Rates{});
    for (const std::uint64_t change : changes()) {
      if (change < step) change_at(change);
    }
    show();
  }

  /// Sets the rates that a checkpoint has after `step` steps, as `layers()` shows them until the
  /// next `begin_step`. From then on the rates are those of this object's spec, which may differ
  /// from the checkpoint's.
  void restore(std::vector<Rates> rates, std::uint64_t step) {
    skip_to(step);
    rates_ = std::move(rates);
    for (std::size_t l = 0; l < on_.size(); ++l) on_[l] = on_[l] || rates_[l] != Rates{};
    show();
    restored_ = true;
  }

 private:
  /// The steps at which rates change, in order, each once.
  [[nodiscard]] std::set<std::uint64_t> changes() const {
    std::set<std::uint64_t> steps;
    for (std::uint64_t layer = 0; layer < rates_.size(); ++layer) {
      steps.insert(layer * spec_.delay_each_layer_learning);
    }
    if (spec_.delay_final_learning_rate) steps.insert(*spec_.delay_final_learning_rate);
    if (spec_.delay_intermediate_learning_rate) {
      steps.insert(*spec_.delay_intermediate_learning_rate);
    }
    return steps;
  }

  /// Makes the schedule's rates the current ones.
  void show() {
    current_ = rates_;
    current_on_ = on_;
  }

  /// Applies the changes of step `step`, if there are any.
  void change_at(std::uint64_t step) {
    const std::uint64_t delay = spec_.delay_each_layer_learning;
    if (step % delay == 0 && step / delay < rates_.size()) {
      const auto layer = static_cast<std::size_t>(step / delay);
      rates_[layer] = {static_cast<float>(spec_.initial_learning_rate),
                       static_cast<float>(spec_.momentum)};
      on_[layer] = true;
    }
    if (spec_.delay_final_learning_rate == step) set_all(spec_.final_learning_rate);
    if (spec_.delay_intermediate_learning_rate == step) set_all(spec_.intermediate_learning_rate);
  }

  void set_all(double learning_rate) {  // leaves the momentum unchanged
    for (Rates& rates : rates_) rates.learning_rate = static_cast<float>(learning_rate);
    on_.assign(on_.size(), true);
  }

  Spec spec_;
  std::vector<Rates> rates_;  // by the spec
  std::vector<bool> on_;      // likewise, see is_on
  std::vector<std::optional<float>> held_;
  std::vector<Rates> current_;  // see layers
  std::vector<bool> current_on_;
  bool restored_ = false;  // the next begin_step computes all rates anew
};

/// The rates that a run of `spec` has just before step `step`, one for each layer.
inline std::vector<Rates> rates_before(const Spec& spec, std::uint64_t step) {
  RateSchedule schedule(spec);
  schedule.skip_to(step);
  return schedule.layers();
}

}  // namespace pvm::inline v0
