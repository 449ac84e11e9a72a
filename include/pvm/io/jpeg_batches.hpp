// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Collects JPEGs from all files of a program into batches, for a decoder that is efficient only on
/// many pictures at a time.

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
#include <pvm/core/trace.hpp>
#include <pvm/io/jpeg_header.hpp>
#include <pvm/io/picture_service.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/usage.hpp>

namespace pvm::inline v0::io {

/// A JPEG to be decoded: its file's bytes and what its header says.
struct JpegItem {
  std::span<const std::uint8_t> bytes;
  PlainJpeg facts;
};

/// Collects the pictures that threads have read, from any files, into batches for `Device`. There
/// is no thread of its own: the thread whose picture completes a batch drives it through three
/// stages (stage, decode, deliver the frames by calling `Done`), while other threads go on reading
/// and one of them may already stage the next batch. Pictures that are no plain JPEGs
/// (`plain_jpeg`), and those that the device refuses, are decoded on the CPU. The resulting frames
/// do not depend on how pictures are grouped into batches. Memory: the bytes of up to 4 batches
/// that wait (if threads read faster than the device decodes; 256 MiB at most), of three more that
/// are in the three stages (128 MiB each), and of one picture for each thread.
///
/// `Device` has two places, 0 and 1, that each hold one batch. `stage(items, place)` may copy the
/// bytes of the items to memory of the device's choice, and then changes the items to refer to it.
/// `start(items, place, shape)` begins to decode them and returns false if it refuses any of them.
/// `wait(place)` waits for the frames and returns them one after another. `stage` is called by one
/// thread at a time, and so is `start`. Otherwise calls may overlap if they are for different
/// places; calls for the same place never do.
template <class Device>
class JpegBatches {
 public:
  static constexpr std::size_t batch = 64;  ///< most pictures of a batch
  static constexpr std::size_t most_pixels = batch
                                             << 20;  ///< most pixels, unless it is one picture
  /// Called once for each picture: `size` is the picture's, false if no frame was made of it,
  /// `failure` is set if the decoder failed, and `seconds` is the picture's share of the time spent
  /// decoding.
  using Done = std::function<void(PictureSize size, std::exception_ptr failure, double seconds)>;

  template <class... Arguments>
  explicit JpegBatches(Arguments&&... arguments) : device_(std::forward<Arguments>(arguments)...) {}

  /// Announces that a picture is about to be read, so that an incomplete batch waits for it. A call
  /// of `decode` must follow.
  void expect() noexcept {
    const std::lock_guard lock(mutex_);
    ++expected_;
  }

  /// Turns the picture in `bytes` (empty if it could not be read) into a frame of `shape` in
  /// `pixels`, then calls `done`, now or later, on any thread. `pixels` must stay valid until then.
  /// The content of `bytes` is lost. Waits while too many pictures are waiting already, and may
  /// decode a whole batch of other pictures before it returns.
  void decode(std::vector<std::uint8_t>& bytes, const FrameShape& shape,
              std::span<std::uint8_t> pixels, Done done) noexcept {
    const auto facts = plain_jpeg(bytes);
    if (!facts) CpuPictureDecoder().decode(bytes, shape, pixels, done);
    {
      std::unique_lock lock(mutex_);
      taken_.wait(lock, [this] {
        return may_stage() || (ready_.size() < most_ready && ready_bytes_ < most_ready_bytes);
      });
      --expected_;
      ++arrived_;
      if (facts) {
        ready_.push_back({spare(), *facts, shape, pixels, std::move(done)});
        std::swap(ready_.back().bytes, bytes);
        ready_bytes_ += ready_.back().bytes.size();
      }
      if (!may_stage() || !batch_is_due()) return;
    }
    drive();
  }

  /// Warms the device up: decodes a batch of the first of `pictures` pictures, whose bytes
  /// `read(i)` returns, for each of the device's places, and drops the frames. So one-time costs of
  /// the device do not fall into a run. Does nothing once it has succeeded. Throws what the device
  /// throws.
  template <class Read>
  void warm_up(std::size_t pictures, const Read& read) {
    for (std::size_t place = 0; place < places && !warmed_up_; ++place)
      warm_up_place(pictures, read);
    warmed_up_ = true;
  }

 private:
  /// A picture that waits for its batch or is in one.
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
  void warm_up_place(std::size_t pictures, const Read& read) {
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
             [&, i](PictureSize, std::exception_ptr failure, double) {
               failures[i] = std::move(failure);
               working.count_down();
             });
    }
    working.wait();
    for (const auto& failure : failures) {
      if (failure) std::rethrow_exception(failure);
    }
  }

  /// Whether a batch should be started: it is full; or no announced picture is still being read; or
  /// `batch` pictures of any kind have arrived since the last batch was taken, so waiting for the
  /// rest would take too long.
  [[nodiscard]] bool batch_is_due() const {
    return !ready_.empty() && (ready_.size() >= batch || arrived_ >= batch || expected_ == 0 ||
                               ready_bytes_ >= most_batch_bytes);
  }

  /// Whether this thread may take the next batch: no other batch is being staged, the next place is
  /// free, and fewer than three batches are under way (staged, decoded, delivered).
  [[nodiscard]] bool may_stage() const {
    return !staging_ && !taken_places_[next_place_] && under_way_ < 3;
  }

  /// Takes batches and decodes them until none is due or another thread is staging one.
  void drive() noexcept {
    for (Batch batch = next_batch(); !batch.jobs.empty(); batch = next_batch()) {
      const std::vector<Job>& jobs = batch.jobs;
      const FrameShape& shape = jobs.front().shape;
      std::vector<JpegItem> items;
      for (const Job& job : jobs) items.push_back({job.bytes, job.facts});
      std::vector<PictureSize> sizes(jobs.size());
      const trace::Span span("decode a batch", "pictures", static_cast<double>(jobs.size()));
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
            sizes[i] = run_alone(jobs[i], items[i], batch.place);
          }
        });
      }
      end_decoding();
      if (whole) {
        failure = caught([&] {
          hand_out(device_.wait(batch.place), jobs);
          for (std::size_t i = 0; i < jobs.size(); ++i) sizes[i] = size_of(jobs[i]);
        });
      }
      release_place(batch);
      seconds = (seconds + watch.lap()) / static_cast<double>(jobs.size());
      for (std::size_t i = 0; i < jobs.size(); ++i) jobs[i].done(sizes[i], failure, seconds);
      finish_delivery();
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

  /// Takes the next batch: waiting pictures of one shape. Until `begin_decoding`, only this thread
  /// stages. The batch is empty if none is due or `may_stage` says no.
  Batch next_batch() {
    const std::lock_guard lock(mutex_);
    Batch next;
    if (!may_stage() || !batch_is_due()) return next;
    staging_ = true;
    next.place = next_place_;
    next_place_ = 1 - next_place_;
    taken_places_[next.place] = true;
    ++under_way_;
    std::size_t pixels = 0, bytes = 0;
    while (!ready_.empty() && next.jobs.size() < batch) {
      const Job& job = ready_.front();
      bytes += job.bytes.size();
      pixels +=
          static_cast<std::size_t>(job.facts.width) * static_cast<std::size_t>(job.facts.height);
      if (!next.jobs.empty() && (pixels > most_pixels || bytes > most_batch_bytes ||
                                 job.shape != next.jobs.front().shape)) {
        break;
      }
      ready_bytes_ -= job.bytes.size();
      next.jobs.push_back(std::move(ready_.front()));
      ready_.pop_front();
    }
    arrived_ = 0;
    taken_.notify_all();
    return next;
  }

  /// Copies the frames of a batch to the pictures' buffers.
  static void hand_out(std::span<const std::uint8_t> frames, const std::vector<Job>& jobs) {
    const std::size_t size = jobs.front().shape.size();
    for (std::size_t i = 0; i < jobs.size(); ++i) {
      std::copy_n(frames.data() + i * size, size, jobs[i].pixels.data());
    }
  }

  /// Decodes a picture of a refused batch by itself, on the CPU if the device refuses it again:
  /// whether a picture is decoded on the device must not depend on the rest of its batch.
  PictureSize run_alone(const Job& job, const JpegItem& item, std::size_t place) {
    if (!device_.start({&item, 1}, place, job.shape)) {
      return decode_image(job.bytes, job.shape, job.pixels);
    }
    const std::span<const std::uint8_t> frame = device_.wait(place);
    std::copy_n(frame.data(), job.shape.size(), job.pixels.data());
    return size_of(job);
  }
  /// As the picture is seen.
  static PictureSize size_of(const Job& job) noexcept {
    const PlainJpeg& jpeg = job.facts;
    if (jpeg.orientation.transposed) return {.width = jpeg.height, .height = jpeg.width};
    return {.width = jpeg.width, .height = jpeg.height};
  }

  /// A buffer of an earlier picture, or a new one. The caller holds mutex_.
  std::vector<std::uint8_t> spare() {
    if (spare_.empty()) return {};
    auto bytes = std::move(spare_.back());
    spare_.pop_back();
    return bytes;
  }

  /// Waits until the previous batch has been started on the device. From then on the next batch may
  /// be staged.
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
  /// Frees the batch's place and keeps the buffers of its pictures for reuse.
  void release_place(Batch& done) {
    const std::lock_guard lock(mutex_);
    taken_places_[done.place] = false;
    taken_.notify_all();
    for (Job& job : done.jobs) {
      constexpr std::size_t most_kept = 8 << 20;
      if (spare_.size() < batch && job.bytes.capacity() <= most_kept)
        spare_.push_back(std::move(job.bytes));
    }
  }

  /// The frames of a batch have been delivered.
  void finish_delivery() {
    const std::lock_guard lock(mutex_);
    --under_way_;
    taken_.notify_all();
  }

  static constexpr std::size_t most_ready = 4 * batch;        // `decode` waits while so many wait
  static constexpr std::size_t most_batch_bytes = 128 << 20;  // unless it is one picture
  static constexpr std::size_t most_ready_bytes = 256 << 20;  // `decode` waits while so many wait
  static constexpr std::size_t places = 2;

  Device device_;
  std::atomic<bool> warmed_up_ = false;
  std::mutex mutex_;                         // guards the members below
  std::deque<Job> ready_;                    // pictures that wait for a batch
  std::size_t ready_bytes_ = 0;              // of the files of these pictures
  std::size_t expected_ = 0;                 // announced pictures that have not arrived yet
  std::size_t arrived_ = 0;                  // pictures that arrived since the last batch was taken
  bool staging_ = false, decoding_ = false;  // a thread is in that stage
  std::array<bool, places> taken_places_{};
  std::size_t next_place_ = 0;
  int under_way_ = 0;                        // batches in the stages: staged, decoded, delivered
  std::condition_variable taken_, decoded_;  // `may_stage` or `ready_` changed; `decoding_` ended
  std::vector<std::vector<std::uint8_t>> spare_;  // buffers to be reused
};

}  // namespace pvm::inline v0::io
