// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Prints the progress of a run.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include <unistd.h>

#include <pvm/train/callback.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// The content of a progress line.
struct ProgressReport {
  std::uint64_t step = 0;        ///< the step counter
  std::uint64_t target = 0;      ///< the step counter at the end of the run
  double average_fps = 0;        ///< frames per second (of all sequences) since `fit` began
  double immediate_fps = 0;      ///< frames per second since the previous line
  double seconds_left = 0;       ///< estimated time to the end
  std::optional<double> psnr{};  ///< of the prediction, in dB; none if it was not measured
};

/// `12500000/100000000 (12.5%) | fps: 318.2 avg / 321.4 inst | ETA: 77h12m04s | psnr: 24.3`
inline std::string progress_line(const ProgressReport& report) {
  const double share = report.target == 0 ? 100.0
                                          : 100.0 * static_cast<double>(report.step) /
                                                static_cast<double>(report.target);
  constexpr double most_seconds = 1e12;
  const auto left = static_cast<unsigned long long>(
      std::llround(std::clamp(report.seconds_left, 0.0, most_seconds)));
  char line[200];
  std::snprintf(line, sizeof line,
                "%llu/%llu (%.1f%%) | fps: %.1f avg / %.1f inst | ETA: %lluh%02llum%02llus",
                static_cast<unsigned long long>(report.step),
                static_cast<unsigned long long>(report.target), share, report.average_fps,
                report.immediate_fps, left / 3600, left / 60 % 60, left % 60);
  std::string text = line;
  if (report.psnr) {
    std::snprintf(line, sizeof line, " | psnr: %.1f", *report.psnr);
    text += line;
  }
  return text;
}

/// A callback that prints the progress of a run: on a terminal one line that is rewritten about
/// twice a second, else a line at every multiple of `every` steps.
class Progress {
 public:
  /// `out`: an open file. `most_seconds`: the limit of a TimeLimit if the run has one, for the ETA.
  explicit Progress(std::uint64_t every = 1000, std::FILE* out = stdout,
                    double most_seconds = std::numeric_limits<double>::infinity())
      : every_(std::max<std::uint64_t>(1, every)),
        out_(out),
        most_seconds_(most_seconds),
        terminal_(::isatty(::fileno(out)) == 1) {}

  void begin(const Moment& moment) {
    last_step_ = moment.begin;
    last_seconds_ = 0;
    stride_ = 1;
    width_ = 0;
  }

  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    return terminal_ ? step + stride_ : next_multiple(step, every_);
  }

  void at(const Moment& moment) {
    print(moment);
    last_step_ = moment.step;
    last_seconds_ = moment.seconds;
  }

  void end(const Moment& moment) {
    if (moment.step != last_step_) print(moment);
    if (terminal_ && width_ > 0) std::fputc('\n', out_);
    std::fflush(out_);
  }

 private:
  void print(const Moment& moment) {
    const auto rate = [](std::uint64_t steps, double seconds) {
      return seconds > 0 ? static_cast<double>(steps) / seconds : 0.0;
    };
    const double average = rate(moment.step - moment.begin, moment.seconds);
    const double immediate = rate(moment.step - last_step_, moment.seconds - last_seconds_);
    const double batch = moment.trainer.batch();
    const auto left = static_cast<double>(moment.target - std::min(moment.step, moment.target));
    ProgressReport report{
        moment.step,
        moment.target,
        average * batch,
        immediate * batch,
        std::min(average > 0 ? left / average : 0, most_seconds_ - moment.seconds),
        {}};
    if (moment.score.pixels > 0) report.psnr = psnr(prediction_mse(moment.score));
    write(progress_line(report));
    stride_ = std::max<std::uint64_t>(1, static_cast<std::uint64_t>(immediate * 0.5));
  }

  void write(std::string line) {
    if (terminal_) {  // overwrites the previous line, which may have been longer
      const std::size_t width = line.size();
      line.insert(line.begin(), '\r');
      if (width < width_) line.append(width_ - width, ' ');
      width_ = width;
    } else {
      line += '\n';
    }
    std::fputs(line.c_str(), out_);
    std::fflush(out_);
  }

  std::uint64_t every_;
  std::FILE* out_;
  double most_seconds_;
  bool terminal_;
  std::uint64_t last_step_ = 0;
  double last_seconds_ = 0;
  std::uint64_t stride_ = 1;  // steps until the next line on a terminal
  std::size_t width_ = 0;     // characters of the line on the terminal
};

static_assert(Callback<Progress>);

}  // namespace pvm::inline v0
