// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Turns a picture of any size, encoded or decoded, into the frame that a model asks for.

#include <climits>
#include <cstdint>
#include <exception>
#include <span>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/io/image_check.hpp>
#include <pvm/io/quiet.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// Converts `picture` (8-bit; 1, 3 or 4 channels) to `channels` (1 or 3). The result shares the
/// pixels if nothing must be converted.
inline cv::Mat with_channels(const cv::Mat& picture, int channels) {
  if (picture.channels() == channels) return picture;
  cv::Mat converted;
  if (channels == 1) {
    cv::cvtColor(picture, converted,
                 picture.channels() == 4 ? cv::COLOR_BGRA2GRAY : cv::COLOR_BGR2GRAY);
  } else {
    cv::cvtColor(picture, converted,
                 picture.channels() == 4 ? cv::COLOR_BGRA2BGR : cv::COLOR_GRAY2BGR);
  }
  return converted;
}

}  // namespace detail

/// Writes `picture` (8-bit; grey, BGR or BGRA; not empty) into `pixels` as a frame of `shape`: its
/// channels are converted first, then it is resized with 8-bit cubic interpolation, whatever its
/// proportions. Throws Fault::usage if `shape` is impossible or `pixels` is not `shape.size()`
/// bytes, cv::Exception if the picture is of another kind.
inline void resize_picture(const cv::Mat& picture, const FrameShape& shape,
                           std::span<std::uint8_t> pixels) {
  check_request(shape, pixels);
  const cv::Mat source = detail::with_channels(picture, shape.channels);
  cv::Mat target(shape.height, shape.width, CV_8UC(shape.channels), pixels.data());
  cv::resize(source, target, target.size(), 0, 0, cv::INTER_CUBIC);
}

/// Decodes one complete picture (see `whole_image`) and resizes it into `pixels`. Returns the size
/// it had before, which is false if `bytes` are no such picture; the content of `pixels` is
/// unspecified then. Throws Fault::usage if `shape` is impossible or `pixels` is not `shape.size()`
/// bytes.
inline PictureSize decode_image(std::span<const std::uint8_t> bytes, const FrameShape& shape,
                                std::span<std::uint8_t> pixels) {
  check_request(shape, pixels);
  quiet_opencv();
  if (bytes.size() > static_cast<std::size_t>(INT_MAX) || !whole_image(bytes)) return {};
  try {
    const cv::Mat encoded(1, static_cast<int>(bytes.size()), CV_8UC1,
                          const_cast<std::uint8_t*>(bytes.data()));  // only read
    const cv::Mat picture = cv::imdecode(encoded, cv::IMREAD_COLOR);
    if (picture.empty()) return {};
    resize_picture(picture, shape, pixels);
    return {.width = picture.cols, .height = picture.rows};
  } catch (const std::exception&) {  // a damaged picture, whatever its decoder calls it
    return {};
  }
}

}  // namespace pvm::inline v0::io
