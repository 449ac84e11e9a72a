// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Random valid specs, drawn from a seed: combinations of sizes and options that no other test has.

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <iterator>
#include <random>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm_test {

/// Random draws from one seed, the same on every machine.
class Draws {
 public:
  explicit Draws(std::uint64_t seed) : random_(seed) {}

  /// A number from `least` to `most`, both included.
  int number(int least, int most) {
    return least + static_cast<int>(random_() % static_cast<std::uint64_t>(most - least + 1));
  }
  bool chance(int percent) { return number(1, 100) <= percent; }
  template <class T>
  T one_of(std::initializer_list<T> values) {
    return *std::next(values.begin(), number(0, static_cast<int>(values.size()) - 1));
  }

 private:
  std::mt19937_64 random_;
};

/// A valid spec with random shapes, wiring, activation and rates. `hidden`: side of a unit's square
/// of hidden values, or 0 for any. Rates are so low that rounding errors do not grow from step to
/// step.
inline pvm::Spec random_spec(std::uint64_t seed, int hidden = 0) {
  Draws draw(seed);
  for (;;) {
    pvm::Spec s;
    s.name = "random " + std::to_string(seed);
    int side = draw.number(1, 5);
    for (int layers = draw.number(1, 4); layers > 0; --layers) {
      s.layer_shapes.push_back(side);
      side = std::max(1, side - draw.number(0, 2));
    }
    s.input_block_size = draw.number(1, 6);
    s.input_channels = draw.one_of({1, 3});
    s.hidden_block_size = hidden > 0 ? hidden : draw.number(1, 8);
    s.fan_in_square_size = draw.number(1, 3);
    s.fan_in_radius = draw.one_of({0.0, 1.0, 1.5, 2.0, 5.0});
    s.lateral_radius = draw.number(0, 3);
    s.context_exclude_self = draw.chance(30);
    s.send_context_two_layers_back = draw.chance(50);
    s.last_layer_context_to_all = draw.chance(50);
    s.feed_context_in_complex_layer = draw.chance(20);
    s.activation =
        draw.chance(70) ? pvm::ActivationKind::polynomial : pvm::ActivationKind::logistic;
    s.true_derivative = s.activation == pvm::ActivationKind::polynomial && draw.chance(30);
    s.momentum = draw.one_of({0.0, 0.1, 0.1, 0.3, 0.5, 0.95});
    s.initial_learning_rate = draw.one_of({1e-4, 2e-3});
    s.delay_each_layer_learning = static_cast<std::uint64_t>(draw.number(1, 5));
    const auto switched = [&] { return static_cast<std::uint64_t>(draw.number(1, 10)); };
    if (draw.chance(30)) s.delay_final_learning_rate = switched();
    if (draw.chance(30)) s.delay_intermediate_learning_rate = switched();
    s.final_learning_rate = 1e-3;
    s.intermediate_learning_rate = 5e-4;
    try {  // may fail: for example, a unit may have no source within its radius
      pvm::validate(s, s.name);
      (void)pvm::make_connectome(s);
      return s;
    } catch (const pvm::Error&) {
    }
  }
}

}  // namespace pvm_test
