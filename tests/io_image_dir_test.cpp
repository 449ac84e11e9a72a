// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <pvm/io/image_dir.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

void fill(const TempDir& dir, int frames) {
  for (const auto& [name, bytes] : numbered(frames)) write_file(dir / name, bytes);
}

}  // namespace

TEST_CASE("a directory plays its pictures in natural order, with labels", "[io]") {
  const TempDir dir;
  const Messages messages;
  fill(dir, 11);
  std::string labels;
  for (int i = 0; i < 11; ++i) labels += std::to_string(i) + ",1,2,2\n";
  write_file(dir / "labels.txt", bytes_of(labels));
  write_file(dir / ".hidden.jpg", bytes_of("hidden"));
  std::filesystem::create_directory(dir / "inside.jpg");
  write_file(dir / "inside.jpg" / "0.jpg", encoded(picture(9)));
  io::ImageDirectory images(dir.path());
  CHECK(images.length() == 11);
  const auto frames = read_many(images, 22);
  for (std::size_t i = 0; i < 22; ++i) {
    CHECK(number_of(frames[i], 11) == static_cast<int>(i % 11));
    CHECK(frames[i].starts == (i % 11 == 0));
    // Pictures of 32 x 24 pixels as frames of 16 x 12.
    CHECK(frames[i].label == io::Label::present({static_cast<float>(i % 11) / 2, 0.5F, 1, 1}));
  }
  CHECK(messages.count() == 0);
  check_resume([&] { return io::ImageDirectory(dir.path()); }, 13);
}

TEST_CASE("pictures that vanish while it runs are skipped", "[io]") {
  const TempDir dir;
  const Messages messages;
  fill(dir, 4);
  io::ImageDirectory images(dir.path());
  CHECK(numbers_of(read_many(images, 2), 4) == std::vector{0, 1});
  std::filesystem::remove(dir / "2.jpg");
  CHECK(numbers_of(read_many(images, 5), 4) == std::vector{3, 0, 1, 3, 0});
  CHECK(images.skipped() == 1);
  CHECK(messages.count("'2.jpg'") == 1);
  for (const int i : {0, 1, 3}) std::filesystem::remove(dir / (std::to_string(i) + ".jpg"));
  CHECK_FALSE(failure(pvm::Fault::source, [&] { read(images); }).empty());
}

TEST_CASE("what is no directory of pictures is refused in a sentence", "[io]") {
  const TempDir dir;
  CHECK(contains(open_failure<io::ImageDirectory>(dir.path()), "holds no pictures"));
  CHECK(contains(open_failure<io::ImageDirectory>(dir / "none"), "is not a directory"));
  write_file(dir / "file", {});
  CHECK(contains(open_failure<io::ImageDirectory>(dir / "file"), "is not a directory"));

  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  std::filesystem::create_directory(dir / "locked");
  write_file(dir / "locked" / "0.jpg", encoded(picture(0)));
  std::filesystem::permissions(dir / "locked", std::filesystem::perms::none);
  {
    const Unprivileged user;
    CHECK(contains(open_failure<io::ImageDirectory>(dir / "locked"), "cannot be read"));
  }
  std::filesystem::permissions(dir / "locked", std::filesystem::perms::all);
}

TEST_CASE("a picture that may not be read is skipped", "[io]") {
  const TempDir dir;
  const Messages messages;
  fill(dir, 2);
  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  std::filesystem::permissions(dir / "0.jpg", std::filesystem::perms::none);
  const Unprivileged user;
  io::ImageDirectory images(dir.path());
  CHECK(numbers_of(read_many(images, 2), 2) == std::vector{1, 1});
}
