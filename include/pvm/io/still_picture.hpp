// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Notices when a video repeats the same picture, which OpenCV also does after a change of size.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

/// Counts how long a video's picture has not changed.
class StillPicture {
 public:
  /// Must be called with every decoded picture and its frame index. True if the video should be
  /// checked now: the picture has not changed for `patience` frames, and the index is at least
  /// twice that of the previous check, so that checks that decode the video from its start cost no
  /// more than reading it.
  bool check_is_due(const cv::Mat& picture, std::uint64_t index) {
    if (!same_rows(picture)) {
      since_ = index + 1;
      return false;
    }
    if (index < since_ + patience || index < 2 * checked_at_) return false;
    checked_at_ = index;
    return true;
  }

  /// The index of the first frame that equals the one before it, in the latest run of such frames.
  [[nodiscard]] std::uint64_t since() const noexcept { return since_; }

 private:
  static constexpr std::uint64_t patience = 8;
  static constexpr int every = 16;  // only every 16th row is compared: enough to notice motion

  /// Whether the compared rows equal those of the picture before; remembers them.
  bool same_rows(const cv::Mat& picture) {
    const std::size_t row = static_cast<std::size_t>(picture.cols) * picture.elemSize();
    const auto rows = static_cast<std::size_t>((picture.rows + every - 1) / every);
    bool same = rows_.size() == rows * row;
    rows_.resize(rows * row);
    for (std::size_t i = 0; i < rows; ++i) {
      const auto* now = picture.ptr(static_cast<int>(i) * every);
      same = same && std::memcmp(rows_.data() + i * row, now, row) == 0;
      if (!same) std::memcpy(rows_.data() + i * row, now, row);
    }
    return same;
  }

  std::vector<std::uint8_t> rows_;  // the compared rows of the picture before
  std::uint64_t since_ = 0;
  std::uint64_t checked_at_ = 0;  // the frame of the latest check
};

}  // namespace pvm::inline v0::io
