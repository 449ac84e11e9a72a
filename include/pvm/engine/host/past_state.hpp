// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Export and import of the past, between the host engine and the engine-neutral order of
/// EngineState.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/past.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// Visitors of visit_past: copy `n` floats between `tensor`, from `offset` on, and the engine's own
/// memory `own`. Export grows the tensor, import skips what it does not have.
struct PastExport {
  void operator()(std::vector<float>& tensor, std::size_t offset, const float* own,
                  std::size_t n) const {
    tensor.resize(std::max(tensor.size(), offset + n));
    std::copy_n(own, n, tensor.data() + offset);
  }
};
struct PastImport {
  void operator()(const std::vector<float>& tensor, std::size_t offset, float* own,
                  std::size_t n) const {
    if (offset + n <= tensor.size()) std::copy_n(tensor.data() + offset, n, own);
  }
};

/// Calls visit(tensor of `state`, offset, own memory, length) for every piece of the past after
/// `step` steps, newest first. If the state has a longer or shorter list than this engine, only the
/// common part is copied: the older gradients of a longer list either have died out or are added to
/// the weights (engine/settled_weights.hpp).
template <class State, class Visit>
void visit_past(Past& past, const Connectome& net, const Spec& spec, std::uint64_t step,
                State& state, Visit visit) {
  const std::size_t units = net.units.size();
  const std::size_t batch = past.batch();
  const std::size_t hidden = past.hidden();
  const auto block = static_cast<std::size_t>(spec.input_block_size);
  const auto side = static_cast<std::size_t>(spec.frame_side());
  const std::size_t line = block * static_cast<std::size_t>(spec.input_channels);

  std::size_t at_hidden = 0, at_frames = 0;
  for (std::size_t back = 1; back < past.depth(); ++back) {
    const std::size_t slot = past.slot(step, back);
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t u = 0; u < units; ++u, at_hidden += hidden) {
        visit(state.hidden, at_hidden, past.raw(slot, b, u), hidden);
        visit(state.squeezed, at_hidden, past.squeezed(slot, b, u), hidden);
      }
      for (std::size_t row = 0; row < side; ++row) {
        for (std::size_t k = 0; k < side / block; ++k, at_frames += line) {
          const std::size_t u = row / block * (side / block) + k;
          visit(state.frames, at_frames, past.patch(slot, b, u) + row % block * line, line);
        }
      }
    }
  }

  std::size_t at_outputs = 0;
  for (std::uint64_t back = 1; back <= 2; ++back) {
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t u = 0; u < units; ++u) {
        const auto outputs = static_cast<std::size_t>(net.units[u].outputs);
        visit(state.outputs, at_outputs, past.y(step + 3 - back, b, u), outputs);
        at_outputs += outputs;
      }
    }
  }

  std::size_t at_d0 = 0, at_d1 = 0;
  for (std::size_t age = 0; age < past.terms(); ++age) {
    const auto slot = static_cast<std::size_t>((step + past.terms() - 1 - age) % past.terms());
    for (std::size_t b = 0; b < batch; ++b) {
      for (std::size_t u = 0; u < units; ++u) {
        const auto outputs = static_cast<std::size_t>(net.units[u].outputs);
        visit(state.hidden_gradients, at_d0, past.d0(slot, b, u), hidden);
        visit(state.output_gradients, at_d1, past.d1(slot, b, u), outputs);
        at_d0 += hidden;
        at_d1 += outputs;
      }
    }
  }
}

/// Throws Error (Fault::checkpoint) unless the plan of `state` is possible and its tensors have the
/// sizes that this plan and this network give.
inline void check_past(const EngineState& state, const Connectome& net, const Spec& spec) {
  const auto count = [](int n) { return static_cast<std::size_t>(n); };
  if (!detail::possible_plans(state, 4 * DeferralPlan::most_terms)) {
    throw Error(Fault::checkpoint, "the checkpoint's plan of deferred updates is impossible");
  }
  const std::size_t batch = count(state.batch);
  const std::size_t terms = count(state.plan.terms);
  const std::size_t values = batch * net.units.size() * count(net.hidden);
  const std::size_t layers = spec.layer_shapes.size();
  const auto check = [](const char* name, std::size_t size, std::size_t expected) {
    if (size == expected) return;
    throw Error(Fault::checkpoint, "the checkpoint's tensor '" + std::string(name) + "' has " +
                                       std::to_string(size) + " numbers and needs " +
                                       std::to_string(expected));
  };
  check("rates", state.rates.size(), layers);
  check("coefficients", state.coefficients.size(), layers * state.plan.saved_numbers());
  check("coefficients1", state.coefficients1.size(),
        state.plan1 ? layers * state.plan1->saved_numbers() : 0);
  check("folded", state.folded.size(), net.weights);
  check("hidden", state.hidden.size(), (terms + 4) * values);
  check("squeezed", state.squeezed.size(), (terms + 4) * values);
  check("frames", state.frames.size(), (terms + 4) * batch * spec.frame_size());
  check("outputs", state.outputs.size(), 2 * batch * net.outputs);
  check("hidden_gradients", state.hidden_gradients.size(), terms * values);
  check("output_gradients", state.output_gradients.size(), terms * batch * net.outputs);
}

}  // namespace pvm::inline v0
