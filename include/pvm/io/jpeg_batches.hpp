// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One decoder that likes many JPEGs at a time, for all files of a program.

#include <algorithm>
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
/// thread whose picture completes a batch has it decoded while others read on. Pictures that are no
/// plain JPEGs (`plain_jpeg`), and those that the device refuses, are decoded on the CPU. What
/// frames there will be does not depend on how batches fall. Memory: the bytes of 4 batches, where
/// threads read faster than the device decodes, of two more that are decoded or told of, and of one
/// picture for each thread.
///
/// `Device`: `start(items, shape)` begins to decode JpegItems and says whether it could, `wait()`
/// gives their frames one behind the other; one thread at a time.
template <class Device>
class JpegBatches {
 public:
  static constexpr std::size_t batch = 64;
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

  /// Decodes the first of `pictures` pictures, that `read(i)` gives, and forgets them, so that what
  /// a device does once is not part of a run. Only until it has succeeded. Throws what the device
  /// throws.
  template <class Read>
  void try_out(std::size_t pictures, const Read& read) {
    if (tried_) return;
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

  /// A batch is full, or nothing more is on its way to it, or what is takes too long.
  [[nodiscard]] bool due() const {
    return !ready_.empty() && (ready_.size() >= batch || arrived_ >= batch || expected_ == 0);
  }

  /// One batch is decoded at a time, while readers are told of one before it.
  [[nodiscard]] bool may_drive() const { return !driving_ && under_way_ < 2; }

  /// Decodes batches until none is due or another thread does so. While the readers are told of a
  /// batch, another thread may have the next one decoded.
  void drive() noexcept {
    for (auto jobs = next_batch(); !jobs.empty(); jobs = next_batch()) {
      Stopwatch watch;
      std::vector<std::uint8_t> readable(jobs.size(), 0);
      std::exception_ptr failure;
      try {
        run(jobs, readable);
      } catch (...) {
        failure = std::current_exception();
      }
      stop_driving(jobs);
      const double seconds = watch.lap() / static_cast<double>(jobs.size());
      for (std::size_t i = 0; i < jobs.size(); ++i)
        jobs[i].done(readable[i] != 0, failure, seconds);
      all_told();
    }
  }

  /// Of one shape, for the device to decode; only this thread drives until `stop_driving`. None
  /// where none is due, another thread drives, or readers are still to be told of two.
  std::vector<Job> next_batch() {
    const std::lock_guard lock(mutex_);
    std::vector<Job> jobs;
    if (!may_drive() || !due()) return jobs;
    driving_ = true;
    ++under_way_;
    while (!ready_.empty() && jobs.size() < batch &&
           (jobs.empty() || ready_.front().shape == jobs.front().shape)) {
      jobs.push_back(std::move(ready_.front()));
      ready_.pop_front();
    }
    arrived_ = 0;
    taken_.notify_all();
    return jobs;
  }

  void run(const std::vector<Job>& jobs, std::vector<std::uint8_t>& readable) {
    std::vector<JpegItem> items;
    for (const Job& job : jobs) items.push_back({job.bytes, job.facts});
    const FrameShape& shape = jobs.front().shape;
    if (device_.start(items, shape)) {
      const std::span<const std::uint8_t> frames = device_.wait();
      for (std::size_t i = 0; i < jobs.size(); ++i) {
        std::copy_n(frames.data() + i * shape.size(), shape.size(), jobs[i].pixels.data());
        readable[i] = 1;
      }
      return;
    }
    for (std::size_t i = 0; i < jobs.size(); ++i) readable[i] = run_alone(jobs[i], items[i]);
  }

  /// For pictures in a batch that was refused: whether one is decoded on the device must not depend
  /// on the pictures beside it.
  bool run_alone(const Job& job, const JpegItem& item) {
    if (!device_.start({&item, 1}, job.shape))
      return decode_image(job.bytes, job.shape, job.pixels);
    const std::span<const std::uint8_t> frame = device_.wait();
    std::copy_n(frame.data(), job.shape.size(), job.pixels.data());
    return true;
  }

  std::vector<std::uint8_t> spare() {
    if (spare_.empty()) return {};
    auto bytes = std::move(spare_.back());
    spare_.pop_back();
    return bytes;
  }

  /// Keeps the buffers of the batch, too.
  void stop_driving(std::vector<Job>& jobs) {
    const std::lock_guard lock(mutex_);
    driving_ = false;
    taken_.notify_all();
    for (Job& job : jobs) {
      if (spare_.size() < batch) spare_.push_back(std::move(job.bytes));
    }
  }

  void all_told() {
    const std::lock_guard lock(mutex_);
    --under_way_;
    taken_.notify_all();
  }

  static constexpr std::size_t most_ready = 4 * batch;

  Device device_;  // of the thread that drives
  std::atomic<bool> tried_ = false;
  std::mutex mutex_;  // over what follows
  std::deque<Job> ready_;
  std::size_t expected_ = 0;
  std::size_t arrived_ = 0;  // since the last batch was taken
  bool driving_ = false;
  int under_way_ = 0;  // batches that are decoded or told of
  std::condition_variable taken_;
  std::vector<std::vector<std::uint8_t>> spare_;  // buffers
};

}  // namespace pvm::inline v0::io
