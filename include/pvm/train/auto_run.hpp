// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes the choices that a run leaves to trials: its batch, its precision, its rate.

#include <cstdint>
#include <cstdio>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/source.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/train/auto_rate.hpp>
#include <pvm/train/auto_speed.hpp>
#include <pvm/train/trial.hpp>

namespace pvm::inline v0 {

/// What trials are to choose, and how long they may take.
struct AutoOptions {
  bool batch = false, precision = false, rate = false;
  std::uint64_t rate_budget = 10'000;  ///< steps of all trials of rates together
  double seconds = 0.25;               ///< of each trial of a batch and a precision
  /// The run is at a constant rate that somebody has named, not at its spec's schedule.
  bool has_rate = false;

  [[nodiscard]] bool any() const noexcept { return batch || precision || rate; }
};

/// What trials have chosen.
struct AutoChoice {
  std::string chosen;            ///< "batch 16, rate 0.32", as TrainerBase::note_choice takes it
  std::vector<std::string> why;  ///< a sentence for each choice, and advice if there is some
};

/// A rate as a person would write it, in as many digits as a rate has that trials find.
inline std::string rate_text(double rate) {
  char text[32];
  std::snprintf(text, sizeof text, "%.6g", rate);
  return text;
}

/// Throws Error (Fault::usage) if trials cannot choose what they are to choose for a run like this.
inline void check_choices(const AutoOptions& options, Mode mode) {
  if (!options.rate) return;
  require_rate_budget(options.rate_budget);
  if (mode == Mode::freeze) {
    throw Error(Fault::usage,
                "trials find a rate by learning, and the run is frozen; let it learn, "
                "or choose no rate");
  }
}

/// Makes the choices for `run`, on the first frames of `files`, and puts them into it: its batch,
/// its precision, and its spec, which then has a constant rate. Logs each sentence of `why`, after
/// "auto: ". Throws what `check_choices`, `read_trial_clips`, `choose_speed` and `find_rate` throw.
template <class Backend = DefaultBackend<RuntimeNetwork>>
AutoChoice choose_for(TrialRun& run, const AutoOptions& options,
                      const std::vector<io::Opener>& files) {
  AutoChoice made;
  if (!options.any()) return made;
  check_choices(options, run.options.mode);
  const auto say = [&made](std::string sentence) {
    log(Severity::info, "auto: " + sentence);
    made.why.push_back(std::move(sentence));
  };
  const auto note = [&made](const std::string& what) {
    made.chosen += (made.chosen.empty() ? "" : ", ") + what;
  };
  const int side = run.spec.frame_side();
  run.clips = read_trial_clips(files, {side, side, run.spec.input_channels});
  if (options.batch || options.precision) {
    const SpeedChoice choice =
        choose_speed<Backend>(run, {options.batch, options.precision, options.seconds});
    run.options.batch = choice.chosen.batch;
    run.precision = choice.chosen.precision;
    if (options.batch) note("batch " + std::to_string(run.options.batch));
    if (options.precision) note("precision " + run.precision);
    say(choice.why() + "; " + choice.engine);
    if (options.batch && !options.has_rate && !options.rate && run.options.batch > 1) {
      say("a batch learns so fast only at a higher rate than one sequence, and the spec's schedule "
          "is for one: trials find one, if they may choose the rate, too");
    }
  }
  if (options.rate) {
    const RateChoice choice = find_rate<Backend>(run, options.rate_budget);
    run.spec = at_constant_rate(run.spec, choice.rate);
    note("rate " + rate_text(choice.rate));
    say(choice.why());
  }
  return made;
}

/// What is said if a run that goes on from `checkpoint` leaves choices to trials: it keeps those
/// that were made when it began.
inline std::string kept_choices(const io::Checkpoint& checkpoint) {
  return "the run keeps the checkpoint's batch, precision and rate" +
         (checkpoint.chosen.empty() ? ""
                                    : ", which were chosen when it began: " + checkpoint.chosen);
}

}  // namespace pvm::inline v0
