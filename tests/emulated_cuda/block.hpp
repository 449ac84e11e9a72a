// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Runs a CUDA thread block on one thread of the operating system (OS thread): every CUDA thread is
/// a fiber that runs until it must wait for others. Behaviour that is undefined on a GPU is
/// provoked here on purpose: a CUDA thread runs as far ahead of the others as it may, asynchronous
/// copies arrive as late as they may, and shared memory is initialised with NaN. With
/// PVM_EMULATION_SEED=n in the environment, the order of threads and the arrival of copies are
/// random instead, and at times one warp, chosen at random, runs only when all others wait.
///
/// Waiting works without locks, since only one fiber of a block runs at a time: a waiting thread is
/// put into the list of what it waits for (Block::waiting_ for __syncthreads, NamedBarrier,
/// WarpRendezvous for instructions of a whole warp, Sleepers for an mbarrier), and back into
/// Block::ready_ by the thread that arrives last.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "fiber.hpp"

namespace emulated_cuda {

struct Index {
  unsigned x = 0, y = 0, z = 0;
};

class Block;
inline constinit thread_local Block* running = nullptr;  ///< the block that this OS thread runs

}  // namespace emulated_cuda

// The built-in variables, as the running CUDA thread sees them.
inline constinit thread_local emulated_cuda::Index threadIdx, blockIdx, blockDim, gridDim;

namespace emulated_cuda {

/// Counts events (atomic operations, stores to other blocks) that blocks may be polling for, so
/// that a block that has nothing else to do can sleep until the next event.
class EventCounter {
 public:
  static EventCounter& get() {
    static EventCounter it;
    return it;
  }
  void happened() { ++count_; }
  /// Wakes the blocks that sleep, if something has happened. Not part of `happened`, because most
  /// events come in bursts, and each would wake blocks in vain.
  void announce() {
    const unsigned count = count_;
    if (announced_.exchange(count) == count || sleepers_ == 0) return;
    // A block that has seen an older count is asleep once this lock is free, and can be woken.
    { const std::lock_guard lock(mutex_); }
    changed_.notify_all();
  }
  /// Sleeps while the count is `seen`, for at most 1 ms, because memory may also change by stores
  /// that are not counted, and not all events are announced at once. Returns the count.
  unsigned wait(unsigned seen) {
    announce();
    if (const unsigned count = count_; count != seen) return count;
    std::unique_lock lock(mutex_);
    ++sleepers_;
    changed_.wait_for(lock, std::chrono::milliseconds(1), [&] { return count_ != seen; });
    --sleepers_;
    return count_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::atomic<unsigned> count_ = 0, announced_ = 0, sleepers_ = 0;
};

/// The random decisions that PVM_EMULATION_SEED asks for. Without it nothing is random: `coin` is
/// false, and `shuffle` changes nothing.
class RandomOrder {
 public:
  explicit RandomOrder(unsigned block) {
    if (const char* seed = std::getenv("PVM_EMULATION_SEED")) {
      random_ = std::make_unique<std::minstd_rand>(static_cast<unsigned>(std::atoi(seed)) + 1 +
                                                   977 * block);
    }
  }
  [[nodiscard]] bool is_random() const noexcept { return random_ != nullptr; }
  bool coin() { return random_ != nullptr && ((*random_)() >> 8 & 1U) != 0; }
  /// Once in a hundred calls, if order is random.
  bool rarely() { return random_ != nullptr && ((*random_)() >> 8) % 100 == 0; }
  template <class T>
  void shuffle(std::vector<T>& list) {
    if (random_ != nullptr) std::shuffle(list.begin(), list.end(), *random_);
  }
  /// The index of the warp, out of `warps`, that runs only when all others wait. Stays the same for
  /// thousands of calls. Only if `is_random()`.
  unsigned slowest(unsigned warps) {
    if (calls_left_ == 0) {
      calls_left_ = 1000 + static_cast<unsigned>((*random_)()) % 50000;
      slowest_ = static_cast<unsigned>((*random_)()) / 256 % warps;
    }
    --calls_left_;
    return slowest_;
  }
  /// A thread has polled without success, perhaps for something that the slowest warp must do:
  /// shortens the time until another warp is chosen.
  void note_poll() { calls_left_ -= std::min(calls_left_, 100U); }

 private:
  std::unique_ptr<std::minstd_rand> random_;
  unsigned calls_left_ = 0, slowest_ = 0;
};

/// An asynchronous copy (cp.async) in flight: `bytes` bytes followed by `zeros` zero bytes.
/// `group`: number of the commit group it belongs to.
struct Copy {
  void* to;
  const void* from;
  std::uint32_t bytes, zeros, group;

  void arrive() const {
    std::memcpy(to, from, bytes);
    std::memset(static_cast<unsigned char*>(to) + bytes, 0, zeros);
  }
};
/// A bulk copy in flight, whose bytes count towards the mbarrier at `barrier` in shared memory.
struct BulkCopy {
  void* to;
  const void* from;
  std::uint32_t bytes;
  void* barrier;
};

struct Warp;

/// What a switch to a thread needs lies in one cache line.
struct alignas(64) Thread {
  Fiber fiber;
  Thread* next = nullptr;  ///< in the list that the thread is in
  Warp* warp = nullptr;
  unsigned number = 0, lane = 0;
  Index index;
  std::uint32_t group = 0;   ///< number of the open commit group of copies
  std::vector<Copy> copies;  ///< in flight
};

/// Threads that wait for something, or that can run, in order. A thread is in one list at most.
class ThreadList {
 public:
  [[nodiscard]] bool empty() const noexcept { return size_ == 0; }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }
  void clear() noexcept { *this = {}; }
  void push_back(Thread* t) {
    t->next = nullptr;
    (size_ == 0 ? first_ : last_->next) = t;
    last_ = t;
    ++size_;
  }
  Thread* pop() {
    Thread* t = first_;
    first_ = t->next;
    --size_;
    return t;
  }
  /// Moves all threads of `other` to the end, or to the beginning.
  void append(ThreadList& other) {
    if (other.empty()) return;
    (size_ == 0 ? first_ : last_->next) = other.first_;
    last_ = other.last_;
    size_ += std::exchange(other.size_, 0);
  }
  void prepend(ThreadList& other) {
    if (other.empty()) return;
    other.append(*this);
    std::swap(*this, other);
  }
  /// Removes the first thread for which `may_run` is true, or the first of all if there is none.
  template <class MayRun>
  Thread* pop(MayRun may_run) {
    for (std::size_t i = size_; i > 0; --i) {
      Thread* t = pop();
      if (may_run(*t)) return t;
      push_back(t);
    }
    return pop();
  }
  void shuffle(RandomOrder& order) {
    if (!order.is_random()) return;
    std::vector<Thread*> threads;
    while (!empty()) threads.push_back(pop());
    order.shuffle(threads);
    for (Thread* t : threads) push_back(t);
  }

 private:
  Thread *first_ = nullptr, *last_ = nullptr;  // valid if size_ > 0
  std::size_t size_ = 0;
};

/// The data of a warp's lanes in a rendezvous: 32 bytes for each of 32 lanes.
using Lanes = unsigned char (*)[32];

/// A rendezvous: the emulation of an instruction that the lanes of a warp execute together, such as
/// a shuffle, a vote or an mma. Every lane of `mask` stores its data and waits; the last one to
/// arrive calls `finish`, which may replace the data by results, and then all lanes read them. Two
/// buffers are used alternately: when a lane arrives at the next rendezvous but one, all lanes have
/// read the first one.
struct WarpRendezvous {
  unsigned mask = ~0U, arrived = 0, turn = 0;  ///< turn: index of the buffer in use
  const char* what = nullptr;                  ///< name of the instruction
  void (*finish)(Lanes) = nullptr;
  ThreadList waiting;
  alignas(32) unsigned char lanes[2][32][32];
  unsigned participants[2] = {};  ///< mask of the lanes that took part; they may have ended since
};
/// The result of a rendezvous for a lane: the data, and the mask of the lanes that took part.
struct RendezvousResult {
  Lanes lanes;
  unsigned participants;
};

struct Warp {
  unsigned live = 0;                                  ///< mask of the lanes that have not ended
  WarpRendezvous all;                                 ///< of the whole warp
  std::vector<std::unique_ptr<WarpRendezvous>> some;  ///< of other masks

  WarpRendezvous& rendezvous(unsigned mask) {
    if (mask == all.mask) return all;
    for (auto& m : some) {
      if (m->mask == mask) return *m;
    }
    some.push_back(std::make_unique<WarpRendezvous>());
    some.back()->mask = mask;
    return *some.back();
  }
  template <class What>
  void each_rendezvous(What&& what) {
    what(all);
    for (auto& m : some) what(*m);
  }
};

class Block {
 public:
  /// `threads`: shape of the block. `blocks`: shape of the grid. `alone`: no other block runs at
  /// the same time. `number`: makes the random order of each block different.
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

  /// Runs `body(arguments)` on every thread of the block with index `block`.
  void run(Index block, void (*body)(const void*), const void* arguments) {
    body_ = body;
    arguments_ = arguments;
    live_ = count_;
    barrier_count_ = 0;
    waiting_.clear();
    for (NamedBarrier& barrier : named_) barrier = {};
    bulk_.clear();
    sleepers_.clear();
    std::memset(shared_, 0xff, shared_bytes_ + guard);
    ready_.clear();
    for (unsigned i = 0; i < count_; ++i) ready_.push_back(&prepare(i));
    ready_.shuffle(order_);
    for (Warp& warp : warps_) {
      warp.each_rendezvous([](WarpRendezvous& m) { m.arrived = 0, m.waiting.clear(); });
    }
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
  [[nodiscard]] RandomOrder& order() noexcept { return order_; }

  /// __syncthreads. Returns the number of threads whose `predicate` was true.
  unsigned barrier(bool predicate) {
    const unsigned turn = barrier_turn_ & 1U;
    if (predicate) ++barrier_count_;
    waiting_.push_back(now_);
    if (waiting_.size() == live_) open_barrier();
    next();
    return barrier_result_[turn];
  }

  /// bar.sync if `waits`, else bar.arrive, on the named barrier `number` (1 to 15) for `threads`
  /// threads.
  void named_barrier(int number, int threads, bool waits) {
    if (number < 1 || number >= named_count || threads % 32 != 0 || threads < 32) {
      fail("a barrier that does not exist, or not of whole warps");
    }
    NamedBarrier& barrier = named_[number];
    if (barrier.arrived != 0 && barrier.threads != threads) {
      fail("warps come to one barrier with different numbers of threads");
    }
    barrier.threads = threads;
    if (barrier.has_arrived.size() != list_.size()) barrier.has_arrived.assign(list_.size(), false);
    if (barrier.has_arrived[now_->number]) {
      fail("a warp comes to a barrier again before the others have come");
    }
    barrier.has_arrived[now_->number] = true;
    ++barrier.arrived;
    if (waits) barrier.waiting.push_back(now_);
    if (barrier.arrived == threads) {
      make_ready(barrier.waiting);
      barrier.has_arrived.assign(list_.size(), false);
      barrier.arrived = 0;
    }
    if (!waits && order_.coin()) {
      ready_.push_back(now_);
      next();
    } else if (waits) {
      next();
    }
  }

  /// Takes part in a rendezvous (see WarpRendezvous) of the lanes of `mask`. `what`: name of the
  /// instruction; `mine`: this lane's data. The result is valid until this lane takes part in the
  /// next rendezvous but one.
  template <class T>
  RendezvousResult meet(unsigned mask, const char* what, const T& mine,
                        void (*finish)(Lanes) = nullptr) {
    static_assert(sizeof(T) <= 32 && std::is_trivially_copyable_v<T>);
    const unsigned lane = now_->lane;
    if ((mask >> lane & 1U) == 0) fail("a lane is not in the mask of what it calls");
    Warp& warp = *now_->warp;
    WarpRendezvous& m = warp.rendezvous(mask);
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
      complete(m);
    } else {
      m.waiting.push_back(now_);
      next();
    }
    return {lanes, m.participants[turn]};
  }

  /// Called by loops that poll memory: lets other threads run. Lets other blocks run, too, if all
  /// threads that can run have polled three times since one last became ready, and then after every
  /// second time.
  void poll() {
    order_.note_poll();
    const std::size_t others = ready_.size();
    if (!late_.empty() && order_.coin() && order_.coin()) store_now();
    if (!alone_ && ++polls_ > 3 * others) {
      store_now();
      polls_ -= std::min(polls_, 2 * others + 1);
      seen_ = EventCounter::get().wait(seen_);
    }
    if (!ready_.empty()) {
      ready_.push_back(now_);
      next();
    } else if (alone_ && ++idle_ > 1000) {
      fail("a block waits for another one in a launch that is not cooperative");
    }
  }

  /// Suspends the running thread until another one calls `wake` with the same address, which is
  /// that of an mbarrier.
  void sleep(const void* barrier) {
    const auto same = [&](const Sleepers& s) { return s.barrier == barrier; };
    auto found = std::find_if(sleepers_.begin(), sleepers_.end(), same);
    if (found == sleepers_.end()) found = sleepers_.insert(found, {barrier, {}});
    found->threads.push_back(now_);
    next();
  }
  void wake(const void* barrier) {
    for (Sleepers& s : sleepers_) {
      if (s.barrier == barrier) make_ready(s.threads);
    }
  }

  /// A store to another device, which happens as late as it may: when all threads of the block wait
  /// for other blocks, or it ends, or at a fence. In random order, if order is random, and
  /// sometimes earlier.
  void store_late(std::function<void()> store) { late_.push_back(std::move(store)); }

  /// Does the block's stores to other devices that have not happened yet.
  void fence() { store_now(); }

  void bulk_copy(const BulkCopy& copy) { bulk_.push_back(copy); }
  /// Completes the bulk copies in flight for `barrier`; returns their number of bytes.
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
    int threads = 0, arrived = 0;   ///< threads expected, and threads that have arrived
    std::vector<bool> has_arrived;  ///< by thread of the block: it has arrived
    ThreadList waiting;             ///< arrived threads that wait
  };
  struct Sleepers {
    const void* barrier;
    ThreadList threads;
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
      block.end_thread();
    });
    t.lane = i % 32;
    t.warp = &warps_[i / 32];
    t.warp->live |= 1U << t.lane;
    return t;
  }

  /// Ends the running thread.
  void end_thread() {
    --live_;
    warp().live &= ~(1U << now_->lane);
    EventCounter::get().announce();
    if (live_ == 0) {
      store_now();
      now_->fiber.switch_to(home_);
    }
    if (!waiting_.empty() && waiting_.size() == live_) open_barrier();
    warp().each_rendezvous([&](WarpRendezvous& m) {
      if (m.arrived != 0 && m.arrived == (m.mask & warp().live)) complete(m);
    });
    next();
  }

  void store_now() {
    order_.shuffle(late_);
    for (const auto& store : std::exchange(late_, {})) {
      store();
      if (order_.rarely()) let_others_look();
    }
    EventCounter::get().announce();
  }

  /// Lets blocks that poll, and what runs when they have seen enough, see some stores before
  /// others.
  static void let_others_look() {
    EventCounter::get().announce();
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }

  void open_barrier() {
    barrier_result_[barrier_turn_ & 1U] = barrier_count_;
    ++barrier_turn_;
    barrier_count_ = 0;
    make_ready(waiting_);
  }

  void make_ready(ThreadList& threads) {
    polls_ = 0;
    EventCounter::get().announce();
    threads.shuffle(order_);
    ready_.append(threads);
  }

  /// All lanes have arrived at the rendezvous: completes it and makes them ready.
  void complete(WarpRendezvous& m) {
    if (m.finish != nullptr) m.finish(m.lanes[m.turn]);
    m.participants[m.turn] = m.arrived;
    m.arrived = 0;
    m.turn ^= 1U;
    m.waiting.shuffle(order_);
    polls_ = 0;
    order_.coin() ? ready_.append(m.waiting) : ready_.prepend(m.waiting);
  }

  /// The next thread in random mode: not one of the slowest warp, if possible.
  Thread* pop_random() {
    const Warp* slowest = &warps_[order_.slowest(static_cast<unsigned>(warps_.size()))];
    return ready_.pop([&](const Thread& t) { return t.warp != slowest; });
  }
  /// Suspends the running thread and runs the next one that is ready.
  void next() {
    if (ready_.empty()) fail("a deadlock: no thread of a block can run");
    idle_ = 0;
    Thread* const from = now_;
    now_ = order_.is_random() ? pop_random() : ready_.pop();
    if (now_ == from) return;
    threadIdx = now_->index;
    from->fiber.switch_to(now_->fiber);
  }

  const Index threads_, blocks_;
  const unsigned count_;
  const bool alone_;
  RandomOrder order_;
  Stacks stacks_;
  std::vector<Thread> list_;
  std::vector<Warp> warps_;
  const std::size_t shared_bytes_;
  unsigned char* const shared_;

  void (*body_)(const void*) = nullptr;
  const void* arguments_ = nullptr;
  Fiber home_;
  Thread* now_ = nullptr;
  ThreadList ready_;
  unsigned live_ = 0;               ///< threads that have not ended
  unsigned idle_ = 0, seen_ = 0;    ///< fruitless polls in a row; the latest count of EventCounter
  std::size_t polls_ = 0;           ///< since a thread last became ready
  ThreadList waiting_;              ///< at __syncthreads
  std::vector<Sleepers> sleepers_;  ///< at mbarriers
  NamedBarrier named_[named_count];
  unsigned barrier_turn_ = 0, barrier_count_ = 0, barrier_result_[2] = {};
  std::vector<BulkCopy> bulk_;
  std::vector<std::function<void()>> late_;  ///< stores to other devices
};

inline Block& block() {
  if (running == nullptr) fail("device code runs outside of a kernel");
  return *running;
}

}  // namespace emulated_cuda
