// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Several objects in `pvm track`: pictures of class numbers, and what is given as NAME=PATH.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/core/error.hpp>
#include <pvm/io/natural_order.hpp>
#include <pvm/io/npy.hpp>
#include <pvm/readout/class_mask.hpp>

namespace readout_commands {

/// The two sides of an argument with a `=` in between.
inline std::pair<std::string, std::string> two_sides(const char* option, const std::string& text,
                                                     const char* form) {
  const std::size_t at = text.find('=');
  if (at != std::string::npos && at > 0 && at + 1 < text.size()) {
    return {text.substr(0, at), text.substr(at + 1)};
  }
  throw pvm::Error(pvm::Fault::usage, option + (" " + pvm::quote(text)) + " is not " + form);
}

/// Pictures of class numbers, resized to the frames of a network without mixing numbers.
struct Segments {
  int side = 0;
  std::vector<std::uint8_t> pixels;  // [picture][side][side]

  [[nodiscard]] std::size_t size() const { return pixels.size() / each(); }
  [[nodiscard]] std::span<const std::uint8_t> picture(std::size_t i) const {
    return std::span(pixels).subspan(i * each(), each());
  }
  /// The largest class number; 0 if there is none.
  [[nodiscard]] std::size_t classes() const {
    std::uint8_t most = 0;
    for (const std::uint8_t n : pixels) {
      if (n != pvm::readout::unknown_class) most = std::max(most, n);
    }
    return most;
  }

 private:
  [[nodiscard]] std::size_t each() const {
    return static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
  }
};

/// Reads the pictures of a directory, in the natural order of their names.
inline Segments read_segments(const std::string& directory, int side) {
  const auto refuse = [](const std::string& sentence) {
    throw pvm::Error(pvm::Fault::source, sentence);
  };
  std::error_code error;
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error)) {
    if (entry.is_regular_file()) names.push_back(entry.path().filename().string());
  }
  if (error) refuse(pvm::quote(directory) + " cannot be read as a directory of pictures");
  if (names.empty()) refuse("the directory " + pvm::quote(directory) + " has no pictures");
  std::sort(names.begin(), names.end(), pvm::io::natural_less);
  Segments all{side, {}};
  for (const std::string& name : names) {
    const std::string path = (std::filesystem::path(directory) / name).string();
    const cv::Mat picture = cv::imread(path, cv::IMREAD_UNCHANGED);
    if (picture.empty()) refuse(pvm::quote(path) + " cannot be read as a picture");
    if (picture.type() != CV_8UC1) {
      refuse(pvm::quote(path) + " is no picture of class numbers: it must be grey with 8 bits, 0 " +
             "where there is no class and 255 where that is not known");
    }
    cv::Mat small;
    cv::resize(picture, small, {side, side}, 0, 0, cv::INTER_NEAREST);
    all.pixels.insert(all.pixels.end(), small.begin<std::uint8_t>(), small.end<std::uint8_t>());
  }
  return all;
}

/// The classes of every frame as a NumPy file: an array of records with a field `classes`.
class ClassFile {
 public:
  ClassFile(const std::string& path, int side) : file_(path, {{"classes", "|u1", {side, side}}}) {}
  void add(const std::vector<std::uint8_t>& classes) { file_.write(classes); }
  void finish() { file_.finish(); }

 private:
  pvm::io::NpyWriter file_;
};

}  // namespace readout_commands
