// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes measurements of a run to a file, as a JSON object per line.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <pvm/train/callback.hpp>
#include <pvm/train/metric.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// A callback that appends a line at every multiple of `every` steps and at the end of the run. A
/// line covers the steps since the line before: step, fps (frames of all sequences per second of
/// wall time), loss (mean squared error of all outputs of all units), mse and psnr (dB) of the
/// prediction, persistence_mse and persistence_psnr of repeating the frame of two steps before,
/// seconds (of training so far, those of the run's parts before a resume included), memory_mb (of
/// the program, in main memory). Values that were not measured are null. If commands were obeyed
/// since the line before, they follow as `commands`, pairs of the step and the command's text; if
/// the run is in modes (see Modes), these follow as `modes`.
///
/// If the file exists: a run that begins at step k > 0 keeps its lines up to step k and drops later
/// ones, because those steps are run again. A run that begins at step 0 renames the file to
/// FILE.old, or FILE.old2 and so on, whichever name is free. A file that holds something else is
/// refused.
class Metrics {
 public:
  /// `every`: steps between two lines; 0 counts as 1. `own`: metrics of the program's own (see
  /// MetricType), appended to each line. Throws Error (Fault::usage) if one has the name of another
  /// key of the line.
  template <class... M>
  explicit Metrics(std::filesystem::path path, std::uint64_t every = 1000, M... own)
      : path_(std::move(path)), every_(std::max<std::uint64_t>(1, every)) {
    static_assert((MetricType<M> && ...),
                  "pvm::Metrics: a metric is a type with static constexpr const char* name and "
                  "double value(const pvm::Moment&)");
    if constexpr ((MetricType<M> && ...)) (add(std::move(own)), ...);
  }

  /// Throws Error (Fault::usage) if the file cannot be written or holds something else.
  void begin(const Moment& moment);

  [[nodiscard]] std::uint64_t next(std::uint64_t step) const { return next_multiple(step, every_); }
  void at(const Moment& moment) { append(moment); }
  void end(const Moment& moment) {
    if (moment.step != last_step_) append(moment);
  }

 private:
  [[noreturn]] void refuse(const std::string& why) const;

  template <class M>
  void add(M metric) {
    check_name(M::name);
    own_.emplace_back(M::name, [metric = std::move(metric)](const Moment& moment) mutable {
      return static_cast<double>(metric.value(moment));
    });
  }
  /// Throws Error (Fault::usage) if a line has something of that name already.
  void check_name(const std::string& name) const;

  /// Whether the file is empty or its first line is a line of metrics.
  [[nodiscard]] bool holds_metrics() const;

  void append(const Moment& moment);

  /// Opens the file for a run that begins at step `begin`. Called only when there is something to
  /// write, so that a run that fails at once changes nothing.
  void open(std::uint64_t begin);

  /// Renames the file to FILE.old or the like, unless it is empty. False if that fails.
  [[nodiscard]] bool set_aside() const;

  /// Drops the lines of steps after `begin` and reads how many seconds the run has trained already.
  /// False if the file cannot be rewritten; a full disk is no reason to end the run.
  [[nodiscard]] bool drop_after(std::uint64_t begin);

  std::filesystem::path path_;
  std::uint64_t every_;
  std::vector<std::pair<std::string, std::function<double(const Moment&)>>> own_;
  std::optional<std::ofstream> file_;
  std::uint64_t last_step_ = 0;
  std::uint64_t commands_ = 0;  // how many commands of the run are in lines
  double last_seconds_ = 0;
  double seconds_before_ = 0;  // seconds of training in the run's earlier parts
  bool failed_ = false;        // a warning about the file has been logged
};

static_assert(Callback<Metrics>);

}  // namespace pvm::inline v0

#if !defined(PVM_COMPILED)
#include <pvm/train/metrics-inl.hpp>
#endif
