// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Compares the host engine with the plain reference and with itself.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/parallel.hpp>
#include <pvm/engine/host/engine.hpp>

#include "catch.hpp"
#include "engine_suite.hpp"

using pvm_test::run_steps;
using pvm_test::some_weights;
using pvm_test::start_from;
using pvm_test::weights_of;
using Host = pvm::HostEngine<>;

TEST_CASE("every kind of network follows the reference", "[host]") {
  pvm_test::every_network_follows<Host>();
}
TEST_CASE("networks drawn at random follow the reference", "[host]") {
  pvm_test::random_networks_follow<Host>(1, 50, 7);
}
TEST_CASE("batches follow the reference, as mean and as sum", "[host]") {
  pvm_test::batches_follow<Host>();
}
TEST_CASE("copies of one sequence learn what one sequence learns", "[host]") {
  pvm_test::copies_learn_as_one<Host>();
}
TEST_CASE("saving disturbs nothing and a restored run continues bit by bit", "[host]") {
  pvm_test::restored_runs_continue<Host>();
}
TEST_CASE("another engine's state continues within rounding", "[host]") {
  pvm_test::foreign_states_continue<Host>();
}
TEST_CASE("a state goes on at the rates of another spec", "[host]") {
  for (const auto& spec : pvm_test::odd_specs()) {
    INFO(spec.name);
    pvm_test::rates_of_another_spec_count<Host>(spec, 1);
    pvm_test::rates_of_another_spec_count<Host>(spec, 3);
  }
}
TEST_CASE("a state goes on with the momentum of another spec", "[host]") {
  for (const int batch : {1, 3, 6}) {
    for (const auto& [before, after] : {std::pair{0.1, 0.3}, {0.3, 0.1}, {0.5, 0.0}, {0.1, 0.12}}) {
      pvm_test::momentum_of_another_spec_counts<Host>(pvm_test::tiny_spec(), batch, before, after);
    }
  }
}
TEST_CASE("a run starts at any step", "[host]") {
  for (const int batch : {1, 6}) pvm_test::starts_anywhere<Host>(pvm_test::tiny_spec(), batch);
}
TEST_CASE("rates of 0 end updates", "[host]") {
  auto spec = pvm_test::tiny_spec();
  for (const double momentum : {0.5, 0.9}) {  // listed, and in an array
    spec.momentum = momentum;
    pvm_test::rates_of_0_end_updates<Host>(spec, 1);
    pvm_test::rates_of_0_end_updates<Host>(spec, 5);
    pvm_test::rates_of_0_end_updates<pvm::HostEngine<pvm::dynamic, pvm::bf16>>(spec, 1);
  }
}
TEST_CASE("a rule makes no difference between rates of 0", "[host]") {
  auto spec = pvm_test::tiny_spec();
  spec.learning_rule = "adam";
  spec.initial_learning_rate = spec.intermediate_learning_rate = 0.0005;
  spec.delay_each_layer_learning = 1;
  spec.delay_final_learning_rate = 20;
  spec.final_learning_rate = 0;
  spec.delay_intermediate_learning_rate = 40;
  const auto weights_with = [&](double momentum) {
    spec.momentum = momentum;  // which Adam does not look at
    Host engine(spec, 1);
    engine.restore(start_from(some_weights(pvm::make_connectome(spec).weights)));
    run_steps(engine, spec, 60);
    return weights_of(engine, spec);
  };
  CHECK(weights_with(0) == weights_with(0.5));
}
TEST_CASE("a frozen network does not change, and predicts as before", "[host]") {
  pvm_test::frozen_networks_stay<Host>();
}
TEST_CASE("the score compares prediction and frame two steps on", "[host]") {
  pvm_test::scores_compare_frames<Host>();
}

TEST_CASE("the number of threads and the blocks change no bit", "[host]") {
  for (const int batch : {1, 3, 6}) {
    const auto spec = pvm_test::odd_specs().back();
    const auto start = some_weights(pvm::make_connectome(spec).weights);
    std::vector<std::vector<float>> results;
    for (const auto& [threads, block] : {std::pair{1, 1}, {1, 32}, {2, 5}, {5, 32}}) {
      pvm::EngineOptions options;
      options.threads = threads;
      pvm::HostEngine<> engine(spec, batch, options);
      engine.restore(start_from(start, batch));
      run_steps(engine, spec, 100, block);
      results.push_back(weights_of(engine, spec));
    }
    for (const auto& result : results) CHECK(result == results.front());
  }
}

// Small networks' layouts are changed by one thread, whatever the options say.
TEST_CASE("the states of large networks are saved and restored by several threads", "[host]") {
  pvm::Spec spec;
  spec.layer_shapes = {8, 4, 2, 1};
  spec.input_block_size = 5;
  spec.hidden_block_size = 6;
  spec.fan_in_square_size = 2;
  spec.fan_in_radius = 2;
  spec.lateral_radius = 1;
  spec.last_layer_context_to_all = true;
  spec.initial_learning_rate = 0.0005;
  spec.delay_each_layer_learning = 1;
  pvm::validate(spec, "the spec");
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  REQUIRE(pvm::detail::threads_for(start.size()) >=
          std::min(3U, std::thread::hardware_concurrency()));
  const auto same = [](const std::vector<float>& a, const std::vector<float>& b) { return a == b; };
  for (const auto& [momentum, rule] :
       {std::pair{0.1, "momentum"}, {0.9, "momentum"}, {0.0, "adam"}}) {
    spec.momentum = momentum;
    spec.learning_rule = rule;
    std::vector<pvm::EngineState> states;
    for (const int threads : {1, 2, 5}) {
      pvm::EngineOptions options;
      options.threads = threads;
      Host engine(spec, 1, options);
      engine.restore(start_from(start));
      CHECK(same(weights_of(engine, spec), start));
      run_steps(engine, spec, 13);
      pvm::EngineState state = engine.save();
      CHECK(same(weights_of(engine, spec), state.weights));
      CHECK_FALSE(same(state.folded, state.weights));
      Host other(spec, 1, options);
      other.restore(state);
      CHECK(same(other.save().folded, state.folded));
      CHECK(same(other.save().dweights, state.dweights));
      run_steps(other, spec, 3);  // goes on
      run_steps(engine, spec, 3);
      CHECK(same(weights_of(other, spec), weights_of(engine, spec)));
      run_steps(engine, spec, 1, 7, pvm::Mode::freeze);  // settles what is listed
      state.hidden = weights_of(engine, spec);
      states.push_back(std::move(state));
    }
    for (const pvm::EngineState& state : states) {
      CHECK(same(state.weights, states.front().weights));
      CHECK(same(state.folded, states.front().folded));
      CHECK(same(state.dweights, states.front().dweights));
      CHECK(same(state.hidden, states.front().hidden));
    }
  }
}

TEST_CASE("every unit is taken once in a step, by its own thread if that is in time", "[host]") {
  const auto net = pvm::make_connectome(pvm_test::odd_specs().back());
  const pvm::WeightLayout layout(net);
  const std::size_t units = net.units.size();
  for (const std::size_t threads : {std::size_t{1}, std::size_t{3}, 2 * units}) {
    std::vector<std::vector<std::size_t>> orders;
    for (const std::uint64_t step : {6, 7}) {
      pvm::UnitPortions portions(layout, units, threads);
      portions.begin_block(1);
      std::vector<std::size_t> order;
      // Only the last thread takes units: first its own, then those of all other threads.
      const auto next = [&] { return portions.take(threads - 1, 0, step); };
      for (auto u = next(); u < units; u = next()) order.push_back(u);
      for (std::size_t i = 0; i < threads; ++i) CHECK(portions.take(i, 0, step) == units);
      orders.push_back(order);
    }
    for (auto order : orders) {
      if (threads == 3) CHECK(order.front() >= units / 2);
      std::sort(order.begin(), order.end());
      REQUIRE(order.size() == units);
      for (std::size_t u = 0; u < units; ++u) CHECK(order[u] == u);
    }
    if (threads == 1) CHECK(std::equal(orders[0].begin(), orders[0].end(), orders[1].rbegin()));
  }
}

TEST_CASE("impossible states and batches are refused", "[host]") {
  const auto spec = pvm_test::tiny_spec();
  CHECK_THROWS_AS(pvm::HostEngine<>(spec, 0), pvm::Error);
  CHECK_THROWS_AS(pvm::HostEngine<>(spec, -3), pvm::Error);
  CHECK_THROWS_AS(pvm::HostEngine<4>(spec, 2), pvm::Error);
  pvm::HostEngine<> engine(spec, 1);
  CHECK_THROWS_AS(engine.restore(start_from(std::vector<float>(7))), pvm::Error);
  run_steps(engine, spec, 5);
  auto state = engine.save();
  state.hidden.pop_back();
  CHECK_THROWS_AS(engine.restore(state), pvm::Error);
  state = engine.save();
  state.plan.terms = 1 << 30;
  CHECK_THROWS_AS(engine.restore(state), pvm::Error);
  state = engine.save();
  state.plan1 = pvm::DeferralPlan{2, 3};
  CHECK_THROWS_AS(engine.restore(state), pvm::Error);
  state.coefficients1.resize(spec.layer_shapes.size() * state.plan1->saved_numbers());
  CHECK_NOTHROW(engine.restore(state));
  state.plan1->terms = state.plan.terms + 1;  // its list is longer than W0's
  state.coefficients1.resize(spec.layer_shapes.size() * state.plan1->saved_numbers());
  CHECK_THROWS_AS(engine.restore(state), pvm::Error);
  state = engine.save();
  state.batch = 2;
  CHECK_THROWS_AS(engine.restore(state), pvm::Error);
}
