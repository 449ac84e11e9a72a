// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

#include <atomic>
#include <chrono>
#include <thread>

#include <pvm/io/image_dir.hpp>
#include <pvm/io/pipeline.hpp>
#include <pvm/io/prefetch.hpp>
#include <pvm/io/video.hpp>
#include <pvm/io/zip.hpp>

#include "io_helpers.hpp"

using namespace pvm_test;

namespace {

Entries with_bad_ones(int frames, const std::vector<std::size_t>& bad) {
  Entries entries = numbered(frames);
  for (const std::size_t i : bad) entries[i].second = bytes_of("text");
  return entries;
}

/// A source whose later frames are finished first, and which fails where it is told to. It notes
/// how far it was read, and how many frames were in work at once.
class Uneven {
 public:
  struct Counts {
    std::atomic<int> taken = 0, in_work = 0, most_in_work = 0;
  };
  static constexpr const char* take_name = "take";
  static constexpr const char* finish_name = "finish";
  struct Job {
    std::uint64_t index = 0;
  };
  struct Raw {};

  Uneven(Counts& counts, std::uint64_t fails_at) : counts_(&counts), fails_at_(fails_at) {}

  void take(Job& job, Raw&) {
    if (taken_ == fails_at_) throw pvm::Error(pvm::Fault::source, "no more");
    ++counts_->taken;
    job.index = taken_++;
  }
  bool finish(const Job& job, const Raw&, const io::FrameShape&,
              std::span<std::uint8_t> pixels) const {
    const int now = ++counts_->in_work;
    for (int most = counts_->most_in_work; now > most;) {
      if (counts_->most_in_work.compare_exchange_weak(most, now)) break;
    }
    std::this_thread::sleep_for(std::chrono::microseconds(100 * (9 - job.index % 10)));
    std::fill(pixels.begin(), pixels.end(), static_cast<std::uint8_t>(job.index));
    --counts_->in_work;
    return job.index % 4 != 3;
  }
  std::optional<io::FrameInfo> settle(const Job& job, bool readable) {
    position_.frame = job.index + 1;
    if (!readable) {
      ++skipped_;
      return std::nullopt;
    }
    return io::FrameInfo{job.index == 0, std::nullopt};
  }
  io::FrameInfo next(io::FrameShape shape, std::span<std::uint8_t> pixels) {
    Job job;
    Raw raw;
    return io::next_in_turn(*this, job, raw, shape, pixels);
  }
  [[nodiscard]] io::Position position() const { return position_; }
  void seek(const io::Position& position) {
    position_ = position;
    taken_ = position.frame;
  }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return std::nullopt; }
  [[nodiscard]] std::uint64_t skipped() const { return skipped_; }
  [[nodiscard]] std::string name() const { return "uneven"; }

 private:
  Counts* counts_;
  std::uint64_t fails_at_;
  std::uint64_t taken_ = 0;
  std::uint64_t skipped_ = 0;
  io::Position position_;
};

constexpr std::uint64_t never = 1'000'000;

}  // namespace

TEST_CASE("a pipeline gives what its source would, in its order", "[io][pipeline]") {
  const TempDir dir;
  const Messages messages;
  const Entries entries = with_bad_ones(11, {0, 4, 5, 10});
  write_zip(dir / "a.zip", entries, Packing::deflated);
  std::filesystem::create_directory(dir / "d");
  for (const auto& [name, bytes] : entries) write_file(dir / "d" / name, bytes);
  write_video(dir / "a.avi", 9);
  const auto compare = [](auto plain, auto ahead) {
    for (int i = 0; i < 60; ++i) {
      const bool same = read(ahead) == read(plain);
      CHECK(same);
      CHECK(ahead.position() == plain.position());
      CHECK(ahead.skipped() == plain.skipped());
      CHECK(ahead.length() == plain.length());
    }
  };
  for (const std::size_t capacity : {1, 2, 5, 32}) {
    compare(io::Zip(dir / "a.zip"), io::Pipeline(io::Zip(dir / "a.zip"), capacity));
    compare(io::ImageDirectory(dir / "d"), io::Pipeline(io::ImageDirectory(dir / "d"), capacity));
    compare(io::Video(dir / "a.avi"), io::Pipeline(io::Video(dir / "a.avi"), capacity));
    compare(io::Video(dir / "a.avi"),
            io::Prefetch(io::Pipeline(io::Video(dir / "a.avi"), capacity), capacity));
  }
}

TEST_CASE("a pipeline continues wherever it is told to", "[io][pipeline]") {
  const TempDir dir;
  const Messages messages;
  write_zip(dir / "a.zip", with_bad_ones(6, {2, 5}));
  write_video(dir / "a.avi", 6);
  check_resume([&] { return io::Pipeline(io::Zip(dir / "a.zip"), 4); }, 12);
  check_resume([&] { return io::Pipeline(io::Video(dir / "a.avi"), 4); }, 14);
  io::Pipeline zip(io::Zip(dir / "a.zip"), 4);
  read_many(zip, 2);
  CHECK(zip.skipped() == 0);  // however far it has run ahead
  read(zip);
  CHECK(zip.skipped() == 1);
  zip.seek({0, 1, 0});
  CHECK(numbers_of(read_many(zip, 3), 6) == std::vector{1, 3, 4});
  CHECK_FALSE(failure(pvm::Fault::source, [&] { zip.seek({0, 6, 0}); }).empty());
  const io::FrameShape grey{.height = 20, .width = 30, .channels = 1};
  io::Zip plain(dir / "a.zip");
  plain.seek({0, 3, 0});
  zip.seek({0, 3, 0});
  for (int i = 0; i < 20; ++i) {
    const io::FrameShape shape = i % 5 < 3 ? small_shape : grey;
    CHECK(read(zip, shape) == read(plain, shape));
  }
}

TEST_CASE("frames are finished side by side and handed on in order", "[io][pipeline]") {
  Uneven::Counts counts;
  {
    io::Pipeline ahead(Uneven(counts, never), 8);
    int expected = 0;
    for (int i = 0; i < 200; ++i) {
      if (expected % 4 == 3) ++expected;
      CHECK(read(ahead).pixels.front() == static_cast<std::uint8_t>(expected++));
    }
    CHECK(counts.taken <= expected + 8);  // bounded
    CHECK(counts.most_in_work <= 8);
    if (std::thread::hardware_concurrency() > 1) CHECK(counts.most_in_work > 1);
    const auto stages = ahead.usage();
    REQUIRE(stages.size() == 2);
    CHECK(stages[0].name == "take");
    CHECK(stages[1].frames >= 200);
    CHECK(stages[1].busy > 0);
    CHECK(stages[1].capacity == 8);
  }
  CHECK(counts.in_work == 0);  // nothing is left behind
}

TEST_CASE("a pipeline's failures are thrown at their place", "[io][pipeline]") {
  Uneven::Counts counts;
  io::Pipeline ahead(Uneven(counts, 9), 4);
  for (const int expected : {0, 1, 2, 4, 5, 6, 8}) {
    CHECK(read(ahead).pixels.front() == expected);
  }
  for (int i = 0; i < 2; ++i) {
    CHECK(contains(failure(pvm::Fault::source, [&] { read(ahead); }), "no more"));
    CHECK(ahead.position().frame == 9);
  }
  ahead.seek({0, 6, 0});
  CHECK(read(ahead).pixels.front() == 6);
  CHECK(read(ahead).pixels.front() == 8);
  CHECK_FALSE(failure(pvm::Fault::source, [&] { read(ahead); }).empty());

  const TempDir dir;
  const Messages messages;
  write_zip(dir / "bad.zip", with_bad_ones(3, {0, 1, 2}));
  io::Pipeline bad(io::Zip(dir / "bad.zip"), 2);
  for (int i = 0; i < 3; ++i) {
    CHECK(contains(failure(pvm::Fault::source, [&] { read(bad); }), "none of the 3 pictures"));
  }
  CHECK(messages.count("is skipped") == 3);
  const auto none = [&] { io::Pipeline(io::Zip(dir / "bad.zip"), 0); };
  CHECK_FALSE(failure(pvm::Fault::usage, none).empty());
}
