// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The threads on which all sources of a program decode pictures.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>

namespace pvm::inline v0::io {

/// Runs tasks first come, first served. Tasks must not throw, and must not wait for tasks behind
/// them.
class DecodePool {
 public:
  /// The program's pool, one thread per core; it goes with the last one who holds it.
  static std::shared_ptr<DecodePool> shared() {
    const std::lock_guard lock(program().mutex);
    auto held = program().pool.lock();
    if (!held) {
      held = std::make_shared<DecodePool>(std::max(1U, std::thread::hardware_concurrency()));
      program().pool = held;
    }
    return held;
  }

  /// The same if somebody holds it, else null. For whoever opens file after file: threads that
  /// start and end with each leave memory behind in libraries.
  static std::shared_ptr<DecodePool> running() {
    const std::lock_guard lock(program().mutex);
    return program().pool.lock();
  }

  /// Throws Error (Fault::memory) where not even one thread can be started.
  explicit DecodePool(std::size_t threads) {
    try {
      while (threads_.size() < threads) threads_.emplace_back([this] { serve(); });
    } catch (const std::system_error& fault) {
      if (!threads_.empty()) return;  // fewer will do
      throw Error(Fault::memory,
                  std::string("no thread can be started to decode frames (") + fault.what() + ")");
    }
  }
  ~DecodePool() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    ready_.notify_all();
    for (auto& thread : threads_) thread.join();
  }
  DecodePool(const DecodePool&) = delete;
  DecodePool& operator=(const DecodePool&) = delete;

  [[nodiscard]] std::size_t size() const noexcept { return threads_.size(); }

  void submit(std::function<void()> task) {
    {
      const std::lock_guard lock(mutex_);
      tasks_.push_back(std::move(task));
    }
    ready_.notify_one();
  }

 private:
  struct Program {
    std::mutex mutex;
    std::weak_ptr<DecodePool> pool;
  };
  static Program& program() {
    static Program program;
    return program;
  }

  void serve() {
    std::unique_lock lock(mutex_);
    for (;;) {
      ready_.wait(lock, [this] { return stopping_ || !tasks_.empty(); });
      if (stopping_) return;
      const auto task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;  // over the two below
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::condition_variable ready_;
  std::vector<std::thread> threads_;
};

}  // namespace pvm::inline v0::io
