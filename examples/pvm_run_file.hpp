// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The run file of `pvm`: the settings of a run, written beside its checkpoints and read by
/// --config.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/core/version.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/checkpoints.hpp>
#include <pvm/train/trainer_base.hpp>

/// The commit that the program was built from, with `-dirty` behind it if files had been changed;
/// empty if it is not known.
extern const char* const pvm_commit;

namespace run_file {

/// The version of the program, with its commit.
inline std::string version() {
  const std::string commit = pvm_commit;
  return "pvm " + pvm::version_text() + (commit.empty() ? "" : " (commit " + commit + ")");
}

/// The first line of every run file.
inline constexpr std::string_view first_words = "# The settings of a run of pvm";

/// The options given, as CLI11 writes them into a file that --config reads. What such a file cannot
/// hold (a name with `#`, say) is written as a comment, with a warning.
inline std::string settings(const CLI::App& app) {
  std::istringstream lines(app.config_to_str());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const std::string name = line.substr(0, line.find('='));
    const CLI::Option* const option = app.get_option_no_throw("--" + name);
    std::istringstream again(line);
    const auto read = app.get_config_formatter_base()->from_config(again);
    const bool same = option != nullptr && read.size() == 1 && read.front().name == name &&
                      read.front().inputs == option->reduced_results();
    if (same) {
      text += line + "\n";
      continue;
    }
    if (option != nullptr) {
      pvm::log(pvm::Severity::warning, "the run file does not hold --" + pvm::printable(name) +
                                           ", whose value such a file cannot express");
    }
    text += "# " + pvm::printable(line) + "\n";
  }
  return text;
}

/// Writes the run file when a run saves its first checkpoint. If there is one with other settings,
/// a run that begins at step 0 renames it to FILE.old, or FILE.old2 and so on; one that goes on
/// keeps it as comments behind its own.
class RunFile {
 public:
  /// `prefix`: of the checkpoints' names, or the one checkpoint's name. `settings`: the lines for
  /// --config. `checkpoints` must outlive this object.
  RunFile(const std::string& prefix, std::uint64_t every, std::string settings,
          const pvm::Checkpoints& checkpoints)
      : path_(path_for(prefix)),
        every_(every),
        settings_(std::move(settings)),
        checkpoints_(&checkpoints) {}

  /// PREFIX.run.toml, also if the prefix is the name of one checkpoint.
  [[nodiscard]] static std::string path_for(std::string prefix) {
    constexpr std::string_view ending = ".safetensors";
    if (prefix.ends_with(ending)) prefix.resize(prefix.size() - ending.size());
    return prefix + ".run.toml";
  }

  /// Throws Error (Fault::usage) if the file exists and is something else.
  void begin(const pvm::Moment& moment) {
    begin_ = moment.begin;
    pvm::io::remove_abandoned_temporaries(path_);
    std::error_code ignored;
    if (!std::filesystem::exists(path_, ignored) || is_run_file()) return;
    throw pvm::Error(pvm::Fault::usage,
                     "the run's settings cannot be written to " + pvm::quote(path_) +
                         ": it exists and is no run file of pvm; choose another name with -o");
  }
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    return written_ ? pvm::never : pvm::next_multiple(step, every_);
  }
  void at(const pvm::Moment& moment) { write(moment); }
  void end(const pvm::Moment& moment) {
    if (!checkpoints_->latest().empty()) write(moment);
  }

 private:
  [[nodiscard]] bool is_run_file() const {
    std::ifstream file(path_);
    std::string line;
    return std::getline(file, line) && line.starts_with(first_words);
  }

  void write(const pvm::Moment& moment) {
    if (written_) return;
    std::error_code ignored;
    std::string text(first_words);
    text += ", by " + version() + "; the same again: pvm --config FILE\n# from step " +
            std::to_string(begin_) + " to " + std::to_string(moment.target) + "; " +
            pvm::printable(moment.trainer.description()) + "\n# names of files count from " +
            pvm::printable(std::filesystem::current_path(ignored).string()) + "\n" + settings_;
    written_ = true;
    if (std::filesystem::exists(path_, ignored)) {
      std::ifstream file(path_);
      const std::string old{std::istreambuf_iterator<char>(file), {}};
      if (old.starts_with(text)) return;
      if (begin_ == 0) {
        set_aside();
      } else {
        text += as_history(old);
      }
    }
    try {
      pvm::io::make_directories_of(path_);  // the checkpoint's thread may not be there yet
      pvm::io::AtomicFile file(path_);
      file.write(text.data(), text.size());
      file.commit(false);
    } catch (const pvm::Error& error) {  // the run goes on without it, as without metrics
      pvm::log(pvm::Severity::warning, error.what());
    }
  }

  /// The file of the run's earlier parts, as comments.
  [[nodiscard]] static std::string as_history(const std::string& old) {
    std::istringstream lines(old);
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      text += (line.starts_with("#| ") ? "" : "#| ") + line + "\n";
    }
    return text;
  }

  /// Renames the file of an earlier run.
  void set_aside() const {
    std::error_code fault;
    std::string name = path_ + ".old";
    for (int n = 2; std::filesystem::exists(name, fault); ++n) {
      name = path_ + ".old" + std::to_string(n);
    }
    std::filesystem::rename(path_, name, fault);
    if (!fault) {
      pvm::log(pvm::Severity::info, "the settings of an earlier run are kept as " + name);
    }
  }

  std::string path_;
  std::uint64_t every_;
  std::string settings_;
  const pvm::Checkpoints* checkpoints_;
  std::uint64_t begin_ = 0;
  bool written_ = false;  // or it was tried
};

static_assert(pvm::Callback<RunFile>);

}  // namespace run_file
