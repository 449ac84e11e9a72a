// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Follows the chunks of a PNG, up to its end and before a decoder sees it.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/io/file_bytes.hpp>
#include <pvm/io/image_facts.hpp>
#include <pvm/io/orientation.hpp>
#include <pvm/io/tiff_directory.hpp>

namespace pvm::inline v0::io {

namespace detail {

inline constexpr std::size_t png_magic = 8;  ///< bytes before the first chunk

/// The chunk at offset `at`: 4 bytes of length, 4 of type, the content, 4 of checksum. Returns its
/// size with all of these; 0 if it is cut off.
inline std::size_t png_chunk(Bytes bytes, std::size_t at) noexcept {
  if (!has_bytes(bytes, at, 12)) return 0;
  const std::size_t length = big_endian(bytes, at, 4);
  return length <= bytes.size() - at - 12 ? length + 12 : 0;
}

/// Walks from chunk to chunk up to IEND. Nothing if the PNG is not complete or breaks the limits.
inline std::optional<ImageFacts> png_facts(Bytes bytes) noexcept {
  if (bytes.size() < 33 || !starts_with(bytes, "IHDR", 12)) return std::nullopt;
  Orientation orientation;
  bool alpha = (bytes[25] & 4) != 0;  // the kind of colours
  for (std::size_t at = png_magic, size = 0; (size = png_chunk(bytes, at)) > 0; at += size) {
    if (starts_with(bytes, "eXIf", at + 4))
      orientation = tiff_orientation(bytes.subspan(at + 8, size - 12));
    if (starts_with(bytes, "tRNS", at + 4)) alpha = true;
    if (starts_with(bytes, "IEND", at + 4)) {
      return within_limits(big_endian(bytes, 16, 4), big_endian(bytes, 20, 4), 0, orientation,
                           alpha);
    }
  }
  return std::nullopt;
}

/// Whether the chunk at offset `at` changes the pixels: the critical ones do, and transparency.
inline bool png_chunk_is_needed(Bytes bytes, std::size_t at) noexcept {
  return (bytes[at + 4] & 0x20) == 0 || starts_with(bytes, "tRNS", at + 4);
}

}  // namespace detail

/// Replaces `plain` by a copy of a complete PNG without the chunks that do not change its pixels
/// (colour profiles, texts, animations): decoders would unpack them, to gigabytes if a file means
/// harm, and complain about them. False if there are none and no copy was made.
inline bool without_extras_of_png(std::span<const std::uint8_t> bytes,
                                  std::vector<std::uint8_t>& plain) {
  using namespace detail;
  bool extras = false;
  plain.assign(bytes.begin(), bytes.begin() + png_magic);
  std::size_t from = png_magic, at = png_magic;  // [from, at) is needed and not copied yet
  const auto copy = [&] {
    plain.insert(plain.end(), bytes.begin() + static_cast<std::ptrdiff_t>(from),
                 bytes.begin() + static_cast<std::ptrdiff_t>(at));
  };
  for (std::size_t size = 0; (size = png_chunk(bytes, at)) > 0; at += size) {
    if (png_chunk_is_needed(bytes, at)) continue;
    if (!extras) plain.reserve(bytes.size());
    extras = true;
    copy();
    from = at + size;
  }
  if (extras) copy();
  return extras;
}

}  // namespace pvm::inline v0::io
