// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Segmentation: which class each pixel belongs to, as pictures of class numbers, from the heatmaps
/// of all classes; and how well two such pictures agree.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/readout/decoder.hpp>

namespace pvm::inline v0::readout {

/// In a picture of classes, 0 is none of them, 1 the first, and this says that nothing is known.
inline constexpr std::uint8_t unknown_class = 255;
inline constexpr std::size_t most_classes = 254;

/// Writes into `out`, [cells][cells], which share of the known pixels of each cell are of `number`.
/// `classes` is [side][side].
inline void cover_class(std::span<const std::uint8_t> classes, std::uint8_t number,
                        std::span<float> out, int cells) {
  const auto across = static_cast<std::size_t>(cells);
  std::vector<int> own(out.size()), known(out.size());
  std::size_t side = across;
  while (side * side < classes.size()) side += across;
  const std::size_t cell = side / across;
  for (std::size_t i = 0; i < classes.size(); ++i) {
    const std::size_t at = i / side / cell * across + i % side / cell;
    known[at] += classes[i] != unknown_class ? 1 : 0;
    own[at] += classes[i] == number ? 1 : 0;
  }
  for (std::size_t p = 0; p < out.size(); ++p) {
    out[p] = known[p] > 0 ? static_cast<float>(own[p]) / static_cast<float>(known[p]) : 0;
  }
}

/// Throws Error (Fault::usage) unless `picture`, of `side` x `side` pixels, has only numbers of
/// `classes` classes.
inline void check_classes(std::span<const std::uint8_t> picture, int side, std::size_t classes) {
  const auto pixels = static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
  if (picture.size() != pixels) {
    throw Error(Fault::usage, "the picture of classes has " + std::to_string(picture.size()) +
                                  " pixels and the network's frames have " +
                                  std::to_string(pixels));
  }
  for (const std::uint8_t number : picture) {
    if (number <= classes || number == unknown_class) continue;
    throw Error(Fault::usage, "the picture of classes has a pixel of class " +
                                  std::to_string(number) + ", and there are " +
                                  std::to_string(classes) +
                                  "; 0 is none of them and 255 says that it is not known");
  }
}

/// Writes into `out`, [side][side], the class with the largest heat at each pixel. `heats`: of each
/// class, [cells][cells]; each is averaged over the cells around each cell (`smoothing`, a radius)
/// and enlarged. None has what the classes leave of 1. Of equal heats the first class counts.
inline void mask_classes(std::span<const std::vector<float>> heats, int cells, int zoom,
                         int smoothing, std::span<std::uint8_t> out) {
  DecoderOptions options;
  options.smoothing = smoothing;
  Decoder decoder(cells, zoom, options);
  std::vector<float> best(out.size()), none(out.size(), 1.0F);
  std::fill(out.begin(), out.end(), std::uint8_t{0});
  for (std::size_t k = 0; k < heats.size(); ++k) {
    const std::span<const float> large = decoder.enlarged(heats[k]);
    for (std::size_t i = 0; i < out.size(); ++i) {
      none[i] -= large[i];
      if (k > 0 && !(large[i] > best[i])) continue;
      best[i] = large[i];
      out[i] = static_cast<std::uint8_t>(k + 1);
    }
  }
  for (std::size_t i = 0; i < out.size(); ++i) {
    if (!(best[i] > none[i])) out[i] = 0;
  }
}

/// How well pictures of classes agree, as the original measures it: for each class the mean over
/// frames of intersection over union, 1 where the class is in neither picture; and the mean of the
/// classes. Pixels that are not known do not count.
class ClassScore {
 public:
  explicit ClassScore(std::size_t classes) : sums_(classes) {}

  void add(std::span<const std::uint8_t> found, std::span<const std::uint8_t> truth) {
    std::vector<std::uint64_t> both(sums_.size()), any(sums_.size());
    for (std::size_t i = 0; i < truth.size(); ++i) {
      const std::uint8_t one = found[i], two = truth[i];
      if (two == unknown_class) continue;
      if (one > 0) ++any[one - 1U];
      if (two > 0 && one != two) ++any[two - 1U];
      if (one > 0 && one == two) ++both[one - 1U];
    }
    for (std::size_t k = 0; k < sums_.size(); ++k) {
      sums_[k] += any[k] == 0 ? 1 : static_cast<double>(both[k]) / static_cast<double>(any[k]);
    }
    ++frames_;
  }
  [[nodiscard]] std::uint64_t frames() const noexcept { return frames_; }
  /// The overlap of class number k + 1; 0 if there are no frames.
  [[nodiscard]] double overlap(std::size_t k) const {
    return frames_ == 0 ? 0 : sums_.at(k) / static_cast<double>(frames_);
  }
  [[nodiscard]] double mean() const {
    double sum = 0;
    for (std::size_t k = 0; k < sums_.size(); ++k) sum += overlap(k);
    return sums_.empty() ? 0 : sum / static_cast<double>(sums_.size());
  }

 private:
  std::vector<double> sums_;
  std::uint64_t frames_ = 0;
};

}  // namespace pvm::inline v0::readout
