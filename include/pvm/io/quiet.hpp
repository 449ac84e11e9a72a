// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Keeps OpenCV and FFmpeg from printing to standard error: sources report failures themselves.

#include <cstdlib>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core/utils/logger.hpp>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// Turns off the messages of OpenCV and FFmpeg. Every source that uses OpenCV calls this first. It
/// acts once per process, so a level that the program sets later stays, and not where the user has
/// set OPENCV_LOG_LEVEL or OPENCV_FFMPEG_LOGLEVEL in the environment.
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
