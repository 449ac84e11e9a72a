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

namespace detail {

/// Makes a frame of `shape` of a picture (8-bit, 1 to 4 channels) and its `alpha` (8-bit, 1
/// channel, of the same size; empty: it is opaque). Alpha is resized by itself, so that the colours
/// are those of a frame without it, and an opaque picture gives an opaque frame.
inline void make_frame(const cv::Mat& picture, const cv::Mat& alpha, const FrameShape& shape,
                       std::span<std::uint8_t> pixels) {
  const cv::Mat colours = colours_of(picture, shape.colours());
  cv::Mat target(shape.height, shape.width, CV_8UC(shape.channels), pixels.data());
  const auto resize = [&](const cv::Mat& from, cv::Mat& to) {
    cv::resize(from, to, target.size(), 0, 0, cv::INTER_CUBIC);
  };
  if (!shape.has_alpha()) return resize(colours, target);
  std::vector<cv::Mat> parts(2);
  resize(colours, parts[0]);
  if (alpha.empty()) parts[1] = cv::Mat(target.size(), CV_8UC1, cv::Scalar(255));
  if (!alpha.empty()) resize(alpha, parts[1]);
  cv::merge(parts, target);
}

}  // namespace detail

/// Writes `picture` (8-bit; grey, grey and alpha, BGR or BGRA; not empty) into `pixels` as a frame
/// of `shape`: its channels are converted first, then it is resized with 8-bit cubic interpolation,
/// whatever its proportions. Without alpha it is opaque (255). Throws Fault::usage if `shape` is
/// impossible or `pixels` is not `shape.size()` bytes, cv::Exception if the picture is of another
/// kind.
inline void resize_picture(const cv::Mat& picture, const FrameShape& shape,
                           std::span<std::uint8_t> pixels) {
  check_request(shape, pixels);
  detail::make_frame(picture, shape.has_alpha() ? alpha_of(picture) : cv::Mat{}, shape, pixels);
}

namespace detail {

/// Decodes a picture as its pixels are stored. `flags`: OpenCV's.
inline cv::Mat decode_with(int flags, std::span<const std::uint8_t> bytes,
                           const ImageFacts& facts) {
  std::vector<std::uint8_t> changed;
  if (detail::starts_with(bytes, "\x89PNG")) {
    if (without_extras_of_png(bytes, changed)) bytes = changed;
  } else if (!facts.orientation.upright() && detail::call_tiff_upright(bytes, changed)) {
    bytes = changed;
  }
  const cv::Mat encoded(1, static_cast<int>(bytes.size()), CV_8UC1,
                        const_cast<std::uint8_t*>(bytes.data()));  // only read
  const CodecMessages to_the_log;
  return cv::imdecode(encoded, flags);
}

}  // namespace detail

/// Decodes the colours of a picture whose facts are known, as its pixels are stored: whatever
/// OpenCV itself makes of an orientation is turned off, since that depends on its version and on
/// the format. Empty if it cannot be decoded.
inline cv::Mat decode_stored(std::span<const std::uint8_t> bytes, const ImageFacts& facts) {
  return detail::decode_with(cv::IMREAD_COLOR | cv::IMREAD_IGNORE_ORIENTATION, bytes, facts);
}

/// The alpha of the same pixels, 8 bits; empty if the picture is opaque. The picture is decoded
/// once more, because a decoder that keeps alpha keeps 16 bits and palettes, too: so the colours do
/// not depend on whether somebody asks for alpha.
inline cv::Mat decode_alpha(std::span<const std::uint8_t> bytes, const ImageFacts& facts) {
  if (!facts.alpha) return {};
  cv::Mat alpha = alpha_of(detail::decode_with(cv::IMREAD_UNCHANGED, bytes, facts));
  if (alpha.depth() == CV_16U) alpha.convertTo(alpha, CV_8U, 1 / 257.0);
  return alpha.depth() == CV_8U ? alpha : cv::Mat{};
}

namespace detail {

/// What decoding takes in bytes, at most, for a frame of `shape`. While alpha is taken from a
/// picture it has up to four channels of 16 bits.
constexpr std::uint64_t bytes_to_decode(const ImageFacts& facts, const FrameShape& shape) noexcept {
  const bool alpha = shape.has_alpha() && facts.alpha;
  return facts.decoding_bytes + (alpha ? 8 * facts.width * facts.height : 0);
}

}  // namespace detail

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
  const std::uint64_t needed = detail::bytes_to_decode(*facts, shape);
  if (needed > most_decoding_bytes) return {};
  const MemoryGate::Hold memory = MemoryGate::decoding().enter(needed);
  try {
    const cv::Mat alpha = shape.has_alpha() ? decode_alpha(bytes, *facts) : cv::Mat{};
    const cv::Mat stored = decode_stored(bytes, *facts);
    if (stored.empty()) return {};
    const cv::Mat picture = upright(stored, facts->orientation);
    detail::make_frame(picture, upright(alpha, facts->orientation), shape, pixels);
    return {.width = picture.cols, .height = picture.rows};
  } catch (const std::exception&) {  // a damaged picture, whatever its decoder calls it
    return {};
  }
}

}  // namespace pvm::inline v0::io
