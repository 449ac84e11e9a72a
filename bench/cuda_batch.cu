// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Measures the rate of full training steps of many sequences on a GPU, including the upload of
/// frames from pinned host memory. Writes a JSON object per line to stdout. All layers learn from
/// the start.
///     bench_cuda_batch --spec model_zoo/small.json --batch 64,256 --precision bf16

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <pvm/engine/cuda/batch/engine.hpp>
#include <pvm/model/json.hpp>

#include "command_line.hpp"

namespace {

struct Choices {
  std::string spec;
  std::string precision = "bf16";
  std::vector<int> batches{64};
  int steps = 2000;
  int reps = 5;
  bool eager = false;
  bool adam = false;
};

void describe(CLI::App& app, Choices& c) {
  app.add_option("--spec", c.spec, "model spec")->required()->check(CLI::ExistingFile);
  app.add_option("--batch", c.batches, "sequences, one run for each (default 64)")
      ->delimiter(',')
      ->check(CLI::Range(1, 65'536));
  app.add_option("--precision", c.precision, "of the products (default bf16)")
      ->check(CLI::IsMember({"fp32", "tf32", "bf16", "fp16"}));
  app.add_option("--steps", c.steps, "of a repetition (default 2000)")->check(CLI::PositiveNumber);
  app.add_option("--reps", c.reps, "repetitions, whose median counts (default 5)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--no-graph", c.eager, "launch the kernels of every step one by one");
  app.add_flag("--adam", c.adam, "learn by Adam at a rate of 1e-5, in bf16");
}

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

/// Runs `steps` steps and returns the seconds they took. The frames are those that the pinned
/// staging blocks hold already.
template <class E>
double seconds(E& engine, int steps) {
  engine.synchronize();
  const auto start = Clock::now();
  for (int done = 0; done < steps;) {
    const pvm::FrameBlock block = engine.stage(std::min(steps - done, engine.block_steps()));
    engine.run(block, pvm::Mode::learn);
    done += block.steps;
  }
  engine.synchronize();
  return seconds_since(start);
}

/// The rate at which frames of `frame` bytes can be copied from pinned host memory to the device,
/// in frames per second.
double upload_rate(std::size_t frame) {
  constexpr std::size_t bytes = 64U << 20;
  pvm::detail::PinnedBytes host(bytes);
  pvm::detail::DeviceArray<std::uint8_t> device(bytes);
  pvm::detail::Stream stream;
  std::vector<double> times;
  for (int i = 0; i < 12; ++i) {
    const auto start = Clock::now();
    pvm::detail::cuda_check(
        cudaMemcpyAsync(device.get(), host.get(), bytes, cudaMemcpyHostToDevice, stream.get()),
        "uploading");
    pvm::detail::cuda_check(cudaStreamSynchronize(stream.get()), "uploading");
    times.push_back(seconds_since(start));
  }
  std::sort(times.begin(), times.end());
  return static_cast<double>(bytes) / static_cast<double>(frame) / times[times.size() / 2];
}

template <class Precision, class Rule = pvm::Momentum>
void measure(const Choices& choices, const pvm::Spec& spec, int batch) {
  pvm::EngineOptions options;
  options.graph = !choices.eager;
  pvm::CudaBatchEngine<Precision, pvm::dynamic, Rule> engine(spec, batch, options);
  std::mt19937 random(1);
  pvm::EngineState start;
  start.weights.resize(engine.connectome().weights);
  for (float& w : start.weights) {
    w = 0.03F * (static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F);
  }
  engine.restore(start);
  for (int i = 0; i < 2;
       ++i) {  // fills both staging blocks once; `seconds` uploads them repeatedly
    const pvm::FrameBlock block = engine.stage(engine.block_steps());
    for (auto& pixel : block.pixels) pixel = static_cast<std::uint8_t>(random());
    std::fill(block.scored.begin(), block.scored.end(), std::uint8_t{1});
    engine.run(block, pvm::Mode::learn);
  }
  (void)seconds(engine, std::max(100, choices.steps / 10));
  std::vector<double> rates;
  for (int i = 0; i < choices.reps; ++i) {
    rates.push_back(static_cast<double>(choices.steps) * batch / seconds(engine, choices.steps));
  }
  std::sort(rates.begin(), rates.end());
  const double median = rates[rates.size() / 2];
  const pvm::Score score = engine.take_score();
  std::printf(
      "{\"spec\": \"%s\", \"precision\": \"%s\", \"batch\": %d, \"graph\": %s, \"steps\": %d, "
      "\"reps\": %d, \"frames_per_second\": %.0f, \"least\": %.0f, \"most\": %.0f, "
      "\"us_per_step\": %.2f, \"upload_frames_per_second\": %.0f, \"device_bytes\": %zu, "
      "\"loss\": %.6g, \"engine\": \"%s\"}\n",
      spec.name.c_str(), std::string(Precision::name).c_str(), batch,
      choices.eager ? "false" : "true", choices.steps, choices.reps, median, rates.front(),
      rates.back(), 1e6 * batch / median, upload_rate(spec.frame_size()), engine.memory_needed(),
      score.loss / static_cast<double>(score.outputs), engine.description().c_str());
  std::fflush(stdout);
}

void measure_all(const Choices& choices) {
  pvm::Spec spec = pvm::load_spec(choices.spec);
  spec.delay_each_layer_learning = 1;  // all layers learn from the start
  if (choices.adam) {
    spec.learning_rule = "adam";
    spec.initial_learning_rate = 1e-5;
  }
  for (const int batch : choices.batches) {
    if (choices.adam) {
      if (choices.precision != "bf16") throw pvm::Error(pvm::Fault::usage, "--adam is for bf16");
      measure<pvm::bf16, pvm::Adam>(choices, spec, batch);
    } else if (choices.precision == "bf16") {
      measure<pvm::bf16>(choices, spec, batch);
    } else if (choices.precision == "fp16") {
      measure<pvm::fp16>(choices, spec, batch);
    } else if (choices.precision == "tf32") {
      measure<pvm::tf32>(choices, spec, batch);
    } else {
      measure<pvm::fp32>(choices, spec, batch);
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  Choices choices;
  CLI::App app{"Training steps of many sequences on a GPU", "bench_cuda_batch"};
  describe(app, choices);
  return pvm_bench::run_app(app, argc, argv, [&] { measure_all(choices); });
}
