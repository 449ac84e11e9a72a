// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Keeps track of the frames of a source that could not be read. Each is reported once, however
/// often the source starts over and however many readers share it.

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

  /// Remembers that `frame` cannot be read. If it was not reported yet, logs that it is skipped;
  /// `what` is its name in that message.
  void note(std::uint64_t frame, const std::string& what) {
    if (frames_.insert(frame).second && reported_->add(frame)) {
      log(Severity::warning, what + " cannot be read as a picture; it is skipped");
    }
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
    /// Adds a frame; false if it was there already.
    bool add(std::uint64_t frame) {
      const std::lock_guard lock(mutex_);
      return frames_.insert(frame).second;
    }

   private:
    std::mutex mutex_;
    std::set<std::uint64_t> frames_;
  };

  std::set<std::uint64_t> frames_;
  std::shared_ptr<Reported> reported_ = std::make_shared<Reported>();
};

}  // namespace pvm::inline v0::io
