// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Saves checkpoints while a run goes on.

#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <future>
#include <limits>
#include <memory>
#include <string>
#include <system_error>
#include <utility>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/trace.hpp>
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
/// During a run the state is copied, and a thread writes the file while training goes on. One file
/// is written at a time: where the next one is due before, training waits. At the end of a run all
/// files are on the disk.
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
    finish();
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
      kept_ = std::make_shared<KeptCheckpoints>(
          prefix_, keep_, [this](std::uint64_t step) { return path_at(prefix_, step); },
          moment.begin);
    }
    io::remove_abandoned_temporaries(prefix_ + (one_file ? "." : "_"));
    saved_step_ = moment.begin;  // there is nothing new to save yet
  }

  [[nodiscard]] std::uint64_t next(std::uint64_t step) const { return next_multiple(step, every_); }
  /// Throws Error (Fault::checkpoint) if a value is not finite.
  void at(const Moment& moment) {
    finish();  // first, so that there are never two copies of the state
    const auto checkpoint = std::make_shared<const io::Checkpoint>(moment.trainer.checkpoint());
    io::require_finite(*checkpoint);
    const auto write = [checkpoint, file = next_file(moment)] {
      try {
        return save(file, *checkpoint);
      } catch (const Error& error) {
        log(Severity::warning, std::string(error.what()) + "; the run goes on, and the next " +
                                   "checkpoint is tried again");
        return File{};
      }
    };
    try {
      writing_ = std::async(std::launch::async, [write] {
        trace::name_thread("save");
        return write();
      });
    } catch (const std::system_error&) {  // no thread can be started
      note(write());
    }
  }
  void end(const Moment& moment) {
    finish();
    if (moment.step == saved_step_) return;
    const io::Checkpoint checkpoint = moment.trainer.checkpoint();
    io::require_finite(checkpoint);
    note(save(next_file(moment), checkpoint));
  }

  /// The path of the latest checkpoint saved; empty before the first. During a run, a file that is
  /// being written counts from the next call of this callback on.
  [[nodiscard]] const std::string& latest() const noexcept { return latest_; }

 private:
  /// A checkpoint's file.
  struct File {
    std::string path;  ///< empty: it was not saved
    std::uint64_t step = 0;
    bool own = false;       ///< one file for all checkpoints, which this run has written before
    bool replaced = false;  ///< this run has replaced a file of an earlier one
    double relative = std::numeric_limits<double>::quiet_NaN();  ///< see Keep; NaN: too few steps
    std::shared_ptr<KeptCheckpoints> kept{};
  };

  [[nodiscard]] File next_file(const Moment& moment) const {
    File file{path_at(prefix_, moment.step), moment.step};
    file.own = file.path == latest_;
    file.replaced = replaced_;
    file.kept = kept_;
    if (moment.step - saved_step_ >= every_ - every_ / 2) {
      file.relative = prediction_mse(moment.score) / persistence_mse(moment.score);
    }
    return file;
  }
  /// Waits until the file that is being written, if any, is on the disk.
  void finish() {
    if (writing_.valid()) note(writing_.get());
  }
  void note(const File& saved) {
    if (saved.path.empty()) return;
    saved_step_ = saved.step;
    latest_ = saved.path;
    replaced_ = saved.replaced;
  }

  /// Throws Error (Fault::checkpoint) if it cannot be written. It uses no member, because it may
  /// run beside the training.
  static File save(File file, const io::Checkpoint& checkpoint) {
    refuse_other_files(file.path);
    std::error_code ignored;
    const bool replaces = !file.own && std::filesystem::exists(file.path, ignored);
    io::make_directories_of(file.path);
    io::detail::write_checkpoint(file.path, checkpoint);
    log(Severity::info,
        "checkpoint saved: " + file.path + (replaces ? " (it replaces an earlier file)" : ""));
    if (replaces && !std::exchange(file.replaced, true)) {  // once, for logs of warnings only
      log(Severity::warning, "checkpoints replace those of an earlier run: " + file.path +
                                 " is the first; another name keeps both");
    }
    if (file.kept) file.kept->add(file.path, file.step, file.relative);
    return file;
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
  std::shared_ptr<KeptCheckpoints> kept_;  // null: all stay
  std::uint64_t saved_step_ = 0;
  std::string latest_;
  bool replaced_ = false;
  std::future<File> writing_;  // its destructor waits, too
};

static_assert(Callback<Checkpoints>);

}  // namespace pvm::inline v0
