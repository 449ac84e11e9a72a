// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Waits for another thread, but not for longer than the user wants.

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

#include <pvm/core/config.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io::detail {

/// Waits until `ready()`. Throws Stopped if `asked` is not null and becomes true before: a signal
/// handler can set it, but must not notify a condition variable, so it is looked at from time to
/// time.
template <class Ready>
void wait_unless_stopped(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                         const std::atomic<bool>* asked, const Ready& ready) {
  if (asked == nullptr) return changed.wait(lock, ready);
  const std::chrono::duration<double> a_moment(stop_seconds);
  while (!changed.wait_for(lock, a_moment, ready)) {
    if (asked->load()) throw Stopped{};
  }
}

}  // namespace pvm::inline v0::io::detail
