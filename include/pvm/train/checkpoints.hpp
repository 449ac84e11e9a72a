// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Saves checkpoints while a run goes on.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <limits>
#include <optional>
#include <string>
#include <system_error>
#include <utility>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/kept_checkpoints.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// A callback that saves PREFIX_000100000.safetensors (the step, with at least 9 digits) at every
/// multiple of `every` steps (0: never) and where a run ends. A prefix that ends in .safetensors is
/// the name of one file, which is replaced each time. A checkpoint of the same name is replaced
/// atomically, any other file is left alone. Missing directories are created. If a checkpoint
/// cannot be saved during the run, on a full disk for example, a warning is logged and the run goes
/// on to the next one; only at the end is it a failure.
///
/// With a `Keep`, each save removes the earlier checkpoints of the run that it does not name. The
/// best are those with the lowest error of the predictions, divided by that of repeating the frame,
/// over the steps since the save before; one that is saved after fewer than half of `every` steps
/// is none of them.
class Checkpoints {
 public:
  explicit Checkpoints(std::string prefix, std::uint64_t every = 100'000, const Keep& keep = {})
      : prefix_(std::move(prefix)), every_(every), keep_(keep) {}

  /// The path of the checkpoint at `step`.
  [[nodiscard]] static std::string path_at(const std::string& prefix, std::uint64_t step) {
    if (prefix.ends_with(".safetensors")) return prefix;
    char digits[24];
    std::snprintf(digits, sizeof digits, "%09llu", static_cast<unsigned long long>(step));
    return prefix + "_" + digits + ".safetensors";
  }

  /// Throws Error (Fault::checkpoint) if the files cannot be written: before the run, not after;
  /// Fault::usage if one file is to be several that are kept.
  void begin(const Moment& moment) {
    if (const auto why = io::why_not_writable(path_at(prefix_, 0)); !why.empty()) {
      throw Error(Fault::checkpoint, "no checkpoint can be written as " +
                                         quote(path_at(prefix_, moment.target)) + ": " + why +
                                         "; choose another place");
    }
    refuse_other_files(path_at(prefix_, moment.target));
    const bool one_file = path_at(prefix_, 0) == prefix_;
    if (keep_.last > 0 && one_file) {
      throw Error(Fault::usage, quote(prefix_) + " is one checkpoint, which each save replaces; " +
                                    "to keep some of several, choose a name without .safetensors");
    }
    if (keep_.last > 0) {
      kept_.emplace(
          prefix_, keep_, [this](std::uint64_t step) { return path_at(prefix_, step); },
          moment.begin);
    }
    io::remove_abandoned_temporaries(prefix_ + (one_file ? "." : "_"));
    saved_step_ = moment.begin;  // there is nothing new to save yet
  }

  [[nodiscard]] std::uint64_t next(std::uint64_t step) const { return next_multiple(step, every_); }
  void at(const Moment& moment) {
    const io::Checkpoint checkpoint = moment.trainer.checkpoint();
    io::require_finite(checkpoint);
    try {
      save(moment, checkpoint);
    } catch (const Error& error) {
      log(Severity::warning, std::string(error.what()) + "; the run goes on, and the next " +
                                 "checkpoint is tried again");
    }
  }
  void end(const Moment& moment) {
    if (moment.step != saved_step_) save(moment, moment.trainer.checkpoint());
  }

  /// The path of the latest checkpoint saved; empty before the first.
  [[nodiscard]] const std::string& latest() const noexcept { return latest_; }

 private:
  /// Throws Error (Fault::checkpoint) if it cannot be written or a value is not finite.
  void save(const Moment& moment, const io::Checkpoint& checkpoint) {
    const std::filesystem::path path = path_at(prefix_, moment.step);
    refuse_other_files(path);
    std::error_code ignored;
    const bool own = path.string() == latest_;  // one file for all checkpoints
    const bool replaces = !own && std::filesystem::exists(path, ignored);
    io::make_directories_of(path);
    io::save_checkpoint(path, checkpoint);
    const bool long_enough = moment.step - saved_step_ >= every_ - every_ / 2;
    saved_step_ = moment.step;
    latest_ = path.string();
    log(Severity::info,
        "checkpoint saved: " + latest_ + (replaces ? " (it replaces an earlier file)" : ""));
    if (replaces && !std::exchange(replaced_, true)) {  // once, for logs that show only warnings
      log(Severity::warning, "checkpoints replace those of an earlier run: " + latest_ +
                                 " is the first; another name keeps both");
    }
    if (kept_) {
      const double relative = prediction_mse(moment.score) / persistence_mse(moment.score);
      kept_->add(path, moment.step,
                 long_enough ? relative : std::numeric_limits<double>::quiet_NaN());
    }
  }

  /// Throws Error (Fault::checkpoint) if `path` exists and is not a checkpoint of pvm.
  static void refuse_other_files(const std::filesystem::path& path) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored) || io::is_checkpoint(path)) return;
    throw Error(Fault::checkpoint,
                "no checkpoint can be written as " + quote(path.string()) +
                    ": it exists and is no checkpoint of pvm; choose another name");
  }

  std::string prefix_;
  std::uint64_t every_;
  Keep keep_;
  std::optional<KeptCheckpoints> kept_;  // without it all stay
  std::uint64_t saved_step_ = 0;
  std::string latest_;
  bool replaced_ = false;
};

static_assert(Callback<Checkpoints>);

}  // namespace pvm::inline v0
