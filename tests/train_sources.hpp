// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Files for tests that train from files: the same frames as a zip, a video and a directory.

#include <cstdint>
#include <filesystem>
#include <string>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/videoio.hpp>

#include <pvm/io/source.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/io/write_zip.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"

namespace train_test {

inline constexpr pvm::io::FrameShape shape{24, 24, 3};

/// Writes `frames` generated frames as a zip, a video and a directory into `dir`. In the directory,
/// file i contains text instead of a picture if is_text(i).
template <class IsText>
void write_sources(const TempDir& dir, std::uint64_t frames, IsText is_text) {
  pvm::io::Synthetic source({.seed = 3, .frames = frames});
  pvm::io::write_published_zip(dir / "a.zip", source, shape, frames);
  std::filesystem::create_directory(dir / "pictures");
  cv::VideoWriter video((dir / "a.avi").string(), cv::VideoWriter::fourcc('M', 'J', 'P', 'G'), 25,
                        {shape.width, shape.height});
  REQUIRE(video.isOpened());
  cv::Mat picture(shape.height, shape.width, CV_8UC3);
  for (std::uint64_t i = 0; i < frames; ++i) {
    source.next(shape, {picture.data, shape.size()});
    video.write(picture);
    const auto path = dir / "pictures" / (std::to_string(i) + ".png");
    if (is_text(i)) {
      write_file(path, "text");
    } else {
      cv::imwrite(path.string(), picture);
    }
  }
}
inline void write_sources(const TempDir& dir, std::uint64_t frames) {
  write_sources(dir, frames, [](std::uint64_t) { return false; });
}

}  // namespace train_test
