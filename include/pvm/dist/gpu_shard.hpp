// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A rank's share of a network on a GPU: an engine with a shard of it, whose own functions all
/// ranks call together.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pvm/dist/broadcast_values.hpp>
#include <pvm/dist/communicator.hpp>
#include <pvm/dist/ranks_by.hpp>
#include <pvm/dist/share.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::dist {

/// Every rank has all frames of a block, and stores all that are stored.
template <Communicator C>
class GpuShard final : public Share {
 public:
  /// `make` must make engines that are divided among ranks, on this rank's current GPU. Throws on
  /// all ranks what it throws.
  GpuShard(C& ranks, const Spec& spec, int batch, EngineOptions options,
           pvm::detail::MakeEngine make)
      : ranks_(ranks),
        all_(ranks),
        spec_(spec),
        net_(make_connectome(spec)),
        engine_(make(spec, batch, divided(options, all_))) {
    ranks.expect_threads(1);
  }

  [[nodiscard]] AnyEngine& engine() override { return engine_; }

  void send(const FrameBlock& block) override {
    stored_.assign(block.stored.begin(), block.stored.end());
    stored_.resize(static_cast<std::size_t>(block.steps), not_stored);
    values_.assign(block.squeezed.begin(), block.squeezed.end());
    broadcast(block);
  }
  [[nodiscard]] FrameBlock receive(int steps, bool squeezed) override {
    FrameBlock block = engine_.stage(steps);
    stored_.resize(static_cast<std::size_t>(steps));
    values_.resize(squeezed ? block.pixels.size() : 0);
    broadcast(block);
    block.stored = stored_;
    block.squeezed = values_;
    return block;
  }

  [[nodiscard]] EngineState save() override { return engine_.save(); }
  void restore(EngineState state) override {
    broadcast(state);
    engine_.restore(state);
  }
  [[nodiscard]] Score take_score() override { return engine_.take_score(); }
  void read_weights(std::span<float> out) override {
    engine_.read_weights(room(out, net_.weights));
  }
  void read_outputs(std::span<float> out) override {
    engine_.read_outputs(room(out, net_.outputs));
  }
  void read_prediction(std::span<float> out) override {
    engine_.read_prediction(room(out, spec_.frame_size()));
  }
  void read_hidden(std::span<float> out) override {
    engine_.read_hidden(room(out, net_.units.size() * static_cast<std::size_t>(net_.hidden)));
  }

  std::size_t reserve_frames(std::size_t budget, std::size_t frames) override {
    return engine_.reserve_frames(budget, frames);
  }
  void store_frames(std::size_t first, std::size_t frames,
                    std::span<const std::uint8_t> pixels) override {
    std::vector<std::uint8_t> all(pixels.begin(), pixels.end());
    all.resize(frames * spec_.frame_size());
    ranks_.broadcast(bytes_of(all));
    engine_.store_frames(first, all);
  }

 private:
  [[nodiscard]] static EngineOptions divided(EngineOptions options, OtherRanks& all) {
    options.ranks = &all;
    options.devices.clear();  // the rank's GPU is the current one
    return options;
  }

  /// Rank 0's frames and marks of a block to all others, which know how many steps it has and
  /// whether `values_` are its frames. Those in the stores are not sent.
  void broadcast(const FrameBlock& block) {
    ranks_.broadcast(std::as_writable_bytes(block.scored));
    ranks_.broadcast(bytes_of(stored_));
    if (!values_.empty()) return ranks_.broadcast(bytes_of(values_));
    const std::size_t frame = spec_.frame_size();
    const auto is_stored = [](std::uint32_t index) { return index != not_stored; };
    for (auto row = stored_.begin(); row != stored_.end();) {
      row = std::find_if_not(row, stored_.end(), is_stored);
      const auto end = std::find_if(row, stored_.end(), is_stored);
      const auto first = static_cast<std::size_t>(row - stored_.begin());
      const auto rows = static_cast<std::size_t>(end - row);
      const std::span<std::uint8_t> pixels = block.pixels.subspan(first * frame, rows * frame);
      if (rows > 0) ranks_.broadcast(std::as_writable_bytes(pixels));
      row = end;
    }
  }
  /// Makes the state of all ranks that of rank 0.
  void broadcast(EngineState& state) {
    bool other_plan = state.plan1.has_value();
    DeferralPlan plan1 = state.plans().w1;
    broadcast_values(ranks_, state.step, state.batch, state.rates, state.layout, state.plan,
                     state.coefficients, other_plan, plan1, state.coefficients1);
    if (other_plan) state.plan1 = plan1;
    for (auto* values :
         {&state.weights, &state.folded, &state.dweights, &state.hidden, &state.squeezed,
          &state.frames, &state.outputs, &state.hidden_gradients, &state.output_gradients}) {
      broadcast_all(ranks_, *values);
    }
  }
  /// `out`, or room for as many values where nobody wants them.
  [[nodiscard]] std::span<float> room(std::span<float> out, std::size_t size) {
    if (ranks_.rank() == 0) return out;
    unwanted_.resize(size);
    return unwanted_;
  }

  C& ranks_;
  RanksBy<C> all_;
  Spec spec_;
  Connectome net_;
  std::vector<std::uint32_t> stored_;  // of a block
  std::vector<float> values_, unwanted_;
  AnyEngine engine_;
};

}  // namespace pvm::inline v0::dist
