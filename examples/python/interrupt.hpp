// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Ctrl-C while the library works.

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <functional>
#include <thread>
#include <utility>

#include <signal.h>

namespace pvm_python {

/// Lets Ctrl-C stop the work of its thread as long as it lives: Python's handler notes the signal
/// as ever, and the `stop` of all such objects is called, so that checkpoints are saved before
/// Python raises KeyboardInterrupt in its main thread. `stop` is called in the signal handler, so
/// it may only set flags. Objects are made and destroyed with the GIL. Of more than 64 at a time
/// the later ones do nothing.
class StopOnInterrupt {
 public:
  explicit StopOnInterrupt(std::function<void()> stop) : stop_(std::move(stop)) {
    const auto free = std::find(all().begin(), all().end(), nullptr);
    if (free == all().end()) return;
    place_ = &*free;
    place_->store(this);
    install();
  }
  ~StopOnInterrupt() {
    if (place_ == nullptr) return;
    place_->store(nullptr);
    while (inside().load() > 0) std::this_thread::yield();  // the handler may run in another thread
    if (std::find_if(all().begin(), all().end(), is_used) == all().end()) uninstall();
  }
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;

 private:
  using Place = std::atomic<StopOnInterrupt*>;

  static std::array<Place, 64>& all() {
    static std::array<Place, 64> places{};
    return places;
  }
  static bool is_used(const Place& place) { return place.load() != nullptr; }
  static std::atomic<int>& inside() {  // runs of the handler
    static std::atomic<int> runs{0};
    return runs;
  }
  static struct sigaction& before() {
    static struct sigaction action {};
    return action;
  }

  static void handle(int signal) {
    before().sa_handler(signal);
    ++inside();
    for (const Place& place : all()) {
      if (StopOnInterrupt* const one = place.load()) one->stop_();
    }
    --inside();
  }
  /// Puts `handle` before the handler that there is, if that is one of Python's.
  static void install() {
    struct sigaction now {};
    const bool handled = ::sigaction(SIGINT, nullptr, &now) == 0 && now.sa_handler != handle &&
                         now.sa_handler != SIG_DFL && now.sa_handler != SIG_IGN &&
                         (now.sa_flags & SA_SIGINFO) == 0;
    if (!handled) return;
    before() = now;
    now.sa_handler = handle;
    ::sigaction(SIGINT, &now, nullptr);
  }
  static void uninstall() {
    struct sigaction now {};
    if (::sigaction(SIGINT, nullptr, &now) != 0 || now.sa_handler != handle) return;
    ::sigaction(SIGINT, &before(), nullptr);
  }

  std::function<void()> stop_;
  Place* place_ = nullptr;
};

}  // namespace pvm_python
