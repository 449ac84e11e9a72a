// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A communicator whose ranks are threads of one process, for tests.

#include <algorithm>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/dist/communicator.hpp>

namespace pvm_test {

/// What the ranks have in common: messages on their way.
class Post {
 public:
  explicit Post(int size) : size_(size) {}
  [[nodiscard]] int size() const { return size_; }

  void put(int from, int to, std::span<const std::byte> bytes) {
    {
      const std::lock_guard lock(mutex_);
      boxes_[{from, to}].emplace_back(bytes.begin(), bytes.end());
    }
    arrived_.notify_all();
  }
  void take(int from, int to, std::span<std::byte> bytes) {
    std::unique_lock lock(mutex_);
    auto& box = boxes_[{from, to}];
    arrived_.wait(lock, [&] { return !box.empty() || lost_; });
    if (box.empty()) throw pvm::Error(pvm::Fault::rank, "another rank was lost");
    const std::vector<std::byte> message = std::move(box.front());
    box.pop_front();
    if (message.size() != bytes.size()) std::terminate();  // the ranks are out of step
    std::copy(message.begin(), message.end(), bytes.begin());
  }
  /// From now on, who waits for a message that is not there throws.
  void lose() {
    {
      const std::lock_guard lock(mutex_);
      lost_ = true;
    }
    arrived_.notify_all();
  }
  [[nodiscard]] bool is_lost() {
    const std::lock_guard lock(mutex_);
    return lost_;
  }

 private:
  int size_;
  bool lost_ = false;
  std::mutex mutex_;
  std::condition_variable arrived_;
  std::map<std::pair<int, int>, std::deque<std::vector<std::byte>>> boxes_;
};

/// One of the ranks.
class ThreadRank {
 public:
  ThreadRank(Post& post, int rank) : post_(post), rank_(rank) {}

  class Gather {
   public:
    Gather(ThreadRank& rank, std::span<std::byte> bytes, std::vector<std::size_t> starts)
        : rank_(rank), bytes_(bytes), starts_(std::move(starts)) {}
    void start() {
      for (int r = 0; r < rank_.size(); ++r) {
        if (r != rank_.rank()) rank_.send(r, of(rank_.rank()));
      }
    }
    void progress() {}
    [[nodiscard]] bool finish() {
      for (int r = 0; r < rank_.size(); ++r) {
        if (r != rank_.rank()) rank_.receive(r, of(r));
      }
      return true;
    }

   private:
    [[nodiscard]] std::span<std::byte> of(int r) const {
      const auto i = static_cast<std::size_t>(r);
      return bytes_.subspan(starts_[i], starts_[i + 1] - starts_[i]);
    }
    ThreadRank& rank_;
    std::span<std::byte> bytes_;
    std::vector<std::size_t> starts_;
  };

  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] int size() const { return post_.size(); }
  [[nodiscard]] int cores() const { return 1; }
  void expect_threads(int) {}
  void broadcast(std::span<std::byte> bytes) {
    if (rank_ != 0) return receive(0, bytes);
    for (int r = 1; r < size(); ++r) send(r, bytes);
  }
  void send(int to, std::span<const std::byte> bytes) { post_.put(rank_, to, bytes); }
  void receive(int from, std::span<std::byte> bytes) { post_.take(from, rank_, bytes); }
  void wait_until(const std::function<bool()>& done) {
    while (!done()) {
      if (post_.is_lost()) throw pvm::Error(pvm::Fault::rank, "another rank was lost");
      std::this_thread::yield();
    }
  }
  void check() {}

 private:
  Post& post_;
  int rank_;
};

static_assert(pvm::dist::Communicator<ThreadRank>);

}  // namespace pvm_test
