// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Videos and pictures that are stored turned are seen upright, whatever the installed OpenCV does.

#include <string>

#include <opencv2/imgcodecs.hpp>
#include <opencv2/videoio.hpp>

#include <pvm/io/jpeg_header.hpp>
#include <pvm/io/resize.hpp>
#include <pvm/io/video.hpp>

#include "io_helpers.hpp"
#include "oriented_files.hpp"

using namespace pvm_test;

namespace {

constexpr io::FrameShape shape{.height = 40, .width = 24, .channels = 3};

std::string seen_of_picture(const Bytes& bytes) {
  Frame frame;
  frame.pixels.resize(shape.size());
  return io::decode_image(bytes, shape, frame.pixels) ? corners(frame, shape) : "unreadable";
}

Bytes webp_with_exif(unsigned number) {
  Bytes bytes = encoded(quarters(), ".webp");
  if (bytes.empty()) return {};  // this OpenCV has no WebP
  const std::string exif_data = exif(number);
  insert(bytes, bytes.size(), "EXIF" + number_bytes(exif_data.size(), 4, false) + exif_data);
  std::string canvas("\x08\0\0\0", 4);  // it has EXIF data
  canvas += number_bytes(47, 3, false) + number_bytes(31, 3, false);
  insert(bytes, 12, "VP8X" + number_bytes(canvas.size(), 4, false) + canvas);
  const std::string size = number_bytes(bytes.size() - 8, 4, false);
  std::copy(size.begin(), size.end(), bytes.begin() + 4);
  return bytes;
}

/// A TIFF without compression.
Bytes tiff(unsigned number, bool big) {
  const auto n = [big](std::uint64_t value, std::size_t count) {
    return number_bytes(value, count, big);
  };
  std::string pixels;
  const cv::Mat drawn = quarters();
  for (int y = 0; y < drawn.rows; ++y) {
    for (int x = 0; x < drawn.cols; ++x) {
      for (int c = 2; c >= 0; --c) pixels += static_cast<char>(drawn.at<cv::Vec3b>(y, x)[c]);
    }
  }
  const std::string bits = n(8, 2) + n(8, 2) + n(8, 2);
  const std::uint64_t directory = 8 + pixels.size() + bits.size();
  const auto entry = [&](unsigned tag, std::uint64_t value, std::uint64_t count = 1) {
    return n(tag, 2) + n(4, 2) + n(count, 4) + n(value, 4);
  };
  const std::string bits_entry = n(258, 2) + n(3, 2) + n(3, 4) + n(8 + pixels.size(), 4);
  const std::string orientation = n(274, 2) + n(3, 2) + n(1, 4) + n(number, 2) + n(0, 2);
  return bytes_of((big ? "MM" : "II") + n(42, 2) + n(directory, 4) + pixels + bits + n(10, 2) +
                  entry(256, 48) + entry(257, 32) + bits_entry + entry(259, 1) + entry(262, 2) +
                  entry(273, 8) + orientation + entry(277, 3) + entry(278, 32) +
                  entry(279, pixels.size()) + n(0, 4));
}

void write_quarters(const std::filesystem::path& path, const char* codec) {
  cv::VideoWriter writer(
      path.string(), cv::VideoWriter::fourcc(codec[0], codec[1], codec[2], codec[3]), 25, {48, 32});
  REQUIRE(writer.isOpened());
  for (int i = 0; i < 3; ++i) writer.write(quarters());
}

}  // namespace

TEST_CASE("a video is seen upright, however it was held", "[io][orientation]") {
  const TempDir dir;
  for (const std::string name : {"a.mp4", "a.mov"}) {
    write_quarters(dir / name, "mp4v");
    const Bytes flat = read_file(dir / name);
    for (unsigned number = 1; number <= 8; ++number) {
      INFO(name << ", orientation " << number);
      write_file(dir / name, turned_mp4(flat, number));
      io::Video video(dir / name);
      CHECK(video.orientation() == io::orientation_of_exif(number));
      for (int i = 0; i < 4; ++i) CHECK(corners(read(video, shape), shape) == seen(number));
    }
  }
  write_quarters(dir / "a.avi", "MJPG");
  io::Video video(dir / "a.avi");
  CHECK(video.orientation().upright());
  CHECK(corners(read(video, shape), shape) == seen(1));
}

TEST_CASE("a video that is turned keeps its place and its size", "[io][orientation]") {
  const TempDir dir;
  write_quarters(dir / "a.mp4", "mp4v");
  write_file(dir / "a.mp4", turned_mp4(read_file(dir / "a.mp4"), 6));
  check_resume([&] { return io::Video(dir / "a.mp4"); }, 7, shape);
}

TEST_CASE("what OpenCV tells of a video agrees with its file", "[io][orientation]") {
  const TempDir dir;
  write_quarters(dir / "a.mp4", "mp4v");
  const Bytes flat = read_file(dir / "a.mp4");
  for (const unsigned number : {1U, 3U, 6U, 8U}) {  // what it knows of
    write_file(dir / "a.mp4", turned_mp4(flat, number));
    const cv::VideoCapture capture = io::open_video((dir / "a.mp4").string());
    CHECK(io::detail::orientation_by_opencv(capture) == io::orientation_of_exif(number));
    CHECK(io::mp4_orientation(dir / "a.mp4") == io::orientation_of_exif(number));
  }
}

TEST_CASE("a damaged MP4 states no orientation and is not followed for ever", "[io][orientation]") {
  const TempDir dir;
  write_quarters(dir / "a.mp4", "mp4v");
  const Bytes whole = turned_mp4(read_file(dir / "a.mp4"), 6);
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    write_file(dir / "b.mp4", Bytes(whole.begin(), whole.begin() + static_cast<int>(size)));
    const auto found = io::mp4_orientation(dir / "b.mp4");
    CHECK((!found || *found == io::orientation_of_exif(6) || found->upright()));
  }
  for (std::size_t at = 0; at < whole.size(); ++at) {
    Bytes changed = whole;
    changed[at] = static_cast<std::uint8_t>(~changed[at]);
    if (at % 5 != 0) continue;
    write_file(dir / "b.mp4", changed);
    static_cast<void>(io::mp4_orientation(dir / "b.mp4"));
  }
  CHECK_FALSE(io::mp4_orientation(dir / "none.mp4"));
}

TEST_CASE("a matrix that turns by quarters is one of eight", "[io][orientation]") {
  CHECK(io::orientation_of_matrix(1, 0, 0, 1) == io::Orientation{});
  CHECK(io::orientation_of_matrix(0.0001, 1, -1, 0.0001) == io::orientation_of_exif(6));
  CHECK(io::orientation_of_matrix(-2, 0, 0, -0.5) == io::orientation_of_exif(3));
  CHECK_FALSE(io::orientation_of_matrix(0.7, 0.7, -0.7, 0.7));
  CHECK_FALSE(io::orientation_of_matrix(0, 0, 0, 0));
  CHECK(io::orientation_of_turn(-90) == io::orientation_of_exif(8));
  CHECK(io::orientation_of_turn(45).upright());
}

TEST_CASE("a picture is seen upright in all eight orientations", "[io][orientation]") {
  for (unsigned number = 1; number <= 8; ++number) {
    INFO("orientation " << number);
    CHECK(seen_of_picture(jpeg_with_exif(number, true)) == seen(number));
    CHECK(seen_of_picture(jpeg_with_exif(number, false)) == seen(number));
    CHECK(seen_of_picture(png_with_exif(number)) == seen(number));
    CHECK(seen_of_picture(tiff(number, false)) == seen(number));
    CHECK(seen_of_picture(tiff(number, true)) == seen(number));
    const Bytes webp = webp_with_exif(number);
    if (!webp.empty()) CHECK(seen_of_picture(webp) == seen(number));
    const auto plain = io::plain_jpeg(jpeg_with_exif(number, true));
    REQUIRE(plain);  // the GPU decodes it, and turns it
    CHECK(plain->orientation == io::orientation_of_exif(number));
  }
  for (const unsigned number : {0U, 9U, 65535U}) {
    CHECK(seen_of_picture(jpeg_with_exif(number, true)) == seen(1));
    CHECK(seen_of_picture(png_with_exif(number)) == seen(1));
  }
}
