// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

/// Files a.zip, b.zip, ... of `frames[i]` frames each; their numbers begin at 10 * i.
std::vector<std::string> make_zips(const TempDir& dir, const std::vector<int>& frames) {
  std::vector<std::string> paths;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    Entries entries;
    for (int k = 0; k < frames[i]; ++k) {
      entries.emplace_back(std::to_string(k) + ".jpg",
                           encoded(picture(static_cast<int>(i) * 10 + k)));
    }
    paths.push_back((dir / (std::string(1, static_cast<char>('a' + i)) + ".zip")).string());
    write_zip(paths.back(), entries);
  }
  return paths;
}

std::vector<io::Opener> openers_of(const std::vector<std::string>& paths) {
  std::vector<io::Opener> openers;
  for (const auto& path : paths) openers.push_back(io::opener(path));
  return openers;
}

}  // namespace

TEST_CASE("sequences play one after the other, for ever", "[io]") {
  const TempDir dir;
  const Messages messages;
  const auto paths = make_zips(dir, {3, 1, 2});
  io::Sequences all(openers_of(paths), "set");
  const auto frames = read_many(all, 13);
  const std::vector order{0, 1, 2, 10, 20, 21, 0, 1, 2, 10, 20, 21, 0};
  CHECK(numbers_of(frames, 30) == order);
  for (std::size_t i = 0; i < frames.size(); ++i) CHECK(frames[i].starts == (order[i] % 10 == 0));
  CHECK(all.position() == io::Position{0, 1, 2});
  CHECK(messages.count() == 0);
  check_resume([&] { return io::Sequences(openers_of(paths)); }, 13);
  CHECK_FALSE(failure(pvm::Fault::source, [&] { all.seek({3, 0, 0}); }).empty());
  CHECK_FALSE(failure(pvm::Fault::source, [&] { all.seek({1, 5, 0}); }).empty());
  CHECK_FALSE(failure(pvm::Fault::usage, [] { io::Sequences({}); }).empty());
}

TEST_CASE("the threads that decode stay from one sequence to the next", "[io]") {
  const TempDir dir;
  const auto paths = make_zips(dir, {1, 1, 1});
  {
    io::Sequences all(openers_of(paths));
    CHECK(io::DecodePool::running() == nullptr);
    std::weak_ptr<io::DecodePool> first;
    for (int i = 0; i < 6; ++i) {  // each closes its file
      read(all);
      REQUIRE(io::DecodePool::running() != nullptr);
      if (i == 0) first = io::DecodePool::running();
      CHECK(io::DecodePool::running() == first.lock());
    }
  }
  CHECK(io::DecodePool::running() == nullptr);
}

TEST_CASE("unreadable ends of sequences do not play their beginnings again", "[io]") {
  const TempDir dir;
  const Messages messages;
  const auto paths = make_zips(dir, {1, 2});
  Entries entries = numbered(5);
  for (const std::size_t bad : {0U, 3U, 4U}) entries[bad].second = bytes_of("text");
  write_zip(paths[0], entries);
  io::Sequences all(openers_of(paths));
  const auto frames = read_many(all, 10);
  CHECK(numbers_of(frames, 20) == std::vector{1, 2, 10, 11, 1, 2, 10, 11, 1, 2});
  CHECK(frames[0].starts);
  CHECK(frames[2].starts);
  CHECK(frames[4].starts);
  CHECK(all.skipped() == 3);
  CHECK(messages.count() == 3);
  check_resume([&] { return io::Sequences(openers_of(paths)); }, 10);
}

TEST_CASE("sequences that cannot be opened are left out and reported once", "[io]") {
  const TempDir dir;
  const Messages messages;
  auto paths = make_zips(dir, {2, 2});
  paths.insert(paths.begin() + 1, (dir / "none.zip").string());
  io::Sequences all(openers_of(paths));
  const auto frames = read_many(all, 9);
  CHECK(numbers_of(frames, 20) == std::vector{0, 1, 10, 11, 0, 1, 10, 11, 0});
  CHECK(messages.count("none.zip") == 1);
  check_resume([&] { return io::Sequences(openers_of(paths)); }, 9);

  io::Sequences nothing(openers_of({paths[1], paths[1]}), "bad set");
  CHECK(contains(failure(pvm::Fault::source, [&] { read(nothing); }), "bad set"));
}

TEST_CASE("one source is spread over the streams of a batch", "[io]") {
  const TempDir dir;
  const auto zip = make_zips(dir, {10});
  write_video(dir / "a.avi", 10);
  for (const auto& path : {zip[0], (dir / "a.avi").string()}) {
    auto streams = io::deal({io::opener(path)}, 4);
    REQUIRE(streams.size() == 4);
    for (std::size_t k = 0; k < 4; ++k) {
      CHECK(streams[k].position() == io::Position{0, k * 10 / 4, 0});
      const auto frames = read_many(streams[k], 12);
      for (std::size_t i = 0; i < 12; ++i) {
        const std::size_t number = (k * 10 / 4 + i) % 10;
        CHECK(number_of(frames[i], 10) == static_cast<int>(number));
        CHECK(frames[i].starts == (i == 0 || number == 0));
      }
    }
    for (std::size_t k = 0; k < 4; ++k) {
      check_resume([&] { return std::move(io::deal({io::opener(path)}, 4, 3)[k]); }, 12);
    }
  }
  CHECK(io::deal({io::opener(zip[0])}, 1).size() == 1);
  CHECK(io::deal({io::opener(zip[0])}, 23).size() == 23);
}

TEST_CASE("many files are dealt out to the streams of a batch", "[io]") {
  const TempDir dir;
  const auto paths = make_zips(dir, {2, 1, 3, 1, 2});
  auto streams = io::deal(openers_of(paths), 2);
  CHECK(numbers_of(read_many(streams[0], 9), 50) == std::vector{0, 1, 20, 21, 22, 40, 41, 0, 1});
  CHECK(numbers_of(read_many(streams[1], 4), 50) == std::vector{10, 30, 10, 30});
  check_resume([&] { return std::move(io::deal(openers_of(paths), 2)[0]); }, 9);
}

TEST_CASE("a file that cannot be read leaves the others their numbers", "[io]") {
  const TempDir dir;
  const Messages messages;
  const auto paths = make_zips(dir, {1, 1, 1, 1, 1, 1});
  const auto names = [&](std::size_t streams) {
    std::vector<std::string> names;
    for (const auto& stream : io::deal(openers_of(paths), streams)) names.push_back(stream.name());
    return names;
  };
  const auto before = names(2);
  CHECK(before[0] != before[1]);
  std::filesystem::remove(paths[2]);
  CHECK(names(2) == before);
  CHECK(messages.count("c.zip") == 1);
  auto streams = io::deal(openers_of(paths), 2);
  CHECK(numbers_of(read_many(streams[0], 4), 60) == std::vector{0, 40, 0, 40});
  CHECK(messages.count("c.zip") == 2);  // once for each time that they were dealt
  streams[0].seek({2, 0, 0});
  CHECK(number_of(read(streams[0]), 60) == 40);
  streams[0].seek({1, 0, 0});
  CHECK(number_of(read(streams[0]), 60) == 40);

  for (const std::size_t k : {0U, 4U}) std::filesystem::remove(paths[k]);
  auto fewer = io::deal(openers_of(paths), 2);  // none is left for stream 0: they are dealt anew
  CHECK(numbers_of(read_many(fewer[0], 3), 60) == std::vector{10, 50, 10});
  CHECK(numbers_of(read_many(fewer[1], 2), 60) == std::vector{30, 30});
}

TEST_CASE("few files are shared by the streams of a batch", "[io]") {
  const TempDir dir;
  const Messages messages;
  auto paths = make_zips(dir, {6, 4});
  paths.push_back((dir / "none.zip").string());
  auto streams = io::deal(openers_of(paths), 5);
  std::vector<std::vector<int>> begins;
  for (auto& stream : streams) begins.push_back(numbers_of(read_many(stream, 3), 20));
  CHECK(begins ==
        std::vector<std::vector<int>>{{0, 1, 2}, {10, 11, 12}, {2, 3, 4}, {12, 13, 10}, {4, 5, 0}});
  CHECK(messages.count("none.zip") == 1);
}

TEST_CASE("what cannot be dealt is refused in a sentence", "[io]") {
  const TempDir dir;
  const Messages messages;
  write_video(dir / "a.avi", 5);
  const io::Opener live = [&] {
    return io::Camera(io::open_video((dir / "a.avi").string()), "stream");
  };
  CHECK(contains(failure(pvm::Fault::usage, [&] { io::deal({live}, 2); }), "batch of 1"));
  CHECK(io::deal({live}, 1).size() == 1);
  CHECK_FALSE(failure(pvm::Fault::usage, [&] { io::deal({live}, 0); }).empty());
  CHECK_FALSE(failure(pvm::Fault::usage, [&] { io::deal({}, 1); }).empty());
  const io::Opener none = io::opener((dir / "none.zip").string());
  CHECK_FALSE(failure(pvm::Fault::source, [&] { io::deal({none}, 2); }).empty());
  CHECK_FALSE(failure(pvm::Fault::source, [&] { io::deal({none, none}, 2); }).empty());
}
