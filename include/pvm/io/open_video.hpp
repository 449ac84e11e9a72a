// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Opens a video file or stream with OpenCV, and tells how its pictures must be turned.

#include <string>
#include <string_view>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core/utility.hpp>
#include <opencv2/core/version.hpp>
#include <opencv2/videoio.hpp>
#include <opencv2/videoio/registry.hpp>

#include <pvm/core/config.hpp>
#include <pvm/io/file_names.hpp>
#include <pvm/io/mp4_orientation.hpp>
#include <pvm/io/orientation.hpp>
#include <pvm/io/quiet.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// The orientation of which OpenCV tells. Its angle is clockwise, except in 4.6.0.
inline Orientation orientation_by_opencv(const cv::VideoCapture& capture) {
  const int angle = static_cast<int>(capture.get(cv::CAP_PROP_ORIENTATION_META));
  const bool anticlockwise = std::string_view(CV_VERSION).starts_with("4.6.0");
  return orientation_of_turn(anticlockwise ? -angle : angle);
}

/// As `open_video`, with the pictures turned or not, as this version of OpenCV does by default.
inline cv::VideoCapture open_by_any_backend(const std::string& name) {
  quiet_opencv();
  const std::string path = detail::path_for_ffmpeg(name);
  if (cv::videoio_registry::hasBackend(cv::CAP_FFMPEG)) {
    return cv::VideoCapture(path, cv::CAP_FFMPEG);
  }
  for (const cv::VideoCaptureAPIs backend : cv::videoio_registry::getStreamBackends()) {
    if (backend == cv::CAP_IMAGES) continue;
    cv::VideoCapture capture(path, backend);
    if (capture.isOpened()) return capture;
  }
  return {};
}

}  // namespace detail

/// Opens a video with OpenCV's FFmpeg backend if there is one, else with the first other backend
/// that can; never with the backend that takes a name as a pattern for numbered pictures. Its
/// pictures come as they are stored: `video_orientation` says how they must be turned. If it cannot
/// be opened, the result is closed (`isOpened()` is false).
inline cv::VideoCapture open_video(const std::string& name) {
  cv::VideoCapture capture = detail::open_by_any_backend(name);
  if (capture.isOpened()) static_cast<void>(capture.set(cv::CAP_PROP_ORIENTATION_AUTO, 0));
  return capture;
}

/// How the pictures of the video file `name`, which `capture` has open, must be turned. It is read
/// from the file if that is possible, else from OpenCV, which tells of no mirrors.
inline Orientation video_orientation(const std::string& name, const cv::VideoCapture& capture) {
  if (const auto stored = mp4_orientation(name)) return *stored;
  return detail::orientation_by_opencv(capture);
}

}  // namespace pvm::inline v0::io
