// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Follows the markers of a JPEG, up to its end and before a decoder sees it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string_view>

#include <pvm/core/config.hpp>
#include <pvm/io/file_bytes.hpp>
#include <pvm/io/image_facts.hpp>
#include <pvm/io/orientation.hpp>
#include <pvm/io/tiff_directory.hpp>

namespace pvm::inline v0::io::detail {

/// A decoder goes through the whole picture once for each scan. Encoders write some ten; files with
/// thousands exist to keep decoders busy.
inline constexpr std::uint64_t most_jpeg_scans = 100;
inline constexpr std::uint64_t most_jpeg_work = 1ULL << 32;  ///< scans times pixels

/// Moves `at` to the code byte (after FF) of the next JPEG marker, skipping stuffed bytes (FF 00),
/// fill bytes and restart markers. False if there is none.
inline bool next_jpeg_marker(Bytes bytes, std::size_t& at) noexcept {
  while (at + 1 < bytes.size()) {
    const void* found = std::memchr(bytes.data() + at, 0xFF, bytes.size() - at - 1);
    if (found == nullptr) return false;
    at = static_cast<std::size_t>(static_cast<const std::uint8_t*>(found) - bytes.data()) + 1;
    const std::uint8_t code = bytes[at];
    const bool restart = code >= 0xD0 && code <= 0xD7;
    if (code > 0x01 && code != 0xFF && !restart) return true;
  }
  return false;
}

/// Whether a marker begins a frame header (SOF0 to SOF15).
constexpr bool is_jpeg_frame(std::uint8_t code) noexcept {
  return code >= 0xC0 && code <= 0xCF && code != 0xC4 && code != 0xC8 && code != 0xCC;
}

/// The EXIF data in the segment whose length field is at offset `at` and has the value `length`;
/// empty if there is none.
inline Bytes exif_of_segment(Bytes bytes, std::uint8_t code, std::size_t at,
                             std::size_t length) noexcept {
  using namespace std::string_view_literals;
  if (code != 0xE1 || length < 8 || !starts_with(bytes, "Exif\0"sv, at + 2)) return {};
  return bytes.subspan(at + 8, length - 8);
}

/// A JPEG's frame header.
struct JpegFrame {
  std::uint64_t width = 0, height = 0;
  std::uint64_t coefficients = 0;  ///< bytes of all of them, kept if there are several scans
  bool progressive = false;
};

/// Parses the frame header whose length field is at offset `at` and has the value `length`; nothing
/// if its size is not sensible, or no decoder takes it.
inline std::optional<JpegFrame> jpeg_frame(Bytes bytes, std::uint8_t code, std::size_t at,
                                           std::size_t length) noexcept {
  if (length < 8) return std::nullopt;
  JpegFrame frame{big_endian(bytes, at + 5, 2), big_endian(bytes, at + 3, 2), 0, (code & 3) == 2};
  const std::size_t components = bytes[at + 7];
  const bool known = components == 1 || components == 3 || components == 4;
  if (!known || length < 8 + 3 * components || !sensible_size(frame.width, frame.height))
    return std::nullopt;
  std::array<std::uint64_t, 4> across{}, down{};
  for (std::size_t i = 0; i < components; ++i) {
    const std::uint8_t sampling = bytes[at + 9 + 3 * i];
    across[i] = sampling >> 4;
    down[i] = sampling & 15;
    if (across[i] < 1 || across[i] > 4 || down[i] < 1 || down[i] > 4) return std::nullopt;
  }
  const std::uint64_t most_across = *std::max_element(across.begin(), across.end());
  const std::uint64_t most_down = *std::max_element(down.begin(), down.end());
  const std::uint64_t columns = (frame.width + 8 * most_across - 1) / (8 * most_across);
  const std::uint64_t rows = (frame.height + 8 * most_down - 1) / (8 * most_down);
  constexpr std::uint64_t block = 64 * sizeof(std::int16_t);
  for (std::size_t i = 0; i < components; ++i)
    frame.coefficients += columns * rows * across[i] * down[i] * block;
  return frame;
}

/// Walks from marker to marker up to the end of the image. A search for the bytes FF D9 alone could
/// find the end of a thumbnail inside the header. Nothing if the JPEG is not complete or breaks the
/// limits.
inline std::optional<ImageFacts> jpeg_facts(Bytes bytes) noexcept {
  std::optional<JpegFrame> frame;
  std::optional<Orientation> orientation;
  std::uint64_t scans = 0;
  for (std::size_t at = 2; next_jpeg_marker(bytes, at);) {
    const std::uint8_t code = bytes[at++];
    if (code == 0xD9) {
      if (scans == 0 || !frame) return std::nullopt;
      const bool kept = frame->progressive || scans > 1;
      return within_limits(frame->width, frame->height, kept ? frame->coefficients : 0,
                           orientation.value_or(Orientation{}));
    }
    if (bytes.size() - at < 2) return std::nullopt;
    const std::size_t length = big_endian(bytes, at, 2);
    if (length < 2 || length > bytes.size() - at) return std::nullopt;
    if (is_jpeg_frame(code)) {
      if (frame) return std::nullopt;  // a second one
      frame = jpeg_frame(bytes, code, at, length);
      if (!frame) return std::nullopt;
    }
    if (code == 0xDA) {
      ++scans;
      if (!frame || scans > most_jpeg_scans) return std::nullopt;
      if (scans * frame->width * frame->height > most_jpeg_work) return std::nullopt;
    }
    const Bytes exif = exif_of_segment(bytes, code, at, length);
    if (!exif.empty() && scans == 0 && !orientation) orientation = tiff_orientation(exif);
    at += length;
  }
  return std::nullopt;
}

}  // namespace pvm::inline v0::io::detail
