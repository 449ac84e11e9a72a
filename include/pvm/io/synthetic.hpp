// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Generates frames: a green ball bounces in front of a textured background, with labels. Needs no
/// files and no other library.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/request.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

struct SyntheticOptions {
  std::uint64_t seed = 0;       ///< determines the texture and the ball's first position
  std::uint64_t frames = 1000;  ///< frames of one pass, 1 to 2^32-1; it loops without a jump
};

namespace detail {

/// A hash of 64 bits (splitmix64).
constexpr std::uint64_t mix(std::uint64_t value) noexcept {
  value += 0x9E3779B97F4A7C15ULL;
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9ULL;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EBULL;
  return value ^ (value >> 31);
}

/// Value noise, 0 to 255, at the point (x, y) in units of 1/256 of a cell: random values at the
/// corners of the cells, bilinearly interpolated.
constexpr std::uint32_t noise(std::uint64_t seed, std::uint32_t x, std::uint32_t y) noexcept {
  const auto corner = [seed](std::uint32_t column, std::uint32_t row) {
    return static_cast<std::uint32_t>(mix(seed ^ mix(std::uint64_t{row} << 32 | column)) & 0xFF);
  };
  const std::uint32_t column = x / 256;
  const std::uint32_t row = y / 256;
  const std::uint32_t right = x % 256;
  const std::uint32_t down = y % 256;
  const std::uint32_t upper = corner(column, row) * (256 - right) + corner(column + 1, row) * right;
  const std::uint32_t lower =
      corner(column, row + 1) * (256 - right) + corner(column + 1, row + 1) * right;
  return (upper * (256 - down) + lower * down) >> 16;
}

}  // namespace detail

/// A ball, a quarter as wide as the frame's smaller side, crosses the frame at constant speed
/// (about 1.6 pixels a frame at 60 x 60 and 1000 frames a pass) and bounces off its edges. Frames
/// are rendered at the shape asked for, in integer arithmetic: the same bytes on every machine.
/// Boxes are in pixels of that shape. Model of FrameSource.
class Synthetic {
 public:
  /// Throws Fault::usage if `options.frames` is out of its range.
  explicit Synthetic(SyntheticOptions options = {}) : options_(options) {
    if (options.frames == 0 || options.frames > UINT32_MAX) {
      throw Error(Fault::usage, "a generated sequence cannot have " +
                                    std::to_string(options.frames) +
                                    " frames; ask for 1 to 4294967295");
    }
  }

  /// Throws Fault::usage if `shape` is impossible or `pixels` is not `shape.size()` bytes.
  FrameInfo next(FrameShape shape, std::span<std::uint8_t> pixels) {
    check_request(shape, pixels);
    if (shape != shape_) paint_background(shape);
    std::copy(background_.begin(), background_.end(), pixels.begin());
    const Ball ball = ball_at(position_.frame);
    paint(ball, pixels);
    const bool starts = position_.frame == 0;
    if (++position_.frame == options_.frames) {
      position_.frame = 0;
      ++position_.pass;
    }
    return {starts, Label::present(box(ball))};
  }

  [[nodiscard]] Position position() const { return position_; }

  void seek(const Position& position) {
    check_position(position, options_.frames, name());
    position_ = position;
  }

  [[nodiscard]] std::optional<std::uint64_t> length() const { return options_.frames; }
  [[nodiscard]] std::uint64_t skipped() const { return 0; }
  [[nodiscard]] std::string name() const { return "synthetic:" + std::to_string(options_.seed); }

 private:
  static constexpr std::int64_t unit = 256;  // units of length in a pixel

  /// In units of 1/256 pixel; the centre is measured from the frame's upper left corner.
  struct Ball {
    std::int64_t x, y, radius;
  };

  /// The ball's position along one axis in frame `frame`, 0 to `range` (units): a triangle wave
  /// that goes to and fro `cycles` times in a pass. Its phase depends on the seed and `salt`.
  [[nodiscard]] std::int64_t bounce(std::uint64_t frame, std::uint64_t cycles, std::uint64_t salt,
                                    std::int64_t range) const {
    constexpr std::uint64_t turn = 1U << 16;
    const std::uint64_t begin = detail::mix(options_.seed ^ salt);
    const std::uint64_t gone = frame * (cycles % options_.frames) % options_.frames;
    const std::uint64_t phase = (begin + gone * turn / options_.frames) % turn;
    const std::uint64_t out = phase < turn / 2 ? phase : turn - phase;
    return range * static_cast<std::int64_t>(out) / static_cast<std::int64_t>(turn / 2);
  }

  [[nodiscard]] Ball ball_at(std::uint64_t frame) const {
    const std::int64_t radius = std::min(shape_.width, shape_.height) * unit / 8;
    const std::uint64_t across = std::max<std::uint64_t>(1, options_.frames * 14 / 1000);
    const std::uint64_t down = std::max<std::uint64_t>(1, options_.frames * 11 / 1000);
    return {radius + bounce(frame, across, 0x78, shape_.width * unit - 2 * radius),
            radius + bounce(frame, down, 0x79, shape_.height * unit - 2 * radius), radius};
  }

  static Box box(const Ball& ball) {
    const auto pixels = [](std::int64_t units) {
      return static_cast<float>(units) / static_cast<float>(unit);
    };
    return {pixels(ball.x - ball.radius), pixels(ball.y - ball.radius), pixels(2 * ball.radius),
            pixels(2 * ball.radius)};
  }

  /// A colour (0 to 255 each) as `channels` bytes: blue, green and red, or their luminance, and
  /// that it is opaque.
  static std::array<std::uint8_t, 4> colour(std::uint32_t blue, std::uint32_t green,
                                            std::uint32_t red, int channels) {
    constexpr std::uint8_t opaque = 255;
    const std::uint32_t grey = (29 * blue + 150 * green + 77 * red) / 256;
    if (channels < 3) return {static_cast<std::uint8_t>(grey), opaque};
    return {static_cast<std::uint8_t>(blue), static_cast<std::uint8_t>(green),
            static_cast<std::uint8_t>(red), opaque};
  }

  /// Renders the background for frames of `shape`: a coarse and a fine texture in shades of brown,
  /// in cells whose size scales with the frame.
  void paint_background(const FrameShape& shape) {
    shape_ = shape;
    background_.resize(shape.size());
    const auto side = static_cast<std::uint64_t>(std::max(shape.width, shape.height));
    const auto in_cells = [side](int pixel, std::uint64_t cells) {
      return static_cast<std::uint32_t>(static_cast<std::uint64_t>(pixel) * 256 * cells / side);
    };
    auto out = background_.begin();
    for (int y = 0; y < shape.height; ++y) {
      for (int x = 0; x < shape.width; ++x) {
        const std::uint32_t coarse = detail::noise(options_.seed, in_cells(x, 5), in_cells(y, 5));
        const std::uint32_t fine = detail::noise(~options_.seed, in_cells(x, 15), in_cells(y, 15));
        const std::uint32_t shade = 2 * coarse + fine;
        const auto bytes = colour(30 + shade / 8, 40 + shade / 6, 50 + shade / 5, shape.channels);
        out = std::copy_n(bytes.begin(), shape.channels, out);
      }
    }
  }

  /// How much of a pixel the ball covers, 0 to 256. (dx, dy): from the ball's centre to that of the
  /// pixel, in units. To first order, the pixel's distance to the edge is (r^2 - d^2) / 2r.
  static std::int64_t coverage(const Ball& ball, std::int64_t dx, std::int64_t dy) {
    const std::int64_t inside = ball.radius * ball.radius - dx * dx - dy * dy;
    return std::clamp<std::int64_t>(inside / (2 * ball.radius) + unit / 2, 0, unit);
  }

  void paint(const Ball& ball, std::span<std::uint8_t> pixels) const {
    const auto green = colour(50, 210, 60, shape_.channels);
    const auto channels = static_cast<std::size_t>(shape_.channels);
    const auto first = [&](std::int64_t centre) {
      return std::max<std::int64_t>((centre - ball.radius) / unit - 1, 0);
    };
    const auto last = [&](std::int64_t centre, int side) {
      return std::min<std::int64_t>((centre + ball.radius) / unit + 1, side - 1);
    };
    for (std::int64_t y = first(ball.y); y <= last(ball.y, shape_.height); ++y) {
      for (std::int64_t x = first(ball.x); x <= last(ball.x, shape_.width); ++x) {
        const std::int64_t covered =
            coverage(ball, x * unit + unit / 2 - ball.x, y * unit + unit / 2 - ball.y);
        if (covered == 0) continue;
        const auto at = static_cast<std::size_t>(y * shape_.width + x) * channels;
        for (std::size_t c = 0; c < channels; ++c) {
          const std::int64_t behind = pixels[at + c];
          pixels[at + c] = static_cast<std::uint8_t>(behind + (std::int64_t{green[c]} - behind) *
                                                                  covered / unit);
        }
      }
    }
  }

  SyntheticOptions options_;
  Position position_;
  FrameShape shape_{};
  std::vector<std::uint8_t> background_;
};

static_assert(FrameSource<Synthetic>);

}  // namespace pvm::inline v0::io
