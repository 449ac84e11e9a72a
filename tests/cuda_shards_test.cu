// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Compares CudaShardsEngine, a network of whole units over several shards on one GPU or on several,
// with the engine that has it as a whole, and with itself: captured, eager, resumed.

#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/units/shards.hpp>

#include "rounding_suite.hpp"

namespace shards_test {

using pvm_test::check_scores;
using pvm_test::doubles;
using pvm_test::hidden_49;
using pvm_test::largest_difference;
using pvm_test::run_steps;
using pvm_test::same_state;
using pvm_test::skipped;
using pvm_test::some_weights;
using pvm_test::start_from;
using pvm_test::weights_of;

/// So many multiprocessors in all, on so many emulated GPUs, whose launches overlap. On a machine
/// with GPUs: these, as they are.
struct Machine {
#if defined(PVM_EMULATED_CUDA)
  explicit Machine(int devices, int multiprocessors = 16)
      : different([&] {
          emulated_cuda::Facts facts;
          facts.devices = devices;
          facts.multiprocessors = multiprocessors / devices;
          facts.overlap = true;
          return facts;
        }()) {}
  emulated_cuda::Different different;
  static bool has(int /*devices*/) { return true; }
#else
  explicit Machine(int /*devices*/, int /*multiprocessors*/ = 16) {}
  static bool has(int devices) {
    int there = 0;
    return cudaGetDeviceCount(&there) == cudaSuccess && there >= devices;
  }
#endif
};

pvm::EngineOptions divided(int devices, int shards, pvm::EngineOptions options = {}) {
  for (int device = 0; device < devices; ++device) options.devices.push_back(device);
  options.shards = shards;
  return options;
}

/// Engines that are divided in one way.
template <class E, int devices, int shards>
struct Divided : pvm::CudaShardsEngine<E> {
  explicit Divided(const pvm::Spec& spec, int batch = 1, const pvm::EngineOptions& options = {})
      : pvm::CudaShardsEngine<E>(spec, batch, divided(devices, shards, options)) {}
};

/// The same network, with rates so high that a gradient listed with a wrong age shows.
pvm::Spec quick() {
  auto spec = hidden_49();
  spec.initial_learning_rate = 0.02;
  return spec;
}

/// The state after some steps.
template <class E>
pvm::EngineState trained(E&& engine, const pvm::Spec& spec, std::uint64_t steps = 23) {
  engine.restore(start_from(some_weights(engine.connectome().weights), 1));
  run_steps(engine, spec, steps, 5);
  return engine.save();
}

std::string refusal(const pvm::Spec& spec, const pvm::EngineOptions& options, int batch = 1) {
  try {
    const pvm::CudaShardsEngine<pvm::CudaResidentEngine<pvm::bf16>> engine(spec, batch, options);
  } catch (const pvm::Error& error) {
    return error.what();
  }
  return "not refused";
}

TEMPLATE_TEST_CASE("shards: the bits are those of one GPU with as many multiprocessors", "[gpu]",
                   pvm::CudaResidentEngine<pvm::bf16>, pvm::CudaResidentEngine<pvm::fp32>,
                   pvm::CudaStreamedEngine<pvm::bf16>, pvm::CudaStreamedEngine<pvm::fp32>) {
  if (skipped()) return;
  const auto spec = quick();
  const auto whole = [&] {
    const Machine one(1);
    return trained(TestType(spec), spec);
  }();
#if defined(PVM_EMULATED_CUDA)
  const Machine two(2);
  same_state(whole, trained(Divided<TestType, 2, 4>(spec), spec));
#else
  same_state(whole, trained(Divided<TestType, 1, 2>(spec), spec));
#endif
}

// The other types run eagerly and are resumed as these.
TEMPLATE_TEST_CASE("shards: captured, eager and resumed runs have the same bits", "[gpu]",
                   pvm::CudaResidentEngine<pvm::bf16>, pvm::CudaStreamedEngine<pvm::fp32>) {
  if (skipped()) return;
  if (!Machine::has(2)) {
    pvm_test::same_bits<Divided<TestType, 1, 2>>(1, hidden_49());
    return;
  }
  const Machine two(2);
  pvm_test::same_bits<Divided<TestType, 2, 2>>(1, hidden_49());
}

TEST_CASE("shards: two GPUs are within the rounding of one", "[gpu]") {
  using E = pvm::CudaResidentEngine<pvm::fp32>;
  if (skipped()) return;
  if (!Machine::has(2)) {
    std::printf("SKIPPED: there is one GPU\n");
    return;
  }
  const Machine two(2, 24);
  const auto spec = quick();
  const auto one = trained(E(spec), spec);
  const auto both = trained(Divided<E, 2, 2>(spec), spec);
  CHECK(largest_difference(both.weights, doubles(one.weights)) < pvm_test::tolerance);
  CHECK(largest_difference(both.hidden, doubles(one.hidden)) < pvm_test::tolerance);
}

TEST_CASE("shards: a checkpoint goes on with another number of shards", "[gpu]") {
  if (skipped()) return;
  using E = pvm::CudaResidentEngine<pvm::bf16>;
  const auto spec = quick();
  const Machine one(1);
  E whole(spec);
  Divided<E, 1, 2> two(spec);
  Divided<E, 1, 4> four(spec);
  auto start = start_from(some_weights(whole.connectome().weights), 1);
  whole.restore(start);
  run_steps(whole, spec, 33);
  two.restore(start);
  run_steps(two, spec, 11);
  four.restore(two.save());
  run_steps(four, spec, 11);
  E last(spec);
  last.restore(four.save());
  run_steps(last, spec, 11);
  same_state(whole.save(), last.save());
}

TEMPLATE_TEST_CASE("shards: scores, predictions and stored frames are those of one GPU", "[gpu]",
                   pvm::CudaResidentEngine<pvm::bf16>, pvm::CudaStreamedEngine<pvm::fp32>) {
  if (skipped()) return;
  const auto spec = hidden_49();
  const Machine one(1);
  TestType whole(spec);
  const int devices = pvm_test::emulated ? 2 : 1;  // of a GPU all multiprocessors, as `whole` has
  const Machine two(devices);
  pvm::CudaShardsEngine<TestType> gpu(spec, 1, divided(devices, 2)),
      stored(spec, 1, divided(devices, 2));
  const auto start = start_from(some_weights(gpu.connectome().weights), 1);
  whole.restore(start);
  gpu.restore(start);
  stored.restore(start);
  run_steps(whole, spec, 21);
  run_steps(gpu, spec, 21);
  check_scores(whole.take_score(), gpu.take_score(), 1e-12, 1e-12);
  CHECK(gpu.take_score().loss == 0);
  CHECK(gpu.device_seconds() > 0);
  std::vector<float> p(spec.frame_size()), q(p.size());
  whole.read_prediction(p);
  gpu.read_prediction(q);
  CHECK(p == q);
  std::vector<float> h(gpu.connectome().units.size() * 49), g(h.size());
  whole.read_hidden(h);
  gpu.read_hidden(g);
  CHECK(g == h);
  std::vector<float> y(gpu.connectome().outputs), z(y.size());
  whole.read_outputs(y);
  gpu.read_outputs(z);
  CHECK(y == z);

  REQUIRE(stored.reserve_frames(std::size_t{1} << 24, 21) >= 21);
  for (int done = 0; done < 21; done += 7) {
    auto block = stored.stage(7);
    pvm_test::fill(block, stored.step(), 1, spec.frame_size());
    stored.store_frames(static_cast<std::size_t>(done), block.pixels);
    std::fill(block.pixels.begin(), block.pixels.end(), std::uint8_t{0});
    for (std::size_t i = 0; i < 7; ++i) {
      block.stored[i] = static_cast<std::uint32_t>(done) + static_cast<std::uint32_t>(i);
    }
    stored.run(block, pvm::Mode::learn);
  }
  CHECK(weights_of(stored, spec) == weights_of(gpu, spec));
  std::vector<std::uint8_t> first(spec.frame_size()), expected(first.size());
  stored.read_frame(3, first);
  CHECK(std::count(first.begin(), first.end(), 0) < static_cast<std::ptrdiff_t>(first.size()));
  stored.reserve_frames(0, 0);
}

TEST_CASE("shards: a frozen network does not change, floats are frames", "[gpu]") {
  if (skipped()) return;
  const Machine one(1);
  using E = pvm::CudaResidentEngine<pvm::bf16>;
  const auto spec = hidden_49();
  Divided<E, 1, 2> engine(spec), floats(spec);
  const auto start = start_from(some_weights(engine.connectome().weights), 1);
  engine.restore(start);
  floats.restore(start);
  engine.hold_rate(1, 0.004F);
  floats.hold_rate(1, 0.004F);
  run_steps(engine, spec, 14);
  for (int done = 0; done < 14; done += 7) {
    auto block = floats.stage(7);
    pvm_test::fill(block, floats.step(), 1, spec.frame_size());
    std::vector<float> values;
    for (const auto pixel : block.pixels) {
      values.push_back(pvm::squeeze_pixel(static_cast<float>(pixel)));
    }
    block.squeezed = values;
    floats.run(block, pvm::Mode::learn);
  }
  const auto before = weights_of(engine, spec);
  CHECK(weights_of(floats, spec) == before);
  run_steps(engine, spec, 9, 4, pvm::Mode::freeze);
  CHECK(weights_of(engine, spec) == before);
  CHECK(engine.step() == 23);
  run_steps(engine, spec, 5);
  CHECK(weights_of(engine, spec) != before);
}

TEST_CASE("shards: what cannot be divided is refused in a sentence", "[gpu]") {
  if (skipped()) return;
  const auto says = [](const std::string& text, const char* what) {
    INFO(text);
    return text.find(what) != std::string::npos;
  };
  const auto spec = hidden_49();
  const Machine two(2);
  CHECK(says(refusal(spec, divided(1, 2), 2), "this engine runs one sequence"));
  CHECK(says(refusal(spec, divided(1, 5)), "5 shards cannot be dealt to 1 GPUs"));
  pvm::EngineOptions options;
  options.devices = {0, 0};
  CHECK(says(refusal(spec, options), "named twice"));
  options.devices = {0, 99};
  CHECK(says(refusal(spec, options), "there is no GPU 99"));
  auto other = spec;
  other.momentum = 0.9;
  CHECK(says(refusal(other, divided(1, 2)), "momentum"));
  other = spec;
  other.layer_shapes = {1};
  CHECK(says(refusal(other, divided(1, 2)), "fewer units than there are shards"));
#if defined(PVM_EMULATED_CUDA)
  CHECK(says(refusal(spec, divided(2, 3)), "3 shards cannot be dealt to 2 GPUs"));
  emulated_cuda::facts.peers = false;
  CHECK(says(refusal(spec, divided(2, 2)), "GPU 0 has no direct access to the memory of GPU 1"));
  emulated_cuda::facts.peers = true;
#endif
  CHECK(refusal(spec, divided(1, 2)) == "not refused");
  Divided<pvm::CudaResidentEngine<pvm::bf16>, 1, 2> engine(spec);
  CHECK(engine.description().find("2 shards on GPU 0, 0") == 0);
  CHECK_THROWS_AS(engine.restore(start_from(std::vector<float>(3), 1)), pvm::Error);
  CHECK(engine.step() == 0);
}

}  // namespace shards_test
