// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a picture's file says of itself before it is decoded, and the limits that it must keep: a
/// few bytes of a malicious file can claim billions of pixels, or minutes of work.

#include <cstdint>
#include <optional>

#include <pvm/core/config.hpp>
#include <pvm/io/orientation.hpp>

namespace pvm::inline v0::io {

/// Pictures with more pixels are not decoded.
inline constexpr std::uint64_t most_pixels = 1ULL << 27;

/// Nor are pictures whose decoding needs more memory, and all threads together use no more: see
/// MemoryGate.
inline constexpr std::uint64_t most_decoding_bytes = 1ULL << 30;

/// The facts about a picture that its file states.
struct ImageFacts {
  std::uint64_t width = 0, height = 0;  ///< in pixels as they are stored
  std::uint64_t decoding_bytes = 0;     ///< what decoding and resizing take, at most
  Orientation orientation{};            ///< how the stored pixels must be turned
  bool alpha = false;                   ///< whether it may be transparent somewhere
};

namespace detail {

/// Whether both sides are positive and there are at most `most_pixels` pixels.
constexpr bool sensible_size(std::uint64_t width, std::uint64_t height) noexcept {
  return width > 0 && height > 0 && width <= most_pixels && height <= most_pixels / width;
}

/// The facts of a picture whose decoder needs `more` bytes besides the decoded pixels. Nothing if
/// it breaks the limits.
constexpr std::optional<ImageFacts> within_limits(std::uint64_t width, std::uint64_t height,
                                                  std::uint64_t more,
                                                  const Orientation& orientation,
                                                  bool alpha = false) noexcept {
  if (!sensible_size(width, height) || more > most_decoding_bytes) return std::nullopt;
  // BGR; another copy to turn it; its grey version.
  const std::uint64_t bytes = width * height * (orientation.upright() ? 4 : 7) + more;
  if (bytes > most_decoding_bytes) return std::nullopt;
  return ImageFacts{width, height, bytes, orientation, alpha};
}

}  // namespace detail

}  // namespace pvm::inline v0::io
