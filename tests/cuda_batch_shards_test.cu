// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Compares CudaBatchShardsEngine, a network of several sequences over several shards on one GPU or
// on several, with the reference, with the engines that have it as a whole, and with itself:
// captured, eager, resumed.

#include "catch.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/cuda/batch/shards.hpp>
#include <pvm/engine/cuda/make_one.hpp>
#include <pvm/engine/host/engine.hpp>

#include "rounding_suite.hpp"

// With pvm::compiled the engines, and their kernels, are the library's.
#if defined(PVM_COMPILED) && !defined(PVM_EMULATED_CUDA)
namespace pvm::inline v0::detail {
#define PVM_IN_LIBRARY(Engine, Precision)                                        \
  extern template AnyEngine make_of<Engine<Precision, dynamic, Momentum, void>>( \
      const Spec&, int, const EngineOptions&);
PVM_IN_LIBRARY(CudaBatchEngine, fp32)
PVM_IN_LIBRARY(CudaBatchEngine, bf16)
PVM_IN_LIBRARY(CudaBatchShardsEngine, fp32)
PVM_IN_LIBRARY(CudaBatchShardsEngine, bf16)
#undef PVM_IN_LIBRARY
}  // namespace pvm::inline v0::detail
#endif

namespace batch_shards_test {

using pvm_test::check_scores;
using pvm_test::doubles;
using pvm_test::early_tiny;
using pvm_test::largest_difference;
using pvm_test::run_steps;
using pvm_test::same_state;
using pvm_test::skipped;
using pvm_test::some_weights;
using pvm_test::start_from;
using pvm_test::steps_of;
using pvm_test::weights_of;

/// So many emulated GPUs, whose launches overlap. On a machine with GPUs: these, as they are.
struct Machine {
#if defined(PVM_EMULATED_CUDA)
  explicit Machine(int devices)
      : different([&] {
          emulated_cuda::Facts facts;
          facts.devices = devices;
          facts.overlap = true;
          return facts;
        }()) {}
  emulated_cuda::Different different;
#else
  explicit Machine(int /*devices*/) {}
#endif
};

/// How many GPUs a test takes that would like `wanted`.
int gpus(int wanted) {
  int there = wanted;
  if (!pvm_test::emulated && cudaGetDeviceCount(&there) != cudaSuccess) there = 1;
  return std::min(there, wanted);
}

/// Options of so many shards on as many GPUs as there are, or on one.
pvm::EngineOptions divided(int shards, int devices, pvm::EngineOptions options = {}) {
  for (int device = 0; device < devices; ++device) options.devices.push_back(device);
  options.shards = shards;
  return options;
}

template <class Engine>
pvm::AnyEngine make(const pvm::Spec& spec, int batch, const pvm::EngineOptions& options = {}) {
  return pvm::detail::make_of<Engine>(spec, batch, options);
}
template <class Precision>
using Whole = pvm::CudaBatchEngine<Precision, pvm::dynamic, pvm::Momentum, void>;
template <class Precision>
using Shards = pvm::CudaBatchShardsEngine<Precision, pvm::dynamic, pvm::Momentum, void>;

/// Engines in so many shards, each on a GPU of its own if there are as many.
template <class Precision, int shards>
struct Divided : pvm::AnyEngine {
  explicit Divided(const pvm::Spec& spec, int batch, const pvm::EngineOptions& options = {})
      : AnyEngine(make<batch_shards_test::Shards<Precision>>(
            spec, batch, divided(shards, gpus(shards) == shards ? shards : 1, options))) {}
};

/// Networks that differ in what crosses between shards and in what a shard keeps.
std::vector<pvm::Spec> kinds() {
  std::vector<pvm::Spec> specs;
  for (const auto& spec : pvm_test::odd_specs()) {
    for (const char* name : {"plain", "momentum 0.95", "fed context"}) {
      if (spec.name == name) specs.push_back(spec);
    }
  }
  return specs;
}

template <class Engine>
pvm::EngineState trained(Engine engine, const pvm::Spec& spec, std::uint64_t steps, int block = 5) {
  engine.restore(start_from(some_weights(pvm::make_connectome(spec).weights), engine.batch()));
  run_steps(engine, spec, steps, block);
  return engine.save();
}

TEST_CASE("batch shards: fp32 follows the reference", "[gpu]") {
  if (skipped()) return;
  const Machine machine(3);
  for (const auto& spec : kinds()) {
    INFO(spec.name);
    pvm_test::check_small(pvm_test::distance<Divided<pvm::fp32, 2>>(spec, 3, steps_of(30, 6)));
  }
  pvm_test::check_small(
      pvm_test::distance<Divided<pvm::fp32, 3>>(pvm_test::batched_49(), 3, steps_of(30, 6)));
}

TEST_CASE("batch shards: swept tiles stay within their rounding", "[gpu]") {
  if (skipped()) return;
  const Machine machine(3);
  const auto spec = pvm_test::batched_49();
  const int steps = steps_of(12, 4);
  for (const int batch : pvm_test::emulated ? std::vector{33} : std::vector{33, 64, 200}) {
    INFO(batch);
    pvm_test::require_rounded(pvm_test::distance<Divided<pvm::bf16, 2>>(spec, batch, steps), spec,
                              steps, 0x1p-9);
  }
  pvm_test::require_rounded(pvm_test::distance<Divided<pvm::bf16, 3>>(spec, 3, steps), spec, steps,
                            0x1p-9);
}

TEMPLATE_TEST_CASE("batch shards: captured, eager and resumed runs have the same bits", "[gpu]",
                   pvm::fp32, pvm::bf16) {
  if (skipped()) return;
  const Machine machine(2);
  pvm_test::same_bits<Divided<TestType, 2>>(3);
}

TEST_CASE("batch shards: bits do not depend on where shards are", "[gpu]") {
  if (skipped()) return;
  const Machine machine(2);
  const auto spec = early_tiny();
  const auto on = [&](int devices) {
    return trained(make<Shards<pvm::bf16>>(spec, 3, divided(2, devices)), spec, 9);
  };
  same_state(on(1), on(gpus(2)));
}

TEST_CASE("batch shards: a checkpoint goes on with another number of shards", "[gpu]") {
  if (skipped()) return;
  const Machine machine(3);
  auto spec = early_tiny();
  const std::uint64_t steps = 4;
  for (const double momentum : {0.1, 0.95}) {  // gradients are listed; floats beside weights
    spec.momentum = momentum;
    const auto expected = trained(make<Whole<pvm::fp32>>(spec, 3), spec, 4 * steps);
    const auto host = trained(pvm::AnyEngine::make<pvm::HostEngine<>>(spec, 3), spec, 4 * steps);
    auto state = trained(make<Whole<pvm::fp32>>(spec, 3), spec, steps);
    const auto goes_on = [&](pvm::AnyEngine engine) {
      engine.restore(state);
      run_steps(engine, spec, steps);
      state = engine.save();
    };
    goes_on(Divided<pvm::fp32, 2>(spec, 3));
    goes_on(Divided<pvm::fp32, 3>(spec, 3));
    goes_on(make<Whole<pvm::fp32>>(spec, 3));
    for (const auto* other : {&expected, &host}) {
      CHECK(largest_difference(state.weights, doubles(other->weights)) < pvm_test::tolerance);
      CHECK(largest_difference(state.outputs, doubles(other->outputs)) < pvm_test::tolerance);
    }
    CHECK(largest_difference(state.hidden, doubles(expected.hidden)) < pvm_test::tolerance);
    CHECK(largest_difference(state.hidden_gradients, doubles(expected.hidden_gradients)) <
          pvm_test::tolerance);
    CHECK(state.layout == expected.layout);
  }
}

TEMPLATE_TEST_CASE("batch shards: scores and predictions are those of one GPU", "[gpu]", pvm::fp32,
                   pvm::bf16) {
  if (skipped()) return;
  constexpr bool exact = std::is_same_v<TestType, pvm::fp32>;
  const Machine machine(2);
  const auto spec = early_tiny();
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights), 3);
  std::vector<float> p(3 * spec.frame_size()), q(p.size());
  pvm::Score one;
  {
    auto whole = make<Whole<TestType>>(spec, 3);
    whole.restore(start);
    run_steps(whole, spec, 9);
    one = whole.take_score();
    whole.read_prediction(p);
  }
  Divided<TestType, 2> shards(spec, 3);
  shards.restore(start);
  run_steps(shards, spec, 9);
  check_scores(one, shards.take_score(), exact ? 1e-5 : 1e-3, exact ? 1e-12 : 1e-6);
  CHECK(shards.take_score().loss == 0);
  shards.read_prediction(q);
  CHECK(largest_difference(q, doubles(p)) < (exact ? 4e-6 : 1e-2));
  CHECK(shards.device_seconds() > 0);
}

TEST_CASE("batch shards: frames may come squeezed or from the store", "[gpu]") {
  if (skipped()) return;
  const Machine machine(2);
  const auto spec = early_tiny();
  Divided<pvm::bf16, 2> bytes(spec, 3), others(spec, 3);
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights), 3);
  bytes.restore(start);
  others.restore(start);
  run_steps(bytes, spec, 8, 4);
  REQUIRE(others.reserve_frames(std::size_t{1} << 24, 12) >= 12);
  std::vector<float> values;
  for (const bool stored : {true, false}) {
    auto block = others.stage(4);
    pvm_test::fill(block, others.step(), 3, spec.frame_size());
    if (stored) {
      others.store_frames(0, block.pixels);
      for (std::size_t i = 0; i < 12; ++i) block.stored[i] = static_cast<std::uint32_t>(i);
    } else {
      for (const auto pixel : block.pixels) {
        values.push_back(pvm::squeeze_pixel(static_cast<float>(pixel)));
      }
      block.squeezed = values;
    }
    std::fill(block.pixels.begin(), block.pixels.end(), std::uint8_t{0});
    others.run(block, pvm::Mode::learn);
  }
  CHECK(weights_of(others, spec) == weights_of(bytes, spec));
  CHECK(others.take_score().persistence == bytes.take_score().persistence);
  others.reserve_frames(0, 0);
}

TEST_CASE("batch shards: a frozen network does not change, and a rate can be held", "[gpu]") {
  if (skipped()) return;
  const Machine machine(2);
  const auto spec = early_tiny();
  Divided<pvm::bf16, 2> engine(spec, 3);
  engine.restore(start_from(some_weights(pvm::make_connectome(spec).weights), 3));
  run_steps(engine, spec, 7);
  auto before = weights_of(engine, spec);
  run_steps(engine, spec, 4, 2, pvm::Mode::freeze);
  CHECK(weights_of(engine, spec) == before);
  for (std::size_t layer = 0; layer < spec.layer_shapes.size(); ++layer) {
    engine.hold_rate(layer, 0.0F);
  }
  run_steps(engine, spec, 1);
  before = weights_of(engine, spec);
  run_steps(engine, spec, 2);
  CHECK(weights_of(engine, spec) == before);
  engine.hold_rate(0, std::nullopt);
  run_steps(engine, spec, 3);
  CHECK(weights_of(engine, spec) != before);
  CHECK(engine.step() == 17);
}

TEST_CASE("batch shards: what cannot be divided is refused in a sentence", "[gpu]") {
  if (skipped()) return;
  const Machine machine(2);
  const auto refusal = [](const pvm::Spec& spec, const pvm::EngineOptions& options) {
    std::string sentence = "not refused";
    try {
      (void)make<Shards<pvm::fp32>>(spec, 3, options);
    } catch (const pvm::Error& error) {
      sentence = error.what();
    }
    return sentence;
  };
  const auto says = [](const std::string& text, const char* what) {
    INFO(text);
    return text.find(what) != std::string::npos;
  };
  const auto spec = early_tiny();
  CHECK(says(refusal(spec, divided(5, 1)), "5 shards cannot be dealt to 1 GPUs"));
  auto other = spec;
  other.layer_shapes = {1};
  CHECK(says(refusal(other, divided(2, 1)), "fewer units than there are shards"));
#if defined(PVM_EMULATED_CUDA)
  emulated_cuda::facts.peers = false;
  CHECK(says(refusal(spec, divided(2, 2)), "GPU 0 has no direct access to the memory of GPU 1"));
  emulated_cuda::facts.peers = true;
#endif
  auto engine = make<Shards<pvm::fp32>>(spec, 3, divided(2, 1));
  CHECK(engine.description().find("2 shards on GPU 0, 0, each: CUDA batch engine") == 0);
  CHECK_THROWS_AS(engine.restore(start_from(std::vector<float>(3), 3)), pvm::Error);
  CHECK(engine.step() == 0);
}

}  // namespace batch_shards_test
