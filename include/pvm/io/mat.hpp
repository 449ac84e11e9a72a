// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// cv::Mat as a frame, for `TrainerBase::step` and `Tracker`. Needs OpenCV.

#include <cstdint>
#include <span>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>

#include <pvm/core/error.hpp>
#include <pvm/io/as_frame.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

/// 8-bit pictures: grey, grey and alpha, BGR or BGRA. Where there is no alpha they are opaque. They
/// are resized as those of the sources are.
template <>
struct AsFrame<cv::Mat> {
  static PictureSize write(const cv::Mat& picture, const FrameShape& shape,
                           std::span<std::uint8_t> pixels) {
    if (picture.empty() || picture.dims != 2 || picture.depth() != CV_8U ||
        picture.channels() > 4) {
      throw Error(Fault::usage, picture.empty()
                                    ? "the picture is empty; did the camera or file end?"
                                    : "the picture must have 8 bits per channel and 1 to 4 "
                                      "channels; convert it with cv::Mat::convertTo");
    }
    resize_picture(picture, shape, pixels);
    return {picture.cols, picture.rows};
  }
};

}  // namespace pvm::inline v0::io
