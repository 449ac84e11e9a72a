// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How the stored pixels of a picture or a video must be turned to be seen upright.

#include <cmath>
#include <optional>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// One of the eight ways: rows and columns are exchanged first (`transposed`), then the result is
/// mirrored left to right (`mirrored_x`) and top to bottom (`mirrored_y`).
struct Orientation {
  bool transposed = false;
  bool mirrored_x = false;
  bool mirrored_y = false;

  [[nodiscard]] constexpr bool upright() const noexcept {
    return !transposed && !mirrored_x && !mirrored_y;
  }
  bool operator==(const Orientation&) const = default;
};

/// The orientation with the number that EXIF and TIFF give it, 1 to 8; upright for others.
constexpr Orientation orientation_of_exif(unsigned number) noexcept {
  switch (number) {
    case 2:
      return {false, true, false};
    case 3:
      return {false, true, true};
    case 4:
      return {false, false, true};
    case 5:
      return {true, false, false};
    case 6:
      return {true, true, false};
    case 7:
      return {true, true, true};
    case 8:
      return {true, false, true};
    default:
      return {};
  }
}

/// A turn by `degrees` clockwise; upright if that is no quarter, half or three-quarter turn.
constexpr Orientation orientation_of_turn(int degrees) noexcept {
  switch ((degrees % 360 + 360) % 360) {
    case 90:
      return orientation_of_exif(6);
    case 180:
      return orientation_of_exif(3);
    case 270:
      return orientation_of_exif(8);
    default:
      return {};
  }
}

/// The orientation of a display matrix, which moves the stored pixel (x, y) to (a x + c y,
/// b x + d y), up to a shift and a scale. Nothing if it turns by something else than quarters.
inline std::optional<Orientation> orientation_of_matrix(double a, double b, double c, double d) {
  constexpr double little = 0.02;  // of the larger entries: matrices are stored rounded
  if (a != 0 && d != 0 && std::fabs(b) <= little * std::fabs(a) &&
      std::fabs(c) <= little * std::fabs(d)) {
    return Orientation{false, a < 0, d < 0};
  }
  if (b != 0 && c != 0 && std::fabs(a) <= little * std::fabs(b) &&
      std::fabs(d) <= little * std::fabs(c)) {
    return Orientation{true, c < 0, b < 0};
  }
  return std::nullopt;
}

}  // namespace pvm::inline v0::io
