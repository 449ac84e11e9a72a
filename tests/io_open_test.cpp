// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <sys/stat.h>

#include <pvm/io/open.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

std::vector<std::string> names_of(const std::vector<std::string>& paths) {
  std::vector<std::string> names;
  for (const auto& path : paths) names.push_back(std::filesystem::path(path).filename().string());
  return names;
}

}  // namespace

TEST_CASE("a source is opened by what it is", "[io]") {
  const TempDir dir;
  write_zip(dir / "a.zip", numbered(3));
  write_zip(dir / "archive", numbered(4));
  write_video(dir / "b.avi", 5);
  std::filesystem::create_directory(dir / "c");
  write_file(dir / "c" / "0.png", encoded(picture(2), ".png"));

  CHECK(io::open_source((dir / "a.zip").string()).length() == 3);
  CHECK(io::open_source((dir / "archive").string()).length() == 4);
  CHECK(io::open_source((dir / "b.avi").string()).count_frames() == 5);
  CHECK(io::open_source((dir / "c").string()).length() == 1);
  CHECK(io::open_source("synthetic").length() == 1000);

  io::AnySource seventh = io::open_source("synthetic:7");
  io::Synthetic same({.seed = 7});
  CHECK(read(seventh) == read(same));
  io::AnySource moved = std::move(seventh);
  CHECK(read(moved) == read(same));
}

TEST_CASE("what cannot be opened is refused in a sentence", "[io]") {
  const TempDir dir;
  const auto open = [](const std::string& path) { return [path] { io::open_source(path); }; };
  CHECK(contains(failure(pvm::Fault::source, open((dir / "none").string())), "does not exist"));
  CHECK_FALSE(failure(pvm::Fault::source, open("")).empty());
  CHECK_FALSE(failure(pvm::Fault::source, open("97")).empty());
  CHECK_FALSE(failure(pvm::Fault::source, open("/dev/video97")).empty());
  for (const std::string seed : {"synthetic:", "synthetic:x", "synthetic:-1", "synthetic:1x"}) {
    CHECK_FALSE(failure(pvm::Fault::usage, open(seed)).empty());
  }
  write_file(dir / "bad.zip", bytes_of("text"));
  CHECK(contains(failure(pvm::Fault::source, open((dir / "bad.zip").string())), "not a zip"));

  write_zip(dir / "a.zip", numbered(3));  // without a GPU the CPU decodes, and a log line says so
  std::vector<std::string> said;
  pvm::set_log_sink([&](pvm::Severity, const std::string& line) { said.push_back(line); });
  CHECK(io::open_source((dir / "a.zip").string(), io::Decode::gpu).length() == 3);
  pvm::set_log_sink({});
  REQUIRE(said.size() == 1);
  CHECK(contains(said.front(), "decoded on the CPU"));
}

TEST_CASE("a source is the same by whatever way to it", "[io]") {
  const TempDir dir;
  write_zip(dir / "a.zip", numbered(3));
  write_file(dir / "bad.zip", bytes_of("text"));
  write_video(dir / "2024-11-27T10:30:00.avi", 5);
  const InDirectory inside(dir);
  std::filesystem::create_directory("sub");
  for (const auto& way : {std::string(), std::string("./"), std::string("sub/../")}) {
    INFO(way);
    CHECK(io::holds_pictures(way + "bad.zip"));
    CHECK(contains(failure(pvm::Fault::source, [&] { io::open_source(way + "bad.zip"); }),
                   "'" + way + "bad.zip' is not a zip archive"));
    CHECK(io::open_source(way + "a.zip").length() == 3);
    auto video = io::open_source(way + "2024-11-27T10:30:00.avi");  // no protocol called 2024-...
    CHECK(video.count_frames() == 5);
    CHECK(video.name() == way + "2024-11-27T10:30:00.avi");
  }
}

TEST_CASE("a number is a camera, and what has its name is told how to be named", "[io]") {
  const TempDir dir;
  const InDirectory inside(dir);
  const auto open = [] { io::open_source("97"); };
  CHECK_FALSE(contains(failure(pvm::Fault::source, open), "./97"));
  std::filesystem::create_directory("97");
  write_file("97/0.jpg", encoded(picture(0)));
  CHECK(contains(failure(pvm::Fault::source, open), "'./97'"));
  CHECK(io::open_source("./97").length() == 1);
}

TEST_CASE("a pipe is no source, and nobody waits for it", "[io]") {
  const TempDir dir;
  REQUIRE(mkfifo((dir / "pipe").c_str(), 0600) == 0);
  CHECK(contains(failure(pvm::Fault::source, [&] { io::open_source((dir / "pipe").string()); }),
                 "is a pipe"));
  CHECK_FALSE(io::holds_pictures((dir / "pipe").string()));  // which large batches ask first
}

TEST_CASE("the sequences of a data set are found", "[io]") {
  const TempDir dir;
  const std::string root = dir.path().string();
  std::filesystem::create_directories(dir / "set" / "images");
  std::filesystem::create_directories(dir / "set" / "nothing");
  for (const auto* file : {"set/b10.zip", "set/b9.avi", "set/images/0.jpg", "set/notes.txt",
                           "set/.x.zip", "ball2.zip", "ball10.pkl.zip", "ball.txt", "other.zip"}) {
    write_file(dir / file, {});
  }
  CHECK(names_of(io::find_dataset(root, "set")) ==
        std::vector<std::string>{"b9.avi", "b10.zip", "images"});
  CHECK(names_of(io::find_dataset(root, "ball")) ==
        std::vector<std::string>{"ball2.zip", "ball10.pkl.zip"});
  CHECK(names_of(io::find_dataset(root, "other.zip")) == std::vector<std::string>{"other.zip"});
  CHECK(names_of(io::find_dataset(root + "/set", "images")) == std::vector<std::string>{"images"});

  const auto missing = failure(pvm::Fault::source, [&] { io::find_dataset(root, "cube"); });
  CHECK(contains(missing, "'cube'"));
  CHECK(contains(missing, root));
  CHECK_FALSE(
      failure(pvm::Fault::source, [&] { io::find_dataset(root + "/set", "nothing"); }).empty());
  CHECK_FALSE(failure(pvm::Fault::source, [&] { io::find_dataset(root + "/none", "x"); }).empty());
}
