// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The weights with which an engine continues from another engine's state: W(step), to which those
/// listed gradients are added in full that would leave this engine's list before all units have
/// folded them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0::detail {

/// The momentum of each layer in step `step`, the next one.
inline std::vector<float> next_momenta(const Spec& spec, std::uint64_t step) {
  std::vector<float> momenta;
  for (const Rates& layer : rates_before(spec, step + 1)) momenta.push_back(layer.momentum);
  return momenta;
}
/// Whether the momenta of `state` are those of `spec`. The final shares of its listed gradients
/// depend on them: with other momenta the state is treated like that of another engine.
inline bool same_momenta(const EngineState& state, const Spec& spec) {
  const auto same = [](const Rates& a, const Rates& b) { return a.momentum == b.momentum; };
  return std::ranges::equal(state.rates, rates_before(spec, state.step), same);
}

/// Access to the listed gradients of a state. The gradient of age a is that of step
/// `state.step - 1 - a`.
class ListedGradients {
 public:
  /// `state` must be of this network, and its tensors must have the sizes that its plan gives. The
  /// arguments must outlive the object.
  ListedGradients(const EngineState& state, const Spec& spec, const Connectome& net)
      : state_(state),
        net_(net),
        batch_(count(state.batch)),
        hidden_(count(net.hidden)),
        block_(count(spec.input_block_size)),
        line_(block_ * count(spec.input_channels)),
        side_(count(spec.frame_side())) {
    for (const Unit& unit : net.units) {
      output_start_.push_back(outputs_);
      outputs_ += count(unit.outputs);
    }
  }

  /// Adds the gradient of unit u, `age` and sequence b to `weights`, in reference order: that of W0
  /// times `factor0`, that of W1 times `factor1`.
  void add_to(std::span<float> weights, std::size_t u, std::size_t age, std::size_t b,
              float factor0, float factor1) {
    const Unit& unit = net_.units[u];
    const std::size_t row = age * batch_ + b;
    if (factor0 != 0.0F) {
      const float* d0 = state_.hidden_gradients.data() + (row * net_.units.size() + u) * hidden_;
      gather_input(u, age, b);
      add_product(weights.data() + unit.w0, d0, hidden_, factor0);
    }
    if (factor1 != 0.0F) {
      const float* d1 = state_.output_gradients.data() + row * outputs_ + output_start_[u];
      gather_representation(u, age, b);
      add_product(weights.data() + unit.w1, d1, count(unit.outputs), factor1);
    }
  }

 private:
  static std::size_t count(int n) { return static_cast<std::size_t>(n); }

  /// Row `row` of a history `of` (h or c(h)) for sequence b and unit s.
  [[nodiscard]] std::span<const float> values(const std::vector<float>& of, std::size_t row,
                                              std::size_t b, std::size_t s) const {
    return std::span(of).subspan(((row * batch_ + b) * net_.units.size() + s) * hidden_, hidden_);
  }
  void append(std::span<const float> values) { x_.insert(x_.end(), values.begin(), values.end()); }
  /// Appends the patch of a layer-0 unit to x_.
  void append_patch(std::size_t u, std::size_t row, std::size_t b) {
    const Unit& unit = net_.units[u];
    const std::size_t channels = line_ / block_;
    for (std::size_t y = 0; y < block_; ++y) {
      const std::size_t at = (row * batch_ + b) * side_ + count(unit.row) * block_ + y;
      append(std::span(state_.frames)
                 .subspan((at * side_ + count(unit.column) * block_) * channels, line_));
    }
  }
  /// Sets x_ to the x of the gradient: that of two steps before the gradient's step.
  void gather_input(std::size_t u, std::size_t age, std::size_t b) {
    x_.clear();
    for (std::size_t half = 0; half < 2; ++half) {
      if (net_.primary[u].empty()) append_patch(u, age + 2 + half, b);
      for (const auto s : net_.primary[u]) append(values(state_.squeezed, age + 3 + half, b, s));
    }
    for (const auto s : net_.context[u]) append(values(state_.squeezed, age + 3, b, s));
    x_.push_back(1.0F);
  }
  /// Sets x_ to the r of the gradient, also of two steps before.
  void gather_representation(std::size_t u, std::size_t age, std::size_t b) {
    x_.clear();
    append(values(state_.hidden, age + 2, b, u));
    x_.push_back(1.0F);
    if (count(net_.units[u].representation) == x_.size()) return;
    for (const auto s : net_.context[u]) append(values(state_.hidden, age + 3, b, s));
  }
  /// Adds factor * d x_^T to a row-major matrix of `rows` rows, which are as long as x_.
  void add_product(float* matrix, const float* d, std::size_t rows, float factor) const {
    for (std::size_t i = 0; i < rows; ++i, matrix += x_.size()) {
      const float scaled = factor * d[i];
      for (std::size_t k = 0; k < x_.size(); ++k) matrix[k] += scaled * x_[k];
    }
  }

  const EngineState& state_;
  const Connectome& net_;
  std::size_t batch_, hidden_, block_, line_, side_, outputs_ = 0;
  std::vector<std::size_t> output_start_;
  std::vector<float> x_;
};

/// W of `state`, to which the listed gradients are added with their outstanding coefficients (see
/// DeferredRates::outstanding). An engine that continues under its own `plans` starts with these
/// weights. `sequence_weight`: weight of one sequence's gradient in the update.
inline std::vector<float> settled_weights(const EngineState& state, const Spec& spec,
                                          const Connectome& net, float sequence_weight,
                                          const DeferralPlans& plans) {
  std::vector<float> weights = state.weights;
  ListedGradients gradients(state, spec, net);
  const std::size_t layers = state.rates.size(), each = state.coefficients.size() / layers;
  const std::vector<float> momenta = next_momenta(spec, state.step);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const auto from = state.coefficients.begin() + static_cast<std::ptrdiff_t>(layer * each);
    // Both matrices' coefficients are made of the same rates, so those of W0 serve for W1, too.
    const std::vector<double> saved(from, from + static_cast<std::ptrdiff_t>(each));
    const auto gains_of = [&](DeferralPlan next, int listed) {
      return DeferredRates::outstanding(saved, state.plan, state.step, next, momenta[layer],
                                        listed);
    };
    const std::vector<float> gains0 = gains_of(plans.w0, state.plan.terms);
    const std::vector<float> gains1 = gains_of(plans.w1, state.plans().w1.terms);
    for (std::size_t age = 0; age < gains0.size(); ++age) {
      if (gains0[age] == 0.0F && gains1[age] == 0.0F) continue;
      for (std::size_t u = net.layer_start[layer]; u < net.layer_start[layer + 1]; ++u) {
        if (!net.units[u].is_here()) continue;
        for (std::size_t b = 0; b < static_cast<std::size_t>(state.batch); ++b) {
          gradients.add_to(weights, u, age, b, sequence_weight * gains0[age],
                           sequence_weight * gains1[age]);
        }
      }
    }
  }
  return weights;
}

}  // namespace pvm::inline v0::detail
