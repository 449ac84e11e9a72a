// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Draws curves in a frame with axes and a legend. Needs OpenCV.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/io/atomic_file.hpp>

namespace pvm::inline v0::io {

/// The colour of the `k`th curve of a chart, as OpenCV has colours (BGR). They repeat after ten.
inline cv::Scalar curve_colour(std::size_t k) {
  static const std::array<cv::Scalar, 10> colours = {{{180, 119, 31},
                                                      {14, 127, 255},
                                                      {44, 160, 44},
                                                      {40, 39, 214},
                                                      {189, 103, 148},
                                                      {75, 86, 140},
                                                      {194, 119, 227},
                                                      {127, 127, 127},
                                                      {34, 189, 188},
                                                      {207, 190, 23}}};
  return colours[k % colours.size()];
}

/// Writes `words` in black or `colour`; `at` is where the first letter stands.
inline void draw_text(cv::Mat& picture, const cv::Point& at, const std::string& words,
                      const cv::Scalar& colour = cv::Scalar::all(0)) {
  cv::putText(picture, words, at, cv::FONT_HERSHEY_SIMPLEX, 0.42, colour, 1, cv::LINE_AA);
}

/// How many pixels wide `words` are in `draw_text`.
inline int text_width(const std::string& words) {
  int below = 0;
  return cv::getTextSize(words, cv::FONT_HERSHEY_SIMPLEX, 0.42, 1, &below).width;
}

/// A curve through points, in the units of the axes. Points that are not finite are left out.
struct Curve {
  std::vector<cv::Point2d> points{};
  cv::Scalar colour{};
  int thickness = 2;
};

/// The range of an axis.
struct AxisRange {
  double least = 0, most = 1;
};

struct Chart {
  std::string title{}, x_label{}, y_label{};
  std::vector<Curve> curves{};
  std::optional<AxisRange> x{}, y{};  ///< without a value: what the points take
};

namespace detail {

/// The distance of about `count` ticks over `length`: 1, 2 or 5 times a power of ten.
inline double tick_distance(double length, int count) {
  const double raw = length / count;
  const double power = std::pow(10.0, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= raw * 0.999) return factor * power;
  }
  return 10 * power;
}

/// A tick's value in few letters: 200k, 1.5M, 24.5. `distance`: that of the ticks.
inline std::string tick_text(double value, double distance) {
  constexpr std::array<std::pair<double, const char*>, 3> units = {
      {{1e9, "G"}, {1e6, "M"}, {1e3, "k"}}};
  if (std::abs(value) < 1e-9 * distance) value = 0;  // not -0
  const char* unit = "";
  for (const auto& [size, letter] : units) {
    if (std::abs(value) < size) continue;
    value /= size;
    distance /= size;
    unit = letter;
    break;
  }
  const int digits = std::max(0, static_cast<int>(std::ceil(-std::log10(distance) - 1e-9)));
  char text[48];
  std::snprintf(text, sizeof text, "%.*f%s", std::min(digits, 9), value, unit);
  return text;
}

/// What the curves take along an axis, a little wider; at least something.
template <class Coordinate>
AxisRange range_of(std::span<const Curve> curves, const Coordinate& coordinate) {
  AxisRange range{HUGE_VAL, -HUGE_VAL};
  for (const Curve& curve : curves) {
    for (const cv::Point2d& point : curve.points) {
      if (!std::isfinite(point.x) || !std::isfinite(point.y)) continue;
      range.least = std::min(range.least, coordinate(point));
      range.most = std::max(range.most, coordinate(point));
    }
  }
  if (range.least > range.most) return {0, 1};
  double margin = 0.04 * (range.most - range.least);
  if (!(margin > 0)) margin = std::max(0.5, 0.01 * std::abs(range.least));
  return {range.least - margin, range.most + margin};
}

}  // namespace detail

/// Draws `chart` into `picture`: `area` is the frame of the curves, with labels below and on its
/// left (60 pixels) and the title above (20).
inline void draw_chart(cv::Mat& picture, const cv::Rect& area, const Chart& chart) {
  const auto x_of = [](const cv::Point2d& p) { return p.x; };
  const auto y_of = [](const cv::Point2d& p) { return p.y; };
  const AxisRange x = chart.x ? *chart.x : detail::range_of(chart.curves, x_of);
  const AxisRange y = chart.y ? *chart.y : detail::range_of(chart.curves, y_of);
  const auto place = [&](const cv::Point2d& p) {
    return cv::Point(area.x + cvRound(area.width * (p.x - x.least) / (x.most - x.least)),
                     area.y + cvRound(area.height * (y.most - p.y) / (y.most - y.least)));
  };
  const cv::Scalar grid = cv::Scalar::all(220), grey = cv::Scalar::all(60);
  const double x_distance = detail::tick_distance(x.most - x.least, 6);
  const double y_distance = detail::tick_distance(y.most - y.least, 6);
  for (double v = std::ceil(x.least / x_distance - 1e-9) * x_distance;
       v <= x.most + 1e-9 * x_distance; v += x_distance) {
    const cv::Point at = place({v, y.least});
    cv::line(picture, {at.x, area.y}, {at.x, area.br().y}, grid);
    const std::string text = detail::tick_text(v, x_distance);
    draw_text(picture, {at.x - text_width(text) / 2, area.br().y + 18}, text, grey);
  }
  for (double v = std::ceil(y.least / y_distance - 1e-9) * y_distance;
       v <= y.most + 1e-9 * y_distance; v += y_distance) {
    const cv::Point at = place({x.least, v});
    cv::line(picture, {area.x, at.y}, {area.br().x, at.y}, grid);
    const std::string text = detail::tick_text(v, y_distance);
    draw_text(picture, {area.x - 8 - text_width(text), at.y + 4}, text, grey);
  }
  cv::rectangle(picture, area, cv::Scalar::all(160));
  draw_text(picture, {area.x, area.y - 8}, chart.title);
  draw_text(picture, {area.x + (area.width - text_width(chart.x_label)) / 2, area.br().y + 38},
            chart.x_label, grey);
  draw_text(picture, {area.br().x - text_width(chart.y_label), area.y - 8}, chart.y_label, grey);
  for (const Curve& curve : chart.curves) {
    std::vector<cv::Point> line;
    for (const cv::Point2d& point : curve.points) {
      if (std::isfinite(point.x) && std::isfinite(point.y)) line.push_back(place(point));
    }
    if (line.size() == 1) cv::circle(picture, line.front(), 3, curve.colour, -1, cv::LINE_AA);
    cv::polylines(picture, line, false, curve.colour, curve.thickness, cv::LINE_AA);
  }
}

/// A line of a legend: a stroke, and what it stands for behind it.
inline void draw_legend_line(cv::Mat& picture, const cv::Point& at, const cv::Scalar& colour,
                             const std::string& words, int thickness = 2) {
  cv::line(picture, {at.x, at.y - 4}, {at.x + 24, at.y - 4}, colour, thickness);
  draw_text(picture, {at.x + 32, at.y}, words);
}

/// Throws Error (Fault::usage) if the name does not end in .png.
inline void require_png_name(const std::filesystem::path& path) {
  if (path.extension() == ".png") return;
  throw Error(Fault::usage, "the picture cannot be written to " + quote(path.string()) +
                                ": its name must end in .png");
}

/// Writes a picture as PNG. Throws Error (Fault::usage) if the name does not end in .png,
/// Fault::checkpoint if it cannot be written.
inline void write_png(const std::filesystem::path& path, const cv::Mat& picture) {
  require_png_name(path);
  std::vector<std::uint8_t> png;
  cv::imencode(".png", picture, png);
  io::make_directories_of(path);
  io::AtomicFile file(path);
  file.write(png.data(), png.size());
  file.commit(false);
}

}  // namespace pvm::inline v0::io
