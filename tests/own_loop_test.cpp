// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Steps on frames of the program's own, readouts that learn beside the network, and records.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <pvm/io/synthetic.hpp>
#include <pvm/readout/mlp.hpp>
#include <pvm/readout/ridge.hpp>
#include <pvm/train/record.hpp>
#include <pvm/train/trainer.hpp>

#include "catch.hpp"
#include "train_helpers.hpp"

namespace {

namespace io = pvm::io;
using train_test::contains;
using train_test::error_of;
using train_test::TempDir;
using train_test::tiny_spec;

struct Frames {
  std::vector<std::uint8_t> pixels;
  std::vector<io::Label> labels;

  explicit Frames(int count) {
    io::Synthetic source({.seed = 2, .frames = 1000});
    const io::FrameShape shape{12, 12, 3};
    std::vector<std::uint8_t> frame(shape.size());
    for (int i = 0; i < count; ++i) {
      labels.push_back(source.next(shape, frame).label);
      pixels.insert(pixels.end(), frame.begin(), frame.end());
    }
  }
  [[nodiscard]] std::span<const std::uint8_t> part(std::size_t first, std::size_t count) const {
    return std::span(pixels).subspan(first * 432, count * 432);
  }
};

}  // namespace

TEST_CASE("Own steps give the bits of fit, however many frames are given at once", "[own]") {
  const Frames frames(90);
  io::Synthetic source({.seed = 2, .frames = 1000});
  pvm::Trainer<> fitted{tiny_spec()}, one{tiny_spec()}, many{tiny_spec()};
  fitted.fit(source, pvm::Steps{90});
  pvm::Score by_one;
  for (std::size_t i = 0; i < 90; ++i) by_one += one.step(frames.part(i, 1)).score();
  many.step(frames.part(0, 37));
  auto last = many.step(frames.part(37, 53));
  CHECK(many.step() == 90);
  CHECK(one.weights() == fitted.weights());
  CHECK(many.weights() == fitted.weights());
  CHECK(many.hidden() == fitted.hidden());
  const auto prediction = last.prediction();
  CHECK(std::vector<float>(prediction.begin(), prediction.end()) == fitted.prediction());
  const auto by_many = last.score();
  CHECK(by_many.prediction == Approx(by_one.prediction));
  CHECK(by_many.pixels == 88 * 432);  // all but the first two
  CHECK(std::equal(one.last_frame().begin(), one.last_frame().end(), frames.part(89, 1).begin()));
}

TEST_CASE("A new sequence is not scored by the predictions made before it", "[own]") {
  const Frames frames(20);
  pvm::Trainer<> trainer{tiny_spec()};
  trainer.step(frames.part(0, 10));
  trainer.start_sequence();
  CHECK(trainer.step(frames.part(10, 10)).score().pixels == 16 * 432);
}

TEST_CASE("A run of own steps is resumed bit by bit", "[own]") {
  const Frames frames(60);
  const TempDir dir;
  pvm::Trainer<> whole{tiny_spec()}, first{tiny_spec()};
  whole.step(frames.part(0, 60));
  first.step(frames.part(0, 25));
  first.save(dir / "new" / "a.safetensors");
  pvm::Trainer<> second{io::load_checkpoint(dir / "new" / "a.safetensors")};
  CHECK(second.step() == 25);
  const auto score = second.step(frames.part(25, 35)).score();
  CHECK(score.pixels == 35 * 432);  // the sequence goes on
  CHECK(second.weights() == whole.weights());
}

TEST_CASE("Own steps say what is wrong", "[own]") {
  const Frames frames(2);
  pvm::Trainer<> trainer{tiny_spec()};
  CHECK(contains(error_of([&] { trainer.step(frames.part(0, 1).first(431)); }),
                 "431 bytes, and a step takes 432: 1 x 12 x 12 x 3"));
  CHECK(contains(error_of([&] { trainer.step(frames.part(0, 0)); }), "0 bytes"));
  CHECK(contains(error_of([&] { trainer.step(frames.part(0, 1), io::Label::absent()); }),
                 "nothing learns from it"));
  CHECK(trainer.step() == 0);
  pvm::TrainerOptions options;
  options.batch = 2;
  pvm::Trainer<pvm::fp32, pvm::dynamic> two{tiny_spec(), options};
  CHECK(contains(error_of([&] { two.step(frames.part(0, 1)); }), "2 x 12 x 12 x 3"));
  pvm::readout::RidgeReadout ridge(tiny_spec(), two.connectome());
  two.attach(&ridge);
  CHECK(
      contains(error_of([&] { two.step(frames.part(0, 2), io::Label::absent()); }), "batch of 1"));
}

TEST_CASE("A readout learns beside the network, by step and by fit alike, and resumes", "[own]") {
  const Frames frames(50);
  const TempDir dir;
  const auto spec = tiny_spec();
  const auto net = pvm::make_connectome(spec);
  pvm::readout::MlpOptions options;
  options.representation = 4;
  const auto run = [&](pvm::TrainerBase& trainer, std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) trainer.step(frames.part(i, 1), frames.labels[i]);
  };
  const auto weights = [](pvm::readout::MlpReadout& mlp) {
    const auto all = mlp.weights(1);
    return std::vector<float>(all.begin(), all.end());
  };
  pvm::readout::MlpReadout whole(spec, net, options);
  const auto start = weights(whole);
  pvm::Trainer<> trainer{spec};
  trainer.attach(&whole);
  run(trainer, 0, 50);
  CHECK(weights(whole) != start);

  pvm::readout::MlpReadout fitted(spec, net, options);
  pvm::Trainer<> by_fit{spec};
  by_fit.attach(&fitted);
  io::Synthetic source({.seed = 2, .frames = 1000});
  by_fit.fit(source, pvm::Steps{50});
  CHECK(weights(fitted) == weights(whole));
  CHECK(by_fit.weights() == trainer.weights());  // the network learns as without it

  pvm::readout::MlpReadout half(spec, net, options);
  pvm::Trainer<> before{spec};
  before.attach(&half);
  run(before, 0, 23);
  before.save(dir / "a.safetensors");
  pvm::readout::MlpReadout rest(spec, net, options);
  pvm::Trainer<> after{spec};
  after.attach(&rest);
  after.restore(io::load_checkpoint(dir / "a.safetensors"));
  run(after, 23, 50);
  CHECK(weights(rest) == weights(whole));
  CHECK(after.weights() == trainer.weights());
}

TEST_CASE("A record maps into memory as NumPy says, with the frame that each step had", "[own]") {
  const TempDir dir;
  pvm::TrainerOptions frozen;
  frozen.mode = pvm::Mode::freeze;
  pvm::Trainer<> trainer{tiny_spec(), frozen};
  io::Synthetic source({.seed = 2, .frames = 5});
  trainer.fit(source, pvm::Steps{12},
              pvm::Record{dir / "r.npy", {.hidden = true, .prediction = true, .error = true}});
  const std::string bytes = train_test::read_file(dir / "r.npy");
  REQUIRE(bytes.substr(0, 8) == std::string("\x93NUMPY\x01\x00", 8));
  const auto length = static_cast<std::size_t>(static_cast<unsigned char>(bytes[8])) +
                      256U * static_cast<unsigned char>(bytes[9]);
  CHECK((10 + length) % 64 == 0);
  const std::string header = bytes.substr(10, length);
  CHECK(contains(header, "'shape': (12,)"));
  CHECK(contains(header, "('hidden', '<f4', (21,9,))"));
  CHECK(contains(header, "('error', '<f4', (12,12,3,))"));
  const std::size_t each = 5 * 8 + 4 * (21 * 9 + 2 * 432);
  REQUIRE(bytes.size() == 10 + length + 12 * each);
  for (std::size_t t = 0; t < 12; ++t) {
    const char* record = bytes.data() + 10 + length + t * each;
    std::uint64_t index[5];
    std::memcpy(index, record, sizeof index);
    CHECK(index[0] == t + 1);
    CHECK(index[1] == 0);
    CHECK(index[3] == t % 5);  // frame
    CHECK(index[4] == t / 5);  // pass
    float error = 0;
    std::memcpy(&error, record + each - 4, 4);
    CHECK(std::isnan(error) == (t % 5 < 2));  // a pass is a sequence
  }
  CHECK(contains(error_of([&] {
                   trainer.fit(source, pvm::Steps{13}, pvm::Record{dir / "r.bin", {}});
                 }),
                 "must end in .npy"));
}

TEST_CASE("Errors of a batch are recorded, each of its own sequence", "[own]") {
  const TempDir dir;
  pvm::TrainerOptions options;
  options.mode = pvm::Mode::freeze;  // so that sequences do not learn from each other
  const pvm::RecordKinds kinds{.hidden = true, .error = true};
  const auto records = [&](const std::string& name) {
    const std::string bytes = train_test::read_file(dir / name);
    const auto length = static_cast<std::size_t>(static_cast<unsigned char>(bytes[8])) +
                        256U * static_cast<unsigned char>(bytes[9]);
    return bytes.substr(10 + length);
  };
  constexpr std::size_t index = 5 * 8, each = index + 4 * (21 * 9 + 432), steps = 12;
  for (const std::size_t cache : {std::size_t{0}, std::size_t{1} << 20}) {
    options.cache_bytes = cache;
    std::vector<io::Synthetic> sources;
    for (const std::uint64_t seed : {2U, 3U, 4U}) {
      sources.emplace_back(io::SyntheticOptions{.seed = seed, .frames = 5});
    }
    pvm::Trainer<pvm::fp32, 3> batch{tiny_spec(), options};
    batch.fit(sources, pvm::Steps{steps}, pvm::Record{dir / "batch.npy", kinds});
    const std::string all = records("batch.npy");
    REQUIRE(all.size() == 3 * steps * each);
    for (std::size_t b = 0; b < 3; ++b) {
      io::Synthetic source({.seed = 2 + b, .frames = 5});
      pvm::Trainer<> one{tiny_spec(), options};
      one.fit(source, pvm::Steps{steps}, pvm::Record{dir / "one.npy", kinds});
      const std::string alone = records("one.npy");
      REQUIRE(alone.size() == steps * each);
      for (std::size_t t = 0; t < steps; ++t) {
        const char* ours = all.data() + (3 * t + b) * each + index;
        const char* theirs = alone.data() + t * each + index;
        for (std::size_t i = 0; i < (each - index) / 4; ++i) {
          float a = 0, c = 0;
          std::memcpy(&a, ours + 4 * i, 4);
          std::memcpy(&c, theirs + 4 * i, 4);
          REQUIRE(std::isnan(a) == std::isnan(c));
          if (!std::isnan(a)) REQUIRE(std::abs(a - c) < 1e-5F);
        }
      }
    }
  }
}
