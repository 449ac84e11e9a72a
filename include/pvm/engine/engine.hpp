// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The concept of an engine. An engine owns the weights and the past of a network, and runs steps
/// on blocks of frames.

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/tags.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0 {

/// In `FrameBlock::stored`: the frame is not in the engine's store; its pixels are in the block.
inline constexpr std::uint32_t not_stored = std::numeric_limits<std::uint32_t>::max();

/// As a budget of bytes: the engine takes a sensible share of the free memory.
inline constexpr std::size_t share_of_free_memory = std::numeric_limits<std::size_t>::max();

/// Room for the frames of a few steps. An engine lends it (`stage`); the caller fills it and hands
/// it back (`run`), the whole block or only its first steps.
struct FrameBlock {
  int steps = 0;
  std::span<std::uint8_t> pixels;  ///< [steps][batch][side][side][channels]
  /// [steps][batch]: 1 if the prediction made two steps before can be scored on this frame, because
  /// it is the second frame after the one of that step; 0 across the end of a sequence.
  std::span<std::uint8_t> scored;
  /// Used instead of `pixels` where 8 bits are too coarse: values squeezed to [0.1, 0.9], in the
  /// order of the pixels. Empty for ordinary frames.
  std::span<const float> squeezed = {};
  /// [steps][batch]: the index of every frame in the engine's store, or `not_stored`, which `stage`
  /// fills in. The block's pixels of a stored frame are not read. Empty if the engine stores no
  /// frames.
  std::span<std::uint32_t> stored = {};
};

/// The part of a block that has the `steps` steps from its step `first` on.
inline FrameBlock part(const FrameBlock& block, int first, int steps) {
  const auto of = [&](auto all) {
    const std::size_t each = all.size() / static_cast<std::size_t>(block.steps);
    return all.subspan(static_cast<std::size_t>(first) * each,
                       static_cast<std::size_t>(steps) * each);
  };
  return {steps, of(block.pixels), of(block.scored), of(block.squeezed), of(block.stored)};
}

/// Whether a step learns or only predicts.
enum class Mode { learn, freeze };

/// Sums over the steps since the score was last taken. Pixels are in [0, 1].
struct Score {
  double prediction = 0;     ///< squared error of the predictions made two steps before
  double persistence = 0;    ///< squared difference of the frames two steps apart
  std::uint64_t pixels = 0;  ///< how many values the two sums above have
  double loss = 0;           ///< squared errors e^2 of all outputs of all units, on squeezed values
  std::uint64_t outputs = 0;  ///< how many values `loss` has

  Score& operator+=(const Score& other) {
    prediction += other.prediction;
    persistence += other.persistence;
    pixels += other.pixels;
    loss += other.loss;
    outputs += other.outputs;
    return *this;
  }
};

/// Everything that a run needs to continue bit by bit, in an order that does not depend on an
/// engine's layout. Histories are newest first: row a has the values of step `step - 1 - a`.
struct EngineState {
  std::uint64_t step = 0;  ///< steps done
  int batch = 1;
  std::vector<float> weights;  ///< W(step), reference order

  /// The rest is empty in a state that has only weights to start from. Such a state has step 0,
  /// except one from a .bin checkpoint, which has its own step and the `rates` of that step.
  std::vector<Rates> rates;          ///< by layer
  std::string layout;                ///< order of folding; the same one continues bit by bit
  DeferralPlan plan;                 ///< under which the following members were made
  std::vector<double> coefficients;  ///< DeferredRates::save() of all layers, one after the other
  /// The same for W1, where its updates have a plan of their own, with at most as many terms.
  std::optional<DeferralPlan> plan1;
  std::vector<double> coefficients1;
  std::vector<float> folded;            ///< Z, reference order
  std::vector<float> dweights;          ///< dW if there is a momentum array, or a rule's arrays
  std::vector<float> hidden;            ///< h          [terms + 4][batch][units][hidden]
  std::vector<float> squeezed;          ///< c(h)       [terms + 4][batch][units][hidden]
  std::vector<float> frames;            ///< c(pixel)   [terms + 4][batch][side][side][channels]
  std::vector<float> outputs;           ///< y          [2][batch][outputs]
  std::vector<float> hidden_gradients;  ///< d0         [terms][batch][units][hidden]
  std::vector<float> output_gradients;  ///< d1         [terms][batch][outputs]

  [[nodiscard]] bool resumable() const noexcept { return !folded.empty(); }
  [[nodiscard]] DeferralPlans plans() const { return {plan, plan1.value_or(plan)}; }
};

namespace detail {

/// Whether a run can have the plans of `state`, with at most `most` terms.
inline bool possible_plans(const EngineState& state, int most) {
  return state.plan.possible(most) && (!state.plan1 || state.plan1->possible(state.plan.terms));
}

}  // namespace detail

class OtherRanks;
class UnitExchange;

/// Options of an engine that do not belong to the model.
struct EngineOptions {
  Reduce reduce = Reduce::mean;
  int threads = 0;    ///< host: number of threads; 0: one per core
  bool graph = true;  ///< CUDA: replay captured steps (false: launch kernels one by one)
  /// `restore` is called before anything else, so that the engine need not start with zero weights:
  /// a large network's take a while.
  bool restored_next = false;
  /// Host: the engine computes only the units that this names, and gets what the others send. Must
  /// outlive the engine. Null: it computes all.
  UnitExchange* exchange = nullptr;
  /// CUDA: the numbers of the GPUs that share the network; empty: the current one.
  std::vector<int> devices = {};
  /// CUDA: the number of shards that the network is divided into, the same number on each GPU.
  /// 0: one on each.
  int shards = 0;
  /// CUDA: the engine has one shard of the network, on the current GPU, and the other ranks have
  /// the others. Must outlive the engine, all of whose functions all ranks then call in the same
  /// order, but for those that tell or wait: `step`, `batch`, `block_steps`, `stage`,
  /// `synchronize`, `read_frame`, `description`. Null: this process has the whole network.
  OtherRanks* ranks = nullptr;

  /// Whether the network is to be divided among GPUs, or into shards of one.
  [[nodiscard]] bool divided() const noexcept {
    return devices.size() > 1 || shards > 1 || ranks != nullptr;
  }
};

/// Engines are constructed from (const Spec&, int batch, const EngineOptions&) and start at step 0
/// with zero weights. `run` may return before the work is done; every function that reads results
/// waits for it.
template <class E>
concept Engine = requires(E engine, const EngineState& state, FrameBlock block, Mode mode,
                          int steps, std::span<float> out, std::size_t n,
                          std::span<const std::uint8_t> pixels, std::span<std::uint8_t> frame,
                          std::optional<float> rate) {
  { engine.stage(steps) } -> std::same_as<FrameBlock>;  // steps: 1 to block_steps()
  { engine.block_steps() } -> std::same_as<int>;        // a sensible length of a block
  {engine.run(block, mode)};
  // From the next step on, the layer learns at this rate, whatever the spec's schedule says;
  // without a value, at the schedule's again. `restore` ends it. The momentum is always the
  // schedule's.
  {engine.hold_rate(n, rate)};
  {engine.synchronize()};
  { engine.step() } -> std::same_as<std::uint64_t>;
  { engine.batch() } -> std::same_as<int>;
  { engine.take_score() } -> std::same_as<Score>;
  {engine.read_weights(out)};     // reference order
  {engine.read_prediction(out)};  // [batch][side][side][channels] in [0, 1], for two steps ahead
  {engine.read_hidden(out)};      // h of the last step, [batch][units][hidden]
  {engine.read_outputs(out)};     // y of the last step, [batch][outputs], units one by one
  { engine.save() } -> std::same_as<EngineState>;
  {engine.restore(state)};  // throws Error (Fault::checkpoint) if sizes or values are impossible
  { engine.description() } -> std::convertible_to<std::string>;  // for logs: what runs where

  // A store of 8-bit frames of the network's size, in the memory from which steps read frames.
  //
  // reserve_frames(budget, frames) makes room for `frames` frames in at most `budget` bytes and
  // returns for how many frames there is room now, possibly 0. The first call sets the budget
  // (`share_of_free_memory` is converted to bytes then); later calls cannot change it. The function
  // does not throw for lack of memory. A further call may enlarge the store and keeps what is
  // stored. A call with 0 frames or 0 bytes releases all memory, and the budget with it.
  { engine.reserve_frames(n, n) } -> std::same_as<std::size_t>;
  {engine.store_frames(n, pixels)};  // stores frames from index n on; has read `pixels` on return
  {engine.read_frame(n, frame)};     // reads the frame with index n
};

}  // namespace pvm::inline v0
