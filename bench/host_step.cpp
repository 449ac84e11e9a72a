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

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <benchmark/benchmark.h>

#include <pvm/core/random.hpp>
#include <pvm/engine/host/engine.hpp>
#include <pvm/model/json.hpp>

namespace {

/// Reads an array of `n` floats once.
struct ReadAll {
  const float* data;
  std::size_t n;
  float* out;
  [[gnu::always_inline]] inline void operator()() const {
    pvm::simd::Lanes sums[4] = {};
    for (std::size_t i = 0; i + 64 <= n; i += 64) {
      for (std::size_t k = 0; k < 4; ++k) sums[k] += pvm::simd::at(data + i + 16 * k);
    }
    *out = pvm::simd::sum(sums[0] + sums[1] + sums[2] + sums[3]);
  }
};

/// The bandwidth in bytes per second at which all cores together read an array of `floats` floats.
/// Every other pass goes through the array's blocks backwards, as the engine does with its weights.
double read_bandwidth(std::size_t floats) {
  pvm::HugeArray array(floats);
  pvm::Team team(static_cast<int>(std::max(1U, std::thread::hardware_concurrency())));
  const auto members = static_cast<std::size_t>(team.size());
  constexpr std::size_t block = 1 << 15;
  const std::size_t blocks = floats / block / members;
  constexpr std::size_t passes = 20;
  std::vector<float> sums(members * 16);
  auto work = [&](int member) {
    const auto m = static_cast<std::size_t>(member);
    for (std::size_t pass = 0; pass < passes; ++pass) {
      for (std::size_t k = 0; k < blocks; ++k) {
        const std::size_t at = (pass % 2 == 0 ? k : blocks - 1 - k) * members + m;
        pvm::simd::for_best_isa(ReadAll{array.data() + at * block, block, &sums[m * 16]});
      }
    }
  };
  team.run(work);  // warms up
  const auto start = std::chrono::steady_clock::now();
  team.run(work);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  benchmark::DoNotOptimize(sums.data());
  return static_cast<double>(passes * blocks * members * block * sizeof(float)) / seconds.count();
}

template <class Precision>
void step(benchmark::State& state, const pvm::Spec& spec, int batch) {
  pvm::HostEngine<pvm::dynamic, Precision> engine(spec, batch);
  pvm::EngineState start;
  start.batch = batch;
  start.weights.resize(engine.connectome().weights);
  for (std::size_t i = 0; i < start.weights.size(); ++i) {
    start.weights[i] = 0.03F * (pvm::uniform(1, i) - 0.5F);
  }
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
  const double bandwidth = read_bandwidth(engine.connectome().weights);
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
