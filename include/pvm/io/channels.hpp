// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Converts between the channels that pictures and frames have: grey, grey and alpha, BGR, BGRA.
/// Needs OpenCV.

#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// The colours of `picture` (8-bit, 1 to 4 channels; the last of 2 and 4 is alpha, which is left
/// out) as grey or BGR (`colours` 1 or 3). The result shares the pixels if nothing must be
/// converted.
inline cv::Mat colours_of(const cv::Mat& picture, int colours) {
  if (picture.channels() == colours) return picture;
  cv::Mat converted;
  if (picture.channels() == 2) {
    cv::extractChannel(picture, converted, 0);
    return colours_of(converted, colours);
  }
  const bool alpha = picture.channels() == 4;
  if (colours == 1) {
    cv::cvtColor(picture, converted, alpha ? cv::COLOR_BGRA2GRAY : cv::COLOR_BGR2GRAY);
  } else {
    cv::cvtColor(picture, converted, alpha ? cv::COLOR_BGRA2BGR : cv::COLOR_GRAY2BGR);
  }
  return converted;
}

/// The alpha of `picture`, one channel; empty if it has 1 or 3 channels.
inline cv::Mat alpha_of(const cv::Mat& picture) {
  cv::Mat alpha;
  if (picture.channels() % 2 == 0) cv::extractChannel(picture, alpha, picture.channels() - 1);
  return alpha;
}

/// `picture` (8-bit, 1 to 4 channels) with 1, 3 or 4 channels, as codecs take it: grey and alpha
/// become BGRA.
inline cv::Mat encodable(const cv::Mat& picture) {
  if (picture.channels() != 2) return picture;
  cv::Mat whole;
  cv::merge(std::vector<cv::Mat>{colours_of(picture, 3), alpha_of(picture)}, whole);
  return whole;
}

}  // namespace pvm::inline v0::io
