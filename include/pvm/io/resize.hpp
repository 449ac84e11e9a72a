// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Turns a picture of any size, encoded or decoded, into the frame that a model asks for.

#include <climits>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/io/codec_messages.hpp>
#include <pvm/io/image_check.hpp>
#include <pvm/io/memory_gate.hpp>
#include <pvm/io/png_check.hpp>
#include <pvm/io/quiet.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/source.hpp>
#include <pvm/io/tiff_directory.hpp>
#include <pvm/io/upright.hpp>

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

/// Decodes a picture whose facts are known, as its pixels are stored: whatever OpenCV itself makes
/// of an orientation is turned off, since that depends on its version and on the format. Empty if
/// it cannot be decoded.
inline cv::Mat decode_stored(std::span<const std::uint8_t> bytes, const ImageFacts& facts) {
  std::vector<std::uint8_t> changed;
  if (detail::starts_with(bytes, "\x89PNG")) {
    if (without_extras_of_png(bytes, changed)) bytes = changed;
  } else if (!facts.orientation.upright() && detail::call_tiff_upright(bytes, changed)) {
    bytes = changed;
  }
  const cv::Mat encoded(1, static_cast<int>(bytes.size()), CV_8UC1,
                        const_cast<std::uint8_t*>(bytes.data()));  // only read
  const CodecMessages to_the_log;
  return cv::imdecode(encoded, cv::IMREAD_COLOR | cv::IMREAD_IGNORE_ORIENTATION);
}

/// Decodes one complete picture (see `image_facts`), turns it upright and resizes it into `pixels`.
/// Returns the size of the upright picture, which is false if `bytes` are no such picture; the
/// content of `pixels` is unspecified then. Threads that decode at the same time wait for each
/// other if they would need too much memory together. Throws Fault::usage if `shape` is impossible
/// or `pixels` is not `shape.size()` bytes.
inline PictureSize decode_image(std::span<const std::uint8_t> bytes, const FrameShape& shape,
                                std::span<std::uint8_t> pixels) {
  check_request(shape, pixels);
  quiet_opencv();
  if (bytes.size() > static_cast<std::size_t>(INT_MAX)) return {};
  const auto facts = image_facts(bytes);
  if (!facts) return {};
  const MemoryGate::Hold memory = MemoryGate::decoding().enter(facts->decoding_bytes);
  try {
    const cv::Mat stored = decode_stored(bytes, *facts);
    if (stored.empty()) return {};
    const cv::Mat picture = upright(stored, facts->orientation);
    resize_picture(picture, shape, pixels);
    return {.width = picture.cols, .height = picture.rows};
  } catch (const std::exception&) {  // a damaged picture, whatever its decoder calls it
    return {};
  }
}

}  // namespace pvm::inline v0::io
