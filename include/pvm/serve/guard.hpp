// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What servers share that decide whom they let in, and how many at once: tokens, and threads.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <fstream>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/need_httplib.hpp>

#include <httplib.h>

#include <pvm/core/error.hpp>

namespace pvm::inline v0::serve {

/// 32 random hexadecimal digits, from the system.
inline std::string random_token() {
  std::ifstream source("/dev/urandom", std::ios::binary);
  constexpr std::string_view digits = "0123456789abcdef";
  std::string token;
  for (int i = 0; i < 16; ++i) {
    const int byte = source.get();
    if (!source) throw Error(Fault::usage, "no token can be made: /dev/urandom cannot be read");
    token += digits[static_cast<std::size_t>(byte / 16)];
    token += digits[static_cast<std::size_t>(byte % 16)];
  }
  return token;
}

namespace detail {

/// Whether two texts are equal, in a time that does not tell where they differ.
inline bool same_secret(std::string_view a, std::string_view b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (std::size_t i = 0; i < b.size(); ++i) {
    difference |= static_cast<unsigned>((i < a.size() ? a[i] : 0) ^ b[i]);
  }
  return difference == 0;
}

/// A fixed number of threads, one for each connection, and a queue as long: further connections
/// wait in the kernel, which refuses them when it has enough.
class BoundedThreads : public httplib::TaskQueue {
 public:
  explicit BoundedThreads(std::size_t threads) {
    for (std::size_t i = 0; i < threads; ++i) threads_.emplace_back([this] { work(); });
  }
  // Depending on the version it returns nothing, or whether the task was taken.
  using Enqueued = decltype(std::declval<httplib::TaskQueue&>().enqueue(std::function<void()>()));
  Enqueued enqueue(std::function<void()> task) override {
    {
      std::unique_lock lock(mutex_);
      taken_.wait(lock, [this] { return tasks_.size() < threads_.size() || ends_; });
      tasks_.push_back(std::move(task));
    }
    given_.notify_one();
    return Enqueued(true);
  }
  /// Whether connections wait for a thread, and none is free for them.
  [[nodiscard]] bool crowded() {
    const std::lock_guard lock(mutex_);
    return tasks_.size() + busy_ > threads_.size();
  }
  void shutdown() override {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    given_.notify_all();
    taken_.notify_all();
    for (std::thread& thread : threads_) thread.join();
  }

 private:
  void work() {
    for (;;) {
      std::function<void()> task;
      {
        std::unique_lock lock(mutex_);
        given_.wait(lock, [this] { return !tasks_.empty() || ends_; });
        if (tasks_.empty()) return;
        task = std::move(tasks_.front());
        tasks_.pop_front();
        ++busy_;
      }
      taken_.notify_one();
      task();
      const std::lock_guard lock(mutex_);
      --busy_;
    }
  }

  std::mutex mutex_;
  std::condition_variable given_, taken_;
  std::deque<std::function<void()>> tasks_;
  std::vector<std::thread> threads_;
  std::size_t busy_ = 0;  // threads that serve a connection
  bool ends_ = false;
};

}  // namespace detail

}  // namespace pvm::inline v0::serve
