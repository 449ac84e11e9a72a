// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// `pvm --dry-run`: what a run would take, before it begins.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <pvm/core/memory.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/device_plan.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/memory_part.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/train/memory_estimate.hpp>
#include <pvm/train/report.hpp>
#include <pvm/train/speed_estimate.hpp>
#include <pvm/train/time_limit.hpp>
#include <pvm/train/trainer.hpp>

namespace dry_run {

/// The frames of one pass of all sources that can be kept, as far as their number is known;
/// `unknown`: what counts for a source that does not know it.
inline std::size_t frames_of_pass(const std::vector<pvm::io::AnySource>& streams,
                                  std::size_t unknown = 0) {
  std::vector<std::string> seen;
  std::size_t frames = 0;
  for (const auto& stream : streams) {
    const std::string id = pvm::io::replay_id(stream);
    if (id.empty() || std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
    seen.push_back(id);
    frames += static_cast<std::size_t>(stream.length().value_or(unknown));
  }
  return frames;
}

/// Those of them that the host's frame cache keeps.
inline std::size_t frames_kept(const std::vector<pvm::io::AnySource>& streams,
                               const pvm::TrainerOptions& options, std::size_t frame_bytes) {
  const std::size_t budget = options.cache_bytes == pvm::share_of_free_memory
                                 ? pvm::available_memory() / 4
                                 : options.cache_bytes;
  return std::min(frames_of_pass(streams), budget / std::max<std::size_t>(1, frame_bytes));
}

inline void print_line(const std::string& purpose, std::size_t bytes) {
  std::printf("  %-40s %10.1f MB\n", purpose.c_str(), static_cast<double>(bytes) / 1e6);
}

/// Throws Error (Fault::memory) if a run needs more than there is.
inline void require(std::size_t need, std::size_t free, const std::string& memory,
                    const std::string& smaller) {
  if (need <= free) return;
  const auto megabytes = [](std::size_t bytes) {
    return std::to_string(bytes / 1'000'000) + " MB";
  };
  throw pvm::Error(pvm::Fault::memory, "the run would need " + megabytes(need) + " of " + memory +
                                           " and " + megabytes(free) + " are free; choose " +
                                           smaller);
}

/// Prints when a run of that many frames a second would end.
inline void print_expected(double frames, const std::string& what, std::uint64_t steps, int batch,
                           std::uint64_t target) {
  const double seconds = static_cast<double>(steps) * batch / frames;
  const auto whole = static_cast<unsigned long long>(std::llround(std::min(seconds, 1e12)));
  std::printf("expected: %.1f frames a second%s; step %llu after %lluh%02llum%02llus\n", frames,
              what.c_str(), static_cast<unsigned long long>(target), whole / 3600, whole / 60 % 60,
              whole % 60);
}

/// Prints the memory that a run on the host takes, by purpose.
template <class Precision>
void print_memory(const pvm::Spec& spec, const pvm::TrainerOptions& options,
                  const std::vector<pvm::io::AnySource>& streams, bool goes_on) {
  const int cores = static_cast<int>(std::max(1U, std::thread::hardware_concurrency()));
  const pvm::FramesAhead frames{streams.size(),
                                std::clamp<std::size_t>(2048 / streams.size(), 16, 256),
                                frames_kept(streams, options, spec.frame_size())};
  auto estimate = pvm::estimate_host_memory<Precision>(
      spec, options.batch, options.threads > 0 ? options.threads : cores, frames, options.reduce,
      goes_on);
  const std::size_t program = pvm::resident_bytes();
  std::printf("memory, by purpose:\n");
  print_line("program, libraries and open files", program);
  for (const pvm::MemoryPart& part : estimate.parts) print_line(part.purpose, part.bytes);
  print_line(estimate.passing.purpose + ", at times", estimate.passing.bytes);
  print_line("at most", program + estimate.peak());
  print_line("free now", pvm::available_memory());
  std::fflush(stdout);
  require(estimate.peak(), pvm::available_memory(), "memory",
          "a smaller spec, a smaller batch or fewer --threads");
}

/// Prints the memory that a run takes on a GPU, by purpose, as its engine plans it: on a GPU of the
/// kind `model`, which need not be there, or (null) on the present one.
template <class Precision>
pvm::DevicePlan print_gpu_memory(const pvm::Spec& spec, const pvm::TrainerOptions& options,
                                 const std::vector<pvm::io::AnySource>& streams,
                                 const pvm::GpuModel* model) {
  pvm::EngineOptions engine{options.reduce, options.threads, options.graph, true};
  engine.devices = options.devices;
  engine.shards = options.shards;
  const auto plan = pvm::plan_on_gpu<Precision>(spec, options.batch, model, engine);
  // The context of CUDA, the kernels and the graphs: an assumption, about what contexts of H200s
  // take.
  constexpr std::size_t of_cuda = 520'000'000;
  const std::size_t taken = pvm::sum_of(plan.parts);
  // Of what is left, as much as the frame cache may take: the rest of its frames go elsewhere.
  const std::size_t room = plan.free - std::min(plan.free, taken + of_cuda);
  const std::size_t budget =
      options.cache_bytes == pvm::share_of_free_memory ? room / 2 : options.cache_bytes;
  const std::size_t frame = std::max<std::size_t>(1, spec.frame_size());
  const std::size_t kept =
      pvm::frame_store_bytes(frames_of_pass(streams, 1), frame, std::min(budget, room));
  std::printf("memory of %s GPU%s, by purpose:\n", options.devices.size() > 1 ? "each" : "the",
              model == nullptr ? "" : (" " + std::string(model->name)).c_str());
  for (const pvm::MemoryPart& part : plan.parts) print_line(part.purpose, part.bytes);
  print_line("frame cache", kept);
  if (model != nullptr) print_line("CUDA itself, about", of_cuda);
  const std::size_t most = taken + kept + (model != nullptr ? of_cuda : 0);
  print_line("at most", most);
  print_line(model != nullptr ? "it has" : "free now", plan.free);
  std::fflush(stdout);
  require(most - kept, plan.free, "the GPU's memory", "a smaller spec or a smaller batch");
  return plan;
}

/// Prints what a run would take on a GPU of the kind `model`, and how fast it would be there.
template <class Precision>
void print_plan(const pvm::Spec& spec, const pvm::TrainerOptions& options,
                const std::vector<pvm::io::AnySource>& streams, const pvm::GpuModel& model,
                std::uint64_t steps, std::uint64_t target) {
  const auto plan = print_gpu_memory<Precision>(spec, options, streams, &model);
  std::printf("engine: %s\n", pvm::printable(plan.engine).c_str());
  if (options.devices.size() > 1 || options.shards > 1) {
    std::printf("how fast a divided network would be is not estimated\n");
    return;
  }
  const double frames = pvm::estimate_frames(plan, model, Precision::name,
                                             pvm::make_connectome(spec).weights, options.batch);
  print_expected(frames, " by an estimate, once all frames are in the frame cache", steps,
                 options.batch, target);
}

/// Runs for a moment, and prints how fast that was and when the run would end.
inline void print_rate(pvm::TrainerBase& trainer, std::vector<pvm::io::AnySource>& streams,
                       std::uint64_t target, bool caches) {
  constexpr double trial = 2;
  const std::uint64_t begin = trainer.step();
  const auto result = trainer.fit(streams, pvm::Steps{target}, pvm::TimeLimit{trial});
  const pvm::Report& report = trainer.report();
  const auto frames = static_cast<double>(report.frames);
  const double computing = report.gpu.value_or(report.engine);
  std::printf("engine: %s\n", pvm::printable(trainer.description()).c_str());
  if (report.frames == 0 || !(computing > 0)) return;
  const double alone = frames / computing, whole = frames / result.seconds;
  const bool kept = caches && std::all_of(streams.begin(), streams.end(), [](const auto& stream) {
                      return !pvm::io::replay_id(stream).empty();
                    });
  std::printf("frames a second, measured for %.1f s: %.1f, and %.1f by the engine alone\n",
              result.seconds, whole, alone);
  print_expected(kept ? alone : whole, kept ? ", once all frames are in the frame cache" : "",
                 target - std::min(target, begin), trainer.batch(), target);
}

}  // namespace dry_run
