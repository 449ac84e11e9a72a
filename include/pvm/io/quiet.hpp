// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// OpenCV and FFmpeg print to standard error on their own; a source reports what it finds itself.

#include <cstdlib>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core/utils/logger.hpp>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// Called by every source that uses OpenCV, before it does. Once per process, and only where the
/// user has not chosen otherwise in the environment; a level the program sets later stays.
inline void quiet_opencv() {
  static const bool once = [] {
    if (std::getenv("OPENCV_LOG_LEVEL") == nullptr) {
      cv::utils::logging::setLogLevel(cv::utils::logging::LOG_LEVEL_SILENT);
    }
#if !defined(_WIN32)
    setenv("OPENCV_FFMPEG_LOGLEVEL", "-8", 0);  // FFmpeg's "quiet"; read as a video is opened
#endif
    return true;
  }();
  static_cast<void>(once);
}

}  // namespace pvm::inline v0::io
