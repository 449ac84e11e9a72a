// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Notices when a video gives the same picture again and again.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::io {

class StillPicture {
 public:
  /// To be shown every picture; says when to look closer: once a picture has been the same for
  /// `patience` frames, and so rarely that looking from the start of the video costs no more than
  /// reading it.
  bool looks_stuck(const cv::Mat& picture, std::uint64_t index) {
    if (!same_rows(picture)) {
      since_ = index + 1;
      return false;
    }
    if (index < since_ + patience || index < 2 * looked_at_) return false;
    looked_at_ = index;
    return true;
  }

  /// The first frame that was the same as the one before it.
  [[nodiscard]] std::uint64_t since() const noexcept { return since_; }

 private:
  static constexpr std::uint64_t patience = 8;
  static constexpr int every = 16;  // rows: a picture that moves shows in some of them

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

  std::vector<std::uint8_t> rows_;  // of the picture before
  std::uint64_t since_ = 0;
  std::uint64_t looked_at_ = 0;
};

}  // namespace pvm::inline v0::io
