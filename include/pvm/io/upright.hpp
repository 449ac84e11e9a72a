// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Turns a decoded picture upright.

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>

#include <pvm/core/config.hpp>
#include <pvm/io/orientation.hpp>

namespace pvm::inline v0::io {

/// The picture whose stored pixels are `stored`, seen upright. Shares the pixels if nothing is to
/// be done.
inline cv::Mat upright(const cv::Mat& stored, const Orientation& how) {
  if (how.upright()) return stored;
  cv::Mat turned = stored;
  if (how.transposed) cv::transpose(stored, turned);
  if (!how.mirrored_x && !how.mirrored_y) return turned;
  const int axis = how.mirrored_x && how.mirrored_y ? -1 : (how.mirrored_x ? 1 : 0);
  cv::Mat mirrored;
  cv::flip(turned, mirrored, axis);
  return mirrored;
}

}  // namespace pvm::inline v0::io
