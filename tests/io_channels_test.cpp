// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Frames of one to four channels: what becomes of transparency, and what has none.

#include <opencv2/imgproc.hpp>

#include <pvm/io/channels.hpp>
#include <pvm/io/image_check.hpp>
#include <pvm/io/mat.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/io/video.hpp>
#include <pvm/io/write_zip.hpp>
#include <pvm/io/zip.hpp>

#include "io_helpers.hpp"
#include "oriented_files.hpp"

using namespace pvm_test;

namespace {

/// `small_shape` with another number of channels.
io::FrameShape of_channels(int channels) {
  return {small_shape.height, small_shape.width, channels};
}

/// A channel of a frame.
Bytes channel(const Bytes& frame, int channels, int c) {
  Bytes out;
  for (auto i = static_cast<std::size_t>(c); i < frame.size();
       i += static_cast<std::size_t>(channels)) {
    out.push_back(frame[i]);
  }
  return out;
}

/// The first channels of a frame: what it has besides alpha.
Bytes without_alpha(const Bytes& frame, int channels) {
  Bytes out;
  for (std::size_t i = 0; i < frame.size(); ++i) {
    if (static_cast<int>(i) % channels != channels - 1) out.push_back(frame[i]);
  }
  return out;
}

bool is_opaque(const Bytes& frame, int channels) {
  const Bytes alpha = channel(frame, channels, channels - 1);
  return alpha == Bytes(alpha.size(), 255);
}

Bytes decoded(const Bytes& file, int channels) {
  Bytes pixels(of_channels(channels).size());
  REQUIRE(io::decode_image(file, of_channels(channels), pixels));
  return pixels;
}

Bytes content(const cv::Mat& picture) { return {picture.datastart, picture.dataend}; }

/// Noise with alpha, BGRA: transparent on the left, opaque on the right, noise between.
cv::Mat see_through() {
  cv::Mat drawn(24, 32, CV_8UC4);
  cv::randu(drawn, 0, 255);
  const cv::Mat alpha = io::alpha_of(drawn);
  alpha.colRange(0, 10).setTo(0);
  alpha.colRange(20, 32).setTo(255);
  cv::insertChannel(alpha, drawn, 3);
  return drawn;
}

/// `alpha` resized as pictures are.
Bytes resized(const cv::Mat& alpha) {
  cv::Mat small;
  cv::resize(alpha, small, {small_shape.width, small_shape.height}, 0, 0, cv::INTER_CUBIC);
  return content(small);
}

}  // namespace

TEST_CASE("Transparency is kept for frames that have alpha, and dropped for others", "[io]") {
  const cv::Mat drawn = see_through();
  const Bytes alpha = resized(io::alpha_of(drawn));
  for (const std::string extension : {".png", ".tif", ".webp"}) {
    INFO(extension);
    Bytes file;
    // 101: WebP without loss. Neither this nor a TIFF must depend on what lies below transparency.
    cv::imencode(extension, drawn, file, {cv::IMWRITE_WEBP_QUALITY, 101});
    REQUIRE(io::image_facts(file));
    CHECK(io::image_facts(file)->alpha);
    for (const int colours : {1, 3}) {
      const Bytes frame = decoded(file, colours + 1);
      CHECK(channel(frame, colours + 1, colours) == alpha);
      CHECK(without_alpha(frame, colours + 1) == decoded(file, colours));
    }
  }
  // Colours are what they are below transparency, too, and with and without alpha.
  const Bytes png = encoded(drawn, ".png");
  cv::Mat colours;
  cv::cvtColor(drawn, colours, cv::COLOR_BGRA2BGR);
  CHECK(decoded(png, 3) == decoded(encoded(colours, ".png"), 3));
}

TEST_CASE("16 bits of alpha become 8", "[io]") {
  const cv::Mat drawn = see_through();
  cv::Mat deep;
  drawn.convertTo(deep, CV_16U, 257);
  for (const std::string extension : {".png", ".tif"}) {
    INFO(extension);
    CHECK(channel(decoded(encoded(deep, extension), 4), 4, 3) == resized(io::alpha_of(drawn)));
  }
}

TEST_CASE("A picture without transparency is opaque", "[io]") {
  cv::Mat drawn(24, 32, CV_8UC3);
  cv::randu(drawn, 0, 255);
  cv::Mat grey;
  cv::cvtColor(drawn, grey, cv::COLOR_BGR2GRAY);
  for (const std::string extension : {".jpg", ".png", ".bmp", ".tif", ".webp", ".ppm", ".pgm"}) {
    INFO(extension);
    const Bytes file = encoded(extension == ".pgm" ? grey : drawn, extension);
    for (const int channels : {2, 4}) {
      const Bytes frame = decoded(file, channels);
      CHECK(is_opaque(frame, channels));
      CHECK(without_alpha(frame, channels) == decoded(file, channels - 1));
    }
  }
}

TEST_CASE("Alpha is turned with its picture", "[io]") {
  const cv::Mat drawn = see_through();
  cv::Mat turned;
  cv::rotate(drawn, turned, cv::ROTATE_90_CLOCKWISE);
  CHECK(decoded(png_with_exif(6, drawn), 4) == decoded(encoded(turned, ".png"), 4));
}

TEST_CASE("A picture is refused if taking its alpha needs too much memory", "[io]") {
  const io::ImageFacts facts{16'384, 8'192, 4 * io::most_pixels, {}, true};
  CHECK(io::detail::bytes_to_decode(facts, of_channels(3)) == 4 * io::most_pixels);
  CHECK(io::detail::bytes_to_decode(facts, of_channels(4)) > io::most_decoding_bytes);
}

TEST_CASE("Decoded pictures of one to four channels become frames of one to four", "[io]") {
  const cv::Mat four = see_through();
  cv::Mat three, two, one;
  cv::cvtColor(four, three, cv::COLOR_BGRA2BGR);
  cv::cvtColor(four, one, cv::COLOR_BGRA2GRAY);
  cv::merge(std::vector<cv::Mat>{one, io::alpha_of(four)}, two);
  const auto frame = [](const cv::Mat& picture, int channels) {
    Bytes pixels(of_channels(channels).size());
    io::AsFrame<cv::Mat>::write(picture, of_channels(channels), pixels);
    return pixels;
  };
  const Bytes alpha = resized(io::alpha_of(four));
  CHECK(without_alpha(frame(four, 4), 4) == frame(three, 3));
  CHECK(channel(frame(four, 4), 4, 3) == alpha);
  CHECK(frame(four, 2) == frame(two, 2));
  CHECK(frame(four, 3) == frame(three, 3));
  CHECK(frame(four, 1) == frame(one, 1));
  CHECK(without_alpha(frame(three, 4), 4) == frame(three, 3));
  CHECK(is_opaque(frame(three, 4), 4));
  CHECK(is_opaque(frame(three, 2), 2));
  CHECK(without_alpha(frame(three, 2), 2) == frame(one, 1));
  CHECK(channel(frame(two, 2), 2, 0) == frame(one, 1));
  CHECK(channel(frame(two, 2), 2, 1) == alpha);
  CHECK(frame(two, 3) == frame(one, 3));
  CHECK(frame(two, 1) == frame(one, 1));
  CHECK(channel(frame(two, 4), 4, 3) == alpha);
  CHECK(is_opaque(frame(one, 2), 2));
  CHECK(is_opaque(frame(one, 4), 4));

  const cv::Mat five(4, 4, CV_8UC(5), cv::Scalar::all(0));
  CHECK(contains(failure(pvm::Fault::usage, [&] { frame(five, 3); }), "1 to 4"));
}

TEST_CASE("A frame of the same size as its picture is the picture", "[io]") {
  for (int channels = 1; channels <= 4; ++channels) {
    cv::Mat drawn(small_shape.height, small_shape.width, CV_8UC(channels));
    cv::randu(drawn, 0, 255);
    Bytes pixels(of_channels(channels).size());
    io::resize_picture(drawn, of_channels(channels), pixels);
    CHECK(pixels == content(drawn));
  }
}

TEST_CASE("Videos and generated frames are opaque", "[io]") {
  const TempDir dir;
  write_video(dir / "a.avi", 3);
  const auto check = [](auto make) {
    for (const int channels : {2, 4}) {
      auto plain = make();
      auto with_alpha = make();
      for (int i = 0; i < 3; ++i) {
        const Bytes frame = read(with_alpha, of_channels(channels)).pixels;
        CHECK(is_opaque(frame, channels));
        CHECK(without_alpha(frame, channels) == read(plain, of_channels(channels - 1)).pixels);
      }
    }
  };
  check([&] { return io::Video(dir / "a.avi"); });
  check([] { return io::Synthetic({.seed = 3}); });
}

TEST_CASE("Zips and directories give transparent pictures as they are", "[io]") {
  const TempDir dir;
  const Bytes png = encoded(see_through(), ".png");
  write_zip(dir / "a.zip", {{"0.png", png}, {"1.jpg", encoded(picture(1))}});
  std::filesystem::create_directory(dir / "a");
  write_file(dir / "a" / "0.png", png);
  write_file(dir / "a" / "1.jpg", encoded(picture(1)));
  for (const auto* name : {"a.zip", "a"}) {
    for (int channels = 1; channels <= 4; ++channels) {
      auto source = io::open_source((dir / name).string());
      CHECK(read(source, of_channels(channels)).pixels == decoded(png, channels));
      CHECK(read(source, of_channels(channels)).pixels == decoded(encoded(picture(1)), channels));
    }
  }
}

TEST_CASE("A zip that is written keeps alpha", "[io]") {
  const TempDir dir;
  write_zip(dir / "a.zip", {{"0.png", encoded(see_through(), ".png")}});
  for (const int channels : {2, 4}) {
    io::Zip from(dir / "a.zip");
    const std::string name = std::to_string(channels) + ".zip";
    CHECK(io::write_published_zip(dir / name, from, of_channels(channels), 1) == 1);
    const Bytes bytes = read_file(dir / name);
    CHECK(contains({bytes.begin(), bytes.end()}, "0000.png"));
    io::Zip written(dir / name);
    CHECK(read(written, of_channels(channels)) == read(from, of_channels(channels)));
  }
}

TEST_CASE("No frame has fewer than one channel or more than four", "[io]") {
  for (const int channels : {-1, 0, 5}) {
    Bytes pixels(1000);
    io::Synthetic source;
    const auto act = [&] { source.next({8, 8, channels}, pixels); };
    CHECK(contains(failure(pvm::Fault::usage, act), "1 to 4 channels"));
  }
}
