// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Writes data for the examples' tests: clip.avi and the directory pictures/, with generated
/// frames.

#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/videoio.hpp>

#include <pvm/io/synthetic.hpp>

int main() try {
  constexpr int side = 48;
  constexpr int count = 60;
  std::filesystem::create_directories("pictures");
  cv::VideoWriter video("clip.avi", cv::VideoWriter::fourcc('M', 'J', 'P', 'G'), 25, {side, side});
  if (!video.isOpened()) throw std::runtime_error("clip.avi cannot be written");
  pvm::io::Synthetic frames;
  const pvm::io::FrameShape shape{side, side, 3};
  std::vector<std::uint8_t> pixels(shape.size());
  for (int i = 0; i < count; ++i) {
    frames.next(shape, pixels);
    const cv::Mat picture(side, side, CV_8UC3, pixels.data());
    video.write(picture);
    cv::imwrite("pictures/" + std::to_string(i) + ".png", picture);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "make_clips: %s\n", error.what());
  return 1;
}
