// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Measures the rate of training steps of the host engine, and compares it with the memory
/// bandwidth of the same machine.
///     bench_host_step [SPEC.json ...] [--benchmark_format=json] [--benchmark_filter=...]
///
/// Counters: `fps` (frames per second of all sequences), `MB/step` (bytes of weights that a step
/// must move: all are read, and 1/period of them written), `GB/s` (these bytes per second), `memory
/// GB/s` (the measured bandwidth of reading an array with as many floats as there are weights), and
/// `of memory` (the ratio of these two).

#include <cstddef>
#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>

#include <pvm/engine/host/engine.hpp>
#include <pvm/model/initial_weights.hpp>
#include <pvm/model/json.hpp>

#include "read_bandwidth.hpp"

namespace {

template <class Precision>
void step(benchmark::State& state, const pvm::Spec& spec, int batch) {
  pvm::HostEngine<pvm::dynamic, Precision> engine(spec, batch);
  pvm::EngineState start;
  start.batch = batch;
  start.weights = pvm::initial_weights(engine.connectome().weights, 1);
  engine.restore(start);
  std::uint8_t pixel = 0;
  const auto run = [&] {
    const auto block = engine.stage(engine.block_steps());
    for (auto& p : block.pixels) p = pixel = static_cast<std::uint8_t>(pixel * 5 + 3);
    engine.run(block, pvm::Mode::learn);
  };
  for (int i = 0; i < 3; ++i) run();
  for (auto _ : state) run();

  const double steps = static_cast<double>(state.iterations()) * engine.block_steps();
  const double bytes = static_cast<double>(engine.bytes_per_step());
  state.counters["fps"] = benchmark::Counter(steps * batch, benchmark::Counter::kIsRate);
  state.counters["MB/step"] = bytes / 1e6;
  state.counters["GB/s"] = benchmark::Counter(steps * bytes / 1e9, benchmark::Counter::kIsRate);
  const double bandwidth = pvm_bench::read_bandwidth(engine.connectome().weights);
  state.counters["memory GB/s"] = bandwidth / 1e9;
  state.counters["of memory"] =
      benchmark::Counter(steps * bytes / bandwidth, benchmark::Counter::kIsRate);
}

template <class Precision>
void register_steps(const pvm::Spec& spec) {
  for (const int batch : {1, 4, 16}) {
    const std::string name = spec.name + "/" + std::string(Precision::name);
    benchmark::RegisterBenchmark(
        (name + "/batch:" + std::to_string(batch)).c_str(),
        [spec, batch](benchmark::State& s) { step<Precision>(s, spec, batch); })
        ->Unit(benchmark::kMillisecond)
        ->UseRealTime()
        ->MinTime(3);
  }
}

}  // namespace

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  std::vector<std::string> paths(argv + 1, argv + argc);
  if (paths.empty()) paths = {PVM_MODEL_ZOO "/small.json"};
  try {
    for (const auto& path : paths) {
      auto spec = pvm::load_spec(path);
      spec.delay_each_layer_learning = 1;  // all layers learn from the start
      register_steps<pvm::fp32>(spec);
      register_steps<pvm::bf16>(spec);
      register_steps<pvm::fp16>(spec);
    }
  } catch (const pvm::Error& error) {
    std::cerr << "bench_host_step: " << error.what() << '\n';
    return 2;
  }
  benchmark::RunSpecifiedBenchmarks();
}
