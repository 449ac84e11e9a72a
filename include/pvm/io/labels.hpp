// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Reads the label file of a published PVM data set: a text file with a line `x,y,w,h` for each
/// frame.

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

/// One line of a label file. `box` has no value if the line is malformed or says that there is no
/// object (an x of -1, or an empty box).
struct Label {
  bool malformed = false;
  std::optional<Box> box;
};

/// Parses `x,y,w,h`: four numbers separated by commas, semicolons or blanks. A line that begins
/// with -1 says that there is no object, even if it has no more numbers.
inline Label parse_label(std::string_view line) {
  constexpr std::string_view blanks = " \t\r,;";
  float values[4] = {};
  std::size_t count = 0;
  while (true) {
    line.remove_prefix(std::min(line.find_first_not_of(blanks), line.size()));
    if (line.empty()) break;
    if (count == 4) return {.malformed = true, .box = {}};
    const auto [end, fault] =
        std::from_chars(line.data(), line.data() + line.size(), values[count]);
    if (fault != std::errc{} || !std::isfinite(values[count])) {
      return {.malformed = true, .box = {}};
    }
    line.remove_prefix(static_cast<std::size_t>(end - line.data()));
    ++count;
  }
  const auto [x, y, width, height] = values;
  if (count > 0 && x == -1.0F) return {};
  if (count != 4) return {.malformed = true, .box = {}};
  if (width <= 0 || height <= 0) return {};
  return {.malformed = false, .box = Box{x, y, width, height}};
}

/// Parses a label file for `frames` frames; the result has `frames` elements. Frames without a
/// well-formed line have no box. If any line is malformed, or the number of lines is not `frames`,
/// logs one warning that calls the file "the labels of `name`".
inline std::vector<std::optional<Box>> parse_labels(std::string_view text, std::size_t frames,
                                                    const std::string& name) {
  std::vector<std::optional<Box>> boxes(frames);
  std::size_t lines = 0;
  std::size_t malformed = 0;
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);  // a byte order mark
  text = text.substr(0, text.find_last_not_of(" \t\r\n") + 1);
  for (bool more = !text.empty(); more; ++lines) {
    const std::size_t end = text.find('\n');
    const Label label = parse_label(text.substr(0, end));
    malformed += label.malformed ? 1 : 0;
    if (lines < frames) boxes[lines] = label.box;
    more = end != std::string_view::npos;
    if (more) text.remove_prefix(end + 1);
  }
  if (malformed > 0 || lines != frames) {
    log(Severity::warning, "the labels of " + pvm::quote(name) + " have " + std::to_string(lines) +
                               " lines for " + std::to_string(frames) + " frames, " +
                               std::to_string(malformed) +
                               " of them not x,y,w,h; frames without a box are unlabelled");
  }
  return boxes;
}

}  // namespace pvm::inline v0::io
