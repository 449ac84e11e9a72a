// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <pvm/io/mat.hpp>
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

TEST_CASE("alpha is kept where it is asked for, and colours are as without it", "[io]") {
  const auto pixels_of = [](const cv::Mat& mat) { return Bytes(mat.datastart, mat.dataend); };
  const auto channel = [](const Bytes& pixels, std::size_t c, std::size_t channels) {
    Bytes one;
    for (std::size_t i = c; i < pixels.size(); i += channels) one.push_back(pixels[i]);
    return one;
  };
  const auto decoded = [](const Bytes& file, int channels) {
    const io::FrameShape shape{.height = 12, .width = 16, .channels = channels};
    Bytes pixels(shape.size());
    REQUIRE(io::decode_image(file, shape, pixels));
    return pixels;
  };
  cv::Mat alpha(24, 32, CV_8UC1), transparent, sized;
  cv::randu(alpha, 0, 255);
  cv::merge(std::vector<cv::Mat>{picture(3), alpha}, transparent);
  cv::resize(alpha, sized, {16, 12}, 0, 0, cv::INTER_CUBIC);
  cv::Mat deep;
  transparent.convertTo(deep, CV_16U, 256);
  for (const Bytes& file : {encoded(transparent, ".png"), encoded(deep, ".png")}) {
    const Bytes colour = decoded(file, 3), grey = decoded(file, 1);
    const Bytes all = decoded(file, 4), both = decoded(file, 2);
    CHECK(channel(all, 3, 4) == pixels_of(sized));
    CHECK(channel(both, 1, 2) == pixels_of(sized));
    for (std::size_t c = 0; c < 3; ++c) CHECK(channel(all, c, 4) == channel(colour, c, 3));
    CHECK(channel(both, 0, 2) == grey);
    // The same from a picture in memory.
    Bytes given(all.size());
    if (file == encoded(transparent, ".png")) {
      io::AsFrame<cv::Mat>::write(transparent, {12, 16, 4}, given);
      CHECK(given == all);
    }
  }
  const Bytes opaque(16 * 12, 255);
  for (const Bytes& file : {encoded(picture(3)), encoded(picture(3), ".png")}) {
    CHECK(channel(decoded(file, 4), 3, 4) == opaque);
    CHECK(channel(decoded(file, 2), 1, 2) == opaque);
    CHECK(channel(decoded(file, 2), 0, 2) == decoded(file, 1));
  }
  // Grey with alpha, in memory: there its alpha is the second channel.
  const cv::Mat two(24, 32, CV_8UC2, cv::Scalar(40, 90));
  Bytes given(16 * 12 * 4);
  io::AsFrame<cv::Mat>::write(two, {12, 16, 4}, given);
  CHECK(Bytes(given.begin(), given.begin() + 4) == Bytes{40, 40, 40, 90});
  given.resize(16 * 12);
  io::AsFrame<cv::Mat>::write(two, {12, 16, 1}, given);
  CHECK(given == Bytes(16 * 12, 40));
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
  for (const io::FrameShape shape : {io::FrameShape{0, 4, 3}, io::FrameShape{4, -1, 3},
                                     io::FrameShape{8, 8, 2}, io::FrameShape{12, 17, 3}}) {
    const auto act = [&] { io::decode_image(whole, shape, pixels); };
    CHECK_FALSE(failure(pvm::Fault::usage, act).empty());
  }
}
