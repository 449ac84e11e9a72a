// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The Predictor: its results, who shares a step, bounds, and trouble.

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <future>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <pvm/core/random.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/infer/predictor.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/model/json.hpp>
#include <pvm/readout/decoder.hpp>
#include <pvm/readout/mlp.hpp>
#include <pvm/readout/tracker.hpp>

#include "catch.hpp"
#include "random_spec.hpp"
#include "train_helpers.hpp"

namespace {

using namespace std::chrono_literals;
using pvm::FrameResult;
using pvm::Predictor;
using pvm::PredictorOptions;
using pvm::Priority;
using pvm::Stream;
using train_test::contains;
using train_test::error_of;
using train_test::TempDir;
using Frame = std::vector<std::uint8_t>;

/// A checkpoint with weights that make activities differ.
pvm::io::Checkpoint network_of(const pvm::Spec& spec, std::uint64_t seed = 1) {
  pvm::io::Checkpoint network;
  network.spec = spec;
  network.state.weights.resize(pvm::make_connectome(spec).weights);
  for (std::size_t i = 0; i < network.state.weights.size(); ++i) {
    network.state.weights[i] = 0.6F * (pvm::uniform(seed, i) - 0.5F);
  }
  return network;
}

Frame frame_of(const pvm::Spec& spec, std::uint64_t stream, std::uint64_t t) {
  Frame frame(spec.frame_size());
  for (std::size_t i = 0; i < frame.size(); ++i) {
    frame[i] = static_cast<std::uint8_t>(256 * pvm::uniform(1000 * stream + t, i));
  }
  return frame;
}

/// What the frozen host engine makes of the first `count` frames of a stream.
std::vector<FrameResult> by_engine(const pvm::io::Checkpoint& network, std::uint64_t stream,
                                   std::uint64_t count) {
  const pvm::Spec& spec = network.spec;
  const auto net = pvm::make_connectome(spec);
  pvm::HostEngine<1> engine(spec, 1, {.threads = 1});
  pvm::EngineState start;
  start.weights = network.state.weights;
  engine.restore(start);
  std::vector<FrameResult> all(count);
  for (std::uint64_t t = 0; t < count; ++t) {
    const pvm::FrameBlock block = engine.stage(1);
    const Frame frame = frame_of(spec, stream, t);
    std::copy(frame.begin(), frame.end(), block.pixels.begin());
    engine.run(block, pvm::Mode::freeze);
    all[t].prediction.resize(spec.frame_size());
    all[t].hidden.resize(net.units.size() * static_cast<std::size_t>(net.hidden));
    engine.read_prediction(all[t].prediction);
    engine.read_hidden(all[t].hidden);
  }
  return all;
}

bool same(const FrameResult& a, const FrameResult& b) {
  return a.prediction == b.prediction && a.hidden == b.hidden;
}

constexpr PredictorOptions all_results{.hidden = true, .threads = 2};

/// Lets `count` streams run for some frames each, in an order drawn from `seed`, and compares each
/// with the engine's.
void streams_are_alone(Predictor& predictor, const pvm::io::Checkpoint& network,
                       std::uint64_t count, std::uint64_t seed) {
  struct Run {
    std::vector<FrameResult> expected;
    std::optional<Stream> stream;
    std::vector<std::future<FrameResult>> results;
  };
  std::vector<Run> runs(count);
  for (std::uint64_t s = 0; s < count; ++s) runs[s].expected = by_engine(network, s, 5 + s % 3);
  std::size_t left = count;
  for (std::uint64_t draw = 0; left > 0; ++draw) {
    const auto s = static_cast<std::size_t>(static_cast<float>(count) * pvm::uniform(seed, draw));
    Run& run = runs[s];
    if (run.results.size() == run.expected.size()) continue;
    if (!run.stream) run.stream = predictor.open();  // streams join whenever they like
    const Frame frame = frame_of(network.spec, s, run.results.size());
    run.results.push_back(predictor.submit(*run.stream, frame, static_cast<Priority>(draw % 3)));
    if (run.results.size() == run.expected.size()) {
      run.stream.reset();  // and leave
      --left;
    }
  }
  for (std::size_t s = 0; s < count; ++s) {
    for (std::size_t t = 0; t < runs[s].results.size(); ++t) {
      const FrameResult result = runs[s].results[t].get();
      INFO("stream " << s << ", frame " << t << ", a step of " << result.batch);
      CHECK(result.frame == t);
      CHECK(same(result, runs[s].expected[t]));
    }
  }
}

}  // namespace

TEST_CASE("A predictor has the bits of the frozen host engine", "[infer]") {
  std::vector<pvm::Spec> specs = {train_test::tiny_spec(),
                                  pvm::load_spec(PVM_MODEL_ZOO "/tiny.json"),
                                  pvm::load_spec(PVM_MODEL_ZOO "/first_steps.json")};
  for (std::uint64_t seed = 0; seed < 12; ++seed) specs.push_back(pvm_test::random_spec(seed));
  for (const pvm::Spec& spec : specs) {
    INFO(pvm::to_json_text(spec));
    const auto network = network_of(spec);
    Predictor predictor(network, all_results);
    Stream stream = predictor.open();
    const auto expected = by_engine(network, 3, 7);
    for (std::uint64_t t = 0; t < expected.size(); ++t) {
      const FrameResult result = predictor.predict(stream, frame_of(spec, 3, t));
      INFO("frame " << t);
      CHECK(same(result, expected[t]));
    }
  }
}

TEST_CASE("What a stream gets does not depend on who shares its steps", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  for (const int threads : {1, 3}) {
    for (const pvm::BatchPolicy& policy :
         {pvm::BatchPolicy(pvm::Latency(1)), pvm::BatchPolicy(pvm::Latency(5)),
          pvm::BatchPolicy(pvm::Throughput(64, 2ms))}) {
      PredictorOptions options = all_results;
      options.policy = policy;
      options.threads = threads;
      Predictor predictor(network, options);
      streams_are_alone(predictor, network, 45, static_cast<std::uint64_t>(threads));
      const auto report = predictor.report();
      CHECK(report.frames == 45 * 6);
      CHECK(report.waiting == 0);
      CHECK(report.streams == 0);
      CHECK(report.bytes == 0);
      if (policy.most == 1) CHECK(report.batches == report.frames);
    }
  }
}

TEST_CASE("Streams take turns in the sequences of an engine", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  Predictor predictor(
      network, pvm::AnyEngine::make<pvm::HostEngine<>>(network.spec, 3, pvm::EngineOptions{}),
      all_results);
  CHECK(contains(predictor.description(), "up to 3 streams"));
  streams_are_alone(predictor, network, 8, 5);
}

TEST_CASE("Results have what was asked for", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  Predictor predictor(network, {.prediction = false});
  Stream stream = predictor.open();
  const FrameResult result = predictor.predict(stream, frame_of(network.spec, 0, 0));
  CHECK(result.prediction.empty());
  CHECK(result.hidden.empty());
  CHECK(result.heat.empty());
  CHECK_FALSE(result.box);
  CHECK(result.latency > 0);
  CHECK(result.batch == 1);
  CHECK_FALSE(predictor.has_readout());
}

namespace {

/// A frame with a bright square of 6 x 6 pixels in row and column 3 x `row`.
Frame square_at(const pvm::Spec& spec, std::size_t row) {
  Frame frame(spec.frame_size(), 20);
  const auto line = static_cast<std::size_t>(spec.frame_side() * spec.input_channels);
  for (std::size_t y = row; y < row + 6; ++y) {
    std::fill_n(frame.begin() + static_cast<std::ptrdiff_t>(y * line + 9), 18, std::uint8_t{230});
  }
  return frame;
}

}  // namespace

TEST_CASE("A predictor finds what the tracker finds", "[infer]") {
  const TempDir dir;
  const pvm::Spec spec = train_test::tiny_spec();
  const auto network = network_of(spec);
  for (const bool hidden : {false, true}) {
    pvm::TrackerOptions of_tracker;
    if (hidden) of_tracker.ridge = {.inputs = {.hidden = true, .pixels = true}, .penalty = 0.1};
    pvm::Tracker tracker(network, of_tracker);
    for (std::uint64_t t = 0; t < 20; ++t) {
      const auto at = static_cast<float>(t % 3 * 3);
      tracker.learn(std::span<const std::uint8_t>(square_at(spec, t % 3 * 3)),
                    pvm::io::Label::present({3, at, 6, 6}));
    }
    tracker.save(dir / "ball.safetensors");
    pvm::Tracker loaded = pvm::Tracker::load(dir / "ball.safetensors");
    Predictor predictor = Predictor::load(dir / "ball.safetensors", {.policy = pvm::Latency(4)});
    REQUIRE(predictor.has_readout());
    Stream stream = predictor.open();
    std::vector<Stream> others;
    for (int i = 0; i < 3; ++i) others.push_back(predictor.open());
    int present = 0;
    for (std::uint64_t t = 0; t < 8; ++t) {
      const Frame frame = t % 2 == 0 ? square_at(spec, t % 3 * 3) : frame_of(spec, 1, t);
      for (Stream& other : others) predictor.submit(other, frame_of(spec, 2, t));
      const FrameResult result = predictor.submit(stream, frame).get();
      const pvm::Found found = loaded.track(std::span<const std::uint8_t>(frame));
      CHECK(result.confidence == found.confidence);
      REQUIRE(result.box.has_value() == found.present);
      if (found.present) {
        ++present;
        CHECK(result.box == found.box);
      }
      CHECK(std::equal(result.heat.begin(), result.heat.end(), loaded.heat().begin(),
                       loaded.heat().end()));
    }
    INFO("hidden: " << hidden);
    CHECK(present > 0);
  }
}

TEST_CASE("A predictor sees what the original's networks see", "[infer]") {
  const pvm::Spec spec = train_test::tiny_spec();
  auto network = network_of(spec);
  const auto results = by_engine(network, 1, 12);
  for (const int block : {0, 1}) {
    pvm::readout::MlpReadout mlp(spec, pvm::make_connectome(spec),
                                 {.representation = 10, .block = block});
    for (std::uint64_t t = 0; t < results.size(); ++t) {
      mlp.learn(results[t].hidden, mlp.targets(pvm::io::Label::present({3, 3, 6, 6})));
    }
    network.extras = {};
    mlp.save(network.extras);
    Predictor predictor(network, all_results);
    REQUIRE(predictor.has_readout());
    Stream stream = predictor.open();
    std::vector<float> heat(static_cast<std::size_t>(mlp.heat_side() * mlp.heat_side()));
    pvm::readout::Decoder decoder(mlp.heat_side(), 1);
    int present = 0;
    for (std::uint64_t t = 0; t < results.size(); ++t) {
      const Frame frame = frame_of(spec, 1, t);
      const FrameResult result = predictor.predict(stream, frame);
      mlp.heat(results[t].hidden, frame, heat);
      INFO("block " << block << ", frame " << t);
      CHECK(result.heat == heat);
      const auto decoded = decoder.decode(heat);
      REQUIRE(result.box.has_value() == decoded.present);
      if (!decoded.present) continue;
      ++present;
      const auto scale =
          static_cast<float>(spec.frame_side()) / static_cast<float>(mlp.heat_side());
      CHECK(result.box->x == decoded.box.x * scale);
      CHECK(result.box->width == decoded.box.width * scale);
    }
    CHECK(present > 0);
  }
  network.extras.texts["readout.layers"] = "-3";
  CHECK(contains(error_of([&] { Predictor(network, all_results); }), "readout.layers"));
}

TEST_CASE("The more urgent frames come first, and a critical one waits for no other", "[infer]") {
  using pvm::infer::Clock;
  const Clock::time_point now = Clock::now();
  std::uint64_t order = 0;
  const auto wait = [&](pvm::infer::StreamWork& stream, Priority priority) {
    stream.waiting.push_back({{}, priority, now + std::chrono::seconds(order), order, {}});
    ++order;
  };
  pvm::infer::StreamWork a, b, c, d;
  pvm::infer::FrameQueue queue;
  const pvm::BatchPolicy policy = pvm::Throughput(3, 10s);
  CHECK_FALSE(queue.due(policy, 4));
  wait(a, Priority::normal);
  queue.update(a);
  wait(b, Priority::low);
  queue.update(b);
  CHECK(queue.due(policy, 4) == now + 10s);                          // for the oldest
  CHECK(queue.due(policy, 2) == Clock::time_point::min());           // nobody else can come
  CHECK(queue.due(pvm::Latency(2), 4) == Clock::time_point::min());  // full
  CHECK(queue.due(pvm::Throughput(3, 0us), 4) == now);               // a time-out of zero
  wait(c, Priority::normal);
  queue.update(c);
  CHECK(queue.due(pvm::Throughput(4, 10s), 5) == now + 10s);
  wait(b, Priority::critical);  // behind b's frame of low priority, which now hurries, too
  queue.update(b);
  CHECK(queue.due(pvm::Throughput(4, 10s), 5) == Clock::time_point::min());
  wait(d, Priority::normal);
  queue.update(d);
  CHECK(queue.take(3) == std::vector<pvm::infer::StreamWork*>{&b, &a, &c});
  CHECK(queue.take(3) == std::vector<pvm::infer::StreamWork*>{&d});
  CHECK(queue.empty());
}

TEST_CASE("What waits is bounded", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  PredictorOptions options{
      .policy = pvm::Throughput(8, 1min), .stream_frames = 2, .queue_frames = 3};
  Predictor predictor(network, options);
  Stream idle = predictor.open();  // because of it the others wait
  Stream a = predictor.open();
  Stream b = predictor.open();
  const Frame frame = frame_of(network.spec, 0, 0);
  auto first = predictor.try_submit(a, frame);
  auto second = predictor.try_submit(a, frame);
  REQUIRE(first);
  REQUIRE(second);
  CHECK_FALSE(predictor.try_submit(a, frame));
  auto third = predictor.try_submit(b, frame);
  CHECK(third);
  CHECK_FALSE(predictor.try_submit(b, frame));  // all streams together
  CHECK(predictor.report().refused == 2);
  CHECK(predictor.report().waiting == 3);
  std::atomic<bool> in{false};
  std::thread submitter([&] {
    predictor.submit(a, frame);
    in = true;
  });
  std::this_thread::sleep_for(20ms);
  CHECK_FALSE(in);
  idle.close();  // now all open streams have a frame
  submitter.join();
  CHECK(in);
  b.close();
  CHECK(first->get().frame == 0);
  CHECK(second->get().frame == 1);

  SECTION("in bytes") {
    options = {.memory_bytes = 200'000};
    Predictor small(network, options);
    std::vector<Stream> streams;
    std::string error;
    while (error.empty()) error = error_of([&] { streams.push_back(small.open()); });
    CHECK(contains(error, "close others, or raise memory_bytes"));
    CHECK(streams.size() > 10);
    CHECK(small.report().bytes <= 200'000);
    CHECK(small.predict(streams.front(), frame).frame == 0);  // there is room for a frame, always
    streams.pop_back();
    streams.push_back(small.open());
    options.memory_bytes = 100;
    CHECK(contains(error_of([&] { Predictor(network, options); }), "memory_bytes is 100"));
  }
}

TEST_CASE("A closed stream's frames keep their turn", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  Predictor predictor(network, {.policy = pvm::Throughput(8, 1min), .hidden = true});
  Stream idle = predictor.open();
  std::vector<std::future<FrameResult>> results;
  {
    Stream stream = predictor.open();
    for (std::uint64_t t = 0; t < 3; ++t) {
      results.push_back(predictor.submit(stream, frame_of(network.spec, 7, t)));
    }
  }
  idle.close();
  const auto expected = by_engine(network, 7, 3);
  for (std::size_t t = 0; t < 3; ++t) CHECK(same(results[t].get(), expected[t]));
  CHECK(contains(error_of([&] { predictor.submit(idle, frame_of(network.spec, 0, 0)); }),
                 "the stream is closed; open another one"));
}

TEST_CASE("A stream is closed while other threads use it", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  const Frame frame = frame_of(network.spec, 0, 0);
  Predictor predictor(network, {.policy = pvm::Throughput(8, 1min), .stream_frames = 1});
  Stream idle = predictor.open();  // because of it the others wait
  for (int round = 0; round < 20; ++round) {
    Stream stream = predictor.open();
    auto first = predictor.submit(stream, frame);
    std::string blocked;
    std::thread waits([&] { blocked = error_of([&] { predictor.submit(stream, frame); }); });
    std::this_thread::sleep_for(std::chrono::milliseconds(round % 4));
    CHECK(stream.is_open());
    stream.close();
    stream.close();
    CHECK_FALSE(stream.is_open());
    waits.join();
    CHECK(blocked == "the stream is closed; open another one");
    CHECK(error_of([&] { predictor.predict(stream, frame); }) == blocked);
    idle.close();  // the frame that was there before has its turn
    CHECK(first.get().frame == 0);
    idle = predictor.open();
  }
  const std::size_t before = predictor.report().bytes;
  std::vector<Stream> closed;  // that are kept, and take no memory
  for (int i = 0; i < 50; ++i) {
    closed.push_back(predictor.open());
    closed.back().close();
  }
  CHECK(predictor.report().bytes == before);
  CHECK(predictor.report().streams == 1);
}

TEST_CASE("A predictor that goes leaves no future without an answer", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  const Frame frame = frame_of(network.spec, 0, 0);
  std::future<FrameResult> result;
  std::optional<Stream> survivor, stream;
  std::string blocked;
  std::thread submitter;
  {
    Predictor predictor(network, {.policy = pvm::Throughput(8, 1min), .stream_frames = 1});
    survivor = predictor.open();
    stream = predictor.open();
    result = predictor.submit(*stream, frame);
    submitter = std::thread([&] {  // waits for room when the predictor goes
      blocked = error_of([&] { predictor.submit(*stream, frame); });
    });
    std::this_thread::sleep_for(20ms);
  }
  submitter.join();
  const std::string gone = "the predictor was destroyed before this frame had its turn";
  CHECK(blocked == gone);
  CHECK(error_of([&] { result.get(); }) == gone);
  survivor->close();
  stream->close();
  Predictor other(network);
  Stream mine = other.open();
  Predictor another(network);
  CHECK(contains(error_of([&] { another.submit(mine, frame); }), "of another predictor"));
}

namespace {

/// An engine that fails at its third step.
class FailingEngine : public pvm::HostEngine<> {
 public:
  using pvm::HostEngine<>::HostEngine;
  void run(const pvm::FrameBlock& block, pvm::Mode mode) {
    if (++runs_ == 3) throw pvm::Error(pvm::Fault::device, "the GPU was lost");
    pvm::HostEngine<>::run(block, mode);
  }

 private:
  int runs_ = 0;
};

}  // namespace

TEST_CASE("An engine that fails breaks the streams of its step, and no others", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  Predictor predictor(network,
                      pvm::AnyEngine::make<FailingEngine>(network.spec, 2, pvm::EngineOptions{}));
  Stream stream = predictor.open();
  Stream other = predictor.open();
  const Frame frame = frame_of(network.spec, 0, 0);
  predictor.predict(other, frame, Priority::critical);
  std::vector<std::future<FrameResult>> results;
  for (int t = 0; t < 3; ++t)
    results.push_back(predictor.submit(stream, frame, Priority::critical));
  CHECK(results[0].get().frame == 0);
  CHECK(error_of([&] { results[1].get(); }) == "the GPU was lost");
  CHECK(error_of([&] { results[2].get(); }) == "the GPU was lost");
  CHECK(error_of([&] { predictor.submit(stream, frame); }) == "the GPU was lost");
  CHECK(predictor.predict(other, frame, Priority::critical).frame == 1);
  CHECK(predictor.report().failed == 2);
  CHECK(predictor.report().waiting == 0);
}

TEST_CASE("What cannot work is refused with a sentence", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  const auto refused = [&](const PredictorOptions& options) {
    return error_of([&] { Predictor(network, options); });
  };
  CHECK(contains(refused({.policy = pvm::Latency(0)}), "largest step has 0 frames"));
  CHECK(contains(refused({.policy = pvm::Throughput(8, -1us)}), "wait for -1 microseconds"));
  CHECK(contains(refused({.device = -2}), "device is -2; GPUs are numbered from 0"));
  const std::string absent = refused({.device = 1000});  // never the host's work
  CHECK((contains(absent, "no GPU can be used") || contains(absent, "there is no GPU 1000")));
  CHECK(contains(refused({.stream_frames = 0}), "at least 1"));
  CHECK(contains(refused({.threads = -1}), "-1 threads"));
  Predictor predictor(network, {.policy = pvm::Throughput(8, 0us)});
  Stream stream = predictor.open();
  for (const std::size_t size :
       {std::size_t{0}, network.spec.frame_size() - 1, std::size_t{9999}}) {
    CHECK(contains(error_of([&] { predictor.submit(stream, Frame(size)); }),
                   "the frame has " + std::to_string(size) +
                       " bytes and the network's frames have 432: 12 x 12 x 3"));
  }
  CHECK(predictor.predict(stream, frame_of(network.spec, 0, 0)).frame == 0);

  pvm::Spec own = network.spec;
  own.own_activation = "mine";
  auto foreign = network;
  foreign.spec = own;
  CHECK(contains(error_of([&] { Predictor{foreign}; }), "this program does not have"));

  const TempDir dir;
  CHECK(contains(error_of([&] { Predictor::load(dir / "none.safetensors"); }), "no such file"));
}

TEST_CASE("Only the network of a checkpoint is read", "[infer]") {
  const TempDir dir;
  const pvm::Spec spec = train_test::tiny_spec();
  pvm::HostEngine<1> engine(spec);
  pvm::EngineState start;
  start.weights = network_of(spec).state.weights;
  engine.restore(start);
  pvm::io::Checkpoint whole;
  whole.spec = spec;
  whole.state = engine.save();
  whole.streams.resize(1);
  const auto path = dir / "whole.safetensors";
  pvm::io::save_checkpoint(path, whole);
  const auto network = pvm::io::load_network(path);
  CHECK(network.state.weights == whole.state.weights);
  CHECK_FALSE(network.state.resumable());
  CHECK(network.spec == spec);
  Predictor predictor = Predictor::load(path, all_results);
  streams_are_alone(predictor, network, 2, 1);
  std::string bytes = train_test::read_file(path);
  const std::string version = "\"format_version\":\"1\"";
  REQUIRE(contains(bytes, version));
  bytes.replace(bytes.find(version), version.size(), "\"format_version\":\"2\"");
  train_test::write_file(path, bytes);
  CHECK(contains(error_of([&] { Predictor::load(path); }), "this program reads version 1"));
}

TEST_CASE("Many threads share a predictor", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  const auto expected = by_engine(network, 1, 12);
  PredictorOptions options = all_results;
  options.stream_frames = 2;
  options.policy = pvm::Throughput(3, 200us);
  Predictor predictor(network, options);
  std::atomic<int> wrong{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 6; ++i) {
    threads.emplace_back([&, i] {
      for (int round = 0; round < 3; ++round) {
        Stream stream = predictor.open();
        std::vector<std::future<FrameResult>> results;
        for (std::uint64_t t = 0; t < expected.size(); ++t) {
          const Frame frame = frame_of(network.spec, 1, t);
          const auto priority = static_cast<Priority>((i + static_cast<int>(t)) % 3);
          if (i % 2 == 0) {
            wrong += same(predictor.predict(stream, frame, priority), expected[t]) ? 0 : 1;
          } else {
            results.push_back(predictor.submit(stream, frame, priority));
          }
          static_cast<void>(predictor.report());
        }
        for (std::size_t t = 0; t < results.size(); ++t) {
          wrong += same(results[t].get(), expected[t]) ? 0 : 1;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(wrong == 0);
  CHECK(predictor.report().frames == 6 * 3 * expected.size());
}
