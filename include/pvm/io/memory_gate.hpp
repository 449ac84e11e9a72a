// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Bounds the memory that all threads of a program take at once for one purpose.

#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include <pvm/core/config.hpp>
#include <pvm/io/image_facts.hpp>

namespace pvm::inline v0::io {

/// Lets threads in as long as what they are going to use together stays below a limit. Whoever asks
/// for more than the limit is let in alone. In the order of asking, so that none waits for ever.
class MemoryGate {
 public:
  explicit MemoryGate(std::uint64_t most_bytes) : most_(most_bytes) {}
  MemoryGate(const MemoryGate&) = delete;
  MemoryGate& operator=(const MemoryGate&) = delete;

  /// The right to use some bytes, for the lifetime of this object.
  class Hold {
   public:
    Hold() = default;
    Hold(Hold&& other) noexcept
        : gate_(std::exchange(other.gate_, nullptr)), bytes_(other.bytes_) {}
    Hold& operator=(Hold&& other) noexcept {
      std::swap(gate_, other.gate_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Hold() {
      if (gate_ != nullptr) gate_->leave(bytes_);
    }

   private:
    friend class MemoryGate;
    Hold(MemoryGate* gate, std::uint64_t bytes) : gate_(gate), bytes_(bytes) {}

    MemoryGate* gate_ = nullptr;
    std::uint64_t bytes_ = 0;
  };

  /// Waits until `bytes` more may be used. A thread that holds some must not ask for more.
  [[nodiscard]] Hold enter(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    const std::uint64_t ticket = next_++;
    changed_.wait(lock, [&] {
      return ticket == serving_ && (used_ == 0 || (bytes <= most_ && used_ <= most_ - bytes));
    });
    ++serving_;
    used_ += bytes;
    lock.unlock();
    changed_.notify_all();
    return {this, bytes};
  }

  /// For pictures that are decoded on the CPU.
  static MemoryGate& decoding() {
    static MemoryGate gate(most_decoding_bytes);
    return gate;
  }
  /// For the bytes of files that are read to be decoded.
  static MemoryGate& reading() {
    static MemoryGate gate(std::uint64_t{1} << 29);
    return gate;
  }

 private:
  void leave(std::uint64_t bytes) noexcept {
    {
      const std::lock_guard lock(mutex_);
      used_ -= bytes;
    }
    changed_.notify_all();
  }

  const std::uint64_t most_;
  std::mutex mutex_;  // guards the members below
  std::uint64_t used_ = 0;
  std::uint64_t next_ = 0,
                serving_ = 0;  // tickets: the next to be given out, the next to be let in
  std::condition_variable changed_;
};

}  // namespace pvm::inline v0::io
