// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The measures of the original's benchmark: how well the boxes of a tracker fit the true ones.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>

#include <pvm/io/source.hpp>

namespace pvm::inline v0::readout {

/// Intersection over union of two boxes; 0 if they do not meet.
inline double overlap(const io::Box& a, const io::Box& b) {
  const auto common = [](float p, float length, float q, float other) {
    const double low = std::max(p, q);
    const double high = std::min(static_cast<double>(p) + length, static_cast<double>(q) + other);
    return std::max(0.0, high - low);
  };
  const double both = common(a.x, a.width, b.x, b.width) * common(a.y, a.height, b.y, b.height);
  const double all =
      static_cast<double>(a.width) * a.height + static_cast<double>(b.width) * b.height - both;
  return both <= 0 ? 0 : both / (all + 1e-5);
}

/// Counts over labelled frames. Frames without a label do not count. Counts of clips can be added:
/// frames are pooled, not averaged over clips.
class TrackingScore {
 public:
  static constexpr int thresholds = 100;  ///< of success: 0, 1/99, ..., 1

  /// Adds a frame. `side`: of the frame, in pixels of the boxes; `found`: the tracker's box if it
  /// sees the object.
  void add(const io::Label& truth, const std::optional<io::Box>& found, double side) {
    if (truth.state == io::LabelState::unlabelled) return;
    ++frames_;
    if (truth.state == io::LabelState::absent) {
      ++(found ? false_positive_ : true_negative_);
      return;
    }
    if (!found) {
      ++false_negative_;
      return;
    }
    ++true_positive_;
    const double share = overlap(truth.box, *found);
    for (int i = 0; i < thresholds; ++i) {
      if (share > i / (thresholds - 1.0)) ++success_[static_cast<std::size_t>(i)];
    }
    const double dx =
        std::abs(centre(truth.box.x, truth.box.width) - centre(found->x, found->width));
    const double dy =
        std::abs(centre(truth.box.y, truth.box.height) - centre(found->y, found->height));
    if (std::hypot(dx, dy) * 96 / side < 10) ++precise_;
    const double pixel = side / 96;  // as in the original, which works on 96 x 96 pixels
    const bool inside = 2 * dx / (truth.box.width + pixel / 96) <= 1 &&
                        2 * dy / (truth.box.height + pixel / 96) <= 1;
    if (inside) ++inside_;
  }

  TrackingScore& operator+=(const TrackingScore& other) {
    for (std::size_t i = 0; i < success_.size(); ++i) success_[i] += other.success_[i];
    frames_ += other.frames_;
    true_positive_ += other.true_positive_;
    true_negative_ += other.true_negative_;
    false_positive_ += other.false_positive_;
    false_negative_ += other.false_negative_;
    precise_ += other.precise_;
    inside_ += other.inside_;
    return *this;
  }

  [[nodiscard]] std::uint64_t frames() const noexcept { return frames_; }
  /// Frames that have the object.
  [[nodiscard]] std::uint64_t present() const noexcept { return true_positive_ + false_negative_; }

  /// The mean over all thresholds of the share of the frames that have the object in which the
  /// overlap is above the threshold. Misses count as 0, false alarms do not count.
  [[nodiscard]] double auc() const {
    double sum = 0;
    for (const std::uint64_t count : success_) sum += static_cast<double>(count);
    return ratio(sum / thresholds, static_cast<double>(present()));
  }
  /// The share at one threshold.
  [[nodiscard]] double success(int threshold) const {
    return ratio(static_cast<double>(success_[static_cast<std::size_t>(threshold)]),
                 static_cast<double>(present()));
  }
  /// The share of the frames that have the object in which the centres are less than 10 pixels
  /// apart on a side of 96.
  [[nodiscard]] double precision() const { return ratio(precise_, present()); }
  /// The share of all frames in which it is right whether the object is there.
  [[nodiscard]] double presence() const { return ratio(true_positive_ + true_negative_, frames_); }
  /// The share of the frames without the object in which none is seen; 1 if there are no such
  /// frames.
  [[nodiscard]] double true_negative_rate() const {
    const std::uint64_t absent = true_negative_ + false_positive_;
    return absent == 0 ? 1 : ratio(true_negative_, absent);
  }
  /// The share of all frames in which the centre lies inside of the true box, or the object is
  /// rightly not seen: the measure of the published benchmark.
  [[nodiscard]] double accuracy() const { return ratio(inside_ + true_negative_, frames_); }

 private:
  static double centre(float from, float length) {
    return from + 0.5 * static_cast<double>(length);
  }
  template <class A, class B>
  static double ratio(A part, B whole) {
    return whole == 0 ? 0 : static_cast<double>(part) / static_cast<double>(whole);
  }

  std::array<std::uint64_t, thresholds> success_{};
  std::uint64_t frames_ = 0, true_positive_ = 0, true_negative_ = 0, false_positive_ = 0,
                false_negative_ = 0, precise_ = 0, inside_ = 0;
};

}  // namespace pvm::inline v0::readout
