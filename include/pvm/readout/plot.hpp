// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Draws the success curves of a comparison. Needs OpenCV.

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/core/error.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/readout/compare.hpp>

namespace pvm::inline v0::readout {

/// A picture of the share of the frames (up) in which the overlap is above a threshold (right), a
/// curve for each row, with its AUC.
inline cv::Mat draw_success(std::span<const Compared> rows, const std::string& title) {
  constexpr int width = 900, height = 480, left = 60, top = 40, side = 380;
  cv::Mat picture(height, width, CV_8UC3, cv::Scalar::all(255));
  const auto text = [&](int x, int y, const std::string& words, const cv::Scalar& colour) {
    cv::putText(picture, words, {x, y}, cv::FONT_HERSHEY_SIMPLEX, 0.42, colour, 1, cv::LINE_AA);
  };
  text(left, 24, title, cv::Scalar::all(0));
  for (int k = 0; k <= 4; ++k) {
    const int at = side * k / 4;
    cv::line(picture, {left, top + at}, {left + side, top + at}, cv::Scalar::all(220));
    cv::line(picture, {left + at, top}, {left + at, top + side}, cv::Scalar::all(220));
    char label[16];
    std::snprintf(label, sizeof label, "%.2f", k / 4.0);
    text(left + at - 12, top + side + 18, label, cv::Scalar::all(60));
    text(left - 40, top + side - at + 4, label, cv::Scalar::all(60));
  }
  text(left + 60, top + side + 40, "overlap with the true box above", cv::Scalar::all(60));
  const cv::Scalar colours[] = {{180, 119, 31},  {14, 127, 255}, {44, 160, 44},   {40, 39, 214},
                                {189, 103, 148}, {75, 86, 140},  {194, 119, 227}, {127, 127, 127},
                                {34, 189, 188},  {207, 190, 23}};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    const cv::Scalar& colour = colours[r % std::size(colours)];
    std::vector<cv::Point> line;
    for (int i = 0; i < TrackingScore::thresholds; ++i) {
      line.emplace_back(left + side * i / (TrackingScore::thresholds - 1),
                        top + static_cast<int>(side * (1 - rows[r].score.success(i))));
    }
    cv::polylines(picture, line, false, colour, 2, cv::LINE_AA);
    char label[96];
    std::snprintf(label, sizeof label, "%.3f  %s", rows[r].score.auc(), rows[r].name.c_str());
    const int y = top + 16 + static_cast<int>(r) * 22;
    cv::line(picture, {left + side + 24, y - 4}, {left + side + 48, y - 4}, colour, 2);
    text(left + side + 56, y, label, cv::Scalar::all(0));
  }
  return picture;
}

/// Writes a picture as PNG. Throws Error (Fault::usage) if the name does not end in .png,
/// Fault::checkpoint if it cannot be written.
inline void write_png(const std::filesystem::path& path, const cv::Mat& picture) {
  if (path.extension() != ".png") {
    throw Error(Fault::usage, "the plot cannot be written to " + quote(path.string()) +
                                  ": its name must end in .png");
  }
  std::vector<std::uint8_t> png;
  cv::imencode(".png", picture, png);
  io::make_directories_of(path);
  io::AtomicFile file(path);
  file.write(png.data(), png.size());
  file.commit(false);
}

}  // namespace pvm::inline v0::readout
