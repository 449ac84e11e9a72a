// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The frames of a video, decoded on a GPU.

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/io/gpu/video_reader.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/unreadable.hpp>
#include <pvm/io/usage.hpp>
#include <pvm/io/video.hpp>

namespace pvm::inline v0::io {

/// Delivers the frames that Video would, in the same order, within 2 grey levels of them. If the
/// GPU's decoders meet trouble in a file (detectable damage, a picture of another size), Video
/// decodes the rest of the pass, starting `caution` frames before the trouble: so the file is
/// treated as it would be on the CPU. Which frames are decoded where depends on the file only.
/// Model of FrameSource.
class GpuVideo {
 public:
  /// `decoders`: how many of the GPU's decoders to use (0: an equal share of 8 for each video that
  /// is open). Their number changes only the speed. Throws Fault::source like Video, Fault::device
  /// if the GPU cannot or should not decode this file.
  explicit GpuVideo(const std::filesystem::path& path, std::size_t decoders = 0)
      : decoders_(decoders), cpu_(path) {
    GpuVideoReader first(cpu_.name(), {.height = 16, .width = 16, .channels = 1},
                         cpu_.orientation(), 1);
    if (first.next().kind != GpuVideoReader::Kind::frame) {
      detail::refuse_video("NVDEC does not take " + pvm::quote(cpu_.name()));
    }
  }

  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    if (shape != shape_) close();
    shape_ = shape;
    if (!on_cpu_) go_to_position();
    if (on_cpu_) return next_of_cpu(pixels);
    Stopwatch watch;
    std::copy(ready_.front().pixels.begin(), ready_.front().pixels.end(), pixels.begin());
    const bool starts = std::exchange(starting_, false);
    advance();
    usage_.waiting += watch.lap();
    ++usage_.frames;
    return {starts, {}};
  }

  [[nodiscard]] Position position() const { return position_; }

  /// Returns at once; the next `next` decodes everything up to that position, and throws
  /// Fault::source if the video turns out to have no such frame. Throws Fault::source if that is
  /// known already.
  void seek(const Position& position) {
    check_position(position, length(), cpu_.name());
    position_ = position;
    starting_ = position.frame == 0;
    on_cpu_ = false;
  }

  [[nodiscard]] std::optional<std::uint64_t> length() const { return length_; }
  std::uint64_t count_frames() {
    length_ = cpu_.count_frames();
    return *length_;
  }
  [[nodiscard]] std::uint64_t skipped() const { return cpu_.skipped(); }
  [[nodiscard]] const std::string& name() const { return cpu_.name(); }
  /// Differs from Video's, because the frames differ by a grey level or two.
  [[nodiscard]] std::string replay_id() const { return "GPU " + cpu_.replay_id(); }
  [[nodiscard]] std::vector<std::string> files() const { return {name()}; }
  [[nodiscard]] Unreadable& unreadable() { return cpu_.unreadable(); }
  [[nodiscard]] std::vector<StageUsage> usage() const {
    StageUsage now = usage_;
    if (reader_) now.busy += reader_->busy();
    return {now};
  }

 private:
  using Kind = GpuVideoReader::Kind;
  /// How many frames before trouble the CPU takes over. OpenCV decodes as many frames ahead as it
  /// has threads, and trouble may change what it makes of frames before it.
  static constexpr std::size_t caution = 64;

  /// Counts the videos that are open on GPUs: one for each object that was not moved from.
  class OpenCount {
   public:
    OpenCount() { ++count(); }
    OpenCount(OpenCount&& other) noexcept : held_(std::exchange(other.held_, false)) {}
    OpenCount& operator=(OpenCount&&) = delete;
    ~OpenCount() {
      if (held_) --count();
    }
    static std::atomic<std::size_t>& count() {
      static std::atomic<std::size_t> open = 0;
      return open;
    }

   private:
    bool held_ = true;
  };

  /// The number of decoders to use. A GPU has only a handful of decoders, so videos that are open
  /// at the same time share them.
  [[nodiscard]] std::size_t decoders() const {
    constexpr std::size_t all = 8;
    if (decoders_ > 0) return decoders_;
    return std::clamp<std::size_t>(all / std::max<std::size_t>(1, OpenCount::count()), 1, all);
  }

  void close() {
    if (reader_) usage_.busy += reader_->busy();
    reader_.reset();
    ready_.clear();
  }

  /// Advances until the front of `ready_` is the frame at `position_`, or leaves it to the CPU.
  void go_to_position() {
    if (!reader_ || ready_frame_ > position_.frame) open();
    look_ahead();
    while (ready_.front().kind == Kind::frame && ready_frame_ < position_.frame) take();
    if (ready_.front().kind == Kind::frame) return;
    if (ready_.front().kind == Kind::trouble) return leave_to_cpu();
    length_ = ready_frame_;
    start_again();
    check_position(position_, length_, cpu_.name());  // throws
  }

  void open() {
    close();
    ready_frame_ = 0;
    try {
      usage_.threads = decoders();
      reader_ =
          std::make_unique<GpuVideoReader>(cpu_.name(), shape_, cpu_.orientation(), usage_.threads);
    } catch (const Error& error) {  // the file is gone, or no GPU memory is left
      if (error.fault() == Fault::source) throw;
      ready_.push_back({Kind::trouble});
    }
  }

  /// Fills `ready_` with `caution + 1` items, or up to the end of the pass. If it meets trouble,
  /// the frames in `ready_`, all within `caution` of it, are dropped, and only the trouble remains.
  void look_ahead() {
    while (ready_.size() <= caution && (ready_.empty() || ready_.back().kind == Kind::frame)) {
      ready_.push_back(reader_->next());
      if (ready_.back().kind == Kind::trouble) ready_ = {std::move(ready_.back())};
    }
  }

  void take() {
    ready_.pop_front();
    ++ready_frame_;
    look_ahead();
  }

  /// Moves on to the next frame after one was delivered.
  void advance() {
    take();
    position_.frame = ready_frame_;
    if (ready_.front().kind == Kind::trouble) leave_to_cpu();
    if (on_cpu_ || ready_.front().kind == Kind::frame) return;
    length_ = ready_frame_;
    position_ = {0, 0, position_.pass + 1};
    starting_ = true;
    start_again();
  }

  /// Starts counting frames anew: after the end of the file the reader begins at its first frame.
  void start_again() {
    ready_.clear();
    ready_frame_ = 0;
  }

  /// The CPU decodes from `position_` to the end of the pass.
  void leave_to_cpu() {
    if (!std::exchange(logged_, true)) {
      log(Severity::warning, pvm::quote(cpu_.name()) + " is decoded on the CPU from frame " +
                                 std::to_string(position_.frame) +
                                 " on: the GPU's decoders stop shortly behind it");
    }
    close();
    on_cpu_ = true;
    cpu_.seek(position_);
  }

  FrameInfo next_of_cpu(std::span<std::uint8_t> pixels) {
    const std::uint64_t pass = position_.pass;
    const FrameInfo info = cpu_.next(shape_, pixels);
    follow_cpu(pass);
    ++usage_.frames;
    return info;
  }

  /// Takes over the position of `cpu_`. `pass`: the pass before its last frame. When a new pass has
  /// begun, the GPU decodes again.
  void follow_cpu(std::uint64_t pass) {
    position_ = cpu_.position();
    if (const auto length = cpu_.length()) length_ = length;
    if (position_.pass == pass) return;
    on_cpu_ = false;
    starting_ = position_.frame == 0;
  }

  std::size_t decoders_;
  Video cpu_;
  OpenCount open_count_;
  FrameShape shape_{};
  std::unique_ptr<GpuVideoReader> reader_;
  std::deque<GpuVideoReader::Item> ready_;  // the reader's next items
  std::uint64_t ready_frame_ = 0;           // the frame index of ready_.front()
  Position position_;                       // the next frame to be delivered
  bool starting_ = true;                    // the next frame starts a sequence
  bool on_cpu_ = false;                     // cpu_ stands at position_ and decodes from there
  bool logged_ = false;                     // the log line was written
  std::optional<std::uint64_t> length_;     // known once the last frame was delivered
  StageUsage usage_{.name = "decode and resize on the GPU"};
};

static_assert(FrameSource<GpuVideo>);

}  // namespace pvm::inline v0::io
