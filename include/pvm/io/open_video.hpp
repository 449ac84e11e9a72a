// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Opens a video file or stream with OpenCV.

#include <string>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/videoio.hpp>
#include <opencv2/videoio/registry.hpp>

#include <pvm/core/config.hpp>
#include <pvm/io/file_names.hpp>
#include <pvm/io/quiet.hpp>

namespace pvm::inline v0::io {

/// Opens a video with OpenCV's FFmpeg backend if there is one, else with the first other backend
/// that can; never with the backend that takes a name as a pattern for numbered pictures. If it
/// cannot be opened, the result is closed (`isOpened()` is false).
inline cv::VideoCapture open_video(const std::string& name) {
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

}  // namespace pvm::inline v0::io
