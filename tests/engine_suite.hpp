// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tests that every engine must pass: comparisons with the plain reference (reference.hpp) and with
/// itself. The template parameter E is the engine's type; it must support any batch, except where a
/// test is given the batch.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "catch.hpp"
#include "engine_cases.hpp"
#include "random_spec.hpp"
#include "reference.hpp"

namespace pvm_test {

inline constexpr double tolerance = 2e-6;

inline double largest_difference(const std::vector<float>& a, const std::vector<double>& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - b[i]);
    largest = std::max(largest, std::isfinite(d) ? d : 1e9);
  }
  return largest;
}

/// The squeezed frames, one for each sequence, that run_steps gives an engine in step `t`.
inline std::vector<Vector> some_frames(const pvm::Spec& spec, std::uint64_t t, int batch) {
  std::vector<Vector> frames(static_cast<std::size_t>(batch), Vector(spec.frame_size()));
  for (std::size_t b = 0; b < frames.size(); ++b) {
    for (std::size_t i = 0; i < spec.frame_size(); ++i) {
      frames[b][i] = 0.8 * some_pixel(i, t, b) / 255.0 + 0.1;
    }
  }
  return frames;
}

/// The largest differences of hidden values and outputs during a run, and of weights at its end.
struct Differences {
  double hidden = 0, outputs = 0, weights = 0;
};

/// Runs an engine and the reference for `steps` steps and compares them every `every` steps.
template <class E>
Differences compare(const pvm::Spec& spec, int batch, int steps,
                    pvm::Reduce reduce = pvm::Reduce::mean, int every = 1) {
  const auto weights = some_weights(pvm::make_connectome(spec).weights);
  Reference reference(spec, weights, batch, reduce);
  pvm::EngineOptions options;
  options.reduce = reduce;
  E engine(spec, batch, options);
  engine.restore(start_from(weights, batch));
  const auto& net = reference.net();
  const auto b_count = static_cast<std::size_t>(batch);
  std::vector<float> hidden(b_count * net.units.size() * static_cast<std::size_t>(net.hidden));
  std::vector<float> outputs(b_count * net.outputs);
  Differences worst;
  for (int t = 0; t < steps; ++t) {
    reference.step(some_frames(spec, static_cast<std::uint64_t>(t), batch));
    if ((t + 1) % every != 0) continue;
    run_steps(engine, spec, static_cast<std::uint64_t>(every), every);
    engine.read_hidden(hidden);
    engine.read_outputs(outputs);
    std::vector<double> h, y;
    for (std::size_t b = 0; b < b_count; ++b) {
      for (std::size_t u = 0; u < net.units.size(); ++u) {
        const auto row = reference.hidden(b, u);
        h.insert(h.end(), row.begin(), row.end());
        const auto& out = reference.outputs(b, u);
        y.insert(y.end(), out.begin(), out.end());
      }
    }
    worst.hidden = std::max(worst.hidden, largest_difference(hidden, h));
    worst.outputs = std::max(worst.outputs, largest_difference(outputs, y));
  }
  worst.weights = largest_difference(weights_of(engine, spec), reference.weights());
  return worst;
}

inline void check_small(const Differences& d) {
  CHECK(d.hidden < tolerance);
  CHECK(d.outputs < tolerance);
  CHECK(d.weights < tolerance);
}

/// Every kind of network follows the reference.
template <class E>
void every_network_follows() {
  for (const auto& spec : odd_specs()) {
    INFO(spec.name);
    check_small(compare<E>(spec, 1, 60));
  }
}

/// So do `count` random networks that `E` supports, with 1 to `most` sequences. `hidden`: side of
/// the square of hidden values of all of them, or 0 for any.
template <class E>
void random_networks_follow(std::uint64_t seed, int count, int most, int hidden = 0) {
  const std::size_t room = emulated ? 200'000 : 2'000'000;  // most weights times sequences
  for (; count > 0; ++seed) {
    const auto spec = random_spec(seed, hidden);
    const std::size_t weights = pvm::make_connectome(spec).weights;
    if constexpr (requires(std::string & why) { E::plan(spec, why); }) {
      std::string why;
      if (!E::plan(spec, why)) continue;
    }
    if (weights > room) continue;
    int batch = Draws(~seed).number(1, most);
    while (static_cast<std::size_t>(batch) * weights > room) --batch;
    INFO(spec.name << ", batch " << batch);
    check_small(compare<E>(spec, batch, steps_of(12, 5)));
    --count;
  }
}

/// Batches follow the reference, whether updates are reduced to their mean or their sum.
template <class E>
void batches_follow() {
  for (const auto& spec : odd_specs()) {
    // The sign of an error that is 0 except for rounding is not determined, and larger batches have
    // such errors.
    if (spec.opt_abs_diff) continue;
    INFO(spec.name);
    check_small(compare<E>(spec, 3, 30));
    check_small(compare<E>(spec, 9, 20));
  }
  check_small(compare<E>(tiny_spec(), 2, 40, pvm::Reduce::sum));
  check_small(compare<E>(tiny_spec(), 6, 40, pvm::Reduce::sum));
}

/// A batch of copies of one sequence learns what that sequence alone learns.
template <class E>
void copies_learn_as_one() {
  const auto spec = tiny_spec();
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  const auto train = [&](int batch) {
    E engine(spec, batch);
    engine.restore(start_from(start, batch));
    for (std::uint64_t t = 0; t < 50; ++t) {
      const auto block = engine.stage(1);
      for (std::size_t i = 0; i < block.pixels.size(); ++i) {
        block.pixels[i] = some_pixel(i % spec.frame_size(), t, 0);
      }
      engine.run(block, pvm::Mode::learn);
    }
    return weights_of(engine, spec);
  };
  const auto one = train(1);
  for (const int batch : {2, 4, 5, 16}) {
    INFO(batch);
    const auto many = train(batch);
    CHECK(largest_difference(many, std::vector<double>(one.begin(), one.end())) < tolerance);
  }
}

/// Saving does not change a run, and a restored run continues with the same bits.
template <class E>
void restored_runs_continue() {
  for (const auto& spec : odd_specs()) {
    for (const int batch : {1, 2, 5}) {
      INFO(spec.name << ", batch " << batch);
      const auto start = some_weights(pvm::make_connectome(spec).weights);
      E straight(spec, batch);
      straight.restore(start_from(start, batch));
      run_steps(straight, spec, 75);

      E first(spec, batch);
      first.restore(start_from(start, batch));
      run_steps(first, spec, 38);
      const auto state = first.save();
      E second(spec, batch);
      second.restore(state);
      run_steps(second, spec, 37);
      run_steps(first, spec, 37);
      CHECK(weights_of(first, spec) == weights_of(straight, spec));
      const auto a = straight.save();
      const auto b = second.save();
      CHECK(b.weights == a.weights);
      CHECK(b.folded == a.folded);
      CHECK(b.dweights == a.dweights);
      CHECK(b.coefficients == a.coefficients);
      CHECK(b.coefficients1 == a.coefficients1);
      CHECK(b.hidden == a.hidden);
      CHECK(b.squeezed == a.squeezed);
      CHECK(b.frames == a.frames);
      CHECK(b.outputs == a.outputs);
      CHECK(b.hidden_gradients == a.hidden_gradients);
      CHECK(b.output_gradients == a.output_gradients);
      CHECK(b.rates == a.rates);
    }
  }
}

/// A restored state continues at the rates of the spec of the engine that restores it, with the
/// same bits as a run whose spec switches to these rates at that step.
template <class E>
void rates_of_another_spec_count(pvm::Spec spec, int batch) {
  constexpr std::uint64_t change = 21;
  spec.delay_each_layer_learning = 4;  // all layers learn by then
  spec.delay_final_learning_rate = spec.delay_intermediate_learning_rate = std::nullopt;
  auto faster = spec, switches = spec;
  faster.initial_learning_rate = switches.final_learning_rate = 4 * spec.initial_learning_rate;
  switches.delay_final_learning_rate = change;
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights), batch);
  const auto weights_after = [&](const pvm::Spec& before, const pvm::Spec& after) {
    E first(before, batch), second(after, batch);
    first.restore(start);
    run_steps(first, before, change);
    second.restore(first.save());
    run_steps(second, after, change);
    return weights_of(second, after);
  };
  const auto expected = weights_after(switches, switches);
  CHECK(weights_after(spec, faster) == expected);
  CHECK(weights_after(spec, switches) == expected);
  CHECK(weights_after(spec, spec) != expected);
}

/// The same for the momentum: the updates accumulated so far decay by the new one.
template <class E>
void momentum_of_another_spec_counts(pvm::Spec spec, int batch, double before, double after) {
  constexpr int change = 25, end = 60;
  spec.momentum = before;
  auto other = spec;
  other.momentum = after;
  const auto weights = some_weights(pvm::make_connectome(spec).weights);
  Reference reference(spec, weights, batch);
  E first(spec, batch), second(other, batch);
  first.restore(start_from(weights, batch));
  run_steps(first, spec, change);
  second.restore(first.save());
  run_steps(second, other, end - change);
  for (int t = 0; t < end; ++t) {
    if (t == change) reference.go_on_with(other);
    reference.step(some_frames(spec, static_cast<std::uint64_t>(t), batch));
  }
  INFO("momentum " << before << " and then " << after << ", batch " << batch);
  CHECK(largest_difference(weights_of(second, other), reference.weights()) < tolerance);
}

/// Two engines in one process do not disturb each other, whichever needs more of the GPU.
template <class E>
void engines_live_side_by_side(const pvm::Spec& spec, const pvm::Spec& other, int batch = 1) {
  const auto weights_of_first = [&](bool alone) {
    E first(spec, batch);
    first.restore(start_from(some_weights(pvm::make_connectome(spec).weights), batch));
    run_steps(first, spec, 5);
    if (!alone) {
      E second(other, batch);
      run_steps(second, other, 5);
      const auto state = first.save();
      first.restore(state);
    }
    run_steps(first, spec, static_cast<std::uint64_t>(steps_of(20, 8)));
    return weights_of(first, spec);
  };
  CHECK(weights_of_first(false) == weights_of_first(true));
}

/// Weights beyond the range of fp16 are multiplied as its largest number, and stay finite.
template <class E>
void large_weights_stay_finite(const pvm::Spec& spec, int batch) {
  const auto net = pvm::make_connectome(spec);
  auto weights = some_weights(net.weights);
  weights[net.units[0].w0] = 70000;
  weights[net.units[0].w1] = -1e6F;
  E engine(spec, batch);
  engine.restore(start_from(weights, batch));
  run_steps(engine, spec, 30);
  const auto after = weights_of(engine, spec);
  CHECK(std::all_of(after.begin(), after.end(), [](float w) { return std::isfinite(w); }));
  CHECK(after[net.units[0].w0] > 65000);
  CHECK(after[net.units[0].w1] < -65000);
}

/// A state of weights only gives the same run whatever step number it starts at.
template <class E>
void starts_anywhere(pvm::Spec spec, int batch) {
  spec.delay_final_learning_rate = spec.delay_intermediate_learning_rate = std::nullopt;
  auto start = start_from(some_weights(pvm::make_connectome(spec).weights), batch);
  const auto weights_after = [&](std::uint64_t step) {
    start.step = step;
    start.rates = pvm::rates_before(spec, step);
    E engine(spec, batch);
    engine.restore(start);
    for (std::uint64_t t = 0; t < 6; ++t) {  // not run_steps: its frames depend on the step number
      const auto block = engine.stage(1);
      for (std::size_t i = 0; i < block.pixels.size(); ++i) {
        block.pixels[i] = some_pixel(i % spec.frame_size(), t, i / spec.frame_size());
      }
      engine.run(block, pvm::Mode::learn);
    }
    return weights_of(engine, spec);
  };
  const auto expected = weights_after(1000);
  const std::vector<double> doubles(expected.begin(), expected.end());
  for (const std::uint64_t step : {1001, 1003, 1006, 1010, 1013, 2000}) {
    INFO("from step " << step);
    CHECK(largest_difference(weights_after(step), doubles) < tolerance);
  }
}

/// A layer whose rates become 0 has dW = 0: nothing of earlier updates moves it when its rates are
/// set again.
template <class E>
void rates_of_0_end_updates(pvm::Spec spec, int batch) {
  spec.delay_each_layer_learning = 20;
  spec.delay_final_learning_rate = 2;
  spec.final_learning_rate = 0.1;
  spec.delay_intermediate_learning_rate = 12;
  spec.intermediate_learning_rate = 0;
  spec.initial_learning_rate = 0;  // a layer that is switched on gets this rate and the momentum
  E engine(spec, batch);
  const auto net = pvm::make_connectome(spec);
  engine.restore(start_from(some_weights(net.weights), batch));
  const auto of_upper_layers = [&] {
    const auto all = weights_of(engine, spec);
    std::vector<float> some;
    for (std::size_t u = net.layer_start[1]; u < net.units.size(); ++u) {
      const auto from = all.begin() + static_cast<std::ptrdiff_t>(net.units[u].w0);
      some.insert(some.end(), from, from + net.hidden * net.units[u].inputs);
    }
    return some;
  };
  run_steps(engine, spec, 20);
  const auto before = of_upper_layers();
  run_steps(engine, spec, 20);
  CHECK(largest_difference(of_upper_layers(), {before.begin(), before.end()}) < tolerance);
}

/// The state of another engine continues within rounding.
template <class E>
void foreign_states_continue() {
  auto spec = tiny_spec();
  spec.momentum = 0.5;
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  E straight(spec, 1);
  straight.restore(start_from(start));
  run_steps(straight, spec, 41);
  auto state = straight.save();
  state.layout = "folds in another order";
  E other(spec, 1);
  other.restore(state);
  run_steps(straight, spec, 60);
  run_steps(other, spec, 60);
  const auto expected = weights_of(straight, spec);
  CHECK(largest_difference(weights_of(other, spec),
                           std::vector<double>(expected.begin(), expected.end())) < 2e-7);
}

/// The weights of a frozen network do not change, and it can learn on afterwards.
template <class E>
void frozen_networks_stay() {
  const auto spec = tiny_spec();
  for (const int batch : {1, 6}) {
    E engine(spec, batch);
    engine.restore(start_from(some_weights(pvm::make_connectome(spec).weights), batch));
    run_steps(engine, spec, 33);
    const auto before = weights_of(engine, spec);
    run_steps(engine, spec, 20, 7, pvm::Mode::freeze);
    CHECK(weights_of(engine, spec) == before);
    CHECK(engine.step() == 53);
    run_steps(engine, spec, 20);
    CHECK(weights_of(engine, spec) != before);
  }
}

/// Steps give the same results whether frames come with the block, from the engine's store, or some
/// from each. `before(bytes of a frame)` is called before the store is reserved.
template <class E, class Before>
void stored_frames_are_as_good(Before&& before, int batch = 2) {
  const auto spec = tiny_spec();
  const auto rows = 3 * static_cast<std::size_t>(batch);
  const std::size_t bytes = spec.frame_size();
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights), batch);
  const auto weights_after = [&](const std::vector<bool>& from_store) {
    E engine(spec, batch);
    engine.restore(start);
    CHECK(engine.stage(3).stored.empty());
    before(bytes);
    CHECK(engine.reserve_frames(10 * bytes + 5, 3) >= 3);
    CHECK(engine.reserve_frames(10 * bytes + 5, 5000) == 10);
    for (int block = 0; block < 6; ++block) {
      std::vector<std::uint8_t> frames(rows * bytes);
      for (std::size_t i = 0; i < frames.size(); ++i) {
        frames[i] = some_pixel(i % bytes, static_cast<std::uint64_t>(block), i / bytes);
      }
      engine.store_frames(4, frames);  // overwrites frames that earlier steps have read
      std::vector<std::uint8_t> back(bytes);
      engine.read_frame(6, back);
      CHECK(std::equal(back.begin(), back.end(),
                       frames.begin() + static_cast<std::ptrdiff_t>(2 * bytes)));
      const pvm::FrameBlock staged = engine.stage(3);
      REQUIRE(staged.stored.size() == rows);
      for (std::size_t row = 0; row < rows; ++row) {
        CHECK(staged.stored[row] == pvm::not_stored);
        std::uint8_t* const pixels = staged.pixels.data() + row * bytes;
        if (from_store[row]) {
          staged.stored[row] = static_cast<std::uint32_t>(4 + row);
          std::fill_n(pixels, bytes, std::uint8_t{77});  // must not be read
        } else {
          std::copy_n(frames.data() + row * bytes, bytes, pixels);
        }
        staged.scored[row] = 0;
      }
      engine.run(staged, pvm::Mode::learn);
    }
    const auto weights = weights_of(engine, spec);
    CHECK(engine.reserve_frames(0, 0) == 0);
    CHECK(engine.stage(1).stored.empty());
    return weights;
  };
  const auto plain = weights_after(std::vector<bool>(rows, false));
  CHECK(weights_after(std::vector<bool>(rows, true)) == plain);
  CHECK(weights_after({true, false, false, true, true, false}) == plain);
  CHECK(plain != start.weights);
}

/// The score compares the prediction with the frame two steps later.
template <class E>
void scores_compare_frames() {
  const auto spec = tiny_spec();
  E engine(spec, 1);
  engine.restore(start_from(some_weights(pvm::make_connectome(spec).weights)));
  std::vector<std::vector<float>> predictions;
  double prediction = 0, persistence = 0;
  const std::size_t n = spec.frame_size();
  const auto pixel = [](std::size_t i, std::uint64_t t) { return some_pixel(i, t, 0) / 255.0; };
  for (std::uint64_t t = 0; t < 30; ++t) {
    run_steps(engine, spec, 1);
    for (std::size_t i = 0; t >= 2 && i < n; ++i) {
      prediction += std::pow(static_cast<double>(predictions[t - 2][i]) - pixel(i, t), 2);
      persistence += std::pow(pixel(i, t - 2) - pixel(i, t), 2);
    }
    predictions.emplace_back(n);
    engine.read_prediction(predictions.back());
  }
  const pvm::Score score = engine.take_score();
  CHECK(score.pixels == 28 * n);
  CHECK(std::abs(score.prediction / prediction - 1) < 1e-5);
  CHECK(std::abs(score.persistence / persistence - 1) < 1e-5);
  CHECK(score.loss > 0);
  CHECK(engine.take_score().pixels == 0);
}

}  // namespace pvm_test
