// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads the size of a WebP before a decoder sees it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include <pvm/core/config.hpp>
#include <pvm/io/file_bytes.hpp>
#include <pvm/io/image_facts.hpp>
#include <pvm/io/orientation.hpp>
#include <pvm/io/tiff_directory.hpp>

namespace pvm::inline v0::io::detail {

/// What the chunks of a WebP say.
struct WebpChunks {
  std::uint64_t width = 0, height = 0;  ///< of the canvas, or of the picture if there is no canvas
  bool has_canvas = false, has_picture = false, agree = true;
  std::uint64_t bytes_per_pixel = 0;  ///< that the decoder takes besides the result
  Orientation orientation{};
  bool alpha = false;

  /// A chunk of pixels of this size.
  void picture(std::uint64_t columns, std::uint64_t rows, std::uint64_t bytes) noexcept {
    if (has_canvas) agree = agree && width == columns && height == rows;
    if (!has_canvas) width = columns, height = rows;
    has_picture = true;
    bytes_per_pixel += bytes;
  }
};

/// Adds what the chunk with the name at offset `at` and `size` bytes of content says.
inline void read_webp_chunk(Bytes bytes, std::size_t at, std::size_t size,
                            WebpChunks& all) noexcept {
  using namespace std::string_view_literals;
  const std::size_t content = at + 8;
  if (starts_with(bytes, "VP8X", at) && size >= 10 && !all.has_picture) {
    constexpr std::uint8_t animated = 0x02, alpha = 0x10;
    all.has_canvas = true;
    all.width = little_endian(bytes, content + 4, 3) + 1;
    all.height = little_endian(bytes, content + 7, 3) + 1;
    const std::uint8_t flags = bytes[content];
    all.alpha = (flags & alpha) != 0;
    if (all.alpha) all.bytes_per_pixel += 4;
    if ((flags & animated) != 0) {  // its frames lie on the canvas, in chunks of their own
      all.has_picture = true;
      all.bytes_per_pixel += 8;
    }
  } else if (starts_with(bytes, "VP8 ", at) && size >= 10 && !all.has_picture) {
    all.picture(little_endian(bytes, content + 6, 2) & 0x3FFF,
                little_endian(bytes, content + 8, 2) & 0x3FFF, 0);
  } else if (starts_with(bytes, "VP8L", at) && size >= 5 && !all.has_picture) {
    const std::uint32_t packed = little_endian(bytes, content + 1, 4);
    const bool alpha = (packed >> 28 & 1) != 0;
    all.alpha = all.alpha || alpha;
    all.picture((packed & 0x3FFF) + 1, (packed >> 14 & 0x3FFF) + 1,
                !all.has_canvas && alpha ? 8 : 4);
  } else if (starts_with(bytes, "EXIF", at)) {
    Bytes exif = bytes.subspan(content, size);
    if (starts_with(exif, "Exif\0\0"sv)) exif = exif.subspan(6);
    all.orientation = tiff_orientation(exif);
  }
}

/// The facts of a WebP. Nothing if it is cut off, its size cannot be read or it breaks the limits.
inline std::optional<ImageFacts> webp_facts(Bytes bytes) noexcept {
  if (bytes.size() < 20) return std::nullopt;
  const std::size_t end = std::size_t{little_endian(bytes, 4, 4)} + 8;
  if (end > bytes.size() + 1) return std::nullopt;  // some writers leave out the last byte's pad
  bytes = bytes.first(end < bytes.size() ? end : bytes.size());
  WebpChunks all;
  for (std::size_t at = 12; has_bytes(bytes, at, 8);) {
    const std::size_t size = little_endian(bytes, at + 4, 4);
    if (!has_bytes(bytes, at + 8, size)) return std::nullopt;
    read_webp_chunk(bytes, at, size, all);
    at += 8 + size + (size & 1);
  }
  if (!all.has_picture || !all.agree || !sensible_size(all.width, all.height)) return std::nullopt;
  return within_limits(all.width, all.height, all.width * all.height * all.bytes_per_pixel,
                       all.orientation, all.alpha);
}

}  // namespace pvm::inline v0::io::detail
