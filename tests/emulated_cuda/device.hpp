// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The emulated devices: their memory, launches, streams and graphs. Nothing is asynchronous but
/// launches where `Facts::overlap` says so: every other call does its work immediately.

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "language.hpp"

namespace emulated_cuda {

/// Properties of the device, which tests may change before they construct an engine.
struct Facts {
  int multiprocessors = 4;                    ///< number of streaming multiprocessors (SMs)
  std::size_t memory = std::size_t{8} << 30;  ///< bytes of device memory
  int found = 0;                              ///< result of cudaGetDeviceCount, a cudaError_t
  int kernels = 0;                            ///< result of cudaFuncGet/SetAttribute(s), likewise
  bool sides = true;                          ///< whether the L2 cache has two sides
  std::size_t shared = 227 << 10;             ///< most bytes of shared memory of a thread block
  int devices = 1;                            ///< number of devices, all alike
  bool peers = true;                          ///< whether they can access each other's memory
  bool lends = true;                          ///< whether processes can open each other's memory
  /// Whether launches run beside what follows them on other streams, until something else than a
  /// launch is done on their own stream, or waits for it. A thread block of theirs may then wait
  /// for another launch.
  bool overlap = false;
  int major = 9;      ///< compute capability
  int compiled = 90;  ///< that of the kernels, times ten
};
inline Facts facts;
/// An RTX 40: of compute capability 8.9, with 99 KB of shared memory for a thread block.
inline constexpr Facts rtx_40{.shared = 99 << 10, .major = 8, .compiled = 80};

/// Changes the properties of the device for the lifetime of this object.
class Different {
 public:
  explicit Different(const Facts& other) : before_(std::exchange(facts, other)) {}
  ~Different() { facts = before_; }
  Different(const Different&) = delete;
  Different& operator=(const Different&) = delete;

 private:
  Facts before_;
};

/// Device memory: allocations of host memory, initialised with NaN and recorded, so that accesses
/// outside of an allocation can be detected.
class Memory {
 public:
  static Memory& get() {
    static Memory it;
    return it;
  }
  /// Large arrays begin at a multiple of this (on a GPU, of 2 MB).
  static constexpr std::size_t large = std::size_t{8} << 10;
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > facts.memory - std::min(used_, facts.memory)) return nullptr;
    const std::size_t alignment = bytes < large ? 256 : large;
    void* at = std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
    if (at == nullptr) return nullptr;
    std::memset(at, 0xff, bytes);
    allocations_[static_cast<unsigned char*>(at)] = bytes;
    used_ += bytes;
    return at;
  }
  bool give_back(void* at) {
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(static_cast<unsigned char*>(at));
    if (found == allocations_.end()) return false;
    if (opened_[at] > 0) fail("memory is freed that another process has open");
    used_ -= found->second;
    allocations_.erase(found);
    std::free(at);
    return true;
  }
  /// The size of the allocation that begins at `at`; 0: none does.
  std::size_t size_of(void* at) {
    const std::lock_guard lock(mutex_);
    const auto found = allocations_.find(static_cast<unsigned char*>(at));
    return found == allocations_.end() ? 0 : found->second;
  }
  /// Another process opens or closes the allocation at `at`. False if there is none, or none open.
  bool open(void* at, int change) {
    const std::lock_guard lock(mutex_);
    if (allocations_.count(static_cast<unsigned char*>(at)) == 0) return false;
    return (opened_[at] += change) >= 0;
  }
  /// Whether the `bytes` bytes at `at` lie inside one allocation.
  bool has(const void* at, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto* from = static_cast<const unsigned char*>(at);
    auto next = allocations_.upper_bound(const_cast<unsigned char*>(from));
    if (next == allocations_.begin()) return false;
    --next;
    return from + bytes <= next->first + next->second;
  }
  [[nodiscard]] std::size_t used() {
    const std::lock_guard lock(mutex_);
    return used_;
  }
  [[nodiscard]] std::size_t allocations() {
    const std::lock_guard lock(mutex_);
    return allocations_.size();
  }

 private:
  std::mutex mutex_;
  std::map<unsigned char*, std::size_t> allocations_;
  std::map<void*, int> opened_;  ///< by how many processes (threads, here) besides the owner
  std::size_t used_ = 0;
};

/// The dynamic shared memory that each kernel may use, as set by cudaFuncSetAttribute.
class SharedMemoryLimits {
 public:
  static constexpr std::size_t usual = 48 << 10;  ///< bytes, without cudaFuncSetAttribute

  static SharedMemoryLimits& get() {
    static SharedMemoryLimits it;
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

/// A graph capture in progress: the work captured so far, and the streams that are captured.
struct Piece {
  Work work;
  bool beside = false;  ///< see Facts::overlap
};
struct Capture {
  std::vector<Piece> work;
  std::vector<struct Stream*> streams;
};
inline thread_local int current = 0;  ///< the current device
struct Stream {
  std::shared_ptr<Capture> capture;  ///< null if the stream is not being captured
  int device = current;
  std::thread last;  ///< the last launch that others may run beside; it joins the one before
  std::shared_ptr<std::atomic<bool>> ended;  ///< whether it has ended; null: there was none

  ~Stream() { wait(); }
  void wait() {
    if (last.joinable()) last.join();
  }
  [[nodiscard]] bool idle() const { return ended == nullptr || *ended; }
  void run(const Piece& piece) {
    if (!piece.beside) {
      wait();
      return piece.work();
    }
    ended = std::make_shared<std::atomic<bool>>(false);
    last = std::thread([before = std::move(last), work = piece.work, now = ended]() mutable {
      if (before.joinable()) before.join();
      work();
      *now = true;
    });
  }
};
struct Event {
  std::chrono::steady_clock::time_point when;
  std::shared_ptr<Capture> capture;  ///< the capture in which it was recorded, if any
  Stream* stream = nullptr;          ///< in which it was recorded
};
struct Graph {
  std::vector<Piece> work;
};

inline void run_or_record(Stream* stream, Work work, bool beside = false) {
  if (stream != nullptr && stream->capture != nullptr) {
    stream->capture->work.push_back({std::move(work), beside});
  } else if (stream != nullptr) {
    stream->run({std::move(work), beside});
  } else {
    work();
  }
}

/// A kernel launch: the kernel, and copies of its arguments.
template <class... Parameters>
struct Call {
  void (*kernel)(Parameters...);
  std::tuple<Parameters...> arguments;

  static void run(const void* self) {
    const Call& call = *static_cast<const Call*>(self);
    std::apply(call.kernel, call.arguments);  // each thread gets its own copies
  }
};

/// Waits now and then, so that launches which run beside each other begin in any order.
inline void begin_some_time(RandomOrder& order) {
  if (facts.overlap && order.coin()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
}

/// Runs the blocks of a kernel one after another; those of a cooperative launch in parallel, each
/// on its own OS thread.
template <class... Parameters>
void run_kernel(const Call<Parameters...>& call, Index blocks, Index threads, std::size_t shared,
                bool cooperative) {
  const unsigned count = blocks.x * blocks.y * blocks.z;
  const auto index = [&](unsigned i) {
    return Index{i % blocks.x, i / blocks.x % blocks.y, i / (blocks.x * blocks.y)};
  };
  if (!cooperative) {
    Block block(threads, blocks, shared, !facts.overlap, 0);
    begin_some_time(block.order());
    std::vector<unsigned> order(count);
    for (unsigned i = 0; i < count; ++i) order[i] = i;
    // If all blocks fit on the device at once (of a sweep three on a multiprocessor), a block may
    // wait for one with a smaller index: keep their order.
    if (count > 3 * static_cast<unsigned>(facts.multiprocessors)) block.order().shuffle(order);
    for (const unsigned i : order) block.run(index(i), &Call<Parameters...>::run, &call);
    return;
  }
  std::vector<std::thread> all;
  static std::atomic<unsigned> launches = 0;
  RandomOrder order(++launches);
  begin_some_time(order);
  for (unsigned i = 0; i < count; ++i) {
    all.emplace_back([&, i] {
      Block block(threads, blocks, shared, false, i);
      block.run(index(i), &Call<Parameters...>::run, &call);
    });
  }
  for (std::thread& thread : all) thread.join();
}

}  // namespace emulated_cuda
