// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A network of whole units over several shards, each on a GPU of its own or on a part of the
/// multiprocessors of one: CudaShardsEngine. Include it from files that nvcc compiles.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/devices.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/memory.hpp>
#include <pvm/engine/cuda/units/engine.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

namespace detail::units {

/// Shards of one GPU, at most: the steps of all of them must run at the same time, and streams
/// beyond the eight that a GPU keeps apart by default may wait for each other.
inline constexpr std::size_t most_shards_of_device = 4;

/// The GPU of each shard. Throws Error (usage) if these are impossible.
inline std::vector<int> devices_of_shards(const EngineOptions& options) {
  std::vector<int> devices = options.devices;
  if (devices.empty()) devices = {current_device()};
  require_devices(devices);
  const std::set<int> different(devices.begin(), devices.end());
  if (different.size() < devices.size()) {
    throw Error(Fault::usage, "a GPU is named twice; shards says how many parts a GPU gets");
  }
  const std::size_t shards =
      options.shards > 0 ? static_cast<std::size_t>(options.shards) : devices.size();
  if (shards % devices.size() != 0 || shards / devices.size() > most_shards_of_device ||
      shards > static_cast<std::size_t>(most_shards)) {
    throw Error(Fault::usage, std::to_string(shards) + " shards cannot be dealt to " +
                                  std::to_string(devices.size()) +
                                  " GPUs: each gets the same number, 1 to " +
                                  std::to_string(most_shards_of_device) + ", and there are " +
                                  std::to_string(most_shards) + " at most");
  }
  std::vector<int> of_shards;
  for (std::size_t k = 0; k < shards; ++k) of_shards.push_back(devices[k % devices.size()]);
  return of_shards;
}

}  // namespace detail::units

/// An Engine for one sequence whose units are divided among shards: engines of type `E::shard`,
/// each of which runs some thread blocks of one common plan, for all multiprocessors of all shards.
/// Thread blocks exchange records as those of `E` do (units/step/exchange.cuh), so that a network
/// has the same bits as on one GPU with as many multiprocessors. In this thread every call makes
/// the GPUs current that it needs, and then again the one that was.
template <class E>
class CudaShardsEngine {
  using Shard = typename E::shard;

 public:
  using precision = typename E::precision;
  /// The plan of the whole network, and the GPU of each shard.
  struct Plan {
    typename E::Plan units;
    std::vector<int> devices;
  };

  /// The plan of `spec` for the GPUs and shards of `options`. If `E` cannot run it on as many
  /// multiprocessors, the result is empty, and `why` gives the reason in half a sentence. Throws
  /// Error (usage, device) if there are no such GPUs, or they cannot be divided so.
  static std::optional<Plan> plan(const Spec& spec, const EngineOptions& options,
                                  std::string& why) {
    const std::vector<int> devices = detail::units::devices_of_shards(options);
    const std::set<int> different(devices.begin(), devices.end());
    const auto each = static_cast<int>(devices.size() / different.size());
    int multiprocessors = 0;
    std::size_t shared = 0;
    for (const int device : different) {
      const detail::OnDevice on(device);
      const detail::DeviceFacts facts = detail::describe_device();
      const bool first = multiprocessors == 0;
      const int here = facts.multiprocessors / each;
      multiprocessors = first ? here : std::min(multiprocessors, here);
      shared = first ? facts.shared_bytes : std::min(shared, facts.shared_bytes);
    }
    auto units = E::Plan::make(spec, make_connectome(spec),
                               multiprocessors * static_cast<int>(devices.size()), shared, why,
                               devices.size());
    if (!units) return std::nullopt;
    if (static_cast<std::size_t>(units->thread_blocks()) < devices.size()) {
      why = "it has fewer units than there are shards";
      return std::nullopt;
    }
    return Plan{std::move(*units), devices};
  }

  /// `spec` must be valid and `batch` 1. Throws Error (usage, device, memory).
  CudaShardsEngine(const Spec& spec, int batch, const EngineOptions& options)
      : CudaShardsEngine(spec, plan_or_throw(spec, batch, options), options) {}

  /// `plan` must be that of `spec` and `options`. Throws Error (device, memory).
  CudaShardsEngine(const Spec& spec, const Plan& plan, const EngineOptions& options) {
    detail::connect_devices({plan.devices.begin(), plan.devices.end()});
    const std::size_t count = plan.devices.size();
    for (std::size_t k = 0; k < count; ++k) {
      const detail::OnDevice on(plan.devices[k]);
      shards_.push_back(
          {plan.devices[k], std::make_unique<Shard>(spec, plan.units.part(k, count), options)});
    }
    for (std::size_t k = 0; k < count; ++k) {
      const detail::OnDevice on(plan.devices[k]);
      engine(k).connect(peers_of(k));
    }
    if (options.restored_next) return;
    EngineState zeros;
    zeros.weights.resize(connectome().weights);
    restore(zeros);
  }
  CudaShardsEngine(const CudaShardsEngine&) = delete;
  CudaShardsEngine& operator=(const CudaShardsEngine&) = delete;
  /// Steps of one shard write to the memory of the others, so all end before any memory is freed.
  ~CudaShardsEngine() {
    int before = 0;
    (void)cudaGetDevice(&before);
    for (const OneShard& shard : shards_) shard.engine->stop();
    for (OneShard& shard : shards_) {
      (void)cudaSetDevice(shard.device);
      shard.engine.reset();
    }
    (void)cudaSetDevice(before);
  }

  [[nodiscard]] std::uint64_t step() const noexcept { return first().step(); }
  [[nodiscard]] int batch() const noexcept { return first().batch(); }
  [[nodiscard]] const Connectome& connectome() const noexcept { return first().connectome(); }
  [[nodiscard]] int block_steps() const noexcept { return first().block_steps(); }

  /// The first shard's room for frames, from which all shards upload them.
  [[nodiscard]] FrameBlock stage(int steps) {
    staged_.clear();
    each([&](Shard& shard) { staged_.push_back(shard.stage(steps)); });
    return staged_.front();
  }

  void run(const FrameBlock& block, Mode mode) {
    // The kernel that folds what a frozen network still lists reads records of all shards.
    if (mode == Mode::freeze) synchronize();
    std::vector<FrameBlock> blocks{block};
    for (std::size_t k = 1; k < shards_.size(); ++k) {
      FrameBlock own = part(staged_[k], 0, block.steps);
      std::copy(block.scored.begin(), block.scored.end(), own.scored.begin());
      own.pixels = block.pixels;
      own.squeezed = block.squeezed;
      own.stored = block.stored;
      blocks.push_back(own);
    }
    // A shard's steps wait for those of the others, so nothing that may wait for a GPU comes
    // between their launches.
    each([&, k = std::size_t{0}](Shard& shard) mutable { shard.send(blocks[k++], mode); });
    each([&, k = std::size_t{0}](Shard& shard) mutable { shard.run_sent(blocks[k++]); });
  }

  void hold_rate(std::size_t layer, std::optional<float> rate) {
    each([&](Shard& shard) { shard.hold_rate(layer, rate); });
  }
  void synchronize() {
    each([](Shard& shard) { shard.synchronize(); });
  }

  /// The shards count all values alike, and each adds up the errors of its own units.
  [[nodiscard]] Score take_score() {
    synchronize();
    Score all;
    each([&](Shard& shard) {
      const Score own = shard.take_score();
      all.prediction += own.prediction;
      all.persistence += own.persistence;
      all.loss += own.loss;
      all.pixels = own.pixels;
      all.outputs = own.outputs;
    });
    return all;
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

  /// The whole state, for a checkpoint, which any number of shards continues: bit by bit if there
  /// are as many multiprocessors.
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
    synchronize();
    each([&](Shard& shard) { shard.check(state); });
    each([&](Shard& shard) { shard.restore(state); });
    exchange_products();
  }

  [[nodiscard]] std::string description() const {
    std::string where;
    for (const OneShard& shard : shards_) {
      where += (where.empty() ? "" : ", ") + std::to_string(shard.device);
    }
    return std::to_string(shards_.size()) + " shards on GPU " + where +
           ", each: " + first().description();
  }
  /// The bytes of device memory that all shards take.
  [[nodiscard]] std::size_t memory_needed() const {
    std::size_t bytes = 0;
    for (const OneShard& shard : shards_) bytes += shard.engine->memory_needed();
    return bytes;
  }
  [[nodiscard]] double device_seconds() {
    const detail::OnDevice on(shards_.front().device);
    return engine(0).device_seconds();
  }

  /// Every shard stores all frames, in its part of the budget for a GPU.
  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    if (budget == 0 || frames == 0) synchronize();  // steps may be reading frames that are freed
    std::size_t room = not_stored;
    each([&](Shard& shard) {
      const std::size_t all = budget == share_of_free_memory ? detail::free_memory() / 2 : budget;
      room = std::min(room, shard.reserve_frames(all / shards_of_device(), frames));
    });
    return room;
  }
  void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) {
    each([&](Shard& shard) { shard.store_frames(first, pixels); });
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) const {
    const detail::OnDevice on(shards_.front().device);
    first().read_frame(index, pixels);
  }

 private:
  struct OneShard {
    int device;
    std::unique_ptr<Shard> engine;
  };

  static Plan plan_or_throw(const Spec& spec, int batch, const EngineOptions& options) {
    detail::check_one_sequence(batch);
    std::string why;
    std::optional<Plan> made = plan(spec, options, why);
    if (made) return std::move(*made);
    throw Error(Fault::usage, "this network cannot be divided into shards: " + why);
  }

  [[nodiscard]] Shard& engine(std::size_t k) { return *shards_[k].engine; }
  [[nodiscard]] const Shard& first() const { return *shards_.front().engine; }
  [[nodiscard]] std::size_t shards_of_device() const {
    return static_cast<std::size_t>(std::count_if(
        shards_.begin(), shards_.end(),
        [&](const OneShard& shard) { return shard.device == shards_.front().device; }));
  }

  /// Calls work(shard) for one shard after the other, each with its GPU current.
  template <class Work>
  void each(Work work) {
    for (const OneShard& shard : shards_) {
      const detail::OnDevice on(shard.device);
      work(*shard.engine);
    }
  }
  /// The same when all shards have done their steps, and so have all records of others.
  template <class Work>
  void each_settled(Work work) {
    synchronize();
    each(work);
  }

  [[nodiscard]] detail::units::Peers peers_of(std::size_t k) {
    detail::units::Peers peers{};
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      peers.thread_blocks += static_cast<unsigned>(engine(i).thread_blocks());
      if (i == k) continue;
      peers.past[peers.count] = engine(i).past();
      peers.begun[peers.count++] = engine(i).begun();
    }
    return peers;
  }
  /// Tells all shards the inner products that each has recomputed for its own units in `restore`.
  void exchange_products() {
    std::vector<std::uint32_t> all;
    each([&](Shard& shard) {
      std::vector<std::uint32_t> own = shard.read_past();
      if (all.empty()) {
        all = std::move(own);
      } else {
        shard.copy_own_past(own, all);
      }
    });
    each([&](Shard& shard) { shard.write_past(all); });
  }

  std::vector<OneShard> shards_;
  std::vector<FrameBlock> staged_;
};

}  // namespace pvm::inline v0
