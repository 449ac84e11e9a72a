// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// `pvm --dry-run`: what a run would take, before it begins.

#include <algorithm>
#include <cmath>
#include <concepts>
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
#include <pvm/engine/host/memory.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/train/memory_estimate.hpp>
#include <pvm/train/report.hpp>
#include <pvm/train/time_limit.hpp>
#include <pvm/train/trainer.hpp>

namespace dry_run {

/// Whether a run in this precision would be on the host.
template <class Precision>
bool on_host(pvm::BackendChoice wanted) {
  if (std::same_as<Precision, pvm::tf32> || wanted == pvm::BackendChoice::cuda) return false;
  using Net = pvm::RuntimeNetwork;
  const auto* const gpu =
      pvm::detail::gpu_engines<Precision, pvm::dynamic, Net, pvm::DefaultBackend<Net>>();
  std::string why;
  return wanted == pvm::BackendChoice::host || gpu == nullptr || !gpu->available(&why);
}

/// The frames of one pass of all sources, if they are kept and known.
inline std::size_t frames_kept(const std::vector<pvm::io::AnySource>& streams,
                               const pvm::TrainerOptions& options, std::size_t frame_bytes) {
  std::vector<std::string> seen;
  std::size_t frames = 0;
  for (const auto& stream : streams) {
    const std::string id = pvm::io::replay_id(stream);
    if (id.empty() || std::find(seen.begin(), seen.end(), id) != seen.end()) continue;
    seen.push_back(id);
    frames += static_cast<std::size_t>(stream.length().value_or(0));
  }
  const std::size_t budget = options.cache_bytes == pvm::share_of_free_memory
                                 ? pvm::available_memory() / 4
                                 : options.cache_bytes;
  return std::min(frames, budget / std::max<std::size_t>(1, frame_bytes));
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
  const auto line = [](const std::string& purpose, std::size_t bytes) {
    std::printf("  %-36s %10.1f MB\n", purpose.c_str(), static_cast<double>(bytes) / 1e6);
  };
  std::printf("memory, by purpose:\n");
  line("program, libraries and open files", program);
  for (const pvm::MemoryPart& part : estimate.parts) line(part.purpose, part.bytes);
  line(estimate.passing.purpose + ", at times", estimate.passing.bytes);
  line("at most", program + estimate.peak());
  line("free now", pvm::available_memory());
  std::fflush(stdout);
  if (estimate.peak() > pvm::available_memory()) {
    const auto megabytes = [](std::size_t bytes) {
      return std::to_string(bytes / 1'000'000) + " MB";
    };
    throw pvm::Error(pvm::Fault::memory, "the run would need " + megabytes(estimate.peak()) +
                                             " of memory and " +
                                             megabytes(pvm::available_memory()) +
                                             " are free; choose a smaller spec, a smaller batch or "
                                             "fewer --threads");
  }
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
  const double expected = kept ? alone : whole;
  const auto steps = static_cast<double>(target - std::min(target, begin));
  const double seconds = steps * trainer.batch() / expected;
  const auto whole_seconds = static_cast<unsigned long long>(std::llround(std::min(seconds, 1e12)));
  std::printf("expected: %.1f frames a second%s; step %llu after %lluh%02llum%02llus\n", expected,
              kept ? ", once all frames are in the frame cache" : "",
              static_cast<unsigned long long>(target), whole_seconds / 3600,
              whole_seconds / 60 % 60, whole_seconds % 60);
}

}  // namespace dry_run
