// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A live camera as a source.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/videoio.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/io/quiet.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/unreadable.hpp>

namespace pvm::inline v0::io {

/// The frames of a camera as they arrive, without labels and without an end. Earlier frames cannot
/// be read again: `seek` only restores the counters, and the next frame starts a sequence. Model of
/// FrameSource.
class Camera {
 public:
  /// After this many failures in a row the camera is considered gone.
  static constexpr int most_failures = 5;

  /// Opens camera number `index`, from 0. Throws Fault::source if it cannot be opened.
  explicit Camera(int index)
      : Camera((quiet_opencv(), cv::VideoCapture(index, interface)),
               "camera " + std::to_string(index)) {}

  /// Opens the camera at a device path such as /dev/video0. Throws Fault::source if it cannot be
  /// opened.
  explicit Camera(const std::string& device)
      : Camera((quiet_opencv(), cv::VideoCapture(device, interface)), device) {}

  /// Takes any live stream that OpenCV has opened; `name` is used in messages. Throws Fault::source
  /// if it is closed.
  Camera(cv::VideoCapture capture, std::string name)
      : name_(std::move(name)), capture_(std::move(capture)) {
    if (!capture_.isOpened()) {
      throw Error(Fault::source, pvm::quote(name_) + " cannot be opened; is the camera there, " +
                                     "is it in use, and do you have permission to use it?");
    }
  }

  /// Waits for a frame. Throws Fault::source if `most_failures` frames in a row cannot be read,
  /// Fault::usage if `shape` is impossible or `pixels` is not `shape.size()` bytes.
  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    for (int failures = 0; failures < most_failures; ++failures) {
      const std::uint64_t frame = position_.frame++;
      if (read(shape, pixels)) return {std::exchange(starting_, false), {}};
      if (++skipped_ > Unreadable::most_named) continue;
      log(Severity::warning,
          "frame " + std::to_string(frame) + " of " + pvm::quote(name_) +
              " cannot be read; it is skipped" +
              (skipped_ < Unreadable::most_named ? "" : ", and further ones are only counted"));
    }
    throw Error(Fault::source, pvm::quote(name_) + " has stopped giving frames; was it unplugged?");
  }

  [[nodiscard]] Position position() const { return position_; }

  void seek(const Position& position) {
    check_position(position, std::nullopt, name_);
    position_ = position;
    starting_ = true;
  }

  [[nodiscard]] std::optional<std::uint64_t> length() const { return std::nullopt; }
  [[nodiscard]] std::uint64_t skipped() const { return skipped_; }
  [[nodiscard]] const std::string& name() const { return name_; }

 private:
  // Given explicitly, because otherwise OpenCV tries every interface it knows, such as that of
  // photo cameras.
#if defined(__linux__)
  static constexpr int interface = cv::CAP_V4L2;
#else
  static constexpr int interface = cv::CAP_ANY;
#endif

  bool read(const FrameShape& shape, std::span<std::uint8_t> pixels) {
    try {
      if (!capture_.read(picture_) || picture_.empty()) return false;
      resize_picture(picture_, shape, pixels);
      return true;
    } catch (const cv::Exception&) {  // a frame that is not 8-bit grey or colour
      return false;
    }
  }

  std::string name_;
  cv::VideoCapture capture_;
  cv::Mat picture_;
  Position position_;
  bool starting_ = true;
  std::uint64_t skipped_ = 0;
};

static_assert(FrameSource<Camera>);

}  // namespace pvm::inline v0::io
