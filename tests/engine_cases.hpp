// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The inputs with which all engines are tested: specs of many shapes, weights, frames.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <vector>

#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/json.hpp>

namespace pvm_test {

/// The emulated device (tests/emulated_cuda) takes a tenth of a second for a step of one slice of a
/// batch, so tests run fewer steps and smaller batches there.
#if defined(PVM_EMULATED_CUDA)
inline constexpr bool emulated = true;
#else
inline constexpr bool emulated = false;
#endif
inline int steps_of(int usual, int on_emulated) { return emulated ? on_emulated : usual; }
/// More types for a TEMPLATE_TEST_CASE where it runs on a GPU: precisions whose kernels differ from
/// another one's, which is tested, in nothing that the case is about.
#if defined(PVM_EMULATED_CUDA)
#define PVM_TYPES_ON_GPU(...)
#else
#define PVM_TYPES_ON_GPU(...) , __VA_ARGS__
#endif

inline pvm::Spec tiny_spec() {
  return pvm::load_spec(std::filesystem::path(PVM_MODEL_ZOO) / "tiny.json");
}

/// Specs that each differ from tiny.json in one respect.
inline std::vector<pvm::Spec> odd_specs() {
  std::vector<pvm::Spec> specs;
  const auto add = [&](const char* name, auto&& change) {
    pvm::Spec spec = tiny_spec();
    spec.name = name;
    spec.delay_each_layer_learning = 3;
    change(spec);
    pvm::validate(spec, name);
    specs.push_back(spec);
  };
  using S = pvm::Spec&;
  add("plain", [](S) {});
  add("no momentum", [](S s) { s.momentum = 0; });
  add("momentum 0.5", [](S s) { s.momentum = 0.5; });
  add("momentum 0.95", [](S s) { s.momentum = 0.95; });
  add("logistic", [](S s) { s.activation = pvm::ActivationKind::logistic; });
  add("true derivative", [](S s) { s.true_derivative = true; });
  add("sign of the error", [](S s) {
    s.opt_abs_diff = true;
    s.initial_learning_rate = 1e-4;
  });
  add("fed context", [](S s) { s.feed_context_in_complex_layer = true; });
  add("fed context, momentum 0.5", [](S s) {
    s.feed_context_in_complex_layer = true;
    s.momentum = 0.5;
  });
  add("no context", [](S s) {
    s.lateral_radius = 0;
    s.context_exclude_self = true;
    s.send_context_two_layers_back = s.last_layer_context_to_all = false;
  });
  add("one layer, grey and alpha", [](S s) {
    s.layer_shapes = {3};
    s.input_channels = 2;
  });
  add("one unit", [](S s) { s.layer_shapes = {1}; });
  add("wide fan-in", [](S s) {
    s.layer_shapes = {5, 4, 2};
    s.fan_in_square_size = 3;
    s.fan_in_radius = 1;
    s.lateral_radius = 1;
    s.layer_shapes = {5, 4, 3};
  });
  add("grey, odd sizes", [](S s) {
    s.input_channels = 1;
    s.input_block_size = 5;
    s.hidden_block_size = 5;
    s.layer_shapes = {3, 2, 1};
  });
  add("hidden 49, BGR and alpha", [](S s) {
    s.input_channels = 4;
    s.hidden_block_size = 7;
    s.layer_shapes = {3, 2};
  });
  add("rate switches", [](S s) {
    s.momentum = 0.3;
    s.delay_final_learning_rate = 7;
    s.final_learning_rate = 0.01;
    s.delay_intermediate_learning_rate = 21;
    s.intermediate_learning_rate = 0.004;
    s.delay_each_layer_learning = 11;
  });
  return specs;
}

/// Weights 0.03 (u - 0.5), with u uniform in [0, 1) from a linear congruential generator.
inline std::vector<float> some_weights(std::size_t count, std::uint32_t seed = 1) {
  std::vector<float> weights(count);
  for (float& w : weights) {
    seed = seed * 1664525U + 1013904223U;
    w = 0.03F * (static_cast<float>(seed >> 8) / 16777216.0F - 0.5F);
  }
  return weights;
}

/// Pixel i of frame t of sequence b: drifting waves with some noise.
inline std::uint8_t some_pixel(std::size_t i, std::uint64_t t, std::size_t b) {
  const double wave = std::sin(0.37 * static_cast<double>(i / 7) + 0.13 * static_cast<double>(t) +
                               1.7 * static_cast<double>(b));
  const std::uint64_t noise = (i * 2654435761U + t * 40503U + b * 977U) % 29U;
  return static_cast<std::uint8_t>(110.0 + 90.0 * wave + static_cast<double>(noise));
}

/// Fills a block with the frames of the steps from `first_step` on; `frame`: values of a frame.
inline void fill(const pvm::FrameBlock& block, std::uint64_t first_step, std::size_t batch,
                 std::size_t frame) {
  for (std::size_t s = 0; s < static_cast<std::size_t>(block.steps); ++s) {
    for (std::size_t b = 0; b < batch; ++b) {
      const std::uint64_t t = first_step + s;
      for (std::size_t i = 0; i < frame; ++i) {
        block.pixels[(s * batch + b) * frame + i] = some_pixel(i, t, b);
      }
      block.scored[s * batch + b] = t >= 2 ? 1 : 0;
    }
  }
}

/// Runs `steps` steps in blocks of at most `block` steps.
template <class Engine>
void run_steps(Engine& engine, const pvm::Spec& spec, std::uint64_t steps, int block = 7,
               pvm::Mode mode = pvm::Mode::learn) {
  for (std::uint64_t done = 0; done < steps;) {
    const int n =
        static_cast<int>(std::min<std::uint64_t>(steps - done, static_cast<std::uint64_t>(block)));
    const auto frames = engine.stage(n);
    fill(frames, engine.step(), static_cast<std::size_t>(engine.batch()), spec.frame_size());
    engine.run(frames, mode);
    done += static_cast<std::uint64_t>(n);
  }
}

/// A state at step 0 that holds only `weights`.
inline pvm::EngineState start_from(const std::vector<float>& weights, int batch = 1) {
  pvm::EngineState state;
  state.weights = weights;
  state.batch = batch;
  return state;
}

template <class Engine>
std::vector<float> weights_of(Engine& engine, const pvm::Spec& spec) {
  std::vector<float> weights(pvm::make_connectome(spec).weights);
  engine.read_weights(weights);
  return weights;
}

}  // namespace pvm_test
