// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Records what the warps of the units engine do during a few steps on a GPU, and draws it: which
/// part of the step each warp of each SM is in, when, and what it waits for.
///     bench_cuda_timeline --spec model_zoo/small.json --precision bf16
///                         -o timeline.png --trace timeline.json
///
/// The picture has a row of pixels for each warp; the trace is for https://ui.perfetto.dev; the table
/// says how long the parts take. This program compiles the kernels anew, with marks in them
/// (PVM_TIMELINE), which makes steps a few per cent slower (small in bf16 7 %).

#if !defined(PVM_TIMELINE)
#error "this program records timelines: compile all of it with -DPVM_TIMELINE"
#endif

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <pvm/engine/cuda/units/engine.hpp>
#include <pvm/io/chart.hpp>
#include <pvm/model/json.hpp>

#include "command_line.hpp"
#include "timeline_picture.hpp"

namespace {

struct Choices {
  std::string spec, precision = "bf16";
  std::filesystem::path picture = "timeline.png", trace;
  int steps = 2;
};

/// Runs a few thousand steps of random frames.
template <class Engine>
void run(Engine& engine) {
  std::mt19937 random(1);
  pvm::EngineState start;
  start.weights.resize(engine.connectome().weights);
  for (float& w : start.weights) w = 0.03F * (static_cast<float>(random() >> 8) * 0x1p-24F - 0.5F);
  engine.restore(start);
  constexpr int blocks = 16;
  for (int i = 0; i < blocks; ++i) {
    const pvm::FrameBlock block = engine.stage(engine.block_steps());
    for (auto& pixel : block.pixels) pixel = static_cast<std::uint8_t>(random());
    std::fill(block.scored.begin(), block.scored.end(), std::uint8_t{1});
    engine.run(block, pvm::Mode::learn);
  }
  engine.synchronize();
}

/// The roles of warps, by their numbers in a thread block.
template <class Sizes>
std::vector<pvm_bench::Role> roles_of() {
  constexpr auto multipliers = static_cast<std::uint32_t>(Sizes::multipliers);
  constexpr auto finishers = multipliers + static_cast<std::uint32_t>(Sizes::finishers);
  if (Sizes::specialised) {
    return {{"multipliers", 0, multipliers},
            {"finishers", multipliers, finishers},
            {"folders", finishers, static_cast<std::uint32_t>(Sizes::warps)}};
  }
  if (Sizes::pipelined) {
    return {{"streamers", 0, multipliers}, {"finishers", multipliers, finishers}};
  }
  return {{"warps", 0, multipliers}};
}

template <class Precision, pvm::detail::units::Home home>
void record(const Choices& choices) {
  pvm::Spec spec = pvm::load_spec(choices.spec);
  spec.delay_each_layer_learning = 1;  // all layers learn from the start
  pvm::CudaUnitsEngine<Precision, 49, home> engine(spec, 1, {});
  run(engine);
  const auto roles = roles_of<pvm::detail::units::Sizes<Precision, 49, home>>();
  const auto pieces = pvm::detail::units::pieces_of(engine.read_timeline());
  const auto window = pvm_bench::window_of(pieces, 2, choices.steps);
  const std::string title = spec.name + " in " + choices.precision + ", " +
                            std::to_string(choices.steps) + " steps. " + engine.description();
  pvm::io::write_png(choices.picture, pvm_bench::draw_timeline(pieces, roles, window, title));
  if (!choices.trace.empty()) pvm_bench::write_trace(choices.trace, pieces, roles, window);
  std::printf("%s\n%.2f us a step, with marks\n", title.c_str(),
              1e-3 * (window.end - window.begin) / choices.steps);
  pvm_bench::print_parts(pieces, roles);
  std::printf("%s\n", choices.picture.c_str());
}

/// Records with the engine that a Trainer takes.
template <class Precision>
void record_chosen(const Choices& choices) {
  std::string why;
  const pvm::Spec spec = pvm::load_spec(choices.spec);
  if (pvm::CudaResidentEngine<Precision>::plan(spec, why)) {
    return record<Precision, pvm::detail::units::Home::resident>(choices);
  }
  if (pvm::CudaStreamedEngine<Precision>::plan(spec, why)) {
    return record<Precision, pvm::detail::units::Home::streamed>(choices);
  }
  throw pvm::Error(pvm::Fault::usage, "this network does not run by whole units: " + why);
}

}  // namespace

int main(int argc, char** argv) {
  Choices choices;
  CLI::App app{"What warps do during a step on a GPU", "bench_cuda_timeline"};
  app.add_option("--spec", choices.spec, "model spec")->required()->check(CLI::ExistingFile);
  app.add_option("--precision", choices.precision, "of the products (default bf16)")
      ->check(CLI::IsMember({"fp32", "bf16", "fp16"}));
  app.add_option("--steps", choices.steps, "in the picture, 1 to 5 (default 2)")
      ->check(CLI::Range(1, 5));
  app.add_option("-o,--picture", choices.picture, "where the picture goes (default timeline.png)");
  app.add_option("--trace", choices.trace, "where a trace for Perfetto goes");
  return pvm_bench::run_app(app, argc, argv, [&] {
    if (choices.precision == "bf16") return record_chosen<pvm::bf16>(choices);
    if (choices.precision == "fp16") return record_chosen<pvm::fp16>(choices);
    return record_chosen<pvm::fp32>(choices);
  });
}
