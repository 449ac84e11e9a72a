// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Draws the success curves of a comparison. Needs OpenCV.

#include <cstddef>
#include <cstdio>
#include <span>
#include <string>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>

#include <pvm/io/chart.hpp>
#include <pvm/readout/compare.hpp>

namespace pvm::inline v0::readout {

/// A picture of the share of the frames (up) in which the overlap is above a threshold (right), a
/// curve for each row, with its AUC.
inline cv::Mat draw_success(std::span<const Compared> rows, const std::string& title) {
  constexpr int width = 900, height = 480;
  const cv::Rect area(60, 40, 380, 380);
  cv::Mat picture(height, width, CV_8UC3, cv::Scalar::all(255));
  io::Chart chart{title, "overlap with the true box above"};
  chart.x = chart.y = io::AxisRange{0, 1};
  for (std::size_t r = 0; r < rows.size(); ++r) {
    io::Curve& curve = chart.curves.emplace_back();
    curve.colour = io::curve_colour(r);
    for (int i = 0; i < TrackingScore::thresholds; ++i) {
      curve.points.emplace_back(static_cast<double>(i) / (TrackingScore::thresholds - 1),
                                rows[r].score.success(i));
    }
  }
  io::draw_chart(picture, area, chart);
  for (std::size_t r = 0; r < rows.size(); ++r) {
    char label[96];
    std::snprintf(label, sizeof label, "%.3f  %s", rows[r].score.auc(), rows[r].name.c_str());
    const cv::Point at(area.br().x + 24, area.y + 16 + static_cast<int>(r) * 22);
    io::draw_legend_line(picture, at, io::curve_colour(r), label);
  }
  return picture;
}

}  // namespace pvm::inline v0::readout
