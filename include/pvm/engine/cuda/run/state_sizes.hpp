// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Checks by sizes whether a checkpoint fits a network.

#include <cstddef>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/engine/engine.hpp>

namespace pvm::inline v0::detail {

/// Sizes of a network's state. Values that exist once per sequence are counted for all sequences.
struct StateSizes {
  int batch = 1;
  std::size_t layers = 0;
  std::size_t weights = 0;
  std::size_t hidden = 0;   ///< hidden values of a step
  std::size_t frames = 0;   ///< pixel values of a step's frames
  std::size_t outputs = 0;  ///< outputs of a step
};

/// Throws Error (Fault::checkpoint) unless `size` is `expected`. `what`: name in the message.
inline void check_size(const char* what, std::size_t size, std::size_t expected) {
  if (size == expected) return;
  throw Error(Fault::checkpoint, "the checkpoint's " + std::string(what) + " are " +
                                     std::to_string(size) + " numbers and this network needs " +
                                     std::to_string(expected) + ": they are another spec's");
}

/// The same for everything in `state`; the past may be missing.
inline void check_state(const EngineState& state, const StateSizes& sizes) {
  check_size("weights", state.weights.size(), sizes.weights);
  if (!state.rates.empty()) check_size("rates", state.rates.size(), sizes.layers);
  if (!state.resumable()) return;
  if (state.batch != sizes.batch) {
    throw Error(Fault::checkpoint, "the checkpoint is of " + std::to_string(state.batch) +
                                       " sequences and this run has " +
                                       std::to_string(sizes.batch));
  }
  if (!possible_plans(state, 1 << 20)) {
    throw Error(Fault::checkpoint, "the checkpoint's plan of deferred updates is impossible");
  }
  const auto terms = static_cast<std::size_t>(state.plan.terms);
  check_size("rates", state.rates.size(), sizes.layers);
  check_size("coefficients", state.coefficients.size(), sizes.layers * state.plan.saved_numbers());
  check_size("coefficients of W1", state.coefficients1.size(),
             state.plan1 ? sizes.layers * state.plan1->saved_numbers() : 0);
  check_size("folded weights", state.folded.size(), sizes.weights);
  check_size("hidden values", state.hidden.size(), (terms + 4) * sizes.hidden);
  check_size("squeezed values", state.squeezed.size(), (terms + 4) * sizes.hidden);
  check_size("frames", state.frames.size(), (terms + 4) * sizes.frames);
  check_size("outputs", state.outputs.size(), 2 * sizes.outputs);
  check_size("hidden gradients", state.hidden_gradients.size(), terms * sizes.hidden);
  check_size("output gradients", state.output_gradients.size(), terms * sizes.outputs);
}

}  // namespace pvm::inline v0::detail
