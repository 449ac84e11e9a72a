// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The readouts on a GPU: they compute what those of the host do, follow an engine's steps, and go
// on from a checkpoint bit by bit.

#include "catch.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/make_engine.hpp>
#include <pvm/io/safetensors.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/readout/gpu/finder.hpp>
#include <pvm/readout/gpu/mlp.hpp>
#include <pvm/readout/gpu/ridge.hpp>
#include <pvm/readout/gpu/tracking.hpp>
#include <pvm/readout/mlp.hpp>
#include <pvm/readout/ridge.hpp>
#include <pvm/readout/tracker.hpp>

#include "readout_helpers.hpp"
#include "train_helpers.hpp"

namespace {

namespace io = pvm::io;
namespace readout = pvm::readout;
using readout_test::random_floats;
using readout_test::random_frame;
using readout_test::spec_of;
using train_test::contains;
using train_test::error_of;

/// Whether there is no GPU. Asked only once: a GPU that is lost during the tests is a failure, not
/// a reason to skip.
bool skipped() {
  static std::string why;
  static const bool there = pvm::cuda_available(&why);
  if (!there) std::printf("SKIPPED: %s\n", why.c_str());
  return !there;
}

io::Label random_label(const pvm::Spec& spec, std::uint64_t seed) {
  if (pvm::uniform(seed, 0) < 0.2F) return {};
  if (pvm::uniform(seed, 0) < 0.4F) return io::Label::absent();
  const auto side = static_cast<float>(spec.frame_side());
  return io::Label::present(
      {side * 0.7F * pvm::uniform(seed, 1), side * 0.7F * pvm::uniform(seed, 2),
       1 + side * 0.3F * pvm::uniform(seed, 3), 1 + side * 0.3F * pvm::uniform(seed, 4)});
}

double largest_difference(std::span<const float> a, std::span<const float> b) {
  double largest = a.size() == b.size() ? 0 : 1e9;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    const double d = std::abs(static_cast<double>(a[i]) - static_cast<double>(b[i]));
    largest = std::max(largest, std::isfinite(d) ? d : 1e9);
  }
  return largest;
}

/// An engine of pvm::compiled, if that is linked.
pvm::AnyEngine general_engine(const pvm::Spec& spec, bool graph) {
  return pvm::detail::make_of<pvm::CudaGeneralEngine<>>(
      spec, 1, pvm::EngineOptions{.graph = graph});
}

/// A run of an engine on the GPU with a readout that follows it.
struct Run {
  pvm::Spec spec;
  pvm::AnyEngine engine;

  explicit Run(const pvm::Spec& of, bool graph = true)
      : spec(of), engine(general_engine(of, graph)) {
    pvm::EngineState start;
    start.weights.resize(pvm::make_connectome(spec).weights);
    for (std::size_t i = 0; i < start.weights.size(); ++i) {
      start.weights[i] = 0.3F * (pvm::uniform(0, i) - 0.5F);
    }
    engine.restore(start);
  }
  [[nodiscard]] std::size_t hidden_values() const {
    const auto net = pvm::make_connectome(spec);
    return net.units.size() * static_cast<std::size_t>(net.hidden);
  }
  void fill(const pvm::FrameBlock& block, std::uint64_t first) const {
    for (int i = 0; i < block.steps; ++i) {
      const auto frame = random_frame(spec, 100 + first + static_cast<std::uint64_t>(i));
      std::copy(frame.begin(), frame.end(),
                block.pixels.begin() +
                    static_cast<std::ptrdiff_t>(i) * static_cast<std::ptrdiff_t>(frame.size()));
      block.scored[static_cast<std::size_t>(i)] = 0;
    }
  }
  /// Runs the steps up to `last` in blocks of `each`.
  void run(readout::Readout& follower, std::uint64_t last, std::uint64_t each) {
    while (engine.step() < last) {
      const std::uint64_t first = engine.step();
      const auto steps = std::min(each, last - first);
      const pvm::FrameBlock block = engine.stage(static_cast<int>(steps));
      fill(block, first);
      std::vector<io::Label> labels;
      for (std::uint64_t i = 0; i < steps; ++i) labels.push_back(random_label(spec, first + i));
      follower.expect(first, labels);
      engine.run(block, pvm::Mode::learn);
    }
  }
  /// The same one by one, with a readout of the host beside it.
  void run_beside(readout::Readout& host, std::uint64_t last) {
    std::vector<float> hidden(hidden_values());
    while (engine.step() < last) {
      const std::uint64_t step = engine.step();
      const pvm::FrameBlock block = engine.stage(1);
      fill(block, step);
      engine.run(block, pvm::Mode::learn);
      engine.read_hidden(hidden);
      if (random_label(spec, step).state == io::LabelState::unlabelled) continue;
      host.at_step(step);
      host.observe(hidden, random_frame(spec, 100 + step), random_label(spec, step));
    }
  }
};

readout::MlpOptions some_options(int layers) {
  readout::MlpOptions options;
  options.representation = 5;
  options.layers = layers;
  options.first_rate = 0.5;
  return options;
}

}  // namespace

TEST_CASE("GPU readout: the original's follows numpy", "[cuda]") {
  if (skipped()) return;
  for (const std::string name : {"three", "four", "sign"}) {
    INFO(name);
    io::SafetensorsReader golden(PVM_GOLDEN "/readout_mlp.safetensors");
    pvm::Spec spec = spec_of({3, 1}, 2, 2);
    spec.momentum = 0.1;
    spec.opt_abs_diff = name == "sign";
    const int layers = name == "four" ? 4 : 3;
    readout::CudaMlpReadout mlp(spec, pvm::make_connectome(spec), some_options(layers));
    const auto part = [&](const std::string& what, int l) {
      return name + what + std::to_string(l);
    };
    for (int l = 0; l + 1 < layers; ++l) {
      auto start = golden.read<float>(part("_start", l));
      const std::size_t size = start.size();
      mlp.set_layer(static_cast<std::size_t>(l), std::move(start), std::vector<float>(size));
    }
    const auto hidden = golden.read<float>("hidden");
    const auto boxes = golden.read<float>("boxes");
    const auto heats = golden.read<double>(name + "_heats");
    double worst = 0;
    std::vector<float> heat(36);
    for (std::size_t t = 0; t < 100; ++t) {
      const float* box = boxes.data() + 4 * t;
      // The golden's boxes may have no width, and still fill one pixel.
      auto label = io::Label::absent();
      if (box[0] >= 0) {
        label =
            io::Label::present({box[0], box[1], std::max(box[2], 0.5F), std::max(box[3], 0.5F)});
      }
      const auto now = std::span(hidden).subspan(40 * t, 40);
      mlp.observe(now, {}, label);
      mlp.last_heat(heat);
      for (std::size_t i = 0; i < 36; ++i) {
        worst = std::max(worst, std::abs(heats[36 * t + i] - (0.8 * heat[i] + 0.1)));
      }
    }
    CHECK(worst < 1e-6);
    io::Extras extras;
    mlp.save(extras);
    for (int l = 0; l + 1 < layers; ++l) {
      double off = 0;
      for (const std::string what : {"weights", "changes"}) {
        const auto expected = golden.read<double>(part("_" + what, l));
        const auto& own = extras.floats.at("readout/" + what + std::to_string(l));
        for (std::size_t i = 0; i < expected.size(); ++i) {
          off = std::max(off, std::abs(expected[i] - static_cast<double>(own[i])));
        }
      }
      CHECK(off < 2e-6);  // of weights up to 3: the last bits of 100 updates
    }
  }
}

TEST_CASE("GPU readout: networks learn behind captured steps as on the host", "[cuda]") {
  if (skipped()) return;
  pvm::Spec spec = spec_of({3, 1}, 2, 3);  // positions read 4 or 8 values
  spec.delay_final_learning_rate = 20;
  spec.final_learning_rate = 0.02;
  const auto net = pvm::make_connectome(spec);
  const auto options = some_options(4);
  readout::MlpReadout host(spec, net, options);
  Run(spec).run_beside(host, 70);
  io::Extras on_host;
  host.save(on_host);
  std::vector<io::Extras> all;
  for (const std::uint64_t each : {70U, 17U, 1U}) {
    for (const bool graph : {true, false}) {
      Run run(spec, graph);
      readout::CudaMlpReadout mlp(spec, net, options);
      REQUIRE(mlp.follow(run.engine));
      run.run(mlp, 70, each);
      mlp.save(all.emplace_back());
    }
  }
  for (const io::Extras& extras : all) {
    CHECK(extras == all.front());
    CHECK(extras.texts.at("readout.rate") == on_host.texts.at("readout.rate"));
    for (const auto& [name, values] : on_host.floats) {
      CHECK(largest_difference(values, extras.floats.at(name)) < 3e-6);
    }
  }
}

TEST_CASE("GPU readout: Gram matrices are the host's", "[cuda]") {
  if (skipped()) return;
  const pvm::Spec spec = spec_of({3, 1}, 2, 3);
  const auto net = pvm::make_connectome(spec);
  for (const readout::InputKinds kinds :
       {readout::InputKinds{.hidden = true, .pixels = true}, readout::InputKinds{.pixels = true},
        readout::InputKinds{.hidden = true}}) {
    const readout::RidgeOptions options{kinds, false, 0.1};
    readout::RidgeReadout host(spec, net, options);
    readout::CudaRidgeReadout gpu(spec, net, options);
    const auto observe = [&](readout::Readout& to, std::uint64_t first, std::uint64_t last) {
      for (std::uint64_t t = first; t < last; ++t) {
        to.observe(random_floats(40, 1000 + t), random_frame(spec, t), random_label(spec, t));
      }
    };
    const auto heat = [&](readout::Readout& of) {
      std::vector<float> out(9);
      of.heat(random_floats(40, 5), random_frame(spec, 6), out);
      return out;
    };
    observe(host, 0, 360);  // 288 of them are labelled: more than a block of rows
    observe(gpu, 0, 100);
    static_cast<void>(heat(gpu));  // asking changes nothing
    observe(gpu, 100, 360);
    REQUIRE(gpu.frames() == host.frames());
    REQUIRE(gpu.frames() > 256);
    CHECK(largest_difference(heat(gpu), heat(host)) < 1e-5);
    const auto sums = gpu.solved().sums(), expected = host.sums();
    double worst = 0, most = 0;
    for (std::size_t i = 0; i < sums.triangles.size(); ++i) {
      worst = std::max(worst, std::abs(sums.triangles[i] - expected.triangles[i]));
      most = std::max(most, expected.triangles[i]);
    }
    CHECK(worst < 1e-6 * most);
    CHECK(sums.rows == expected.rows);
    CHECK(sums.pixels == expected.pixels);
    CHECK(sums.targets == expected.targets);

    // It goes on from a file, on the GPU or on the host.
    io::Extras extras;
    gpu.save(extras);
    readout::CudaRidgeReadout second(spec, net, options);
    second.restore(extras);
    readout::RidgeReadout third(spec, net, options);
    third.restore(extras);
    for (readout::Readout* one : std::initializer_list<readout::Readout*>{&gpu, &second, &third}) {
      observe(*one, 360, 700);
    }
    CHECK(heat(second) == heat(gpu));
    CHECK(largest_difference(heat(third), heat(gpu)) < 1e-5);
  }
}

TEST_CASE("GPU readout: a ridge follows steps, and goes on from a file bit by bit", "[cuda]") {
  if (skipped()) return;
  const pvm::Spec spec = spec_of({3, 1}, 2, 3);
  const auto net = pvm::make_connectome(spec);
  const readout::RidgeOptions options{{.hidden = true, .pixels = true}, false, 0.1};
  readout::RidgeReadout host(spec, net, options);
  Run(spec).run_beside(host, 60);
  std::vector<io::Extras> all;
  for (const std::uint64_t each : {60U, 13U}) {
    Run run(spec);
    readout::CudaRidgeReadout ridge(spec, net, options);
    REQUIRE(ridge.follow(run.engine));
    run.run(ridge, 31, each);
    const pvm::EngineState state = run.engine.save();
    io::Extras half;
    ridge.save(half);
    Run rest(spec);
    rest.engine.restore(state);
    readout::CudaRidgeReadout second(spec, net, options);
    second.restore(half);
    REQUIRE(second.follow(rest.engine));
    rest.run(second, 60, each);
    run.run(ridge, 60, each);
    ridge.save(all.emplace_back());
    second.save(all.emplace_back());
  }
  for (const io::Extras& extras : all) CHECK(extras == all.front());
  const auto ours = all.front().floats.at("readout/buffer"), theirs = host.sums().hidden;
  CHECK(largest_difference(std::span(ours).first(theirs.size()), theirs) == 0);
}

TEST_CASE("GPU readout: objects are found where the host finds them", "[cuda]") {
  if (skipped()) return;
  const pvm::Spec spec = spec_of({6, 3, 1}, 2, 6);  // 36 pixels: a word and a bit
  const auto net = pvm::make_connectome(spec);
  const std::size_t hidden = net.units.size() * 4;
  const std::vector<readout::RidgeOptions> all = {{{.hidden = true, .pixels = true}, false, 0.1},
                                                  {{.colours = true}, true, 0.001},
                                                  {{.pixels = true, .colours = true}, true, 0.01},
                                                  {{.pixels = true}, false, 0.1}};
  for (const auto& options : all) {
    for (const int smoothing : {0, 1}) {
      readout::RidgeReadout one(spec, net, options), two(spec, net, options);
      for (std::uint64_t t = 0; t < 40; ++t) {
        one.observe(random_floats(hidden, t), random_frame(spec, t), random_label(spec, t));
        two.observe(random_floats(hidden, t), random_frame(spec, t), random_label(spec, 99 + t));
      }
      readout::DecoderOptions decoding{.threshold = 0.3, .contrast = 0.05};
      decoding.smoothing = smoothing;
      readout::RidgeReadout* const both[] = {&one, &two};
      const readout::DecoderOptions same_for_both[] = {decoding, decoding};
      readout::CudaFinder finder(both, same_for_both);
      readout::Decoder decoder(6, 6, decoding);
      std::vector<float> values;
      std::vector<std::uint8_t> frames;
      std::vector<float> heats, heat(36);
      std::vector<readout::Decoded> expected;
      for (std::uint64_t t = 0; t < 12; ++t) {
        const auto h = random_floats(hidden, 300 + t);
        const auto frame = random_frame(spec, 300 + t);
        values.insert(values.end(), h.begin(), h.end());
        frames.insert(frames.end(), frame.begin(), frame.end());
        for (readout::RidgeReadout* const r : both) {
          r->heat(h, frame, heat);
          heats.insert(heats.end(), heat.begin(), heat.end());
          expected.push_back(decoder.decode(heat));
        }
      }
      const auto same = [&](const std::vector<readout::Decoded>& found) {
        REQUIRE(found.size() == expected.size());
        int boxes = 0;
        for (std::size_t i = 0; i < found.size(); ++i) {
          CHECK(std::abs(found[i].contrast - expected[i].contrast) < 1e-5);
          REQUIRE(found[i].present == expected[i].present);
          boxes += found[i].present ? 1 : 0;
          CHECK(found[i].box == expected[i].box);
        }
        CHECK(boxes > 6);
      };
      same(finder.decode(heats));
      same(finder.find(values, frames));
    }
  }
  // A snake: the flood goes through it from end to end.
  readout::RidgeReadout pixels(spec, net, {{.pixels = true}, true, 0.1});
  pixels.observe({}, random_frame(spec, 1), io::Label::absent());
  readout::DecoderOptions decoding{.threshold = 0.5, .growth = 1};
  readout::RidgeReadout* const single[] = {&pixels};
  readout::CudaFinder finder(single, std::span(&decoding, 1));
  std::vector<float> snake(36, 0.0F);
  for (const int p : {0, 1, 2, 3, 9, 15, 14, 13, 12, 18, 24, 25, 26, 27, 33}) {
    snake[static_cast<std::size_t>(p)] = 1;
  }
  snake[33] = 1.2F;
  CHECK(finder.decode(snake)[0].box == readout::Decoder(6, 6, decoding).decode(snake).box);
  CHECK(finder.decode(snake)[0].box.y == 0);
  CHECK_FALSE(finder.decode(std::vector<float>(36, 0.5F))[0].present);
  CHECK_FALSE(finder.decode(std::vector<float>(36, std::nanf("")))[0].present);
}

TEST_CASE("GPU readout: objects are found behind captured steps", "[cuda]") {
  if (skipped()) return;
  const pvm::Spec spec = spec_of({3, 1}, 2, 6);
  const auto net = pvm::make_connectome(spec);
  readout::RidgeReadout ridge(spec, net, {{.hidden = true, .pixels = true}, false, 0.1});
  for (std::uint64_t t = 0; t < 30; ++t) {
    ridge.observe(random_floats(40, t), random_frame(spec, t), random_label(spec, t));
  }
  const readout::DecoderOptions decoding{.threshold = 0.3, .contrast = 0.01};
  readout::RidgeReadout* const single[] = {&ridge};
  readout::CudaFinder finder(single, std::span(&decoding, 1));
  Run run(spec), plain(spec);
  REQUIRE(finder.follow(run.engine));
  readout::Decoder decoder(3, 6, decoding);
  std::vector<float> hidden(40), heat(9);
  for (const int steps : {45, 2}) {
    const std::uint64_t first = run.engine.step();
    const pvm::FrameBlock block = run.engine.stage(steps);
    run.fill(block, first);
    run.engine.run(block, pvm::Mode::freeze);
    const auto found = finder.found();
    REQUIRE(found.size() == static_cast<std::size_t>(steps));
    for (std::size_t i = 0; i < found.size(); ++i) {
      const pvm::FrameBlock one = plain.engine.stage(1);
      plain.fill(one, first + i);
      plain.engine.run(one, pvm::Mode::freeze);
      plain.engine.read_hidden(hidden);
      ridge.heat(hidden, random_frame(spec, 100 + first + i), heat);
      const auto expected = decoder.decode(heat);
      CHECK(std::abs(found[i].contrast - expected.contrast) < 1e-5);
      CHECK(found[i].present == expected.present);
      CHECK(found[i].box == expected.box);
    }
  }
}

TEST_CASE("GPU readout: many frames are tracked at a time as one by one", "[cuda]") {
  if (skipped()) return;
  const pvm::Spec spec = spec_of({6, 3}, 2, 4);
  io::Checkpoint network;
  network.spec = spec;
  network.state.weights.resize(pvm::make_connectome(spec).weights);
  for (std::size_t i = 0; i < network.state.weights.size(); ++i) {
    network.state.weights[i] = 0.3F * (pvm::uniform(0, i) - 0.5F);
  }
  pvm::TrackerOptions options;
  options.objects = {"one", "two"};
  for (const std::string where : {"colours", "followed", "on the host"}) {
    INFO(where);
    const bool hidden = where != "colours";
    if (hidden) options.ridge = {{.hidden = true, .pixels = true}, false, 0.1};
    const auto engine = [&] {
      return where == "followed"
                 ? general_engine(spec, true)
                 : pvm::AnyEngine::make<pvm::HostEngine<1>>(spec, 1, pvm::EngineOptions{});
    };
    pvm::Tracker tracker(network, engine(), options), plain(network, engine(), options);
    std::vector<std::uint8_t> frames;
    for (std::uint64_t t = 0; t < 50; ++t) {
      const auto frame = random_frame(spec, t);
      const std::span<const std::uint8_t> pixels = frame;
      const io::Label labels[] = {random_label(spec, t), random_label(spec, 100 + t)};
      tracker.learn_all(pixels, labels);
      plain.learn_all(pixels, labels);
      // Others are tracked: a learned one may be right at the threshold of presence.
      const auto other = random_frame(spec, 500 + t);
      frames.insert(frames.end(), other.begin(), other.end());
    }
    tracker.reset();
    plain.reset();
    pvm::CudaTracking tracking(tracker);
    const std::span<const std::uint8_t> all = frames;
    const std::size_t each = spec.frame_size();
    std::vector<std::vector<pvm::Found>> found = tracking.track(all.first(33 * each));
    for (const auto& more : tracking.track(all.subspan(33 * each))) found.push_back(more);
    REQUIRE(found.size() == 50);
    int present = 0;
    for (std::size_t t = 0; t < 50; ++t) {
      const auto expected = plain.track_all(all.subspan(t * each, each));
      REQUIRE(found[t].size() == 2);
      for (std::size_t k = 0; k < 2; ++k) {
        present += expected[k].present ? 1 : 0;
        CHECK(found[t][k].present == expected[k].present);
        CHECK(std::abs(found[t][k].confidence - expected[k].confidence) < 1e-3);
        CHECK(found[t][k].box == expected[k].box);
      }
    }
    CHECK(present > 10);
    CHECK(contains(error_of([&] { tracking.track(all.first(5)); }), "part of a frame"));
  }
}

TEST_CASE("GPU readout: what it refuses", "[cuda]") {
  if (skipped()) return;
  const pvm::Spec spec = spec_of({3, 1}, 2, 3);
  const auto net = pvm::make_connectome(spec);
  CHECK(contains(error_of([&] {
                   readout::CudaRidgeReadout(spec, net, {{.pixels = true}, true, 0.1});
                 }),
                 "learns on the host"));
  readout::MlpOptions large;
  large.representation = 100'000;
  CHECK(contains(error_of([&] { readout::CudaMlpReadout(spec, net, large); }), "no room"));
  readout::CudaMlpReadout mlp(spec, net);
  CHECK(contains(error_of([&] { mlp.observe(random_floats(39, 1), {}, io::Label::absent()); }),
                 "39 hidden values and the network has 40"));
  CHECK(contains(error_of([&] {
                   mlp.expect(0, std::vector<io::Label>{io::Label::present({50, 0, 3, 3})});
                 }),
                 "outside of the frame"));
  Run run(spec);
  REQUIRE(mlp.follow(run.engine));
  pvm::FrameBlock block = run.engine.stage(1);
  block.scored[0] = 0;
  const std::vector<float> squeezed(spec.frame_size(), 0.5F);
  block.squeezed = squeezed;
  CHECK(contains(error_of([&] { run.engine.run(block, pvm::Mode::learn); }), "8 bits only"));
}
