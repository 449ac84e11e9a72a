// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The report of a run: its numbers add up, and its sentence names the bottleneck.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include <nlohmann/json.hpp>

#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/prefetch.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/io/write_zip.hpp>
#include <pvm/train/checkpoints.hpp>
#include <pvm/train/report.hpp>
#include <pvm/train/trace_file.hpp>
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

TEST_CASE("A short run's report does not blame what it has hardly used", "[train][report]") {
  // 0.01 s of work: the first frames are late, as a thread starts; the rest is the engine's.
  pvm::Report report{.seconds = 0.01, .engine = 0.0085, .waiting = 0.001, .starting = 0.001};
  report.other = 0.0005;
  report.frames = 50;
  report.stages = {{.name = "source", .busy = 0.0002}};
  CHECK(contains(pvm::bottleneck(report), "the engine, which computed 85 %"));
  report.engine = 0.002;
  report.waiting = report.starting = 0.0075;
  CHECK(contains(pvm::bottleneck(report), "is the start: 75 % of the 0.010 s"));
  report.waiting = report.starting = 0.0001;
  report.other = 0.0079;
  report.callbacks = {{"Steps", 2, 0}, {"Checkpoints", 2, 0.007}};
  CHECK(contains(pvm::bottleneck(report), "above all Checkpoints (70 %)"));
  report.frames = 0;
  CHECK(contains(pvm::bottleneck(report), "no step was run"));
}

TEST_CASE("A slow source is named though the engine computes most of the time", "[train][report]") {
  // Every block waits for a third of its time: a faster engine would only wait longer.
  pvm::Report report{.seconds = 10, .engine = 6.6, .waiting = 3.3, .source_bound = 9.8};
  report.other = 0.1;
  report.frames = 5000;
  report.stages = {{.name = "read and decode", .busy = 9.7}};
  CHECK(contains(pvm::bottleneck(report), "'read and decode'"));
  // With frames that are kept only the first pass waits.
  report.source_bound = 4;
  CHECK(contains(pvm::bottleneck(report), "the engine, which"));
  // A source that had hardly anything to do was kept from working.
  report.source_bound = 9.8;
  report.stages.front().busy = 0.5;
  CHECK(contains(pvm::bottleneck(report), "a lack of cores"));
}

TEST_CASE("A trace shows the stages, their threads and the way of frames", "[train][report]") {
  const TempDir dir;
  io::Synthetic made({.seed = 3, .frames = 40});
  io::write_published_zip(dir / "a.zip", made, {24, 24, 3}, 40);
  pvm::TraceFile trace(dir / "out" / "trace.json");
  auto streams = io::deal({io::opener((dir / "a.zip").string())}, 2);
  pvm::Trainer<pvm::fp32, pvm::dynamic> trainer(tiny_spec(), {.batch = 2, .threads = 2});
  trainer.fit(streams, pvm::Steps{300}, pvm::Checkpoints{(dir / "run").string(), 100});
  trace.write(trainer.report());
  const auto json = nlohmann::json::parse(read_file(dir / "out" / "trace.json"));
  std::map<std::string, int> spans, counters;
  std::map<std::string, double> seconds;
  std::map<int, std::string> threads;
  std::map<int, std::map<std::string, int>> flows;
  for (const auto& event : json["traceEvents"]) {
    const std::string phase = event["ph"], name = event["name"];
    if (phase == "X") {
      ++spans[name];
      CHECK(event["ts"].get<double>() >= 0);
      seconds[name] += event["dur"].get<double>() / 1e6;
    }
    if (phase == "C") ++counters[name];
    if (name == "thread_name") threads[event["tid"]] = event["args"]["name"];
    if (name == "frame") ++flows[event["id"]][phase];
  }
  for (const char* name :
       {"read", "decode and resize", "frames for a block", "steps", "upload to the frame cache",
        "wait for the engine", "Checkpoints", "read the engine's state", "write a checkpoint"}) {
    INFO(name);
    CHECK(spans[name] > 0);
  }
  CHECK(spans["read"] == 40);
  CHECK(spans["write a checkpoint"] == 3);
  CHECK(flows.size() == 40);  // each frame is decoded once
  int whole = 0;
  for (auto& [id, phases] : flows) {
    CHECK(phases["s"] == 1);
    CHECK(phases["f"] <= 1);
    whole += phases["f"];
  }
  CHECK(whole > 20);
  CHECK(counters.count("frames read ahead") == 1);
  CHECK(counters.count("resident memory (MB)") == 1);
  CHECK(threads.size() >= 3);
  for (const auto& [id, name] : threads) CHECK(name != "thread");
  // The report is of the same spans.
  const auto& report = json["otherData"]["report"];
  CHECK(report["frames"] == 600);
  CHECK(report["bottleneck"] == pvm::bottleneck(trainer.report()));
  CHECK(seconds["read"] == Approx(trainer.report().stages[0].busy).margin(1e-4));
  double saving = 0;
  for (const auto& callback : trainer.report().callbacks) {
    if (callback.name == "Checkpoints") saving = callback.seconds;
  }
  CHECK(seconds["Checkpoints"] == Approx(saving).margin(1e-4));
}

namespace shown {

thread_local std::vector<std::string> open;  // the spans of this thread that last
std::atomic<int> begun = 0, wrong = 0;

constexpr pvm::trace::Ranges ranges{[](const char* name) {
                                      open.emplace_back(name);
                                      ++begun;
                                    },
                                    [] {
                                      if (open.empty()) ++wrong;
                                      if (!open.empty()) open.pop_back();
                                    }};

}  // namespace shown

TEST_CASE("Spans are shown to profilers while they last, one inside of another",
          "[train][report]") {
  pvm::trace::also_show(&shown::ranges);
  {
    const pvm::trace::Span outer("outer");
    pvm::trace::Span inner("inner");
    CHECK(shown::open == std::vector<std::string>{"outer", "inner"});
    inner.end();
    CHECK(shown::open == std::vector<std::string>{"outer"});
  }
  pvm::Trainer<> trainer(tiny_spec());
  io::Synthetic frames;
  trainer.fit(frames, pvm::Steps{20});
  pvm::trace::also_show(nullptr);
  CHECK(shown::open.empty());
  CHECK(shown::begun > 22);
  CHECK(shown::wrong == 0);
}

TEST_CASE("A trace of a long run keeps its beginning and its end, in bounded memory",
          "[train][report]") {
  pvm::trace::start();
  constexpr int many = 300'000;
  for (int i = 0; i < many; ++i) pvm::trace::counter("i", i);
  pvm::trace::stop();
  pvm::trace::counter("i", -1);  // not recorded
  const std::string text = pvm::trace::json();
  const auto json = nlohmann::json::parse(text);
  std::vector<int> values;
  for (const auto& event : json["traceEvents"]) {
    if (event["ph"] == "C") values.push_back(event["args"]["value"]);
  }
  CHECK(values.size() == 2 * pvm::trace::detail::Buffer::most);
  CHECK(values.front() == 0);
  CHECK(values.back() == many - 1);
  CHECK(std::is_sorted(values.begin(), values.end()));
  CHECK(json["otherData"]["events left out"] == many - static_cast<int>(values.size()));
}
