// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The network of the checkpoints that are fuzzed: all kinds of connections, and so few weights
/// that a checkpoint is a few kilobytes.

#include <pvm/model/spec.hpp>

namespace fuzz {

inline pvm::Spec small_network() {
  pvm::Spec spec;
  spec.name = "small_network";
  spec.layer_shapes = {2, 1};
  spec.input_block_size = 1;
  spec.input_channels = 1;
  spec.hidden_block_size = 1;
  spec.fan_in_square_size = 2;
  spec.fan_in_radius = 2;
  spec.lateral_radius = 1;
  spec.send_context_two_layers_back = true;
  spec.last_layer_context_to_all = true;
  spec.initial_learning_rate = 0.002;
  spec.momentum = 0.1;
  spec.delay_each_layer_learning = 5;
  spec.steps = 1000;
  return spec;
}

}  // namespace fuzz
