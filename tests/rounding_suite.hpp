// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tests that the CUDA engines of every precision must pass: they follow the plain double reference
/// within the rounding of their precision, and give the same bits as captured graphs, eagerly, and
/// resumed.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <vector>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/device/check.hpp>

#include "engine_suite.hpp"
#include "reference.hpp"
#include "seen.hpp"

namespace pvm_test {

inline bool skipped() {
  std::string why;
  if (pvm::cuda_available(&why)) return false;
  std::printf("SKIPPED: %s\n", why.c_str());
  return true;
}

inline std::vector<double> doubles(const std::vector<float>& v) { return {v.begin(), v.end()}; }

/// Checks that two engines have seen the same frames: their errors of prediction and losses differ
/// by less than the fraction `most`, their errors of persistence by less than `repeated`.
inline void check_scores(const pvm::Score& a, const pvm::Score& b, double most, double repeated) {
  CHECK(a.pixels == b.pixels);
  CHECK(a.outputs == b.outputs);
  CHECK(std::abs(b.prediction / a.prediction - 1) < most);
  CHECK(std::abs(b.persistence / a.persistence - 1) < repeated);
  CHECK(std::abs(b.loss / a.loss - 1) < most);
}

/// `compare`, and prints the result.
template <class E>
Differences distance(const pvm::Spec& spec, int batch, int steps,
                     pvm::Reduce reduce = pvm::Reduce::mean) {
  const Differences worst = compare<E>(spec, batch, steps, reduce);
  std::printf("%s, batch %d, %d steps: hidden %.2e outputs %.2e weights %.2e\n", spec.name.c_str(),
              batch, steps, worst.hidden, worst.outputs, worst.weights);
  return worst;
}

/// Checks that differences stay within the bounds of rounding.
///
/// If factors are rounded with a relative error of at most `unit`, a sum of n products w x with |x|
/// <= 1 has an error of at most 2 unit sum|w|, and its activation, whose slope is at most 1/2, half
/// of that: this is the bound for one step. Because roundings go up as often as down, the real
/// error of a sum is smaller by about sqrt(n), which leaves room for the errors of x from earlier
/// steps. A gradient d x has a relative error of at most 3 unit (both factors, and the error e from
/// which d is computed), and |d x| <= 1/2; the bound for weights is the sum over all steps.
inline void require_rounded(const Differences& d, const pvm::Spec& spec, int steps, double unit) {
  const auto net = pvm::make_connectome(spec);
  const auto weights = some_weights(net.weights);
  double most = 0;
  for (const auto& unit_ : net.units) {
    for (int i = 0; i < net.hidden; ++i) {
      double sum = 0;
      for (int k = 0; k < unit_.inputs; ++k) {
        sum += std::abs(static_cast<double>(
            weights[unit_.w0 + static_cast<std::size_t>(i * unit_.inputs + k)]));
      }
      most = std::max(most, sum);
    }
  }
  CHECK(d.hidden < unit * most);
  CHECK(d.outputs < unit * most);
  CHECK(d.weights < steps * spec.initial_learning_rate / (1 - spec.momentum) * 1.5 * unit);
}

inline pvm::Spec early_tiny() {
  auto spec = tiny_spec();
  spec.delay_each_layer_learning = 3;
  return spec;
}
/// Units as large as those of the published models.
inline pvm::Spec hidden_49() {
  auto spec = early_tiny();
  spec.name = "hidden 49";
  spec.hidden_block_size = 7;
  spec.layer_shapes = {4, 3, 1};
  return spec;
}
/// The same for batches, with fewer units on the emulated device.
inline pvm::Spec batched_49() {
  auto spec = hidden_49();
  if (emulated) spec.layer_shapes = {3, 2, 1};
  return spec;
}

/// Units with more hidden values than fit into one panel of weights.
inline pvm::Spec wide_units() {
  auto spec = early_tiny();
  spec.name = "wide units";
  spec.layer_shapes = {2, 1};
  spec.hidden_block_size = 12;
  spec.input_block_size = 20;
  return spec;
}

/// Batches of an engine of lower precision than fp32: every kind of update, and a batch size for
/// each layout of its rows.
template <class E, class Precision>
void batches_are_rounded() {
  constexpr bool is_bf16 = std::is_same_v<Precision, pvm::bf16>;
  const double unit = is_bf16 ? 0x1p-9 : 0x1p-12;
  for (const auto& spec : odd_specs()) {
    if (spec.opt_abs_diff) continue;
    // The emulated device runs all specs in fp32, but here only those with different kinds of
    // update.
    const bool updates_differ = spec.name == "momentum 0.95" || spec.name.starts_with("hidden 49");
    if (emulated && !updates_differ) continue;
    INFO(spec.name);
    const int steps = steps_of(24, 6);
    require_rounded(distance<E>(spec, 3, steps), spec, steps, unit);
  }
  // Fewer on the emulated device: in bf16 every layout of rows; the sweep in fp16 is the same, so
  // two batches are enough.
  for (const int batch :
       emulated ? (is_bf16 ? std::vector{2, 32, 64, 80, 96, 130, 192, 256} : std::vector{33, 130})
                : std::vector{2, 32, 33, 64, 80, 96, 100, 128, 130, 192, 200, 256}) {
    INFO(batch);
    const int steps = steps_of(12, 2);
    require_rounded(distance<E>(batched_49(), batch, steps), batched_49(), steps, unit);
  }
  const int steps = steps_of(12, 2);
  require_rounded(distance<E>(wide_units(), 7, steps), wide_units(), steps, unit);
}

template <class E, class F>
std::vector<float> train(const pvm::Spec& spec, int batch, int steps, F&& pixel) {
  E engine(spec, batch);
  engine.restore(start_from(some_weights(pvm::make_connectome(spec).weights), batch));
  for (int t = 0; t < steps; ++t) {
    const auto block = engine.stage(1);
    for (std::size_t i = 0; i < block.pixels.size(); ++i) {
      block.pixels[i] =
          pixel(i % spec.frame_size(), static_cast<std::uint64_t>(t), i / spec.frame_size());
    }
    engine.run(block, pvm::Mode::learn);
  }
  return weights_of(engine, spec);
}

/// A captured run, an eager one, and one that is saved and resumed midway give the same bits, over
/// all switches of rates, in 281 times `longer` steps.
template <class E>
void same_bits(int batch, pvm::Spec spec = early_tiny(), int longer = 1) {
  const int scale = 10 / steps_of(10, 1);  // on the emulated device everything is ten times shorter
  const auto steps = [&](int n) { return static_cast<std::uint64_t>(n * longer / scale); };
  spec.delay_each_layer_learning = steps(40);
  spec.delay_final_learning_rate = steps(150);
  spec.final_learning_rate = 0.001;
  spec.delay_intermediate_learning_rate = steps(190);
  spec.intermediate_learning_rate = 0.004;
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  pvm::EngineOptions eager_options;
  eager_options.graph = false;
  E captured(spec, batch), eager(spec, batch, eager_options), resumed(spec, batch);
  captured.restore(start_from(start, batch));
  eager.restore(start_from(start, batch));
  const std::uint64_t first = steps(131), second = steps(150);
  run_steps(captured, spec, first, 8);
  const auto middle = captured.save();
  run_steps(captured, spec, second, 7);
  run_steps(eager, spec, first + second, 8);
  resumed.restore(middle);
  run_steps(resumed, spec, second, 5);
  const auto expected = captured.save();
  same_state(expected, eager.save());
  same_state(expected, resumed.save());
  CHECK(largest_difference(expected.weights, doubles(start)) > 1e-4 / scale);
  CHECK(captured.take_score().loss == eager.take_score().loss);
}

}  // namespace pvm_test
