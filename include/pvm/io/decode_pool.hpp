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
#include <pvm/core/trace.hpp>

namespace pvm::inline v0::io {

/// A thread pool that runs tasks in the order of their submission. Tasks must not throw, and must
/// not wait for tasks that were submitted after them.
class DecodePool {
 public:
  /// The program's pool, with one thread per core. It is created if nobody holds it, and destroyed
  /// with its last shared_ptr. Throws Fault::memory if no thread can be started.
  static std::shared_ptr<DecodePool> shared() {
    const std::lock_guard lock(program().mutex);
    auto held = program().pool.lock();
    if (!held) {
      held = std::make_shared<DecodePool>(std::max(1U, std::thread::hardware_concurrency()));
      program().pool = held;
    }
    return held;
  }

  /// The program's pool if somebody holds it, else null. Code that opens one file after another
  /// keeps the pool alive with it: libraries leak memory when threads are started and ended for
  /// each file.
  static std::shared_ptr<DecodePool> running() {
    const std::lock_guard lock(program().mutex);
    return program().pool.lock();
  }

  /// `threads`: how many to start, at least 1; fewer if the system refuses some. Throws
  /// Fault::memory if not even one can be started.
  explicit DecodePool(std::size_t threads) {
    try {
      while (threads_.size() < threads) {
        threads_.emplace_back([this, number = threads_.size()] {
          trace::name_thread("decode " + std::to_string(number));
          serve();
        });
      }
    } catch (const std::system_error& fault) {
      if (!threads_.empty()) return;  // work with fewer
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

  /// The number of threads.
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

  std::mutex mutex_;  // guards tasks_ and stopping_
  std::deque<std::function<void()>> tasks_;
  bool stopping_ = false;
  std::condition_variable ready_;
  std::vector<std::thread> threads_;
};

}  // namespace pvm::inline v0::io
