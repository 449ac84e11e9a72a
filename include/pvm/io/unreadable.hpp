// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The frames of a source that could not be read: each is reported once, however often the source
/// starts over and however many readers share it.

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

class Unreadable {
 public:
  Unreadable() = default;
  /// For another reader of the same frames: it counts for itself, and does not report again what
  /// `other` has reported, nor the other way round.
  static Unreadable beside(const Unreadable& other) {
    Unreadable fresh;
    fresh.reported_ = other.reported_;
    return fresh;
  }

  /// Remembers `frame`, and logs that `what` (a frame, named) is skipped if it is new.
  void note(std::uint64_t frame, const std::string& what) {
    if (frames_.insert(frame).second && reported_->add(frame)) {
      log(Severity::warning, what + " cannot be read as a picture; it is skipped");
    }
  }

  [[nodiscard]] std::uint64_t count() const noexcept { return frames_.size(); }

  /// All of them, ascending: what a source that is opened again has to be told by `expect`.
  [[nodiscard]] std::vector<std::uint64_t> list() const { return {frames_.begin(), frames_.end()}; }

  /// Takes `frames` as reported already.
  void expect(std::span<const std::uint64_t> frames) {
    frames_.insert(frames.begin(), frames.end());
  }

 private:
  /// By all readers, on whatever threads they are used.
  class Reported {
   public:
    /// Whether it is new.
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
