// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which layer learns at which rate at which step.

#include <cstddef>
#include <cstdint>
#include <optional>
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
  explicit RateSchedule(const Spec& spec) : spec_(spec), rates_(spec.layer_shapes.size()) {}

  /// Makes `layers()` the rates of step `step`; call it once before each step, in order.
  void begin_step(std::uint64_t step) {
    const std::uint64_t delay = spec_.delay_each_layer_learning;
    if (step % delay == 0 && step / delay < rates_.size()) {
      rates_[static_cast<std::size_t>(step / delay)] = {
          static_cast<float>(spec_.initial_learning_rate), static_cast<float>(spec_.momentum)};
    }
    if (spec_.delay_final_learning_rate == step) set_all(spec_.final_learning_rate);
    if (spec_.delay_intermediate_learning_rate == step) set_all(spec_.intermediate_learning_rate);
  }

  [[nodiscard]] const std::vector<Rates>& layers() const noexcept { return rates_; }
  /// Restores rates saved with a checkpoint.
  void restore(std::vector<Rates> rates) { rates_ = std::move(rates); }

 private:
  void set_all(double learning_rate) {  // momentum is not touched
    for (Rates& rates : rates_) rates.learning_rate = static_cast<float>(learning_rate);
  }

  Spec spec_;
  std::vector<Rates> rates_;
};

}  // namespace pvm::inline v0
