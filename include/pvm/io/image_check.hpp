// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Checks whether bytes are one complete picture before a decoder sees them: decoders fill the
/// missing part of a truncated file with grey and report it, if at all, on standard error.

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <system_error>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// Pictures with more pixels are not decoded: a few bytes of a malicious file can claim billions.
inline constexpr std::uint64_t most_pixels = 1ULL << 27;

namespace detail {

using Bytes = std::span<const std::uint8_t>;

/// The number stored in `count` bytes (at most 4) from offset `at` on; they must exist.
constexpr std::uint32_t big_endian(Bytes bytes, std::size_t at, std::size_t count) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < count; ++i) value = value << 8 | bytes[at + i];
  return value;
}

constexpr std::uint32_t little_endian(Bytes bytes, std::size_t at, std::size_t count) noexcept {
  std::uint32_t value = 0;
  for (std::size_t i = count; i-- > 0;) value = value << 8 | bytes[at + i];
  return value;
}

/// Whether both sides are positive and there are at most `most_pixels` pixels.
constexpr bool sensible_size(std::uint64_t width, std::uint64_t height) noexcept {
  return width > 0 && height > 0 && width <= most_pixels && height <= most_pixels / width;
}

inline bool starts_with(Bytes bytes, std::string_view magic, std::size_t at = 0) noexcept {
  return bytes.size() >= at + magic.size() &&
         std::memcmp(bytes.data() + at, magic.data(), magic.size()) == 0;
}

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

/// Walks from marker to marker up to the end of the image. A search for the bytes FF D9 alone could
/// find the end of a thumbnail inside the header.
inline bool whole_jpeg(Bytes bytes) noexcept {
  bool scanned = false;
  for (std::size_t at = 2; next_jpeg_marker(bytes, at);) {
    const std::uint8_t code = bytes[at++];
    if (code == 0xD9) return scanned;
    if (bytes.size() - at < 2) return false;
    const std::size_t length = big_endian(bytes, at, 2);
    if (length < 2 || length > bytes.size() - at) return false;
    const bool frame_header =
        code >= 0xC0 && code <= 0xCF && code != 0xC4 && code != 0xC8 && code != 0xCC;
    if (frame_header && (length < 7 || !sensible_size(big_endian(bytes, at + 5, 2),
                                                      big_endian(bytes, at + 3, 2)))) {
      return false;
    }
    scanned = scanned || code == 0xDA;
    at += length;
  }
  return false;
}

/// Walks from chunk to chunk up to IEND.
inline bool whole_png(Bytes bytes) noexcept {
  if (bytes.size() < 33 || !starts_with(bytes, "IHDR", 12) ||
      !sensible_size(big_endian(bytes, 16, 4), big_endian(bytes, 20, 4))) {
    return false;
  }
  for (std::size_t at = 8; bytes.size() - at >= 12;) {  // length, type, content, checksum
    const std::size_t length = big_endian(bytes, at, 4);
    if (length > bytes.size() - at - 12) return false;
    if (starts_with(bytes, "IEND", at + 4)) return true;
    at += 12 + length;
  }
  return false;
}

/// Compares the size of the file with that of the pixels, unless they are run-length encoded.
inline bool whole_bmp(Bytes bytes) noexcept {
  if (bytes.size() < 34 || little_endian(bytes, 14, 4) < 40) return false;
  const auto signed_height = static_cast<std::int32_t>(little_endian(bytes, 22, 4));
  const std::uint64_t width = little_endian(bytes, 18, 4);
  const auto height = static_cast<std::uint64_t>(signed_height < 0 ? -std::int64_t{signed_height}
                                                                   : std::int64_t{signed_height});
  if (!sensible_size(width, height)) return false;
  if (little_endian(bytes, 30, 4) % 3 != 0) return true;  // compressed: the size is not known
  const std::uint64_t row = (width * little_endian(bytes, 28, 2) + 31) / 32 * 4;
  return little_endian(bytes, 10, 4) + row * height <= bytes.size();
}

/// The next number of a PNM header from offset `at` on, after blanks and comments; 0 if there is
/// none. Moves `at` behind it.
inline std::uint64_t pnm_number(Bytes bytes, std::size_t& at) noexcept {
  for (bool comment = false; at < bytes.size(); ++at) {
    const char c = static_cast<char>(bytes[at]);
    if (c == '#') comment = true;
    if (c == '\n') comment = false;
    if (!comment && std::string_view(" \t\r\n").find(c) == std::string_view::npos) break;
  }
  const auto* first = reinterpret_cast<const char*>(bytes.data());
  std::uint32_t value = 0;
  const auto [end, fault] = std::from_chars(first + at, first + bytes.size(), value);
  at = static_cast<std::size_t>(end - first);
  return fault == std::errc{} ? value : 0;
}

/// Binary PGM and PPM: compares the size of the file with that of the pixels.
inline bool whole_pnm(Bytes bytes) noexcept {
  std::size_t at = 2;
  const std::uint64_t width = pnm_number(bytes, at);
  const std::uint64_t height = pnm_number(bytes, at);
  const std::uint64_t most = pnm_number(bytes, at);
  if (!sensible_size(width, height) || most == 0 || most > 65535) return false;
  const std::uint64_t channels = bytes[1] == '6' ? 3 : 1;
  return at + 1 + width * height * channels * (most > 255 ? 2 : 1) <= bytes.size();
}

}  // namespace detail

/// Whether `bytes` look like one complete JPEG, PNG, BMP, TIFF, WebP, PGM or PPM picture of at most
/// `most_pixels` pixels. TIFF and WebP are recognised by their first bytes only, since their
/// decoders notice a missing end. Other formats are refused, whatever decoders OpenCV was built
/// with.
inline bool whole_image(std::span<const std::uint8_t> bytes) noexcept {
  using detail::starts_with;
  using namespace std::string_view_literals;
  if (starts_with(bytes, "\xFF\xD8\xFF"sv)) return detail::whole_jpeg(bytes);
  if (starts_with(bytes, "\x89PNG\r\n\x1A\n"sv)) return detail::whole_png(bytes);
  if (starts_with(bytes, "BM"sv)) return detail::whole_bmp(bytes);
  if (starts_with(bytes, "P5"sv) || starts_with(bytes, "P6"sv)) return detail::whole_pnm(bytes);
  return starts_with(bytes, "II*\0"sv) || starts_with(bytes, "MM\0*"sv) ||
         (starts_with(bytes, "RIFF"sv) && starts_with(bytes, "WEBP"sv, 8));
}

}  // namespace pvm::inline v0::io
