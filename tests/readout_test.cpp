// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The readouts, the decoder, the measures and the tracker.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <zip.h>

#include <opencv2/core.hpp>

#include <pvm/core/random.hpp>
#include <pvm/io/mat.hpp>
#include <pvm/io/safetensors.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/model/json.hpp>
#include <pvm/readout/clips.hpp>
#include <pvm/readout/compare.hpp>
#include <pvm/readout/mlp.hpp>
#include <pvm/readout/original.hpp>
#include <pvm/readout/tracker.hpp>

#include "catch.hpp"
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
using train_test::TempDir;

io::Label random_label(const pvm::Spec& spec, std::uint64_t seed) {
  if (pvm::uniform(seed, 0) < 0.3F) return io::Label::absent();
  const auto side = static_cast<float>(spec.frame_side());
  return io::Label::present(
      {side * 0.7F * pvm::uniform(seed, 1), side * 0.7F * pvm::uniform(seed, 2),
       1 + side * 0.3F * pvm::uniform(seed, 3), 1 + side * 0.3F * pvm::uniform(seed, 4)});
}

/// Lets a readout learn from random frames.
void learn(readout::Readout& to, const pvm::Spec& spec, std::uint64_t first, std::uint64_t last) {
  const auto net = pvm::make_connectome(spec);
  const std::size_t hidden = net.units.size() * static_cast<std::size_t>(net.hidden);
  for (std::uint64_t t = first; t < last; ++t) {
    to.observe(random_floats(hidden, 1000 + t), random_frame(spec, 2000 + t),
               random_label(spec, 3000 + t));
  }
}

std::vector<float> heat_of(readout::Readout& of, const pvm::Spec& spec, std::uint64_t t) {
  const auto net = pvm::make_connectome(spec);
  const std::size_t hidden = net.units.size() * static_cast<std::size_t>(net.hidden);
  const auto side = static_cast<std::size_t>(of.heat_side());
  std::vector<float> heat(side * side);
  of.heat(random_floats(hidden, 1000 + t), random_frame(spec, 2000 + t), heat);
  return heat;
}

const std::vector<readout::RidgeOptions> ridges = {
    {.inputs = {.hidden = true, .pixels = true}, .shared = false, .penalty = 0.1},
    {.inputs = {.colours = true}, .shared = true, .penalty = 0.001},
    {.inputs = {.pixels = true, .colours = true}, .shared = true, .penalty = 0.01},
    {.inputs = {.hidden = true}, .shared = false, .penalty = 0.05}};

}  // namespace

TEST_CASE("A position reads the units that cover it", "[readout]") {
  const auto sizes = [](const pvm::Spec& spec) {
    const auto net = pvm::make_connectome(spec);
    const auto lists = readout::position_units(net, spec.layer_shapes.front());
    std::vector<std::size_t> all;
    for (std::size_t p = 0; p + 1 < lists.start.size(); ++p) {
      REQUIRE(std::is_sorted(lists[p].begin(), lists[p].end()));
      CHECK(lists[p].front() == p);  // layer 0's own unit
      all.push_back(lists[p].size() * static_cast<std::size_t>(net.hidden));
    }
    return all;
  };
  const auto first_steps = sizes(pvm::load_spec(PVM_MODEL_ZOO "/first_steps.json"));
  CHECK(std::all_of(first_steps.begin(), first_steps.end(), [](auto n) { return n == 100; }));
  const auto twelve = sizes(spec_of({12, 6, 3, 1}, 6));
  CHECK(*std::min_element(twelve.begin(), twelve.end()) == 108);
  CHECK(*std::max_element(twelve.begin(), twelve.end()) == 144);
  const auto ragged = sizes(spec_of({3, 1}, 2));
  CHECK(ragged == std::vector<std::size_t>{8, 8, 4, 8, 8, 4, 4, 4, 4});
}

TEST_CASE("Corners that the radius cuts off a fan-in square count for a position", "[readout]") {
  pvm::Spec spec = spec_of({3, 1}, 2);
  spec.fan_in_square_size = 3;
  spec.fan_in_radius = 1;  // a cross
  pvm::validate(spec, "cross");
  const auto net = pvm::make_connectome(spec);
  REQUIRE(net.primary[9].size() == 5);
  const auto lists = readout::position_units(net, 3);
  for (std::size_t p = 0; p < 9; ++p) CHECK(lists[p].size() == 2);
}

TEST_CASE("A Gram matrix is the sum of products", "[readout]") {
  for (const std::size_t columns : {1U, 31U, 32U, 77U}) {
    const std::size_t stride = readout::Gram::stride_of(columns);
    const std::size_t rows = 300;
    std::vector<float> values(rows * stride);
    for (std::size_t t = 0; t < rows; ++t) {
      for (std::size_t i = 0; i < columns; ++i) {
        values[t * stride + i] = pvm::uniform(5, t * columns + i) - 0.5F;
      }
    }
    readout::Gram gram(columns);
    gram.add(values.data(), rows);
    CHECK(gram.rows() == rows);
    double worst = 0;
    for (std::size_t i = 0; i < columns; ++i) {
      for (std::size_t j = 0; j < columns; ++j) {
        double sum = 0;
        for (std::size_t t = 0; t < rows; ++t) {
          sum += static_cast<double>(values[t * stride + i]) * values[t * stride + j];
        }
        worst = std::max(worst, std::abs(sum - gram(i, j)));
      }
    }
    CHECK(worst < 1e-6 * gram(0, 0));  // sums of squares: all about as large
    readout::Gram copy(columns);
    copy.restore(gram.triangle(), gram.rows());
    CHECK(copy.triangle() == gram.triangle());
  }
}

TEST_CASE("A ridge regression minimises what it says", "[readout]") {
  constexpr std::size_t inputs = 9, rows = 200;
  const std::size_t stride = readout::Gram::stride_of(inputs + 2);
  std::vector<float> values(rows * stride);
  for (std::size_t t = 0; t < rows; ++t) {
    float target = 0.3F;
    for (std::size_t i = 0; i < inputs; ++i) {
      const float x = i == 4 ? 0.25F : pvm::uniform(6, t * inputs + i);  // input 4 never changes
      values[t * stride + i] = x;
      target += 0.1F * static_cast<float>(i) * x * x;
    }
    values[t * stride + inputs] = 1;
    values[t * stride + inputs + 1] = target;
  }
  readout::Gram gram(inputs + 2);
  gram.add(values.data(), rows);
  std::vector<std::size_t> columns(inputs);
  for (std::size_t i = 0; i < inputs; ++i) columns[i] = i;
  const double strength = 0.05;
  const auto fit = readout::fit_ridge(gram, columns, inputs + 1, inputs, strength);
  double variance = 0;
  const auto mean = [&](std::size_t i) { return gram(i, inputs) / rows; };
  for (std::size_t i = 0; i < inputs; ++i) {
    variance += (gram(i, i) / rows - mean(i) * mean(i)) / inputs;
  }
  // Where the gradient by each weight and by the bias is 0.
  double by_bias = 0;
  std::vector<double> gradient(inputs);
  for (std::size_t t = 0; t < rows; ++t) {
    double error = static_cast<double>(fit.bias) - values[t * stride + inputs + 1];
    for (std::size_t i = 0; i < inputs; ++i) error += fit.weights[i] * values[t * stride + i];
    by_bias += error / rows;
    for (std::size_t i = 0; i < inputs; ++i) gradient[i] += error * values[t * stride + i] / rows;
  }
  CHECK(std::abs(by_bias) < 1e-6);
  for (std::size_t i = 0; i < inputs; ++i) {
    CHECK(std::abs(gradient[i] + strength * variance * fit.weights[i]) < 1e-6);
  }
  CHECK(fit.weights[4] == 0);

  const readout::Gram nothing(inputs + 2);
  const auto empty = readout::fit_ridge(nothing, columns, inputs + 1, inputs, strength);
  CHECK(empty.bias == 0);
  CHECK(empty.weights == std::vector<float>(inputs, 0.0F));
}

TEST_CASE("A ridge regression of inputs that hardly change has finite weights", "[readout]") {
  // Single precision makes variances of constants up to 1e-5 of their squares.
  const std::size_t inputs = 150, count = GENERATE(300, 2000);
  const double change = GENERATE(0.0, 0.001, 0.004, 0.01);
  const std::size_t stride = readout::Gram::stride_of(inputs + 2);
  std::vector<float> values(count * stride);
  for (std::size_t t = 0; t < count; ++t) {
    float* row = values.data() + t * stride;
    for (std::size_t i = 0; i < inputs; ++i) {
      const double moves = pvm::uniform(7, t * inputs + i) > 0.98F ? change : 0;
      row[i] = static_cast<float>(0.35 + 0.0011 * static_cast<double>(i) + moves);
    }
    row[inputs] = 1;
    row[inputs + 1] = pvm::uniform(3, t);
  }
  readout::Gram gram(inputs + 2);
  gram.add(values.data(), count);
  std::vector<std::size_t> columns(inputs);
  for (std::size_t i = 0; i < inputs; ++i) columns[i] = i;
  const auto fit = readout::fit_ridge(gram, columns, inputs + 1, inputs, 1e-3);
  double mean = fit.bias, most = 0;
  for (std::size_t i = 0; i < inputs; ++i) {
    mean += fit.weights[i] * static_cast<double>(values[i]);
    most = std::max(most, std::abs(static_cast<double>(fit.weights[i])));
  }
  CHECK(std::abs(mean - 0.5) < 0.5);  // finite, and near the target's mean
  if (change < 0.01) CHECK(most == 0);
}

TEST_CASE("A heatmap is the fitted function of the inputs", "[readout]") {
  const pvm::Spec spec = spec_of({4, 2, 1}, 3);
  const auto net = pvm::make_connectome(spec);
  for (const auto& options : ridges) {
    readout::RidgeReadout ridge(spec, net, options);
    learn(ridge, spec, 0, 40);
    const auto heat = heat_of(ridge, spec, 100);
    io::Extras extras;
    ridge.save(extras);
    const auto& weights = extras.floats.at("readout/weights");
    const readout::Inputs inputs(spec, net, options.inputs);
    std::vector<float> histograms, scratch, row;
    const auto frame = random_frame(spec, 2100);
    if (options.inputs.colours) inputs.count_colours(frame, histograms, scratch);
    const auto hidden =
        random_floats(net.units.size() * static_cast<std::size_t>(net.hidden), 1100);
    std::size_t at = 0;
    INFO("colours " << options.inputs.colours << ", hidden " << options.inputs.hidden);
    for (std::size_t p = 0; p < inputs.positions(); ++p) {
      row.assign(inputs.size(p), 0.0F);
      inputs.write(p, hidden, frame, histograms, row.data());
      double sum = weights[at + row.size()];
      for (std::size_t i = 0; i < row.size(); ++i) sum += weights[at + i] * row[i];
      CHECK(std::abs(sum - heat[p]) < 2e-5);
      if (!options.shared) at += row.size() + 1;
    }
  }
}

TEST_CASE("Colours of a cell and of those around it are shares of their pixels", "[readout]") {
  for (const int channels : {1, 2, 3, 4}) {
    pvm::Spec spec = spec_of({4, 2}, 2);
    spec.input_channels = channels;
    const readout::Inputs inputs(spec, pvm::make_connectome(spec), {.colours = true});
    std::vector<float> histograms, scratch;
    inputs.count_colours(random_frame(spec, 9), histograms, scratch);
    const std::size_t bins = inputs.bins().size();
    CHECK(bins == (channels < 3 ? 16U : 125U));  // alpha is no colour
    REQUIRE(histograms.size() == 3 * 16 * bins);
    for (std::size_t k = 0; k < 48; ++k) {
      double sum = 0;
      for (std::size_t b = 0; b < bins; ++b) sum += histograms[k * bins + b];
      CHECK(std::abs(sum - 1) < 1e-5);
    }
    // The cell at a corner: the 3 x 3 around it are four cells.
    for (std::size_t b = 0; b < bins; ++b) {
      const auto cell = [&](std::size_t p) {
        return static_cast<double>(histograms[p * bins + b]);
      };
      const double mean = (cell(0) + cell(1) + cell(4) + cell(5)) / 4;
      CHECK(std::abs(histograms[16 * bins + b] - mean) < 1e-6);
    }
  }
}

TEST_CASE("Unlabelled frames teach nothing, absent objects do", "[readout]") {
  const pvm::Spec spec = spec_of({4, 2}, 2);
  for (const auto& options : ridges) {
    readout::RidgeReadout ridge(spec, pvm::make_connectome(spec), options);
    learn(ridge, spec, 0, 30);
    const auto before = heat_of(ridge, spec, 50);
    const auto hidden = random_floats(20 * 4, 7);
    ridge.observe(hidden, random_frame(spec, 8), {});
    CHECK(heat_of(ridge, spec, 50) == before);
    CHECK(ridge.frames() == 30);
    ridge.observe(hidden, random_frame(spec, 8), io::Label::absent());
    CHECK(heat_of(ridge, spec, 50) != before);
  }
}

TEST_CASE("A ridge readout goes on from a file bit by bit, and asking it changes nothing",
          "[readout]") {
  const pvm::Spec spec = spec_of({4, 2}, 2);
  const auto net = pvm::make_connectome(spec);
  const TempDir dir;
  for (const auto& options : ridges) {
    readout::RidgeReadout whole(spec, net, options);
    learn(whole, spec, 0, 600);
    readout::RidgeReadout first(spec, net, options);
    learn(first, spec, 0, 300);
    static_cast<void>(heat_of(first, spec, 1));  // in the middle of a block
    learn(first, spec, 300, 333);
    io::Checkpoint file;
    file.spec = spec;
    file.state.weights.resize(net.weights);
    first.save(file.extras);
    io::save_checkpoint(dir / "a.safetensors", file);
    readout::RidgeReadout second(spec, net, options);
    second.restore(io::load_checkpoint(dir / "a.safetensors").extras);
    CHECK(heat_of(second, spec, 700) == heat_of(first, spec, 700));
    learn(second, spec, 333, 600);
    CHECK(heat_of(second, spec, 700) == heat_of(whole, spec, 700));
  }
}

TEST_CASE("Readouts say what is wrong with their inputs", "[readout]") {
  const pvm::Spec spec = spec_of({4, 2}, 2);
  const auto net = pvm::make_connectome(spec);
  const auto make = [&](const readout::RidgeOptions& options) {
    return error_of([&] { readout::RidgeReadout(spec, net, options); });
  };
  CHECK(contains(make({.inputs = {}}), "needs inputs"));
  CHECK(contains(make({.inputs = {.hidden = true}, .shared = true}), "cannot read hidden values"));
  CHECK(contains(make({.inputs = {.colours = true}}), "cannot read colours"));
  CHECK(contains(make({.penalty = 0}), "penalty"));
  CHECK(contains(make({.penalty = std::nan("")}), "penalty"));

  readout::RidgeReadout ridge(spec, net);
  const auto frame = random_frame(spec, 1);
  const auto hidden = random_floats(80, 1);
  const auto with = [&](const io::Box& box) {
    return error_of([&] { ridge.observe(hidden, frame, io::Label::present(box)); });
  };
  CHECK(contains(with({30, 2, 4, 4}), "outside of the frame, which has 20 x 20 pixels"));
  CHECK(contains(with({-8, 2, 4, 4}), "outside of the frame"));
  CHECK(contains(with({2, 2, 0, 4}), "is empty"));
  CHECK(contains(with({2, 2, -1, 4}), "is empty"));
  CHECK(contains(with({2, std::nanf(""), 3, 4}), "no number"));
  CHECK(with({-2, -2, 40, 40}).empty());  // partly outside
  const std::vector<std::uint8_t> small(10);
  CHECK(contains(error_of([&] { ridge.observe(hidden, small, io::Label::absent()); }),
                 "20 x 20 x 3"));
  CHECK(contains(error_of([&] { ridge.observe(random_floats(8, 1), frame, io::Label::absent()); }),
                 "8 hidden values and the network has 80"));

  io::Extras extras;
  ridge.save(extras);
  const pvm::Spec other = spec_of({4, 2}, 3);
  readout::RidgeReadout another(other, pvm::make_connectome(other));
  CHECK(contains(error_of([&] { another.restore(extras); }), "another network's readout"));
  readout::RidgeReadout pixels(spec, net, {.inputs = {.pixels = true}});
  CHECK(contains(error_of([&] { pixels.restore(extras); }), "other inputs"));
  CHECK(contains(error_of([&] { ridge.restore({}); }), "a network without a readout"));
  extras.floats["readout/weights"][3] = std::numeric_limits<float>::infinity();
  CHECK(contains(error_of([&] { ridge.restore(extras); }), "not numbers"));
}

TEST_CASE("The decoder finds the component of the peak", "[readout]") {
  readout::Decoder decoder(10, 4, {.threshold = 0.5, .growth = 1});
  std::vector<float> heat(100, 0.0F);
  const auto fill = [&](int row, int column, int rows, int columns, float value) {
    for (int i = row; i < row + rows; ++i) {
      for (int j = column; j < column + columns; ++j) {
        heat[static_cast<std::size_t>(10 * i + j)] = value;
      }
    }
  };
  CHECK_FALSE(decoder.decode(heat).present);
  fill(2, 3, 2, 3, 1.0F);
  fill(7, 7, 2, 2, 0.9F);  // another one, not as hot
  const auto found = decoder.decode(heat);
  REQUIRE(found.present);
  CHECK(found.contrast > 1);  // cubic interpolation overshoots
  CHECK(std::abs(found.box.x - 12) <= 1);
  CHECK(std::abs(found.box.y - 8) <= 1);
  CHECK(std::abs(found.box.width - 12) <= 2);
  CHECK(std::abs(found.box.height - 8) <= 2);

  decoder.options().growth = 1.5;
  const auto grown = decoder.decode(heat);
  CHECK(grown.box.width == Approx(1.5 * found.box.width));
  CHECK(grown.box.x + grown.box.width / 2 == Approx(found.box.x + found.box.width / 2));
  fill(0, 0, 10, 10, 0.0F);
  fill(0, 0, 2, 2, 1.0F);  // at the edge a box is cut
  const auto corner = decoder.decode(heat);
  CHECK(corner.box.x == 0);
  CHECK(corner.box.y == 0);
  for (float& value : heat) value += 5;  // only the contrast counts
  CHECK(decoder.decode(heat).box == corner.box);
  decoder.options().contrast = 2;
  CHECK_FALSE(decoder.decode(heat).present);
  decoder.options() = {};
  std::fill(heat.begin(), heat.end(), std::nanf(""));
  CHECK_FALSE(decoder.decode(heat).present);
}

TEST_CASE("The threshold of presence separates what can be separated", "[readout]") {
  const readout::Presence otherwise{0.4, 0.1};
  const auto fit = readout::fit_presence(
      {{0.1, false}, {0.2, false}, {0.3, false}, {0.5, true}, {0.9, true}}, otherwise);
  CHECK(fit.threshold == Approx(0.4));
  CHECK(fit.confidence(fit.threshold) == Approx(0.5));
  CHECK(fit.confidence(0.9) > 0.9);
  CHECK(fit.confidence(0.1) < 0.1);
  CHECK(readout::fit_presence({{0.1, true}, {0.2, true}}, otherwise) == otherwise);
  CHECK(readout::fit_presence({}, otherwise) == otherwise);
  // Missing the object costs more: the threshold goes down.
  const std::vector<readout::PresenceExample> mixed = {{0.1, false}, {0.2, true}, {0.3, false},
                                                       {0.4, false}, {0.5, true}, {0.6, true}};
  CHECK(readout::fit_presence(mixed, otherwise, 1).threshold == Approx(0.45));
  CHECK(readout::fit_presence(mixed, otherwise, 3).threshold == Approx(0.15));
  const auto inverted = readout::fit_presence({{0.1, true}, {0.2, false}}, otherwise, 3);
  CHECK(inverted.threshold < 0.1);
}

TEST_CASE("The measures count as the original's benchmark does", "[readout]") {
  const auto present = io::Label::present({10, 20, 30, 40});
  readout::TrackingScore score;
  score.add({}, io::Box{1, 1, 1, 1}, 96);  // unlabelled: not counted
  CHECK(score.frames() == 0);
  CHECK(score.auc() == 0);
  score.add(present, io::Box{10, 20, 30, 40}, 96);
  CHECK(score.auc() == Approx(0.99));  // the overlap is above all thresholds but 1
  CHECK(score.precision() == 1);
  CHECK(score.accuracy() == 1);
  score.add(present, std::nullopt, 96);
  CHECK(score.auc() == Approx(0.495));
  CHECK(score.presence() == 0.5);
  CHECK(score.true_negative_rate() == 1);  // there was none to see
  score.add(io::Label::absent(), std::nullopt, 96);
  score.add(io::Label::absent(), io::Box{0, 0, 5, 5}, 96);
  CHECK(score.auc() == Approx(0.495));  // false alarms do not count
  CHECK(score.true_negative_rate() == 0.5);
  CHECK(score.presence() == 0.5);
  CHECK(score.accuracy() == 0.5);
  CHECK(readout::overlap({0, 0, 10, 10}, {5, 0, 10, 10}) == Approx(1.0 / 3).epsilon(1e-4));
  CHECK(readout::overlap({0, 0, 10, 10}, {10, 0, 10, 10}) == 0);

  readout::TrackingScore near, far;
  near.add(present, io::Box{19, 20, 30, 40}, 96);
  far.add(present, io::Box{21, 20, 30, 40}, 96);
  CHECK(near.precision() == 1);
  CHECK(far.precision() == 0);
  readout::TrackingScore scaled;  // 11 pixels of 192 are 5.5 of 96
  scaled.add(present, io::Box{21, 20, 30, 40}, 192);
  CHECK(scaled.precision() == 1);
  near += far;
  CHECK(near.precision() == 0.5);
  CHECK(near.frames() == 2);
}

TEST_CASE("A tracker learns to find the ball, and better than what looks at no picture",
          "[readout]") {
  pvm::Spec spec = pvm::load_spec(PVM_MODEL_ZOO "/first_steps.json");
  const io::FrameShape shape{spec.frame_side(), spec.frame_side(), 3};
  io::Synthetic source({.seed = 4, .frames = 400});
  std::vector<readout::Clip> train(1), test(1);
  std::vector<std::uint8_t> frame(shape.size());
  for (int i = 0; i < 400; ++i) {
    auto& clip = i < 250 ? train[0] : test[0];
    clip.shape = shape;
    const auto info = source.next(shape, frame);
    clip.pixels.insert(clip.pixels.end(), frame.begin(), frame.end());
    clip.labels.push_back(info.label);
  }
  const auto network = readout::untrained(spec, 3);
  for (const auto& options : {pvm::TrackerOptions{}, readout::each_position(true, true)}) {
    pvm::Tracker tracker(network, options);
    const auto row = readout::run_tracker("tracker", tracker, train, test);
    INFO(row.score.auc());
    CHECK(row.score.auc() > 0.5);
    CHECK(row.score.presence() > 0.9);
    for (const auto& null : readout::run_null_trackers(train, test)) {
      INFO(null.name);
      CHECK(row.score.auc() > 2 * null.score.auc());
    }
    // From a file: the same answers, and it learns on as if nothing had happened.
    const TempDir dir;
    tracker.save(dir / "ball.safetensors");
    pvm::Tracker loaded = pvm::Tracker::load(dir / "ball.safetensors");
    CHECK(loaded.frames_with() == 250);
    tracker.reset();
    for (std::size_t i = 0; i < 20; ++i) {
      const auto a = tracker.track(test[0].frame(i));
      const auto b = loaded.track(test[0].frame(i));
      CHECK(a.present == b.present);
      CHECK(a.box == b.box);
      CHECK(a.confidence == Approx(b.confidence));
    }
    for (std::size_t i = 0; i < 20; ++i) {
      tracker.learn(test[0].frame(i), test[0].labels[i]);
      loaded.learn(test[0].frame(i), test[0].labels[i]);
    }
    tracker.track(test[0].frame(30));
    loaded.track(test[0].frame(30));
    CHECK(std::equal(tracker.heat().begin(), tracker.heat().end(), loaded.heat().begin()));
  }
}

TEST_CASE("A tracker takes pictures of any size, with boxes in their own pixels", "[readout]") {
  const pvm::Spec spec = pvm::load_spec(PVM_MODEL_ZOO "/first_steps.json");
  pvm::Tracker small(readout::untrained(spec, 3)), large(readout::untrained(spec, 3));
  const io::FrameShape shape{spec.frame_side(), spec.frame_side(), 3};
  io::Synthetic source({.seed = 4, .frames = 300});
  cv::Mat picture(shape.height, shape.width, CV_8UC3),
      twice(2 * shape.height, 3 * shape.width, CV_8UC3);
  for (int i = 0; i < 100; ++i) {
    const auto info = source.next(shape, {picture.data, shape.size()});
    cv::resize(picture, twice, twice.size(), 0, 0, cv::INTER_NEAREST);
    small.learn(picture, info.label);
    large.learn(twice, info.label.resized({40, 40}, {120, 80}));
  }
  const auto info = source.next(shape, {picture.data, shape.size()});
  cv::resize(picture, twice, twice.size(), 0, 0, cv::INTER_NEAREST);
  const auto a = small.track(picture);
  const auto b = large.track(twice);
  REQUIRE(a.present);
  REQUIRE(b.present);
  CHECK(std::abs(b.box.x - 3 * a.box.x) < 8);
  CHECK(std::abs(b.box.height - 2 * a.box.height) < 8);
  CHECK(readout::overlap(a.box, info.label.box) > 0.4);
  CHECK(contains(error_of([&] { small.track(cv::Mat()); }), "the picture is empty"));
  CHECK(contains(error_of([&] { small.track(cv::Mat(8, 8, CV_32FC3)); }), "8 bits per channel"));
}

TEST_CASE("A tracker says what it lacks", "[readout]") {
  const pvm::Spec spec = spec_of({4, 2}, 2);
  const auto network = readout::untrained(spec, 1);
  pvm::Tracker tracker(network);
  const auto frame = random_frame(spec, 1);
  const std::span<const std::uint8_t> pixels = frame;
  CHECK(contains(error_of([&] { tracker.track(pixels); }), "from no labelled frame"));
  tracker.learn(pixels, {});
  CHECK(contains(error_of([&] { tracker.track(pixels); }), "from no labelled frame"));
  tracker.learn(pixels, io::Label::absent());
  CHECK(contains(error_of([&] { tracker.track(pixels); }), "no frame that has the object"));
  CHECK(contains(error_of([&] { tracker.learn(pixels.first(10), io::Label::absent()); }),
                 "has 10 bytes"));
  CHECK(contains(error_of([&] {
                   tracker.learn(pixels, io::Label::present({50, 50, 5, 5}));
                 }),
                 "outside of the frame"));
  const TempDir dir;
  io::save_checkpoint(dir / "network.safetensors", network);
  CHECK(contains(error_of([&] { pvm::Tracker::load(dir / "network.safetensors"); }),
                 "a network without a readout"));
  tracker.learn(pixels, io::Label::present({5, 5, 5, 5}));
  tracker.save(dir / "tracker.safetensors");
  // A tracker's file is a checkpoint of its network as well.
  CHECK(io::load_checkpoint(dir / "tracker.safetensors").state.weights == network.state.weights);
  auto file = io::load_checkpoint(dir / "tracker.safetensors");
  file.extras.texts["readout.threshold"] = "nonsense";
  io::save_checkpoint(dir / "bad.safetensors", file);
  CHECK(contains(error_of([&] { pvm::Tracker::load(dir / "bad.safetensors"); }), "is no number"));
}

TEST_CASE("A tracker follows several objects, each as if it were alone", "[readout]") {
  const pvm::Spec spec = spec_of({6, 3}, 2);
  const auto network = readout::untrained(spec, 1);
  for (const bool each : {false, true}) {
    pvm::TrackerOptions options = each ? readout::each_position(true, true) : pvm::TrackerOptions{};
    pvm::Tracker one(network, options), two(network, options);
    options.objects = {"ball", "big cup"};
    pvm::Tracker both(network, options);
    for (std::uint64_t t = 0; t < 60; ++t) {
      const auto frame = random_frame(spec, t);
      const std::span<const std::uint8_t> pixels = frame;
      const io::Label labels[] = {t % 3 == 0 ? io::Label{} : random_label(spec, t),
                                  random_label(spec, 100 + t)};
      one.learn(pixels, labels[0]);
      two.learn(pixels, labels[1]);
      both.learn_all(pixels, labels);
    }
    CHECK(both.frames_with(0) == one.frames_with());
    CHECK(both.frames_with(1) == two.frames_with());
    const TempDir dir;
    both.save(dir / "both.safetensors");
    pvm::Tracker loaded = pvm::Tracker::load(dir / "both.safetensors");
    CHECK(loaded.objects() == options.objects);
    CHECK(loaded.object("big cup") == 1);
    CHECK(contains(error_of([&] { static_cast<void>(loaded.object("cup")); }), "no object 'cup'"));
    one.reset();
    two.reset();
    both.reset();
    for (std::uint64_t t = 0; t < 10; ++t) {
      const auto frame = random_frame(spec, 500 + t);
      const std::span<const std::uint8_t> pixels = frame;
      const pvm::Found alone[] = {one.track(pixels), two.track(pixels)};
      const auto found = both.track_all(pixels);
      const auto again = loaded.track_all(pixels);
      REQUIRE(found.size() == 2);
      for (std::size_t k = 0; k < 2; ++k) {
        CHECK(found[k].present == alone[k].present);
        CHECK(found[k].box == alone[k].box);
        CHECK(again[k].box == alone[k].box);
        CHECK(again[k].confidence == Approx(alone[k].confidence));
      }
      CHECK(std::equal(both.heat(1).begin(), both.heat(1).end(), two.heat().begin()));
    }
    // It learns on from the file, and a file with one object has the names it always had.
    const auto frame = random_frame(spec, 900);
    const std::span<const std::uint8_t> pixels = frame;
    const io::Label labels[] = {random_label(spec, 7), random_label(spec, 8)};
    both.learn_all(pixels, labels);
    loaded.learn_all(pixels, labels);
    CHECK(both.track_all(pixels)[1].box == loaded.track_all(pixels)[1].box);
    one.save(dir / "one.safetensors");
    auto file = io::load_checkpoint(dir / "one.safetensors");
    file.extras.texts.erase("readout.objects");
    file.extras.texts.erase("readout.smoothing");
    io::save_checkpoint(dir / "old.safetensors", file);
    pvm::Tracker old = pvm::Tracker::load(dir / "old.safetensors");
    CHECK(old.objects().size() == 1);
    CHECK(old.track(pixels).box == one.track(pixels).box);
  }
}

TEST_CASE("What a tracker of several objects refuses", "[readout]") {
  const pvm::Spec spec = spec_of({4, 2}, 2);
  const auto network = readout::untrained(spec, 1);
  const auto named = [&](std::vector<std::string> names) {
    pvm::TrackerOptions options;
    options.objects = std::move(names);
    return error_of([&] { pvm::Tracker(network, options); });
  };
  CHECK(contains(named({}), "follows 1 to 254 objects, not 0"));
  CHECK(contains(named({"a", ""}), "cannot be called ''"));
  CHECK(contains(named({"a,b"}), "cannot be called 'a,b'"));
  CHECK(contains(named({"a", "b", "a"}), "all different"));
  CHECK(named({"a", "b"}).empty());
  pvm::TrackerOptions options;
  options.objects = {"a", "b"};
  pvm::Tracker tracker(network, options);
  const auto frame = random_frame(spec, 1);
  const std::span<const std::uint8_t> pixels = frame;
  const std::vector<io::Label> three(3, io::Label::present({2, 2, 4, 4}));
  CHECK(contains(error_of([&] { tracker.learn_all(pixels, three); }),
                 "3 labels and the tracker follows 2 objects"));
  tracker.learn(pixels, three[0]);  // the first one only
  CHECK(contains(error_of([&] { tracker.track(pixels); }),
                 "object 'b' has learned from no labelled frame"));
  const std::size_t size = 20 * 20;
  CHECK(contains(error_of([&] { tracker.learn_classes(pixels, std::vector<std::uint8_t>(9)); }),
                 "9 pixels"));
  CHECK(
      contains(error_of([&] { tracker.learn_classes(pixels, std::vector<std::uint8_t>(size, 3)); }),
               "class 3, and there are 2"));
  tracker.learn_classes(pixels, std::vector<std::uint8_t>(size, readout::unknown_class));
  CHECK(tracker.frames_without(1) == 0);
}

TEST_CASE("Classes of pixels: shares of cells, the largest heat, and the overlap", "[readout]") {
  std::vector<std::uint8_t> picture(36, 0);  // cells of 3 x 3
  for (int row = 0; row < 3; ++row) {
    for (int column = 0; column < 6; ++column) {
      picture[static_cast<std::size_t>(6 * row + column)] = column < 2    ? 1
                                                            : column == 2 ? readout::unknown_class
                                                                          : 2;
    }
  }
  std::vector<float> cover(4);
  readout::cover_class(picture, 1, cover, 2);
  CHECK(cover == std::vector<float>{1, 0, 0, 0});
  readout::cover_class(picture, 2, cover, 2);
  CHECK(cover == std::vector<float>{0, 1, 0, 0});

  std::vector<std::uint8_t> mask(64);
  std::vector<std::vector<float>> heats(2, std::vector<float>(16, 0.0F));
  readout::mask_classes(heats, 4, 2, 0, mask);
  CHECK(mask == std::vector<std::uint8_t>(64, 0));
  for (const std::size_t p : {0U, 1U, 4U, 5U}) heats[0][p] = 1;
  for (const std::size_t p : {10U, 11U, 14U, 15U}) heats[1][p] = 0.9F;
  readout::mask_classes(heats, 4, 2, 0, mask);
  CHECK(mask[0] == 1);
  CHECK(mask[3 * 8 + 3] == 1);
  CHECK(mask[63] == 2);
  CHECK(mask[7] == 0);
  CHECK(mask[56] == 0);
  heats[1][0] = 0.7F;  // a spot that smoothing takes away
  heats[0][0] = 0.6F;
  readout::mask_classes(heats, 4, 2, 0, mask);
  CHECK(mask[0] == 2);
  readout::mask_classes(heats, 4, 2, 1, mask);
  CHECK(mask[0] == 1);

  readout::ClassScore score(3);
  const std::vector<std::uint8_t> truth = {0, 1, 1, 2, readout::unknown_class};
  const std::vector<std::uint8_t> found = {1, 1, 1, 0, 2};
  score.add(found, truth);
  CHECK(score.overlap(0) == Approx(2.0 / 3));
  CHECK(score.overlap(1) == 0);
  CHECK(score.overlap(2) == 1);  // in neither
  score.add(truth, truth);
  CHECK(score.overlap(1) == 0.5);
  CHECK(score.mean() == Approx((5.0 / 6 + 0.5 + 1) / 3));
}

TEST_CASE("A tracker learns classes of pixels", "[readout]") {
  const pvm::Spec spec = spec_of({8, 4}, 2);
  pvm::TrackerOptions options;
  options.objects = {"red", "green"};
  pvm::Tracker tracker(readout::untrained(spec, 1), options);
  const auto scene = [&](std::uint64_t t, std::vector<std::uint8_t>& classes) {
    std::vector<std::uint8_t> frame(spec.frame_size(), 40);
    classes.assign(40 * 40, 0);
    for (std::size_t i = 0; i < 40; ++i) {
      for (std::size_t j = 0; j < 40; ++j) {
        const std::size_t from = 5 + t % 10;
        const bool in = i >= 10 && i < 30 && j >= from && j < from + 20;
        if (!in) continue;
        const bool red = j < from + 10;
        classes[40 * i + j] = red ? 1 : 2;
        frame[3 * (40 * i + j) + (red ? 2 : 1)] = 220;
      }
    }
    return frame;
  };
  std::vector<std::uint8_t> classes;
  for (std::uint64_t t = 0; t < 60; ++t) {
    const auto frame = scene(t, classes);
    tracker.learn_classes(frame, classes);
  }
  readout::ClassScore score(2);
  for (std::uint64_t t = 3; t < 9; ++t) {
    const auto frame = scene(t, classes);
    tracker.track_all(frame);
    score.add(tracker.classes(0), classes);
  }
  CHECK(score.overlap(0) > 0.75);
  CHECK(score.overlap(1) > 0.75);
}

TEST_CASE("Examples are spread evenly over a stream, however long", "[readout]") {
  readout::Examples examples;
  const std::vector<std::uint8_t> frame(3);
  for (int i = 0; i < 3000; ++i) examples.offer(i % 2 == 0, {}, frame);
  const auto& all = examples.all();
  REQUIRE(all.size() > readout::Examples::most / 2 - 1);
  REQUIRE(all.size() < readout::Examples::most);
  for (std::size_t i = 1; i < all.size(); ++i) CHECK(all[i].index - all[i - 1].index == 16);
}

namespace {

/// The run `name` of readout_mlp.safetensors: the readout after its 100 steps.
void follow_numpy(const std::string& name, int layers, bool sign) {
  INFO(name);
  io::SafetensorsReader golden(PVM_GOLDEN "/readout_mlp.safetensors");
  pvm::Spec spec = spec_of({3, 1}, 2, 2);
  spec.momentum = 0.1;
  spec.opt_abs_diff = sign;
  readout::MlpOptions options;
  options.representation = 5;
  options.layers = layers;
  options.first_rate = 0.5;
  readout::MlpReadout mlp(spec, pvm::make_connectome(spec), options);
  const auto floats = [&](const std::string& what, std::size_t l) {
    return golden.read<float>(name + what + std::to_string(l));
  };
  for (std::size_t l = 0; l < mlp.depth(); ++l) {
    auto start = floats("_start", l);
    const std::size_t size = start.size();
    mlp.set_layer(l, std::move(start), std::vector<float>(size));
  }
  const auto hidden = golden.read<float>("hidden");
  const auto boxes = golden.read<float>("boxes");
  const auto heats = golden.read<double>(name + "_heats");
  double worst = 0;
  for (std::size_t t = 0; t < 100; ++t) {
    const float* box = boxes.data() + 4 * t;
    // The golden's boxes may have no width: they still fill one pixel, both ends included.
    const auto label =
        box[0] < 0 ? io::Label::absent() : io::Label::present({box[0], box[1], box[2], box[3]});
    const auto now = std::span(hidden).subspan(40 * t, 40);
    const auto heat = mlp.outputs_of(now);
    for (std::size_t i = 0; i < 36; ++i) {
      worst = std::max(worst, std::abs(heats[36 * t + i] - static_cast<double>(heat[i])));
    }
    mlp.learn(now, mlp.targets(label));
  }
  CHECK(worst < 1e-6);
  for (std::size_t l = 0; l < mlp.depth(); ++l) {
    const auto weights = golden.read<double>(name + "_weights" + std::to_string(l));
    const auto changes = golden.read<double>(name + "_changes" + std::to_string(l));
    double off = 0;
    for (std::size_t i = 0; i < weights.size(); ++i) {
      off = std::max(off, std::abs(weights[i] - static_cast<double>(mlp.weights(l)[i])));
      off = std::max(off, std::abs(changes[i] - static_cast<double>(mlp.changes(l)[i])));
    }
    INFO("layer " << l);
    CHECK(off < 2e-6);  // of weights up to 3: the last bits of 100 updates
  }
}

}  // namespace

TEST_CASE("The original's readout follows numpy", "[readout]") {
  follow_numpy("three", 3, false);
  follow_numpy("four", 4, false);
  follow_numpy("sign", 3, true);
}

TEST_CASE("The original's readout: labels, schedule and slips", "[readout]") {
  pvm::Spec spec = spec_of({3, 1}, 2, 2);
  spec.delay_final_learning_rate = 10;
  spec.final_learning_rate = 0.02;
  spec.delay_intermediate_learning_rate = 20;
  spec.intermediate_learning_rate = 0.003;
  const auto net = pvm::make_connectome(spec);
  readout::MlpReadout mlp(spec, net);
  const auto count = [](const std::vector<float>& target) {
    return std::count(target.begin(), target.end(), 0.9F);
  };
  CHECK(count(mlp.targets(io::Label::present({1.9F, 0.2F, 2.7F, 1.3F}))) == 3 * 2);
  CHECK(count(mlp.targets(io::Label::present({-1, 0, 4, 4}))) == 0);
  CHECK(count(mlp.targets(io::Label::present({4, 4, 4, 4}))) == 4);  // cut at the edge
  CHECK(count(mlp.targets(io::Label::absent())) == 0);
  readout::MlpOptions meant;
  meant.slips = {false, false, false};
  readout::MlpReadout other(spec, net, meant);
  CHECK(count(other.targets(io::Label::present({1.9F, 0.2F, 2.7F, 1.3F}))) == 2 * 1);
  CHECK(count(other.targets(io::Label::present({-1, 0, 4, 4}))) == 3 * 4);
  const auto largest = [](std::span<const float> values) {
    float most = 0;
    for (const float v : values) most = std::max(most, std::abs(v));
    return most;
  };
  CHECK(largest(mlp.weights(1)) <= 1 / std::sqrt(4 - 0.9F));
  CHECK(largest(mlp.weights(1)) > 0.9 / std::sqrt(4 - 0.9));
  CHECK(largest(other.weights(1)) <= 1 / std::sqrt(100.0F));

  const auto hidden = random_floats(40, 3);
  const auto frame = random_frame(spec, 3);
  const auto learns = [&](std::uint64_t t) {
    mlp.at_step(t);
    const std::vector<float> before(mlp.weights(1).begin(), mlp.weights(1).end());
    mlp.observe(hidden, frame, io::Label::absent());
    return !std::equal(before.begin(), before.end(), mlp.weights(1).begin());
  };
  CHECK_FALSE(learns(0));
  CHECK(mlp.rate() == 0.01F);
  CHECK_FALSE(learns(10));
  CHECK(mlp.rate() == Approx(0.2));
  CHECK_FALSE(learns(20));
  CHECK(mlp.rate() == Approx(0.03));
  CHECK(learns(21));
  const std::vector<float> before(mlp.weights(1).begin(), mlp.weights(1).end());
  mlp.at_step(22);
  mlp.observe(hidden, frame, {});  // no label: no step
  CHECK(std::equal(before.begin(), before.end(), mlp.weights(1).begin()));
}

TEST_CASE("The original's readout goes on from a file bit by bit", "[readout]") {
  const pvm::Spec spec = spec_of({4, 2}, 2);
  const auto net = pvm::make_connectome(spec);
  readout::MlpReadout whole(spec, net), first(spec, net);
  learn(whole, spec, 0, 20);
  learn(first, spec, 0, 11);
  io::Checkpoint file;
  file.spec = spec;
  file.state.weights.resize(net.weights);
  first.save(file.extras);
  const TempDir dir;
  io::save_checkpoint(dir / "a.safetensors", file);
  readout::MlpOptions elsewhere;
  elsewhere.seed = 9;
  readout::MlpReadout second(spec, net, elsewhere);
  const auto extras = io::load_checkpoint(dir / "a.safetensors").extras;
  second.restore(extras);
  learn(second, spec, 11, 20);
  for (std::size_t l = 0; l < 2; ++l) {
    CHECK(std::equal(whole.weights(l).begin(), whole.weights(l).end(), second.weights(l).begin()));
    CHECK(std::equal(whole.changes(l).begin(), whole.changes(l).end(), second.changes(l).begin()));
  }
  const pvm::Spec other = spec_of({4, 2}, 3);
  readout::MlpReadout another(other, pvm::make_connectome(other));
  CHECK(contains(error_of([&] { another.restore(extras); }), "another network's readout"));
  readout::RidgeReadout ridge(spec, net);
  CHECK(contains(error_of([&] { ridge.restore(extras); }), "is 'mlp'"));
}

namespace {

void add_entry(zip_t* archive, const std::string& name, const void* data, std::size_t bytes) {
  void* copy = std::malloc(bytes);
  std::memcpy(copy, data, bytes);
  zip_source_t* source = zip_source_buffer(archive, copy, bytes, 1);
  REQUIRE(zip_file_add(archive, name.c_str(), source, ZIP_FL_ENC_UTF_8) >= 0);
}

}  // namespace

TEST_CASE("The readout of the original's zip is read", "[readout]") {
  const pvm::Spec spec = spec_of({3, 1}, 2, 2);
  const auto net = pvm::make_connectome(spec);
  const TempDir dir;
  for (const int layers : {3, 4}) {
    for (const bool turn : {true, false}) {
      readout::MlpOptions options;
      options.representation = 6;
      options.layers = layers;
      options.seed = 5;
      readout::MlpReadout mlp(spec, net, options);
      const auto path = dir / ("a" + std::to_string(layers) + std::to_string(turn) + ".zip");
      int code = 0;
      zip_t* archive = zip_open(path.c_str(), ZIP_CREATE | ZIP_TRUNCATE, &code);
      REQUIRE(archive != nullptr);
      for (std::size_t l = 0; l < mlp.depth(); ++l) {
        const std::string end = "_0" + std::to_string(l) + ".npy";
        const std::vector<std::int32_t> shape0(9, static_cast<std::int32_t>(mlp.outputs(l)));
        const auto weights = mlp.weights(l);
        const auto newest = random_floats(weights.size(), 10 + l);
        const auto older = random_floats(weights.size(), 20 + l);
        add_entry(archive, "mlp/objects/shape0" + end, shape0.data(), 36);
        add_entry(archive, "mlp/objects/weight_mem" + end, weights.data(), weights.size_bytes());
        add_entry(archive, (turn ? "mlp/objects/dweight_mem" : "mlp/objects/mweight_mem") + end,
                  newest.data(), 4 * newest.size());
        add_entry(archive, (turn ? "mlp/objects/mweight_mem" : "mlp/objects/dweight_mem") + end,
                  older.data(), 4 * older.size());
      }
      const std::uint8_t pickle[] = {0x80, 0x04, static_cast<std::uint8_t>(turn ? 0x88 : 0x89),
                                     '.'};
      add_entry(archive, "mlp/flip_buf.pkl", pickle, sizeof pickle);
      REQUIRE(zip_close(archive) == 0);

      auto loaded = readout::load_original_readout(path, spec);
      CHECK(loaded.options().layers == layers);
      CHECK(loaded.options().representation == 6);
      CHECK(loaded.heat_side() == 6);
      for (std::size_t l = 0; l < mlp.depth(); ++l) {
        CHECK(std::equal(mlp.weights(l).begin(), mlp.weights(l).end(), loaded.weights(l).begin()));
        const auto newest = random_floats(mlp.weights(l).size(), 10 + l);
        CHECK(std::equal(newest.begin(), newest.end(), loaded.changes(l).begin()));
      }
      const pvm::Spec other = spec_of({3, 1}, 3, 2);
      CHECK(contains(error_of([&] { readout::load_original_readout(path, other); }),
                     "another network's"));
      const pvm::Spec larger = spec_of({4, 1}, 2, 2);
      CHECK(contains(error_of([&] { readout::load_original_readout(path, larger); }),
                     "16: it is another network's"));
    }
  }
  train_test::write_file(dir / "b.zip", "nonsense");
  CHECK(contains(error_of([&] { readout::load_original_readout(dir / "b.zip", spec); }), "no zip"));
}
