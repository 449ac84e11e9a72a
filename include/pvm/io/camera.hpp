// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A live camera.

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

namespace pvm::inline v0::io {

/// The frames of a camera as they come; unlabelled and without an end. What a camera saw cannot be
/// seen again: `seek` restores the counters only, and the next frame starts a sequence. Model of
/// FrameSource.
class Camera {
 public:
  /// So many failures in a row mean that the camera is gone.
  static constexpr int most_failures = 5;

  /// The camera with this number. Throws Fault::source where there is none.
  explicit Camera(int index)
      : Camera((quiet_opencv(), cv::VideoCapture(index, interface)),
               "camera " + std::to_string(index)) {}

  /// The camera at a device path such as /dev/video0. Throws Fault::source where there is none.
  explicit Camera(const std::string& device)
      : Camera((quiet_opencv(), cv::VideoCapture(device, interface)), device) {}

  /// Any live stream that OpenCV has opened, under a name for messages. Throws Fault::source where
  /// it is closed.
  Camera(cv::VideoCapture capture, std::string name)
      : name_(std::move(name)), capture_(std::move(capture)) {
    if (!capture_.isOpened()) {
      throw Error(Fault::source, pvm::quote(name_) + " cannot be opened; is the camera there, " +
                                     "free, and may you use it?");
    }
  }

  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    for (int failures = 0; failures < most_failures; ++failures) {
      const std::uint64_t frame = position_.frame++;
      if (read(shape, pixels)) return {std::exchange(starting_, false), std::nullopt};
      ++skipped_;
      log(Severity::warning, "frame " + std::to_string(frame) + " of " + pvm::quote(name_) +
                                 " cannot be read; it is skipped");
    }
    throw Error(Fault::source,
                pvm::quote(name_) + " has stopped giving frames; was it unplugged?");
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
  // Named, because OpenCV would else ask every interface it knows, photo cameras among them.
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
