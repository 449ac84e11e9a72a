// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Measures the rate of full training steps, or of frozen ones, on a GPU, including the upload of
/// frames from pinned host memory. Writes one JSON object to stdout.
///     bench_cuda_step --spec model_zoo/small.json --precision bf16
///
/// All layers learn from the start. The engine is CudaResidentEngine if the network fits it, else
/// CudaStreamedEngine, CudaContextEngine or CudaLongListEngine; CudaGeneralEngine for others,
/// and with --off-chip. With --own-activation it is CudaResidentEngine for an activation of the
/// program's own, which here computes the published one.

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <vector>

#include <CLI/CLI.hpp>

#include <pvm/engine/cuda/general/engine.hpp>
#include <pvm/engine/cuda/units/engine.hpp>
#include <pvm/model/json.hpp>

#include "command_line.hpp"

namespace {

struct Choices {
  std::string spec;
  int steps = 20000;
  int reps = 5;
  std::string precision = "fp32";
  bool eager = false;
  bool general = false;
  bool frozen = false;
  bool own = false;
};

/// An activation of the program's own.
struct OwnActivation : pvm::Polynomial {
  static constexpr const char* name = "own";
  static constexpr bool on_gpu = true;
};

void describe(CLI::App& app, Choices& c) {
  app.add_option("--spec", c.spec, "model spec")->required()->check(CLI::ExistingFile);
  app.add_option("--precision", c.precision, "of the products (default fp32)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  app.add_option("--steps", c.steps, "of a repetition (default 20000)")->check(CLI::PositiveNumber);
  app.add_option("--reps", c.reps, "repetitions, whose median counts (default 5)")
      ->check(CLI::PositiveNumber);
  app.add_flag("--no-graph", c.eager, "launch every step by itself");
  CLI::Option* off_chip =
      app.add_flag("--off-chip", c.general, "as where whole units fit no multiprocessor");
  app.add_flag("--frozen", c.frozen, "steps that do not learn");
  app.add_flag("--own-activation", c.own, "with an activation of the program's own")
      ->excludes(off_chip);
}

/// Runs `steps` steps and returns the seconds they took. Includes copying each frame from `frames`
/// into the staging block.
template <class Engine>
double seconds(Engine& engine, const std::vector<std::vector<std::uint8_t>>& frames, int steps,
               pvm::Mode mode) {
  engine.synchronize();
  const auto start = std::chrono::steady_clock::now();
  for (int done = 0; done < steps;) {
    const int n = std::min(steps - done, engine.block_steps());
    const pvm::FrameBlock block = engine.stage(n);
    for (std::size_t k = 0; k < block.scored.size(); ++k) {
      const auto& frame = frames[(static_cast<std::size_t>(done) + k) % frames.size()];
      std::memcpy(block.pixels.data() + k * frame.size(), frame.data(), frame.size());
      block.scored[k] = 1;
    }
    engine.run(block, mode);
    done += n;
  }
  engine.synchronize();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

template <class Engine>
void measure(const Choices& choices) {
  pvm::Spec spec = pvm::load_spec(choices.spec);
  if (choices.own) spec.own_activation = OwnActivation::name;
  spec.delay_each_layer_learning = 1;  // all layers learn from the start
  pvm::EngineOptions options;
  options.graph = !choices.eager;
  Engine engine(spec, 1, options);
  std::mt19937 random(1);
  pvm::EngineState start;
  start.weights.resize(engine.connectome().weights);
  for (float& w : start.weights) {
    w = 0.03F * (static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F);
  }
  engine.restore(start);
  std::vector<std::vector<std::uint8_t>> frames(64, std::vector<std::uint8_t>(spec.frame_size()));
  for (auto& frame : frames) {
    for (auto& pixel : frame) pixel = static_cast<std::uint8_t>(random());
  }
  const pvm::Mode mode = choices.frozen ? pvm::Mode::freeze : pvm::Mode::learn;
  (void)seconds(engine, frames, std::max(1000, choices.steps / 10), mode);
  std::vector<double> rates;
  for (int i = 0; i < choices.reps; ++i) {
    rates.push_back(choices.steps / seconds(engine, frames, choices.steps, mode));
  }
  std::sort(rates.begin(), rates.end());
  std::printf(
      "{\"spec\": \"%s\", \"precision\": \"%s\", \"graph\": %s, \"frozen\": %s, "
      "\"steps\": %d, \"reps\": %d, "
      "\"frames_per_second\": %.1f, \"least\": %.1f, \"most\": %.1f, \"device_bytes\": %zu, "
      "\"loss\": %.6g, \"engine\": \"%s\"}\n",
      spec.name.c_str(), choices.precision.c_str(), choices.eager ? "false" : "true",
      choices.frozen ? "true" : "false", choices.steps, choices.reps, rates[rates.size() / 2],
      rates.front(), rates.back(), engine.memory_needed(),
      [&] {
        const pvm::Score score = engine.take_score();
        return score.loss / static_cast<double>(score.outputs);
      }(),
      engine.description().c_str());
}

/// Measures the first of these engines of whole units that the network fits, else
/// CudaGeneralEngine.
template <class Precision, class... OfUnits>
void measure_first(const Choices& choices) {
  std::string why;
  const pvm::Spec spec = pvm::load_spec(choices.spec);
  const auto measured = [&]<class E>(std::type_identity<E> /*engine*/) {
    const bool fits = !choices.general && E::plan(spec, why).has_value();
    if (fits) measure<E>(choices);
    return fits;
  };
  if (!(measured(std::type_identity<OfUnits>{}) || ...)) {
    measure<pvm::CudaGeneralEngine<Precision>>(choices);
  }
}

void measure_own(const Choices& choices) {
  using namespace pvm;
  if (choices.precision == "bf16") {
    measure<CudaResidentEngine<bf16, 49, OwnActivation>>(choices);
  } else if (choices.precision == "fp16") {
    measure<CudaResidentEngine<fp16, 49, OwnActivation>>(choices);
  } else {
    measure<CudaResidentEngine<fp32, 49, OwnActivation>>(choices);
  }
}

void measure_chosen(const Choices& choices) {
  using namespace pvm;
  if (choices.precision == "bf16") {
    measure_first<bf16, CudaResidentEngine<bf16>, CudaStreamedEngine<bf16>,
                  CudaStreamedEngine<bf16, 64>, CudaStreamedEngine<bf16, 100>,
                  CudaContextEngine<bf16>>(choices);
  } else if (choices.precision == "fp16") {
    measure_first<fp16, CudaResidentEngine<fp16>, CudaStreamedEngine<fp16>>(choices);
  } else {
    measure_first<fp32, CudaResidentEngine<fp32>, CudaStreamedEngine<fp32>,
                  CudaLongListEngine<fp32>>(choices);
  }
}

}  // namespace

int main(int argc, char** argv) {
  Choices choices;
  CLI::App app{"Training steps on a GPU", "bench_cuda_step"};
  describe(app, choices);
  return pvm_bench::run_app(app, argc, argv,
                            [&] { choices.own ? measure_own(choices) : measure_chosen(choices); });
}
