// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Compares CudaBatchEngine with the plain double reference, with the host engine, and with itself:
// captured, eager, resumed, compiled for a fixed batch, with the sequences in another order.

#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/batch/engine.hpp>
#include <pvm/engine/host/engine.hpp>

#include "engine_suite.hpp"
#include "reference.hpp"
#include "rounding_suite.hpp"

using pvm_test::batched_49;
using pvm_test::check_scores;
using pvm_test::distance;
using pvm_test::doubles;
using pvm_test::early_tiny;
using pvm_test::largest_difference;
using pvm_test::run_steps;
using pvm_test::same_bits;
using pvm_test::skipped;
using pvm_test::some_weights;
using pvm_test::start_from;
using pvm_test::steps_of;
using pvm_test::tiny_spec;
using pvm_test::train;
using pvm_test::weights_of;

namespace {

/// Whether the GPU can sweep, that is, make a step in one pass over the weights.
bool can_sweep() {
  const auto device = pvm::detail::describe_device();
  return device.is_hopper_or_later && device.shared_bytes >= (227 << 10);
}
template <class E>
bool sweeps(const E& engine) {
  return engine.description().find("swept") != std::string::npos;
}

void require_exact(const pvm_test::Differences& d) {
  CHECK(d.hidden < 2e-6);
  CHECK(d.outputs < 2e-6);
  CHECK(d.weights < 2e-6);
}

}  // namespace

TEST_CASE("batch: fp32 follows the reference on every kind of network", "[gpu]") {
  if (skipped()) return;
  for (const auto& spec : pvm_test::odd_specs()) {
    // The sign of an error that is 0 except for rounding is not determined, and batches have such
    // errors.
    if (spec.opt_abs_diff) continue;
    INFO(spec.name);
    require_exact(distance<pvm::CudaBatchEngine<>>(spec, 3, steps_of(30, 6)));
  }
  require_exact(
      distance<pvm::CudaBatchEngine<>>(tiny_spec(), 2, steps_of(40, 6), pvm::Reduce::sum));
}

TEST_CASE("batch: fp32 outputs that read a wide context are as exact", "[gpu]") {
  if (skipped()) return;
  auto spec = early_tiny();
  spec.name = "wide fed context";
  spec.layer_shapes = {5, 3, 2};
  spec.hidden_block_size = pvm_test::emulated ? 4 : 8;  // tensor cores alone truncate
  spec.input_block_size = 2;
  spec.fan_in_square_size = 1;
  spec.feed_context_in_complex_layer = true;
  spec.initial_learning_rate = 1e-4;
  int widest = 0;
  for (const auto& unit : pvm::make_connectome(spec).units) {
    widest = std::max(widest, unit.representation);
  }
  REQUIRE(widest > (pvm_test::emulated ? 300 : 1000));
  require_exact(distance<pvm::CudaBatchEngine<>>(spec, 3, steps_of(12, 3)));
}

TEST_CASE("batch: fp32 follows the reference on networks drawn at random", "[gpu]") {
  if (skipped()) return;
  pvm_test::random_networks_follow<pvm::CudaBatchEngine<>>(1, steps_of(40, 3), steps_of(300, 40));
}

TEST_CASE("batch: any number of sequences", "[gpu]") {
  if (skipped()) return;
  for (const int batch : pvm_test::emulated ? std::vector{2, 33, 130}
                                            : std::vector{2, 9, 16, 33, 64, 100, 130, 256, 300}) {
    INFO(batch);
    require_exact(distance<pvm::CudaBatchEngine<>>(early_tiny(), batch, steps_of(12, 2)));
  }
  require_exact(distance<pvm::CudaBatchEngine<>>(batched_49(), 48, steps_of(12, 2)));
  require_exact(distance<pvm::CudaBatchEngine<>>(pvm_test::wide_units(), 7, steps_of(12, 2)));
}

TEMPLATE_TEST_CASE("batch: lower precisions stay within their rounding", "[gpu]", pvm::bf16,
                   pvm::fp16, pvm::tf32) {
  if (skipped()) return;
  pvm_test::batches_are_rounded<pvm::CudaBatchEngine<TestType>, TestType>();
}

TEMPLATE_TEST_CASE("batch: captured, eager and resumed runs have the same bits", "[gpu]", pvm::fp32,
                   pvm::bf16 PVM_TYPES_ON_GPU(pvm::fp16, pvm::tf32)) {
  if (skipped()) return;
  same_bits<pvm::CudaBatchEngine<TestType>>(5);
  if (!pvm_test::emulated) same_bits<pvm::CudaBatchEngine<TestType>>(200);
}

TEMPLATE_TEST_CASE("batch: a state goes on at the rates of another spec", "[gpu]",
                   pvm::fp32 PVM_TYPES_ON_GPU(pvm::bf16)) {
  if (skipped()) return;
  pvm_test::rates_of_another_spec_count<pvm::CudaBatchEngine<TestType>>(tiny_spec(), 5);
}

TEST_CASE("batch: a state goes on with the momentum of another spec", "[gpu]") {
  if (skipped()) return;
  for (const auto& [before, after] : {std::pair{0.8, 0.9}, {0.9, 0.0}}) {  // with a momentum array
    pvm_test::momentum_of_another_spec_counts<pvm::CudaBatchEngine<>>(tiny_spec(), 5, before,
                                                                      after);
  }
}

TEST_CASE("batch: two engines share a GPU", "[gpu]") {
  if (skipped()) return;
  using E = pvm::CudaBatchEngine<pvm::fp32>;
  auto smaller = batched_49();
  smaller.hidden_block_size = 4;
  pvm_test::engines_live_side_by_side<E>(batched_49(), smaller, 4);
  pvm_test::engines_live_side_by_side<E>(smaller, batched_49(), 4);
}

TEST_CASE("batch: weights beyond the range of fp16 stay numbers", "[gpu]") {
  if (skipped()) return;
  pvm_test::large_weights_stay_finite<pvm::CudaBatchEngine<pvm::fp16>>(pvm_test::hidden_49(), 4);
}

TEST_CASE("batch: a run starts at any step", "[gpu]") {
  if (!skipped()) pvm_test::starts_anywhere<pvm::CudaBatchEngine<>>(tiny_spec(), 5);
}

TEST_CASE("batch: rates of 0 end updates", "[gpu]") {
  if (skipped()) return;
  auto spec = tiny_spec();
  for (const double momentum : {0.1, 0.9}) {
    spec.momentum = momentum;
    pvm_test::rates_of_0_end_updates<pvm::CudaBatchEngine<>>(spec, 5);
  }
}

TEST_CASE("batch: a batch known at compile time gives the same bits", "[gpu]") {
  if (skipped()) return;
  const auto spec = early_tiny();
  const auto dynamic_run =
      train<pvm::CudaBatchEngine<pvm::bf16>>(spec, 48, steps_of(30, 6), pvm_test::some_pixel);
  CHECK(dynamic_run == train<pvm::CudaBatchEngine<pvm::bf16, 48>>(spec, 48, steps_of(30, 6),
                                                                  pvm_test::some_pixel));
  CHECK_THROWS_AS((pvm::CudaBatchEngine<pvm::bf16, 48>(spec, 47)), pvm::Error);
}

TEST_CASE("batch: one pass over the weights where the momentum dies out soon", "[gpu]") {
  if (skipped()) return;
  const bool can = can_sweep();
  using E = pvm::CudaBatchEngine<pvm::bf16>;
  for (const int batch : {2, 32, 64, 80, 128, 130, 200, 256}) {
    CHECK(sweeps(E(early_tiny(), batch)) == can);
  }
  CHECK_FALSE(sweeps(E(early_tiny(), 257)));  // too large: it is cut into slices
  CHECK_FALSE(sweeps(pvm::CudaBatchEngine<>(early_tiny(), 64)));
  auto spec = early_tiny();
  spec.momentum = 0.3;
  CHECK(sweeps(E(spec, 64)) == can);
  spec.initial_learning_rate = 0.4;
  CHECK_FALSE(sweeps(E(spec, 64)));
  spec.momentum = 0.1;  // almost nothing is left of it after a step, whatever the rate
  CHECK(sweeps(E(spec, 64)) == can);
  CHECK(sweeps(pvm::CudaBatchEngine<pvm::fp16>(spec, 64)) == can);
  spec.momentum = 0.95;
  CHECK_FALSE(sweeps(E(spec, 64)));
}

/// In a sweep, W receives the remaining ninetieth of older gradients (momentum 0.1) a step early.
TEMPLATE_TEST_CASE("batch: weights go the same way at the rates that batches are told", "[gpu]",
                   pvm::bf16 PVM_TYPES_ON_GPU(pvm::fp16)) {
  if (skipped()) return;
  auto spec =
      pvm_test::hidden_49();  // smaller networks soon diverge from one another at such rates
  spec.initial_learning_rate = 0.4;
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  const int steps = 10;
  const auto exact = train<pvm::CudaBatchEngine<>>(spec, 32, steps, pvm_test::some_pixel);
  const auto swept = train<pvm::CudaBatchEngine<TestType>>(spec, 32, steps, pvm_test::some_pixel);
  double way = 0, apart = 0;
  for (std::size_t i = 0; i < start.size(); ++i) {
    way += std::pow(static_cast<double>(exact[i]) - start[i], 2);
    apart += std::pow(static_cast<double>(exact[i]) - swept[i], 2);
  }
  std::printf("apart by %.2e of the way\n", std::sqrt(apart / way));
  CHECK(std::sqrt(apart / way) < 1.0 / 64);
}

/// A sweep computes the outputs and the updates of a step only together with the next step. Reading
/// them earlier must give the same values and must not change the run.
TEST_CASE("batch: looking changes nothing", "[gpu]") {
  if (skipped()) return;
  using E = pvm::CudaBatchEngine<pvm::bf16>;
  auto no_momentum = batched_49();
  no_momentum.momentum = 0;
  for (const auto& spec : {early_tiny(), batched_49(), no_momentum}) {
    for (const int batch :
         pvm_test::emulated ? std::vector{32} : std::vector{5, 64, 96, 128, 192, 256}) {
      INFO(spec.name << ", batch " << batch);
      const auto start = start_from(some_weights(pvm::make_connectome(spec).weights), batch);
      const auto b = static_cast<std::size_t>(batch);
      const int steps = steps_of(20, 5);
      E looked_at(spec, batch), alone(spec, batch);
      std::vector<float> y(b * looked_at.connectome().outputs), other(y.size());
      std::vector<float> frame(b * spec.frame_size());
      looked_at.restore(start);
      alone.restore(start);
      for (int t = 0; t < steps; ++t) {
        run_steps(looked_at, spec, 1);
        looked_at.read_outputs(y);
        looked_at.read_prediction(frame);
        if (t % 3 == 1) (void)weights_of(looked_at, spec);
      }
      run_steps(alone, spec, static_cast<std::uint64_t>(steps));
      alone.read_outputs(other);
      CHECK(other == y);
      CHECK(weights_of(alone, spec) == weights_of(looked_at, spec));
      const pvm::Score a = alone.take_score(), l = looked_at.take_score();
      CHECK(a.prediction == l.prediction);
      CHECK(a.persistence == l.persistence);
      CHECK(a.loss == l.loss);
    }
  }
}

/// A sweep computes errors from the outputs of two steps before, which come from the checkpoint
/// after a restart.
TEST_CASE("batch: a run in pieces of one step has the bits of one in one piece", "[gpu]") {
  if (skipped()) return;
  using E = pvm::CudaBatchEngine<pvm::bf16>;
  const auto spec = batched_49();
  for (const int batch : pvm_test::emulated ? std::vector{64} : std::vector{5, 32, 64, 128, 256}) {
    INFO(batch);
    const int steps = steps_of(12, 4);
    const pvm::EngineState start =
        start_from(some_weights(pvm::make_connectome(spec).weights), batch);
    pvm::EngineState state = start;
    E whole(spec, batch);
    whole.restore(state);
    run_steps(whole, spec, static_cast<std::uint64_t>(steps));
    for (int t = 0; t < steps; ++t) {
      E piece(spec, batch);
      piece.restore(state);
      run_steps(piece, spec, 1);
      state = piece.save();
    }
    const pvm::EngineState expected = whole.save();  // too long to be printed
    CHECK((state.weights == expected.weights));
    CHECK((state.outputs == expected.outputs));
    CHECK((state.output_gradients == expected.output_gradients));
    CHECK((state.hidden == expected.hidden));
    run_steps(whole, spec, 1);  // the first step after `restore` must use nothing of this step
    whole.restore(start);
    run_steps(whole, spec, static_cast<std::uint64_t>(steps));
    CHECK((whole.save().weights == expected.weights));
  }
}

TEST_CASE("batch: copies of one sequence learn what one sequence learns", "[gpu]") {
  if (skipped()) return;
  const auto spec = early_tiny();
  const auto same = [](std::size_t i, std::uint64_t t, std::size_t) {
    return pvm_test::some_pixel(i, t, 0);
  };
  const int steps = steps_of(50, 6);
  const auto one = train<pvm::HostEngine<>>(spec, 1, steps, same);
  for (const int batch : pvm_test::emulated ? std::vector{2, 64} : std::vector{2, 5, 64, 80, 100}) {
    INFO(batch);
    CHECK(largest_difference(train<pvm::CudaBatchEngine<>>(spec, batch, steps, same),
                             doubles(one)) < 2e-6);
  }
  // With a large momentum nothing is swept; rows of 96 and 160 sequences are no multiple of 128
  // bytes.
  auto slow = spec;
  slow.momentum = 0.95;
  for (const auto& [which, batch] :
       {std::pair(spec, 64), std::pair(slow, 96), std::pair(slow, 160)}) {
    INFO(batch);
    using E = pvm::CudaBatchEngine<pvm::bf16>;
    CHECK(largest_difference(train<E>(which, batch, steps, same),
                             doubles(train<E>(which, 1, steps, same))) <
          steps * which.initial_learning_rate / (1 - which.momentum) * 1.5 * 0x1p-9);
  }
}

TEST_CASE("batch: a sequence's place does not matter", "[gpu]") {
  if (skipped()) return;
  const auto spec = early_tiny();
  const auto net = pvm::make_connectome(spec);
  const int batch = 70;
  const std::size_t each = net.units.size() * static_cast<std::size_t>(net.hidden);
  const auto hidden = [&](std::size_t shift) {
    pvm::CudaBatchEngine<pvm::bf16> engine(spec, batch);
    engine.restore(start_from(some_weights(net.weights), batch));
    for (int step = 0; step < steps_of(20, 6); ++step) {
      const auto t = static_cast<std::uint64_t>(step);
      const auto block = engine.stage(1);
      for (std::size_t i = 0; i < block.pixels.size(); ++i) {
        const std::size_t b = (i / spec.frame_size() + shift) % batch;
        block.pixels[i] = pvm_test::some_pixel(i % spec.frame_size(), t, b);
      }
      engine.run(block, pvm::Mode::freeze);
    }
    std::vector<float> h(batch * each);
    engine.read_hidden(h);
    std::rotate(h.begin(), h.begin() + static_cast<std::ptrdiff_t>((batch - shift) % batch * each),
                h.end());
    return h;
  };
  const auto in_place = hidden(0);
  CHECK(in_place == hidden(1));
  CHECK(in_place == hidden(37));
  CHECK(
      std::vector<float>(in_place.begin(), in_place.begin() + static_cast<std::ptrdiff_t>(each)) !=
      std::vector<float>(in_place.begin() + static_cast<std::ptrdiff_t>(each),
                         in_place.begin() + static_cast<std::ptrdiff_t>(2 * each)));
}

TEST_CASE("batch: scores and predictions are the host engine's", "[gpu]") {
  if (skipped()) return;
  const auto spec = early_tiny();
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  pvm::HostEngine<> host(spec, 6);
  pvm::CudaBatchEngine<> gpu(spec, 6);
  host.restore(start_from(start, 6));
  gpu.restore(start_from(start, 6));
  run_steps(host, spec, 40);
  run_steps(gpu, spec, 40);
  check_scores(host.take_score(), gpu.take_score(), 1e-5, 1e-5);
  CHECK(gpu.take_score().loss == 0);
  std::vector<float> p(6 * spec.frame_size()), q(p.size());
  host.read_prediction(p);
  gpu.read_prediction(q);
  CHECK(largest_difference(q, doubles(p)) < 4e-6);
}

/// Sequences that only pad a batch do not count, however many there are.
TEST_CASE("batch: scores of sequences that fill no kernel are the host engine's", "[gpu]") {
  if (skipped()) return;
  const auto spec = early_tiny();
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  for (const int batch :
       pvm_test::emulated ? std::vector{33, 130} : std::vector{33, 65, 112, 130, 192, 200, 255}) {
    INFO(batch);
    pvm::HostEngine<> host(spec, batch);
    pvm::CudaBatchEngine<pvm::bf16> gpu(spec, batch);
    host.restore(start_from(start, batch));
    gpu.restore(start_from(start, batch));
    run_steps(host, spec, steps_of(12, 4));
    run_steps(gpu, spec, steps_of(12, 4));
    check_scores(host.take_score(), gpu.take_score(), 1e-3, 1e-3);
  }
}

/// In engines that sweep, the persistence is scored when frames arrive, in blocks of any length.
TEST_CASE("batch: what repeating the frame misses is counted where frames are scored", "[gpu]") {
  if (skipped()) return;
  const auto spec = early_tiny();
  const std::size_t size = spec.frame_size();
  for (const std::size_t batch : {std::size_t{5}, std::size_t{40}}) {
    INFO(batch);
    pvm::CudaBatchEngine<pvm::bf16> gpu(spec, static_cast<int>(batch));
    CHECK(sweeps(gpu) == can_sweep());
    gpu.restore(
        start_from(some_weights(pvm::make_connectome(spec).weights), static_cast<int>(batch)));
    const auto scores = [](std::uint64_t t, std::size_t b) { return t >= 2 && (t + b) % 3 != 0; };
    double expected = 0;
    for (const int steps : {1, 1, 1, 2, 3, 5}) {
      const auto block = gpu.stage(steps);
      pvm_test::fill(block, gpu.step(), batch, size);
      for (std::size_t i = 0; i < block.scored.size(); ++i) {
        const std::uint64_t t = gpu.step() + i / batch;
        block.scored[i] = scores(t, i % batch) ? 1 : 0;
        for (std::size_t k = 0; block.scored[i] != 0 && k < size; ++k) {
          const double moved = static_cast<double>(pvm_test::some_pixel(k, t, i % batch)) -
                               static_cast<double>(pvm_test::some_pixel(k, t - 2, i % batch));
          expected += moved * moved / (255.0 * 255.0);
        }
      }
      gpu.run(block, pvm::Mode::learn);
    }
    CHECK(std::abs(gpu.take_score().persistence / expected - 1) < 1e-3);
  }
}

/// A spec with frames of side x side pixels, in patches of block x block, with three channels.
pvm::Spec frames_of(int side, int block) {
  auto spec = early_tiny();
  spec.layer_shapes = {side / block, 1};
  spec.input_block_size = block;
  return spec;
}

TEMPLATE_TEST_CASE("batch: frames of any size may come squeezed", "[gpu]", pvm::fp32,
                   pvm::bf16 PVM_TYPES_ON_GPU(pvm::fp16)) {
  if (skipped()) return;
  using E = pvm::CudaBatchEngine<TestType>;
  // Frame sizes that are multiples of 16 values, of 4, and of neither, so that frames begin at any
  // alignment.
  for (const auto& spec : {frames_of(12, 3), frames_of(10, 5), frames_of(9, 3)}) {
    for (const int batch : pvm_test::emulated ? std::vector{5} : std::vector{1, 5, 40, 70}) {
      INFO(spec.frame_size() << " pixels, " << batch << " sequences");
      const auto start = some_weights(pvm::make_connectome(spec).weights);
      E bytes(spec, batch), floats(spec, batch);
      bytes.restore(start_from(start, batch));
      floats.restore(start_from(start, batch));
      for (int block_steps : {1, 7, 6, 7}) {
        for (E* engine : {&bytes, &floats}) {
          auto block = engine->stage(block_steps);
          pvm_test::fill(block, engine->step(), static_cast<std::size_t>(batch), spec.frame_size());
          std::fill(block.scored.begin(), block.scored.end(), engine->step() < 2 ? 0 : 1);
          std::vector<float> values;
          if (engine == &floats) {
            for (const auto pixel : block.pixels) {
              values.push_back(pvm::squeeze_pixel(static_cast<float>(pixel)));
            }
            std::fill(block.pixels.begin(), block.pixels.end(), std::uint8_t{0});
            block.squeezed = values;
          }
          engine->run(block, pvm::Mode::learn);
        }
      }
      CHECK(weights_of(floats, spec) == weights_of(bytes, spec));
      const pvm::Score a = bytes.take_score(), b = floats.take_score();
      CHECK(a.prediction == b.prediction);
      CHECK(a.persistence > 0);
      CHECK(a.persistence == b.persistence);
    }
  }
}

TEST_CASE("batch: a frozen network does not change", "[gpu]") {
  if (skipped()) return;
  const auto spec = early_tiny();
  for (const int batch : pvm_test::emulated ? std::vector{6} : std::vector{6, 200}) {
    INFO(batch);
    pvm::CudaBatchEngine<pvm::bf16> engine(spec, batch);
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

TEST_CASE("batch: another learning rule", "[gpu]") {
  if (skipped()) return;
  auto spec = early_tiny();
  spec.momentum = 0;
  spec.learning_rule = "sgd";
  using Plain = pvm::CudaBatchEngine<pvm::fp32, pvm::dynamic, pvm::Sgd>;
  require_exact(distance<Plain>(spec, 5, steps_of(30, 6)));
  same_bits<Plain>(pvm_test::emulated ? 5 : 20, spec);
  CHECK_THROWS_AS(Plain(early_tiny(), 5), pvm::Error);
}

/// Adam's updates depend on the number of updates that the layer has made: layers are switched on
/// one after another, and freezing resets the number.
TEST_CASE("batch: Adam is the host engine's", "[gpu]") {
  if (skipped()) return;
  auto spec = early_tiny();
  spec.learning_rule = "adam";
  spec.initial_learning_rate = 1e-5;
  using ByAdam = pvm::CudaBatchEngine<pvm::fp32, pvm::dynamic, pvm::Adam>;
  const auto start = some_weights(pvm::make_connectome(spec).weights);
  for (const auto reduce : {pvm::Reduce::mean, pvm::Reduce::sum}) {
    pvm::EngineOptions options;
    options.reduce = reduce;
    pvm::HostEngine<> host(spec, 5, options);
    ByAdam gpu(spec, 5, options);
    host.restore(start_from(start, 5));
    gpu.restore(start_from(start, 5));
    const auto both = [&](std::uint64_t steps, pvm::Mode mode) {
      run_steps(host, spec, steps, 7, mode);
      run_steps(gpu, spec, steps, 7, mode);
      const double d = largest_difference(weights_of(gpu, spec), doubles(weights_of(host, spec)));
      std::printf("adam: weights %.2e\n", d);
      return d;
    };
    // A gradient of nearly 0, whose sign is not determined, moves its weight by up to the rate.
    CHECK(both(10, pvm::Mode::learn) < 2e-6);
    CHECK(both(4, pvm::Mode::freeze) < 2e-6);
    CHECK(both(6, pvm::Mode::learn) < 2e-6);
    CHECK(largest_difference(weights_of(gpu, spec), doubles(start)) > 5e-5);
  }
  same_bits<ByAdam>(pvm_test::emulated ? 5 : 20, spec);
}

#if defined(PVM_EMULATED_CUDA)
TEST_CASE("batch: kernels compiled for older GPUs do not sweep on later ones") {
  CHECK(sweeps(pvm::CudaBatchEngine<pvm::bf16>(early_tiny(), 64)));
  const emulated_cuda::Different device({.compiled = 80});
  CHECK_FALSE(sweeps(pvm::CudaBatchEngine<pvm::bf16>(early_tiny(), 64)));
}

/// The kernels of a step without a sweep, in every slice of fp32, and Adam's, which need most.
TEST_CASE("batch: a GPU with 99 KB of shared memory for a thread block trains batches") {
  const emulated_cuda::Different device(emulated_cuda::rtx_40);
  const auto spec = batched_49();
  for (const int batch : {32, 64, 128}) {
    INFO(batch);
    require_exact(distance<pvm::CudaBatchEngine<>>(early_tiny(), batch, 2));
  }
  require_exact(distance<pvm::CudaBatchEngine<>>(spec, 5, 2));
  const auto d = distance<pvm::CudaBatchEngine<pvm::bf16>>(spec, 64, 2);
  pvm_test::require_rounded(d, spec, 2, 0x1p-9);
  auto by_adam = spec;
  by_adam.learning_rule = "adam";
  by_adam.initial_learning_rate = 1e-5;
  pvm::CudaBatchEngine<pvm::fp32, pvm::dynamic, pvm::Adam> adam(by_adam, 5);
  pvm::HostEngine<> host(by_adam, 5);
  const auto start = start_from(some_weights(pvm::make_connectome(spec).weights), 5);
  adam.restore(start);
  host.restore(start);
  run_steps(adam, by_adam, 3);
  run_steps(host, by_adam, 3);
  CHECK(largest_difference(weights_of(adam, spec), doubles(weights_of(host, spec))) < 2e-6);

  emulated_cuda::facts.shared = 64 << 10;
  std::string sentence;
  try {
    pvm::CudaBatchEngine<>(spec, 5);
  } catch (const pvm::Error& error) {
    sentence = error.what();
  }
  CHECK(sentence.find("emulated has 64; use the host backend") != std::string::npos);
}
#endif

TEST_CASE("batch: frames come from the store as from the block", "[gpu]") {
  if (skipped()) return;
  pvm_test::stored_frames_are_as_good<pvm::CudaBatchEngine<>>([](std::size_t) {});
#if defined(PVM_EMULATED_CUDA)  // a store larger than device memory continues in host memory
  const auto memory = emulated_cuda::facts.memory;
  pvm_test::stored_frames_are_as_good<pvm::CudaBatchEngine<>>([](std::size_t) {
    emulated_cuda::facts.memory = emulated_cuda::Memory::get().used() + (1 << 20);
  });
  emulated_cuda::facts.memory = memory;
#endif
}

TEST_CASE("batch: impossible requests are refused in a sentence", "[gpu]") {
  if (skipped()) return;
  const auto spec = tiny_spec();
  CHECK_THROWS_AS(pvm::CudaBatchEngine<>(spec, 0), pvm::Error);
  pvm::CudaBatchEngine<> engine(spec, 4);
  CHECK_THROWS_AS(engine.stage(0), pvm::Error);
  CHECK_THROWS_AS(engine.stage(engine.block_steps() + 1), pvm::Error);
  CHECK_THROWS_AS(engine.restore(start_from(std::vector<float>(3), 4)), pvm::Error);
  run_steps(engine, spec, 5);
  auto state = engine.save();
  state.batch = 3;
  CHECK_THROWS_AS(engine.restore(state), pvm::Error);
  state = engine.save();
  state.hidden.pop_back();
  CHECK_THROWS_AS(engine.restore(state), pvm::Error);
}

TEST_CASE("batch: the device memory taken is what was planned, by CUDA's count", "[gpu]") {
  if (skipped()) return;
  const auto free_bytes = [] {
    std::size_t free = 0, all = 0;
    REQUIRE(cudaMemGetInfo(&free, &all) == cudaSuccess);
    return static_cast<double>(free);
  };
  // Once before, so that the kernels are loaded and the heap has its first pages.
  { const pvm::CudaBatchEngine<> first(tiny_spec(), 16); }
  const double before = free_bytes();
  const pvm::CudaBatchEngine<> engine(tiny_spec(), 256);
  const double taken = before - free_bytes();
  const auto parts = engine.memory_parts();
  const auto planned = static_cast<double>(engine.memory_needed());
  CHECK(pvm::sum_of(parts) == engine.memory_needed());
  // A GPU gives whole pages of 2 MB to large arrays, of which there are a few.
  const double pages = 6 * 2e6;
  INFO("planned " << planned << ", taken " << taken);
  CHECK(std::abs(taken - planned) < 0.05 * planned + pages);
}
