// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A network of several sequences over several shards, each on a GPU of its own or beside others on
/// one: CudaBatchShardsEngine. Include it from files that nvcc compiles.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/batch/engine.hpp>
#include <pvm/engine/cuda/batch/exchange.cuh>
#include <pvm/engine/cuda/batch/tuning.hpp>
#include <pvm/engine/cuda/device/devices.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/run/shard_list.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/unit_ranges.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

namespace detail::batch {

/// What every unit costs besides its weights, in weights: in a sweep what it costs to begin parts
/// and to make results (SweepCycles), compared with a tile.
inline constexpr double cost_of_unit = 10'000;

/// The units of each of so many shards: consecutive ones, dealt by what they cost. Throws Error
/// (usage) if there are fewer units than shards.
inline std::vector<Range> units_of_shards(const Connectome& net, std::size_t shards) {
  if (net.units.size() < shards) {
    throw Error(Fault::usage, "this network cannot be divided into " + std::to_string(shards) +
                                  " shards: it has fewer units than there are shards");
  }
  std::vector<double> costs = weights_of_units(net);
  for (double& cost : costs) cost += cost_of_unit;
  const std::vector<std::size_t> starts = balanced_ranges(costs, shards);
  std::vector<Range> ranges;
  for (std::size_t k = 0; k < shards; ++k) ranges.push_back({starts[k], starts[k + 1]});
  return ranges;
}

/// Throws Error (usage) unless these GPUs are of one kind: shards of different schemes would not be
/// parts of one state.
inline void require_one_kind(const std::set<int>& devices) {
  std::optional<DeviceFacts> before;
  for (const int device : devices) {
    const OnDevice on(device);
    const DeviceFacts facts = describe_device();
    if (before && (before->name != facts.name || before->shared_bytes != facts.shared_bytes)) {
      throw Error(Fault::usage, "GPU " + std::to_string(*devices.begin()) + " is a " +
                                    before->name + " and GPU " + std::to_string(device) + " a " +
                                    facts.name + "; GPUs that share a network are of one kind");
    }
    before = facts;
  }
}

}  // namespace detail::batch

/// An Engine for several sequences whose units are divided among shards: engines of type
/// CudaBatchEngine, each of which computes all sequences of some units, with the same kernels. What
/// they tell each other behind each step is in batch/exchange.cuh. Results have the same bits
/// wherever the shards are, and are within rounding of those of another number of shards. In this
/// thread every call makes the GPUs current that it needs, and then again the one that was.
template <class Precision = fp32, int Batch = dynamic, class Rule = Momentum,
          class OwnActivation = void>
class CudaBatchShardsEngine {
  using Shard = CudaBatchEngine<Precision, Batch, Rule, OwnActivation>;

 public:
  /// `spec` must be valid; throws Error (usage, device, memory).
  explicit CudaBatchShardsEngine(const Spec& spec, int batch = Batch,
                                 const EngineOptions& options = {})
      : CudaBatchShardsEngine(spec, batch, options, detail::devices_of_shards(options)) {}

  [[nodiscard]] std::uint64_t step() const noexcept { return first().step(); }
  [[nodiscard]] int batch() const noexcept { return first().batch(); }
  [[nodiscard]] const Connectome& connectome() const noexcept { return first().connectome(); }
  [[nodiscard]] int block_steps() const noexcept { return first().block_steps(); }

  /// The first shard's room for frames, from which all shards upload them.
  [[nodiscard]] FrameBlock stage(int steps) { return shards_.stage(steps); }

  /// A shard's steps wait for those of the others. So all shards have been given the same steps
  /// whenever this thread may wait for a GPU; within a part of the block they are launched a few at
  /// a time, shard by shard, because a launch waits where too many are in flight.
  void run(const FrameBlock& block, Mode mode) {
    const std::vector<FrameBlock> blocks = shards_.blocks(block);
    each([&](Shard& shard, std::size_t k) { shard.open(blocks[k], mode); });
    const bool idle = shards_.all([](const Shard& shard) { return shard.is_idle(); });
    Shard::for_each_part(block.steps, idle, [&](int from, int steps) {
      each([&](Shard& shard, std::size_t k) { shard.upload(blocks[k], from, steps); });
      constexpr int most = detail::batch::Tuning::graph_steps;
      for (int done = 0; done < steps; done += most) {
        each([&](Shard& shard, std::size_t) { shard.launch(std::min(most, steps - done)); });
      }
    });
    each([&](Shard& shard, std::size_t k) { shard.end(blocks[k]); });
  }

  void hold_rate(std::size_t layer, std::optional<float> rate) {
    shards_.each([&](Shard& shard) { shard.hold_rate(layer, rate); });
  }
  /// Waits for the steps of all shards.
  void synchronize() {
    shards_.each([](Shard& shard) { shard.synchronize(); });
  }

  [[nodiscard]] Score take_score() {
    synchronize();
    std::vector<Score> scores;
    shards_.each([&](Shard& shard) { scores.push_back(shard.take_score()); });
    return detail::sum_of_shards(scores);
  }

  void read_weights(std::span<float> out) {
    each_settled([&](Shard& shard) { shard.read_weights(out); });
  }
  void read_prediction(std::span<float> out) {
    each_settled([&](Shard& shard) { shard.read_prediction(out); });
  }
  void read_hidden(std::span<float> out) {
    each_settled([&](Shard& shard) { shard.read_hidden(out); });
  }
  void read_outputs(std::span<float> out) {
    each_settled([&](Shard& shard) { shard.read_outputs(out); });
  }

  /// The whole state, for a checkpoint, which CudaBatchEngine and any number of shards continue:
  /// bit by bit if there are as many.
  [[nodiscard]] EngineState save() {
    std::optional<EngineState> state;
    each_settled([&](Shard& shard) {
      if (state) {
        shard.add_to(*state);
      } else {
        state = shard.save();
      }
    });
    return std::move(*state);
  }
  void restore(const EngineState& state) {
    each_settled([&](Shard& shard) { shard.restore(state); });
  }

  [[nodiscard]] std::string description() const { return shards_.title() + first().description(); }
  /// Bytes of device memory that all shards take.
  [[nodiscard]] std::size_t memory_needed() const { return shards_.memory_needed(); }
  [[nodiscard]] double device_seconds() { return shards_.device_seconds(); }

  /// Every shard stores all frames, in its part of the budget for a GPU.
  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    if (budget == 0 || frames == 0) synchronize();  // steps may be reading frames that are freed
    return shards_.reserve_frames(budget, frames);
  }
  void store_frames(std::size_t first_frame, std::span<const std::uint8_t> pixels) {
    shards_.each([&](Shard& shard) { shard.store_frames(first_frame, pixels); });
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) const {
    shards_.read_frame(index, pixels);
  }

 private:
  CudaBatchShardsEngine(const Spec& spec, int batch, const EngineOptions& options,
                        const std::vector<int>& devices)
      : CudaBatchShardsEngine(spec, batch, options, devices, {devices.begin(), devices.end()}) {}
  CudaBatchShardsEngine(const Spec& spec, int batch, const EngineOptions& options,
                        const std::vector<int>& devices, const std::set<int>& different)
      : shards_(devices, devices.size() / different.size()) {
    detail::batch::require_one_kind(different);
    detail::connect_devices(different);
    const auto all = detail::batch::units_of_shards(make_connectome(spec), devices.size());
    for (const auto& units : all) shards_.add(spec, batch, options, units);
    connect();
  }

  [[nodiscard]] const Shard& first() const { return shards_.first(); }
  /// Calls work(shard, its number) for one shard after the other.
  template <class Work>
  void each(Work work) {
    shards_.each([&, k = std::size_t{0}](Shard& shard) mutable { work(shard, k++); });
  }
  /// Calls work(shard) for one after the other when all have done their steps.
  template <class Work>
  void each_settled(Work work) {
    synchronize();
    shards_.each(work);
  }
  /// Tells each shard where the others are.
  void connect() {
    std::vector<detail::batch::Exchange> all;
    shards_.each([&](Shard& shard) { all.push_back(shard.exchange()); });
    each([&](Shard& shard, std::size_t k) { shard.connect(k, all); });
  }

  detail::ShardList<Shard> shards_;
};

}  // namespace pvm::inline v0
