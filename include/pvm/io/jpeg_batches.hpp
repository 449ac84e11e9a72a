// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One decoder that likes many JPEGs at a time, for all files of a program.

#include <algorithm>
#include <array>
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <latch>
#include <mutex>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/jpeg_header.hpp>
#include <pvm/io/picture_service.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// A JPEG to be decoded.
struct JpegItem {
  std::span<const std::uint8_t> bytes;
  PlainJpeg facts;
};

/// Collects the pictures that threads have read, of any files, into batches for `Device`; the
/// thread whose picture completes a batch has it decoded while others read on, and while one of
/// them stages the next batch. Pictures that are no plain JPEGs (`plain_jpeg`), and those that the
/// device refuses, are decoded on the CPU. What frames there will be does not depend on how batches
/// fall. Memory: the bytes of 4 batches, where threads read faster than the device decodes, of
/// three more that are staged, decoded or told of, and of one picture for each thread.
///
/// `Device` has two places for a batch. `stage(items, place)` may bring the bytes of JpegItems to
/// where it reads them, and changes the items then. `start(items, place, shape)` decodes them and
/// says whether it could, `wait(place)` gives their frames, one behind the other. Each is called
/// by one thread at a time, but the three at the same time, of which two for one place never.
template <class Device>
class JpegBatches {
 public:
  static constexpr std::size_t batch = 64;
  static constexpr std::size_t most_pixels = batch
                                             << 20;  ///< of a batch with more than one picture
  /// Called once the frame is made, or cannot be: whether it was `readable`, what has failed
  /// instead, and the `seconds` of decoding.
  using Done = std::function<void(bool readable, std::exception_ptr failure, double seconds)>;

  template <class... Arguments>
  explicit JpegBatches(Arguments&&... arguments) : device_(std::forward<Arguments>(arguments)...) {}

  /// Says that a picture is about to be read: batches wait for it. `decode` must follow.
  void expect() noexcept {
    const std::lock_guard lock(mutex_);
    ++expected_;
  }

  /// Makes a frame of the picture in `bytes` (none: it could not be read), whose content is lost.
  void decode(std::vector<std::uint8_t>& bytes, const FrameShape& shape,
              std::span<std::uint8_t> pixels, Done done) noexcept {
    const auto facts = plain_jpeg(bytes);
    if (!facts) CpuPictureDecoder().decode(bytes, shape, pixels, done);
    {
      std::unique_lock lock(mutex_);
      taken_.wait(lock, [this] { return may_drive() || ready_.size() < most_ready; });
      --expected_;
      ++arrived_;
      if (facts) {
        ready_.push_back({spare(), *facts, shape, pixels, std::move(done)});
        std::swap(ready_.back().bytes, bytes);
      }
      if (!may_drive() || !due()) return;
    }
    drive();
  }

  /// Decodes the first of `pictures` pictures, that `read(i)` gives, and forgets them, for each of
  /// the device's places, so that what a device does once is not part of a run. Only until it has
  /// succeeded. Throws what the device throws.
  template <class Read>
  void try_out(std::size_t pictures, const Read& read) {
    for (std::size_t place = 0; place < places && !tried_; ++place) try_batch(pictures, read);
    tried_ = true;
  }

 private:
  struct Job {
    std::vector<std::uint8_t> bytes;
    PlainJpeg facts;
    FrameShape shape;
    std::span<std::uint8_t> pixels;
    Done done;
  };
  struct Batch {
    std::vector<Job> jobs;
    std::size_t place = 0;
  };

  template <class Read>
  void try_batch(std::size_t pictures, const Read& read) {
    const std::size_t count = std::min(batch, pictures);
    constexpr FrameShape shape{.height = 16, .width = 16, .channels = 1};
    std::vector<std::uint8_t> frames(count * shape.size());
    std::vector<std::exception_ptr> failures(count);
    std::latch working(static_cast<std::ptrdiff_t>(count));
    std::vector<std::vector<std::uint8_t>> bytes;
    for (std::size_t i = 0; i < count; ++i) bytes.push_back(read(i));
    for (std::size_t i = 0; i < count; ++i) expect();
    for (std::size_t i = 0; i < count; ++i) {
      decode(bytes[i], shape, std::span(frames).subspan(i * shape.size(), shape.size()),
             [&, i](bool, std::exception_ptr failure, double) {
               failures[i] = std::move(failure);
               working.count_down();
             });
    }
    working.wait();
    for (const auto& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
  }

  /// A batch is full, or nothing more is on its way to it, or what is takes too long.
  [[nodiscard]] bool due() const {
    return !ready_.empty() && (ready_.size() >= batch || arrived_ >= batch || expected_ == 0);
  }

  /// One batch is staged at a time, while the one before it is decoded and readers are told of
  /// another.
  [[nodiscard]] bool may_drive() const {
    return !staging_ && !taken_places_[next_place_] && under_way_ < 3;
  }

  /// Decodes batches until none is due or another thread does so.
  void drive() noexcept {
    for (Batch batch = next_batch(); !batch.jobs.empty(); batch = next_batch()) {
      const std::vector<Job>& jobs = batch.jobs;
      const FrameShape& shape = jobs.front().shape;
      std::vector<JpegItem> items;
      for (const Job& job : jobs) items.push_back({job.bytes, job.facts});
      std::vector<std::uint8_t> readable(jobs.size(), 0);
      Stopwatch watch;
      std::exception_ptr failure = caught([&] { device_.stage(items, batch.place); });
      double seconds = watch.lap();
      begin_decoding();
      (void)watch.lap();
      bool whole = false;
      if (!failure) {
        failure = caught([&] {
          whole = device_.start(items, batch.place, shape);
          for (std::size_t i = 0; i < jobs.size() && !whole; ++i) {
            readable[i] = run_alone(jobs[i], items[i], batch.place);
          }
        });
      }
      end_decoding();
      if (whole) {
        failure = caught([&] {
          hand_out(device_.wait(batch.place), jobs);
          readable.assign(jobs.size(), 1);
        });
      }
      leave(batch);
      seconds = (seconds + watch.lap()) / static_cast<double>(jobs.size());
      for (std::size_t i = 0; i < jobs.size(); ++i)
        jobs[i].done(readable[i] != 0, failure, seconds);
      all_told();
    }
  }
  template <class Work>
  static std::exception_ptr caught(const Work& work) noexcept {
    try {
      work();
    } catch (...) {
      return std::current_exception();
    }
    return nullptr;
  }

  /// Pictures of one shape, for the device to decode; only this thread stages until
  /// `begin_decoding`. None where none is due, another thread drives, or too many are under way.
  Batch next_batch() {
    const std::lock_guard lock(mutex_);
    Batch next;
    if (!may_drive() || !due()) return next;
    staging_ = true;
    next.place = next_place_;
    next_place_ = 1 - next_place_;
    taken_places_[next.place] = true;
    ++under_way_;
    std::size_t pixels = 0;
    while (!ready_.empty() && next.jobs.size() < batch) {
      const Job& job = ready_.front();
      pixels +=
          static_cast<std::size_t>(job.facts.width) * static_cast<std::size_t>(job.facts.height);
      if (!next.jobs.empty() && (pixels > most_pixels || job.shape != next.jobs.front().shape))
        break;
      next.jobs.push_back(std::move(ready_.front()));
      ready_.pop_front();
    }
    arrived_ = 0;
    taken_.notify_all();
    return next;
  }

  static void hand_out(std::span<const std::uint8_t> frames, const std::vector<Job>& jobs) {
    const std::size_t size = jobs.front().shape.size();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      std::copy_n(frames.data() + i * size, size, jobs[i].pixels.data());
    }
  }

  /// For pictures in a batch that was refused: whether one is decoded on the device must not depend
  /// on the pictures beside it.
  bool run_alone(const Job& job, const JpegItem& item, std::size_t place) {
    if (!device_.start({&item, 1}, place, job.shape)) {
      return decode_image(job.bytes, job.shape, job.pixels);
    }
    const std::span<const std::uint8_t> frame = device_.wait(place);
    std::copy_n(frame.data(), job.shape.size(), job.pixels.data());
    return true;
  }

  std::vector<std::uint8_t> spare() {
    if (spare_.empty()) return {};
    auto bytes = std::move(spare_.back());
    spare_.pop_back();
    return bytes;
  }

  /// Waits for the batch before; from here on the next one may be staged.
  void begin_decoding() {
    std::unique_lock lock(mutex_);
    decoded_.wait(lock, [this] { return !decoding_; });
    decoding_ = true;
    staging_ = false;
    taken_.notify_all();
  }
  void end_decoding() {
    const std::lock_guard lock(mutex_);
    decoding_ = false;
    decoded_.notify_one();
  }
  /// Gives its place back and keeps its buffers.
  void leave(Batch& done) {
    const std::lock_guard lock(mutex_);
    taken_places_[done.place] = false;
    taken_.notify_all();
    for (Job& job : done.jobs) {
      if (spare_.size() < batch) spare_.push_back(std::move(job.bytes));
    }
  }

  void all_told() {
    const std::lock_guard lock(mutex_);
    --under_way_;
    taken_.notify_all();
  }

  static constexpr std::size_t most_ready = 4 * batch;
  static constexpr std::size_t places = 2;

  Device device_;
  std::atomic<bool> tried_ = false;
  std::mutex mutex_;  // over what follows
  std::deque<Job> ready_;
  std::size_t expected_ = 0;
  std::size_t arrived_ = 0;  // since the last batch was taken
  bool staging_ = false, decoding_ = false;
  std::array<bool, places> taken_places_{};
  std::size_t next_place_ = 0;
  int under_way_ = 0;  // batches that are staged, decoded or told of
  std::condition_variable taken_, decoded_;
  std::vector<std::vector<std::uint8_t>> spare_;  // buffers
};

}  // namespace pvm::inline v0::io
