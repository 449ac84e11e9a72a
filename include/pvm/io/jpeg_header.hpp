// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Recognises the JPEGs that a GPU may decode: plain ones, for which its picture is the CPU's (up
/// to small differences of rounding).

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include <pvm/io/file_bytes.hpp>
#include <pvm/io/jpeg_check.hpp>
#include <pvm/io/orientation.hpp>

namespace pvm::inline v0::io {

/// The header of a baseline JPEG: grey, or YCbCr with full chroma resolution (4:4:4), half the
/// columns (4:2:2), or half the columns and rows (4:2:0).
struct PlainJpeg {
  int width = 0;              ///< in pixels
  int height = 0;             ///< in pixels
  int components = 3;         ///< 1 (grey) or 3 (YCbCr)
  int halved_x = 0;           ///< 1 if chroma has half the columns, else 0
  int halved_y = 0;           ///< 1 if chroma has half the rows, else 0
  Orientation orientation{};  ///< how its pixels must be turned
};

namespace detail {

/// Parses the frame header (SOF0) whose length field is at offset `at` and has the value `length`.
/// Nothing if the JPEG is not plain.
inline std::optional<PlainJpeg> plain_frame(Bytes bytes, std::size_t at, std::size_t length) {
  PlainJpeg jpeg;
  jpeg.height = static_cast<int>(big_endian(bytes, at + 3, 2));
  jpeg.width = static_cast<int>(big_endian(bytes, at + 5, 2));
  jpeg.components = bytes[at + 7];
  const bool known = jpeg.components == 1 || jpeg.components == 3;
  if (bytes[at + 2] != 8 || !known || length < 8 + 3 * static_cast<std::size_t>(jpeg.components)) {
    return std::nullopt;
  }
  if (jpeg.components == 1) return jpeg;
  const auto sampling = [&](std::size_t component) { return bytes[at + 9 + 3 * component]; };
  if (sampling(1) != 0x11 || sampling(2) != 0x11) return std::nullopt;
  if (sampling(0) != 0x11 && sampling(0) != 0x21 && sampling(0) != 0x22) return std::nullopt;
  jpeg.halved_x = sampling(0) >> 4 == 2 ? 1 : 0;
  jpeg.halved_y = (sampling(0) & 15) == 2 ? 1 : 0;
  return jpeg;
}

/// Whether a segment says that the colours are not YCbCr (Adobe).
inline bool unusual_segment(Bytes bytes, std::uint8_t code, std::size_t at, std::size_t length) {
  return code == 0xEE && length >= 14 && starts_with(bytes, "Adobe", at + 2) && bytes[at + 13] != 1;
}

}  // namespace detail

/// The header of a complete, plain JPEG; nothing for anything else, which the CPU must decode.
inline std::optional<PlainJpeg> plain_jpeg(std::span<const std::uint8_t> bytes) {
  using namespace std::string_view_literals;
  if (!detail::starts_with(bytes, "\xFF\xD8\xFF"sv)) return std::nullopt;
  const auto facts = detail::jpeg_facts(bytes);
  if (!facts) return std::nullopt;
  std::optional<PlainJpeg> jpeg;
  for (std::size_t at = 2; detail::next_jpeg_marker(bytes, at);) {
    const std::uint8_t code = bytes[at++];
    const std::size_t length = detail::big_endian(bytes, at, 2);  // exists: the JPEG is complete
    if (code == 0xDA) return jpeg;
    if (detail::unusual_segment(bytes, code, at, length)) return std::nullopt;
    const bool frame = detail::is_jpeg_frame(code);
    if (frame && (code != 0xC0 || jpeg)) return std::nullopt;
    if (frame) {
      jpeg = detail::plain_frame(bytes, at, length);
      if (!jpeg) return std::nullopt;
      jpeg->orientation = facts->orientation;
    }
    at += length;
  }
  return std::nullopt;
}

}  // namespace pvm::inline v0::io
