// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Decodes several frames of one source at a time.

#include <algorithm>
#include <concepts>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/decode_pool.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/unreadable.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// A source whose frames are made in three steps. `take` gets the material of the next frame, in
/// order, one thread at a time. `finish` makes the frame of it and says whether it could: any
/// number of threads at once, beside `take`. `settle`, in order, moves `position` on and gives the
/// frame's facts, or nothing for one that is skipped; it may throw. `take` may run ahead of
/// `settle`; `seek` brings both to the same place. `Raw` is what is large: each thread has one.
template <class S>
concept StagedSource = FrameSource<S> &&
    requires(S source, typename S::Job& job, typename S::Raw& raw, FrameShape shape,
             std::span<std::uint8_t> pixels, bool readable) {
  {source.take(job, raw)};
  { source.finish(job, raw, shape, pixels) } -> std::same_as<bool>;
  { source.settle(job, readable) } -> std::same_as<std::optional<FrameInfo>>;
  { S::take_name } -> std::convertible_to<std::string>;
  { S::finish_name } -> std::convertible_to<std::string>;
};

/// `next` of a staged source, one frame after another.
template <class S>
FrameInfo next_in_turn(S& source, typename S::Job& job, typename S::Raw& raw,
                       const FrameShape& shape, std::span<std::uint8_t> pixels) {
  check_request(shape, pixels);
  for (;;) {
    source.take(job, raw);
    const bool readable = source.finish(job, raw, shape, pixels);
    if (const auto info = source.settle(job, readable)) return *info;
  }
}

/// Hands on exactly what `S` would, in the same order, from a ring of frames that the threads of
/// the DecodePool fill. Memory: `capacity` frames of the shape asked for, and a picture per thread.
/// Failures are thrown where they lie in the order. Movable; after a move only destruction and
/// assignment are left to what was moved from. Model of FrameSource.
template <StagedSource S>
class Pipeline {
 public:
  /// Work begins with the first `next`, which gives the shape.
  explicit Pipeline(S source, std::size_t capacity = 32)
      : worker_(std::make_unique<Worker>(std::move(source), capacity)) {}

  /// A shape other than that of the call before discards what was made ahead.
  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    return worker_->next(shape, pixels);
  }

  [[nodiscard]] Position position() const { return worker_->source().position(); }
  void seek(const Position& position) { worker_->seek(position); }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return worker_->source().length(); }
  [[nodiscard]] std::uint64_t skipped() const { return worker_->source().skipped(); }
  [[nodiscard]] std::string name() const { return worker_->source().name(); }
  [[nodiscard]] std::string replay_id() const { return io::replay_id(worker_->source()); }
  [[nodiscard]] std::vector<StageUsage> usage() const { return worker_->usage(); }

  std::optional<std::uint64_t> count_frames() { return worker_->count_frames(); }
  [[nodiscard]] Unreadable& unreadable() requires requires(S s) { s.unreadable(); }
  { return worker_->source().unreadable(); }

 private:
  struct Slot {
    typename S::Job job;
    std::vector<std::uint8_t> pixels;
    bool readable = false;
    bool done = false;
    std::exception_ptr failure;  ///< instead of a frame
  };

  /// At an address of its own, because tasks refer to it.
  class Worker {
   public:
    Worker(S source, std::size_t capacity) : source_(std::move(source)), slots_(capacity) {
      if (capacity == 0) throw Error(Fault::usage, "a pipeline needs room for 1 frame or more");
    }
    ~Worker() { stop(); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    [[nodiscard]] S& source() noexcept { return source_; }
    [[nodiscard]] const S& source() const noexcept { return source_; }

    FrameInfo next(const FrameShape& shape, std::span<std::uint8_t> pixels) {
      if (shape != shape_) change_shape(shape);
      for (;;) {
        Slot& slot = wait_for_slot();
        if (slot.failure) std::rethrow_exception(slot.failure);  // and again, until `seek`
        std::optional<FrameInfo> info;
        const auto failure = attempt([&] { info = source_.settle(slot.job, slot.readable); });
        if (info) std::copy(slot.pixels.begin(), slot.pixels.end(), pixels.begin());
        release_slot();
        if (failure) std::rethrow_exception(failure);
        if (info) return *info;
      }
    }

    void seek(const Position& position) {
      stop();
      source_.seek(position);
    }

    std::optional<std::uint64_t> count_frames() {
      if constexpr (requires { source_.count_frames(); }) {
        if (!source_.length()) stop_here();
        return source_.count_frames();
      } else {
        return source_.length();
      }
    }

    [[nodiscard]] std::vector<StageUsage> usage() const {
      const std::lock_guard lock(mutex_);
      return {taking_usage_, finishing_usage_};
    }

   private:
    void change_shape(const FrameShape& shape) {
      stop_here();
      for (Slot& slot : slots_) slot.pixels.resize(shape.size());
      shape_ = shape;
    }

    /// Stops, and brings the source back to where the consumer is.
    void stop_here() {
      if (count_ == 0) return;  // nothing is ahead
      stop();
      source_.seek(source_.position());
    }

    void stop() {
      std::unique_lock lock(mutex_);
      stopping_ = true;
      idle_.wait(lock, [this] { return unfinished_ == 0; });
      stopping_ = broken_ = false;
      first_ = count_ = 0;
    }

    /// Has the next frame taken, if there is room for it. One at a time, so that frames are taken
    /// in order; who has taken one passes the turn on and then finishes it. Under the lock.
    void pass_turn() {
      if (taking_ || stopping_ || broken_ || count_ == slots_.size()) return;
      Slot& slot = slots_[(first_ + count_) % slots_.size()];
      slot.done = false;
      taking_ = true;
      ++count_;
      ++unfinished_;
      pool_->submit([this, &slot] { make(slot); });
    }

    void make(Slot& slot) noexcept {
      thread_local typename S::Raw raw;
      Stopwatch watch;
      slot.failure = attempt([&] { source_.take(slot.job, raw); });
      const double taken = watch.lap();
      {
        const std::lock_guard lock(mutex_);
        taking_usage_.busy += taken;
        ++taking_usage_.frames;
        taking_ = false;
        broken_ = static_cast<bool>(slot.failure);
        pass_turn();
      }
      if (!slot.failure) {
        slot.failure =
            attempt([&] { slot.readable = source_.finish(slot.job, raw, shape_, slot.pixels); });
      }
      const double finished = watch.lap();
      const std::lock_guard lock(mutex_);
      finishing_usage_.busy += finished;
      ++finishing_usage_.frames;
      slot.done = true;
      if (--unfinished_ == 0) idle_.notify_all();
      if (&slot == &slots_[first_]) ready_.notify_one();
    }

    template <class Act>
    static std::exception_ptr attempt(Act act) noexcept {
      try {
        act();
        return nullptr;
      } catch (...) {
        return std::current_exception();
      }
    }

    Slot& wait_for_slot() {
      std::unique_lock lock(mutex_);
      pass_turn();
      Slot& slot = slots_[first_];
      finishing_usage_.queued += static_cast<double>(count_ - unfinished_);
      if (!slot.done) {
        Stopwatch watch;
        ready_.wait(lock, [&slot] { return slot.done; });
        finishing_usage_.waiting += watch.lap();
      }
      return slot;
    }

    void release_slot() {
      const std::lock_guard lock(mutex_);
      slots_[first_].done = false;
      first_ = (first_ + 1) % slots_.size();
      --count_;
      pass_turn();
    }

    std::shared_ptr<DecodePool> pool_ = DecodePool::shared();
    S source_;
    FrameShape shape_{};
    std::vector<Slot> slots_;   // a ring: count_ from first_ on are in work or done
    mutable std::mutex mutex_;  // over what follows, and the slots' done
    std::size_t first_ = 0;
    std::size_t count_ = 0;
    std::size_t unfinished_ = 0;
    bool taking_ = false;
    bool stopping_ = false;
    bool broken_ = false;  // taking has failed: nothing can follow
    StageUsage taking_usage_{.name = S::take_name};
    StageUsage finishing_usage_{
        .name = S::finish_name, .threads = pool_->size(), .capacity = slots_.size()};
    std::condition_variable ready_;
    std::condition_variable idle_;
  };

  std::unique_ptr<Worker> worker_;
};

}  // namespace pvm::inline v0::io
