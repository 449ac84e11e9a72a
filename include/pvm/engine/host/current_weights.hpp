// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Computes W(step) of a host engine, which does not store it: from the stored weights Z and the
/// gradients that Z does not contain yet.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/past.hpp>
#include <pvm/engine/host/scratch.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/engine/host/step_inputs.hpp>
#include <pvm/engine/host/weight_layout.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0 {

/// Adds to a copy of a unit's stored weights what is still missing in them.
class CurrentWeights {
 public:
  /// `step`: the number of steps done. `rates`: LayerRates::now().
  CurrentWeights(const HostNetwork& network, Scratch& scratch, const StepRates& rates,
                 std::uint64_t step)
      : n_(network), s_(scratch), rates_(rates), step_(step) {}

  /// Turns `z`, Z of unit u in the engine's layout, into W. `velocity`: the momentum array of all
  /// units, or null.
  void add_to(float* z, std::size_t u, const float* velocity) const {
    if (n_.rule.apply != nullptr) return apply_rule_to(z, u);
    if (velocity != nullptr) add_velocity(z, u, velocity);
    add_gradients(z, u);
  }

 private:
  [[nodiscard]] std::size_t layer(std::size_t u) const {
    return static_cast<std::size_t>(n_.net.units[u].layer);
  }

  void add_velocity(float* z, std::size_t u, const float* velocity) const {
    const float momentum = rates_.momentum[layer(u)];
    const std::size_t first = n_.layout[u].w0;
    n_.layout.for_each_weight_of(
        u, [&](std::size_t, std::size_t own) { z[own - first] += momentum * velocity[own]; });
  }

  void add_gradients(float* z, std::size_t u) const {
    const std::size_t terms = n_.past.terms();
    const auto period = static_cast<std::size_t>(n_.plan.period);
    for (std::size_t slot = 0; slot < terms; ++slot) {
      const float w = n_.updates_immediately()
                          ? rates_.fold[layer(u)]
                          : rates_.weight[(layer(u) * period + u % period) * terms + slot];
      const auto age = static_cast<std::size_t>((step_ + terms - 1 - slot) % terms);
      for (std::size_t b = 0; b < n_.past.batch() && w != 0.0F; ++b) {
        add_gradient(z, u, slot, age, b, w);
      }
    }
  }

  /// Makes the update of unit u that the next step would make, with a copy of the rule's state.
  void apply_rule_to(float* z, std::size_t u) const {
    if (rates_.folds[layer(u)] == 0) return;
    const UnitWeights& at = n_.layout[u];
    const auto rows = static_cast<std::size_t>(n_.net.units[u].representation);
    const std::size_t size = at.w1 - at.w0 + rows * at.w1_columns;
    HugeArray gradient(size);
    for (std::size_t b = 0; b < n_.past.batch(); ++b) {
      add_gradient(gradient.data(), u, 0, 0, b, rates_.fold[layer(u)]);
    }
    const auto arrays = static_cast<std::size_t>(n_.rule.state);
    HugeArray state(size * arrays);
    for (std::size_t k = 0; k < arrays; ++k) {
      const float* from = n_.rule_state.data() + k * n_.layout.size() + at.w0;
      std::copy_n(from, size, state.data() + k * size);
    }
    n_.rule.apply(z, state.data(), size, gradient.data(), size, rates_.rule[layer(u)]);
  }

  /// Adds factor * (unit u's gradient of sequence b in `slot` of the list) to its weights at `w`,
  /// W0 first.
  void add_gradient(float* w, std::size_t u, std::size_t slot, std::size_t age, std::size_t b,
                    float factor) const {
    Past& past = n_.past;
    const UnitWeights& at = n_.layout[u];
    past.gather_input(step_, 3 + age, b, u, s_.x.data());
    const float* d0 = past.d0(slot, b, u);
    for (std::size_t i = 0; i < past.hidden(); ++i) {
      add_row(w, past.hidden(), at.w0_columns, i, factor * d0[i], s_.x.data());
    }
    past.gather_representation(step_, 3 + age, b, u, s_.r.data());
    const auto rows = static_cast<std::size_t>(n_.net.units[u].representation);
    const float* d1 = past.d1(slot, b, u);
    for (std::size_t i = 0; i < rows; ++i) {
      add_row(w + (at.w1 - at.w0), rows, at.w1_columns, i, factor * s_.r.data()[i], d1);
    }
  }

  /// Adds factor * x to row r of a tiled matrix.
  void add_row(float* matrix, std::size_t rows, std::size_t columns, std::size_t r, float factor,
               const float* x) const {
    for (std::size_t c = 0; c < columns; c += simd::width) {
      simd::at(matrix + simd::tiled_index(rows, columns, r, c, n_.layout.group())) +=
          factor * simd::at(x + c);
    }
  }

  const HostNetwork& n_;
  Scratch& s_;
  const StepRates& rates_;
  std::uint64_t step_;
};

}  // namespace pvm::inline v0
