// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Turns a picture of any size, encoded or decoded, into the frame that a model asks for.

#include <bit>
#include <climits>
#include <cstdint>
#include <exception>
#include <span>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/io/channels.hpp>
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

/// Writes `picture` (8-bit; 1 to 4 channels as those of a frame; not empty) into `pixels` as a
/// frame of `shape`: its channels are converted first, then it is resized with 8-bit cubic
/// interpolation, whatever its proportions. Throws Fault::usage if `shape` is impossible or
/// `pixels` is not `shape.size()` bytes, cv::Exception if the picture is of another kind.
inline void resize_picture(const cv::Mat& picture, const FrameShape& shape,
                           std::span<std::uint8_t> pixels) {
  check_request(shape, pixels);
  const cv::Mat source = detail::with_channels(picture, shape.channels);
  cv::Mat target(shape.height, shape.width, CV_8UC(shape.channels), pixels.data());
  cv::resize(source, target, target.size(), 0, 0, cv::INTER_CUBIC);
}

namespace detail {

/// The alpha of an encoded picture, 8-bit, as its pixels are stored; empty if it has none.
inline cv::Mat decode_alpha(const cv::Mat& encoded) {
  const cv::Mat all = cv::imdecode(encoded, cv::IMREAD_UNCHANGED);
  cv::Mat alpha, high;
  if (all.channels() != 4 || (all.depth() != CV_8U && all.depth() != CV_16U)) return alpha;
  cv::extractChannel(all, alpha, 3);
  if (alpha.depth() == CV_8U) return alpha;
  const cv::Mat halves(alpha.rows, alpha.cols, CV_8UC2, alpha.data, alpha.step);
  cv::extractChannel(halves, high, std::endian::native == std::endian::little ? 1 : 0);
  return high;
}

}  // namespace detail

/// Decodes a picture whose facts are known, as its pixels are stored: whatever OpenCV itself makes
/// of an orientation is turned off, since that depends on its version and on the format. BGR; with
/// `alpha` BGRA if the picture has alpha. Colours are not multiplied by it. Empty if it cannot be
/// decoded.
inline cv::Mat decode_stored(std::span<const std::uint8_t> bytes, const ImageFacts& facts,
                             bool alpha) {
  std::vector<std::uint8_t> changed;
  if (detail::starts_with(bytes, "\x89PNG")) {
    if (without_extras_of_png(bytes, changed)) bytes = changed;
  } else if (!facts.orientation.upright() && detail::call_tiff_upright(bytes, changed)) {
    bytes = changed;
  }
  const cv::Mat encoded(1, static_cast<int>(bytes.size()), CV_8UC1,
                        const_cast<std::uint8_t*>(bytes.data()));  // only read
  const CodecMessages to_the_log;
  cv::Mat picture = cv::imdecode(encoded, cv::IMREAD_COLOR | cv::IMREAD_IGNORE_ORIENTATION);
  if (!alpha || picture.empty() || detail::starts_with(bytes, "\xFF\xD8")) return picture;  // JPEG
  const cv::Mat opacity = detail::decode_alpha(encoded);
  if (opacity.size() == picture.size()) {
    cv::merge(std::vector<cv::Mat>{picture.clone(), opacity}, picture);
  }
  return picture;
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
  // With alpha: colours, all channels, and both together.
  const std::uint64_t times = shape.has_alpha() ? 3 : 1;
  const MemoryGate::Hold memory = MemoryGate::decoding().enter(times * facts->decoding_bytes);
  try {
    const cv::Mat stored = decode_stored(bytes, *facts, shape.has_alpha());
    if (stored.empty()) return {};
    const cv::Mat picture = upright(stored, facts->orientation);
    resize_picture(picture, shape, pixels);
    return {.width = picture.cols, .height = picture.rows};
  } catch (const std::exception&) {  // a damaged picture, whatever its decoder calls it
    return {};
  }
}

}  // namespace pvm::inline v0::io
