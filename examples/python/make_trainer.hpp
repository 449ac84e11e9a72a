// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A Trainer from what Python says, with the choices that it leaves to trials.

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <pybind11/pybind11.h>

#include <pvm/engine/choose.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/pvm.hpp>
#include <pvm/train/auto_run.hpp>
#include <pvm/train/resumed_rate.hpp>
#include <pvm/train/trial_stop.hpp>

#include "frames.hpp"
#include "interrupt.hpp"
#include "trainer.hpp"

namespace pvm_python {

/// The arguments of pvm.Trainer, as Python has them. Numbers that trials may choose are texts then.
struct TrainerArguments {
  std::variant<std::int64_t, std::string> batch;
  std::string precision;
  std::optional<std::variant<double, std::string>> rate;
  std::optional<std::int64_t> rate_budget;
  py::object frames;
  std::uint64_t seed = 0;
  int threads = 0;
  std::string backend, reduce;  ///< reduce: empty is the checkpoint's, or mean
  bool freeze = false;
  std::optional<int> device;
  std::vector<int> devices;
  int shards = 0;
};

/// Whether trials are to choose it. Throws Error (Fault::usage) for a text other than "auto".
template <class Number>
bool is_auto(const char* what, const std::variant<Number, std::string>& value) {
  const auto* const text = std::get_if<std::string>(&value);
  if (text == nullptr || *text == "auto") return text != nullptr;
  throw pvm::Error(pvm::Fault::usage,
                   std::string(what) + " is " + pvm::quote(*text) + "; allowed: a number, or auto");
}

/// Throws Error (Fault::usage) if `value` is less than `least` or more than `most`.
template <class Number>
void check_range(const char* what, Number value, Number least, Number most) {
  if (value >= least && value <= most) return;  // not so if it is not a number
  const auto text = [](Number number) { return std::string(py::str(py::cast(number))); };
  throw pvm::Error(pvm::Fault::usage, std::string(what) + " is " + text(value) +
                                          "; allowed: " + text(least) + " to " + text(most));
}

/// The rate that is named, if one is.
inline std::optional<double> rate_of(const TrainerArguments& a) {
  if (!a.rate || std::holds_alternative<std::string>(*a.rate)) return std::nullopt;
  const double rate = std::get<double>(*a.rate);
  check_range("rate", rate, 0.0, 1000.0);
  return rate;
}

/// What trials are to choose. Throws Error (Fault::usage) if that goes with nothing else.
inline pvm::AutoOptions choices_of(const TrainerArguments& a) {
  pvm::AutoOptions wanted;
  wanted.batch = is_auto("batch", a.batch);
  wanted.precision = a.precision == "auto";
  wanted.rate = a.rate && is_auto("rate", *a.rate);
  wanted.has_rate = a.rate.has_value();
  if (a.rate_budget) {
    if (!wanted.rate) {
      throw pvm::Error(pvm::Fault::usage, "rate_budget is for the rate auto; give both, or none");
    }
    wanted.rate_budget = count_of("rate_budget", *a.rate_budget);
  }
  if (!wanted.any() && !a.frames.is_none()) {
    throw pvm::Error(pvm::Fault::usage,
                     "frames are for trials, and nothing is auto; give them to fit");
  }
  pvm::check_choices(wanted, a.freeze ? pvm::Mode::freeze : pvm::Mode::learn);
  return wanted;
}

/// The GPU of the run. Without a number it is the first one, whichever one another trainer of this
/// thread has.
inline int device_of(const TrainerArguments& a, pvm::BackendChoice backend) {
  if (a.device && backend == pvm::BackendChoice::host) {
    throw pvm::Error(pvm::Fault::usage,
                     "device names a GPU and the host backend uses none; leave one of them out");
  }
  if (a.device && *a.device < 0) {
    throw pvm::Error(pvm::Fault::usage, "device is " + std::to_string(*a.device) +
                                            "; allowed: the numbers of pvm.devices()");
  }
  if (a.device) return *a.device;
  const bool divided = !a.devices.empty() || a.shards > 0;
  return backend == pvm::BackendChoice::host || divided || pvm::gpus().empty() ? -1 : 0;
}

inline pvm::TrainerOptions options_of(const TrainerArguments& a) {
  pvm::TrainerOptions options;
  if (const auto* const batch = std::get_if<std::int64_t>(&a.batch)) {
    check_range<std::int64_t>("batch", *batch, 1, 65'536);
    options.batch = static_cast<int>(*batch);
  }
  options.seed = a.seed;
  check_range("threads", a.threads, 0, 1024);
  options.threads = a.threads;
  options.backend = backend_of(a.backend);
  options.reduce = reduce_of(a.reduce);
  options.mode = a.freeze ? pvm::Mode::freeze : pvm::Mode::learn;
  options.device = device_of(a, options.backend);
  options.devices = a.devices;
  options.shards = a.shards;
  return options;
}

/// Makes the choices and puts them into `run`, without the GIL; Ctrl-C ends the trials, by `stop`.
inline pvm::AutoChoice choose(pvm::TrialRun& run, const pvm::AutoOptions& wanted,
                              const py::object& frames) {
  if (frames.is_none()) {
    throw pvm::Error(pvm::Fault::usage,
                     "trials need frames; name those of the run, or some like them: frames=");
  }
  const Frames all(frames);
  const Frames::ForTrials for_trials(all);
  const StopOnInterrupt interrupt([&run] { run.stop->request(); });
  try {
    const py::gil_scoped_release unlocked;
    return pvm::choose_for(run, wanted, for_trials.openers());
  } catch (const pvm::io::Stopped&) {
    check_signals();
    throw pvm::Error(pvm::Fault::usage, "the trials were stopped before they had chosen anything");
  }
}

/// A run that goes on keeps what was chosen when it began.
inline Trainer resumed_run(const pvm::io::Checkpoint& checkpoint, const TrainerArguments& a,
                           const pvm::AutoOptions& wanted, pvm::TrainerOptions options) {
  options.batch = checkpoint.state.batch;
  if (a.reduce.empty()) options.reduce = checkpoint.reduce;
  std::optional<pvm::Spec> spec;
  if (wanted.rate) {
    spec = pvm::at_constant_rate(checkpoint.spec, pvm::found_rate(checkpoint, "the rate auto"));
  } else if (const auto rate = rate_of(a)) {
    pvm::require_rate(checkpoint, *rate, "rate");
    spec = pvm::at_constant_rate(checkpoint.spec, *rate);
  }
  const bool as_before = a.precision.empty() || wanted.precision;
  const std::string& precision = as_before ? checkpoint.precision : a.precision;
  pvm::AutoChoice kept;
  if (wanted.any()) kept.why = {pvm::kept_choices(checkpoint)};
  const py::gil_scoped_release unlocked;
  std::optional<pvm::io::Checkpoint> changed;
  if (spec) changed.emplace(checkpoint).spec = *spec;
  Trainer trainer(changed ? *changed : checkpoint, precision, options);
  trainer.note_choice(kept);
  return trainer;
}

/// A new run of `spec`, from the weights of `start` if that is not null.
inline Trainer new_run(pvm::Spec spec, const pvm::io::Checkpoint* start, const TrainerArguments& a,
                       const pvm::AutoOptions& wanted, const pvm::TrainerOptions& options) {
  if (const auto rate = rate_of(a)) spec = pvm::at_constant_rate(spec, *rate);
  const std::string usual = start != nullptr ? start->precision : "fp32";
  pvm::TrialStop stop;
  pvm::TrialRun run{std::move(spec), options, a.precision.empty() ? usual : a.precision, {},
                    start,           &stop};
  pvm::AutoChoice choice;
  if (wanted.any()) choice = choose(run, wanted, a.frames);
  const py::gil_scoped_release unlocked;
  std::optional<pvm::io::Checkpoint> changed;
  if (start != nullptr) changed.emplace(*start).spec = run.spec;
  Trainer trainer = changed ? Trainer(*changed, run.precision, run.options)
                            : Trainer(run.spec, run.precision, run.options);
  trainer.note_choice(choice);
  return trainer;
}

/// From a spec (a path or a dict), or from a Checkpoint.
inline Trainer make_trainer(const py::object& start, const TrainerArguments& a) {
  const pvm::AutoOptions wanted = choices_of(a);
  const pvm::TrainerOptions options = options_of(a);
  if (!py::isinstance<pvm::io::Checkpoint>(start)) {
    return new_run(spec_of(start), nullptr, a, wanted, options);
  }
  const auto& checkpoint = start.cast<const pvm::io::Checkpoint&>();
  if (checkpoint.state.resumable()) return resumed_run(checkpoint, a, wanted, options);
  return new_run(checkpoint.spec, &checkpoint, a, wanted, options);
}

}  // namespace pvm_python
