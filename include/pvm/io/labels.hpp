// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads and writes the label file of a published PVM data set: a text file with a line `x,y,w,h`
/// for each frame.

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::io {

namespace detail {
inline constexpr float most_in_label = 1e6F;  // that a number of a label may be
}

/// Parses `x,y,w,h`: four numbers separated by commas, semicolons or blanks. A line that begins
/// with -1 says that the object is absent, even if it has no more numbers, and so does an empty
/// box.
/// `?,?,?,?` says that the frame is unlabelled. Returns nothing if the line is malformed: also if a
/// number is not finite or beyond a million, which no picture's pixels are, or a side is negative.
inline std::optional<Label> parse_label(std::string_view line) {
  using detail::most_in_label;
  constexpr std::string_view blanks = " \t\r,;";
  float values[4] = {};
  std::size_t count = 0;
  std::size_t unknown = 0;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    if (line.empty()) break;
    if (count + unknown == 4) return std::nullopt;
    if (line.front() == '?') {
      ++unknown;
      line.remove_prefix(1);
      continue;
    }
    const auto [end, fault] =
        std::from_chars(line.data(), line.data() + line.size(), values[count]);
    if (fault != std::errc{} || !(std::abs(values[count]) <= most_in_label)) return std::nullopt;
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    if (!line.empty() && blanks.find(line.front()) == std::string_view::npos) return std::nullopt;
    ++count;
  }
  const auto [x, y, width, height] = values;
  if (unknown > 0) return unknown == 4 ? std::optional(Label{}) : std::nullopt;
  if (count > 0 && x == -1.0F) return Label::absent();
  if (count != 4 || width < 0 || height < 0) return std::nullopt;
  if (width == 0 || height == 0) return Label::absent();
  return Label::present({x, y, width, height});
}

/// Parses a label file for `frames` frames; the result has `frames` elements. Frames without a
/// well-formed line are unlabelled. If any line is malformed, or the number of lines is not
/// `frames`, logs one warning that calls the file "the labels of `name`".
inline std::vector<Label> parse_labels(std::string_view text, std::size_t frames,
                                       const std::string& name) {
  std::vector<Label> labels(frames);
  std::size_t lines = 0;
  std::size_t malformed = 0;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  for (bool more = !text.empty(); more; ++lines) {
    const std::size_t end = text.find('\n');
    const std::optional<Label> label = parse_label(text.substr(0, end));
    malformed += label ? 0 : 1;
    if (label && lines < frames) labels[lines] = *label;
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 1);
  }
  if (malformed > 0 || lines != frames) {
    log(Severity::warning, "the labels of " + pvm::quote(name) + " have " + std::to_string(lines) +
                               " lines for " + std::to_string(frames) + " frames, " +
                               std::to_string(malformed) +
                               " of them not x,y,w,h; frames without a good line are unlabelled");
  }
  return labels;
}

namespace detail {

/// The label as `parse_label` reads it back to the same state: in whole pixels, which is how the
/// published sets have them. A box keeps a width and a height of 1, and its left edge is not put at
/// -1, which means absent there; it is cut there at the edge of the frame. Numbers that are too
/// large for a label, as those of a box far outside of a frame that was enlarged, become the
/// largest ones. A box of something that is not a number says nothing.
inline std::string label_line(const Label& label) {
  const auto& [left, top, across, down] = label.box;
  const bool numbers =
      !std::isnan(left) && !std::isnan(top) && !std::isnan(across) && !std::isnan(down);
  if (label.state == LabelState::absent) return "-1,-1,-1,-1\n";
  if (label.state == LabelState::unlabelled || !numbers) return "?,?,?,?\n";
  const auto whole = [](float value) {
    return std::lround(std::clamp(value, -most_in_label, most_in_label));
  };
  long x = whole(left);
  long width = std::max(1L, whole(across));
  if (x == -1) {
    x = 0;
    width = std::max(1L, width - 1);
  }
  const long height = std::max(1L, whole(down));
  return std::to_string(x) + ',' + std::to_string(whole(top)) + ',' + std::to_string(width) + ',' +
         std::to_string(height) + '\n';
}

}  // namespace detail

}  // namespace pvm::inline v0::io
