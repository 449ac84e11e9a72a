// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <pvm/io/resize.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

TEST_CASE("a decoded picture is resized as OpenCV does it", "[io]") {
  const cv::Mat drawn = picture(3);
  Bytes pixels(small_shape.size());
  REQUIRE(io::decode_image(encoded(drawn, ".png"), small_shape, pixels));
  cv::Mat wanted;
  cv::resize(drawn, wanted, {small_shape.width, small_shape.height}, 0, 0, cv::INTER_CUBIC);
  CHECK(pixels == Bytes(wanted.datastart, wanted.dataend));

  const io::FrameShape grey_shape{.height = 12, .width = 16, .channels = 1};
  Bytes grey(grey_shape.size());
  REQUIRE(io::decode_image(encoded(drawn, ".png"), grey_shape, grey));
  cv::Mat luminance;
  cv::cvtColor(drawn, luminance, cv::COLOR_BGR2GRAY);
  cv::resize(luminance, wanted, {16, 12}, 0, 0, cv::INTER_CUBIC);
  CHECK(grey == Bytes(wanted.datastart, wanted.dataend));
}

TEST_CASE("every picture format is read, and none of them cut off", "[io]") {
  cv::Mat drawn(40, 50, CV_8UC3);
  cv::randu(drawn, 0, 255);
  Bytes pixels(small_shape.size());
  for (const std::string extension : {".jpg", ".png", ".bmp", ".tif", ".webp", ".ppm"}) {
    INFO(extension);
    const Bytes whole = encoded(drawn, extension);
    CHECK(io::decode_image(whole, small_shape, pixels));
    for (const double share : {0.0, 0.01, 0.1, 0.5, 0.9, 0.999}) {
      INFO(share);
      CHECK_FALSE(io::decode_image(cut(whole, share), small_shape, pixels));
    }
  }
  cv::Mat grey;
  cv::cvtColor(drawn, grey, cv::COLOR_BGR2GRAY);
  CHECK(io::decode_image(encoded(grey, ".pgm"), small_shape, pixels));
  CHECK_FALSE(io::decode_image(cut(encoded(grey, ".pgm"), 0.9), small_shape, pixels));
  cv::Mat deep;
  drawn.convertTo(deep, CV_16U, 256);
  CHECK(io::decode_image(encoded(deep, ".png"), small_shape, pixels));
}

TEST_CASE("a JPEG ends at its own end marker", "[io]") {
  const Bytes whole = encoded(picture(1));
  Bytes padded = whole;
  padded.insert(padded.end(), 100, 0);
  CHECK(io::whole_image(padded));

  // A thumbnail in the header has an end marker too; the picture around it is cut off.
  const Bytes thumbnail = encoded(picture(2, 8, 8));
  Bytes nested(whole.begin(), whole.begin() + 2);
  const std::size_t length = thumbnail.size() + 2;
  for (const std::size_t byte :
       {std::size_t{0xFF}, std::size_t{0xE1}, length / 256, length % 256}) {
    nested.push_back(static_cast<std::uint8_t>(byte));
  }
  nested.insert(nested.end(), thumbnail.begin(), thumbnail.end());
  nested.insert(nested.end(), whole.begin() + 2, whole.end());
  CHECK(io::whole_image(nested));
  CHECK_FALSE(io::whole_image(cut(nested, 0.9)));
}

TEST_CASE("what is no picture is refused, and so is one too large", "[io]") {
  Bytes pixels(small_shape.size());
  CHECK_FALSE(io::decode_image({}, small_shape, pixels));
  CHECK_FALSE(io::decode_image(bytes_of("this is text"), small_shape, pixels));
  CHECK_FALSE(io::decode_image(bytes_of("P6 text"), small_shape, pixels));
  CHECK_FALSE(io::decode_image(bytes_of("BM"), small_shape, pixels));

  Bytes bomb = encoded(picture(0), ".png");
  bomb[16] = 0x7F;  // the width's highest byte
  CHECK_FALSE(io::decode_image(bomb, small_shape, pixels));
  CHECK_FALSE(io::decode_image(bytes_of("P6 100000 100000 255\n"), small_shape, pixels));
}

TEST_CASE("no start of a picture is taken for a whole one, and no byte changed crashes", "[io]") {
  Bytes pixels(small_shape.size());
  for (const std::string extension : {".bmp", ".ppm", ".png"}) {
    const Bytes whole = encoded(picture(1, 9, 5), extension);
    for (std::size_t size = 0; size < whole.size(); ++size) {
      CHECK_FALSE(io::whole_image(std::span(whole).first(size)));
    }
  }
  for (const std::string extension : {".jpg", ".png", ".bmp", ".ppm"}) {
    const Bytes whole = encoded(picture(1, 9, 5), extension);
    for (std::size_t at = 0; at < whole.size(); ++at) {
      Bytes changed = whole;
      changed[at] = static_cast<std::uint8_t>(~changed[at]);
      static_cast<void>(io::whole_image(changed));
    }
  }
}

TEST_CASE("impossible shapes and buffers of another size are usage errors", "[io]") {
  Bytes pixels(small_shape.size());
  const Bytes whole = encoded(picture(0));
  for (const io::FrameShape shape :
       {io::FrameShape{0, 4, 3}, io::FrameShape{4, -1, 3}, io::FrameShape{8, 8, 0},
        io::FrameShape{8, 8, 5}, io::FrameShape{12, 17, 3}}) {
    const auto act = [&] { io::decode_image(whole, shape, pixels); };
    CHECK_FALSE(failure(pvm::Fault::usage, act).empty());
  }
}
