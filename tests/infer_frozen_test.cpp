// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Networks for prediction only: their numbers, files and kernels. Compiled with infer_test.cpp,
// whose helpers it uses.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <pvm/engine/host/team.hpp>
#include <pvm/infer/e4m3.hpp>
#include <pvm/infer/frozen_file.hpp>
#include <pvm/infer/int8_forward.hpp>
#include <pvm/infer/int8_kernels.hpp>
#include <pvm/infer/quantize.hpp>

#include "catch.hpp"

namespace {

pvm::FrozenNetwork frozen_of(const pvm::io::Checkpoint& network, pvm::FrozenFormat format) {
  std::uint64_t t = 0;
  return pvm::quantize(network,
                       [&](std::span<std::uint8_t> frame) {
                         std::ranges::copy(frame_of(network.spec, 9, t++), frame.begin());
                       },
                       {.format = format, .frames = 40, .samples = 16});
}

bool same(const pvm::FrozenNetwork& a, const pvm::FrozenNetwork& b) {
  return a.spec == b.spec && a.format == b.format && a.values == b.values && a.scales == b.scales &&
         a.offsets == b.offsets && a.extras == b.extras;
}

/// The root of the mean square of what two lists differ in.
double distance(const std::vector<float>& a, const std::vector<float>& b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    squares += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
  }
  return std::sqrt(squares / static_cast<double>(a.size()));
}

}  // namespace

TEST_CASE("Floats of 8 bits are rounded to the nearest", "[infer]") {
  using pvm::infer::from_e4m3, pvm::infer::to_e4m3;
  CHECK(from_e4m3(0x7e) == 448.0F);
  CHECK(from_e4m3(0x01) == std::ldexp(1.0F, -9));
  CHECK(from_e4m3(0x38) == 1.0F);
  CHECK(from_e4m3(0xb8) == -1.0F);
  CHECK(std::isnan(from_e4m3(0x7f)));
  for (int bits = 0; bits < 256; ++bits) {
    const auto byte = static_cast<std::uint8_t>(bits);
    if ((bits & 0x7f) != 0x7f) CHECK(to_e4m3(from_e4m3(byte)) == byte);
  }
  for (int bits = 0; bits < 0x7e; ++bits) {  // between two neighbours, and in the middle
    const auto low = static_cast<std::uint8_t>(bits), high = static_cast<std::uint8_t>(bits + 1);
    const float a = from_e4m3(low), b = from_e4m3(high), middle = (a + b) / 2;
    CHECK(to_e4m3(std::nextafter(middle, a)) == low);
    CHECK(to_e4m3(std::nextafter(middle, b)) == high);
    CHECK(to_e4m3(middle) == (bits % 2 == 0 ? low : high));
    CHECK(to_e4m3(-middle) == ((bits % 2 == 0 ? low : high) | 0x80));
  }
  CHECK(to_e4m3(1e9F) == 0x7e);
}

TEST_CASE("Every kernel in int8 has the same sums", "[infer]") {
  using namespace pvm::infer;
  for (const std::size_t rows : {1, 7, 8, 49}) {
    for (const std::size_t columns : {int8_group, 5 * int8_group}) {
      std::vector<std::int8_t> weights(rows * columns), tiled(rows * columns);
      for (std::size_t i = 0; i < weights.size(); ++i) {
        weights[i] = static_cast<std::int8_t>(255 * pvm::uniform(1, i) - 127);
        tiled[int8_index(rows, columns, i / columns, i % columns)] = weights[i];
      }
      std::fill_n(weights.begin(), columns, std::int8_t{-127});  // the largest sum
      for (std::size_t c = 0; c < columns; ++c) tiled[int8_index(rows, columns, 0, c)] = -127;
      for (const std::size_t batch : {1, 3, 4, 9}) {
        std::vector<std::uint8_t> x(batch * columns);
        for (std::size_t i = 0; i < x.size(); ++i) {
          x[i] = static_cast<std::uint8_t>(256 * pvm::uniform(2, i));
        }
        std::fill_n(x.begin(), columns, std::uint8_t{255});
        for (const Int8Kernel& kernel : int8_kernels()) {
          INFO(kernel.name << ", " << rows << " x " << columns << ", " << batch);
          std::vector<std::int32_t> sums(batch * rows, -1);
          kernel.run({tiled.data(), rows, columns, x.data(), batch, sums.data(), rows});
          for (std::size_t i = 0; i < sums.size(); ++i) {
            std::int32_t sum = 0;
            for (std::size_t c = 0; c < columns; ++c) {
              sum += weights[i % rows * columns + c] * x[i / rows * columns + c];
            }
            REQUIRE(sums[i] == sum);
          }
        }
      }
    }
  }
}

TEST_CASE("A network in bytes predicts nearly what its checkpoint does", "[infer]") {
  std::vector<pvm::Spec> specs = {train_test::tiny_spec(),
                                  pvm::load_spec(PVM_MODEL_ZOO "/tiny.json")};
  for (std::uint64_t seed = 0; seed < 10; ++seed) specs.push_back(pvm_test::random_spec(seed));
  for (const pvm::Spec& spec : specs) {
    INFO(pvm::to_json_text(spec));
    const auto network = network_of(spec);
    for (const auto format : {pvm::FrozenFormat::int8, pvm::FrozenFormat::fp8}) {
      Predictor exact(network, all_results), frozen(frozen_of(network, format), all_results);
      CHECK(contains(frozen.description(), format == pvm::FrozenFormat::int8 ? "int8" : "host"));
      Stream a = exact.open(), b = frozen.open();
      for (std::uint64_t t = 0; t < 8; ++t) {
        const Frame frame = frame_of(spec, 2, t);
        const FrameResult wanted = exact.predict(a, frame), result = frozen.predict(b, frame);
        if (t < 4) continue;  // ones are not squeezed in the past of a new stream
        INFO("frame " << t << " in " << name_of(format));
        CHECK(distance(wanted.hidden, result.hidden) < 0.01);
        CHECK(distance(wanted.prediction, result.prediction) < 0.02);
      }
    }
  }
}

TEST_CASE("A network in int8 has the same bits whichever kernel, batch and threads", "[infer]") {
  for (const std::uint64_t seed : {0, 3, 5}) {
    const auto frozen = frozen_of(network_of(pvm_test::random_spec(seed)), pvm::FrozenFormat::int8);
    const pvm::Spec& spec = frozen.spec;
    constexpr std::uint64_t streams = 37, steps = 4;
    std::vector<FrameResult> first;
    for (const auto& kernel : pvm::infer::int8_kernels()) {
      for (const std::size_t together : {std::size_t{1}, std::size_t{streams}}) {
        pvm::Team team(together == 1 ? 1 : 3);
        pvm::infer::Int8Forward forward(frozen, team, kernel);
        std::vector<pvm::infer::StreamPast> pasts;
        for (std::uint64_t s = 0; s < streams; ++s) pasts.push_back(forward.begin());
        std::vector<FrameResult> results(streams * steps);
        for (std::uint64_t t = 0; t < steps; ++t) {
          std::vector<Frame> frames;
          std::vector<pvm::infer::Row> rows;
          for (std::uint64_t s = 0; s < streams; ++s) frames.push_back(frame_of(spec, s, t));
          for (std::uint64_t s = 0; s < streams; ++s) {
            FrameResult& result = results[t * streams + s];
            const auto net = pvm::make_connectome(spec);
            result.prediction.resize(spec.frame_size());
            result.hidden.resize(net.units.size() * static_cast<std::size_t>(net.hidden));
            rows.push_back({&pasts[s], frames[s], result.prediction, result.hidden});
          }
          for (std::size_t s = 0; s < streams; s += together) {
            forward.step(std::span(rows).subspan(s, together));
          }
        }
        if (first.empty()) first = results;
        INFO(kernel.name << ", steps of " << together);
        for (std::size_t i = 0; i < results.size(); ++i) REQUIRE(same(results[i], first[i]));
      }
    }
  }
}

TEST_CASE("Files of networks in bytes", "[infer]") {
  const TempDir dir;
  const auto network = network_of(train_test::tiny_spec());
  pvm::Tracker tracker(network);
  for (std::uint64_t t = 0; t < 20; ++t) {
    const auto at = static_cast<float>(t % 3 * 3);
    tracker.learn(std::span<const std::uint8_t>(square_at(network.spec, t % 3 * 3)),
                  pvm::io::Label::present({3, at, 6, 6}));
  }
  tracker.save(dir / "ball.safetensors");
  const auto ball = pvm::io::load_network(dir / "ball.safetensors");
  for (const auto format : {pvm::FrozenFormat::int8, pvm::FrozenFormat::fp8}) {
    const auto frozen = frozen_of(ball, format);
    const auto path = dir / "frozen.safetensors";
    pvm::save_frozen(path, frozen);
    CHECK(pvm::is_frozen(path));
    CHECK_FALSE(pvm::is_frozen(dir / "ball.safetensors"));
    CHECK(same(pvm::load_frozen(path), frozen));
    Predictor predictor = Predictor::load(path);
    CHECK(predictor.has_readout());
    Stream stream = predictor.open();
    CHECK(predictor.predict(stream, square_at(network.spec, 0)).box);
    CHECK(contains(error_of([&] { pvm::io::load_checkpoint(path); }), "for prediction only"));
    CHECK(contains(error_of([&] { pvm::load_frozen(dir / "ball.safetensors"); }),
                   "not a file of pvm quantize"));
    auto wrong = frozen;
    wrong.values.pop_back();
    pvm::save_frozen(path, wrong);
    CHECK(contains(error_of([&] { pvm::load_frozen(path); }), "damaged"));
    wrong = frozen;
    wrong.scales.front() = std::numeric_limits<float>::infinity();
    pvm::save_frozen(path, wrong);
    CHECK(contains(error_of([&] { pvm::load_frozen(path); }), "not numbers"));
  }
}

TEST_CASE("Scales cannot be found from nothing", "[infer]") {
  const auto network = network_of(train_test::tiny_spec());
  const auto none = [](std::span<std::uint8_t>) {};
  CHECK(contains(error_of([&] { pvm::quantize(network, none, {.frames = 3}); }), "8 frames"));
  CHECK(contains(error_of([&] { pvm::quantize(network, none, {.samples = 0}); }), "1 sample"));
}
