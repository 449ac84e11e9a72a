// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What an engine is: it owns the weights and the past, and runs steps on blocks of frames.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/tags.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0 {

/// In `FrameBlock::stored`: the frame is not in the engine's store, its pixels are in the block.
inline constexpr std::uint32_t not_stored = std::numeric_limits<std::uint32_t>::max();

/// A budget of bytes that means: the engine is to take a sensible share of the memory that is free.
inline constexpr std::size_t share_of_free_memory = std::numeric_limits<std::size_t>::max();

/// Room for the frames of a few steps, lent by an engine (`stage`) to be filled and handed back
/// (`run`), all of it or its first steps. Pixels are 8-bit, [steps][batch][side][side][channels].
struct FrameBlock {
  int steps = 0;
  std::span<std::uint8_t> pixels;
  /// [steps][batch]: 1 where the frame is the second after the one two steps before, so that the
  /// prediction made there can be scored on it; 0 across a sequence's end.
  std::span<std::uint8_t> scored;
  /// Instead of pixels, where 8 bits are too coarse: values already squeezed to [0.1, 0.9], in the
  /// order of the pixels. Empty for ordinary frames.
  std::span<const float> squeezed = {};
  /// [steps][batch]: for every frame its index in the engine's store, or `not_stored`, which is
  /// what `stage` fills in. Of a frame that is stored the block's pixels are not read. Empty where
  /// the engine keeps no frames.
  std::span<std::uint32_t> stored = {};
};

/// `steps` steps of a block, from step `first` of it on.
inline FrameBlock part(const FrameBlock& block, int first, int steps) {
  const auto of = [&](auto all) {
    const std::size_t each = all.size() / static_cast<std::size_t>(block.steps);
    return all.subspan(static_cast<std::size_t>(first) * each,
                       static_cast<std::size_t>(steps) * each);
  };
  return {steps, of(block.pixels), of(block.scored), of(block.squeezed), of(block.stored)};
}

/// Whether a step learns or only looks.
enum class Mode { learn, freeze };

/// Sums over the steps since they were last taken. On pixels in [0, 1].
struct Score {
  double prediction = 0;   ///< squared error of the prediction made two steps before
  double persistence = 0;  ///< squared difference of the frames two steps apart
  std::uint64_t pixels = 0;
  double loss = 0;  ///< squared error e^2 of all outputs of all units, squeezed
  std::uint64_t outputs = 0;

  Score& operator+=(const Score& other) {
    prediction += other.prediction;
    persistence += other.persistence;
    pixels += other.pixels;
    loss += other.loss;
    outputs += other.outputs;
    return *this;
  }
};

/// Everything a run needs to continue bit by bit, in an order no engine's layout shows in.
/// Histories are newest first: row a is the value of step `step - 1 - a`.
struct EngineState {
  std::uint64_t step = 0;  ///< steps done
  int batch = 1;
  std::vector<float> weights;  ///< W(step), reference order

  /// The rest is empty in a state that only names weights to start from (then step is 0).
  std::vector<Rates> rates;          ///< by layer
  std::string layout;                ///< which engine's order of folding: only it resumes by bits
  DeferralPlan plan;                 ///< under which the following was made
  std::vector<double> coefficients;  ///< DeferredRates::save() of every layer
  std::vector<float> folded;         ///< Z, reference order
  std::vector<float> dweights;       ///< dW, where an engine keeps a momentum array
  std::vector<float> hidden;         ///< h          [terms + 4][batch][units][hidden]
  std::vector<float> squeezed;       ///< c(h)       [terms + 4][batch][units][hidden]
  std::vector<float> frames;         ///< c(pixel)   [terms + 4][batch][side][side][channels]
  std::vector<float> outputs;        ///< y          [2][batch][outputs]
  std::vector<float> hidden_gradients;  ///< d0         [terms][batch][units][hidden]
  std::vector<float> output_gradients;  ///< d1         [terms][batch][outputs]

  [[nodiscard]] bool resumable() const noexcept { return !folded.empty(); }
};

/// Choices that do not change the model.
struct EngineOptions {
  Reduce reduce = Reduce::mean;
  int threads = 0;    ///< host: 0 = one per core
  bool graph = true;  ///< CUDA: replay captured steps (false: launch kernels one by one)
};

/// Engines are built from (const Spec&, int batch, const EngineOptions&) and start at step 0 with
/// zero weights. `run` may return before the work is done; everything that reads waits for it.
template <class E>
concept Engine = requires(E engine, const EngineState& state, FrameBlock block, Mode mode,
                          int steps, std::span<float> out, std::size_t n,
                          std::span<const std::uint8_t> pixels, std::span<std::uint8_t> frame) {
  { engine.stage(steps) } -> std::same_as<FrameBlock>;  // steps: 1 to block_steps()
  { engine.block_steps() } -> std::same_as<int>;        // steps worth handing over at once
  {engine.run(block, mode)};
  {engine.synchronize()};
  { engine.step() } -> std::same_as<std::uint64_t>;
  { engine.batch() } -> std::same_as<int>;
  { engine.take_score() } -> std::same_as<Score>;
  {engine.read_weights(out)};     // reference order
  {engine.read_prediction(out)};  // [batch][side][side][channels] in [0, 1], for two steps ahead
  {engine.read_hidden(out)};      // h of the last step, [batch][units][hidden]
  {engine.read_outputs(out)};     // y of the last step, [batch][outputs], units one by one
  { engine.save() } -> std::same_as<EngineState>;
  {engine.restore(state)};  // Error (Fault::checkpoint) where sizes or values are impossible
  { engine.description() } -> std::convertible_to<std::string>;  // for logs: what runs where

  // A store of 8-bit frames of the network's size, near to where steps read them.
  //
  // reserve_frames(budget, frames) makes room for `frames` frames in at most `budget` bytes (or
  // `share_of_free_memory`, which is settled by the first call) and returns for how many there is
  // room now; 0: none. It never throws for want of memory. Called again it may grow, and what is
  // stored stays; 0 frames give everything back. The same for 0 bytes.
  { engine.reserve_frames(n, n) } -> std::same_as<std::size_t>;
  {engine.store_frames(n, pixels)};  // frames from index n on; `pixels` is free again on return
  {engine.read_frame(n, frame)};     // the frame with index n
};

}  // namespace pvm::inline v0
