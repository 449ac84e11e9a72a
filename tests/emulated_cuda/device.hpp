// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The emulated device: its memory, its launches, its streams and graphs. Everything runs at once,
/// in the order of the calls.

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <vector>

#include "language.hpp"

namespace emulated_cuda {

/// What tests may change before they make an engine.
struct Facts {
  int multiprocessors = 4;
  std::size_t memory = std::size_t{8} << 30;  ///< bytes of device memory
  int found = 0;    ///< what looking for devices comes back with, a cudaError_t
  int kernels = 0;  ///< what asking for a kernel does
};
inline Facts facts;

/// Device memory: the host's, filled with NaN, with its pieces known by name.
class Memory {
 public:
  static Memory& get() {
    static Memory it;
    return it;
  }
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > facts.memory - std::min(used_, facts.memory)) return nullptr;
    void* at = std::aligned_alloc(256, (bytes + 255) / 256 * 256);
    if (at == nullptr) return nullptr;
    std::memset(at, 0xff, bytes);
    pieces_[static_cast<unsigned char*>(at)] = bytes;
    used_ += bytes;
    return at;
  }
  bool give_back(void* at) {
    const std::lock_guard lock(mutex_);
    const auto found = pieces_.find(static_cast<unsigned char*>(at));
    if (found == pieces_.end()) return false;
    used_ -= found->second;
    pieces_.erase(found);
    std::free(at);
    return true;
  }
  /// Whether these bytes are of one piece.
  bool has(const void* at, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* from = static_cast<const unsigned char*>(at);
    auto next = pieces_.upper_bound(const_cast<unsigned char*>(from));
    if (next == pieces_.begin()) return false;
    --next;
    return from + bytes <= next->first + next->second;
  }
  [[nodiscard]] std::size_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  [[nodiscard]] std::size_t pieces() {
    const std::lock_guard lock(mutex_);
    return pieces_.size();
  }

 private:
  std::mutex mutex_;
  std::map<unsigned char*, std::size_t> pieces_;
  std::size_t used_ = 0;
};

/// How much dynamic shared memory kernels were allowed.
class Allowed {
 public:
  static constexpr std::size_t usual = 48 << 10;
  static constexpr std::size_t most = 227 << 10;

  static Allowed& get() {
    static Allowed it;
    return it;
  }
  void set(const void* kernel, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    bytes_[kernel] = bytes;
  }
  std::size_t operator()(const void* kernel) {
    const std::lock_guard lock(mutex_);
    const auto found = bytes_.find(kernel);
    return found == bytes_.end() ? usual : std::max(usual, found->second);
  }

 private:
  std::mutex mutex_;
  std::map<const void*, std::size_t> bytes_;
};

using Work = std::function<void()>;

/// What is being captured, and from which streams.
struct Capture {
  std::vector<Work> work;
  std::vector<struct Stream*> streams;
};
struct Stream {
  std::shared_ptr<Capture> capture;
};
struct Event {
  std::chrono::steady_clock::time_point when;
  std::shared_ptr<Capture> capture;  ///< in which it was recorded
};
struct Graph {
  std::vector<Work> work;
};

inline void run_or_record(Stream* stream, Work work) {
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture->work.push_back(std::move(work));
  } else {
    work();
  }
}

/// A kernel with its arguments, as of the launch.
template <class... Parameters>
struct Call {
  void (*kernel)(Parameters...);
  std::tuple<Parameters...> arguments;

  static void run(const void* self) {
    const Call& call = *static_cast<const Call*>(self);
    std::apply(call.kernel, call.arguments);  // each thread gets copies
  }
};

/// Blocks one after the other; those of a cooperative launch all at once.
template <class... Parameters>
void run_kernel(const Call<Parameters...>& call, Index blocks, Index threads, std::size_t shared,
                bool cooperative) {
  const unsigned count = blocks.x * blocks.y * blocks.z;
  const auto index = [&](unsigned i) {
    return Index{i % blocks.x, i / blocks.x % blocks.y, i / (blocks.x * blocks.y)};
  };
  if (!cooperative) {
    Block block(threads, blocks, shared, true, 0);
    std::vector<unsigned> order(count);
    for (unsigned i = 0; i < count; ++i) order[i] = i;
    // few enough to be on the device at once, they may wait for those that began before them
    if (count > 2 * static_cast<unsigned>(facts.multiprocessors)) block.order().shuffle(order);
    for (const unsigned i : order) block.run(index(i), &Call<Parameters...>::run, &call);
    return;
  }
  std::vector<std::thread> all;
  for (unsigned i = 0; i < count; ++i) {
    all.emplace_back([&, i] {
      Block block(threads, blocks, shared, false, i);
      block.run(index(i), &Call<Parameters...>::run, &call);
    });
  }
  for (std::thread& thread : all) thread.join();
}

}  // namespace emulated_cuda
