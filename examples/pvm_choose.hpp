// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What `pvm` chooses by itself: `-b auto`, `--precision auto`, `--rate auto`; and `pvm devices`.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include <pvm/core/log.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/train/auto_rate.hpp>
#include <pvm/train/auto_speed.hpp>
#include <pvm/train/trial.hpp>

namespace choose_run {

/// What is to be chosen.
struct Wanted {
  bool batch = false, precision = false, rate = false;
  std::uint64_t rate_budget = 0;  ///< steps of trials for the rate

  [[nodiscard]] bool any() const { return batch || precision || rate; }
};

/// A rate as a person would write it.
inline std::string text_of(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", rate);
  return text;
}

/// Chooses, and puts the choice into `run`. Returns it as one line; logs why. `has_rate`: the
/// command line says something about rates.
inline std::string by_trials(pvm::TrialRun& run, const Wanted& wanted,
                             const std::vector<pvm::io::Opener>& files, bool has_rate) {
  const auto say = [](const std::string& line) { pvm::log(pvm::Severity::info, "auto: " + line); };
  const pvm::io::FrameShape shape{run.spec.frame_side(), run.spec.frame_side(),
                                  run.spec.input_channels};
  run.clips = pvm::read_trial_clips(files, shape);
  std::string chosen;
  const auto note = [&chosen](const std::string& what) {
    chosen += (chosen.empty() ? "" : ", ") + what;
  };
  if (wanted.batch || wanted.precision) {
    const auto choice =
        pvm::choose_speed(run, {.batch = wanted.batch, .precision = wanted.precision});
    run.options.batch = choice.chosen.batch;
    run.precision = choice.chosen.precision;
    if (wanted.batch) note("batch " + std::to_string(run.options.batch));
    if (wanted.precision) note("precision " + run.precision);
    say(choice.why() + "; " + choice.engine);
    if (wanted.batch && !has_rate && run.options.batch > 1) {
      say("a batch learns so fast only at a higher rate than one sequence, and the spec's schedule "
          "is for one: --rate auto finds one");
    }
  }
  if (wanted.rate) {
    const auto choice = pvm::find_rate(run, wanted.rate_budget);
    run.spec = pvm::at_constant_rate(run.spec, choice.rate);
    note("rate " + text_of(choice.rate));
    say(choice.why());
  }
  return chosen;
}

/// The options of `pvm devices`.
struct DeviceOptions {
  bool quiet = false;
};

inline void describe_devices(CLI::App& app, DeviceOptions&) {
  app.footer(R"(
pvm --device N trains on GPU N of this list. CUDA_VISIBLE_DEVICES=2,0 in the environment makes GPU 2
the first of the list and GPU 0 the second, and hides the others.)");
}

inline int devices(const DeviceOptions&) {
  std::string why;
  const auto all = pvm::gpus(&why);
  if (all.empty()) throw pvm::Error(pvm::Fault::device, why);
  for (const pvm::GpuInfo& gpu : all) {
    std::printf("%d: %s, %.1f GB, %d multiprocessors, compute capability %d.%d\n", gpu.index,
                pvm::printable(gpu.name).c_str(), static_cast<double>(gpu.memory) / 1e9,
                gpu.multiprocessors, gpu.capability / 10, gpu.capability % 10);
  }
  return 0;
}

}  // namespace choose_run
