// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// What is chosen by trials: rates, batches, precisions; and what is known of GPUs by name.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <pvm/engine/choose.hpp>
#include <pvm/engine/device_plan.hpp>
#include <pvm/io/clip.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/train/auto_rate.hpp>
#include <pvm/train/auto_run.hpp>
#include <pvm/train/auto_speed.hpp>
#include <pvm/train/divergence.hpp>
#include <pvm/train/last_pass.hpp>
#include <pvm/train/resumed_rate.hpp>
#include <pvm/train/speed_estimate.hpp>
#include <pvm/train/trainer.hpp>
#include <pvm/train/trial.hpp>
#include <pvm/train/trial_stop.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"

namespace auto_test {

using train_test::contains;
using train_test::error_of;
using train_test::tiny_spec;

pvm::io::Opener ball(std::uint64_t seed, std::uint64_t frames = 200) {
  return
      [=]() -> pvm::io::AnySource { return pvm::io::Synthetic({.seed = seed, .frames = frames}); };
}

/// A run of one thread on the host on generated frames.
pvm::TrialRun trial_run(int batch, const pvm::Spec& spec = tiny_spec()) {
  pvm::TrialRun run{spec, {}, "fp32", {}, nullptr};
  run.options.batch = batch;
  run.options.threads = 1;
  run.options.backend = pvm::BackendChoice::host;
  const int side = spec.frame_side();
  run.clips = pvm::read_trial_clips({ball(3)}, {side, side, 3});
  return run;
}

struct Outcome {
  double psnr;
  bool diverged;
};

/// What a run of that many steps at `rate` has learned.
Outcome learned(const pvm::TrialRun& run, double rate, std::uint64_t steps) {
  pvm::Trainer<pvm::fp32, pvm::dynamic> trainer(pvm::at_constant_rate(run.spec, rate), run.options);
  auto streams = pvm::detail::play(run.clips, run.options.batch);
  pvm::LastPass last(200);
  trainer.fit(streams, pvm::Steps{steps}, last);
  return {pvm::psnr(pvm::prediction_mse(last.score())),
          !pvm::divergence(last.score(), trainer.last_frame()).empty()};
}

}  // namespace auto_test

TEST_CASE("A rate that trials find is as good as the best of a scan, and does not diverge",
          "[train]") {
  struct Case {
    int batch;
    std::uint64_t budget, steps;
  };
  for (const Case& c : {Case{1, 4'000, 2'000}, Case{16, 4'000, 750}, Case{64, 2'000, 500}}) {
    const auto run = auto_test::trial_run(c.batch);
    const pvm::RateChoice choice = pvm::find_rate(run, c.budget);
    INFO("batch " << c.batch << ": " << choice.why());
    CHECK(choice.steps <= c.budget);
    CHECK(auto_test::contains(choice.why(), " steps)"));
    const auto found = auto_test::learned(run, choice.rate, c.steps);
    CHECK_FALSE(found.diverged);
    double best = 0;
    for (double rate = 0.02 * std::min(c.batch, 8); rate < 0.2 * std::min(c.batch, 8); rate *= 2) {
      const auto other = auto_test::learned(run, rate, c.steps);
      if (!other.diverged) best = std::max(best, other.psnr);
    }
    INFO(found.psnr << " dB, the best of the scan " << best);
    CHECK(found.psnr > best - 0.2);
  }
}

TEST_CASE("The same trials find the same rate", "[train]") {
  const auto run = auto_test::trial_run(2);
  const auto one = pvm::find_rate(run, 2'000), other = pvm::find_rate(run, 2'000);
  CHECK(one.rate == other.rate);
  CHECK(one.why() == other.why());
  REQUIRE(one.trials.size() == other.trials.size());
  for (std::size_t i = 0; i < one.trials.size(); ++i) {
    CHECK(one.trials[i].psnr == other.trials[i].psnr);
  }
}

TEST_CASE("A rate that diverges is never found", "[train]") {
  // At a guess that is far too high the trials must go down.
  auto run = auto_test::trial_run(4);
  run.spec.learning_rule = "adam";
  run.spec.initial_learning_rate = 500;
  const auto choice = pvm::find_rate(run, 4'000);
  INFO(choice.why());
  CHECK(choice.trials.front().diverged);
  CHECK(choice.rate < 500);
  CHECK(auto_test::contains(auto_test::error_of([&] { pvm::find_rate(run, 1'999); }), "2000"));
}

TEST_CASE("Trials leave a run's bits as they are", "[train]") {
  const auto run = auto_test::trial_run(2);
  const auto train = [&](bool tries) {
    pvm::Trainer<pvm::fp32, pvm::dynamic> trainer(run.spec, run.options);
    auto streams = pvm::detail::play(run.clips, 2);
    trainer.fit(streams, pvm::Steps{30});
    if (tries) {
      static_cast<void>(pvm::find_rate(run, 2'000));
      static_cast<void>(pvm::choose_speed(run, {.seconds = 0.01}));
    }
    trainer.fit(streams, pvm::Steps{60});
    return trainer.weights();
  };
  CHECK(train(true) == train(false));
}

TEST_CASE("Batch and precision are chosen by what a second teaches", "[train]") {
  CHECK(pvm::worth_of_frame(1) == 1);
  CHECK(pvm::worth_of_frame(4) == 1);
  CHECK(pvm::worth_of_frame(16) == 0.86);
  CHECK(pvm::worth_of_frame(512) == pvm::worth_of_frame(256) / 2);
  for (int batch = 1; batch < 600; ++batch) {
    CHECK(pvm::worth_of_frame(batch + 1) <= pvm::worth_of_frame(batch));
    CHECK(pvm::worth_of_frame(batch + 1) * (batch + 1) >= pvm::worth_of_frame(batch) * batch * 0.9);
  }

  auto run = auto_test::trial_run(1);
  const auto choice = pvm::choose_speed(run, {.seconds = 0.01});
  INFO(choice.why());
  CHECK(choice.trials.size() >= 6);
  for (const auto& trial : choice.trials) {
    CHECK(trial.frames > 0);
    CHECK(trial.batch <= 50);  // four of the 200 frames for each sequence
    CHECK(trial.worth() <= 1.06 * choice.chosen.worth());
  }
  CHECK(auto_test::contains(choice.why(), "worth"));
  CHECK(auto_test::contains(choice.engine, "host engine"));

  // One of them only, and a source that is live.
  const auto fixed = pvm::choose_speed(run, {.batch = false, .seconds = 0.01});
  CHECK(fixed.trials.size() == 3);
  CHECK(fixed.chosen.batch == 1);
  auto live = *run.clips.front();
  live.live = true;
  run.clips = {std::make_shared<const pvm::io::Clip>(live)};
  const auto one = pvm::choose_speed(run, {.precision = false, .seconds = 0.01});
  CHECK(one.trials.size() == 1);
  CHECK(one.chosen.precision == "fp32");
}

TEST_CASE("All choices are made at once, with a sentence for each", "[train]") {
  auto run = auto_test::trial_run(1);
  const auto chosen = pvm::choose_for(
      run, {.batch = true, .precision = true, .rate = true, .rate_budget = 2'000, .seconds = 0.01},
      {auto_test::ball(3)});
  REQUIRE(chosen.why.size() == 2);
  INFO(chosen.why[0] << "; " << chosen.why[1]);
  CHECK(chosen.chosen == "batch " + std::to_string(run.options.batch) + ", precision " +
                             run.precision + ", rate " +
                             pvm::rate_text(run.spec.initial_learning_rate));
  CHECK(chosen.why[0].starts_with("batch " + std::to_string(run.options.batch) + " in " +
                                  run.precision));
  CHECK(chosen.why[1] == pvm::find_rate(run, 2'000).why());
  CHECK(run.spec.delay_each_layer_learning == 1);

  // What is not to be chosen stays, and a batch alone is told that it needs a rate.
  auto one = auto_test::trial_run(1);
  const auto nothing = pvm::choose_for(one, {}, {auto_test::ball(3)});
  CHECK((nothing.chosen.empty() && nothing.why.empty()));
  const auto batch = pvm::choose_for(one, {.batch = true, .seconds = 0.01}, {auto_test::ball(3)});
  CHECK(batch.chosen == "batch " + std::to_string(one.options.batch));
  CHECK(one.precision == "fp32");
  CHECK(one.spec.initial_learning_rate == auto_test::tiny_spec().initial_learning_rate);
  if (one.options.batch > 1) CHECK(auto_test::contains(batch.why.back(), "higher rate"));

  const auto refused = [&](const pvm::AutoOptions& options) {
    return auto_test::error_of([&] { pvm::choose_for(one, options, {auto_test::ball(3)}); });
  };
  CHECK(auto_test::contains(refused({.rate = true, .rate_budget = 1'999}), "allow 2000 at least"));
  one.options.mode = pvm::Mode::freeze;
  CHECK(auto_test::contains(refused({.rate = true}), "the run is frozen"));
}

TEST_CASE("Trials end when somebody asks for it", "[train]") {
  auto run = auto_test::trial_run(1);
  pvm::TrialStop stop;
  run.stop = &stop;
  std::thread asks([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    stop.request();
  });
  const auto start = std::chrono::steady_clock::now();
  CHECK_THROWS_AS(pvm::find_rate(run, 1'000'000'000), pvm::io::Stopped);
  asks.join();
  CHECK_THROWS_AS(pvm::choose_speed(run, {.seconds = 0.01}), pvm::io::Stopped);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
}

TEST_CASE("A run that goes on learns at its checkpoint's rate", "[train]") {
  pvm::Trainer<> trainer(pvm::at_constant_rate(auto_test::tiny_spec(), 0.0325));
  auto frames = auto_test::ball(3)();
  trainer.fit(frames, pvm::Steps{20});
  const auto plain = trainer.checkpoint();
  pvm::require_rate(plain, 0.0325, "--rate");
  CHECK(auto_test::error_of([&] { pvm::require_rate(plain, 0.04, "--rate"); }) ==
        "--rate is for new runs, a checkpoint's goes on at its own rates; leave it out");
  CHECK(auto_test::contains(auto_test::error_of([&] { pvm::found_rate(plain, "it"); }),
                            "it is for new runs"));
  CHECK(pvm::kept_choices(plain) == "the run keeps the checkpoint's batch, precision and rate");
  trainer.note_choice("rate 0.0325");
  CHECK(pvm::found_rate(trainer.checkpoint(), "it") == 0.0325);
  CHECK(auto_test::contains(pvm::kept_choices(trainer.checkpoint()), "began: rate 0.0325"));
}

TEST_CASE("A batch without room in memory is left out", "[train]") {
  auto run = auto_test::trial_run(1);
  run.spec.layer_shapes = {2000, 2, 1};  // its units alone would take a hundred gigabytes
  run.spec.input_block_size = 1;
  run.spec.hidden_block_size = 20;
  const std::string error = auto_test::error_of(
      [&] { pvm::choose_speed(run, {.batch = false, .precision = false, .seconds = 0.01}); });
  CHECK(auto_test::contains(error, "MB of memory"));
}

TEST_CASE("What was chosen is in checkpoints, and a run that goes on keeps it", "[train]") {
  const train_test::TempDir dir;
  const auto path = dir / "run.safetensors";
  pvm::Trainer<> trainer(auto_test::tiny_spec());
  trainer.note_choice("batch 1, rate 0.04");
  trainer.save(path);
  const auto checkpoint = pvm::io::load_checkpoint(path);
  CHECK(checkpoint.chosen == "batch 1, rate 0.04");
  const pvm::Trainer<> again(checkpoint);
  CHECK(again.chosen() == checkpoint.chosen);
}

TEST_CASE("Clips are read once, and play as their source does", "[train]") {
  const pvm::io::FrameShape shape{12, 12, 3};
  auto source = auto_test::ball(5, 30)();
  const auto clip = pvm::io::read_clip(source, shape, 1000);
  CHECK(clip->frames == 30);
  CHECK_FALSE(clip->live);  // it can be read again
  pvm::io::ClipPlayer player(clip);
  auto again = auto_test::ball(5, 30)();
  std::vector<std::uint8_t> a(shape.size()), b(shape.size());
  for (int i = 0; i < 70; ++i) {
    player.next(shape, a);
    again.next(shape, b);
    CHECK(a == b);
    CHECK(player.position() == again.position());
  }
  player.seek({0, 7, 0});
  again.seek({0, 7, 0});
  player.next(shape, a);
  again.next(shape, b);
  CHECK(a == b);
  auto part = auto_test::ball(5, 30)();
  CHECK(pvm::io::read_clip(part, shape, 8)->frames == 8);
}

TEST_CASE("GPUs have names, and a number that is not there is refused", "[train]") {
  CHECK(pvm::gpu_model("h200").multiprocessors == 132);
  CHECK(pvm::gpu_model("rtx4090").name == "RTX 4090");
  CHECK(pvm::gpu_model("A100-80GB").memory == std::size_t{80} << 30);
  CHECK(auto_test::contains(auto_test::error_of([] { pvm::gpu_model("B3"); }), "RTX 4090"));
  const auto all = pvm::gpus();
  const int none = static_cast<int>(all.size());
  const std::string error = auto_test::error_of([&] { pvm::use_gpu(none); });
  INFO(error);
  CHECK_FALSE(error.empty());
  CHECK(std::count(error.begin(), error.end(), '\n') == 0);
  const std::string trainer =
      auto_test::error_of([&] { pvm::Trainer<>(auto_test::tiny_spec(), {.device = none}); });
  CHECK(trainer == error);
}

TEST_CASE("The estimate of a GPU's speed is near to what was measured", "[train]") {
  struct Row {  // of docs/performance.md
    const char *engine, *precision;
    double millions;
    int batch;
    double frames;
  };
  const char *chip = "whole units: 80 %", *streamed = "whole units: all weights streamed",
             *general = "CUDA engine: ", *swept = "CUDA batch engine: weights swept",
             *many = "CUDA batch engine: ";
  for (const Row& row :
       {Row{chip, "fp32", 0.097, 1, 104'779},  {chip, "bf16", 17.54, 1, 131'658},
        {chip, "fp16", 18.56, 1, 111'500},     {chip, "fp32", 18.56, 1, 65'202},
        {streamed, "bf16", 36.49, 1, 45'463},  {streamed, "bf16", 119.13, 1, 12'080},
        {streamed, "fp16", 47.32, 1, 31'680},  {streamed, "fp32", 119.13, 1, 6'497},
        {general, "fp32", 1.364, 1, 71'437},   {general, "fp32", 47.32, 1, 9'949},
        {general, "fp32", 157.8, 1, 3'464},    {swept, "bf16", 17.54, 16, 279'032},
        {swept, "bf16", 17.54, 64, 1'074'451}, {swept, "bf16", 17.54, 256, 2'127'959},
        {swept, "bf16", 119.13, 64, 167'490},  {swept, "bf16", 119.13, 256, 328'506},
        {many, "tf32", 17.54, 16, 105'569},    {many, "tf32", 17.54, 256, 535'012},
        {many, "fp32", 17.54, 64, 234'584},    {many, "bf16", 157.8, 1, 1'315},
        {many, "bf16", 157.8, 64, 62'060}}) {
    pvm::DevicePlan plan;
    plan.engine = row.engine;
    const double frames =
        pvm::estimate_frames(plan, pvm::gpu_model("H200"), row.precision,
                             static_cast<std::size_t>(row.millions * 1e6), row.batch);
    INFO(row.engine << ' ' << row.precision << ' ' << row.millions << ' ' << row.batch << ": "
                    << frames << " of " << row.frames);
    CHECK(std::abs(frames / row.frames - 1) < 1.0 / 3);
  }
  // A slower memory is slower.
  pvm::DevicePlan plan;
  plan.engine = many;
  const auto on = [&](const char* name) {
    return pvm::estimate_frames(plan, pvm::gpu_model(name), "bf16", 100'000'000, 16);
  };
  CHECK(on("H200") > on("H100"));
  CHECK(on("A100") > on("L4"));
}
