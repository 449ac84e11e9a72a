// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A sequence in a video file, in any format that OpenCV can read.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/videoio.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/core/trace.hpp>
#include <pvm/io/image_facts.hpp>
#include <pvm/io/open_video.hpp>
#include <pvm/io/orientation.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/still_picture.hpp>
#include <pvm/io/unreadable.hpp>
#include <pvm/io/upright.hpp>
#include <pvm/io/usage.hpp>
#include <pvm/io/video_size.hpp>

namespace pvm::inline v0::io {

/// The frames of a video file in the order in which they are decoded, without labels. Model of
/// FrameSource.
///
/// The file is only decoded from front to back, because seeking in videos is not exact: `seek`
/// decodes everything before the position. A pass ends where decoding ends. If the video changes
/// its size midway, `next` throws Fault::source (see video_size.hpp).
class Video {
 public:
  /// Throws Fault::source if `path` is not a video or has no frames.
  explicit Video(const std::filesystem::path& path)
      : name_(path.string()), constant_size_(ConstantSizeVideos::holds(name_)) {
    std::error_code ignored;
    if (!std::filesystem::exists(path, ignored)) {
      throw Error(Fault::source, pvm::quote(name_) + " does not exist");
    }
    if (std::filesystem::is_directory(path, ignored)) {
      throw Error(Fault::source, pvm::quote(name_) + " is a directory, not a video");
    }
    refuse_if_not_readable();
    reopen();
  }

  /// Throws Fault::source if none of the frames can be read, if the file has been removed, or if
  /// the video changes its size; Fault::usage if `shape` is impossible or `pixels` is not
  /// `shape.size()` bytes.
  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    for (;;) {
      if (ended_) reopen();
      const std::uint64_t index = taken_.frame;
      const bool decoded = retrieve(picture_);
      const bool stuck = decoded && still_.check_is_due(picture_, index);
      advance();
      if (decoded && (size_check_is_due(index) || stuck)) check_size(index, stuck);
      const bool readable = decoded && make_frame(shape, pixels);
      if (auto info = settle(index, readable)) {
        info->picture = {picture_.cols, picture_.rows};
        return *info;
      }
    }
  }

  [[nodiscard]] Position position() const { return position_; }

  /// Exact, and as slow as decoding up to that position, from the current one if it lies before,
  /// else from the start. Throws Fault::source if there is no such frame.
  void seek(const Position& position) {
    check_position(position, found_length_, name_);
    if (ended_ || position.frame < taken_.frame) reopen();
    taken_.pass = position.pass;
    while (taken_.frame < position.frame) {
      advance();
      if (ended_) check_position(position, found_length_, name_);
    }
    position_ = taken_;
    length_ = found_length_;
    failures_ = 0;
    starting_ = position.frame == 0;
  }

  /// Known once the video has been read to its end; the number stored in the file is often wrong.
  [[nodiscard]] std::optional<std::uint64_t> length() const { return length_; }

  /// The exact number of frames of a pass. Decodes the whole video unless the number is known.
  std::uint64_t count_frames() {
    if (!found_length_) {
      cv::VideoCapture capture = open_video(name_);
      std::uint64_t frames = 0;
      while (capture.grab()) ++frames;
      found_length_ = frames;
    }
    length_ = found_length_;
    return *length_;
  }

  [[nodiscard]] std::uint64_t skipped() const { return unreadable_.count(); }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] std::string replay_id() const { return "file " + name_; }
  [[nodiscard]] std::vector<std::string> files() const { return {name()}; }
  [[nodiscard]] std::vector<StageUsage> usage() const { return {decoding_, resizing_}; }

  /// How the stored pictures must be turned, which `next` does.
  [[nodiscard]] const Orientation& orientation() const noexcept { return orientation_; }

  /// The frames found unreadable so far, for the next object that opens this file.
  [[nodiscard]] Unreadable& unreadable() { return unreadable_; }

 private:
  /// Opens the file and grabs its first frame. From then on, as long as `ended_` is false, the
  /// frame at `taken_` has been grabbed (demuxed and decoded) but not retrieved.
  void reopen() {
    capture_ = open_video(name_);
    std::error_code ignored;
    if (!capture_.isOpened() && !std::filesystem::exists(name_, ignored)) {
      throw Error(Fault::source,
                  pvm::quote(name_) + " does not exist any more; put it back to go on");
    }
    if (!capture_.isOpened()) refuse_if_not_readable();
    if (!capture_.isOpened()) {
      throw Error(Fault::source, pvm::quote(name_) +
                                     " is not a video that can be decoded; is it whole, " +
                                     "and does a player show it?");
    }
    refuse_if_too_large();
    if (!capture_.grab()) {
      throw Error(Fault::source, pvm::quote(name_) +
                                     " has no video frames that can be decoded; is it whole, " +
                                     "and does a player show it?");
    }
    orientation_ = video_orientation(name_, capture_);
    retrieve(picture_);  // OpenCV gives all later pictures the size of the first one retrieved
    taken_.frame = 0;
    ended_ = false;
  }

  void refuse_if_not_readable() const {
    if (const std::string why = why_not_readable(name_); !why.empty()) {
      throw Error(Fault::source, pvm::quote(name_) + " cannot be opened: " + why);
    }
  }

  /// A small file may claim frames that take gigabytes.
  void refuse_if_too_large() const {
    const double width = capture_.get(cv::CAP_PROP_FRAME_WIDTH);
    const double height = capture_.get(cv::CAP_PROP_FRAME_HEIGHT);
    if (!(width * height > static_cast<double>(most_pixels))) return;
    throw Error(Fault::source, pvm::quote(name_) + " has frames of " +
                                   std::to_string(static_cast<std::int64_t>(width)) + " x " +
                                   std::to_string(static_cast<std::int64_t>(height)) +
                                   " pixels; allowed: " + std::to_string(most_pixels) +
                                   " pixels, convert it to a smaller size");
  }

  /// Whether the size must be checked at frame `index`: on the first pass at frames 1024, 2048,
  /// 4096, ..., so that little is learned from wrong pictures, and at the last frame, so that the
  /// size is known for the whole pass.
  bool size_check_is_due(std::uint64_t index) {
    if (constant_size_ || (!ended_ && index < next_check_)) return false;
    next_check_ = 2 * index;
    return true;
  }

  /// Throws Fault::source if frame `index` has another size than the first one. `stuck`: the check
  /// is made because the picture has not changed for some frames.
  void check_size(std::uint64_t index, bool stuck) {
    const bool from_start = stuck || index < (ended_ ? most_decoded_again : 4'097);
    if (has_changed_size(name_, index, picture_, from_start)) {
      const std::string where = stuck ? "at frame " + std::to_string(still_.since())
                                      : "at frame " + std::to_string(index) + " or before";
      throw Error(Fault::source, pvm::quote(name_) + " changes its size " + where +
                                     ", which cannot be followed; convert it to one size first");
    }
    if (!ended_) return;
    constant_size_ = true;
    ConstantSizeVideos::add(name_);
  }

  /// Grabs the next frame; at the end of the file sets `ended_` and begins the next pass.
  void advance() {
    ++taken_.frame;
    if (grab()) return;
    if (!found_length_) warn_if_cut_off();
    found_length_ = taken_.frame;
    taken_.frame = 0;
    ++taken_.pass;
    ended_ = true;
  }

  bool grab() {
    trace::Span span("read and decode");
    const bool grabbed = capture_.grab();
    decoding_.busy += span.end();
    ++decoding_.frames;
    return grabbed;
  }

  /// Warns if more than a tenth of the frames that the file claims to have are missing; smaller
  /// differences are common.
  void warn_if_cut_off() const {
    const double said = capture_.get(cv::CAP_PROP_FRAME_COUNT);
    if (!(static_cast<double>(taken_.frame) < 0.9 * said)) return;
    log(Severity::warning, pvm::quote(name_) + " says that it has " +
                               std::to_string(static_cast<std::uint64_t>(said)) + " frames and " +
                               std::to_string(taken_.frame) +
                               " can be decoded, which are used; is it cut off?");
  }

  /// False if the picture is not 8-bit grey or colour.
  bool make_frame(const FrameShape& shape, std::span<std::uint8_t> pixels) {
    try {
      trace::Span span("resize");
      resize_picture(upright(picture_, orientation_), shape, pixels);
      resizing_.busy += span.end();
      ++resizing_.frames;
      return true;
    } catch (const cv::Exception&) {
      return false;
    }
  }

  /// Makes the position behind frame `index` visible. Returns what is known about that frame, or
  /// nothing if it was not readable. Throws Fault::source if a whole pass was unreadable.
  std::optional<FrameInfo> settle(std::uint64_t index, bool readable) {
    if (index == 0) starting_ = true;
    position_ = taken_;
    length_ = found_length_;
    if (readable) {
      failures_ = 0;
      return FrameInfo{std::exchange(starting_, false), {}};
    }
    unreadable_.note(index, "frame " + std::to_string(index) + " of ", name_);
    ++failures_;
    if (!length_ || failures_ < *length_) return std::nullopt;
    failures_ = 0;
    throw Error(Fault::source,
                "none of the frames of " + pvm::quote(name_) + " can be read; is it damaged?");
  }

  bool retrieve(cv::Mat& picture) {
    try {
      trace::Span span("convert colours");
      const bool retrieved = capture_.retrieve(picture) && !picture.empty();
      decoding_.busy += span.end();
      return retrieved;
    } catch (const cv::Exception&) {
      return false;
    }
  }

  std::string name_;
  cv::VideoCapture capture_;
  Orientation orientation_;
  StillPicture still_;
  Position taken_;        // the next frame to be retrieved
  Position position_;     // the next frame to be delivered; differs from taken_ only inside `next`
  bool starting_ = true;  // the next frame starts a sequence
  bool ended_ = false;    // the file must be reopened
  bool constant_size_;    // all frames that can be read are known to have the same size
  static constexpr std::uint64_t most_decoded_again = 1 << 16;  // frames, for a check at the end
  std::uint64_t next_check_ = 1'024;           // the next frame at which the size is checked
  std::optional<std::uint64_t> found_length_;  // known as soon as grabbing meets the end
  std::optional<std::uint64_t> length_;        // what `length` reports: known after the last frame
  std::uint64_t failures_ = 0;                 // unreadable frames in a row
  Unreadable unreadable_;
  StageUsage decoding_{.name = "read and decode"}, resizing_{.name = "resize"};
  cv::Mat picture_;
};

static_assert(FrameSource<Video>);

}  // namespace pvm::inline v0::io
