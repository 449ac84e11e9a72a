// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Draws a network: its layers as sheets one above the other, and what one unit reads. Needs
/// OpenCV.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <string>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/io/chart.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::io {

namespace detail {

/// A layer seen from above at a slant: where its cells are in the picture.
struct SlantedLayer {
  cv::Point2d origin{};  ///< of the sheet's far left corner
  double width = 0;      ///< of its edges from left to right
  int side = 1;          ///< number of cells along an edge

  static constexpr double slant = 0.45, depth = 0.32;  ///< of the edges that lead to the front

  [[nodiscard]] cv::Point at(double row, double column) const {
    const double x = width * column / side, y = width * row / side;
    return {cvRound(origin.x + x - slant * y), cvRound(origin.y + depth * y)};
  }
  [[nodiscard]] std::array<cv::Point, 4> cell(int row, int column) const {
    return {at(row, column), at(row, column + 1), at(row + 1, column + 1), at(row + 1, column)};
  }
  [[nodiscard]] cv::Point middle(int row, int column) const { return at(row + 0.5, column + 0.5); }
};

inline void fill_cell(cv::Mat& picture, const SlantedLayer& sheet, int row, int column,
                      const cv::Scalar& colour) {
  const auto corners = sheet.cell(row, column);
  cv::fillConvexPoly(picture, corners.data(), static_cast<int>(corners.size()), colour,
                     cv::LINE_AA);
}

/// The outline of a sheet, and its cells unless they would be smaller than three pixels.
inline void draw_sheet(cv::Mat& picture, const SlantedLayer& sheet) {
  const cv::Scalar line = cv::Scalar::all(150), face(250, 240, 228);
  const std::array outline = {sheet.at(0, 0), sheet.at(0, sheet.side),
                              sheet.at(sheet.side, sheet.side), sheet.at(sheet.side, 0)};
  cv::fillConvexPoly(picture, outline.data(), static_cast<int>(outline.size()), face, cv::LINE_AA);
  const int step = std::max(1, cvCeil(3.0 * sheet.side / sheet.width));
  for (int k = 0; k <= sheet.side; k += step == 1 ? 1 : sheet.side) {
    cv::line(picture, sheet.at(k, 0), sheet.at(k, sheet.side), line, 1, cv::LINE_AA);
    cv::line(picture, sheet.at(0, k), sheet.at(sheet.side, k), line, 1, cv::LINE_AA);
  }
}

}  // namespace detail

/// A picture of the network: the frame at the bottom, divided into patches, and each layer above
/// the one that it reads. One unit in the middle of a layer is red; the units (or the patch) that
/// it predicts are green, and those that are its context blue.
inline cv::Mat draw_network(const Spec& spec, const Connectome& net) {
  constexpr int sheet_width = 420, margin = 30, least_gap = 34;
  constexpr double front = sheet_width * detail::SlantedLayer::depth;
  const int layers = static_cast<int>(spec.layer_shapes.size());
  const int most = *std::max_element(spec.layer_shapes.begin(), spec.layer_shapes.end());
  // From the frame upwards; a sheet needs room for half of its own depth and half of the one below.
  std::vector<detail::SlantedLayer> sheets;
  std::vector<double> middles;
  double y = 0, last_depth = 0;
  for (int s = 0; s <= layers; ++s) {
    const int side = spec.layer_shapes[static_cast<std::size_t>(std::max(0, s - 1))];
    const double width =
        s == 0 ? sheet_width : std::max(16.0, static_cast<double>(sheet_width) * side / most);
    const double depth = width * detail::SlantedLayer::depth;
    if (s > 0) y -= std::max<double>(least_gap, 0.33 * (depth + last_depth) + 14);
    last_depth = depth;
    middles.push_back(y);
    sheets.push_back({{0, 0}, width, side});
  }
  const double top = -y + front / 2 + margin + 24;
  const double centre = margin + sheet_width * (0.5 + detail::SlantedLayer::slant / 2) + 10;
  for (std::size_t s = 0; s < sheets.size(); ++s) {
    const double w = sheets[s].width;
    sheets[s].origin = {centre - w / 2 + detail::SlantedLayer::slant * w / 2,
                        top + middles[s] - detail::SlantedLayer::depth * w / 2};
  }
  const int text_left = cvRound(2 * centre) + 20;
  cv::Mat picture(cvRound(top + front / 2 + margin), text_left + 430, CV_8UC3,
                  cv::Scalar::all(255));

  const std::size_t shown_layer = layers > 2 ? static_cast<std::size_t>(layers) / 2 : 0;
  const int shown_side = spec.layer_shapes[shown_layer];
  const std::size_t shown =
      net.layer_start[shown_layer] +
      static_cast<std::size_t>(shown_side / 2) * static_cast<std::size_t>(shown_side + 1);
  const cv::Scalar red(60, 60, 220), green(80, 170, 60), blue(225, 170, 90);
  for (std::size_t s = 0; s < sheets.size(); ++s) {
    detail::draw_sheet(picture, sheets[s]);
    const auto fill = [&](std::uint32_t unit, const cv::Scalar& colour) {
      const Unit& u = net.units[unit];
      if (static_cast<std::size_t>(u.layer) + 1 == s) {
        detail::fill_cell(picture, sheets[s], u.row, u.column, colour);
      }
    };
    for (const std::uint32_t source : net.context[shown]) fill(source, blue);
    for (const std::uint32_t source : net.primary[shown]) fill(source, green);
    if (s == 0 && shown_layer == 0) {
      detail::fill_cell(picture, sheets[0], net.units[shown].row, net.units[shown].column, green);
    }
    fill(static_cast<std::uint32_t>(shown), red);
    const int line = cvRound(top + middles[s]) + 4;
    char text[120];
    if (s == 0) {
      std::snprintf(text, sizeof text, "frame: %d x %d x %d", spec.frame_side(), spec.frame_side(),
                    spec.input_channels);
    } else {
      const std::size_t l = s - 1, begin = net.layer_start[l], end = net.layer_start[l + 1];
      std::size_t weights = 0;
      for (std::size_t u = begin; u < end; ++u) {
        const Unit& unit = net.units[u];
        weights +=
            static_cast<std::size_t>(net.hidden) * static_cast<std::size_t>(unit.inputs) +
            static_cast<std::size_t>(unit.outputs) * static_cast<std::size_t>(unit.representation);
      }
      std::snprintf(text, sizeof text, "layer %zu: %d x %d units, %.3g M weights", l,
                    spec.layer_shapes[l], spec.layer_shapes[l], static_cast<double>(weights) / 1e6);
    }
    draw_text(picture, {text_left, line}, text);
  }
  char title[200];
  std::snprintf(title, sizeof title, "%s: %zu units of %d hidden values, %.4g M weights",
                std::string(beginning(printable(spec.name), 60)).c_str(), net.units.size(),
                net.hidden, static_cast<double>(net.weights) / 1e6);
  draw_text(picture, {margin, 24}, title);
  const int legend = picture.rows - 12;
  draw_legend_line(picture, {text_left, legend}, red, "a unit", 6);
  draw_legend_line(picture, {text_left + 100, legend}, green, "what it predicts", 6);
  draw_legend_line(picture, {text_left + 260, legend}, blue, "its context", 6);
  return picture;
}

}  // namespace pvm::inline v0::io
