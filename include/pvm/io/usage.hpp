// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where the time goes on the way from a file to a step.

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
  std::string name;          ///< "read", "decode, resize", ...
  std::uint64_t frames = 0;  ///< that went through it, unreadable ones included
  double busy = 0;           ///< seconds of work, all threads together
  double waiting = 0;        ///< seconds the stage behind it stood still for it
  double queued = 0;         ///< frames ready behind it, summed over the times one was taken
  std::size_t threads = 1;   ///< how many can work at once
  std::size_t capacity = 0;  ///< most frames that can be ready; 0: it has no queue
};

/// Adds `more` to `sum`: stages of one name are one.
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

/// What was done since `before`, which is of the same source.
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

/// What `source` tells of itself; nothing where it does not.
template <class S>
std::vector<StageUsage> usage(const S& source) {
  if constexpr (requires { source.usage(); }) {
    return source.usage();
  } else {
    return {};
  }
}

/// Seconds since it was made or last asked.
class Stopwatch {
 public:
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
