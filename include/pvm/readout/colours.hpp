// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which colours there are in the cells of a frame: soft histograms, and sums over tables of
/// colours, which are what a linear function of such histograms comes to.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::readout {

/// A histogram has `knots` values per channel (5 x 5 x 5 for BGR), or `grey_knots` for grey frames.
/// A pixel counts for the knots around its colour, in proportion to how near it is to each. Colours
/// are first reduced to `levels` per channel.
struct ColourBins {
  static constexpr int knots = 5;
  static constexpr int grey_knots = 16;
  static constexpr int levels = 32;

  /// `channels`: of the frames, 1 to 4. Alpha is no colour.
  explicit ColourBins(int channels) : channels_(channels < 3 ? 1 : 3) {
    const int k = channels_ == 1 ? grey_knots : knots;
    for (int level = 0; level < levels; ++level) {
      const float place =
          static_cast<float>(level) * static_cast<float>(k - 1) / static_cast<float>(levels - 1);
      const int low = std::min(static_cast<int>(place), k - 2);
      axis_[static_cast<std::size_t>(level)] = {low, place - static_cast<float>(low)};
    }
  }

  /// The number of bins.
  [[nodiscard]] std::size_t size() const noexcept {
    return channels_ == 1 ? grey_knots : knots * knots * knots;
  }
  /// The number of reduced colours.
  [[nodiscard]] std::size_t colours() const noexcept {
    return channels_ == 1 ? levels : levels * levels * levels;
  }
  /// The reduced colour of a pixel.
  [[nodiscard]] std::size_t colour(const std::uint8_t* pixel) const noexcept {
    constexpr int shift = 3;  // 256 values to 32 levels
    std::size_t c = pixel[0] >> shift;
    for (int k = 1; k < channels_; ++k) c = c * levels + (pixel[k] >> shift);
    return c;
  }

  /// Calls f(bin, share) for the bins that a reduced colour counts for; the shares add up to 1.
  template <class F>
  void for_each_bin(std::size_t colour, F&& f) const {
    if (channels_ == 1) {
      const Place& a = axis_[colour];
      f(static_cast<std::size_t>(a.low), 1 - a.beyond);
      f(static_cast<std::size_t>(a.low) + 1, a.beyond);
      return;
    }
    const std::array<Place, 3> at = {axis_[colour / (levels * levels)],
                                     axis_[colour / levels % levels], axis_[colour % levels]};
    for (int corner = 0; corner < 8; ++corner) {
      std::size_t bin = 0;
      float share = 1;
      for (std::size_t k = 0; k < 3; ++k) {
        const bool upper = (corner >> k & 1) != 0;
        bin = bin * knots + static_cast<std::size_t>(at[k].low + (upper ? 1 : 0));
        share *= upper ? at[k].beyond : 1 - at[k].beyond;
      }
      f(bin, share);
    }
  }

 private:
  struct Place {
    int low = 0;       // the knot below
    float beyond = 0;  // how far behind it, 0 to 1
  };

  int channels_;  // of a colour
  std::array<Place, levels> axis_;
};

/// Some of the positions of a grid: every `step`-th row and column from `row` and `column` on.
struct Places {
  int row = 0, column = 0, step = 1;
};

/// Averages over the (2 radius + 1)^2 cells around each cell of `places`, those outside of the grid
/// left out. `in` and `out` are [cells][cells][values] and must not be the same; `scratch` is
/// resized. Other cells of `out` are left alone.
inline void pool_cells(std::span<const float> in, std::span<float> out, int cells,
                       std::size_t values, int radius, std::vector<float>& scratch,
                       const Places& places = {}) {
  scratch.resize(in.size());
  const auto sum_around = [&](const float* from, float* to, int at, std::size_t step) {
    const int first = std::max(0, at - radius);
    const int last = std::min(cells - 1, at + radius);
    const float share = 1.0F / static_cast<float>(last - first + 1);
    const float* part = from + static_cast<std::size_t>(first) * step;
    for (std::size_t v = 0; v < values; ++v) to[v] = share * part[v];
    for (int k = first + 1; k <= last; ++k) {
      part += step;
      for (std::size_t v = 0; v < values; ++v) to[v] += share * part[v];
    }
  };
  const std::size_t row = static_cast<std::size_t>(cells) * values;
  for (int i = 0; i < cells; ++i) {
    const std::size_t line = static_cast<std::size_t>(i) * row;
    for (int j = places.column; j < cells; j += places.step) {
      sum_around(in.data() + line, scratch.data() + line + static_cast<std::size_t>(j) * values, j,
                 values);
    }
  }
  for (int i = places.row; i < cells; i += places.step) {
    for (int j = places.column; j < cells; j += places.step) {
      const std::size_t column = static_cast<std::size_t>(j) * values;
      sum_around(scratch.data() + column, out.data() + static_cast<std::size_t>(i) * row + column,
                 i, row);
    }
  }
}

}  // namespace pvm::inline v0::readout
