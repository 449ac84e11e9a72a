// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The report of a run: its numbers add up, and its sentence names the bottleneck.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/io/write_zip.hpp>
#include <pvm/train/report.hpp>
#include <pvm/train/trainer.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"

namespace io = pvm::io;
using namespace train_test;

namespace {

/// Generated frames that take their time.
class Slow {
 public:
  explicit Slow(std::chrono::microseconds pause) : pause_(pause) {}
  io::FrameInfo next(io::FrameShape shape, std::span<std::uint8_t> pixels) {
    std::this_thread::sleep_for(pause_);
    return inner_.next(shape, pixels);
  }
  [[nodiscard]] io::Position position() const { return inner_.position(); }
  void seek(const io::Position& position) { inner_.seek(position); }
  [[nodiscard]] std::optional<std::uint64_t> length() const { return inner_.length(); }
  [[nodiscard]] std::uint64_t skipped() const { return 0; }
  [[nodiscard]] std::string name() const { return "slow"; }

 private:
  io::Synthetic inner_;
  std::chrono::microseconds pause_;
};

struct Sleeper {
  std::uint64_t next(std::uint64_t step) const { return step + 1; }
  void at(const pvm::Moment&) const { std::this_thread::sleep_for(std::chrono::milliseconds(10)); }
};

}  // namespace

TEST_CASE("A report's parts add up", "[train][report]") {
  const TempDir dir;
  io::Synthetic made({.seed = 3, .frames = 40});
  io::write_published_zip(dir / "a.zip", made, {24, 24, 3}, 40);
  auto streams = io::deal({io::opener((dir / "a.zip").string())}, 2);
  pvm::Trainer<pvm::fp32, pvm::dynamic> trainer(tiny_spec(), {.batch = 2});
  trainer.fit(streams, pvm::Steps{300});
  const pvm::Report& report = trainer.report();
  CHECK(report.frames == 600);
  CHECK(report.replayed > 400);
  CHECK(report.replayed < 600);
  CHECK(report.engine > 0);
  CHECK(report.waiting > 0);
  CHECK(report.engine + report.waiting + report.other == Approx(report.seconds));
  CHECK(report.rate() == Approx(600 / report.seconds));
  CHECK(report.engine_share() == Approx(report.engine / report.seconds));
  CHECK(report.replayed == 600 - 40);
  REQUIRE(report.stages.size() == 2);
  CHECK(report.stages[0].name == "read");
  CHECK(report.stages[0].frames == 40);
  CHECK(report.stages[1].name == "decode and resize");
  CHECK(report.stages[1].frames == 40);  // by both streams together
  CHECK(report.stages[1].busy > 0);
  CHECK(report.stages[1].capacity == 256);
  const std::string text = pvm::report_text(report);
  for (const char* part : {"read", "decode and resize", "engine", "frames/s", "bottleneck"}) {
    CHECK(contains(text, part));
  }
}

TEST_CASE("A report is of the last fit", "[train][report]") {
  auto streams = io::deal({io::opener("synthetic:2")}, 1);
  pvm::Trainer<> trainer(tiny_spec());
  trainer.fit(streams.front(), pvm::Steps{100});
  trainer.fit(streams.front(), pvm::Steps{600});  // more than had been read ahead
  CHECK(trainer.report().frames == 500);
  CHECK(trainer.report().replayed == 0);
  REQUIRE(trainer.report().stages.size() == 2);
  CHECK(trainer.report().stages[0].name == "source");
  CHECK(trainer.report().stages[0].busy > 0);
  CHECK(trainer.report().stages[1].frames == 500);
}

TEST_CASE("A report names the bottleneck", "[train][report]") {
  pvm::Trainer<> slow(tiny_spec());
  slow.fit(Slow(std::chrono::microseconds(2000)), pvm::Steps{100});
  CHECK(contains(pvm::bottleneck(slow.report()), "the source"));
  CHECK(slow.report().engine_share() < 0.5);

  pvm::Trainer<> busy(tiny_spec());
  busy.fit(io::Synthetic{}, pvm::Steps{40}, Sleeper{});
  CHECK(contains(pvm::bottleneck(busy.report()), "beside the steps"));

  pvm::Report report{.seconds = 10, .engine = 9.8, .waiting = 0.1, .other = 0.1, .frames = 5000};
  CHECK(contains(pvm::bottleneck(report), "the engine, which computed 98 %"));
  report = {.seconds = 10, .engine = 2, .waiting = 7.5, .other = 0.5, .frames = 5000};
  report.stages = {{.name = "read", .busy = 3},
                   {.name = "decode and resize", .busy = 60, .threads = 8}};
  CHECK(contains(pvm::bottleneck(report), "'decode and resize'"));
  CHECK(contains(pvm::bottleneck(report), "more cores"));
  report.stages[0].busy = 9;
  CHECK(contains(pvm::bottleneck(report), "'read'"));
  CHECK(contains(pvm::bottleneck(report), "75 %"));
  CHECK(contains(pvm::bottleneck(report), "a faster disk"));
  CHECK_FALSE(contains(pvm::bottleneck(report), "frame cache"));  // nothing was kept
  report.replayed = 2000;
  CHECK(contains(pvm::bottleneck(report), "frame cache"));
}
