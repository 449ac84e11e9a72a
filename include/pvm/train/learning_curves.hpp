// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads the metrics of runs back, and draws their learning curves. Needs nlohmann_json and OpenCV.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/need_json.hpp>
#include <pvm/core/need_opencv.hpp>

#include <nlohmann/json.hpp>
#include <opencv2/core.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/open_fault.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/io/chart.hpp>

namespace pvm::inline v0 {

/// A line of metrics. What a line does not say is NaN.
struct LearningPoint {
  double step = 0, seconds = 0;
  double psnr = 0;              ///< of the prediction, in dB
  double persistence_psnr = 0;  ///< of repeating the frame of two steps before, in dB
};

/// The metrics of a run.
struct LearningCurve {
  std::string name;  ///< the file's, without directories and extension
  std::vector<LearningPoint> points;
};

/// Reads a file that `Metrics` has written. A last line that a killed run has left incomplete is
/// left out. Throws Error (Fault::usage) if the file cannot be read, holds something else, or holds
/// no line.
inline LearningCurve read_learning_curve(const std::filesystem::path& path) {
  const auto refuse = [&](const std::string& why) {
    throw Error(Fault::usage, "metrics " + quote(path.string()) + ": " + why);
  };
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) refuse("a directory; name files of --metrics");
  std::ifstream file(path);
  if (!file) refuse("cannot be read: " + why_not_readable(path));
  LearningCurve curve{path.stem().string(), {}};
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (line.empty()) continue;
    const auto json = nlohmann::json::parse(line, nullptr, false);
    if (!json.is_object() || !json.contains("step") || !json["step"].is_number()) {
      const bool cut_off = file.eof() && !curve.points.empty();  // without the end of a line
      if (cut_off) break;
      refuse("line " + std::to_string(number) + " is no line of metrics; name files of --metrics");
    }
    const auto value = [&json](const char* key) {
      const auto found = json.find(key);
      const bool known = found != json.end() && found->is_number();
      return known ? found->get<double>() : std::numeric_limits<double>::quiet_NaN();
    };
    curve.points.push_back(
        {value("step"), value("seconds"), value("psnr"), value("persistence_psnr")});
  }
  if (curve.points.empty()) refuse("it holds no line of metrics yet");
  return curve;
}

/// A picture of the PSNR of the predictions (thick) and of repeating the frame (thin) over steps,
/// and over seconds of training; a colour for each run.
inline cv::Mat draw_learning_curves(std::span<const LearningCurve> runs) {
  constexpr int line_height = 22, side_width = 470, side_height = 400;
  const int height = std::max(side_height + 90, 60 + line_height * static_cast<int>(runs.size()));
  int legend = 250;
  std::vector<std::string> labels;
  for (const LearningCurve& run : runs) {
    double last = std::numeric_limits<double>::quiet_NaN();
    for (const LearningPoint& point : run.points) {
      if (std::isfinite(point.psnr)) last = point.psnr;
    }
    char number[32] = "";
    if (std::isfinite(last)) std::snprintf(number, sizeof number, "%.2f dB  ", last);
    labels.push_back(number + printable(beginning(run.name, 60)));
    legend = std::max(legend, io::text_width(labels.back()) + 60);
  }
  cv::Mat picture(height, 2 * (side_width + 80) + legend, CV_8UC3, cv::Scalar::all(255));
  const auto draw = [&](int left, const char* title, const char* x_label,
                        double LearningPoint::*x) {
    io::Chart chart{title, x_label, "PSNR in dB"};
    for (std::size_t r = 0; r < runs.size(); ++r) {
      io::Curve repeating{{}, io::curve_colour(r), 1}, predicted{{}, io::curve_colour(r), 2};
      for (const LearningPoint& point : runs[r].points) {
        repeating.points.emplace_back(point.*x, point.persistence_psnr);
        predicted.points.emplace_back(point.*x, point.psnr);
      }
      chart.curves.push_back(std::move(repeating));
      chart.curves.push_back(std::move(predicted));
    }
    io::draw_chart(picture, {left, 40, side_width, side_height}, chart);
  };
  draw(60, "over steps", "steps", &LearningPoint::step);
  draw(60 + side_width + 80, "over time", "seconds of training", &LearningPoint::seconds);
  const int at = 2 * (side_width + 80) + 10;
  for (std::size_t r = 0; r < runs.size(); ++r) {
    io::draw_legend_line(picture, {at, 52 + line_height * static_cast<int>(r)}, io::curve_colour(r),
                         labels[r]);
  }
  io::draw_text(picture, {at, 24}, "thick: prediction, thin: repeating", cv::Scalar::all(60));
  return picture;
}

}  // namespace pvm::inline v0
