// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Measures a Predictor beside a Trainer of as many sequences on the same machine: frames a second,
/// and what a frame of one stream waits for its result.
///     bench_infer [SPEC.json ...] [--streams 1,16,64]
///     bench_infer [SPEC.json ...] --clip FILE [--train 4000] [--backend cuda]
///     bench_infer [SPEC.json ...] --load 1000 [--backend cuda --precision fp16]
///
/// Prints a JSON line for each number of streams: `fps` (frames per second of all streams in
/// lockstep), `training_fps` (of training steps with that batch), `latency_us` (median and 99th
/// percentile of single frames on one stream; in the line of 1 stream only). With a clip it trains
/// on that, freezes the network in each precision, and prints a table (frozen_table.hpp).
/// With a load it has so many cameras of 30 frames a second, and prints the latencies of their
/// frames (median, 99th percentile and longest, in ms). `first_ms`: from the weights in memory to
/// the first result.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <future>
#include <map>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <pvm/core/random.hpp>
#include <pvm/engine/host/engine.hpp>
#include <pvm/infer/predictor.hpp>
#include <pvm/model/initial_weights.hpp>
#include <pvm/model/json.hpp>

#include "command_line.hpp"
#include "frozen_table.hpp"
#include "paced_load.hpp"

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::vector<std::uint8_t> noise(std::size_t bytes) {
  std::vector<std::uint8_t> frame(bytes);
  for (std::size_t i = 0; i < bytes; ++i) {
    frame[i] = static_cast<std::uint8_t>(256 * pvm::uniform(2, i));
  }
  return frame;
}

double training_rate(const pvm::io::Checkpoint& network, int batch, double seconds) {
  auto engine = pvm::detail::make_host_engine<pvm::fp32, pvm::dynamic, pvm::RuntimeNetwork>(
      network.spec, batch, {});
  pvm::EngineState start;
  start.batch = batch;
  start.weights = network.state.weights;
  engine.restore(start);
  const auto frame = noise(network.spec.frame_size());
  std::uint64_t steps = 0;
  Clock::time_point begin;
  for (std::uint64_t step = 0; step < 3 || seconds_since(begin) < seconds; ++step) {
    if (step == 2) begin = Clock::now();
    const pvm::FrameBlock block = engine.stage(1);
    for (int b = 0; b < batch; ++b) {
      std::copy(frame.begin(), frame.end(),
                block.pixels.begin() +
                    static_cast<std::ptrdiff_t>(frame.size() * static_cast<std::size_t>(b)));
    }
    engine.run(block, pvm::Mode::learn);
    steps += step >= 2 ? 1 : 0;
  }
  return static_cast<double>(steps) * batch / seconds_since(begin);
}

double predictor_rate(pvm::Predictor& predictor, int count, double seconds) {
  std::vector<pvm::Stream> streams;
  for (int i = 0; i < count; ++i) streams.push_back(predictor.open());
  const auto frame = noise(predictor.spec().frame_size());
  std::vector<std::future<pvm::FrameResult>> results(streams.size());
  std::uint64_t steps = 0;
  Clock::time_point begin;
  for (std::uint64_t step = 0; step < 3 || seconds_since(begin) < seconds; ++step) {
    if (step == 2) begin = Clock::now();
    for (std::size_t i = 0; i < streams.size(); ++i) {
      results[i] = predictor.submit(streams[i], frame);
    }
    for (auto& result : results) result.get();
    steps += step >= 2 ? 1 : 0;
  }
  return static_cast<double>(steps) * count / seconds_since(begin);
}

std::vector<double> latencies(pvm::Predictor& predictor, double seconds) {
  pvm::Stream stream = predictor.open();
  const auto frame = noise(predictor.spec().frame_size());
  for (int i = 0; i < 3; ++i) predictor.predict(stream, frame);
  std::vector<double> all;
  for (const auto begin = Clock::now(); seconds_since(begin) < seconds;) {
    const auto start = Clock::now();
    predictor.predict(stream, frame);
    all.push_back(seconds_since(start) * 1e6);
  }
  std::sort(all.begin(), all.end());
  return all;
}

}  // namespace

namespace {

pvm::io::Checkpoint new_network(const pvm::Spec& spec) {
  pvm::io::Checkpoint network;
  network.spec = spec;
  network.state.weights = pvm::initial_weights(pvm::make_connectome(spec).weights, 1);
  return network;
}

/// What every measurement has in common.
struct Settings {
  std::vector<int> streams = {1, 16, 64};
  std::string clip;
  std::uint64_t steps = 4000;
  double seconds = 2;
  int load = 0;
  pvm::BackendChoice backend = pvm::BackendChoice::host;
  pvm::ForwardPrecision precision = pvm::ForwardPrecision::fp32;
};

void compare_with_training(const pvm::Spec& spec, const Settings& settings) {
  const pvm::io::Checkpoint network = new_network(spec);
  for (const int count : settings.streams) {
    pvm::Predictor predictor(network, {.policy = pvm::Throughput(count),
                                       .backend = settings.backend,
                                       .precision = settings.precision});
    std::printf("{\"spec\": \"%s\", \"streams\": %d, \"fps\": %.0f, \"training_fps\": %.0f",
                network.spec.name.c_str(), count,
                predictor_rate(predictor, count, settings.seconds),
                training_rate(network, count, settings.seconds));
    if (count == 1) {
      const auto all = latencies(predictor, settings.seconds);
      std::printf(", \"latency_us\": [%.0f, %.0f]", all[all.size() / 2],
                  all[all.size() * 99 / 100]);
    }
    std::printf("}\n");
    std::fflush(stdout);
  }
}

void put_load(const pvm::Spec& spec, const Settings& settings) {
  const pvm::io::Checkpoint network = new_network(spec);
  const auto frame = noise(spec.frame_size());
  const auto begin = Clock::now();
  pvm::Predictor predictor(network, {.policy = pvm::Latency(256),
                                     .prediction = false,
                                     .queue_frames = 65'536,
                                     .backend = settings.backend,
                                     .precision = settings.precision});
  {
    pvm::Stream stream = predictor.open();
    predictor.predict(stream, frame);
  }
  std::printf("%s\n{\"first_ms\": %.0f}\n", predictor.description().c_str(),
              1e3 * seconds_since(begin));
  pvm_bench::run_paced_load(predictor, {settings.load, 30, settings.seconds}, frame);
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::string> files = {PVM_MODEL_ZOO "/small.json"};
  Settings settings;
  const std::map<std::string, pvm::BackendChoice> backends = {{"host", pvm::BackendChoice::host},
                                                              {"cuda", pvm::BackendChoice::cuda}};
  const std::map<std::string, pvm::ForwardPrecision> precisions = {
      {"fp32", pvm::ForwardPrecision::fp32},
      {"bf16", pvm::ForwardPrecision::bf16},
      {"fp16", pvm::ForwardPrecision::fp16}};
  CLI::App app{"Measures a Predictor beside a Trainer, in each precision, or under a load.",
               "bench_infer"};
  app.add_option("spec", files, "model specs");
  app.add_option("--streams", settings.streams, "numbers of streams")
      ->delimiter(',')
      ->check(CLI::Range(1, 4096));
  app.add_option("--clip", settings.clip, "train on this video and compare the precisions");
  app.add_option("--train", settings.steps, "steps of that training (4000)");
  app.add_option("--load", settings.load, "cameras of 30 frames a second")
      ->check(CLI::Range(1, 100'000));
  app.add_option("--backend", settings.backend, "host or cuda, of the Predictor")
      ->transform(CLI::CheckedTransformer(backends));
  app.add_option("--precision", settings.precision, "fp32, or on a GPU bf16 or fp16")
      ->transform(CLI::CheckedTransformer(precisions));
  app.add_option("--seconds", settings.seconds, "of each measurement");
  return pvm_bench::run_app(app, argc, argv, [&] {
    std::vector<pvm::Spec> specs;
    for (const std::string& file : files) specs.push_back(pvm::load_spec(file));
    if (!settings.clip.empty()) {
      return pvm_bench::print_frozen_table(
          specs, settings.clip, settings.steps, settings.backend,
          [&](pvm::Predictor& predictor, int count) {
            return predictor_rate(predictor, count, settings.seconds);
          },
          [&](pvm::Predictor& predictor) { return latencies(predictor, settings.seconds); });
    }
    for (const pvm::Spec& spec : specs) {
      settings.load > 0 ? put_load(spec, settings) : compare_with_training(spec, settings);
    }
  });
}
