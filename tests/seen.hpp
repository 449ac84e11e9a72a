// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Everything that a run shows, to be compared with that of another run, bit by bit.

#include <cstddef>
#include <vector>

#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

#include "catch.hpp"

namespace pvm_test {

inline void same_state(const pvm::EngineState& a, const pvm::EngineState& b) {
  CHECK(a.weights == b.weights);
  CHECK(a.folded == b.folded);
  CHECK(a.dweights == b.dweights);
  CHECK(a.coefficients == b.coefficients);
  CHECK(a.coefficients1 == b.coefficients1);
  CHECK(a.hidden == b.hidden);
  CHECK(a.squeezed == b.squeezed);
  CHECK(a.frames == b.frames);
  CHECK(a.outputs == b.outputs);
  CHECK(a.hidden_gradients == b.hidden_gradients);
  CHECK(a.output_gradients == b.output_gradients);
}

struct Seen {
  pvm::EngineState state;
  std::vector<float> weights, prediction, hidden, outputs;
  pvm::Score score;
};

template <class Engine>
Seen look_at(Engine& engine, const pvm::Spec& spec) {
  const pvm::Connectome net = pvm::make_connectome(spec);
  const auto batch = static_cast<std::size_t>(engine.batch());
  Seen seen;
  seen.score = engine.take_score();
  seen.weights.resize(net.weights);
  engine.read_weights(seen.weights);
  seen.prediction.resize(batch * spec.frame_size());
  engine.read_prediction(seen.prediction);
  seen.hidden.resize(batch * net.units.size() * static_cast<std::size_t>(net.hidden));
  engine.read_hidden(seen.hidden);
  seen.outputs.resize(batch * net.outputs);
  engine.read_outputs(seen.outputs);
  seen.state = engine.save();
  return seen;
}

inline void check_same(const Seen& a, const Seen& b) {
  CHECK(a.weights == b.weights);
  CHECK(a.prediction == b.prediction);
  CHECK(a.hidden == b.hidden);
  CHECK(a.outputs == b.outputs);
  CHECK(a.score.prediction == b.score.prediction);
  CHECK(a.score.persistence == b.score.persistence);
  CHECK(a.score.loss == b.score.loss);
  CHECK(a.score.pixels == b.score.pixels);
  CHECK(a.score.outputs == b.score.outputs);
  CHECK(a.state.step == b.state.step);
  CHECK(a.state.layout == b.state.layout);
  same_state(a.state, b.state);
}

}  // namespace pvm_test
