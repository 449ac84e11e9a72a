// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Converts pictures between 1 to 4 channels: grey, grey and alpha, BGR, BGR and alpha.

#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

namespace pvm::inline v0::io::detail {

/// The colours of `picture` (8-bit, 1 to 4 channels) without its alpha, as `colours` channels (1 or
/// 3). The result shares the pixels if nothing must be converted.
inline cv::Mat colours_of(const cv::Mat& picture, int colours) {
  cv::Mat from = picture, converted;
  if (picture.channels() == 2) cv::extractChannel(picture, from, 0);
  if (from.channels() == colours) return from;
  const bool alpha = from.channels() == 4;
  if (colours == 1) {
    cv::cvtColor(from, converted, alpha ? cv::COLOR_BGRA2GRAY : cv::COLOR_BGR2GRAY);
  } else {
    cv::cvtColor(from, converted, alpha ? cv::COLOR_BGRA2BGR : cv::COLOR_GRAY2BGR);
  }
  return converted;
}

/// `picture` (8-bit, 1 to 4 channels) with `channels` channels (1 to 4), likewise. What has no
/// alpha is opaque: its alpha is 255.
inline cv::Mat with_channels(const cv::Mat& picture, int channels) {
  if (picture.channels() == channels) return picture;
  if (channels % 2 != 0) return colours_of(picture, channels);
  cv::Mat alpha(picture.size(), CV_8UC1, cv::Scalar(255)), all;
  if (picture.channels() % 2 == 0) cv::extractChannel(picture, alpha, picture.channels() - 1);
  cv::merge(std::vector<cv::Mat>{colours_of(picture, channels - 1), alpha}, all);
  return all;
}

}  // namespace pvm::inline v0::io::detail
