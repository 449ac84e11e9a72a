// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the warps of a GPU do during a step (engine/cuda/units/timeline.hpp): as a picture, as a
/// trace for https://ui.perfetto.dev, and as a table.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/engine/cuda/units/timeline.hpp>
#include <pvm/io/atomic_file.hpp>
#include <pvm/io/chart.hpp>

namespace pvm_bench {

using pvm::detail::units::first_wait;
using pvm::detail::units::part_count;
using pvm::detail::units::part_names;
using pvm::detail::units::TimelinePiece;

/// Warps [first, end) of each thread block have this role.
struct Role {
  std::string name;
  std::uint32_t first = 0, end = 0;

  [[nodiscard]] bool has(const TimelinePiece& piece) const {
    return piece.warp >= first && piece.warp < end;
  }
};

/// Work has strong colours, waits have light ones (BGR).
inline cv::Scalar colour_of(std::size_t part) {
  static const std::array<cv::Scalar, part_count> colours = {{
      {120, 120, 60},  {60, 120, 180},  {190, 80, 150},  {150, 150, 100}, {40, 120, 230},
      {40, 40, 200},   {110, 60, 170},  {40, 170, 230},  {60, 160, 60},   {120, 40, 90},
      {160, 120, 200}, {200, 130, 50},  {70, 170, 170},  {110, 90, 50},   {140, 190, 90},
      {235, 225, 215}, {215, 228, 240}, {212, 212, 240}, {215, 235, 245}, {218, 238, 218},
      {225, 225, 210}, {240, 220, 230}, {222, 222, 222}, {232, 232, 232}, {228, 235, 235},
      {235, 228, 235}}};
  return colours[part];
}

/// A stretch of time, in nanoseconds since the launch began.
struct Window {
  double begin = 0, end = 0;
};

/// From the median beginning of step `from` to that of step `from` + `steps`, over all warps.
inline Window window_of(std::span<const TimelinePiece> pieces, int from, int steps) {
  std::map<int, std::vector<double>> begins;  // by step: of each warp's first piece
  std::map<std::pair<int, std::pair<std::uint32_t, std::uint32_t>>, double> of_warps;
  for (const TimelinePiece& piece : pieces) {
    const auto key = std::pair{piece.step, std::pair{piece.thread_block, piece.warp}};
    const auto [at, is_new] = of_warps.try_emplace(key, piece.begin);
    if (!is_new) at->second = std::min(at->second, piece.begin);
  }
  for (const auto& [key, begin] : of_warps) begins[key.first].push_back(begin);
  const auto median = [&](int step) {
    std::vector<double>& all = begins[step];
    if (all.empty()) return 0.0;
    std::nth_element(all.begin(), all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2),
                     all.end());
    return all[all.size() / 2];
  };
  return {median(from), median(from + steps)};
}

/// Draws a panel for each role, with a row of pixels for each warp, SM by SM; time goes from left to
/// right.
inline cv::Mat draw_timeline(const std::vector<TimelinePiece>& pieces,
                             const std::vector<Role>& roles, const Window& window,
                             const std::string& title) {
  constexpr int left = 120, right = 190, top = 40, gap = 34, bottom = 46, wide = 1300;
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> blocks;  // SM, thread block -> row
  for (const TimelinePiece& piece : pieces) blocks[{piece.sm, piece.thread_block}] = 0;
  int row = 0;
  for (auto& [key, number] : blocks) number = row++;
  int height = top;
  std::vector<int> tops;
  for (const Role& role : roles) {
    tops.push_back(height);
    height += row * static_cast<int>(role.end - role.first) + gap;
  }
  height = std::max(height - gap, top + 20 * static_cast<int>(part_count)) + bottom;
  cv::Mat picture(height, left + wide + right, CV_8UC3, cv::Scalar::all(255));
  pvm::io::draw_text(picture, {left, 20}, title);
  const auto x_of = [&](double time) {
    return left + cvRound(wide * (time - window.begin) / (window.end - window.begin));
  };
  std::array<bool, part_count> seen{};
  for (std::size_t r = 0; r < roles.size(); ++r) {
    const int warps = static_cast<int>(roles[r].end - roles[r].first);
    pvm::io::draw_text(picture, {8, tops[r] + 12}, roles[r].name);
    pvm::io::draw_text(picture, {8, tops[r] + 30}, std::to_string(warps) + " a block",
                       cv::Scalar::all(100));
    cv::rectangle(picture, cv::Rect(left, tops[r], wide, row * warps), cv::Scalar::all(250), -1);
    for (const TimelinePiece& piece : pieces) {
      if (!roles[r].has(piece) || piece.end < window.begin || piece.begin > window.end) continue;
      const auto part = static_cast<std::size_t>(piece.part);
      seen[part] = true;
      const int y = tops[r] + blocks[{piece.sm, piece.thread_block}] * warps +
                    static_cast<int>(piece.warp - roles[r].first);
      const int from = std::max(left, x_of(piece.begin));
      const int to = std::min(left + wide, std::max(from + 1, x_of(piece.end)));
      if (from < to) {
        cv::rectangle(picture, cv::Rect(from, y, to - from, 1), colour_of(part), -1);
      }
    }
  }
  const double microseconds = 1e-3 * (window.end - window.begin);
  const double tick = pvm::io::detail::tick_distance(microseconds, 12);
  for (double at = 0; at <= microseconds + 1e-9; at += tick) {
    const int x = x_of(window.begin + 1e3 * at);
    cv::line(picture, {x, height - bottom + 4}, {x, height - bottom + 10}, cv::Scalar::all(90));
    const std::string text = pvm::io::detail::tick_text(at, tick);
    pvm::io::draw_text(picture, {x - pvm::io::text_width(text) / 2, height - 18}, text,
                       cv::Scalar::all(60));
  }
  pvm::io::draw_text(picture, {left + wide + 10, height - 18}, "us", cv::Scalar::all(60));
  int y = top;
  for (std::size_t part = 0; part < part_count; ++part) {
    if (!seen[part]) continue;
    cv::rectangle(picture, cv::Rect(left + wide + 16, y, 14, 14), colour_of(part), -1);
    cv::rectangle(picture, cv::Rect(left + wide + 16, y, 14, 14), cv::Scalar::all(170));
    pvm::io::draw_text(picture, {left + wide + 38, y + 12}, part_names[part]);
    y += 20;
  }
  return picture;
}

/// Writes the pieces within `window` in Chrome's format: a process for each thread block, a thread
/// for each of its warps.
inline void write_trace(const std::filesystem::path& path,
                        const std::vector<TimelinePiece>& pieces, const std::vector<Role>& roles,
                        const Window& window) {
  std::string text = "{\"displayTimeUnit\": \"ns\", \"traceEvents\": [\n";
  char line[256];
  std::map<std::uint32_t, std::uint32_t> sms;
  for (const TimelinePiece& piece : pieces) sms[piece.thread_block] = piece.sm;
  for (const auto& [block, sm] : sms) {
    std::snprintf(line, sizeof line,
                  "{\"name\": \"process_name\", \"ph\": \"M\", \"pid\": %u, \"args\": "
                  "{\"name\": \"SM %u, thread block %u\"}},\n",
                  block, sm, block);
    text += line;
    for (const Role& role : roles) {
      for (std::uint32_t warp = role.first; warp < role.end; ++warp) {
        std::snprintf(line, sizeof line,
                      "{\"name\": \"thread_name\", \"ph\": \"M\", \"pid\": %u, \"tid\": %u, "
                      "\"args\": {\"name\": \"%s %u\"}},\n",
                      block, warp, role.name.c_str(), warp - role.first);
        text += line;
      }
    }
  }
  for (const TimelinePiece& piece : pieces) {
    if (piece.begin < window.begin || piece.begin > window.end) continue;
    const auto part = static_cast<std::size_t>(piece.part);
    std::snprintf(line, sizeof line,
                  "{\"name\": \"%s\", \"cat\": \"%s\", \"ph\": \"X\", \"ts\": %.3f, \"dur\": %.3f, "
                  "\"pid\": %u, \"tid\": %u, \"args\": {\"step\": %d}},\n",
                  part_names[part], part < first_wait ? "work" : "wait",
                  1e-3 * (piece.begin - window.begin), 1e-3 * (piece.end - piece.begin),
                  piece.thread_block, piece.warp, piece.step);
    text += line;
  }
  text.resize(text.size() - 2);  // the last comma
  text += "\n]}\n";
  pvm::io::AtomicFile file(path);
  file.write(text.data(), text.size());
  file.commit(false);
}

/// Prints what a step of each role consists of: nanoseconds of each part, mean and most over warps
/// and recorded steps.
inline void print_parts(std::span<const TimelinePiece> pieces, std::span<const Role> roles) {
  for (const Role& role : roles) {
    std::printf("%s, ns of a step: mean (most)\n", role.name.c_str());
    std::map<std::pair<std::uint32_t, std::uint32_t>, int> warps;
    std::array<double, part_count> sum{}, most{};
    int steps = 0;
    for (const TimelinePiece& piece : pieces) {
      if (!role.has(piece)) continue;
      const auto part = static_cast<std::size_t>(piece.part);
      sum[part] += piece.end - piece.begin;
      most[part] = std::max(most[part], piece.end - piece.begin);
      warps[{piece.thread_block, piece.warp}] = 1;
      steps = std::max(steps, piece.step + 1);
    }
    const double count = std::max(1.0, static_cast<double>(warps.size()) * steps);
    for (std::size_t part = 0; part < part_count; ++part) {
      if (sum[part] == 0) continue;
      std::printf("  %-18s %7.0f (%.0f)\n", part_names[part], sum[part] / count, most[part]);
    }
  }
}

}  // namespace pvm_bench
