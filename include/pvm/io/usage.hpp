// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Time measurements of the stages that a frame passes on the way from a file to a step.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// What one stage has done so far.
struct StageUsage {
  std::string name;          ///< "read", "decode and resize", ...
  std::uint64_t frames = 0;  ///< frames processed, unreadable ones included
  double busy = 0;           ///< seconds of work, summed over all threads
  double waiting = 0;        ///< seconds that the next stage has waited for this one
  double queued = 0;         ///< sum, over all frames taken from its queue, of the queue's length
  std::size_t threads = 1;   ///< number of threads that can work at once
  std::size_t capacity = 0;  ///< most frames in its queue; 0 if it has no queue
};

/// Adds the stages of `more` to those of the same name in `sum`, or appends them.
inline void add_usage(std::vector<StageUsage>& sum, const std::vector<StageUsage>& more) {
  for (const StageUsage& stage : more) {
    const auto same = std::find_if(sum.begin(), sum.end(),
                                   [&](const StageUsage& s) { return s.name == stage.name; });
    if (same == sum.end()) {
      sum.push_back(stage);
      continue;
    }
    same->frames += stage.frames;
    same->busy += stage.busy;
    same->waiting += stage.waiting;
    same->queued += stage.queued;
    same->threads = std::max(same->threads, stage.threads);
    same->capacity = std::max(same->capacity, stage.capacity);
  }
}

/// The difference of two measurements of the same source: `now` minus `before`.
inline std::vector<StageUsage> usage_since(const std::vector<StageUsage>& before,
                                           std::vector<StageUsage> now) {
  for (StageUsage& stage : now) {
    for (const StageUsage& old : before) {
      if (old.name != stage.name) continue;
      stage.frames -= std::min(stage.frames, old.frames);
      stage.busy -= old.busy;
      stage.waiting -= old.waiting;
      stage.queued -= old.queued;
    }
  }
  return now;
}

/// The stages of `source`; empty if it does not offer `usage()`.
template <class S>
std::vector<StageUsage> usage(const S& source) {
  if constexpr (requires { source.usage(); }) {
    return source.usage();
  } else {
    return {};
  }
}

/// Measures wall time.
class Stopwatch {
 public:
  /// Seconds since the previous call, or since construction.
  double lap() {
    const auto now = std::chrono::steady_clock::now();
    const std::chrono::duration<double> passed = now - last_;
    last_ = now;
    return passed.count();
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace pvm::inline v0::io
