// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <chrono>
#include <thread>

#include <pvm/io/prefetch.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/io/zip.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

/// A source that counts its reads, fails at a certain frame, and pauses before each.
class Probe {
 public:
  Probe(std::atomic<int>& reads, std::uint64_t fails_at, std::chrono::microseconds pause = {})
      : reads_(&reads), fails_at_(fails_at), pause_(pause) {}

  io::FrameInfo next(io::FrameShape shape, std::span<std::uint8_t> pixels) {
    ++*reads_;
    std::this_thread::sleep_for(pause_);
    if (inner_.position().frame == fails_at_) {
      throw pvm::Error(pvm::Fault::source, "frame " + std::to_string(fails_at_) + " fails");
    }
    return inner_.next(shape, pixels);
  }
  [[nodiscard]] io::Position position() const { return inner_.position(); }
  void seek(const io::Position& position) { inner_.seek(position); }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return inner_.length(); }
  [[nodiscard]] std::uint64_t skipped() const { return 0; }
  [[nodiscard]] std::string name() const { return "probe"; }

 private:
  io::Synthetic inner_{{.seed = 0, .frames = 10}};
  std::atomic<int>* reads_;
  std::uint64_t fails_at_;
  std::chrono::microseconds pause_;
};

constexpr std::uint64_t never = 1'000'000;

}  // namespace

TEST_CASE("reading ahead changes nothing but when frames are read", "[io][prefetch]") {
  for (const std::size_t capacity : {1, 2, 16}) {
    io::Synthetic plain({.seed = 0, .frames = 10});
    std::atomic<int> reads = 0;
    io::Prefetch ahead(Probe(reads, never, std::chrono::microseconds(50)), capacity);
    CHECK(ahead.length() == 10);
    for (int i = 0; i < 100; ++i) {
      CHECK(ahead.position() == plain.position());
      const bool same = read(ahead) == read(plain);
      CHECK(same);
      if (i % 7 == 0) std::this_thread::sleep_for(std::chrono::microseconds(300));
    }
    CHECK(reads <= 101 + static_cast<int>(capacity));
  }
}

TEST_CASE("a source read ahead continues wherever it is told to", "[io][prefetch]") {
  const TempDir dir;
  const Messages messages;
  Entries entries = numbered(6);
  entries[2].second = bytes_of("text");
  write_zip(dir / "a.zip", entries);
  check_resume([&] { return io::Prefetch(io::Zip(dir / "a.zip"), 3); }, 12);

  io::Prefetch zip(io::Zip(dir / "a.zip"), 4);
  read_many(zip, 2);
  CHECK(zip.skipped() == 0);  // however far it has read ahead
  read(zip);
  CHECK(zip.skipped() == 1);
  zip.seek({0, 1, 0});
  CHECK(numbers_of(read_many(zip, 3), 6) == std::vector{1, 3, 4});
  CHECK_FALSE(failure(pvm::Fault::source, [&] { zip.seek({0, 6, 0}); }).empty());
  CHECK(numbers_of(read_many(zip, 1), 6).size() == 1);
}

TEST_CASE("a failure is thrown at its place in the order", "[io][prefetch]") {
  std::atomic<int> reads = 0;
  io::Prefetch ahead(Probe(reads, 5), 4);
  for (int i = 0; i < 5; ++i) {
    read(ahead);
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  for (int i = 0; i < 2; ++i) {
    CHECK(contains(failure(pvm::Fault::source, [&] { read(ahead); }), "frame 5 fails"));
    CHECK(ahead.position().frame == 5);
  }
  ahead.seek({0, 7, 0});
  read_many(ahead, 8);
  CHECK(ahead.position() == io::Position{0, 5, 1});
  CHECK_FALSE(failure(pvm::Fault::source, [&] { read(ahead); }).empty());
}

TEST_CASE("reading ahead stops whenever it is told to", "[io][prefetch]") {
  std::atomic<int> reads = 0;
  { const io::Prefetch unread(Probe(reads, never)); }
  CHECK(reads == 0);
  for (int i = 0; i < 20; ++i) {
    io::Prefetch ahead(Probe(reads, never), 2);
    read(ahead);  // and now it waits for room, or is about to
    if (i % 2 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    io::Prefetch moved(std::move(ahead));
    read(moved);
    if (i % 3 == 0) moved.seek({0, 3, 0});
  }
  io::Prefetch failing(Probe(reads, 0), 2);
  CHECK_FALSE(failure(pvm::Fault::source, [&] { read(failing); }).empty());
}

TEST_CASE("reading ahead begins when a source is prepared", "[io][prefetch]") {
  std::atomic<int> reads = 0;
  io::Prefetch ahead(Probe(reads, never), 4);
  io::prepare(ahead, small_shape);
  const auto given_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (reads < 4 && std::chrono::steady_clock::now() < given_up) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  CHECK(reads == 4);
  CHECK(ahead.position() == io::Position{});
  io::Synthetic plain({.seed = 0, .frames = 10});
  for (int i = 0; i < 6; ++i) CHECK(read(ahead) == read(plain));
  CHECK_FALSE(failure(pvm::Fault::usage, [&] { io::prepare(ahead, {0, 0, 3}); }).empty());
}

TEST_CASE("no more is read ahead than will be asked for", "[io][prefetch]") {
  std::atomic<int> reads = 0;
  io::Prefetch ahead(Probe(reads, never), 8);
  io::seek_ahead(ahead, {}, 3);  // before it is known what to read: a plain `seek`
  read(ahead);
  const auto wait_for = [&](int wanted) {
    const auto given_up = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (reads < wanted && std::chrono::steady_clock::now() < given_up) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for those that are too many
    return reads == wanted;
  };
  CHECK(wait_for(9));
  io::Synthetic plain({.seed = 0, .frames = 10});
  plain.seek({0, 4, 0});
  reads = 0;
  io::seek_ahead(ahead, {0, 4, 0}, 3);
  CHECK(wait_for(3));
  for (int i = 0; i < 3; ++i) CHECK(read(ahead) == read(plain));
  CHECK(wait_for(3));
  for (int i = 0; i < 20; ++i) CHECK(read(ahead) == read(plain));  // and yet it was more
  CHECK(wait_for(31));
}

TEST_CASE("another shape takes effect with the next frame", "[io][prefetch]") {
  io::Synthetic plain;
  io::Prefetch ahead(io::Synthetic{}, 8);
  const io::FrameShape grey{.height = 20, .width = 30, .channels = 1};
  for (int i = 0; i < 12; ++i) {
    const io::FrameShape shape = i % 5 < 3 ? small_shape : grey;
    CHECK(read(ahead, shape) == read(plain, shape));
  }
  CHECK_FALSE(failure(pvm::Fault::usage, [] { io::Prefetch(io::Synthetic{}, 0); }).empty());
  const auto act = [&] { ahead.next({0, 0, 3}, {}); };
  CHECK_FALSE(failure(pvm::Fault::usage, act).empty());
}
