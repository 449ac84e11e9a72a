// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A queue between two threads that is bounded by the bytes of its items.

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// First in, first out, for one producer and one consumer.
template <class Item>
class ByteQueue {
 public:
  explicit ByteQueue(std::size_t most_bytes) : most_(most_bytes) {}

  /// Adds an item that counts as `bytes` bytes. Waits for room; an empty queue has room for any
  /// item. Returns false and drops the item if the queue is closed.
  bool put(Item item, std::size_t bytes) {
    std::unique_lock lock(mutex_);
    freed_.wait(lock, [&] { return closed_ || items_.empty() || bytes_ + bytes <= most_; });
    if (closed_) return false;
    items_.emplace_back(std::move(item), bytes);
    bytes_ += bytes;
    lock.unlock();
    filled_.notify_one();
    return true;
  }

  /// Waits for an item and removes it; nothing if the queue is closed.
  std::optional<Item> take() {
    std::unique_lock lock(mutex_);
    filled_.wait(lock, [&] { return closed_ || !items_.empty(); });
    if (closed_) return std::nullopt;
    std::optional<Item> item(std::move(items_.front().first));
    bytes_ -= items_.front().second;
    items_.pop_front();
    lock.unlock();
    freed_.notify_one();
    return item;
  }

  /// Ends the waiting of `put` and `take`: both return immediately from now on, without effect.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      closed_ = true;
    }
    filled_.notify_all();
    freed_.notify_all();
  }

 private:
  const std::size_t most_;
  std::mutex mutex_;  // guards the members below
  std::deque<std::pair<Item, std::size_t>> items_;
  std::size_t bytes_ = 0;
  bool closed_ = false;
  std::condition_variable filled_, freed_;
};

}  // namespace pvm::inline v0::io
