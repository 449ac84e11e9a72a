// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Damaged, changing and misleading files: each gives a clear message, and no frame is invented.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include <opencv2/core.hpp>

#include <pvm/io/open.hpp>
#include <pvm/io/resize.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

/// A second of silence.
Bytes wav() {
  constexpr std::uint32_t samples = 8000;
  std::string file = "RIFF";
  const auto number = [&file](std::uint32_t value, int bytes) {
    for (int i = 0; i < bytes; ++i) file += static_cast<char>(value >> 8 * i & 0xFF);
  };
  number(36 + samples, 4);
  file += "WAVEfmt ";
  number(16, 4);
  number(1, 2);        // PCM
  number(1, 2);        // mono
  number(samples, 4);  // a second
  number(samples, 4);
  number(1, 2);
  number(8, 2);
  file += "data";
  number(samples, 4);
  return bytes_of(file + std::string(samples, '\x80'));
}

/// Motion JPEG without a container: `count` frames of `size`, then `more` of another size.
void write_changing_video(const std::filesystem::path& path, int count, cv::Size size, int more,
                          cv::Size other) {
  Bytes stream;
  for (int i = 0; i < count + more; ++i) {
    const cv::Size now = i < count ? size : other;
    const Bytes jpeg = encoded(picture(i, now.width, now.height));
    stream.insert(stream.end(), jpeg.begin(), jpeg.end());
  }
  write_file(path, stream);
}

}  // namespace

TEST_CASE("a file with sound only is no source of frames", "[io][trouble]") {
  const TempDir dir;
  for (const char* name : {"song.wav", "song.mp4", "song"}) {
    write_file(dir / name, wav());
    const auto open = [&] { io::open_source((dir / name).string()); };
    const std::string sentence = failure(pvm::Fault::source, open);
    CHECK(contains(sentence, name));
    CHECK(contains(sentence, "video"));
  }
}

TEST_CASE("a video that changes its size midway ends with a sentence", "[io][trouble]") {
  const TempDir dir;
  write_changing_video(dir / "a.mjpeg", 5, {64, 48}, 35, {96, 64});
  auto video = io::open_source((dir / "a.mjpeg").string());
  const auto act = [&] { read_many(video, 40); };
  const std::string sentence = failure(pvm::Fault::source, act);
  CHECK(contains(sentence, "a.mjpeg"));
  CHECK(contains(sentence, "changes its size at frame 5"));
}

TEST_CASE("no pass of a video that changes its size counts as whole", "[io][trouble]") {
  const TempDir dir;
  const std::vector<cv::Size> others = {{96, 64}, {48, 32}, {32, 48}, {64, 32}, {160, 32}};
  for (const cv::Size& other : others) {  // larger, smaller, narrower
    for (const int last : {1, 3, 40}) {
      INFO(last << " frames of " << other);
      write_changing_video(dir / "a.mjpeg", 20, {64, 48}, last, other);
      for (const std::uint64_t start : {0, 19, 20}) {  // also where reading begins behind it
        io::Video video(dir / "a.mjpeg");
        video.seek({0, start, 0});
        const auto act = [&] { read_many(video, 20 + last - static_cast<int>(start)); };
        CHECK(contains(failure(pvm::Fault::source, act), "changes its size at frame"));
        CHECK(video.position().pass == 0);
      }
    }
  }
}

TEST_CASE("a video that becomes smaller does not go on to its end", "[io][trouble]") {
  const TempDir dir;
  write_changing_video(dir / "a.mjpeg", 50, {64, 48}, 2500, {48, 32});
  io::Video video(dir / "a.mjpeg");
  CHECK(contains(failure(pvm::Fault::source, [&] { read_many(video, 1100); }),
                 "changes its size at frame 1024 or before"));
}

TEST_CASE("a video that keeps its size is looked through once", "[io][trouble]") {
  const TempDir dir;
  write_video(dir / "a.avi", 30);
  const auto name = (dir / "a.avi").string();
  CHECK_FALSE(io::ConstantSizeVideos::holds(name));
  io::Video video(name);
  read_many(video, 29);
  CHECK_FALSE(io::ConstantSizeVideos::holds(name));
  read_many(video, 1);
  CHECK(io::ConstantSizeVideos::holds(name));
  write_video(dir / "a.avi", 40);  // another file
  CHECK_FALSE(io::ConstantSizeVideos::holds(name));
}

TEST_CASE("a video that stands still for a while is read to its end", "[io][trouble]") {
  const TempDir dir;
  {
    cv::VideoWriter writer((dir / "a.avi").string(), cv::VideoWriter::fourcc('M', 'J', 'P', 'G'),
                           25, {32, 24});
    REQUIRE(writer.isOpened());
    for (int i = 0; i < 120; ++i) writer.write(picture(i < 10 ? i : i / 50 * 3));
  }
  auto video = io::open_source((dir / "a.avi").string());
  read_many(video, 300);
  CHECK(video.position() == io::Position{0, 60, 2});
}

TEST_CASE("a zip that shrinks while it is read loses its end only", "[io][trouble]") {
  const TempDir dir;
  const Messages messages;
  Entries entries;
  for (int i = 0; i < 40; ++i) {
    entries.emplace_back(std::to_string(i) + ".png", encoded(picture(i, 160, 120), ".png"));
    entries.back().second.resize(20'000);  // more than what is read ahead
  }
  write_zip(dir / "a.zip", entries);
  auto zip = io::open_source((dir / "a.zip").string());
  CHECK(numbers_of(read_many(zip, 2), 40) == std::vector{0, 1});
  std::filesystem::resize_file(dir / "a.zip", 38 * 20'100);
  const auto before = numbers_of(read_many(zip, 36), 40);
  for (int i = 0; i < 36; ++i) CHECK(before[static_cast<std::size_t>(i)] == i + 2);
  CHECK(numbers_of(read_many(zip, 2), 40) == std::vector{0, 1});  // the next pass
  CHECK(zip.skipped() == 2);
  CHECK(messages.count("39.png") == 1);

  std::filesystem::resize_file(dir / "a.zip", 0);
  zip.seek({0, 5, 1});
  const auto act = [&] { read(zip); };
  CHECK(contains(failure(pvm::Fault::source, act), "none of the 40 pictures"));
}

TEST_CASE("a directory whose files vanish is an error once none is left", "[io][trouble]") {
  const TempDir dir;
  const Messages messages;
  for (int i = 0; i < 6; ++i) {
    write_file(dir / (std::to_string(i) + ".jpg"), encoded(picture(i)));
  }
  auto pictures = io::open_source(dir.path().string());
  CHECK(numbers_of(read_many(pictures, 3), 6) == std::vector{0, 1, 2});
  for (int i = 0; i < 6; ++i) std::filesystem::remove(dir / (std::to_string(i) + ".jpg"));
  pictures.seek({0, 3, 0});
  const auto act = [&] { read(pictures); };
  CHECK(contains(failure(pvm::Fault::source, act), "none of the 6 pictures"));
  CHECK(messages.count("is skipped") == 6);
}
