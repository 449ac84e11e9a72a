// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The frames of a source that could not be read: each is reported once, however often the source
/// starts over.

#include <cstdint>
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
  /// Remembers `frame`, and logs that `what` (a frame, named) is skipped if it is new.
  void note(std::uint64_t frame, const std::string& what) {
    if (frames_.insert(frame).second) {
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
  std::set<std::uint64_t> frames_;
};

}  // namespace pvm::inline v0::io
