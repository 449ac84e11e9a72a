// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes files whose pictures are stored turned, and state it.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <utility>

#include <opencv2/core.hpp>

#include "io_helpers.hpp"

namespace pvm_test {

/// Red and green above, blue and black below, 48 x 32.
inline cv::Mat quarters() {
  cv::Mat drawn(32, 48, CV_8UC3, cv::Scalar(0, 0, 0));
  drawn(cv::Rect(0, 0, 24, 16)).setTo(cv::Scalar(0, 0, 255));
  drawn(cv::Rect(24, 0, 24, 16)).setTo(cv::Scalar(0, 255, 0));
  drawn(cv::Rect(0, 16, 24, 16)).setTo(cv::Scalar(255, 0, 0));
  return drawn;
}

/// What is seen of `quarters` stored with the EXIF orientations 1 to 8: the colours of the corners,
/// upper left, upper right, lower left, lower right. By the words of the EXIF standard: in 6, for
/// example, the stored first row is seen on the right, and the stored first column at the top.
inline const std::string& seen(unsigned number) {
  static const std::array<std::string, 8> all = {"RGBK", "GRKB", "KBGR", "BKRG",
                                                 "RBGK", "BRKG", "KGBR", "GKRB"};
  return all.at(number - 1);
}

/// The colours of a frame's corners, as in `seen`.
inline std::string corners(const Frame& frame, const io::FrameShape& shape) {
  std::string colours;
  for (const int y : {shape.height / 4, shape.height - 1 - shape.height / 4}) {
    for (const int x : {shape.width / 4, shape.width - 1 - shape.width / 4}) {
      const auto* pixel = frame.pixels.data() + 3 * (y * shape.width + x);
      const auto* most = std::max_element(pixel, pixel + 3);
      colours += *most < 100 ? 'K' : "BGR"[most - pixel];
    }
  }
  return colours;
}

/// A number of `count` bytes.
inline std::string number_bytes(std::uint64_t value, std::size_t count, bool big) {
  std::string bytes;
  for (std::size_t i = 0; i < count; ++i) {
    bytes += static_cast<char>(value >> (8 * (big ? count - 1 - i : i)) & 0xFF);
  }
  return bytes;
}

/// EXIF data that state an orientation and nothing else.
inline std::string exif(unsigned number, bool big = true) {
  const auto n = [big](std::uint64_t value, std::size_t count) {
    return number_bytes(value, count, big);
  };
  return (big ? "MM" : "II") + n(42, 2) + n(8, 4) + n(1, 2) + n(274, 2) + n(3, 2) + n(1, 4) +
         n(number, 2) + n(0, 2) + n(0, 4);
}

inline void insert(Bytes& bytes, std::size_t at, const std::string& text) {
  bytes.insert(bytes.begin() + static_cast<std::ptrdiff_t>(at), text.begin(), text.end());
}

inline Bytes jpeg_with_exif(unsigned number, bool big = true) {
  Bytes bytes = encoded(quarters());
  const std::string content = std::string("Exif\0\0", 6) + exif(number, big);
  insert(bytes, 2, "\xFF\xE1" + number_bytes(content.size() + 2, 2, true) + content);
  return bytes;
}

/// The checksum of a PNG's chunk.
inline std::uint32_t crc(const std::string& text) {
  std::uint32_t value = 0xFFFF'FFFF;
  for (const char c : text) {
    value ^= static_cast<unsigned char>(c);
    for (int i = 0; i < 8; ++i) value = value >> 1 ^ ((value & 1) != 0 ? 0xEDB8'8320 : 0);
  }
  return ~value;
}

inline Bytes png_with_exif(unsigned number, const cv::Mat& drawn = quarters()) {
  Bytes bytes = encoded(drawn, ".png");
  const std::string chunk = "eXIf" + exif(number);
  insert(bytes, 33,
         number_bytes(chunk.size() - 4, 4, true) + chunk + number_bytes(crc(chunk), 4, true));
  return bytes;
}

/// The MP4 file with another matrix in its only track, which states an EXIF orientation.
inline Bytes turned_mp4(Bytes file, unsigned number) {
  constexpr std::array<std::array<int, 4>, 8> matrices = {{{1, 0, 0, 1},
                                                           {-1, 0, 0, 1},
                                                           {-1, 0, 0, -1},
                                                           {1, 0, 0, -1},
                                                           {0, 1, 1, 0},
                                                           {0, 1, -1, 0},
                                                           {0, -1, -1, 0},
                                                           {0, -1, 1, 0}}};  // a, b, c, d
  const std::string name = "tkhd";
  const auto found = std::search(file.begin(), file.end(), name.begin(), name.end());
  if (found == file.end()) throw std::runtime_error("no track");
  const std::size_t at = static_cast<std::size_t>(found - file.begin()) + 4 + 40;
  constexpr std::array<std::size_t, 4> places = {0, 4, 12, 16};
  for (std::size_t i = 0; i < 4; ++i) {
    const auto value = static_cast<std::uint32_t>(matrices.at(number - 1)[i] * 65536);
    const std::string entry = number_bytes(value, 4, true);
    std::copy(entry.begin(), entry.end(),
              file.begin() + static_cast<std::ptrdiff_t>(at + places[i]));
  }
  return file;
}

}  // namespace pvm_test
