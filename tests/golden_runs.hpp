// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Compares engines with the recorded runs of the original implementation (tests/golden/).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include <pvm/engine/engine.hpp>
#include <pvm/io/safetensors.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/json.hpp>

#include "catch.hpp"
#include "engine_suite.hpp"

namespace pvm_test {

/// Frame t of the golden runs, squeezed, computed as when they were recorded.
inline std::vector<float> golden_frame(std::uint64_t t, int side) {
  std::vector<float> frame;
  for (int x = 0; x < side; ++x) {
    for (int y = 0; y < side; ++y) {
      for (int c = 0; c < 3; ++c) {
        const double wave = 0.37 * x + 0.21 * y + 1.1 * c + 0.13 * static_cast<double>(t);
        const auto raw = static_cast<float>(0.5 + 0.5 * std::sin(wave));
        frame.push_back(raw * static_cast<float>(0.9 - 0.1) + 0.1F);
      }
    }
  }
  return frame;
}

/// The weights of the golden runs at the start. In NumPy: numpy.random.seed(seed); 0.03 *
/// (rand().astype(float32) - 0.5)
inline std::vector<float> golden_weights(std::size_t count, std::uint32_t seed) {
  std::mt19937 generator(seed);
  std::vector<float> weights(count);
  for (float& w : weights) {
    const auto a = static_cast<std::uint32_t>(generator() >> 5U);
    const auto b = static_cast<std::uint32_t>(generator() >> 6U);
    w = 0.03F * (static_cast<float>((a * 67108864.0 + b) / 9007199254740992.0) - 0.5F);
  }
  return weights;
}

struct Golden {
  explicit Golden(const std::string& name)
      : reader(std::filesystem::path(PVM_GOLDEN) / (name + ".safetensors")),
        spec(pvm::parse_spec(reader.metadata().at("spec"), name)),
        net(pvm::make_connectome(spec)),
        start(golden_weights(net.weights,
                             static_cast<std::uint32_t>(std::stoul(reader.metadata().at("seed"))))),
        hidden(reader.read<float>("hidden")),
        outputs(reader.read<float>("outputs")),
        weights(reader.read<float>("weights")),
        steps(std::stoul(reader.metadata().at("steps"))),
        outputs_stride(std::stoul(reader.metadata().at("outputs_stride"))),
        weights_stride(std::stoul(reader.metadata().at("weights_stride"))) {}

  pvm::io::SafetensorsReader reader;
  pvm::Spec spec;
  pvm::Connectome net;
  std::vector<float> start, hidden, outputs, weights;
  std::size_t steps, outputs_stride, weights_stride;
};

/// The largest difference between every `stride`-th element of `values` and the values of `golden`
/// from index `start` on.
template <class T>
double difference(const std::vector<T>& values, std::size_t stride,
                  const std::vector<float>& golden, std::size_t start) {
  double largest = 0;
  for (std::size_t i = 0; i < values.size(); i += stride) {
    const double d = std::abs(static_cast<double>(values[i]) -
                              static_cast<double>(golden.at(start + i / stride)));
    largest = std::max(largest, std::isfinite(d) ? d : 1e9);
  }
  return largest;
}

/// Checks that engine E follows the recorded run `name` within `tolerance`.
template <class E>
void follow(const std::string& name) {
  INFO(name);
  const Golden golden(name);
  E engine(golden.spec, 1);
  pvm::EngineState state;
  state.weights = golden.start;
  engine.restore(state);
  std::vector<float> hidden(golden.net.units.size() * static_cast<std::size_t>(golden.net.hidden));
  std::vector<float> outputs(golden.net.outputs);
  std::vector<float> prediction(golden.spec.frame_size());
  const std::size_t row = (outputs.size() + golden.outputs_stride - 1) / golden.outputs_stride;
  double worst_hidden = 0, worst_outputs = 0, worst_prediction = 0;
  for (std::size_t t = 0; t < golden.steps; ++t) {
    const auto frame = golden_frame(t, golden.spec.frame_side());
    auto block = engine.stage(1);
    block.squeezed = frame;
    engine.run(block, pvm::Mode::learn);
    engine.read_hidden(hidden);
    engine.read_outputs(outputs);
    engine.read_prediction(prediction);
    worst_hidden = std::max(worst_hidden, difference(hidden, 1, golden.hidden, t * hidden.size()));
    worst_outputs = std::max(worst_outputs,
                             difference(outputs, golden.outputs_stride, golden.outputs, t * row));
    // The prediction is the first half of the layer-0 units' outputs, un-squeezed.
    for (std::size_t i = 0; i < prediction.size(); i += golden.outputs_stride) {
      const auto side = static_cast<std::size_t>(golden.spec.layer_shapes[0]);
      const auto block_side = static_cast<std::size_t>(golden.spec.input_block_size);
      const std::size_t unit = i / (block_side * block_side * 3);
      const std::size_t k = i % (block_side * block_side * 3);
      const std::size_t pixel_row = unit / side * block_side + k / (block_side * 3);
      const std::size_t pixel =
          pixel_row * side * block_side * 3 + unit % side * block_side * 3 + k % (block_side * 3);
      const std::size_t at = unit * 2 * block_side * block_side * 3 + k;
      if (at % golden.outputs_stride != 0) continue;
      const double y = static_cast<double>(golden.outputs.at(t * row + at / golden.outputs_stride));
      const double expected = std::min(1.0, std::max(0.0, (y - 0.1) / 0.8));
      worst_prediction =
          std::max(worst_prediction, std::abs(static_cast<double>(prediction[pixel]) - expected));
    }
  }
  std::vector<float> weights(golden.net.weights);
  engine.read_weights(weights);
  CHECK(worst_hidden < tolerance);
  CHECK(worst_outputs < tolerance);
  CHECK(worst_prediction < tolerance);
  CHECK(difference(weights, golden.weights_stride, golden.weights, 0) < tolerance);
  CHECK(difference(golden.start, golden.weights_stride, golden.weights, 0) > 1000 * tolerance);
}

}  // namespace pvm_test
