// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Checks whether bytes are one complete picture before a decoder sees them: decoders fill the
/// missing part of a truncated file with grey and report it, if at all, on standard error.

#include <charconv>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>

#include <pvm/core/config.hpp>
#include <pvm/io/file_bytes.hpp>
#include <pvm/io/image_facts.hpp>
#include <pvm/io/jpeg_check.hpp>
#include <pvm/io/png_check.hpp>
#include <pvm/io/tiff_check.hpp>
#include <pvm/io/webp_check.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// Compares the size of the file with that of the pixels, unless they are run-length encoded.
inline std::optional<ImageFacts> bmp_facts(Bytes bytes) noexcept {
  if (bytes.size() < 34 || little_endian(bytes, 14, 4) < 40) return std::nullopt;
  const auto signed_height = static_cast<std::int32_t>(little_endian(bytes, 22, 4));
  const std::uint64_t width = little_endian(bytes, 18, 4);
  const auto height = static_cast<std::uint64_t>(signed_height < 0 ? -std::int64_t{signed_height}
                                                                   : std::int64_t{signed_height});
  const auto facts = within_limits(width, height, 0, {}, little_endian(bytes, 28, 2) == 32);
  if (!facts) return std::nullopt;
  if (little_endian(bytes, 30, 4) % 3 != 0) return facts;  // compressed: the size is not known
  const std::uint64_t row = (width * little_endian(bytes, 28, 2) + 31) / 32 * 4;
  if (little_endian(bytes, 10, 4) + row * height > bytes.size()) return std::nullopt;
  return facts;
}

/// The next number of a PNM header from offset `at` on, after blanks and comments; 0 if there is
/// none, or no blank behind it: decoders differ in what they take for the next number then. Moves
/// `at` behind it.
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
  const bool separate =
      at < bytes.size() &&
      std::string_view(" \t\r\n").find(static_cast<char>(bytes[at])) != std::string_view::npos;
  return fault == std::errc{} && separate ? value : 0;
}

/// Binary PGM and PPM: compares the size of the file with that of the pixels.
inline std::optional<ImageFacts> pnm_facts(Bytes bytes) noexcept {
  std::size_t at = 2;
  const std::uint64_t width = pnm_number(bytes, at);
  const std::uint64_t height = pnm_number(bytes, at);
  const std::uint64_t most = pnm_number(bytes, at);
  const auto facts = within_limits(width, height, 0, {});
  if (!facts || most == 0 || most > 65535) return std::nullopt;
  const std::uint64_t channels = bytes[1] == '6' ? 3 : 1;
  const std::uint64_t size = at + 1 + width * height * channels * (most > 255 ? 2 : 1);
  return size <= bytes.size() ? facts : std::nullopt;
}

}  // namespace detail

/// The facts of one complete JPEG, PNG, BMP, TIFF, WebP, PGM or PPM picture (the binary kinds, P5
/// and P6) that keeps the limits of image_facts.hpp. Whether the end of a TIFF is missing, its
/// decoder notices. Nothing for any other format, whatever decoders OpenCV was built with: its size
/// would not be known before it is decoded.
inline std::optional<ImageFacts> image_facts(std::span<const std::uint8_t> bytes) noexcept {
  using detail::starts_with;
  using namespace std::string_view_literals;
  if (starts_with(bytes, "\xFF\xD8\xFF"sv)) return detail::jpeg_facts(bytes);
  if (starts_with(bytes, "\x89PNG\r\n\x1A\n"sv)) return detail::png_facts(bytes);
  if (starts_with(bytes, "BM"sv)) return detail::bmp_facts(bytes);
  if (starts_with(bytes, "P5"sv) || starts_with(bytes, "P6"sv)) return detail::pnm_facts(bytes);
  if (starts_with(bytes, "II*\0"sv) || starts_with(bytes, "MM\0*"sv))
    return detail::tiff_facts(bytes);
  if (starts_with(bytes, "RIFF"sv) && starts_with(bytes, "WEBP"sv, 8))
    return detail::webp_facts(bytes);
  return std::nullopt;
}

/// Whether `bytes` are a picture that can be decoded (see `image_facts`), as far as can be told
/// without decoding it.
inline bool whole_image(std::span<const std::uint8_t> bytes) noexcept {
  return image_facts(bytes).has_value();
}

}  // namespace pvm::inline v0::io
