// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A team of threads that work together on the units of a step.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include <pvm/core/config.hpp>
#include <pvm/core/error.hpp>
#include <pvm/core/trace.hpp>

namespace pvm::inline v0 {

/// `run(task)` calls task(member) on every member (the calling thread is member 0) and returns when
/// all calls have returned. Between steps a task may call `barrier()`, which waits for all members.
/// Waiting members spin for a moment and then sleep, because a decoder may need the core.
class Team {
 public:
  /// Throws Error (memory) if `size` - 1 threads cannot be started.
  explicit Team(int size) : size_(size) {
    try {
      for (int member = 1; member < size; ++member) {
        threads_.emplace_back([this, member] { serve(member); });
      }
    } catch (const std::system_error& fault) {
      dismiss();
      throw Error(Fault::memory, std::to_string(size) + " threads cannot be started (" +
                                     fault.what() + "); use fewer");
    }
  }
  ~Team() { dismiss(); }
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  [[nodiscard]] int size() const noexcept { return size_; }

  template <class Task>  // task(int member) must not throw
  void run(Task&& task) {
    task_ = std::ref(task);
    start();
    task(0);
    barrier();
  }

  /// Waits until all members have called it.
  void barrier() {
    const std::uint32_t round = round_.load(std::memory_order_acquire);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
      arrived_.store(0, std::memory_order_relaxed);
      round_.store(round + 1, std::memory_order_release);
      round_.notify_all();
    } else {
      wait_while(round_, round);
    }
  }

 private:
  /// Ends and joins all threads.
  void dismiss() {
    task_ = nullptr;
    start();
    for (auto& thread : threads_) thread.join();
  }

  /// Wakes all members to run `task_`, or to end if it is empty.
  void start() {
    orders_.fetch_add(1, std::memory_order_acq_rel);
    orders_.notify_all();
  }

  /// The loop of a member's thread.
  void serve(int member) {
    trace::name_thread("engine " + std::to_string(member));
    std::uint32_t seen = 0;
    for (;;) {
      wait_while(orders_, seen);
      ++seen;
      if (!task_) return;
      {
        const trace::Span span("steps");
        task_(member);
      }
      barrier();
    }
  }

  static void wait_while(const std::atomic<std::uint32_t>& value, std::uint32_t old) {
    for (int spin = 0; spin < 4000; ++spin) {
      if (value.load(std::memory_order_acquire) != old) return;
#if defined(__x86_64__)
      _mm_pause();
#endif
    }
    while (value.load(std::memory_order_acquire) == old) value.wait(old);
  }

  int size_;
  std::function<void(int)> task_;
  std::atomic<std::uint32_t> orders_{0};             // calls of start()
  alignas(64) std::atomic<int> arrived_{0};          // members that have arrived in this round
  alignas(64) std::atomic<std::uint32_t> round_{0};  // completed barriers
  std::vector<std::thread> threads_;
};

}  // namespace pvm::inline v0
