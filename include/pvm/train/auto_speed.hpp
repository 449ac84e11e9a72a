// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Chooses batch and precision for a run by timed trials on its device. The choice depends on the
/// machine and on the clock; what a run computes in the batch and precision chosen does not.

#include <algorithm>
#include <cmath>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <iterator>
#include <string>
#include <thread>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/io/clip.hpp>
#include <pvm/model/network.hpp>
#include <pvm/train/memory_estimate.hpp>
#include <pvm/train/precisions.hpp>
#include <pvm/train/report.hpp>
#include <pvm/train/time_limit.hpp>
#include <pvm/train/trainer.hpp>
#include <pvm/train/trainer_base.hpp>
#include <pvm/train/trial.hpp>

namespace pvm::inline v0 {

/// How much a frame of a batch teaches, as a part of what a frame of one sequence does, if each
/// has its best rate: measured on a GPU by the frames that `small` needs to predict well
/// (docs/quality.md, "Time to quality"); between these batches, a straight line over the logarithm.
inline double worth_of_frame(int batch) {
  struct Measured {
    int batch;
    double worth;
  };
  constexpr Measured all[] = {{1, 1},     {8, 1},       {16, 0.86},  {32, 0.53},
                              {64, 0.30}, {128, 0.155}, {256, 0.081}};
  const Measured* above = std::begin(all);
  while (above != std::end(all) && above->batch < batch) ++above;
  if (above == std::end(all)) return all[6].worth * all[6].batch / batch;
  if (above->batch == batch) return above->worth;
  const Measured& below = above[-1];
  const double part = std::log2(static_cast<double>(batch) / below.batch) /
                      std::log2(static_cast<double>(above->batch) / below.batch);
  return below.worth * std::pow(above->worth / below.worth, part);
}

/// What a trial of a batch and a precision has shown.
struct SpeedTrial {
  std::string precision;
  int batch = 1;
  double frames = 0;  ///< a second, of all sequences; 0: it cannot run
  std::string trouble{};

  /// Frames a second of one sequence that would teach as much.
  [[nodiscard]] double worth() const { return frames * worth_of_frame(batch); }
};

struct SpeedChoice {
  SpeedTrial chosen;
  std::vector<SpeedTrial> trials;
  std::string engine;  ///< which ran the chosen one

  /// One line that says what was chosen, and why.
  [[nodiscard]] std::string why() const {
    const SpeedTrial* others[2] = {};  // the best of another batch, and of another precision
    for (const SpeedTrial& trial : trials) {
      const bool batch = trial.batch != chosen.batch;
      if (!batch && trial.precision == chosen.precision) continue;
      const SpeedTrial*& other = others[batch ? 0 : 1];
      if (other == nullptr || trial.worth() > other->worth()) other = &trial;
    }
    std::string text = text_of(chosen);
    for (const SpeedTrial* other : others) {
      if (other != nullptr) text += "; " + text_of(*other);
    }
    return text + " (" + std::to_string(trials.size()) + " trials)";
  }

 private:
  static std::string text_of(const SpeedTrial& trial) {
    char text[200];
    const std::string what = "batch " + std::to_string(trial.batch) + " in " + trial.precision;
    if (trial.frames == 0) return what + ": " + trial.trouble;
    std::snprintf(text, sizeof text, "%s: %.0f frames a second, worth %.0f of one sequence",
                  what.c_str(), trial.frames, trial.worth());
    return text;
  }
};

struct SpeedOptions {
  bool batch = true;      ///< choose the batch; else it is the run's
  bool precision = true;  ///< choose the precision; else it is the run's
  double seconds = 0.25;  ///< of each trial, beside its start
};

namespace detail {

/// Why a run on the host has no room in memory; empty if it has, or is not on the host.
template <class Backend>
std::string lacks_host_memory(const TrialRun& run) {
  const std::size_t need = with_precision(run.precision, [&]<class Precision>() -> std::size_t {
    if constexpr (std::same_as<Precision, tf32>) {
      return 0;
    } else {
      const TrainerOptions& o = run.options;
      if (o.ranks != nullptr || !runs_on_host<Precision, Backend>(o.backend)) return 0;
      const auto streams = static_cast<std::size_t>(o.batch);
      const int threads =
          o.threads > 0 ? o.threads : static_cast<int>(std::thread::hardware_concurrency());
      return estimate_host_memory<Precision>(run.spec, o.batch, std::max(1, threads), {streams},
                                             o.reduce)
          .peak();
    }
  });
  return need <= available_memory()
             ? ""
             : "it would need " + std::to_string(need / 1'000'000) + " MB of memory";
}

/// Frames a second of the engine alone, after its start.
template <class Backend>
SpeedTrial time_run(const TrialRun& run, double seconds, std::string& engine) {
  SpeedTrial trial{run.precision, run.options.batch};
  constexpr double any_rate = 1e-3;  // so that all layers learn
  constexpr std::uint64_t forever = std::uint64_t{1} << 62;
  trial.trouble = lacks_host_memory<Backend>(run);
  if (!trial.trouble.empty()) return trial;
  try {
    try_run<Backend>(run, any_rate, [&](TrainerBase& trainer, auto& streams) {
      engine = trainer.description();
      // The frames are in the engine's store after a pass, and layers begin to learn one by one.
      std::size_t pass = 0;
      for (const auto& clip : run.clips) pass = std::max(pass, clip->frames);
      const auto layers = static_cast<std::uint64_t>(trainer.spec().layer_shapes.size());
      const std::uint64_t begin = trainer.step();
      trainer.fit(streams, Steps{begin + std::max<std::uint64_t>(pass, layers)},
                  TimeLimit{seconds / 2});
      // The best of three: other programs only make a part of a trial slower.
      for (int part = 0; part < 3; ++part) {
        trainer.fit(streams, Steps{forever}, TimeLimit{seconds / 3});
        const Report& report = trainer.report();
        const double computing = report.gpu.value_or(report.engine);
        if (!(computing > 0)) continue;
        trial.frames = std::max(trial.frames, static_cast<double>(report.frames) / computing);
      }
    });
  } catch (const Error& error) {
    const bool impossible = error.fault() == Fault::memory || error.fault() == Fault::usage;
    if (!impossible) throw;
    trial.trouble = error.what();
  }
  return trial;
}

/// The batches that the run's frames allow: each sequence needs frames of its own, and a source
/// without an end has one sequence only.
inline std::vector<int> batches_for(const Clips& clips) {
  constexpr std::size_t least_frames = 4;  // between where two sequences begin
  std::size_t frames = 0;
  for (const auto& clip : clips) {
    if (clip->live) return {1};
    frames += clip->frames;
  }
  std::vector<int> batches{1};
  for (const int batch : {4, 8, 16, 32, 64, 128, 256}) {
    const auto b = static_cast<std::size_t>(batch);
    if (b <= clips.size() || b * least_frames <= frames) batches.push_back(batch);
  }
  return batches;
}

}  // namespace detail

/// Chooses the batch and the precision in which `run` learns most in a second on its device:
/// frames a second, as timed, times `worth_of_frame`. What differs by less than 5 % counts as
/// equal, and then the smaller batch, and fp32 before bf16 before fp16, are taken. What has no room
/// in memory is left out. Throws Error: Fault::memory if nothing has
/// room; what a Trainer throws.
template <class Backend = DefaultBackend<RuntimeNetwork>>
SpeedChoice choose_speed(TrialRun run, const SpeedOptions& options) {
  const std::vector<int> batches =
      options.batch ? detail::batches_for(run.clips) : std::vector{run.options.batch};
  const std::vector<std::string> precisions = options.precision
                                                  ? std::vector<std::string>{"fp32", "bf16", "fp16"}
                                                  : std::vector{run.precision};
  SpeedChoice choice;
  constexpr double noticeable = 1.05;
  for (const std::string& precision : precisions) {
    double best = 0;
    for (const int batch : batches) {
      run.precision = precision;
      run.options.batch = batch;
      std::string engine;
      const SpeedTrial trial = detail::time_run<Backend>(run, options.seconds, engine);
      choice.trials.push_back(trial);
      if (choice.trials.size() == 1 || trial.worth() > noticeable * choice.chosen.worth()) {
        choice.chosen = trial;
        choice.engine = engine;
      }
      // From 16 on, what is lost with larger batches is not won back.
      if (trial.frames == 0 || (batch > 16 && trial.worth() < 0.7 * best)) break;
      best = std::max(best, trial.worth());
    }
  }
  if (choice.chosen.frames == 0) throw Error(Fault::memory, choice.chosen.trouble);
  return choice;
}

}  // namespace pvm::inline v0
