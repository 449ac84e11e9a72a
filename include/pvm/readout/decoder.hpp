// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From a heatmap to a box: the component of the peak, above a threshold between the median and the
/// peak.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pvm/engine/host/simd.hpp>
#include <pvm/io/source.hpp>
#include <pvm/readout/colours.hpp>

namespace pvm::inline v0::readout {

struct DecoderOptions {
  double threshold = 0.5;  ///< between the median (0) and the peak (1): the object's edge
  double growth = 1.1;     ///< the box is scaled by this about its centre
  /// The object is absent if peak - median is less: in the heatmap's unit, in which 1 is a patch
  /// that the object covers. The original's 32 of 255, as a share of its labels' contrast.
  double contrast = 32 / 255.0 / 0.6;
  double least_area = 25.0 / (96 * 96);  ///< a smaller box is none; as a share of the frame
  /// A heatmap is first averaged over the positions at most so far away, row by row and column by
  /// column; 0: it is not.
  int smoothing = 0;
  bool operator==(const DecoderOptions&) const = default;
};

/// What a decoder sees in a heatmap.
struct Decoded {
  bool present = false;
  double contrast = 0;  ///< peak - median
  io::Box box{};        ///< in pixels of the heatmap; of zeros if the object is absent
};

namespace detail {

/// For each of `cells * zoom` places, the four cells that a cubic interpolation reads and their
/// weights (OpenCV's: a = -0.75; cells beyond the edge repeat it).
struct CubicTaps {
  std::vector<std::array<int, 4>> cell;
  std::vector<std::array<float, 4>> weight;

  CubicTaps(int cells, int zoom) {
    for (int i = 0; i < cells * zoom; ++i) {
      const float place = (static_cast<float>(i) + 0.5F) / static_cast<float>(zoom) - 0.5F;
      const float floor = std::floor(place);
      const float x = place - floor;
      constexpr float a = -0.75F;
      const auto outer = [](float d) { return ((a * d - 5 * a) * d + 8 * a) * d - 4 * a; };
      const auto inner = [](float d) { return ((a + 2) * d - (a + 3)) * d * d + 1; };
      std::array<float, 4> w = {outer(x + 1), inner(x), inner(1 - x), 0};
      w[3] = 1 - w[0] - w[1] - w[2];
      std::array<int, 4> c{};
      for (int k = 0; k < 4; ++k) {
        c[static_cast<std::size_t>(k)] = std::clamp(static_cast<int>(floor) - 1 + k, 0, cells - 1);
      }
      cell.push_back(c);
      weight.push_back(w);
    }
  }
};

}  // namespace detail

/// Decodes heatmaps of `cells` x `cells` positions, each of which is `zoom` x `zoom` pixels.
class Decoder {
 public:
  Decoder(int cells, int zoom, const DecoderOptions& options = {})
      : cells_(cells), side_(cells * zoom), taps_(cells, zoom), options_(options) {}

  [[nodiscard]] DecoderOptions& options() noexcept { return options_; }
  [[nodiscard]] const DecoderOptions& options() const noexcept { return options_; }
  /// Pixels per side.
  [[nodiscard]] int side() const noexcept { return side_; }

  /// A heatmap, smoothed, at full size, [side][side]; valid until the next call.
  std::span<const float> enlarged(std::span<const float> heat) {
    enlarge(smoothed(heat));
    return large_;
  }

  Decoded decode(std::span<const float> given) {
    const std::span<const float> heat = smoothed(given);
    enlarge(heat);
    const float peak = peak_value();
    const float median = median_of(heat);
    const double contrast = static_cast<double>(peak) - static_cast<double>(median);
    if (!(contrast > options_.contrast)) return {false, contrast};
    const float level = median + static_cast<float>(options_.threshold * contrast);
    const auto at = std::find(large_.begin(), large_.end(), peak);
    return judge(peak, median, component(static_cast<int>(at - large_.begin()), level));
  }

  /// Decides whether a peak is an object; `box` is that of its component.
  [[nodiscard]] Decoded judge(float peak, float median, const io::Box& box) const {
    Decoded found;
    found.contrast = static_cast<double>(peak) - static_cast<double>(median);
    if (!(found.contrast > options_.contrast)) return found;  // also if the heat is not a number
    const double area = static_cast<double>(box.width) * static_cast<double>(box.height);
    if (!(area > options_.least_area * side_ * side_)) return found;
    found.present = true;
    found.box = grown(box);
    return found;
  }

  /// The interpolation to full size, along either axis.
  [[nodiscard]] const detail::CubicTaps& taps() const noexcept { return taps_; }

  /// The heatmap of the last `decode` at full size, [side][side].
  [[nodiscard]] std::span<const float> large() const noexcept { return large_; }

 private:
  /// Cubic interpolation to [side][side]: first along the rows, then between them.
  struct Between {
    const Decoder& self;
    float* out;

    [[gnu::always_inline]] inline void operator()() const {
      const auto side = static_cast<std::size_t>(self.side_);
      for (std::size_t i = 0; i < side; ++i) {
        const auto& cell = self.taps_.cell[i];
        const auto& weight = self.taps_.weight[i];
        const float* rows[4];
        for (std::size_t k = 0; k < 4; ++k) {
          rows[k] = self.wide_.data() + static_cast<std::size_t>(cell[k]) * side;
        }
        float* to = out + i * side;
        for (std::size_t j = 0; j < side; ++j) {
          to[j] = (weight[0] * rows[0][j] + weight[1] * rows[1][j]) +
                  (weight[2] * rows[2][j] + weight[3] * rows[3][j]);
        }
      }
    }
  };

  /// The largest of values, at least one of them, by whole vectors. If some are not numbers, it may
  /// be none, or the largest of a part of the others.
  struct Largest {
    std::span<const float> values;
    float& out;

    [[gnu::always_inline]] inline void operator()() const {
      const std::size_t whole = values.size() / simd::width * simd::width;
      simd::Lanes most = {};
      most += values[0];
      for (std::size_t i = 0; i < whole; i += simd::width) {
        const simd::Lanes& some = simd::at(values.data() + i);
        most = some > most ? some : most;
      }
      out = most[0];
      for (std::size_t l = 1; l < simd::width; ++l) out = most[l] > out ? most[l] : out;
      for (std::size_t i = whole; i < values.size(); ++i) out = values[i] > out ? values[i] : out;
    }
  };
  /// The largest value of the enlarged heatmap.
  [[nodiscard]] float peak_value() const {
    float largest = 0;
    simd::for_best_isa(Largest{large_, largest});
    return largest;
  }

  std::span<const float> smoothed(std::span<const float> heat) {
    if (options_.smoothing <= 0) return heat;
    smooth_.resize(heat.size());
    pool_cells(heat, smooth_, cells_, 1, options_.smoothing, scratch_);
    return smooth_;
  }

  void enlarge(std::span<const float> heat) {
    const auto side = static_cast<std::size_t>(side_);
    const auto cells = static_cast<std::size_t>(cells_);
    wide_.resize(cells * side);
    large_.resize(side * side);
    for (std::size_t row = 0; row < cells; ++row) {
      const float* from = heat.data() + row * cells;
      for (std::size_t j = 0; j < side; ++j) {
        const auto& cell = taps_.cell[j];
        const auto& weight = taps_.weight[j];
        float sum = 0;
        for (std::size_t k = 0; k < 4; ++k) {
          sum += weight[k] * from[static_cast<std::size_t>(cell[k])];
        }
        wide_[row * side + j] = sum;
      }
    }
    simd::for_best_isa(Between{*this, large_.data()});
  }

  /// The median of the positions, which is that of the pixels but for the interpolation.
  float median_of(std::span<const float> heat) {
    sorted_.assign(heat.begin(), heat.end());
    const auto middle = sorted_.begin() + static_cast<std::ptrdiff_t>(sorted_.size() / 2);
    std::nth_element(sorted_.begin(), middle, sorted_.end());
    return *middle;
  }

  /// The bounding box of the pixels above `level` that are connected (by edges or corners) to pixel
  /// `start`.
  io::Box component(int start, float level) {
    seen_.assign(large_.size(), 0);
    open_.assign(1, start);
    seen_[static_cast<std::size_t>(start)] = 1;
    int left = side_, right = -1, top = side_, bottom = -1;
    while (!open_.empty()) {
      const int at = open_.back();
      open_.pop_back();
      const int row = at / side_;
      const int column = at % side_;
      left = std::min(left, column);
      right = std::max(right, column);
      top = std::min(top, row);
      bottom = std::max(bottom, row);
      for (int i = std::max(0, row - 1); i <= std::min(side_ - 1, row + 1); ++i) {
        for (int j = std::max(0, column - 1); j <= std::min(side_ - 1, column + 1); ++j) {
          const auto next = static_cast<std::size_t>(i * side_ + j);
          if (seen_[next] != 0 || !(large_[next] > level)) continue;
          seen_[next] = 1;
          open_.push_back(i * side_ + j);
        }
      }
    }
    return {static_cast<float>(left), static_cast<float>(top), static_cast<float>(right - left + 1),
            static_cast<float>(bottom - top + 1)};
  }

  /// The box scaled about its centre, cut at the edges of the frame.
  [[nodiscard]] io::Box grown(const io::Box& box) const {
    const auto axis = [this](float from, float length) {
      const float more = length * static_cast<float>(options_.growth - 1) / 2;
      const float low = std::max(0.0F, from - more);
      const float high = std::min(static_cast<float>(side_), from + length + more);
      return std::pair{low, high - low};
    };
    const auto [x, width] = axis(box.x, box.width);
    const auto [y, height] = axis(box.y, box.height);
    return {x, y, width, height};
  }

  int cells_, side_;
  detail::CubicTaps taps_;
  DecoderOptions options_;
  std::vector<float> smooth_, scratch_, wide_, large_, sorted_;
  std::vector<std::uint8_t> seen_;
  std::vector<int> open_;
};

}  // namespace pvm::inline v0::readout
