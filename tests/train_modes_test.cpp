// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// The modes of a run: dreams, blind spots, freezing, rates, moves; by scripts and by commands.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/train/checkpoints.hpp>
#include <pvm/train/metrics.hpp>
#include <pvm/train/script.hpp>
#include <pvm/train/trainer.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"
#include "train_sources.hpp"

namespace io = pvm::io;
using namespace train_test;

namespace {

using Trainer = pvm::Trainer<pvm::fp32, pvm::dynamic>;
using Frame = std::vector<std::uint8_t>;

/// Calls a function after every step.
struct EveryStep {
  std::function<void(const pvm::Moment&)> call;
  static std::uint64_t next(std::uint64_t step) { return step + 1; }
  void at(const pvm::Moment& moment) const { call(moment); }
};

void give(pvm::TrainerBase& trainer, const std::map<std::uint64_t, std::string>& script) {
  for (const auto& [step, text] : script) trainer.command_at(step, pvm::parse_command(text));
}

/// What the first sequence's network saw and predicted, by step (the step counter before it).
struct Seen {
  std::vector<Frame> frames;
  std::vector<std::vector<float>> predictions;  // made in that step, for two steps later
  std::vector<std::vector<float>> weights;      // after it
  std::vector<pvm::Score> scores;
};

Seen watch(const std::map<std::uint64_t, std::string>& script, std::uint64_t steps,
           pvm::Spec spec = tiny_spec()) {
  Seen seen;
  io::Synthetic source;
  Trainer trainer(spec);
  give(trainer, script);
  trainer.fit(source, pvm::Steps{steps}, EveryStep{[&](const pvm::Moment& moment) {
                const auto frame = moment.trainer.last_frame();
                seen.frames.emplace_back(frame.begin(), frame.end());
                seen.predictions.push_back(moment.trainer.prediction());
                seen.weights.push_back(moment.trainer.weights());
                seen.scores.push_back(moment.score);
              }});
  return seen;
}

Frame as_pixels(const std::vector<float>& prediction) {
  Frame frame(prediction.size());
  std::transform(prediction.begin(), prediction.end(), frame.begin(),
                 [](float v) { return static_cast<std::uint8_t>(255.0F * v + 0.5F); });
  return frame;
}

/// Whether each pixel of `frame` is that of `inside` within the rectangle, and of `outside` around.
bool is_made_of(const Frame& frame, const pvm::Spot& spot, const Frame& inside,
                const Frame& outside) {
  constexpr int side = 12, channels = 3;
  for (int i = 0; i < static_cast<int>(frame.size()); ++i) {
    const int x = i / channels % side, y = i / channels / side;
    const bool within =
        x >= spot.x && x < spot.x + spot.width && y >= spot.y && y < spot.y + spot.height;
    const auto k = static_cast<std::size_t>(i);
    if (frame[k] != (within ? inside : outside)[k]) return false;
  }
  return true;
}

}  // namespace

TEST_CASE("Commands are read and written", "[train][modes]") {
  for (const char* text : {"dream",
                           "dream 3",
                           "frames",
                           "frames 0",
                           "partial-dream",
                           "partial-dream 1",
                           "partial-dream 1 2 3 4",
                           "partial-dream 0 1 2 3 4",
                           "blind-spot 7 0 0 1 1",
                           "freeze",
                           "learn",
                           "rate 0.01",
                           "rate 0.01 2",
                           "rate 1e-05",
                           "rate spec",
                           "rate spec 1",
                           "skip",
                           "skip 1",
                           "restart",
                           "pause",
                           "resume",
                           "step 1",
                           "step 100"}) {
    INFO(text);
    const pvm::Command command = pvm::parse_command(text);
    CHECK(pvm::command_text(command) == text);
    CHECK(pvm::parse_command(pvm::command_text(command)) == command);
  }
  CHECK(pvm::parse_command(" dream  all\r") == pvm::parse_command("dream"));
  CHECK(pvm::parse_command("step") == pvm::parse_command("step 1"));
  for (const char* text : {"",
                           " ",
                           "dreams",
                           "Dream",
                           "dream -1",
                           "dream 1 2",
                           "dream x",
                           "partial-dream 1 2",
                           "partial-dream 1 2 3",
                           "blind-spot 0 1 2 3 4 5",
                           "blind-spot a b c d",
                           "rate",
                           "rate -1",
                           "rate nan",
                           "rate inf",
                           "rate 1e9",
                           "rate 0.1 x",
                           "rate 0.1 0 0",
                           "freeze now",
                           "step 0",
                           "step -1",
                           "step 99999999999999999999",
                           "dream 99999999999",
                           "blind-spot 0 0 1 1e1"}) {
    INFO(text);
    CHECK(error_of([&] { pvm::parse_command(text); }).find("cannot be understood: ") !=
          std::string::npos);
  }
}

TEST_CASE("A script is lines of a step and a command", "[train][modes]") {
  const TempDir dir;
  const auto path = dir / "script";
  write_file(path, "# a comment\n\n 20 dream 0  # sleep\r\n5 freeze\n20 rate 0.5\n");
  const auto lines = pvm::load_script(path);
  REQUIRE(lines.size() == 3);
  CHECK(lines[0].step == 5);
  CHECK(pvm::command_text(lines[1].command) == "dream 0");
  CHECK(pvm::command_text(lines[2].command) == "rate 0.5");
  const auto refusal = [&](const std::string& text) {
    write_file(path, text);
    return error_of([&] { pvm::load_script(path); });
  };
  CHECK(refusal("1 dream\ndream 2\n").find("line 2: 'dream' is no step") != std::string::npos);
  CHECK(refusal("1\n").find("line 1: ") != std::string::npos);
  CHECK(refusal("-1 dream\n").find("'-1' is no step") != std::string::npos);
  CHECK(refusal("1 sleep\n").find("'sleep' is unknown; allowed: dream") != std::string::npos);
  CHECK(refusal("1 pause\n").find("for a run that somebody looks at") != std::string::npos);
  CHECK(error_of([&] { pvm::load_script(dir / "none"); }).find("No such file") !=
        std::string::npos);
  CHECK(error_of([&] { pvm::load_script(dir.path()); }).find("is a directory") !=
        std::string::npos);

  Trainer trainer(tiny_spec());
  const auto impossible = [&](const std::string& text) {
    write_file(path, text);
    return error_of([&] { pvm::follow_script(trainer, pvm::load_script(path)); });
  };
  CHECK(impossible("7 dream 1\n").find("at step 7: there is no sequence 1: the run has 1") !=
        std::string::npos);
  CHECK(impossible("7 rate 0.1 3\n").find("there is no layer 3") != std::string::npos);
  CHECK(impossible("7 blind-spot 4 4 9 1\n").find("is not within the frame") != std::string::npos);
  CHECK(impossible("7 blind-spot 2147483647 0 2147483647 1\n").find("is not within the frame") !=
        std::string::npos);
}

TEST_CASE("In a dream the prediction of the frame is the frame", "[train][modes]") {
  const auto awake = watch({}, 60);
  const auto seen = watch({{20, "dream"}, {40, "frames"}}, 60);
  for (std::size_t t = 0; t < 60; ++t) {
    INFO("step " << t);
    if (t < 20 || t >= 40) {
      CHECK(seen.frames[t] == awake.frames[t]);
    } else {
      CHECK(seen.frames[t] == as_pixels(seen.predictions[t - 2]));
    }
    const bool scored = t >= 2 && (t < 20 || t >= 42);
    CHECK((seen.scores[t].pixels > 0) == scored);
    CHECK(seen.scores[t].outputs > 0);
  }
  CHECK(seen.frames[30] != awake.frames[30]);
  // The past of a new run predicts white frames.
  CHECK(watch({{0, "dream"}}, 2).frames[1] == Frame(12 * 12 * 3, 255));
}

TEST_CASE("Partial dreams and blind spots change a rectangle", "[train][modes]") {
  const auto awake = watch({}, 60);
  const Frame grey(12 * 12 * 3, 128);
  const auto blind = watch({{10, "blind-spot"}, {20, "blind-spot 0 1 5 2"}, {50, "frames"}}, 60);
  const auto dreaming = watch({{10, "partial-dream"}, {20, "partial-dream 0 1 2 3 10"}}, 60);
  for (std::size_t t = 10; t < 60; ++t) {
    INFO("step " << t);
    const pvm::Spot spot = t < 20 ? pvm::Spot{4, 4, 4, 4} : pvm::Spot{0, 1, 5, 2};
    CHECK(is_made_of(blind.frames[t], t < 50 ? spot : pvm::Spot{}, grey, awake.frames[t]));
    const pvm::Spot dreamt = t < 20 ? pvm::Spot{4, 4, 4, 4} : pvm::Spot{1, 2, 3, 10};
    CHECK(is_made_of(dreaming.frames[t], dreamt, as_pixels(dreaming.predictions[t - 2]),
                     awake.frames[t]));
  }
  CHECK(dreaming.frames[30] != awake.frames[30]);
}

TEST_CASE("Frozen weights stand still, and go on", "[train][modes]") {
  const auto seen = watch({{20, "freeze"}, {40, "learn"}}, 60);
  for (std::size_t t = 20; t < 40; ++t) CHECK(seen.weights[t] == seen.weights[19]);
  CHECK(seen.weights[40] != seen.weights[39]);
  CHECK(seen.predictions[30] != seen.predictions[29]);
}

TEST_CASE("A rate holds until the spec has its say again", "[train][modes]") {
  const pvm::Spec spec = tiny_spec();
  const auto plain = watch({}, 220);
  // The rate that the spec has anyhow changes no bit, whichever engine path is used.
  for (const char* rule : {"momentum", "adam"}) {
    pvm::Spec other = spec;
    other.learning_rule = rule;
    const auto own = watch({}, 100, other);
    CHECK(watch({{20, "rate 0.01"}, {60, "rate spec"}}, 100, other).weights == own.weights);
    CHECK(watch({{20, "rate 0.011"}}, 100, other).weights.back() != own.weights.back());
  }
  // At 150 the spec changes the rate to 0.005: not while another is held.
  const auto held = watch({{20, "rate 0.01"}}, 220);
  CHECK((held.weights[149] == plain.weights[149]));
  CHECK((held.weights[150] != plain.weights[150]));
  CHECK(watch({{20, "rate 0.01"}, {150, "rate spec"}}, 220).weights == plain.weights);

  // With the momentum of 0 a layer without a rate stands still.
  pvm::Spec no_momentum = spec;
  no_momentum.momentum = 0;
  const auto one = watch({{40, "rate 0 1"}}, 60, no_momentum);
  const pvm::Connectome net = pvm::make_connectome(spec);
  const auto part = [&](const std::vector<float>& weights, std::size_t layer) {
    const auto at = [&](std::size_t l) {
      return weights.begin() + static_cast<std::ptrdiff_t>(net.units[net.layer_start[l]].w0);
    };
    return std::vector<float>(at(layer), layer == 0 ? at(1) : at(2));
  };
  const auto change = [&](std::size_t layer) {  // largest, of a weight in 18 steps
    const auto before = part(one.weights[41], layer), after = part(one.weights[59], layer);
    float most = 0;
    for (std::size_t i = 0; i < before.size(); ++i) {
      most = std::max(most, std::abs(after[i] - before[i]));
    }
    return most;
  };
  CHECK(change(1) < 1e-8F);  // rounding: gradients from before that are folded later
  CHECK(change(0) > 1e-5F);
}

TEST_CASE("Sequences have modes of their own", "[train][modes]") {
  const auto frames_of = [](const std::string& text) {
    std::vector<io::Synthetic> sources{io::Synthetic({.seed = 1}), io::Synthetic({.seed = 2})};
    Trainer trainer(tiny_spec(), {.batch = 2});
    if (!text.empty()) trainer.command_at(20, pvm::parse_command(text));
    trainer.fit(sources, pvm::Steps{30});
    const auto state = trainer.checkpoint().state;
    const auto each = static_cast<std::ptrdiff_t>(12 * 12 * 3);
    return std::vector<std::vector<float>>{
        {state.frames.begin(), state.frames.begin() + each},
        {state.frames.begin() + each, state.frames.begin() + 2 * each}};
  };
  const auto plain = frames_of(""), first = frames_of("dream 0"), second = frames_of("dream 1");
  CHECK(first[0] != plain[0]);
  CHECK(first[1] == plain[1]);
  CHECK(second[0] == plain[0]);
  CHECK(second[1] != plain[1]);
}

TEST_CASE("A run with a script gives the same bytes, resumed or not", "[train][modes][resume]") {
  const TempDir dir;
  write_sources(dir, 50);
  const std::map<std::uint64_t, std::string> script = {
      {0, "rate 0.02 1"},    {3, "dream 0"},        {9, "blind-spot"}, {30, "freeze"},
      {41, "partial-dream"}, {50, "learn"},         {55, "frames"},    {60, "skip"},
      {77, "restart 0"},     {90, "rate 0 0"},      {101, "skip"},     {102, "dream"},
      {120, "rate spec"},    {137, "blind-spot 0"}, {150, "frames 0"}, {180, "skip 0"}};
  const auto run = [&](const std::vector<std::string>& paths, int batch, const std::string& rule,
                       const std::vector<std::uint64_t>& ends, std::size_t cache) {
    std::string path;
    for (const std::uint64_t end : ends) {
      std::vector<io::Opener> openers;
      for (const auto& file : paths) openers.push_back(io::opener(file));
      auto streams = io::deal(openers, static_cast<std::size_t>(batch));
      pvm::Spec spec = tiny_spec();
      spec.learning_rule = rule;
      const pvm::TrainerOptions options{.batch = batch, .cache_bytes = cache};
      std::optional<Trainer> trainer;
      if (path.empty()) {
        trainer.emplace(spec, options);
      } else {
        trainer.emplace(io::load_checkpoint(path), options);
      }
      std::vector<pvm::ScriptLine> lines;
      for (const auto& [step, text] : script) lines.push_back({step, pvm::parse_command(text)});
      pvm::follow_script(*trainer, lines);
      pvm::Checkpoints checkpoints((dir / "run").string(), 1000);
      trainer->fit(streams, pvm::Steps{end}, checkpoints);
      path = checkpoints.latest();
    }
    return read_file(path);
  };
  const std::size_t none = 0, all = pvm::share_of_free_memory;
  const std::vector<std::vector<std::string>> kinds = {
      {"synthetic:4"},
      {(dir / "a.avi").string()},
      {(dir / "a.zip").string(), (dir / "pictures").string(), (dir / "a.avi").string()}};
  for (const auto& paths : kinds) {
    for (const int batch : {1, 2}) {
      INFO(paths.front() << ", batch " << batch);
      const std::string straight = run(paths, batch, "momentum", {230}, all);
      REQUIRE(straight.size() > 10'000);
      CHECK(run(paths, batch, "momentum", {1, 3, 4, 60, 61, 101, 103, 230}, none) == straight);
      CHECK(run(paths, batch, "momentum", {137, 150, 230}, all) == straight);
    }
  }
  const std::string adam = run(kinds[0], 2, "adam", {230}, all);
  CHECK(run(kinds[0], 2, "adam", {4, 60, 91, 110, 230}, all) == adam);
}

TEST_CASE("Skipping leads to the next file, restarting to the first frame", "[train][modes]") {
  const TempDir dir;
  write_sources(dir, 50);
  auto streams =
      io::deal({io::opener((dir / "a.zip").string()), io::opener((dir / "a.avi").string())}, 1);
  Trainer trainer(tiny_spec());
  std::vector<io::Position> places;
  give(trainer, {{5, "skip"}, {8, "skip"}, {20, "restart"}});
  trainer.fit(streams, pvm::Steps{22}, EveryStep{[&](const pvm::Moment& moment) {
                places.push_back(moment.trainer.places().front().position);
              }});
  CHECK(places[4] == io::Position{0, 5, 0});
  CHECK(places[5] == io::Position{1, 1, 0});
  CHECK(places[8] == io::Position{0, 1, 1});
  CHECK(places[19] == io::Position{0, 12, 1});
  CHECK(places[20] == io::Position{0, 1, 1});
  CHECK(error_of([&] { trainer.command(pvm::parse_command("skip")); }).find("only a fit has") !=
        std::string::npos);
}

TEST_CASE("A paused run waits, does single steps, and goes on", "[train][modes]") {
  io::Synthetic source, plain_source;
  Trainer trainer(tiny_spec()), plain(tiny_spec());
  std::vector<std::uint64_t> idle_at;
  struct Idle {
    std::vector<std::uint64_t>& at_steps;
    static std::uint64_t next(std::uint64_t) { return pvm::never; }
    static void at(const pvm::Moment&) {}
    void idle(const pvm::Moment& moment) const {
      if (at_steps.empty() || at_steps.back() != moment.step) {
        at_steps.push_back(moment.step);
        if (at_steps.size() == 1) moment.trainer.post(pvm::parse_command("step"));
        if (at_steps.size() == 2) moment.trainer.post(pvm::parse_command("step 40"));
        if (at_steps.size() == 3) moment.trainer.post(pvm::parse_command("dream 9"));  // logged
        if (at_steps.size() == 3) moment.trainer.post(pvm::parse_command("resume"));
      }
    }
  };
  trainer.command_at(10, pvm::parse_command("pause"));
  trainer.fit(source, pvm::Steps{100}, Idle{idle_at});
  CHECK(idle_at == std::vector<std::uint64_t>{10, 11, 51});
  CHECK(trainer.step() == 100);
  CHECK(trainer.obeyed().empty());
  plain.fit(plain_source, pvm::Steps{100});
  CHECK(trainer.weights() == plain.weights());

  // A request to stop ends a pause.
  trainer.post(pvm::parse_command("pause"));
  std::thread stops([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    trainer.request_stop();
  });
  const auto result = trainer.fit(source, pvm::Steps{200});
  stops.join();
  CHECK(result.cut_short);
  CHECK(result.step == 100);
}

TEST_CASE("Commands are in metrics, and modes in metrics and checkpoints", "[train][modes]") {
  const TempDir dir;
  io::Synthetic source;
  Trainer trainer(tiny_spec());
  give(trainer, {{5, "dream"}, {12, "rate 0.5 2"}, {25, "frames"}});
  trainer.fit(source, pvm::Steps{30}, pvm::Metrics{dir / "run.jsonl", 10});
  std::istringstream lines(read_file(dir / "run.jsonl"));
  std::vector<nlohmann::json> all;
  for (std::string line; std::getline(lines, line);) all.push_back(nlohmann::json::parse(line));
  REQUIRE(all.size() == 3);
  CHECK(all[0]["commands"].dump() == R"([[5,"dream"]])");
  CHECK(all[0]["modes"] == "dream 0");
  CHECK(all[1]["commands"].dump() == R"([[12,"rate 0.5 2"]])");
  CHECK(all[1]["modes"] == "rate 0.5 2; dream 0");
  CHECK(all[1]["mse"].is_null());  // nothing of a dream is scored
  CHECK(all[2]["modes"] == "rate 0.5 2");

  const io::Checkpoint checkpoint = trainer.checkpoint();
  CHECK(checkpoint.modes == "rate 0.5 2");
  Trainer other(checkpoint);
  CHECK(other.modes() == trainer.modes());
  io::Checkpoint wrong = checkpoint;
  wrong.modes = "rate 0.5 99";
  CHECK(error_of([&] {
          Trainer{wrong};
        }).find("the checkpoint's modes are wrong: there is no layer") != std::string::npos);
}

TEST_CASE("The program's own loop has modes, too", "[train][modes]") {
  io::Synthetic source;
  Trainer trainer(tiny_spec()), other(tiny_spec());
  const io::FrameShape small{12, 12, 3};
  Frame frames(small.size() * 40);
  for (std::size_t t = 0; t < 40; ++t) {
    source.next(small, std::span(frames).subspan(t * small.size(), small.size()));
  }
  give(trainer, {{11, "dream"}, {20, "blind-spot"}, {30, "frames"}});
  give(other, {{11, "dream"}, {20, "blind-spot"}, {30, "frames"}});
  trainer.step(frames);
  for (std::size_t t = 0; t < 40; ++t) {
    other.step(std::span(frames).subspan(t * small.size(), small.size()));
  }
  CHECK(trainer.weights() == other.weights());
  CHECK(trainer.obeyed().size() == 3);
}
