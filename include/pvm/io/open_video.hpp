// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A video file or stream, opened by OpenCV.

#include <string>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/videoio.hpp>
#include <opencv2/videoio/registry.hpp>

#include <pvm/core/config.hpp>
#include <pvm/io/file_names.hpp>
#include <pvm/io/quiet.hpp>

namespace pvm::inline v0::io {

/// Opens a video file with FFmpeg where OpenCV has it, else with whatever else reads files; never
/// as a pattern for the names of single pictures. The result may be closed.
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
