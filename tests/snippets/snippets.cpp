// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The C++ of the documents, compiled and run. docs_test.cpp checks that every block of C++ in them
// is one of the marked parts of this file (or of examples/hello.cpp).

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <future>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <pvm/infer/quantize.hpp>
#include <pvm/io/deal.hpp>
#include <pvm/io/open.hpp>
#include <pvm/io/prefetch.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/pvm.hpp>
#include <pvm/readout/clips.hpp>
#include <pvm/readout/compare.hpp>
#include <pvm/train/auto_rate.hpp>
#include <pvm/train/auto_speed.hpp>

#include "../catch.hpp"
#include "../temp_dir.hpp"

namespace {

// [source]
/// Noise, which nothing can predict. Model of FrameSource.
class Noise {
 public:
  pvm::io::FrameInfo next(pvm::io::FrameShape shape, std::span<std::uint8_t> pixels) {
    for (std::size_t i = 0; i < shape.size(); ++i) {
      pixels[i] = static_cast<std::uint8_t>(256 * pvm::uniform(position_.frame, i));
    }
    const bool starts_sequence = position_.frame++ == 0;
    return {starts_sequence, {}};  // no label
  }
  pvm::io::Position position() const { return position_; }
  void seek(const pvm::io::Position& position) { position_ = position; }
  std::optional<std::uint64_t> length() const { return std::nullopt; }  // it has no end
  std::uint64_t skipped() const { return 0; }
  std::string name() const { return "noise"; }

 private:
  pvm::io::Position position_;
};
static_assert(pvm::io::FrameSource<Noise>);
// [/source]

// [callback]
/// Prints every 500 steps how busy the top unit is: the mean of its hidden values.
struct TopUnit {
  std::uint64_t next(std::uint64_t step) const { return pvm::next_multiple(step, 500); }
  void at(const pvm::Moment& moment) const {
    const std::vector<float> hidden = moment.trainer.hidden();  // [batch][units][hidden]
    const int count = moment.trainer.spec().hidden();
    float sum = 0;
    for (auto value = hidden.end() - count; value != hidden.end(); ++value) sum += *value;
    std::printf("%llu: %.3f\n", static_cast<unsigned long long>(moment.step),
                static_cast<double>(sum) / count);
  }
};
// [/callback]

// [metric]
/// Key `largest_weight` in every line of metrics.
struct LargestWeight {
  static constexpr const char* name = "largest_weight";
  double value(const pvm::Moment& moment) const {
    const std::vector<float> weights = moment.trainer.weights();
    return static_cast<double>(*std::max_element(weights.begin(), weights.end()));
  }
};
// [/metric]

// [network]
using Eye = pvm::Network<pvm::Input<40, 1, 5>, pvm::Layers<8, 4, 2, 1>, pvm::Hidden<6>,
                         pvm::FanIn<2>, pvm::Lateral<1>, pvm::Feedback<2>, pvm::TopToAll>;
// [/network]
static_assert(Eye::hidden == 36);

pvm::Spec tiny() { return pvm::load_spec(PVM_MODEL_ZOO "/tiny.json"); }

void own_loop(const pvm::Spec& spec, const std::vector<std::vector<std::uint8_t>>& frames) {
  const pvm_test::TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  // [own_loop]
  pvm::Trainer<> trainer{spec};
  pvm::Score all;
  for (const auto& frame : frames) {      // [side][side][channels], 8 bits
    auto stepped = trainer.step(frame);   // learns
    all += stepped.score();               // since it was asked for last
    const auto& h = trainer.hidden();     // [units][hidden]
    const auto y = stepped.prediction();  // of the frame two steps ahead, in [0, 1]
    if (trainer.step() % 100 != 0) continue;
    std::printf("%.3f %.3f\n", static_cast<double>(h[0]), static_cast<double>(y[0]));
  }
  trainer.save("own.safetensors");
  // [/own_loop]
  CHECK(std::filesystem::exists("own.safetensors"));
  CHECK(all.pixels > 0);
  std::filesystem::current_path(before);
}

void own_tracker(const pvm::io::Checkpoint& network, const pvm::readout::Clip& clip,
                 std::span<const std::uint8_t> frame) {
  const pvm_test::TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  // [tracker]
  pvm::Tracker tracker{network};
  for (std::size_t i = 0; i < clip.size(); ++i) tracker.learn(clip.frame(i), clip.labels[i]);
  tracker.save("ball.safetensors");
  pvm::Tracker ball = pvm::Tracker::load("ball.safetensors");
  const pvm::Found found = ball.track(frame);  // present, confidence, box
  // [/tracker]
  CHECK(found.present);
  std::filesystem::current_path(before);
}

/// Reads run.safetensors.
void quantize_run(const std::vector<std::vector<std::uint8_t>>& frames) {
  // [quantize]
  const auto network = pvm::io::load_network("run.safetensors");
  const pvm::FrozenNetwork frozen = pvm::quantize(
      network, [&](std::span<std::uint8_t> frame) { std::ranges::copy(frames[0], frame.begin()); });
  pvm::save_frozen("run_int8.safetensors", frozen);
  pvm::Predictor small{frozen};
  // [/quantize]
  CHECK(pvm::is_frozen("run_int8.safetensors"));
  CHECK(small.spec() == network.spec);
}

void follow_streams(const pvm::io::Checkpoint& network,
                    const std::vector<std::vector<std::uint8_t>>& frames) {
  const pvm_test::TempDir dir;
  const auto before = std::filesystem::current_path();
  std::filesystem::current_path(dir.path());
  pvm::io::save_checkpoint("run.safetensors", network);
  // [predictor]
  pvm::Predictor predictor = pvm::Predictor::load("run.safetensors");
  pvm::Stream left = predictor.open();
  pvm::Stream right = predictor.open();
  std::future<pvm::FrameResult> seen_left = predictor.submit(left, frames[0]);
  std::future<pvm::FrameResult> seen_right =
      predictor.submit(right, frames[1], pvm::Priority::critical);
  const pvm::FrameResult result = seen_left.get();  // prediction, hidden, heat, box, latency
  // [/predictor]
  CHECK(result.prediction.size() == network.spec.frame_size());
  CHECK(seen_right.get().frame == 0);
  quantize_run(frames);
  std::filesystem::current_path(before);
}

/// Compiled only: it needs frames in the memory of a GPU.
[[maybe_unused]] void follow_on_gpu(std::span<const std::uint8_t> pixels, void* stream) {
  // [gpu_frames]
  pvm::PredictorOptions options;
  options.backend = pvm::BackendChoice::cuda;
  options.precision = pvm::ForwardPrecision::fp16;
  options.results_on_gpu = true;
  pvm::Predictor predictor = pvm::Predictor::load("run.safetensors", options);
  pvm::Stream camera = predictor.open();
  const pvm::FrameResult result =
      predictor.predict(camera, pvm::GpuFrame{pixels, /*device=*/0, stream});
  const pvm::GpuValues& prediction = result.gpu_prediction;  // values.get() is in device memory
  // [/gpu_frames]
  CHECK(prediction.count == predictor.spec().frame_size());
}

void choose_by_trials(const pvm::Spec& spec) {
  const int side = spec.frame_side();
  // [trials]
  pvm::TrialRun run{spec, {}, "fp32", {}};
  run.clips = pvm::read_trial_clips({pvm::io::opener("synthetic:1")}, {side, side, 3});
  const pvm::SpeedChoice speed = pvm::choose_speed(run, {.precision = false, .seconds = 0.05});
  run.options.batch = speed.chosen.batch;
  const pvm::RateChoice rate = pvm::find_rate(run, 2'000);  // steps of all trials at most
  std::printf("%s\n%s\n", speed.why().c_str(), rate.why().c_str());
  const pvm::Spec chosen = pvm::at_constant_rate(spec, rate.rate);
  // [/trials]
  CHECK(chosen.initial_learning_rate == rate.rate);
  CHECK(rate.steps <= 2000);
}

void train_and_read(const pvm::Spec& spec, const std::string& path) {
  // [trainer]
  pvm::Trainer<> trainer{spec};                              // one sequence, in fp32
  auto frames = pvm::io::open_source("synthetic:3");         // or the path of a zip, a video, ...
  const auto result = trainer.fit(frames, pvm::Steps{500});  // until the step counter is 500

  const std::vector<float> weights = trainer.weights();       // in reference order
  const std::vector<float> seen_next = trainer.prediction();  // [batch][side][side][channels]
  pvm::io::save_checkpoint(path, trainer.checkpoint());

  pvm::Trainer<pvm::fp32, pvm::dynamic> three{spec, {.batch = 3, .seed = 7, .threads = 2}};
  pvm::Trainer<> again{pvm::io::load_checkpoint(path)};  // at step 500, with these weights
  // [/trainer]
  CHECK(result.step == 500);
  CHECK(seen_next.size() == spec.frame_size());
  CHECK(three.batch() == 3);
  CHECK(again.step() == 500);
  CHECK(again.weights() == weights);
}

void train_on_own_source(const pvm::Spec& spec) {
  // [own]
  pvm::Trainer<> trainer{spec};
  pvm::io::Prefetch frames{Noise{}};  // made ahead, on a thread of its own
  trainer.fit(frames, pvm::Steps{1'000}, TopUnit{});
  // [/own]
  CHECK(trainer.step() == 1000);
}

void train_batch(const pvm::Spec& spec) {
  // [batch]
  pvm::Trainer<pvm::fp32, pvm::dynamic> trainer{spec, {.batch = 8}};
  auto streams = pvm::io::deal({pvm::io::opener("synthetic:1"), pvm::io::opener("synthetic:2")}, 8);
  trainer.fit(streams, pvm::Steps{1'000});
  // [/batch]
  CHECK(trainer.step() == 1000);
}

void resume(const pvm::Spec& spec, const std::string& prefix) {
  // [resume]
  pvm::Trainer<> first{spec};
  pvm::io::Synthetic frames;
  first.fit(frames, pvm::Steps{600}, pvm::Checkpoints{prefix});  // saves PREFIX_000000600...

  const auto path = pvm::Checkpoints::path_at(prefix, 600);
  pvm::Trainer<> second{pvm::io::load_checkpoint(path)};
  pvm::io::Synthetic same_frames;  // fit brings it to the frame after the last one
  second.fit(same_frames, pvm::Steps{1'000});
  // [/resume]
  first.fit(frames, pvm::Steps{1000});
  CHECK(first.weights() == second.weights());
}

void measure(const pvm::Spec& spec, const std::string& path) {
  // [measure]
  pvm::Trainer<> trainer{spec};
  pvm::io::Synthetic frames;
  trainer.fit(frames, pvm::Steps{1'000}, pvm::Metrics{path, 500, LargestWeight{}});
  // [/measure]
  CHECK(std::filesystem::exists(path));
}

void run_engine(const pvm::Spec& spec) {
  // [engine]
  pvm::HostEngine<> engine{spec, 1};
  pvm::EngineState start;  // weights as a new Trainer has them: small, and no two alike
  start.weights = pvm::initial_weights(engine.connectome().weights, /*seed=*/0);
  engine.restore(start);

  pvm::FrameBlock block = engine.stage(1);  // room for one frame
  std::fill(block.pixels.begin(), block.pixels.end(), std::uint8_t{128});
  engine.run(block, pvm::Mode::learn);

  std::vector<float> prediction(spec.frame_size());  // of the frame two steps ahead
  engine.read_prediction(prediction);
  // [/engine]
  CHECK(engine.step() == 1);
}

}  // namespace

TEST_CASE("The documents' C++ runs", "[docs]") {
  const pvm_test::TempDir dir;
  train_and_read(tiny(), (dir / "trained.safetensors").string());
  train_on_own_source(tiny());
  train_batch(tiny());
  choose_by_trials(tiny());
  resume(tiny(), (dir / "run").string());
  measure(tiny(), (dir / "m.jsonl").string());
  run_engine(tiny());

  pvm::io::Synthetic ball;
  pvm::readout::Clip clip{"ball", {tiny().frame_side(), tiny().frame_side(), 3}, {}, {}};
  std::vector<std::vector<std::uint8_t>> frames;
  for (int i = 0; i < 200; ++i) {
    frames.emplace_back(clip.shape.size());
    clip.labels.push_back(ball.next(clip.shape, frames.back()).label);
    clip.pixels.insert(clip.pixels.end(), frames.back().begin(), frames.back().end());
  }
  own_loop(tiny(), frames);
  follow_streams(pvm::readout::untrained(tiny(), 1), frames);
  own_tracker(pvm::readout::untrained(tiny(), 1), clip, clip.frame(100));
}
