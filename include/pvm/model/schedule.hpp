// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which layer learns at which rate at which step.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// Learning rate and momentum of a layer. Both are 0 until the layer is switched on.
struct Rates {
  float learning_rate = 0;
  float momentum = 0;
  bool operator==(const Rates&) const = default;
};

/// `spec` with one learning rate from the start to the end, layer l learning from step l.
inline Spec at_constant_rate(Spec spec, double rate) {
  spec.initial_learning_rate = rate;
  spec.delay_each_layer_learning = 1;
  spec.delay_final_learning_rate = spec.delay_intermediate_learning_rate = std::nullopt;
  return spec;
}

/// The rates of every layer. They are a state, not a function of the step: a layer that is switched
/// on late overwrites a final rate that came before.
class RateSchedule {
 public:
  explicit RateSchedule(const Spec& spec)
      : spec_(spec), rates_(spec.layer_shapes.size()), on_(rates_.size()) {}

  /// Makes `layers()` the rates of step `step`; call it once before each step, in order.
  void begin_step(std::uint64_t step) {
    if (std::exchange(restored_, false)) skip_to(step);
    change_at(step);
  }

  [[nodiscard]] const std::vector<Rates>& layers() const noexcept { return rates_; }
  /// Whether the layer has had rates by now, be they 0: before that it has nothing to update.
  [[nodiscard]] bool is_on(std::size_t layer) const { return on_[layer]; }

  /// Makes `layers()` the rates before step `step`, as if all steps before it had begun.
  void skip_to(std::uint64_t step) {
    std::fill(rates_.begin(), rates_.end(), Rates{});
    for (const std::uint64_t change : changes()) {
      if (change < step) change_at(change);
    }
  }

  /// Restores the rates of the last step of a checkpoint that has made `step` steps. Those of the
  /// next are the spec's, which may be another one than the checkpoint's.
  void restore(std::vector<Rates> rates, std::uint64_t step) {
    skip_to(step);
    rates_ = std::move(rates);
    for (std::size_t l = 0; l < on_.size(); ++l) on_[l] = on_[l] || rates_[l] != Rates{};
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

  void set_all(double learning_rate) {  // momentum is not touched
    for (Rates& rates : rates_) rates.learning_rate = static_cast<float>(learning_rate);
    on_.assign(on_.size(), true);
  }

  Spec spec_;
  std::vector<Rates> rates_;
  std::vector<bool> on_;
  bool restored_ = false;
};

/// The rates before step `step` of a run of `spec`.
inline std::vector<Rates> rates_before(const Spec& spec, std::uint64_t step) {
  RateSchedule schedule(spec);
  schedule.skip_to(step);
  return schedule.layers();
}

}  // namespace pvm::inline v0
