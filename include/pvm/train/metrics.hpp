// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes measurements of a run to a file, as a JSON object per line.

#include <algorithm>
#include <array>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <functional>
#include <ios>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/need_json.hpp>

#include <nlohmann/json.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/metric.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// A callback that appends a line at every multiple of `every` steps and at the end of the run. A
/// line covers the steps since the line before: step, fps (frames of all sequences per second of
/// wall time), loss (mean squared error of all outputs of all units), mse and psnr (dB) of the
/// prediction, persistence_mse and persistence_psnr of repeating the frame of two steps before,
/// seconds (of training so far, those of the run's parts before a resume included). Values that
/// were not measured are null.
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
  void begin(const Moment& moment) {
    file_.reset();
    last_step_ = moment.begin;
    last_seconds_ = 0;
    std::error_code ignored;
    if (std::filesystem::exists(path_, ignored)) {
      if (!std::filesystem::is_regular_file(path_, ignored))
        refuse("it is not a file; choose another name");
      if (!holds_metrics()) refuse("it exists and holds something else; choose another name");
    }
    if (const auto why = io::why_not_writable(path_); !why.empty()) {
      refuse(why + "; choose another place");
    }
  }

  [[nodiscard]] std::uint64_t next(std::uint64_t step) const { return next_multiple(step, every_); }
  void at(const Moment& moment) { append(moment); }
  void end(const Moment& moment) {
    if (moment.step != last_step_) append(moment);
  }

 private:
  static constexpr std::array<std::string_view, 8> keys = {
      "step", "fps", "loss", "mse", "psnr", "persistence_mse", "persistence_psnr", "seconds"};

  [[noreturn]] void refuse(const std::string& why) const {
    throw Error(Fault::usage, "metrics cannot be written to " + quote(path_.string()) + ": " + why);
  }

  template <class M>
  void add(M metric) {
    const std::string name = M::name;
    const auto has_name = [&](const auto& own) { return own.first == name; };
    if (std::find(keys.begin(), keys.end(), name) != keys.end() ||
        std::any_of(own_.begin(), own_.end(), has_name)) {
      throw Error(Fault::usage, "a line of metrics has " + quote(name) +
                                    " already; give the program's own metric another name");
    }
    own_.emplace_back(name, [metric = std::move(metric)](const Moment& moment) mutable {
      return static_cast<double>(metric.value(moment));
    });
  }

  /// Parses a line of metrics; nothing if `line` is something else, or incomplete.
  static std::optional<nlohmann::json> parse(const std::string& line) {
    auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number_unsigned()) {
      return std::nullopt;
    }
    return json;
  }

  /// Whether the file is empty or its first line is a line of metrics.
  [[nodiscard]] bool holds_metrics() const {
    std::ifstream file(path_);
    if (!file) refuse("it exists and cannot be read (" + why_not_readable(path_) + ")");
    std::string line;
    return !std::getline(file, line) || parse(line);
  }

  void append(const Moment& moment) {
    if (!file_) open(moment.begin);
    const double seconds = moment.seconds - last_seconds_;
    const auto frames = static_cast<double>(moment.step - last_step_) * moment.trainer.batch();
    nlohmann::ordered_json line;
    line["step"] = moment.step;
    line["fps"] = frames / seconds;
    line["loss"] = mean_loss(moment.score);
    line["mse"] = prediction_mse(moment.score);
    line["psnr"] = psnr(prediction_mse(moment.score));
    line["persistence_mse"] = persistence_mse(moment.score);
    line["persistence_psnr"] = psnr(persistence_mse(moment.score));
    line["seconds"] = seconds_before_ + moment.seconds;
    for (auto& [name, value] : own_) line[name] = value(moment);
    *file_ << line.dump() + "\n" << std::flush;
    if (!*file_ && !std::exchange(failed_, true)) {
      log(Severity::warning, "metrics cannot be written to " + quote(path_.string()) +
                                 "; the run goes on without them");
    }
    last_step_ = moment.step;
    last_seconds_ = moment.seconds;
  }

  /// Opens the file for a run that begins at step `begin`. Called only when there is something to
  /// write, so that a run that fails at once changes nothing.
  void open(std::uint64_t begin) {
    std::error_code ignored;
    io::make_directories_of(path_);
    seconds_before_ = 0;
    bool is_ready = true;
    if (std::filesystem::exists(path_, ignored)) {
      if (begin == 0) {
        is_ready = set_aside();
      } else {
        is_ready = drop_after(begin);
      }
    }
    file_.emplace();
    if (is_ready) file_->open(path_, std::ios::app);
  }

  /// Renames the file to FILE.old or the like, unless it is empty. False if that fails.
  [[nodiscard]] bool set_aside() const {
    std::error_code fault;
    if (std::filesystem::file_size(path_, fault) == 0) return true;
    std::filesystem::path old = path_.string() + ".old";
    for (int n = 2; std::filesystem::exists(old, fault); ++n) {
      old = path_.string() + ".old" + std::to_string(n);
    }
    std::filesystem::rename(path_, old, fault);
    if (!fault) log(Severity::info, "metrics of an earlier run are kept as " + old.string());
    return !fault;
  }

  /// Drops the lines of steps after `begin` and reads how many seconds the run has trained already.
  /// False if the file cannot be rewritten; a full disk is no reason to end the run.
  [[nodiscard]] bool drop_after(std::uint64_t begin) {
    std::ifstream file(path_);
    std::string kept, line;
    while (std::getline(file, line)) {
      const auto json = parse(line);
      if (!json || (*json)["step"] > begin)
        continue;  // a later step, or a line that a killed run left incomplete
      kept += line + "\n";
      const auto& seconds = (*json)["seconds"];
      if (seconds.is_number()) seconds_before_ = seconds.get<double>();
    }
    try {
      io::AtomicFile rewritten(path_);
      rewritten.write(kept.data(), kept.size());
      rewritten.commit();
      return true;
    } catch (const Error&) {
      return false;
    }
  }

  std::filesystem::path path_;
  std::uint64_t every_;
  std::vector<std::pair<std::string, std::function<double(const Moment&)>>> own_;
  std::optional<std::ofstream> file_;
  std::uint64_t last_step_ = 0;
  double last_seconds_ = 0;
  double seconds_before_ = 0;  // seconds of training in the run's earlier parts
  bool failed_ = false;        // a warning about the file has been logged
};

static_assert(Callback<Metrics>);

}  // namespace pvm::inline v0
