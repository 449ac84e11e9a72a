// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Keeps track of the frames of a source that could not be read. Each is reported once, however
/// often the source starts over and however many readers share it. The first ones are named, the
/// others only counted.

#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>

namespace pvm::inline v0::io {

/// The unreadable frames that one reader has met, by their index.
class Unreadable {
 public:
  Unreadable() = default;
  /// A new object for another reader of the same frames as `other`. It counts its own frames, but
  /// both share the set of reported frames, so that each frame is reported by one of them only.
  static Unreadable beside(const Unreadable& other) {
    Unreadable fresh;
    fresh.reported_ = other.reported_;
    return fresh;
  }

  /// So many frames of a source are named. How many more there were is logged when its last reader
  /// is closed.
  static constexpr std::uint64_t most_named = 10;

  /// Remembers that `frame` of `source` cannot be read. If it was not reported yet, logs that it is
  /// skipped; `what` is the begin of that message, before the source's name.
  void note(std::uint64_t frame, const std::string& what, const std::string& source) {
    if (!frames_.insert(frame).second) return;
    const std::uint64_t number = reported_->add(frame, source);
    if (number == 0 || number > most_named) return;
    log(Severity::warning, what + pvm::quote(source) +
                               " cannot be read as a picture; it is skipped" +
                               (number < most_named ? "" : ", and further ones are only counted"));
  }

  /// The number of different frames found unreadable.
  [[nodiscard]] std::uint64_t count() const noexcept { return frames_.size(); }

  /// All of them, ascending. When the file is opened again, pass them to `add_reported` of the new
  /// source.
  [[nodiscard]] std::vector<std::uint64_t> list() const { return {frames_.begin(), frames_.end()}; }

  /// Counts `frames` as unreadable, without reporting them again.
  void add_reported(std::span<const std::uint64_t> frames) {
    frames_.insert(frames.begin(), frames.end());
  }

 private:
  /// The frames reported by any of the readers, which may be used on different threads.
  class Reported {
   public:
    Reported() = default;
    ~Reported() {
      if (frames_.size() <= most_named) return;
      try {
        log(Severity::warning, std::to_string(frames_.size() - most_named) + " more frames of " +
                                   pvm::quote(source_) + " cannot be read as pictures and are " +
                                   "skipped, " + std::to_string(frames_.size()) + " in all");
      } catch (...) {  // no memory for the message
      }
    }
    Reported(const Reported&) = delete;
    Reported& operator=(const Reported&) = delete;

    /// Adds a frame of `source`; how many there are now, or 0 if it was there already.
    std::uint64_t add(std::uint64_t frame, const std::string& source) {
      const std::lock_guard lock(mutex_);
      source_ = source;
      return frames_.insert(frame).second ? frames_.size() : 0;
    }

   private:
    std::mutex mutex_;
    std::set<std::uint64_t> frames_;
    std::string source_;
  };

  std::set<std::uint64_t> frames_;
  std::shared_ptr<Reported> reported_ = std::make_shared<Reported>();
};

}  // namespace pvm::inline v0::io
