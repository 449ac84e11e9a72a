// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a position of a readout reads: hidden values, pixels, colours.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/readout/colours.hpp>
#include <pvm/readout/positions.hpp>

namespace pvm::inline v0::readout {

/// The kinds of values that a position reads.
struct InputKinds {
  bool hidden = false;   ///< h of all units whose primary sources lead to the position
  bool pixels = false;   ///< the pixels of the position's patch
  bool colours = false;  ///< histograms of the patch, and of the 3 x 3 and 5 x 5 patches around it
  bool operator==(const InputKinds&) const = default;
};

/// The values that each position reads, in this order: hidden values (ascending units), pixels
/// [block][block][channels], colours [radius 0, 1, 2][bins]. Hidden values and pixels in [0, 1]
/// enter minus 1/2, so that sums of their products stay small.
class Inputs {
 public:
  static constexpr std::array<int, 3> radii = {0, 1, 2};  ///< of the histograms, in cells

  Inputs(const Spec& spec, const Connectome& net, const InputKinds& kinds)
      : kinds_(kinds),
        cells_(spec.layer_shapes.front()),
        block_(spec.input_block_size),
        channels_(spec.input_channels),
        hidden_(static_cast<std::size_t>(net.hidden)),
        hidden_values_(net.units.size() * hidden_),
        units_(position_units(net, cells_)),
        bins_(spec.input_channels) {}

  [[nodiscard]] const InputKinds& kinds() const noexcept { return kinds_; }
  /// Positions per side.
  [[nodiscard]] int cells() const noexcept { return cells_; }
  [[nodiscard]] std::size_t positions() const noexcept {
    return static_cast<std::size_t>(cells_) * static_cast<std::size_t>(cells_);
  }
  [[nodiscard]] int frame_side() const noexcept { return cells_ * block_; }
  [[nodiscard]] int channels() const noexcept { return channels_; }
  [[nodiscard]] const SourceLists& units() const noexcept { return units_; }
  [[nodiscard]] std::size_t hidden_per_unit() const noexcept { return hidden_; }
  [[nodiscard]] std::size_t hidden_values() const noexcept { return hidden_values_; }
  [[nodiscard]] std::size_t frame_bytes() const noexcept {
    const auto side = static_cast<std::size_t>(frame_side());
    return side * side * static_cast<std::size_t>(channels_);
  }
  [[nodiscard]] const ColourBins& bins() const noexcept { return bins_; }

  [[nodiscard]] std::size_t hidden_size(std::size_t position) const {
    return kinds_.hidden ? units_[position].size() * hidden_ : 0;
  }
  [[nodiscard]] std::size_t pixel_size() const noexcept { return kinds_.pixels ? patch_size() : 0; }
  [[nodiscard]] std::size_t colour_size() const noexcept {
    return kinds_.colours ? radii.size() * bins_.size() : 0;
  }
  /// The number of values that a position reads.
  [[nodiscard]] std::size_t size(std::size_t position) const {
    return hidden_size(position) + pixel_size() + colour_size();
  }

  /// Writes the values of `position` to `out`. `histograms`: as `count_colours` has filled it, if
  /// there are colours.
  void write(std::size_t position, std::span<const float> hidden,
             std::span<const std::uint8_t> frame, std::span<const float> histograms,
             float* out) const {
    if (kinds_.hidden) out = write_hidden(position, hidden, out);
    if (kinds_.pixels) out = write_pixels(position, frame, out);
    if (!kinds_.colours) return;
    for (std::size_t r = 0; r < radii.size(); ++r) {
      const float* from = histograms.data() + (r * positions() + position) * bins_.size();
      out = std::copy_n(from, bins_.size(), out);
    }
  }

  /// Fills `histograms`, [radius][position][bin], with the share of each bin among the pixels;
  /// those of larger radii only at `places`. `scratch` is resized.
  void count_colours(std::span<const std::uint8_t> frame, std::vector<float>& histograms,
                     std::vector<float>& scratch, const Places& places = {}) const {
    const std::size_t each = positions() * bins_.size();
    histograms.resize(radii.size() * each);
    std::fill_n(histograms.begin(), each, 0.0F);
    const float one = 1.0F / static_cast<float>(block_ * block_);
    for_each_pixel(frame, [&](std::size_t position, const std::uint8_t* pixel) {
      float* counts = histograms.data() + position * bins_.size();
      bins_.for_each_bin(bins_.colour(pixel),
                         [&](std::size_t bin, float share) { counts[bin] += one * share; });
    });
    const std::span<const float> cells(histograms.data(), each);
    for (std::size_t r = 1; r < radii.size(); ++r) {
      pool_cells(cells, {histograms.data() + r * each, each}, cells_, bins_.size(), radii[r],
                 scratch, places);
    }
  }

  /// Calls f(position, pixel) for every pixel of the frame.
  template <class F>
  void for_each_pixel(std::span<const std::uint8_t> frame, F&& f) const {
    const std::uint8_t* pixel = frame.data();
    for (int row = 0; row < frame_side(); ++row) {
      const auto first = static_cast<std::size_t>(row / block_ * cells_);
      for (int cell = 0; cell < cells_; ++cell) {
        for (int k = 0; k < block_; ++k, pixel += channels_) {
          f(first + static_cast<std::size_t>(cell), pixel);
        }
      }
    }
  }

  float* write_hidden(std::size_t position, std::span<const float> hidden, float* out) const {
    for (const std::uint32_t unit : units_[position]) {
      const float* from = hidden.data() + unit * hidden_;
      for (std::size_t k = 0; k < hidden_; ++k) *out++ = from[k] - 0.5F;
    }
    return out;
  }
  /// The index in a frame of each byte of the position's patch, in the order of its pixels.
  [[nodiscard]] std::vector<std::size_t> patch_bytes(std::size_t position) const {
    const std::size_t line = static_cast<std::size_t>(block_ * channels_);
    const std::size_t stride = static_cast<std::size_t>(cells_) * line;
    const auto cells = static_cast<std::size_t>(cells_);
    std::vector<std::size_t> bytes;
    for (std::size_t i = 0; i < static_cast<std::size_t>(block_); ++i) {
      const std::size_t from = (position / cells * static_cast<std::size_t>(block_) + i) * stride +
                               position % cells * line;
      for (std::size_t k = 0; k < line; ++k) bytes.push_back(from + k);
    }
    return bytes;
  }
  float* write_pixels(std::size_t position, std::span<const std::uint8_t> frame, float* out) const {
    const std::size_t line = static_cast<std::size_t>(block_ * channels_);
    const std::size_t stride = static_cast<std::size_t>(cells_) * line;
    const std::size_t row = position / static_cast<std::size_t>(cells_);
    const std::size_t column = position % static_cast<std::size_t>(cells_);
    const std::uint8_t* from =
        frame.data() + row * static_cast<std::size_t>(block_) * stride + column * line;
    for (int i = 0; i < block_; ++i, from += stride) {
      for (std::size_t k = 0; k < line; ++k) {
        *out++ = static_cast<float>(from[k]) * (1.0F / 255.0F) - 0.5F;
      }
    }
    return out;
  }

  /// Throws Error (Fault::usage) unless `hidden` and `frame` are of this network.
  void check(std::size_t hidden, std::size_t frame, std::size_t hidden_values) const {
    const auto side = static_cast<std::size_t>(frame_side());
    const std::size_t bytes = side * side * static_cast<std::size_t>(channels_);
    if (frame != bytes) {
      throw Error(Fault::usage, "the frame has " + std::to_string(frame) +
                                    " bytes and the network's frames have " +
                                    std::to_string(bytes) + ": " + std::to_string(side) + " x " +
                                    std::to_string(side) + " x " + std::to_string(channels_));
    }
    if (kinds_.hidden && hidden != hidden_values) {
      throw Error(Fault::usage, "there are " + std::to_string(hidden) +
                                    " hidden values and the network has " +
                                    std::to_string(hidden_values) + " of one sequence");
    }
  }

 private:
  [[nodiscard]] std::size_t patch_size() const noexcept {
    return static_cast<std::size_t>(block_ * block_ * channels_);
  }

  InputKinds kinds_;
  int cells_, block_, channels_;
  std::size_t hidden_;         // hidden values of a unit
  std::size_t hidden_values_;  // and of all units
  SourceLists units_;
  ColourBins bins_;
};

}  // namespace pvm::inline v0::readout
