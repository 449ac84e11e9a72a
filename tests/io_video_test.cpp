// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <pvm/io/camera.hpp>
#include <pvm/io/video.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

TEST_CASE("a video plays its frames in order, for ever", "[io]") {
  const TempDir dir;
  write_video(dir / "a.avi", 7);
  io::Video video(dir / "a.avi");
  CHECK_FALSE(video.length());
  const auto frames = read_many(video, 21);
  for (std::size_t i = 0; i < 21; ++i) {
    CHECK(number_of(frames[i], 7) == static_cast<int>(i % 7));
    CHECK(frames[i].starts == (i % 7 == 0));
    CHECK(frames[i].pixels == frames[i % 7].pixels);
  }
  CHECK(video.position() == io::Position{0, 0, 3});
  CHECK(video.length() == 7);
}

TEST_CASE("a video continues wherever it is told to", "[io]") {
  const TempDir dir;
  write_video(dir / "a.avi", 5);
  check_resume([&] { return io::Video(dir / "a.avi"); }, 12);

  io::Video video(dir / "a.avi");
  read_many(video, 4);
  video.seek({0, 1, 3});
  CHECK(number_of(read(video), 5) == 1);
  video.seek({0, 4, 3});
  CHECK(number_of(read(video), 5) == 4);
  CHECK(video.position() == io::Position{0, 0, 4});
  CHECK(contains(failure(pvm::Fault::source, [&] { video.seek({0, 5, 0}); }), "5 frames"));
  CHECK(number_of(read(video), 5) == 0);
}

TEST_CASE("the frames of a video are counted without moving it", "[io]") {
  const TempDir dir;
  write_video(dir / "a.avi", 6);
  io::Video video(dir / "a.avi");
  read_many(video, 2);
  CHECK(video.count_frames() == 6);
  CHECK(video.length() == 6);
  CHECK(number_of(read(video), 6) == 2);
}

TEST_CASE("a video cut off plays what there is of it", "[io]") {
  const TempDir dir;
  write_video(dir / "a.avi", 30);
  write_file(dir / "half.avi", cut(read_file(dir / "a.avi"), 0.5));
  io::Video video(dir / "half.avi");
  const std::uint64_t frames = video.count_frames();
  CHECK(frames > 0);
  CHECK(frames < 30);
  for (const char* name : {"a.avi", "half.avi"}) {
    const Messages messages;
    io::Video played(dir / name);
    (void)read_many(played, 70);
    CHECK(messages.count("cut off") == (name == std::string("half.avi") ? 1U : 0U));
  }
  check_resume([&] { return io::Video(dir / "half.avi"); }, static_cast<int>(frames) + 2);
}

TEST_CASE("what is no video is refused in a sentence", "[io]") {
  const TempDir dir;
  CHECK(contains(open_failure<io::Video>(dir / "none.avi"), "does not exist"));
  CHECK(contains(open_failure<io::Video>(dir.path()), "is a directory"));

  write_file(dir / "text.avi", bytes_of("this is text\nand more of it\n"));
  CHECK(contains(open_failure<io::Video>(dir / "text.avi"), "is not a video"));

  write_file(dir / "empty.avi", {});
  CHECK(contains(open_failure<io::Video>(dir / "empty.avi"), "is not a video"));

  write_video(dir / "zero.avi", 0);
  CHECK_FALSE(open_failure<io::Video>(dir / "zero.avi").empty());

  write_file(dir / "sound.wav", silence());
  CHECK_FALSE(open_failure<io::Video>(dir / "sound.wav").empty());

  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  write_video(dir / "locked.avi", 2);
  std::filesystem::permissions(dir / "locked.avi", std::filesystem::perms::none);
  const Unprivileged user;
  CHECK(contains(open_failure<io::Video>(dir / "locked.avi"), "check its permissions"));
}

TEST_CASE("a video that is gone when it should start over is a failure", "[io]") {
  const TempDir dir;
  write_video(dir / "a.avi", 2);
  io::Video video(dir / "a.avi");
  read_many(video, 2);
  std::filesystem::remove(dir / "a.avi");
  CHECK(contains(failure(pvm::Fault::source, [&] { read(video); }), "does not exist any more"));
}

TEST_CASE("a camera that is not there is a failure", "[io]") {
  CHECK(contains(failure(pvm::Fault::source, [] { io::Camera{97}; }), "camera 97"));
  CHECK_FALSE(failure(pvm::Fault::source, [] { io::Camera{"/dev/video97"}; }).empty());
}

TEST_CASE("a live stream counts on where it is told to, and ends in a sentence", "[io]") {
  const TempDir dir;
  const Messages messages;
  write_video(dir / "a.avi", 6);
  io::Camera camera(io::open_video((dir / "a.avi").string()), "stream");
  CHECK_FALSE(camera.length());
  CHECK(read(camera).starts);
  CHECK_FALSE(read(camera).starts);
  camera.seek({0, 100, 0});
  CHECK(camera.position().frame == 100);
  const Frame next = read(camera);
  CHECK(next.starts);
  CHECK(number_of(next, 6) == 2);
  CHECK(camera.position().frame == 101);
  read_many(camera, 3);
  CHECK(contains(failure(pvm::Fault::source, [&] { read(camera); }), "unplugged"));
  CHECK(camera.skipped() == 5);
}
