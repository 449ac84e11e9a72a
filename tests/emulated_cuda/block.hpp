// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A block of threads on one thread of the operating system: every thread is a fiber that runs
/// until it has to wait for others. What is undefined on a GPU comes out badly here on purpose:
/// a thread runs as far ahead of the others as it may, asynchronous copies arrive as late as they
/// may, and shared memory starts full of NaN. With PVM_EMULATION_SEED=n in the environment the
/// order of threads, and when copies arrive, are drawn at random instead, and now this warp, now
/// that one runs only when all others wait for it.

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <random>
#include <type_traits>
#include <vector>

#include "fiber.hpp"

namespace emulated_cuda {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

class Block;
inline constinit thread_local Block* running = nullptr;  ///< on this thread of the system

}  // namespace emulated_cuda

// What the running thread sees.
inline constinit thread_local emulated_cuda::Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulated_cuda {

/// Counts what blocks that wait for each other may be waiting for.
class Progress {
 public:
  static Progress& get() {
    static Progress it;
    return it;
  }
  void happened() {
    {
      const std::lock_guard lock(mutex_);
      ++count_;
    }
    changed_.notify_all();
  }
  /// Sleeps while the count is `seen`, but not for long: memory may change without an instruction
  /// that counts. Returns the count.
  unsigned wait(unsigned seen) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, std::chrono::milliseconds(1), [&] { return count_ != seen; });
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  unsigned count_ = 0;
};

/// The order that PVM_EMULATION_SEED asks for; as it comes without it.
class Order {
 public:
  explicit Order(unsigned block) {
    if (const char* seed = std::getenv("PVM_EMULATION_SEED")) {
      random_ = std::make_unique<std::minstd_rand>(static_cast<unsigned>(std::atoi(seed)) + 1 +
                                                   977 * block);
    }
  }
  [[nodiscard]] bool drawn() const noexcept { return random_ != nullptr; }
  bool coin() { return random_ != nullptr && ((*random_)() >> 8 & 1U) != 0; }
  template <class T>
  void shuffle(std::vector<T>& list) {
    if (random_ != nullptr) std::shuffle(list.begin(), list.end(), *random_);
  }
  /// The warp, of `warps`, that runs only when all others wait, for the next thousands of turns.
  unsigned slowest(unsigned warps) {
    if (left_ == 0) {
      left_ = 1000 + static_cast<unsigned>((*random_)()) % 50000;
      slowest_ = static_cast<unsigned>((*random_)()) / 256 % warps;
    }
    --left_;
    return slowest_;
  }
  /// A thread asked in vain, perhaps for what that warp does.
  void waits() { left_ -= std::min(left_, 100U); }

 private:
  std::unique_ptr<std::minstd_rand> random_;
  unsigned left_ = 0, slowest_ = 0;
};

/// An asynchronous copy under way: `bytes` bytes, then zeros.
struct Copy {
  void* to;
  const void* from;
  std::uint32_t bytes, zeros, group;

  void arrive() const {
    std::memcpy(to, from, bytes);
    std::memset(static_cast<unsigned char*>(to) + bytes, 0, zeros);
  }
};
/// A bulk copy, whose bytes count towards a barrier in shared memory.
struct BulkCopy {
  void* to;
  const void* from;
  std::uint32_t bytes;
  void* barrier;
};

struct Warp;

struct Thread {
  Fiber fiber;
  Index index;
  unsigned number = 0, lane = 0;
  Warp* warp = nullptr;
  std::vector<Copy> copies;
  std::uint32_t group = 0;  ///< of copies, that is open
};

/// What each lane of a warp puts in, and gets out when all have.
using Lanes = unsigned char (*)[32];

/// A meeting of the lanes of a warp. There are two buffers in turn: whoever comes to the next
/// meeting but one knows that all have read.
struct Meeting {
  unsigned mask = ~0U, arrived = 0, turn = 0;
  const char* what = nullptr;
  void (*finish)(Lanes) = nullptr;
  std::vector<Thread*> waiting;
  alignas(32) unsigned char lanes[2][32][32];
  unsigned met[2] = {};  ///< who came: others may have ended when the last lane reads it
};
struct Met {
  Lanes lanes;
  unsigned who;
};

struct Warp {
  unsigned live = 0;
  Meeting all;
  std::vector<std::unique_ptr<Meeting>> some;  ///< by mask

  Meeting& meeting(unsigned mask) {
    if (mask == all.mask) return all;
    for (auto& m : some) {
      if (m->mask == mask) return *m;
    }
    some.push_back(std::make_unique<Meeting>());
    some.back()->mask = mask;
    return *some.back();
  }
  template <class What>
  void each_meeting(What&& what) {
    what(all);
    for (auto& m : some) what(*m);
  }
};

/// Threads that can run, first to last.
class Ready {
 public:
  void reset(std::size_t threads) {
    ring_.resize(threads + 1);
    first_ = size_ = 0;
  }
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  void push_back(Thread* t) {
    const std::size_t at = first_ + size_;
    ring_[at < ring_.size() ? at : at - ring_.size()] = t;
    ++size_;
  }
  void push_front(Thread* t) {
    first_ = (first_ == 0 ? ring_.size() : first_) - 1;
    ring_[first_] = t;
    ++size_;
  }
  Thread* pop() {
    Thread* t = ring_[first_];
    if (++first_ == ring_.size()) first_ = 0;
    --size_;
    return t;
  }
  /// The first that `may_run`, else the first.
  template <class MayRun>
  Thread* pop(MayRun may_run) {
    for (std::size_t i = 0; i < size_; ++i) {
      Thread* t = pop();
      if (may_run(*t)) return t;
      push_back(t);
    }
    return pop();
  }

 private:
  std::vector<Thread*> ring_;
  std::size_t first_ = 0, size_ = 0;
};

class Block {
 public:
  /// `alone`: other blocks do not run at the same time.
  Block(Index threads, Index blocks, std::size_t shared_bytes, bool alone, unsigned number)
      : threads_(threads),
        blocks_(blocks),
        count_(threads.x * threads.y * threads.z),
        alone_(alone),
        order_(number),
        stacks_(Stacks::take(count_)),
        list_(count_),
        warps_((count_ + 31) / 32),
        shared_bytes_(shared_bytes),
        shared_(static_cast<unsigned char*>(
            std::aligned_alloc(1024, (shared_bytes + guard + 1023) / 1024 * 1024))) {}
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;
  ~Block() {
    Stacks::give_back(std::move(stacks_));
    std::free(shared_);
  }

  /// Runs `body` on every thread of block `block`.
  void run(Index block, void (*body)(const void*), const void* arguments) {
    body_ = body;
    arguments_ = arguments;
    live_ = count_;
    barrier_count_ = 0;
    waiting_.clear();
    for (NamedBarrier& barrier : named_) barrier = {};
    bulk_.clear();
    std::memset(shared_, 0xff, shared_bytes_ + guard);
    ready_.reset(count_);
    std::vector<Thread*> threads(count_);
    for (unsigned i = 0; i < count_; ++i) threads[i] = &prepare(i);
    for (Warp& warp : warps_) {
      warp.each_meeting([](Meeting& m) { m.arrived = 0, m.waiting.clear(); });
    }
    order_.shuffle(threads);
    for (Thread* t : threads) ready_.push_back(t);
    running = this;
    blockIdx = block;
    blockDim = threads_;
    gridDim = blocks_;
    now_ = ready_.pop();
    threadIdx = now_->index;
    home_.switch_to(now_->fiber);
    running = nullptr;
    for (std::size_t i = 0; i < guard; ++i) {
      if (shared_[shared_bytes_ + i] != 0xff) fail("a write behind the shared memory of a block");
    }
  }

  [[nodiscard]] Thread& now() noexcept { return *now_; }
  [[nodiscard]] Warp& warp() noexcept { return *now_->warp; }
  [[nodiscard]] unsigned char* shared() noexcept { return shared_; }
  [[nodiscard]] Order& order() noexcept { return order_; }

  /// __syncthreads; returns for how many threads `predicate` held.
  unsigned barrier(bool predicate) {
    const unsigned turn = barrier_turn_ & 1U;
    if (predicate) ++barrier_count_;
    waiting_.push_back(now_);
    if (waiting_.size() == live_) open_barrier();
    next();
    return barrier_result_[turn];
  }

  /// bar.sync, or bar.arrive where it does not wait.
  void named_barrier(int number, int threads, bool waits) {
    if (number < 1 || number >= named_count || threads % 32 != 0 || threads < 32) {
      fail("a barrier that does not exist, or not of whole warps");
    }
    NamedBarrier& barrier = named_[number];
    if (barrier.come != 0 && barrier.threads != threads) {
      fail("warps come to one barrier with different numbers of threads");
    }
    barrier.threads = threads;
    if (barrier.has_come.size() != list_.size()) barrier.has_come.assign(list_.size(), false);
    if (barrier.has_come[now_->number]) {
      fail("a warp comes to a barrier again before the others have come");
    }
    barrier.has_come[now_->number] = true;
    ++barrier.come;
    if (waits) barrier.waiting.push_back(now_);
    if (barrier.come == threads) {
      order_.shuffle(barrier.waiting);
      for (Thread* t : barrier.waiting) ready_.push_back(t);
      barrier.waiting.clear();
      barrier.has_come.assign(list_.size(), false);
      barrier.come = 0;
    }
    if (!waits && order_.coin()) {
      ready_.push_back(now_);
      next();
    } else if (waits) {
      next();
    }
  }

  /// The lanes of `mask` meet: `mine` is what this one brings, `finish` may work on what all have
  /// brought. Returns what is there then, until this lane comes to the next meeting but one.
  template <class T>
  Met meet(unsigned mask, const char* what, const T& mine, void (*finish)(Lanes) = nullptr) {
    static_assert(sizeof(T) <= 32 && std::is_trivially_copyable_v<T>);
    const unsigned lane = now_->lane;
    if ((mask >> lane & 1U) == 0) fail("a lane is not in the mask of what it calls");
    Warp& warp = *now_->warp;
    Meeting& m = warp.meeting(mask);
    if (m.arrived == 0) {
      m.what = what;
      m.finish = finish;
    } else if (m.what != what && std::strcmp(m.what, what) != 0) {
      fail("lanes of a warp meet in different instructions");
    }
    const unsigned turn = m.turn;
    const Lanes lanes = m.lanes[turn];
    std::memcpy(lanes[lane], &mine, sizeof(T));
    m.arrived |= 1U << lane;
    if (m.arrived == (mask & warp.live)) {
      close(m);
    } else {
      m.waiting.push_back(now_);
      next();
    }
    return {lanes, m.met[turn]};
  }

  /// For loops that wait for memory: lets others run.
  void poll() {
    order_.waits();
    if (!ready_.empty()) {
      ready_.push_back(now_);
      next();
    } else if (alone_) {
      if (++idle_ > 1000) fail("a block waits for another one in a launch that is not cooperative");
    } else {
      seen_ = Progress::get().wait(seen_);
    }
  }

  void bulk_copy(const BulkCopy& copy) { bulk_.push_back(copy); }
  /// Lets the bulk copies of a barrier arrive; returns their bytes.
  std::uint32_t bulk_arrive(const void* barrier) {
    std::uint32_t bytes = 0;
    for (const BulkCopy& c : bulk_) {
      if (c.barrier != barrier) continue;
      std::memcpy(c.to, c.from, c.bytes);
      bytes += c.bytes;
    }
    std::erase_if(bulk_, [&](const BulkCopy& c) { return c.barrier == barrier; });
    return bytes;
  }

 private:
  static constexpr std::size_t guard = 128;
  static constexpr int named_count = 16;

  struct NamedBarrier {
    int threads = 0, come = 0;
    std::vector<bool> has_come;  ///< of all threads
    std::vector<Thread*> waiting;
  };

  Thread& prepare(unsigned i) {
    Thread& t = list_[i];
    t.number = i;
    t.index = {i % threads_.x, i / threads_.x % threads_.y, i / (threads_.x * threads_.y)};
    t.copies.clear();
    t.group = 0;
    t.fiber.start(stacks_.bottom(i), stacks_.top(i), [] {
      Block& block = *running;
      block.body_(block.arguments_);
      block.leave();
    });
    t.lane = i % 32;
    t.warp = &warps_[i / 32];
    t.warp->live |= 1U << t.lane;
    return t;
  }

  /// The running thread ends.
  void leave() {
    --live_;
    warp().live &= ~(1U << now_->lane);
    if (live_ == 0) now_->fiber.switch_to(home_);
    if (!waiting_.empty() && waiting_.size() == live_) open_barrier();
    warp().each_meeting([&](Meeting& m) {
      if (m.arrived != 0 && m.arrived == (m.mask & warp().live)) close(m);
    });
    next();
  }

  void open_barrier() {
    barrier_result_[barrier_turn_ & 1U] = barrier_count_;
    ++barrier_turn_;
    barrier_count_ = 0;
    order_.shuffle(waiting_);
    for (Thread* t : waiting_) ready_.push_back(t);
    waiting_.clear();
  }

  void close(Meeting& m) {
    if (m.finish != nullptr) m.finish(m.lanes[m.turn]);
    m.met[m.turn] = m.arrived;
    m.arrived = 0;
    m.turn ^= 1U;
    if (order_.drawn()) order_.shuffle(m.waiting);
    const bool later = order_.drawn() && order_.coin();
    for (auto t = m.waiting.rbegin(); t != m.waiting.rend(); ++t) {
      later ? ready_.push_back(*t) : ready_.push_front(*t);
    }
    m.waiting.clear();
  }

  Thread* pop_drawn() {
    const Warp* slowest = &warps_[order_.slowest(static_cast<unsigned>(warps_.size()))];
    return ready_.pop([&](const Thread& t) { return t.warp != slowest; });
  }
  /// The running thread waits: another one's turn.
  void next() {
    if (ready_.empty()) fail("a deadlock: no thread of a block can run");
    idle_ = 0;
    Thread* const from = now_;
    now_ = order_.drawn() ? pop_drawn() : ready_.pop();
    if (now_ == from) return;
    threadIdx = now_->index;
    from->fiber.switch_to(now_->fiber);
  }

  const Index threads_, blocks_;
  const unsigned count_;
  const bool alone_;
  Order order_;
  Stacks stacks_;
  std::vector<Thread> list_;
  std::vector<Warp> warps_;
  const std::size_t shared_bytes_;
  unsigned char* const shared_;

  void (*body_)(const void*) = nullptr;
  const void* arguments_ = nullptr;
  Fiber home_;
  Thread* now_ = nullptr;
  Ready ready_;
  unsigned live_ = 0;
  unsigned idle_ = 0, seen_ = 0;  ///< of polls
  std::vector<Thread*> waiting_;  ///< at the barrier
  NamedBarrier named_[named_count];
  unsigned barrier_turn_ = 0, barrier_count_ = 0, barrier_result_[2] = {};
  std::vector<BulkCopy> bulk_;
};

inline Block& block() {
  if (running == nullptr) fail("device code runs outside of a kernel");
  return *running;
}

}  // namespace emulated_cuda
