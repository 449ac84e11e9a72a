// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Callbacks: progress, metrics, previews, stopping.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <unistd.h>

#include <nlohmann/json.hpp>
#include <opencv2/core.hpp>
#include <opencv2/imgcodecs.hpp>

#include <pvm/io/deal.hpp>
#include <pvm/io/preview.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/pvm.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"

namespace io = pvm::io;
using namespace train_test;

namespace {

std::vector<nlohmann::json> lines_of(const std::filesystem::path& path) {
  std::istringstream text(read_file(path));
  std::vector<nlohmann::json> lines;
  for (std::string line; std::getline(text, line);) lines.push_back(nlohmann::json::parse(line));
  return lines;
}

std::vector<std::uint64_t> steps_of(const std::filesystem::path& path) {
  std::vector<std::uint64_t> steps;
  for (const auto& line : lines_of(path)) steps.push_back(line["step"].get<std::uint64_t>());
  return steps;
}

/// Remembers every step's frame and prediction.
struct Recorder {
  std::vector<std::vector<std::uint8_t>> frames{};
  std::vector<std::vector<float>> predictions{};

  static std::uint64_t next(std::uint64_t step) { return step + 1; }
  void at(const pvm::Moment& moment) {
    const auto frame = moment.trainer.last_frame();
    frames.emplace_back(frame.begin(), frame.end());
    predictions.push_back(moment.trainer.prediction());
  }
};

/// Ends a run at a step, as a signal would.
struct StopAt {
  std::uint64_t step;
  std::uint64_t next(std::uint64_t now) const { return now < step ? step : pvm::never; }
  static void at(const pvm::Moment& moment) { moment.trainer.request_stop(); }
};

void train(std::uint64_t begin, std::uint64_t end, pvm::Metrics metrics) {
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  if (begin > 0) trainer.fit(frames, pvm::Steps{begin});
  trainer.fit(frames, pvm::Steps{end}, metrics);
}

}  // namespace

TEST_CASE("The progress line is the one users know", "[train]") {
  CHECK(pvm::progress_line({12'500'000, 100'000'000, 318.21, 321.4, 77 * 3600 + 12 * 60 + 4, {}}) ==
        "12500000/100000000 (12.5%) | fps: 318.2 avg / 321.4 inst | ETA: 77h12m04s");
  CHECK(pvm::progress_line({1, 3, 1000, 2000.06, 59.6, 24.34}) ==
        "1/3 (33.3%) | fps: 1000.0 avg / 2000.1 inst | ETA: 0h01m00s | psnr: 24.3");
  CHECK(contains(pvm::progress_line({0, 3, 0, 0, std::nan(""), {}}), "ETA: "));
}

TEST_CASE("Frames of a slow source are learned as they come", "[train]") {
  // A camera with three frames a second, during whose third somebody stops the run.
  struct Slow : io::Synthetic {
    pvm::Trainer<>* trainer = nullptr;
    io::FrameInfo next(io::FrameShape shape, std::span<std::uint8_t> pixels) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      if (position().frame == 2) trainer->request_stop();
      return io::Synthetic::next(shape, pixels);
    }
  };
  pvm::Trainer<> trainer(tiny_spec()), fast(tiny_spec());
  Slow slow;
  slow.trainer = &trainer;
  CHECK(trainer.fit(slow, pvm::Steps{30}).step == 3);
  io::Synthetic frames;
  fast.fit(frames, pvm::Steps{3});
  CHECK(trainer.prediction() == fast.prediction());
  const auto last = trainer.last_frame(), same = fast.last_frame();
  CHECK(std::equal(last.begin(), last.end(), same.begin(), same.end()));
}

TEST_CASE("Progress in a file is a line per interval", "[train]") {
  const TempDir dir;
  std::FILE* const out = std::fopen((dir / "log").c_str(), "w");
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  trainer.fit(frames, pvm::Steps{250}, pvm::Progress{100, out});
  std::fclose(out);
  const std::string text = read_file(dir / "log");
  CHECK(contains(text, "100/250 (40.0%) | fps: "));
  CHECK(contains(text, "\n200/250 (80.0%)"));
  CHECK(contains(text, "\n250/250 (100.0%)"));
  CHECK(contains(text, "ETA: 0h00m00s | psnr: "));
  CHECK(std::count(text.begin(), text.end(), '\n') == 3);
  CHECK_FALSE(contains(text, "\r"));
}

TEST_CASE("Metrics are what they say, and stop at a sequence's end", "[train][metrics]") {
  const TempDir dir;
  constexpr std::uint64_t pass = 30, steps = 100, every = 40;
  io::Synthetic frames({.seed = 1, .frames = pass});
  pvm::Trainer<> trainer(tiny_spec());
  Recorder recorder;
  trainer.fit(frames, pvm::Steps{steps}, recorder, pvm::Metrics{dir / "m.jsonl", every});

  const auto lines = lines_of(dir / "m.jsonl");
  REQUIRE(lines.size() == 3);
  std::uint64_t first = 0;
  for (const auto& line : lines) {
    const auto last = line["step"].get<std::uint64_t>();
    double prediction = 0, persistence = 0, values = 0;
    for (std::uint64_t t = first; t < last; ++t) {
      if (t % pass < 2) continue;  // the frame two steps before is of another pass
      for (std::size_t i = 0; i < recorder.frames[t].size(); ++i) {
        const double now = recorder.frames[t][i] / 255.0;
        prediction += std::pow(recorder.predictions[t - 2][i] - now, 2);
        persistence += std::pow(recorder.frames[t - 2][i] / 255.0 - now, 2);
        values += 1;
      }
    }
    INFO("steps " << first << " to " << last);
    const auto near = [](double a, double b) { return std::abs(a - b) < 1e-4 * b; };
    CHECK(near(line["mse"].get<double>(), prediction / values));
    CHECK(near(line["persistence_mse"].get<double>(), persistence / values));
    CHECK(near(line["psnr"].get<double>(), -10 * std::log10(prediction / values)));
    CHECK(near(line["persistence_psnr"].get<double>(), -10 * std::log10(persistence / values)));
    CHECK(line["loss"].get<double>() > 0);
    CHECK(line["fps"].get<double>() > 0);
    CHECK(line["seconds"].get<double>() > 0);
    first = last;
  }
  CHECK(first == steps);
}

TEST_CASE("Metrics of a resumed run go on where they were", "[train][metrics]") {
  const TempDir dir;
  const auto path = dir / "m.jsonl";
  using Steps = std::vector<std::uint64_t>;
  train(0, 45, pvm::Metrics{path, 10});
  CHECK(steps_of(path) == Steps{10, 20, 30, 40, 45});
  const double seconds = lines_of(path)[2]["seconds"].get<double>();

  // As if it had been killed in the middle of a line and went on from a checkpoint at step 30.
  write_file(path, read_file(path) + "{\"step\":50,\"fps\"");
  train(30, 52, pvm::Metrics{path, 10});
  CHECK(steps_of(path) == Steps{10, 20, 30, 40, 50, 52});
  CHECK(lines_of(path)[3]["seconds"].get<double>() > seconds);

  // A new run does not mix with the old one, and does not lose it.
  train(0, 10, pvm::Metrics{path, 10});
  CHECK(steps_of(path) == Steps{10});
  CHECK(steps_of(path.string() + ".old") == Steps{10, 20, 30, 40, 50, 52});
  train(0, 20, pvm::Metrics{path, 10});
  CHECK(steps_of(path) == Steps{10, 20});
  CHECK(steps_of(path.string() + ".old") == Steps{10, 20, 30, 40, 50, 52});
  CHECK(steps_of(path.string() + ".old2") == Steps{10});

  write_file(dir / "notes.txt", "my notes\n");
  CHECK(contains(error_of([&] {
                   train(0, 10, pvm::Metrics{dir / "notes.txt", 10});
                 }),
                 "something else"));
  CHECK(read_file(dir / "notes.txt") == "my notes\n");
}

TEST_CASE("What cannot be read is not taken for empty, and stays", "[train][metrics][preview]") {
  const TempDir dir;
  std::filesystem::permissions(dir.path(), std::filesystem::perms::all);
  const auto path = dir / "mine.png";
  write_file(path, "not to be read");
  std::filesystem::permissions(path, std::filesystem::perms::none);
  const auto refusal = [&](auto callback) {
    return error_of([&] {
      io::Synthetic frames;
      pvm::Trainer<> trainer(tiny_spec());
      const bool is_root = geteuid() == 0;  // who may read all
      constexpr uid_t nobody = 65534;
      if (is_root) REQUIRE(seteuid(nobody) == 0);
      const std::shared_ptr<void> again(nullptr, [&](void*) {
        if (is_root && seteuid(0) != 0) std::abort();
      });
      trainer.fit(frames, pvm::Steps{20}, callback);
    });
  };
  CHECK(contains(refusal(pvm::Metrics{path, 10}), "cannot be read"));
  CHECK(contains(refusal(io::Preview{path, 10}), "cannot be read"));
  std::filesystem::permissions(path, std::filesystem::perms::all);
  CHECK(read_file(path) == "not to be read");
}

TEST_CASE("A frame that never comes twice leaves nothing unmeasured but the first two",
          "[train][metrics]") {
  const TempDir dir;
  train(0, 2, pvm::Metrics{dir / "m.jsonl", 2});
  CHECK(lines_of(dir / "m.jsonl")[0]["mse"].is_null());
  CHECK(lines_of(dir / "m.jsonl")[0]["psnr"].is_null());
}

TEST_CASE("A callback that is due where a run has been is refused", "[train]") {
  struct At {
    std::uint64_t first, then;
    [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
      return step < first ? first : then;
    }
    static void at(const pvm::Moment&) {}
  };
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  const auto refusal = [&](At callback) {
    return error_of([&] { trainer.fit(frames, pvm::Steps{trainer.step() + 20}, callback); });
  };
  CHECK(contains(refusal({0, 0}), "next(0) is 0"));
  CHECK(contains(refusal({10, 10}), "next(10) is 10"));
  CHECK(contains(refusal({15, 3}), "pvm::never"));
  CHECK(refusal({18, pvm::never}).empty());
}

TEST_CASE("A stop ends one fit, however that ends", "[train]") {
  struct Fails {
    pvm::TrainerBase& trainer;
    static std::uint64_t next(std::uint64_t step) { return step + 1; }
    void at(const pvm::Moment&) const {
      trainer.request_stop();
      throw std::runtime_error("no");
    }
  };
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  CHECK_THROWS(trainer.fit(frames, pvm::Steps{10}, Fails{trainer}));
  const auto result = trainer.fit(frames, pvm::Steps{10});
  CHECK((result.step == 10 && !result.cut_short));
}

TEST_CASE("A source that was moved between two fits is not scored across the cut", "[train]") {
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  trainer.fit(frames, pvm::Steps{10});
  frames.seek({0, 500, 0});
  pvm::LastPass last{2};
  trainer.fit(frames, pvm::Steps{12}, last);
  CHECK((last.steps() == 2 && last.score().pixels == 0));
}

TEST_CASE("Of a run that is stopped before a whole window all steps are scored", "[train]") {
  struct StopAt {
    std::uint64_t step;
    [[nodiscard]] std::uint64_t next(std::uint64_t now) const {
      return now < step ? step : pvm::never;
    }
    static void at(const pvm::Moment& moment) { moment.trainer.request_stop(); }
  };
  for (const auto& [stop, steps] : {std::pair{25, 25}, {39, 39}, {45, 30}, {71, 30}, {8, 8}}) {
    io::Synthetic frames;
    pvm::Trainer<> trainer(tiny_spec());
    pvm::LastPass last{30};  // to 10, 40, 70 and 100
    const pvm::Steps all{100};
    trainer.fit(frames, all, last, StopAt{static_cast<std::uint64_t>(stop)});
    INFO("stopped at " << trainer.step());
    CHECK(last.steps() == static_cast<std::uint64_t>(steps));
    CHECK(last.score().outputs ==
          last.steps() * static_cast<std::uint64_t>(trainer.connectome().outputs));
  }
}

TEST_CASE("A sink may log, in vain", "[core]") {
  int calls = 0;
  pvm::set_log_sink([&](pvm::Severity severity, const std::string& line) {
    ++calls;
    pvm::log(severity, line);
  });
  pvm::log(pvm::Severity::info, "a");
  pvm::log(pvm::Severity::info, "b");
  pvm::set_log_sink({});
  CHECK(calls == 2);
}

TEST_CASE("The last pass is scored by itself", "[train]") {
  for (const std::uint64_t end : {30, 100, 119, 120}) {
    const TempDir dir;
    io::Synthetic frames;
    pvm::Trainer<> trainer(tiny_spec());
    pvm::LastPass last{30};
    trainer.fit(frames, pvm::Steps{end}, last,
                pvm::Metrics{dir / "m.jsonl", end > 30 ? end - 30 : end});
    CHECK(last.steps() == 30);
    const auto line = lines_of(dir / "m.jsonl").back();
    CHECK(std::abs(pvm::prediction_mse(last.score()) / line["mse"].get<double>() - 1) < 1e-9);
  }
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  pvm::LastPass last{30};
  trainer.fit(frames, pvm::Steps{10}, last);  // shorter than the window
  CHECK(last.steps() == 10);
}

TEST_CASE("A stopped run saves where it is, and can go on", "[train]") {
  const TempDir dir;
  const std::string prefix = (dir / "run").string();
  io::Synthetic a, b, c;
  pvm::Trainer<> stopped(tiny_spec()), straight(tiny_spec());
  const auto result = stopped.fit(a, pvm::Steps{100}, pvm::Checkpoints{prefix, 60}, StopAt{33});
  CHECK(result.cut_short);
  CHECK(result.step == 33);
  CHECK(names_in(dir.path()) == std::vector<std::string>{"run_000000033.safetensors"});

  pvm::Trainer<> resumed(io::load_checkpoint(dir / "run_000000033.safetensors"));
  CHECK_FALSE(resumed.fit(b, pvm::Steps{100}).cut_short);
  straight.fit(c, pvm::Steps{100});
  CHECK(resumed.weights() == straight.weights());
}

TEST_CASE("A source that fails later costs nothing that was learned", "[train]") {
  struct Failing {
    bool own_error = false;
    io::Synthetic inner{};
    io::FrameInfo next(io::FrameShape shape, std::span<std::uint8_t> pixels) {
      if (inner.position().frame == 70 && own_error) throw std::runtime_error("unplugged");
      if (inner.position().frame == 70) throw pvm::Error(pvm::Fault::source, "unplugged");
      return inner.next(shape, pixels);
    }
    io::Position position() const { return inner.position(); }
    void seek(const io::Position& position) { inner.seek(position); }
    std::optional<std::uint64_t> length() const { return {}; }
    std::uint64_t skipped() const { return 0; }
    std::string name() const { return "failing"; }
  };
  for (const bool own_error : {false, true}) {  // whatever it throws comes out as it is
    const TempDir dir;
    pvm::Trainer<> trainer(tiny_spec());
    Failing source{own_error};
    std::string sentence;
    try {
      trainer.fit(source, pvm::Steps{100}, pvm::Checkpoints{(dir / "run").string(), 1000});
    } catch (const std::exception& error) {
      CHECK((dynamic_cast<const pvm::Error*>(&error) == nullptr) == own_error);
      sentence = error.what();
    }
    CHECK(sentence == "unplugged");
    REQUIRE(names_in(dir.path()).size() == 1);
    const auto saved = io::load_checkpoint(dir / names_in(dir.path()).front());
    CHECK(saved.state.step == trainer.step());
    CHECK(saved.streams[0].position.frame == trainer.step());
  }
}

TEST_CASE("Rates that are too high do not spoil the checkpoints", "[train]") {
  const TempDir dir;
  auto spec = tiny_spec();
  spec.activation = pvm::ActivationKind::polynomial;
  spec.initial_learning_rate = spec.final_learning_rate = 900;
  io::Synthetic frames;
  pvm::Trainer<> trainer(spec);
  const auto sentence = error_of([&] {
    trainer.fit(frames, pvm::Steps{20'000}, pvm::Checkpoints{(dir / "run").string(), 500});
  });
  for (const auto& name : names_in(dir.path())) {
    CHECK(error_of([&] { io::load_checkpoint(dir / name); }).empty());
  }
  CHECK((sentence.empty() || contains(sentence, "rates are too high")));
}

TEST_CASE("A run that diverges says so once, and one that learns does not", "[train]") {
  const auto warnings = [](double rate, std::uint64_t steps, pvm::Mode mode = pvm::Mode::learn) {
    auto spec = tiny_spec();
    spec.initial_learning_rate = spec.final_learning_rate = rate;
    const Messages messages;
    io::Synthetic frames;
    pvm::Trainer<> trainer(spec, {.mode = mode});
    if (mode == pvm::Mode::freeze || rate == 0) {  // what is worse than grey
      auto checkpoint = trainer.checkpoint();
      for (float& weight : checkpoint.state.weights) weight = weight > 0 ? 100 : -100;
      checkpoint.state.folded.clear();
      trainer.restore(checkpoint);
    }
    trainer.fit(frames, pvm::Steps{steps}, pvm::DivergenceWarning{100});
    return messages.count("worse than a grey picture");
  };
  CHECK(warnings(0.01, 1000) == 0);
  CHECK(warnings(900, 1000) == 1);
  CHECK(warnings(900, 90) == 1);                     // at the end, too
  CHECK(warnings(900, 90, pvm::Mode::freeze) == 0);  // no rate is to blame
  CHECK(warnings(0, 90) == 0);
  for (const std::uint64_t steps : {2, 4, 6, 12}) CHECK(warnings(0.4, steps) == 0);  // too early
}

TEST_CASE("Errors that are no longer numbers are named", "[train]") {
  const std::vector<std::uint8_t> frame(12, 200);
  pvm::Score score{.prediction = 0.1, .persistence = 0, .pixels = 12, .loss = 1, .outputs = 10};
  CHECK(pvm::divergence(score, frame).empty());
  CHECK(pvm::divergence({}, {}).empty());
  score.loss = std::nan("");
  CHECK(contains(pvm::divergence(score, frame), "no longer numbers"));
  score.loss = 1;
  score.prediction = std::numeric_limits<double>::infinity();
  CHECK(contains(pvm::divergence(score, frame), "no longer numbers"));
  score.prediction = 12 * 1.3 * pvm::grey_mse(frame);
  CHECK(contains(pvm::divergence(score, frame), "worse than a grey picture"));
  CHECK(pvm::divergence(score, frame, pvm::steps_to_settle - 1).empty());
}

TEST_CASE("The preview shows the moment it is of", "[train][preview]") {
  const TempDir dir;
  const auto path = dir / "p.png";
  for (const std::uint64_t every : {1, 2, 3, 40, 1000}) {
    io::Synthetic frames;
    pvm::Trainer<> trainer(tiny_spec());
    io::Preview preview{path, every};
    trainer.fit(frames, pvm::Steps{90}, preview);
    CHECK(preview.drawn());
    const cv::Mat picture = cv::imread(path.string());
    REQUIRE(picture.cols == 828);
    // The input's panel is the last frame, enlarged.
    const auto last = trainer.last_frame();
    const cv::Vec3b shown = picture.at<cv::Vec3b>(32 + 40 + 96, 12 + 96);
    const std::size_t centre = (6 * 12 + 6) * 3;
    CHECK(shown == cv::Vec3b(last[centre], last[centre + 1], last[centre + 2]));
  }
  CHECK(names_in(dir.path()).size() == 1);
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  CHECK(contains(error_of([&] { trainer.fit(frames, io::Preview{dir / "p.jpg"}); }), ".png"));
  CHECK(contains(error_of([&] { trainer.fit(frames, io::Preview{"/proc/no/p.png"}); }), "preview"));
}

TEST_CASE("A run that is cut short is shown at its last step", "[train][preview]") {
  for (const std::uint64_t stop : {1, 2, 7, 39, 40, 41, 1'997, 1'998, 1'999}) {
    INFO(stop);
    const TempDir dir;
    io::Synthetic frames;
    pvm::Trainer<> trainer(tiny_spec());
    io::Preview preview{dir / "p.png", 40};
    pvm::Checkpoints checkpoints((dir / "run").string());
    const auto result = trainer.fit(frames, pvm::Steps{2'000}, StopAt{stop}, preview, checkpoints,
                                    pvm::Metrics{dir / "m.jsonl"});
    CHECK(result.step <= stop + 2);
    CHECK(steps_of(dir / "m.jsonl").back() == result.step);
    CHECK(io::load_checkpoint(checkpoints.latest()).state.step == result.step);
    REQUIRE(preview.drawn());
    const cv::Mat picture = cv::imread((dir / "p.png").string());
    const auto last = trainer.last_frame();
    for (int y = 0; y < 12; ++y) {
      for (int x = 0; x < 12; ++x) {  // the input's panel: each pixel is a square of 16
        const auto at = static_cast<std::size_t>(12 * y + x) * 3;
        CHECK(picture.at<cv::Vec3b>(32 + 40 + 16 * y + 8, 12 + 16 * x + 8) ==
              cv::Vec3b(last[at], last[at + 1], last[at + 2]));
      }
    }
  }
}

TEST_CASE("If one callback cannot end, the others do", "[train]") {
  const TempDir dir;
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  std::filesystem::create_directory(dir / "run_000000006.safetensors");
  const auto failed = error_of([&] {
    trainer.fit(frames, pvm::Steps{9}, StopAt{6}, pvm::Checkpoints{(dir / "run").string(), 3},
                pvm::Metrics{dir / "m.jsonl"});
  });
  CHECK(contains(failed, "run_000000006.safetensors"));
  CHECK(steps_of(dir / "m.jsonl") == std::vector<std::uint64_t>{6});
  CHECK(io::is_checkpoint(dir / "run_000000003.safetensors"));
}

TEST_CASE("A checkpoint is written while training goes on, and none overtakes another", "[train]") {
  const TempDir dir;
  std::promise<void> further;  // kept when training has gone on behind the first save
  const std::shared_future<void> wait = further.get_future().share();
  bool beside = true;
  std::vector<std::string> saved;  // by writers, one after the other
  pvm::set_log_sink([&](pvm::Severity, const std::string& line) {
    if (!contains(line, "checkpoint saved: ")) return;
    // A writer that is not let go within this time was waited for by the run.
    if (wait.wait_for(std::chrono::seconds(20)) != std::future_status::ready) beside = false;
    saved.push_back(line.substr(line.rfind('_')));
  });
  struct Further {
    std::promise<void>* promise;
    std::uint64_t next(std::uint64_t step) const { return step < 25 ? 25 : pvm::never; }
    void at(const pvm::Moment&) { promise->set_value(); }
  };
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  pvm::Checkpoints checkpoints((dir / "run").string(), 20);
  trainer.fit(frames, pvm::Steps{70}, checkpoints, Further{&further});
  pvm::set_log_sink(nullptr);
  CHECK(beside);
  CHECK(saved == std::vector<std::string>{"_000000020.safetensors", "_000000040.safetensors",
                                          "_000000060.safetensors", "_000000070.safetensors"});
  CHECK(checkpoints.latest() == (dir / "run_000000070.safetensors").string());
  for (const auto& name : names_in(dir.path())) {  // each has the state of its own step
    io::Synthetic again;
    pvm::Trainer<> straight(tiny_spec());
    const auto file = io::load_checkpoint(dir / name);
    straight.fit(again, pvm::Steps{file.state.step});
    CHECK(name == "run_0000000" + std::to_string(file.state.step) + ".safetensors");
    CHECK(straight.checkpoint().state.folded == file.state.folded);
  }
  CHECK(names_in(dir.path()).size() == 4);
}

TEST_CASE("Outputs are tried before a run starts", "[train]") {
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  const auto refused = [&](auto callback) {
    return !error_of([&] { trainer.fit(frames, pvm::Steps{10}, callback); }).empty();
  };
  CHECK(refused(pvm::Checkpoints{"/proc/nowhere/run"}));
  CHECK(refused(pvm::Metrics{"/proc/no/m.jsonl"}));
  CHECK(refused(pvm::Metrics{"/dev/null"}));
  CHECK(trainer.step() == 0);
}

TEST_CASE("A preview takes the place of an earlier one, and of nothing else", "[train][preview]") {
  const TempDir dir;
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  trainer.fit(frames, pvm::Steps{4}, io::Preview{dir / "p.png", 2});
  trainer.fit(frames, pvm::Steps{8}, io::Preview{dir / "p.png", 2});
  for (const std::string& other :
       {std::string("my notes"), read_file(dir / "p.png").substr(0, 18)}) {
    write_file(dir / "other.png", other);
    CHECK(contains(error_of([&] {
                     trainer.fit(frames, pvm::Steps{12}, io::Preview{dir / "other.png", 2});
                   }),
                   "is no preview"));
    CHECK(read_file(dir / "other.png") == other);
  }
  cv::imwrite((dir / "photo.png").string(), cv::Mat(40, 50, CV_8UC3, cv::Scalar::all(9)));
  CHECK_THROWS_AS(trainer.fit(frames, pvm::Steps{12}, io::Preview{dir / "photo.png", 2}),
                  pvm::Error);
}

TEST_CASE("The time limit looks at the clock after the first step, then once a second", "[train]") {
  pvm::Trainer<> trainer(tiny_spec());
  pvm::TimeLimit limit(10);
  CHECK(limit.next(5) == 6);
  const auto at = [&](std::uint64_t step, double seconds) {
    pvm::Moment moment{trainer};
    moment.begin = 5;
    moment.step = step;
    moment.seconds = seconds;
    limit.at(moment);
    return limit.next(step) - step;
  };
  CHECK(at(6, 4.0) == 1);           // a step takes longer than that
  CHECK(at(105, 2.0) == 50);        // 50 a second
  CHECK(at(1005, 0.001) == 2000);   // no more than twice what it is judged by
  CHECK(at(1005, 9.99) == 1);       // what is left of the time
  CHECK(limit.next(3000) == 3001);  // others may have cut further on
}

TEST_CASE("A callback may be absent", "[train]") {
  io::Synthetic frames;
  pvm::Trainer<> trainer(tiny_spec());
  pvm::Optionally<pvm::Metrics> metrics;
  pvm::Optionally<pvm::LastPass> last{pvm::LastPass{5}};
  trainer.fit(frames, pvm::Steps{10}, metrics, last);
  CHECK(last.callback->steps() == 5);
}
