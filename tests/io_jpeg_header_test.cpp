// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>
#include <opencv2/imgproc.hpp>

#include <pvm/io/jpeg_header.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/synthetic.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

Bytes jpeg(const cv::Mat& drawn, const std::vector<int>& parameters = {}) {
  Bytes bytes;
  cv::imencode(".jpg", drawn, bytes, parameters);
  return bytes;
}

/// Puts a segment right behind the start of the file.
Bytes with_segment(Bytes bytes, std::uint8_t code, const std::string& content) {
  const auto length = content.size() + 2;
  Bytes segment{0xFF, code, static_cast<std::uint8_t>(length >> 8),
                static_cast<std::uint8_t>(length & 0xFF)};
  segment.insert(segment.end(), content.begin(), content.end());
  bytes.insert(bytes.begin() + 2, segment.begin(), segment.end());
  return bytes;
}

}  // namespace

TEST_CASE("plain JPEGs are told from those that are left to the CPU", "[io][jpeg]") {
  const cv::Mat drawn = picture(3, 67, 45);
  const Bytes colour = jpeg(drawn);
  const auto facts = io::plain_jpeg(colour);
  REQUIRE(facts);
  CHECK(facts->width == 67);
  CHECK(facts->height == 45);
  CHECK(facts->components == 3);
  CHECK(facts->halved_x == 1);  // libjpeg's default, 4:2:0
  CHECK(facts->halved_y == 1);
  cv::Mat grey;
  cv::cvtColor(drawn, grey, cv::COLOR_BGR2GRAY);
  const auto grey_facts = io::plain_jpeg(jpeg(grey));
  REQUIRE(grey_facts);
  CHECK(grey_facts->components == 1);

  CHECK_FALSE(io::plain_jpeg(jpeg(drawn, {cv::IMWRITE_JPEG_PROGRESSIVE, 1})));
  CHECK_FALSE(io::plain_jpeg(encoded(drawn, ".png")));
  CHECK_FALSE(io::plain_jpeg(cut(colour, 0.7)));
  CHECK_FALSE(io::plain_jpeg(bytes_of("text")));
  CHECK_FALSE(io::plain_jpeg({}));
  CHECK(io::plain_jpeg(with_segment(colour, 0xE1, std::string("Exif\0\0MM\0*", 10))));
  CHECK(io::plain_jpeg(with_segment(colour, 0xE1, "http://ns.adobe.com/xap/1.0/")));
  std::string adobe = "Adobe";
  adobe += std::string("\0\x64\0\0\0\0\0", 7);
  CHECK(io::plain_jpeg(with_segment(colour, 0xEE, adobe.substr(0, 11) + '\1')));
  CHECK_FALSE(io::plain_jpeg(with_segment(colour, 0xEE, adobe.substr(0, 11) + '\0')));  // RGB
  for (std::size_t length = 0; length < colour.size(); length += 7) {  // never reads beyond
    CHECK_FALSE(io::plain_jpeg(std::span(colour).first(length)));
  }
}

TEST_CASE("JPEGs decoded at a fraction of their size are other pictures", "[io][jpeg]") {
  cv::Mat drawn(480, 640, CV_8UC3);
  io::Synthetic source;
  source.next({480, 640, 3}, {drawn.data, drawn.total() * drawn.elemSize()});
  const Bytes bytes = jpeg(drawn, {cv::IMWRITE_JPEG_QUALITY, 95});
  const io::FrameShape shape{60, 60, 3};
  Bytes whole(shape.size()), reduced(shape.size());
  REQUIRE(io::decode_image(bytes, shape, whole));
  for (const int way :
       {cv::IMREAD_REDUCED_COLOR_2, cv::IMREAD_REDUCED_COLOR_4, cv::IMREAD_REDUCED_COLOR_8}) {
    io::resize_picture(cv::imdecode(bytes, way), shape, reduced);
    int most = 0;
    for (std::size_t i = 0; i < whole.size(); ++i) {
      most = std::max(most, std::abs(whole[i] - reduced[i]));
    }
    CHECK(most > 1);  // the reason why that is not done
  }
}
