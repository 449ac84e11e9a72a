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
  std::filesystem::create_directories("classes");  // 1 where the ball is
  cv::VideoWriter video("clip.avi", cv::VideoWriter::fourcc('M', 'J', 'P', 'G'), 25, {side, side});
  if (!video.isOpened()) throw std::runtime_error("clip.avi cannot be written");
  pvm::io::Synthetic frames;
  const pvm::io::FrameShape shape{side, side, 3};
  std::vector<std::uint8_t> pixels(shape.size());
  for (int i = 0; i < count; ++i) {
    const pvm::io::Box box = frames.next(shape, pixels).label.box;
    const cv::Mat picture(side, side, CV_8UC3, pixels.data());
    video.write(picture);
    cv::imwrite("pictures/" + std::to_string(i) + ".png", picture);
    cv::Mat classes = cv::Mat::zeros(side, side, CV_8UC1);
    const cv::Rect ball(cvRound(box.x), cvRound(box.y), cvRound(box.width), cvRound(box.height));
    classes(ball & cv::Rect(0, 0, side, side)) = 1;
    cv::imwrite("classes/" + std::to_string(i) + ".png", classes);
  }
} catch (const std::exception& error) {
  std::fprintf(stderr, "make_clips: %s\n", error.what());
  return 1;
}
