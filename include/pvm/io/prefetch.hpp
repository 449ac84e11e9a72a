// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads any source ahead of its consumer, on a thread of its own.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/trace.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/stoppable_wait.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// Delivers exactly the frames that `S` would, in the same order, but decodes up to `capacity`
/// frames before they are asked for. `position`, `length` and `skipped` are those of the consumer's
/// place in the order, however far ahead the thread is. A failure of the source is thrown by the
/// `next` that should have delivered that frame, and by every `next` after it until `seek`.
/// Movable; a moved-from object may only be destroyed or assigned to. Model of FrameSource.
template <class S>
class Prefetch {
  static_assert(FrameSource<S>,
                "pvm::io::Prefetch: what is to be read ahead is no source (pvm::io::FrameSource: "
                "next, position, seek, length, skipped, name)");

 public:
  /// `capacity`: most frames that are ready at once. Reading ahead begins with the first `next` or
  /// `prepare`, which give the shape. Throws Fault::usage for a capacity of 0.
  explicit Prefetch(S source, std::size_t capacity = 16)
      : worker_(std::make_unique<Worker>(std::move(source), capacity)) {}

  /// If the shape differs from that of the previous call, the frames read ahead are discarded and
  /// read again. Throws what the source throws, and Fault::usage if `shape` is impossible or
  /// `pixels` is not `shape.size()` bytes, Fault::memory if no thread can be started.
  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    return worker_->next(shape, pixels);
  }

  [[nodiscard]] Position position() const { return worker_->place().position; }
  void seek(const Position& position) { worker_->seek(position); }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return worker_->place().length; }
  [[nodiscard]] std::uint64_t skipped() const { return worker_->place().skipped; }
  [[nodiscard]] const std::string& name() const { return worker_->name(); }
  [[nodiscard]] std::string replay_id() const { return worker_->replay_id(); }
  [[nodiscard]] const std::vector<std::string>& files() const { return worker_->files(); }

  /// The source's stages, followed by the stage "ahead" for the queue of this object.
  [[nodiscard]] std::vector<StageUsage> usage() const { return worker_->usage(); }

  /// As `seek`, but does not wait for the source to seek (only for a frame that the thread is
  /// reading): the thread seeks and starts reading ahead from there, at most `frames` frames unless
  /// more are asked for. If seeking fails, the next `next` throws. Before the first `next` or
  /// `prepare`, when the shape is not known yet, it is the same as `seek`.
  void seek_ahead(const Position& position, std::uint64_t frames = unlimited) {
    worker_->seek_ahead(position, frames);
  }

  /// See `io::prepare`.
  void prepare(const FrameShape& shape) {
    check_shape(shape);
    worker_->prepare(shape);
  }
  /// See `io::stop_when`.
  void stop_when(const std::atomic<bool>* asked) { worker_->stop_when(asked); }

 private:
  /// The state of the source between two frames.
  struct Place {
    Position position;
    std::optional<std::uint64_t> length;
    std::uint64_t skipped = 0;
  };

  struct Slot {
    std::vector<std::uint8_t> pixels;
    FrameInfo info;
    Place after;                 ///< the source's state behind this frame
    std::exception_ptr failure;  ///< set if there is no frame: `next` throws it
    std::uint64_t flow = 0;      ///< of the frame in a trace
  };

  /// The part that the thread refers to. It is allocated separately, so that its address stays the
  /// same when a Prefetch is moved.
  class Worker {
   public:
    Worker(S source, std::size_t capacity)
        : source_(std::move(source)),
          name_(source_.name()),
          replay_id_(io::replay_id(source_)),
          files_(io::files(source_)),
          place_(place_of_source()) {
      if (capacity == 0) {
        throw Error(Fault::usage, "frames cannot be read 0 ahead; ask for a capacity of 1 or more");
      }
      slots_.resize(capacity);
      usage_.capacity = capacity;
    }

    ~Worker() { stop(); }
    Worker(const Worker&) = delete;
    Worker& operator=(const Worker&) = delete;

    FrameInfo next(const FrameShape& shape, std::span<std::uint8_t> pixels) {
      prepare(shape);
      const Slot& slot = wait_for_frame();
      if (slot.failure) std::rethrow_exception(slot.failure);
      std::copy(slot.pixels.begin(), slot.pixels.end(), pixels.begin());
      const FrameInfo info = slot.info;
      place_ = slot.after;
      trace::carry_flow(slot.flow);
      release_frame();
      return info;
    }

    void prepare(const FrameShape& shape) {
      if (shape != shape_) change_shape(shape);
      if (!thread_.joinable()) start();
    }

    void seek_ahead(const Position& position, std::uint64_t frames) {
      if (shape_ == FrameShape{}) return seek(position);  // the shape to read is not known yet
      stop();
      to_read_ = frames;
      sought_ = position;
      place_.position = position;
      start();
    }

    void seek(const Position& position) {
      stop();
      try {
        source_.seek(position);
      } catch (...) {
        place_ = place_of_source();
        throw;
      }
      place_ = place_of_source();
    }

    void stop_when(const std::atomic<bool>* asked) { asked_ = asked; }

    [[nodiscard]] const Place& place() const noexcept { return place_; }
    [[nodiscard]] const std::string& name() const noexcept { return name_; }
    [[nodiscard]] const std::string& replay_id() const noexcept { return replay_id_; }
    [[nodiscard]] const std::vector<std::string>& files() const noexcept { return files_; }
    [[nodiscard]] std::vector<StageUsage> usage() const {
      std::vector<StageUsage> stages;
      // While the source is busy it cannot be asked. That is over soon, unless its decoder hangs.
      const auto soon = LockClock::now() + std::chrono::milliseconds(200);
      if (const std::unique_lock lock(source_mutex_, soon); lock.owns_lock()) {
        stages = io::usage(source_);
        if (stages.empty()) stages.push_back(source_usage_);
      }
      const std::lock_guard lock(mutex_);
      stages.push_back(usage_);
      return stages;
    }

   private:
#if defined(__SANITIZE_THREAD__)
    // That of GCC 12 does not see that a mutex is locked by a wait on the steady clock.
    using LockClock = std::chrono::system_clock;
#else
    using LockClock = std::chrono::steady_clock;
#endif

    [[nodiscard]] Place place_of_source() const {
      return {source_.position(), source_.length(), source_.skipped()};
    }

    void change_shape(const FrameShape& shape) {
      const bool was_ahead = thread_.joinable();
      stop();
      if (was_ahead) source_.seek(place_.position);
      for (Slot& slot : slots_) slot.pixels.resize(shape.size());
      shape_ = shape;
    }

    void start() {
      try {
        thread_ = std::thread([this] { read_ahead(); });
      } catch (const std::system_error& fault) {
        throw Error(Fault::memory, "no thread can be started to read " + pvm::quote(name_) +
                                       " ahead (" + fault.what() + "); use a smaller batch");
      }
    }

    /// Ends the thread and discards the frames that were read ahead.
    void stop() {
      if (!thread_.joinable()) return;
      {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
      }
      freed_.notify_one();
      thread_.join();
      trace::frames_ready(-static_cast<std::int64_t>(filled_count_));
      stopping_ = false;
      sought_.reset();
      first_ = 0;
      filled_count_ = 0;
      to_read_ = unlimited;
    }

    /// The thread: fills slots until it is stopped or the source fails.
    void read_ahead() {
      trace::name_thread("ahead: " + name_);
      for (bool going = true; going;) {
        Slot* const slot = wait_for_room();
        if (slot == nullptr) return;
        fill(*slot);
        going = !slot->failure;
        {
          const std::lock_guard lock(mutex_);
          ++filled_count_;
          trace::frames_ready(1);
          if (to_read_ != unlimited) --to_read_;
        }
        filled_.notify_one();
      }
    }

    void fill(Slot& slot) {
      try {
        slot.failure = nullptr;
        const std::lock_guard lock(source_mutex_);
        if (sought_) source_.seek(*sought_);
        sought_.reset();
        trace::Span span("read a frame ahead");
        slot.info = source_.next(shape_, slot.pixels);
        slot.flow = trace::begin_flow();
        source_usage_.busy += span.end();
        ++source_usage_.frames;
        slot.after = place_of_source();
      } catch (...) {
        slot.failure = std::current_exception();
      }
    }

    /// Waits until a slot is free and frames are still to be read; null if the thread is to stop.
    Slot* wait_for_room() {
      std::unique_lock lock(mutex_);
      freed_.wait(lock,
                  [this] { return stopping_ || (filled_count_ < slots_.size() && to_read_ > 0); });
      return stopping_ ? nullptr : &slots_[(first_ + filled_count_) % slots_.size()];
    }

    const Slot& wait_for_frame() {
      std::unique_lock lock(mutex_);
      usage_.queued += static_cast<double>(filled_count_);
      if (filled_count_ == 0) {
        if (to_read_ == 0) {  // more frames are asked for than `seek_ahead` announced
          to_read_ = unlimited;
          freed_.notify_one();
        }
        trace::Span span("wait for frames");
        detail::wait_unless_stopped(filled_, lock, asked_, [this] { return filled_count_ > 0; });
        usage_.waiting += span.end();
      }
      return slots_[first_];
    }

    void release_frame() {
      {
        const std::lock_guard lock(mutex_);
        first_ = (first_ + 1) % slots_.size();
        --filled_count_;
        trace::frames_ready(-1);
        ++usage_.frames;
      }
      freed_.notify_one();
    }

    S source_;                                   // used by the thread only, while it runs
    StageUsage source_usage_{.name = "source"};  // reported if the source reports no stages itself
    std::optional<Position>
        sought_;  // the thread seeks there first; used by it only, while it runs
    const std::string name_;
    const std::string replay_id_;
    const std::vector<std::string> files_;
    Place place_;                               // the consumer's place
    const std::atomic<bool>* asked_ = nullptr;  // see `io::stop_when`
    FrameShape shape_{};
    std::vector<Slot> slots_;  // ring buffer: filled_count_ slots from first_ on hold frames
    std::size_t first_ = 0;
    std::size_t filled_count_ = 0;
    std::uint64_t to_read_ = unlimited;  // frames the thread may still read
    bool stopping_ = false;
    StageUsage usage_{.name = "ahead"};
    mutable std::mutex mutex_;               // guards first_ to usage_
    mutable std::timed_mutex source_mutex_;  // guards source_ and source_usage_, for `usage`
    std::condition_variable filled_;
    std::condition_variable freed_;
    std::thread thread_;
  };

  std::unique_ptr<Worker> worker_;
};

}  // namespace pvm::inline v0::io
