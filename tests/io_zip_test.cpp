// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <filesystem>
#include <string>
#include <vector>

#include <pvm/io/deal.hpp>
#include <pvm/io/image_dir.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/prefetch.hpp>
#include <pvm/io/sequences.hpp>
#include <pvm/io/zip.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

TEST_CASE("a zip plays its pictures in natural order, for ever", "[io]") {
  const TempDir dir;
  Entries entries = numbered(12);
  std::reverse(entries.begin(), entries.end());
  entries.emplace_back("folder/", Bytes{});
  entries.emplace_back("__MACOSX/0.jpg", bytes_of("resource fork"));
  entries.emplace_back(".hidden.jpg", bytes_of("hidden"));
  entries.emplace_back("notes.md", bytes_of("no picture"));
  for (const Packing packing : {Packing::stored, Packing::deflated}) {
    write_zip(dir / "ball.pkl.zip", entries, packing);
    const Messages messages;
    io::Zip zip(dir / "ball.pkl.zip");
    CHECK(zip.length() == 12);
    CHECK(zip.position() == io::Position{0, 0, 0});
    const auto frames = read_many(zip, 24);
    const auto numbers = numbers_of(frames, 12);
    for (std::size_t i = 0; i < 24; ++i) {
      CHECK(numbers[i] == static_cast<int>(i % 12));
      CHECK(frames[i].starts == (i % 12 == 0));
      CHECK(frames[i].label == io::Label{});
    }
    CHECK(zip.position() == io::Position{0, 0, 2});
    CHECK(zip.skipped() == 0);
    CHECK(messages.count() == 0);
  }
}

TEST_CASE("a zip whose entries begin with ./ or ../ has pictures", "[io]") {
  const TempDir dir;
  Entries entries;
  for (int i = 0; i < 4; ++i) {
    entries.emplace_back((i < 2 ? "../img" : "./img") + std::to_string(i) + ".jpg",
                         encoded(picture(i)));
  }
  entries.emplace_back("./.img9.jpg", bytes_of("hidden"));
  write_zip(dir / "a.zip", entries);
  io::Zip zip(dir / "a.zip");
  CHECK(numbers_of(read_many(zip, 4), 4) == std::vector{0, 1, 2, 3});
  CHECK(zip.position() == io::Position{0, 0, 1});
}

TEST_CASE("a zip continues wherever it is told to", "[io]") {
  const TempDir dir;
  Entries entries = numbered(5);
  entries[0].second = cut(entries[0].second, 0.5);
  entries[3].second = bytes_of("this is text");
  entries[4].second = {};
  write_zip(dir / "a.zip", entries);
  check_resume([&] { return io::Zip(dir / "a.zip"); }, 7);

  io::Zip zip(dir / "a.zip");
  CHECK(contains(failure(pvm::Fault::source, [&] { zip.seek({0, 5, 0}); }), "5 frames"));
  CHECK_FALSE(failure(pvm::Fault::source, [&] { zip.seek({1, 0, 0}); }).empty());
}

TEST_CASE("labels come with their frames", "[io]") {
  const TempDir dir;
  Entries entries = numbered(3);
  entries.emplace_back("x/labels.txt", bytes_of("1,2,3,4\n-1,-1,-1,-1\n5,6,7,8\n"));
  write_zip(dir / "a.zip", entries);
  io::Zip zip(dir / "a.zip");
  const auto frames = read_many(zip, 4);
  // In pixels of the frame, which has half of the picture's columns and rows.
  CHECK(frames[0].label == io::Label::present({0.5F, 1, 1.5F, 2}));
  CHECK(frames[1].label == io::Label::absent());
  CHECK(frames[2].label == io::Label::present({2.5F, 3, 3.5F, 4}));
  CHECK(frames[3].label == frames[0].label);
}

TEST_CASE("a label keeps its state whatever the frames come through", "[io]") {
  const TempDir dir;
  Entries entries = numbered(5);  // 32 x 24 pixels
  entries.emplace_back("labels.txt",
                       bytes_of("4,6,8,12\n-1,-1,-1,-1\n?,?,?,?\n1e38,1,1,1\n0,0,32,24\n"));
  write_zip(dir / "a.zip", entries);
  std::filesystem::create_directory(dir / "a");
  for (const auto& [name, bytes] : entries) write_file(dir / "a" / name, bytes);
  constexpr io::FrameShape shape{.height = 48, .width = 16, .channels = 3};
  const std::vector<io::Label> wanted = {io::Label::present({2, 12, 4, 24}), io::Label::absent(),
                                         io::Label{}, io::Label{},
                                         io::Label::present({0, 0, 16, 48})};
  const auto check_labels = [&](auto&& source) {
    for (std::size_t i = 0; i < 2 * wanted.size(); ++i) {
      INFO(i);
      CHECK(read(source, shape).label == wanted[i % wanted.size()]);
    }
  };
  const std::string zip = (dir / "a.zip").string(), directory = (dir / "a").string();
  for (const std::string& path : {zip, directory}) {
    INFO(path);
    check_labels(io::open_source(path));
    check_labels(io::Prefetch(io::open_source(path), 3));
    check_labels(io::Sequences({io::opener(path), io::opener(zip)}));
    check_labels(io::deal({io::opener(path)}, 1)[0]);
  }
  check_labels(io::Zip(zip));
  check_labels(io::ImageDirectory(directory));
  check_labels(io::Prefetch(io::Zip(zip), 3));
}

TEST_CASE("labels that do not fit cost one message and the labels only", "[io]") {
  const TempDir dir;
  const Messages messages;
  Entries entries = numbered(3);
  entries.emplace_back("labels.txt", bytes_of("1,2,3,4\n"));
  write_zip(dir / "short.zip", entries);
  io::Zip short_labels(dir / "short.zip");
  const auto frames = read_many(short_labels, 6);
  CHECK(frames[0].label.state == io::LabelState::present);
  CHECK(frames[2].label == io::Label{});
  CHECK(messages.count() == 1);

  entries.emplace_back("other.txt", bytes_of("1,2,3,4\n"));
  write_zip(dir / "two.zip", entries);
  io::Zip two(dir / "two.zip");
  CHECK(read(two).label == io::Label{});
  CHECK(messages.count("2 text files") == 1);
}

TEST_CASE("unreadable pictures are skipped and reported once each", "[io]") {
  const TempDir dir;
  const Messages messages;
  Entries entries = numbered(6);
  entries[0].second = cut(entries[0].second, 0.6);
  entries[2].second = bytes_of("this is text");
  entries[5].second = {};
  write_zip(dir / "a.zip", entries);
  io::Zip zip(dir / "a.zip");
  const auto frames = read_many(zip, 9);
  CHECK(numbers_of(frames, 6) == std::vector{1, 3, 4, 1, 3, 4, 1, 3, 4});
  CHECK(frames[0].starts);
  CHECK_FALSE(frames[1].starts);
  CHECK(frames[3].starts);
  CHECK(zip.skipped() == 3);
  CHECK(messages.count("is skipped") == 3);
  CHECK(messages.count("'2.jpg'") == 1);
}

TEST_CASE("damage inside a zip is noticed by the checksum", "[io]") {
  const TempDir dir;
  const Messages messages;
  const Entries entries = numbered(2);
  write_zip(dir / "a.zip", entries);
  Bytes bytes = read_file(dir / "a.zip");
  const auto& first = entries[0].second;
  const auto found = std::search(bytes.begin(), bytes.end(), first.begin(), first.end());
  REQUIRE(found != bytes.end());
  found[static_cast<std::ptrdiff_t>(first.size() / 2)] ^= 1;
  write_file(dir / "a.zip", bytes);
  io::Zip zip(dir / "a.zip");
  CHECK(numbers_of(read_many(zip, 2), 2) == std::vector{1, 1});
}

TEST_CASE("a zip of nothing readable fails after one pass", "[io]") {
  const TempDir dir;
  const Messages messages;
  write_zip(dir / "text.zip", {{"0.jpg", bytes_of("text")}, {"1.jpg", bytes_of("text")}});
  io::Zip text(dir / "text.zip");
  CHECK(contains(failure(pvm::Fault::source, [&] { read(text); }), "none of the 2 pictures"));
  CHECK_FALSE(failure(pvm::Fault::source, [&] { read(text); }).empty());
  CHECK(text.skipped() == 2);

  write_zip(dir / "secret.zip", numbered(2), Packing::encrypted);
  CHECK(contains(open_failure<io::Zip>(dir / "secret.zip"), "are encrypted"));
  CHECK(contains(open_failure<io::Zip>(dir / "secret.zip"), "secret.zip"));

  write_zip(dir / "strange.zip", numbered(2));
  Bytes bytes = read_file(dir / "strange.zip");
  constexpr std::uint8_t deflate64 = 9;
  for (std::size_t i = 0; i + 10 < bytes.size(); ++i) {
    if (bytes[i] == 'P' && bytes[i + 1] == 'K' && bytes[i + 2] == 1) bytes[i + 10] = deflate64;
    if (bytes[i] == 'P' && bytes[i + 1] == 'K' && bytes[i + 2] == 3) bytes[i + 8] = deflate64;
  }
  write_file(dir / "strange.zip", bytes);
  CHECK(contains(open_failure<io::Zip>(dir / "strange.zip"), "libzip does not know"));
}

TEST_CASE("a zip of which some pictures are encrypted plays the others", "[io]") {
  const TempDir dir;
  write_zip(dir / "a.zip", numbered(3));
  Bytes bytes = read_file(dir / "a.zip");
  std::size_t entries = 0;
  for (std::size_t i = 0; i + 8 < bytes.size(); ++i) {  // the flag of the first two
    if (bytes[i] != 'P' || bytes[i + 1] != 'K' || bytes[i + 2] != 1) continue;
    if (entries++ < 2) bytes[i + 8] |= 1;
  }
  write_file(dir / "a.zip", bytes);
  const Messages messages;
  io::Zip zip(dir / "a.zip");
  CHECK(numbers_of(read_many(zip, 2), 3) == std::vector{2, 2});
  CHECK(messages.count("is skipped") == 2);
}

TEST_CASE("what is no zip is refused in a sentence", "[io]") {
  const TempDir dir;
  CHECK(contains(open_failure<io::Zip>(dir / "none.zip"), "does not exist"));

  write_file(dir / "zero.zip", {});
  CHECK(contains(open_failure<io::Zip>(dir / "zero.zip"), "empty"));

  write_file(dir / "text.zip", bytes_of("this is text, and not short of it either"));
  CHECK(contains(open_failure<io::Zip>(dir / "text.zip"), "not a zip"));

  write_zip(dir / "a.zip", numbered(10));
  write_file(dir / "half.zip", cut(read_file(dir / "a.zip"), 0.5));
  CHECK(contains(open_failure<io::Zip>(dir / "half.zip"), "cut off"));

  Bytes empty_zip(22, 0);
  std::copy_n("PK\x05\x06", 4, empty_zip.begin());
  write_file(dir / "empty.zip", empty_zip);
  CHECK(contains(open_failure<io::Zip>(dir / "empty.zip"), "holds no pictures"));

  write_zip(dir / "other.zip", {{"a.txt", bytes_of("x")}});
  CHECK(contains(open_failure<io::Zip>(dir / "other.zip"), "holds no pictures"));

  CHECK(contains(open_failure<io::Zip>(dir.path()), "directory"));

  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  std::filesystem::permissions(dir / "a.zip", std::filesystem::perms::none);
  const Unprivileged user;
  CHECK(contains(open_failure<io::Zip>(dir / "a.zip"), "Permission denied"));
}

TEST_CASE("the size an entry claims is not believed", "[io]") {
  const TempDir dir;
  const Messages messages;
  for (const std::uint32_t claimed : {0xFFFFFFFEU, (200U << 20)}) {
    write_zip(dir / "a.zip", numbered(2), Packing::deflated);
    Bytes bytes = read_file(dir / "a.zip");
    const std::string central = "PK\x01\x02";
    const auto header = std::search(bytes.begin(), bytes.end(), central.begin(), central.end());
    for (int i = 0; i < 4; ++i) header[24 + i] = static_cast<std::uint8_t>(claimed >> (8 * i));
    write_file(dir / "a.zip", bytes);
    io::Zip zip(dir / "a.zip");
    CHECK(numbers_of(read_many(zip, 2), 2) == std::vector{1, 1});
  }
}

TEST_CASE("a zip of 70,000 frames opens at once", "[io]") {
  const TempDir dir;
  Entries entries;
  const Bytes frame = encoded(picture(4));
  for (int i = 0; i < 70'000; ++i) entries.emplace_back(std::to_string(i) + ".jpg", frame);
  write_zip(dir / "long.zip", entries);
  const auto begin = std::chrono::steady_clock::now();
  io::Zip zip(dir / "long.zip");
  const auto taken = std::chrono::steady_clock::now() - begin;
  CHECK(zip.length() == 70'000);
  CHECK(taken < std::chrono::seconds(5));  // 0.2 s on two slow cores, sanitisers and load apart
  zip.seek({0, 69'999, 0});
  CHECK(number_of(read(zip), 12) == 4);
  CHECK(zip.position() == io::Position{0, 0, 1});
}
