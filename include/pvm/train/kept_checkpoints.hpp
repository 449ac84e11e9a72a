// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which checkpoints of a run stay, and the list of those that may be removed.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/checkpoint.hpp>

namespace pvm::inline v0 {

/// Which checkpoints of a run stay. The default keeps all.
struct Keep {
  std::uint64_t last = 0;  ///< the newest ones; 0: all
  std::uint64_t best = 0;  ///< beside them, those whose predictions were best
  bool operator==(const Keep&) const = default;
};

/// The `Keep` that a text means: `all`, or `last:N` and `best:N` with a comma between. The newest
/// one always stays. Throws Error (Fault::usage) if it is something else; `what` begins the
/// message.
inline Keep parse_keep(std::string_view text, const std::string& what) {
  constexpr std::uint64_t most = 1'000'000;
  if (text == "all") return {};
  Keep keep;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const std::string_view word = rest.substr(0, comma);
    const bool last = word.starts_with("last:"), best = word.starts_with("best:");
    std::uint64_t number = 0;
    const char* const digits = word.data() + std::min<std::size_t>(5, word.size());
    const auto [end, fault] = std::from_chars(digits, word.data() + word.size(), number);
    std::uint64_t& place = last ? keep.last : keep.best;
    if (!(last || best) || fault != std::errc() || end != word.data() + word.size() ||
        number == 0 || number > most || place != 0) {
      throw Error(Fault::usage, what + " is " + quote(text) +
                                    "; write all, last:N or best:N, or both, as last:3,best:1");
    }
    place = number;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  keep.last = std::max<std::uint64_t>(keep.last, 1);
  return keep;
}

/// The checkpoints that a run may remove: those that it, or an earlier part of it, has saved under
/// one prefix with a `Keep`. They are listed in PREFIX.kept, a line for each with its step and the
/// error of its predictions divided by that of repeating the frame; nothing that is not listed
/// there is ever removed.
class KeptCheckpoints {
 public:
  /// Reads the list of the run's earlier parts, up to step `begin`. `path_at(step)`: the path of
  /// the checkpoint at a step. Throws Error (Fault::usage) if the file is something else.
  template <class PathAt>
  KeptCheckpoints(const std::string& prefix, const Keep& keep, const PathAt& path_at,
                  std::uint64_t begin)
      : list_(list_of(prefix)), keep_(keep) {
    std::ifstream file(list_);
    for (std::string line; std::getline(file, line);) {
      unsigned long long step = 0;
      double relative = 0;
      if (std::sscanf(line.c_str(), "%llu %lf", &step, &relative) != 2) {
        throw Error(Fault::usage, quote(list_) +
                                      " exists and is no list of checkpoints; choose another name "
                                      "for the checkpoints");
      }
      if (step > begin) continue;  // those steps are run again
      std::filesystem::path path = path_at(step);
      std::error_code ignored;
      if (std::filesystem::exists(path, ignored)) all_.push_back({std::move(path), step, relative});
    }
  }

  /// The list of the checkpoints with this prefix.
  [[nodiscard]] static std::string list_of(const std::string& prefix) { return prefix + ".kept"; }

  /// Adds the checkpoint that was just saved, and removes those that need not stay. `relative`: the
  /// error of the predictions since the one before, divided by that of repetition; NaN if it is not
  /// known, so that the checkpoint is none of the best. What cannot be removed is warned of.
  void add(const std::filesystem::path& path, std::uint64_t step, double relative) {
    std::erase_if(all_, [step](const Kept& kept) { return kept.step >= step; });
    all_.push_back({path, step, relative});
    write();  // before anything is removed: a run that is killed here forgets none
    std::vector<Kept> staying;
    for (const Kept& kept : all_) {
      if (stays(kept)) {
        staying.push_back(kept);
      } else {
        remove(kept.path);
      }
    }
    if (staying.size() == all_.size()) return;
    all_ = std::move(staying);
    write();
  }

 private:
  struct Kept {
    std::filesystem::path path;
    std::uint64_t step;
    double relative;
  };

  [[nodiscard]] bool stays(const Kept& kept) const {
    const auto newer = std::count_if(all_.begin(), all_.end(),
                                     [&](const Kept& other) { return other.step > kept.step; });
    if (static_cast<std::uint64_t>(newer) < keep_.last) return true;
    if (!std::isfinite(kept.relative)) return false;
    const auto better = std::count_if(all_.begin(), all_.end(), [&](const Kept& other) {
      return other.relative < kept.relative ||
             (other.relative == kept.relative && other.step > kept.step);
    });
    return static_cast<std::uint64_t>(better) < keep_.best;
  }

  static void remove(const std::filesystem::path& path) {
    if (!io::is_checkpoint(path)) return;  // something else has its name by now
    std::error_code fault;
    std::filesystem::remove(path, fault);
    if (fault) {
      log(Severity::warning,
          "checkpoint " + quote(path.string()) + " cannot be removed: " + fault.message());
    } else {
      log(Severity::info, "checkpoint removed: " + path.string());
    }
  }

  void write() const {
    std::string text;
    for (const Kept& kept : all_) {
      char line[64];
      std::snprintf(line, sizeof line, "%llu %.9g\n", static_cast<unsigned long long>(kept.step),
                    kept.relative);
      text += line;
    }
    try {
      io::AtomicFile file(list_);
      file.write(text.data(), text.size());
      file.commit(false);
    } catch (const Error& error) {
      log(Severity::warning,
          std::string(error.what()) + "; a run that goes on from here will keep more checkpoints");
    }
  }

  std::string list_;
  Keep keep_;
  std::vector<Kept> all_;  // by step
};

}  // namespace pvm::inline v0
