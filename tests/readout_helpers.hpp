// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Small networks and random inputs for the tests of readouts, on the host and on a GPU.

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <pvm/core/random.hpp>
#include <pvm/model/spec.hpp>

#include "train_helpers.hpp"

namespace readout_test {

inline pvm::Spec spec_of(std::vector<int> layers, int hidden, int block = 5) {
  pvm::Spec spec = train_test::tiny_spec();
  spec.layer_shapes = std::move(layers);
  spec.hidden_block_size = hidden;
  spec.input_block_size = block;
  pvm::validate(spec, "spec_of");
  return spec;
}

inline std::vector<float> random_floats(std::size_t count, std::uint64_t seed) {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = pvm::uniform(seed, i);
  return values;
}

inline std::vector<std::uint8_t> random_frame(const pvm::Spec& spec, std::uint64_t seed) {
  std::vector<std::uint8_t> frame(spec.frame_size());
  for (std::size_t i = 0; i < frame.size(); ++i) {
    frame[i] = static_cast<std::uint8_t>(256 * pvm::uniform(seed, i));
  }
  return frame;
}

}  // namespace readout_test
