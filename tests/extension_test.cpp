// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Extensions that a program adds from outside the library's namespace: an activation, a learning
// rule, a metric. docs/extending.md has the contracts; sources and callbacks are in snippets/.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include <pvm/io/synthetic.hpp>
#include <pvm/pvm.hpp>

#include "catch.hpp"
#include "engine_cases.hpp"
#include "train_helpers.hpp"

namespace mine {

/// The polynomial again, under another name: what it trains must be the same bits.
struct Copy {
  static constexpr const char* name = "copy";
  static float value(float a) { return a / (2.0F * (std::fabs(a) + 1.0F)) + 0.5F; }
  static float derivative(float v) {
    const float s = std::fabs(2.0F * v - 1.0F);
    const float ratio = (1.0F + s) / (1.0F + 2.0F * s);
    return 0.5F * ratio * ratio;
  }
};

/// Momentum again, as a rule that is applied at every step.
struct SameMomentum {
  static constexpr const char* name = "same momentum";
  static constexpr int state = 1;
  static float apply(float w, float* state, float gradient, pvm::RuleStep s) {
    state[0] = s.momentum * state[0] + s.rate * gradient;
    return w + state[0];
  }
};

/// Counts its updates and learns nothing.
struct Count {
  static constexpr int state = 1;
  static void begin_step(pvm::RuleStep& s) { s.own[3] += static_cast<float>(s.step + 1); }
  static float apply(float, float* state, float, pvm::RuleStep s) {
    state[0] += 1;
    return state[0] == s.own[3] ? state[0] : -1.0F;
  }
};

struct Largest {
  static constexpr const char* name = "largest_weight";
  double value(const pvm::Moment& moment) const {
    const auto weights = moment.trainer.weights();
    return static_cast<double>(*std::max_element(weights.begin(), weights.end()));
  }
};

}  // namespace mine

namespace {

using pvm_test::run_steps;
using pvm_test::some_weights;
using pvm_test::start_from;
using pvm_test::weights_of;

struct NamedStep {
  static constexpr const char* name = "step";
  static double value(const pvm::Moment&) { return 0.5; }
};
struct Doubled {
  static constexpr const char* name = "doubled";
  static double value(const pvm::Moment&) { return 0.5; }
};

template <class... Parts>
using Tiny = pvm::Network<pvm::TopToAll, pvm::LayerDelay<5>, pvm::Layers<4, 2, 1>, pvm::Hidden<4>,
                          pvm::Input<12, 3, 3>, Parts...>;

template <class Net>
using EngineOf = pvm::HostEngine<pvm::dynamic, pvm::fp32, Net>;

template <class Net>
std::vector<float> learn(int batch, std::uint64_t steps) {
  const auto spec = Net::spec();
  EngineOf<Net> engine(spec, batch);
  engine.restore(start_from(some_weights(engine.connectome().weights), batch));
  run_steps(engine, spec, steps);
  return weights_of(engine, spec);
}

double difference(const std::vector<float>& a, const std::vector<float>& b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < a.size(); ++i) {
    const double d = std::abs(double{a[i]} - double{b[i]});
    largest = std::max(largest, std::isfinite(d) ? d : 1e9);
  }
  return largest;
}

using Plain = Tiny<>;
using OwnActivation = Tiny<pvm::Activation<mine::Copy>>;
using OwnRule = Tiny<pvm::LearningRule<mine::SameMomentum>>;
using Counting = Tiny<pvm::LearningRule<mine::Count>>;
using ByAdam = Tiny<pvm::LearningRule<pvm::Adam>, pvm::LearningRate<1e-5>>;

}  // namespace

TEST_CASE("An activation of the program's own trains like the same one of the library",
          "[extend]") {
  CHECK(OwnActivation::spec().own_activation == "copy");
  CHECK(learn<OwnActivation>(1, 100) == learn<Plain>(1, 100));
}

TEST_CASE("A rule of the program's own trains like the same one of the library", "[extend]") {
  constexpr double tolerance = 2e-6;
  CHECK(difference(learn<OwnRule>(1, 60), learn<Plain>(1, 60)) < tolerance);
  CHECK(difference(learn<OwnRule>(6, 60), learn<Plain>(6, 60)) < tolerance);
}

TEST_CASE("A rule is called once a step for every weight of the layers that learn", "[extend]") {
  const auto spec = Counting::spec();
  const auto net = pvm::make_connectome(spec);
  const auto start = some_weights(net.weights);
  EngineOf<Counting> engine(spec, 2);
  engine.restore(start_from(start, 2));
  run_steps(engine, spec, 12);  // the layers are switched on at the steps 0, 5 and 10
  const auto weights = weights_of(engine, spec);
  for (const auto& unit : net.units) {
    const float updates = 12.0F - 5.0F * static_cast<float>(unit.layer);
    CHECK(weights[unit.w0] == updates);
    CHECK(weights[unit.w1] == updates);
  }
}

TEST_CASE("Sgd is momentum 0, deferred", "[extend]") {
  auto plain = Plain::spec();
  plain.momentum = 0;
  auto sgd = Plain::spec();
  sgd.learning_rule = "sgd";
  const auto start = start_from(some_weights(pvm::make_connectome(plain).weights));
  EngineOf<Plain> a(plain, 1), b(sgd, 1);
  a.restore(start);
  b.restore(start);
  run_steps(a, plain, 50);
  run_steps(b, sgd, 50);
  CHECK(weights_of(a, plain) == weights_of(b, sgd));
}

TEST_CASE("Adam is Adam", "[extend]") {
  float w = 0.5F, state[2] = {};
  double v = 0.5, mean = 0, square = 0;
  for (unsigned long long t = 0; t < 3000; ++t) {
    const float g = std::sin(0.1F * static_cast<float>(t)) + 0.3F;
    w = pvm::Adam::apply(w, state, g, pvm::rule_step<pvm::Adam>({1e-3F, 0.9F, t}));
    mean = 0.9 * mean + 0.1 * double{g};
    square = 0.999 * square + 0.001 * double{g} * double{g};
    const double age = static_cast<double>(t) + 1;
    v += 1e-3 * (mean / (1 - std::pow(0.9, age))) /
         (std::sqrt(square / (1 - std::pow(0.999, age))) + 1e-8);
  }
  CHECK(std::abs(double{w} - v) < 1e-3 * std::abs(v - 0.5));
}

TEST_CASE("Adam learns, and resumes bit by bit", "[extend]") {
  const auto spec = ByAdam::spec();
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights));
  EngineOf<ByAdam> straight(spec, 1), first(spec, 1), second(spec, 1);
  straight.restore(start);
  run_steps(straight, spec, 20);
  const auto early = straight.take_score();
  run_steps(straight, spec, 480);
  static_cast<void>(straight.take_score());
  run_steps(straight, spec, 20);
  const auto late = straight.take_score();
  CHECK(late.loss < 0.9 * early.loss);

  first.restore(start);
  run_steps(first, spec, 301);
  const auto state = first.save();
  CHECK(state.dweights.size() == 2 * state.weights.size());
  second.restore(state);
  run_steps(second, spec, 219);
  CHECK(weights_of(second, spec) == weights_of(straight, spec));
}

TEST_CASE("Freezing makes the update that waits, and ends the rule's state", "[extend]") {
  const auto spec = OwnRule::spec();
  EngineOf<OwnRule> engine(spec, 1);
  engine.restore(start_from(some_weights(pvm::make_connectome(spec).weights)));
  run_steps(engine, spec, 30);
  const auto before = weights_of(engine, spec);
  run_steps(engine, spec, 10, 7, pvm::Mode::freeze);
  CHECK(weights_of(engine, spec) == before);
  const auto state = engine.save();
  CHECK(std::all_of(state.dweights.begin(), state.dweights.end(), [](float v) { return v == 0; }));
}

TEST_CASE("A checkpoint names types that only its program has", "[extend]") {
  pvm::Trainer<pvm::fp32, pvm::dynamic, OwnActivation, pvm::host> trainer{
      pvm::TrainerOptions{.batch = 1}};
  pvm::io::Synthetic frames;
  trainer.fit(frames, pvm::Steps{5});
  const pvm_test::TempDir dir;
  pvm::io::save_checkpoint(dir / "own.safetensors", trainer.checkpoint());
  const auto checkpoint = pvm::io::load_checkpoint(dir / "own.safetensors");
  const auto activation = train_test::error_of([&] { EngineOf<Plain> engine(checkpoint.spec, 1); });
  CHECK(train_test::contains(activation, "'copy'"));
  auto spec = Plain::spec();
  spec.learning_rule = "frobnicate";
  const auto rule = train_test::error_of([&] { EngineOf<Plain> engine(spec, 1); });
  CHECK(train_test::contains(rule, "'frobnicate'; allowed: momentum, sgd, adam"));
}

TEST_CASE("A metric of the program's own is a key of every line", "[extend]") {
  const pvm_test::TempDir dir;
  pvm::Trainer<pvm::fp32, pvm::dynamic, Plain, pvm::host> trainer{pvm::TrainerOptions{.batch = 1}};
  pvm::io::Synthetic frames;
  trainer.fit(frames, pvm::Steps{20}, pvm::Metrics{dir / "m.jsonl", 10, mine::Largest{}});
  std::istringstream lines(train_test::read_file(dir / "m.jsonl"));
  int count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const auto json = nlohmann::json::parse(line);
    REQUIRE(json.contains("largest_weight"));
    CHECK(json["largest_weight"].get<double>() > 0.01);
  }
  CHECK(count == 2);
}

TEST_CASE("A metric's name is its own", "[extend]") {
  const auto sentence = train_test::error_of([] { pvm::Metrics("unused", 5, NamedStep{}); });
  CHECK(train_test::contains(sentence, "has 'step' already"));
  CHECK_THROWS_AS(pvm::Metrics("unused", 5, Doubled{}, Doubled{}), pvm::Error);
}

TEST_CASE("tf32 says that it exists on GPUs only", "[extend]") {
  const auto said = train_test::error_of([] {
    pvm::Trainer<pvm::tf32, 1, pvm::RuntimeNetwork, pvm::host> trainer{pvm_test::tiny_spec()};
  });
  CHECK(said == "tf32 exists on GPUs only; on the host take fp32, bf16 or fp16");
}
