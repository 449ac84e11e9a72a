// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The histories of an EngineState: their order, their shapes, the check of all sizes of a state,
/// and the traversal by which every engine saves and loads its past. An engine supplies only where
/// its values are and how it encodes them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail {

/// What the next steps read of the steps before them.
enum class History { hidden, squeezed, frames, outputs, hidden_gradients, output_gradients };

/// Sizes of a network's state. Values that exist once per sequence are counted for all sequences.
struct StateSizes {
  StateSizes(const Spec& spec, const Connectome& net, int batch_)
      : batch(batch_), layers(net.layer_start.size() - 1), weights(net.weights) {
    const auto sequences = static_cast<std::size_t>(batch);
    hidden = sequences * net.units.size() * static_cast<std::size_t>(net.hidden);
    frames = sequences * spec.frame_size();
    outputs = sequences * net.outputs;
  }

  int batch;
  std::size_t layers, weights;
  std::size_t hidden = 0;   ///< hidden values of a step
  std::size_t frames = 0;   ///< pixel values of a step's frames
  std::size_t outputs = 0;  ///< outputs of a step
};

/// Calls visit(History, name in messages, tensor of `state`, steps, values of a step) for every
/// history of a state that lists the gradients of `terms` steps. `State` may be const.
template <class State, class Visit>
void for_each_history(State& state, const StateSizes& sizes, int terms, Visit visit) {
  const auto listed = static_cast<std::size_t>(terms);
  visit(History::hidden, "hidden values", state.hidden, listed + 4, sizes.hidden);
  visit(History::squeezed, "squeezed values", state.squeezed, listed + 4, sizes.hidden);
  visit(History::frames, "frames", state.frames, listed + 4, sizes.frames);
  visit(History::outputs, "outputs", state.outputs, std::size_t{2}, sizes.outputs);
  visit(History::hidden_gradients, "hidden gradients", state.hidden_gradients, listed,
        sizes.hidden);
  visit(History::output_gradients, "output gradients", state.output_gradients, listed,
        sizes.outputs);
}

/// Throws Error (Fault::checkpoint) unless `size` is `expected`. `what`: name in the message.
inline void check_size(const char* what, std::size_t size, std::size_t expected) {
  if (size == expected) return;
  throw Error(Fault::checkpoint, "the checkpoint's " + std::string(what) + " are " +
                                     std::to_string(size) + " numbers and this network needs " +
                                     std::to_string(expected) + ": they are another spec's");
}

/// The same for everything in `state`; the past may be missing. Also throws if the number of
/// sequences is another one, or the plan of deferred updates is impossible.
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
  check_size("rates", state.rates.size(), sizes.layers);
  check_size("coefficients", state.coefficients.size(), sizes.layers * state.plan.saved_numbers());
  check_size("coefficients of W1", state.coefficients1.size(),
             state.plan1 ? sizes.layers * state.plan1->saved_numbers() : 0);
  check_size("folded weights", state.folded.size(), sizes.weights);
  for_each_history(
      state, sizes, state.plan.terms,
      [](History, const char* name, const std::vector<float>& tensor, std::size_t steps,
         std::size_t values) { check_size(name, tensor.size(), steps * values); });
}

/// Exchanges the past of an engine that lists the gradients of `terms` steps with that of `state`:
/// saves it, or loads it if `State` is const. Calls exchange(History, back, row) for every step of
/// every history, the newest first: `back` is 1 for the newest step, and `row` is its part of the
/// tensor, in the order [batch][values]: a std::span<float> to be written, or a
/// std::span<const float> to be read (see exchange_values). A state that lists more gradients than
/// the engine, or fewer, is loaded as far as both go: the older gradients of a longer list either
/// have died out or are added to the weights (engine/settled_weights.hpp). The sizes of a state to
/// load must have been checked.
template <class State, class Exchange>
void exchange_past(State& state, const StateSizes& sizes, int terms, Exchange exchange) {
  constexpr bool loads = std::is_const_v<State>;
  for_each_history(
      state, sizes, loads ? std::min(terms, state.plan.terms) : terms,
      [&](History which, const char*, auto& tensor, std::size_t steps, std::size_t values) {
        if constexpr (!loads) tensor.resize(steps * values);
        for (std::size_t back = 1; back <= steps; ++back) {
          exchange(which, back, std::span(tensor).subspan((back - 1) * values, values));
        }
      });
}

/// Floats as an engine keeps them where it does not encode them.
struct PlainFloats {
  static float encode(float value) { return value; }
  static float decode(float own) { return own; }
};

/// Exchanges a value of a row with the engine's memory `own`: own = encode(value) if the row is
/// const, else value = decode(own).
template <class Code = PlainFloats, class Value, class Own>
void exchange_value(Value& value, Own& own) {
  if constexpr (std::is_const_v<Value>) {
    own = Code::encode(value);
  } else {
    value = Code::decode(own);
  }
}
/// The same for consecutive floats: the whole `row`.
template <class Value>
void exchange_values(std::span<Value> row, float* own) {
  if constexpr (std::is_const_v<Value>) {
    std::copy_n(row.data(), row.size(), own);
  } else {
    std::copy_n(own, row.size(), row.data());
  }
}

}  // namespace pvm::inline v0::detail
