// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Pictures in a terminal, of half blocks: a character shows two pixels, one above the other. Needs
/// OpenCV.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include <pvm/core/need_opencv.hpp>

#include <opencv2/core.hpp>
#include <opencv2/imgproc.hpp>

#if !defined(_WIN32)
#include <sys/ioctl.h>
#include <unistd.h>
#endif

#include <pvm/core/config.hpp>
#include <pvm/io/channels.hpp>

namespace pvm::inline v0::io {

struct TerminalFormat {
  int columns = 80;          ///< characters in a line
  bool true_colour = false;  ///< 24 bits, else the 216 colours of the terminals of old
};

/// The format of a terminal: its width, and whether it says (COLORTERM) that it has all colours.
inline TerminalFormat terminal_format(std::FILE* terminal) {
  TerminalFormat format;
  const char* const colours = std::getenv("COLORTERM");
  const std::string_view name = colours == nullptr ? "" : colours;
  format.true_colour = name == "truecolor" || name == "24bit";
#if !defined(_WIN32)
  winsize size{};
  if (::ioctl(::fileno(terminal), TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    format.columns = size.ws_col;
  }
#endif
  return format;
}

/// A picture (8-bit, 1 to 4 channels, of which alpha is not shown; square) and a few words of ASCII
/// to stand above it.
struct NamedPicture {
  std::string_view name;
  cv::Mat picture;
};

namespace detail {

/// The control sequence that sets the colour of the character (`which` 38) or behind it (48).
inline std::string colour_sequence(int which, const cv::Vec3b& bgr, bool true_colour) {
  char text[40];
  if (true_colour) {
    std::snprintf(text, sizeof text, "\033[%d;2;%d;%d;%dm", which, bgr[2], bgr[1], bgr[0]);
  } else {
    const auto level = [](int v) { return (v * 5 + 127) / 255; };
    std::snprintf(text, sizeof text, "\033[%d;5;%dm", which,
                  16 + 36 * level(bgr[2]) + 6 * level(bgr[1]) + level(bgr[0]));
  }
  return text;
}

}  // namespace detail

/// The pictures side by side, as lines of text; each is at most 40 characters wide, and as small as
/// they have to be for the terminal's width.
inline std::string terminal_pictures(const std::vector<NamedPicture>& pictures,
                                     const TerminalFormat& format) {
  const int count = static_cast<int>(pictures.size());
  const int side = std::clamp((format.columns - count + 1) / count, 4, 40) / 2 * 2;
  std::string text;
  std::vector<cv::Mat> small;
  for (const auto& [name, picture] : pictures) {
    std::string words(name.substr(0, static_cast<std::size_t>(side)));
    words.resize(static_cast<std::size_t>(side), ' ');
    text += (small.empty() ? "" : " ") + words;
    const int how = picture.rows > side ? cv::INTER_AREA : cv::INTER_NEAREST;
    cv::resize(colours_of(picture, 3), small.emplace_back(), {side, side}, 0, 0, how);
  }
  text += "\n";
  for (int row = 0; row < side; row += 2) {
    for (std::size_t p = 0; p < small.size(); ++p) {
      if (p > 0) text += " ";
      for (int column = 0; column < side; ++column) {
        const auto pixel = [&](int y) { return small[p].at<cv::Vec3b>(y, column); };
        text += detail::colour_sequence(38, pixel(row), format.true_colour) +
                detail::colour_sequence(48, pixel(row + 1), format.true_colour) + "\u2580";
      }
      text += "\033[0m";
    }
    text += "\n";
  }
  return text;
}

}  // namespace pvm::inline v0::io
