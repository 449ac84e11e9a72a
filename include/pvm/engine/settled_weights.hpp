// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The weights of another engine's state, with what its gradients have yet to become where a
/// shorter list cannot wait for that.

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

/// The momentum of each layer in step `step`.
inline std::vector<float> coming_momenta(const Spec& spec, std::uint64_t step) {
  std::vector<float> momenta;
  for (const Rates& layer : rates_before(spec, step + 1)) momenta.push_back(layer.momentum);
  return momenta;
}
/// Whether `state` was made with the momenta of `spec`. Its listed gradients are folded as what
/// they become by those: under others they are settled like another engine's.
inline bool same_momenta(const EngineState& state, const Spec& spec) {
  const auto same = [](const Rates& a, const Rates& b) { return a.momentum == b.momentum; };
  return std::ranges::equal(state.rates, rates_before(spec, state.step), same);
}

/// The gradients of a state, one by one: a unit's in the step that is `age` steps before the last.
class ListedGradients {
 public:
  /// `state` is of this network, and its tensors have the sizes that its plan gives.
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

  /// `weights`, in reference order, += factor times unit u's of sequence b.
  void add_to(std::span<float> weights, std::size_t u, std::size_t age, std::size_t b,
              float factor) {
    const Unit& unit = net_.units[u];
    const std::size_t row = age * batch_ + b;
    const float* d0 = state_.hidden_gradients.data() + (row * net_.units.size() + u) * hidden_;
    gather_input(u, age, b);
    add_product(weights.data() + unit.w0, d0, hidden_, factor);
    const float* d1 = state_.output_gradients.data() + row * outputs_ + output_start_[u];
    gather_representation(u, age, b);
    add_product(weights.data() + unit.w1, d1, count(unit.outputs), factor);
  }

 private:
  static std::size_t count(int n) { return static_cast<std::size_t>(n); }

  /// h or c(h) of unit s, `row` steps before the last one.
  [[nodiscard]] std::span<const float> values(const std::vector<float>& of, std::size_t row,
                                              std::size_t b, std::size_t s) const {
    return std::span(of).subspan(((row * batch_ + b) * net_.units.size() + s) * hidden_, hidden_);
  }
  void append(std::span<const float> values) { x_.insert(x_.end(), values.begin(), values.end()); }
  /// The patch of a layer-0 unit.
  void append_patch(std::size_t u, std::size_t row, std::size_t b) {
    const Unit& unit = net_.units[u];
    const std::size_t channels = line_ / block_;
    for (std::size_t y = 0; y < block_; ++y) {
      const std::size_t at = (row * batch_ + b) * side_ + count(unit.row) * block_ + y;
      append(std::span(state_.frames)
                 .subspan((at * side_ + count(unit.column) * block_) * channels, line_));
    }
  }
  /// x of two steps before the gradient's: that is what it was made with.
  void gather_input(std::size_t u, std::size_t age, std::size_t b) {
    x_.clear();
    for (std::size_t half = 0; half < 2; ++half) {
      if (net_.primary[u].empty()) append_patch(u, age + 2 + half, b);
      for (const auto s : net_.primary[u]) append(values(state_.squeezed, age + 3 + half, b, s));
    }
    for (const auto s : net_.context[u]) append(values(state_.squeezed, age + 3, b, s));
    x_.push_back(1.0F);
  }
  /// And its r.
  void gather_representation(std::size_t u, std::size_t age, std::size_t b) {
    x_.clear();
    append(values(state_.hidden, age + 2, b, u));
    x_.push_back(1.0F);
    if (count(net_.units[u].representation) == x_.size()) return;
    for (const auto s : net_.context[u]) append(values(state_.hidden, age + 3, b, s));
  }
  /// A matrix of `rows` rows as long as x += factor d x^T.
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

/// W of `state`, each of whose listed gradients has gained what DeferredRates calls outstanding: an
/// engine that goes on by its own `plan` begins with these weights. `share` is of a sequence in the
/// update.
inline std::vector<float> settled_weights(const EngineState& state, const Spec& spec,
                                          const Connectome& net, float share, DeferralPlan plan) {
  std::vector<float> weights = state.weights;
  ListedGradients gradients(state, spec, net);
  const std::size_t layers = state.rates.size(), each = state.coefficients.size() / layers;
  const std::vector<float> momenta = coming_momenta(spec, state.step);
  for (std::size_t layer = 0; layer < layers; ++layer) {
    const auto from = state.coefficients.begin() + static_cast<std::ptrdiff_t>(layer * each);
    const std::vector<float> gains =
        DeferredRates::outstanding({from, from + static_cast<std::ptrdiff_t>(each)}, state.plan,
                                   state.step, plan, momenta[layer]);
    for (std::size_t age = 0; age < gains.size(); ++age) {
      if (gains[age] == 0.0F) continue;
      for (std::size_t u = net.layer_start[layer]; u < net.layer_start[layer + 1]; ++u) {
        for (std::size_t b = 0; b < static_cast<std::size_t>(state.batch); ++b) {
          gradients.add_to(weights, u, age, b, share * gains[age]);
        }
      }
    }
  }
  return weights;
}

}  // namespace pvm::inline v0::detail
