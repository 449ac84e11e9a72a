// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Compares CudaGeneralEngine in every precision with the plain double reference and with itself:
// captured, eager, resumed.

#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/general/engine.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/network.hpp>

#include "engine_suite.hpp"
#include "golden_runs.hpp"
#include "reference.hpp"
#include "rounding_suite.hpp"

using pvm_test::skipped;

namespace {

pvm::Spec tiny() {
  pvm::Spec spec;
  spec.layer_shapes = {4, 2, 1};
  spec.input_block_size = 3;
  spec.hidden_block_size = 4;
  spec.fan_in_square_size = 2;
  spec.fan_in_radius = 2;
  spec.lateral_radius = 2;
  spec.send_context_two_layers_back = true;
  spec.last_layer_context_to_all = true;
  spec.activation = pvm::ActivationKind::polynomial;
  spec.initial_learning_rate = 0.002;
  spec.momentum = 0.1;
  spec.delay_each_layer_learning = 5;
  spec.delay_final_learning_rate = 1000000;
  spec.final_learning_rate = 0.00005;
  return spec;
}

/// The spec small.json.
pvm::Spec small() {
  pvm::Spec spec = tiny();
  spec.layer_shapes = {12, 8, 6, 4, 2, 1};
  spec.input_block_size = 5;
  spec.hidden_block_size = 7;
  spec.delay_each_layer_learning = 1;
  return spec;
}

std::vector<float> start_weights(const pvm::Spec& spec, unsigned seed = 7) {
  std::mt19937 random(seed);
  std::vector<float> w(pvm::make_connectome(spec).weights);
  for (float& v : w) v = 0.03F * (static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F);
  return w;
}

std::uint8_t pixel_at(std::uint64_t t, std::size_t i) {
  const double wave = std::sin(0.13 * static_cast<double>(t) + 0.37 * static_cast<double>(i % 101));
  return static_cast<std::uint8_t>(127.5 + 120.0 * wave);
}

template <class E>
void run(E& engine, const pvm::Spec& spec, int steps, pvm::Mode mode = pvm::Mode::learn) {
  for (int done = 0; done < steps;) {
    const int n = std::min(steps - done, engine.block_steps());
    const pvm::FrameBlock block = engine.stage(n);
    for (std::size_t k = 0; k < block.scored.size(); ++k) {
      const std::uint64_t t = engine.step() + k;
      block.scored[k] = t >= 2 ? 1 : 0;
      for (std::size_t i = 0; i < spec.frame_size(); ++i) {
        block.pixels[k * spec.frame_size() + i] = pixel_at(t, i);
      }
    }
    engine.run(block, mode);
    done += n;
  }
}

template <class E>
pvm::EngineState weights_only(const E&, const std::vector<float>& w) {
  pvm::EngineState state;
  state.weights = w;
  return state;
}

struct Distance {
  double hidden = 0, outputs = 0, weights = 0;
};

/// The larger of `worst` and a difference; NaN counts as a large difference.
double larger(double worst, double expected, float value) {
  const double d = std::abs(expected - static_cast<double>(value));
  return std::max(worst, std::isfinite(d) ? d : 1e9);
}

/// The number of steps: on the emulated device enough for two folds and for every ring buffer to
/// wrap around.
int usual(int steps) { return pvm_test::steps_of(steps, 50); }

/// The largest differences from the reference over `steps` steps.
Distance distance(const pvm::Spec& spec, int steps, int check_every = 1) {
  const std::vector<float> w = start_weights(spec);
  pvm_test::Reference reference(spec, w, 1);
  pvm::CudaGeneralEngine<> engine(spec);
  engine.restore(weights_only(engine, w));
  const auto& net = engine.connectome();
  const auto h = static_cast<std::size_t>(net.hidden);
  std::vector<float> hidden(net.units.size() * h), outputs(net.outputs);
  Distance worst;
  for (int t = 0; t < steps; t += check_every) {
    const int n = std::min(check_every, steps - t);
    for (int i = 0; i < n; ++i) {
      pvm_test::Vector frame;
      for (std::size_t k = 0; k < spec.frame_size(); ++k) {
        frame.push_back(0.8 / 255 * pixel_at(static_cast<std::uint64_t>(t + i), k) + 0.1);
      }
      reference.step({frame});
    }
    run(engine, spec, n);
    engine.read_hidden(hidden);
    engine.read_outputs(outputs);
    std::size_t at = 0;
    for (std::size_t u = 0; u < net.units.size(); ++u) {
      for (std::size_t i = 0; i < h; ++i) {
        worst.hidden = larger(worst.hidden, reference.hidden(0, u)[i], hidden[u * h + i]);
      }
      for (const double y : reference.outputs(0, u)) {
        worst.outputs = larger(worst.outputs, y, outputs[at++]);
      }
    }
  }
  std::vector<float> now(net.weights);
  engine.read_weights(now);
  for (std::size_t i = 0; i < now.size(); ++i) {
    worst.weights = larger(worst.weights, reference.weights()[i], now[i]);
  }
  std::printf("hidden %.2e outputs %.2e weights %.2e\n", worst.hidden, worst.outputs,
              worst.weights);
  return worst;
}

void require_close(const Distance& d) {
  CHECK(d.hidden < 2e-6);
  CHECK(d.outputs < 2e-6);
  CHECK(d.weights < 2e-6);
}

std::vector<float> weights_of(pvm::CudaGeneralEngine<>& engine) {
  std::vector<float> w(engine.connectome().weights);
  engine.read_weights(w);
  return w;
}

}  // namespace

TEST_CASE("tiny networks follow the reference", "[gpu]") {
  if (skipped()) return;
  pvm::Spec spec = tiny();
  SECTION("polynomial") { require_close(distance(spec, usual(80))); }
  SECTION("logistic") {
    spec.activation = pvm::ActivationKind::logistic;
    require_close(distance(spec, usual(80)));
  }
  SECTION("true derivative") {
    spec.true_derivative = true;
    require_close(distance(spec, usual(80)));
  }
  SECTION("fed context") {
    spec.feed_context_in_complex_layer = true;
    require_close(distance(spec, usual(80)));
  }
  SECTION("rates that switch, a long momentum, grey") {
    spec.input_channels = 1;
    spec.momentum = 0.5;
    spec.delay_final_learning_rate = 21;
    spec.delay_intermediate_learning_rate = 33;
    spec.intermediate_learning_rate = 0.004;
    require_close(distance(spec, usual(120)));
  }
  SECTION("alpha") {
    spec.input_channels = 4;
    require_close(distance(spec, usual(80)));
    spec.input_channels = 2;
    require_close(distance(spec, usual(80)));
  }
  SECTION("a list of many gradients") {
    spec.momentum = 0.9;
    spec.initial_learning_rate = 0.0005;
    require_close(distance(spec, pvm_test::steps_of(300, 40)));
  }
  SECTION("sign of the error") {
    spec.opt_abs_diff = true;
    spec.initial_learning_rate = 0.0005;
    require_close(distance(spec, 30));
  }
  SECTION("blocks of steps") { require_close(distance(spec, usual(160), 40)); }
  SECTION("one layer, blocks of steps") {
    spec.layer_shapes = {5};
    require_close(distance(spec, usual(150), 25));
  }
  SECTION("wide units") {
    spec.layer_shapes = {2, 1};
    spec.hidden_block_size = 12;
    spec.input_block_size = 20;
    require_close(distance(spec, 40));
  }
}

TEST_CASE("the CUDA engine follows the original: tiny_poly1", "[gpu]") {
  if (!skipped()) pvm_test::follow<pvm::CudaGeneralEngine<>>("tiny_poly1");
}
TEST_CASE("the CUDA engine follows the original: tiny_poly0", "[gpu]") {
  if (!skipped()) pvm_test::follow<pvm::CudaGeneralEngine<>>("tiny_poly0");
}
TEST_CASE("the CUDA engine follows the original: tiny_ctx1", "[gpu]") {
  if (!skipped()) pvm_test::follow<pvm::CudaGeneralEngine<>>("tiny_ctx1");
}
TEST_CASE("another engine's state continues on a GPU", "[gpu]") {
  if (!skipped()) pvm_test::foreign_states_continue<pvm::CudaGeneralEngine<>>();
}
TEST_CASE("a state goes on at the rates of another spec on a GPU", "[gpu]") {
  if (!skipped())
    pvm_test::rates_of_another_spec_count<pvm::CudaGeneralEngine<>>(pvm_test::tiny_spec(), 1);
}
TEST_CASE("a state goes on with the momentum of another spec on a GPU", "[gpu]") {
  if (skipped()) return;
  for (const auto& [before, after] :
       {std::pair{0.1, 0.3}, {0.3, 0.1}, {0.5, 0.0}, {0.1, 0.12}, {0.1, 0.9}}) {
    pvm_test::momentum_of_another_spec_counts<pvm::CudaGeneralEngine<>>(pvm_test::tiny_spec(), 1,
                                                                        before, after);
  }
}
TEST_CASE("two engines share a GPU", "[gpu]") {
  if (skipped()) return;
  auto lower = pvm_test::tiny_spec();
  lower.momentum = 0;
  auto higher = lower;
  higher.momentum = 0.5;
  pvm_test::engines_live_side_by_side<pvm::CudaGeneralEngine<>>(higher, lower);
  pvm_test::engines_live_side_by_side<pvm::CudaGeneralEngine<>>(lower, higher);
}
TEST_CASE("a run starts at any step on a GPU", "[gpu]") {
  if (!skipped()) pvm_test::starts_anywhere<pvm::CudaGeneralEngine<>>(pvm_test::tiny_spec(), 1);
}
TEST_CASE("a GPU's score compares prediction and frame two steps on", "[gpu]") {
  if (!skipped()) pvm_test::scores_compare_frames<pvm::CudaGeneralEngine<>>();
}

TEST_CASE("networks drawn at random follow the reference on a GPU", "[gpu]") {
  if (skipped()) return;
  pvm_test::random_networks_follow<pvm::CudaGeneralEngine<>>(1, pvm_test::steps_of(40, 4), 1);
}
TEST_CASE("small follows the reference", "[gpu]") {
  if (skipped()) return;
#if defined(PVM_EMULATED_CUDA)
  const int before = std::exchange(emulated_cuda::facts.multiprocessors, 16);  // 4 are too few
#endif
  require_close(distance(small(), pvm_test::steps_of(12, 6)));
#if defined(PVM_EMULATED_CUDA)
  emulated_cuda::facts.multiprocessors = before;
#endif
}

TEST_CASE("captured, eager and resumed runs have the same bits", "[gpu]") {
  if (skipped()) return;
  pvm::Spec spec = tiny();
  // All switches of rates, before and after the resume; on the emulated device 64 times earlier.
  const int scale = 64 / pvm_test::steps_of(64, 1);
  spec.delay_each_layer_learning = 1000 / scale;
  spec.delay_final_learning_rate = 5003 / scale;
  spec.delay_intermediate_learning_rate = 7001 / scale;
  spec.intermediate_learning_rate = 0.004;
  const int first = 5100 / scale, second = 5150 / scale;
  const std::vector<float> w = start_weights(spec);
  pvm::EngineOptions eager;
  eager.graph = false;
  pvm::CudaGeneralEngine<> captured_engine(spec, 1), eager_engine(spec, 1, eager);
  captured_engine.restore(weights_only(captured_engine, w));
  eager_engine.restore(weights_only(eager_engine, w));
  run(captured_engine, spec, first);
  const pvm::EngineState middle = captured_engine.save();
  run(captured_engine, spec, second);
  run(eager_engine, spec, first + second);
  pvm::CudaGeneralEngine<> resumed(spec, 1);
  resumed.restore(middle);
  run(resumed, spec, second);

  const auto expected = weights_of(captured_engine);
  CHECK(expected == weights_of(eager_engine));
  CHECK(expected == weights_of(resumed));
  CHECK(captured_engine.save().outputs == resumed.save().outputs);
  double moved = 0;
  for (std::size_t i = 0; i < w.size(); ++i) {
    moved = std::max(moved, std::abs(static_cast<double>(expected[i]) - static_cast<double>(w[i])));
  }
  CHECK(moved > 1e-3 / scale);
  const pvm::Score a = captured_engine.take_score();
  const pvm::Score b = eager_engine.take_score();
  CHECK(a.prediction == b.prediction);
  CHECK(a.loss == b.loss);
  CHECK(a.pixels == b.pixels);
}

TEST_CASE("kernels for a network's type give the bits of those with sizes as arguments", "[cuda]") {
  if (skipped()) return;
  using Net = pvm::Network<pvm::Input<12, 3, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<5>,
                           pvm::TopToAll, pvm::LayerDelay<5>>;
  const pvm::Spec spec = Net::spec();
  pvm::CudaGeneralEngine<pvm::fp32, Net> typed(spec);
  pvm::CudaGeneralEngine<> plain(spec);
  const auto start = pvm_test::some_weights(pvm::make_connectome(spec).weights);
  const auto run = [&](auto& engine) {
    engine.restore(pvm_test::start_from(start));
    pvm_test::run_steps(engine, spec, 60);
    return engine.save();
  };
  const pvm::EngineState a = run(typed), b = run(plain);
  CHECK(a.weights == b.weights);
  CHECK(a.folded == b.folded);
  CHECK(a.hidden == b.hidden);
  CHECK(a.outputs == b.outputs);
  CHECK(a.weights != start);
}

TEST_CASE("a frozen run keeps its weights", "[gpu]") {
  if (skipped()) return;
  const pvm::Spec spec = tiny();
  pvm::CudaGeneralEngine<> engine(spec, 1);
  engine.restore(weights_only(engine, start_weights(spec)));
  run(engine, spec, usual(100));
  const auto before = weights_of(engine);
  run(engine, spec, 50, pvm::Mode::freeze);
  CHECK(before == weights_of(engine));
  run(engine, spec, 50);
  CHECK(before != weights_of(engine));
}

TEST_CASE("frames come from the store as from the block", "[gpu]") {
  if (skipped()) return;
  pvm_test::stored_frames_are_as_good<pvm::CudaGeneralEngine<>>([](std::size_t) {}, 1);
#if defined(PVM_EMULATED_CUDA)  // a store larger than device memory continues in host memory
  const auto memory = emulated_cuda::facts.memory;
  pvm_test::stored_frames_are_as_good<pvm::CudaGeneralEngine<>>(
      [](std::size_t) {
        emulated_cuda::facts.memory = emulated_cuda::Memory::get().used() + (1 << 20);
      },
      1);
  emulated_cuda::facts.memory = memory;
#endif
}

TEST_CASE("impossible requests are refused in a sentence", "[gpu]") {
  if (skipped()) return;
  for (const int batch : {-1, 0, 2, 64}) {
    try {
      const pvm::CudaGeneralEngine<> engine(tiny(), batch);
      FAIL("a batch of " << batch << " is accepted");
    } catch (const pvm::Error& error) {
      CHECK(error.fault() == pvm::Fault::usage);
      CHECK(std::string(error.what()).find("this engine runs one sequence") != std::string::npos);
    }
  }
  pvm::CudaGeneralEngine<> engine(tiny(), 1);
  CHECK_THROWS_AS(engine.stage(0), pvm::Error);
  pvm::EngineState wrong;
  wrong.weights.resize(3);
  CHECK_THROWS_AS(engine.restore(wrong), pvm::Error);
  CHECK(engine.memory_needed() < (500U << 20));
}

namespace {

/// Networks of which each makes another part of the 16-bit code run: outputs that read the context,
/// panels in several rounds, a list of more gradients than a fold adds at once.
std::vector<pvm::Spec> rounded_specs() {
  std::vector<pvm::Spec> specs{pvm_test::early_tiny(), pvm_test::wide_units(),
                               pvm_test::early_tiny()};
  specs[0].name = "fed context";
  specs[0].feed_context_in_complex_layer = true;
  specs[2].name = "momentum 0.9";
  specs[2].momentum = 0.9;
  specs[2].initial_learning_rate /= 10;
  return specs;
}

}  // namespace

TEMPLATE_TEST_CASE("general: 16-bit weights follow the reference within their rounding", "[gpu]",
                   pvm::bf16, pvm::fp16) {
  if (skipped()) return;
  constexpr bool is_bf16 = std::is_same_v<TestType, pvm::bf16>;
  for (const auto& spec : rounded_specs()) {
    // The emulated device runs them all in bf16; fp16 differs in how numbers are rounded only.
    if (pvm_test::emulated && !is_bf16 && spec.name != "fed context") continue;
    INFO(spec.name);
    const int steps = pvm_test::steps_of(120, 20);
    pvm_test::require_rounded(pvm_test::distance<pvm::CudaGeneralEngine<TestType>>(spec, 1, steps),
                              spec, steps, is_bf16 ? 0x1p-9 : 0x1p-12);
  }
}

TEMPLATE_TEST_CASE("general: captured, eager and resumed 16-bit runs have the same bits", "[gpu]",
                   pvm::bf16, pvm::fp16) {
  if (skipped()) return;
  pvm_test::same_bits<pvm::CudaGeneralEngine<TestType>>(1);
}

TEST_CASE("general: a frozen run keeps its 16-bit weights", "[gpu]") {
  if (skipped()) return;
  const pvm::Spec spec = tiny();
  pvm::CudaGeneralEngine<pvm::bf16> engine(spec, 1);
  engine.restore(weights_only(engine, start_weights(spec)));
  run(engine, spec, usual(60));
  const auto weights = [&] { return engine.save().weights; };
  const auto before = weights();
  run(engine, spec, 5, pvm::Mode::freeze);
  CHECK(before == weights());
  run(engine, spec, 5);
  CHECK(before != weights());
}
