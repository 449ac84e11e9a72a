// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A network of whole units over several shards, each on a GPU of its own or on a part of the
/// multiprocessors of one: CudaShardsEngine. All shards are in this process, or each is in a
/// process of its own, the ranks. Include it from files that nvcc compiles.

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
#include <pvm/engine/cuda/run/shard_list.hpp>
#include <pvm/engine/cuda/units/carrier.hpp>
#include <pvm/engine/cuda/units/engine.hpp>
#include <pvm/engine/cuda/units/peers.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/other_ranks.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// An Engine for one sequence whose units are divided among shards: engines of type `E::shard`,
/// each of which runs some thread blocks of one common plan, for all multiprocessors of all shards.
/// Thread blocks exchange records as those of `E` do (units/step/exchange.cuh), so that a network
/// has the same bits as on one GPU with as many multiprocessors. In this thread every call makes
/// the GPUs current that it needs, and then again the one that was.
///
/// With `EngineOptions::ranks` shard k is that of rank k, on its current GPU, and all ranks make
/// the engine and call its functions together (EngineOptions::ranks says which). What they read is
/// complete on rank 0: the others give what their shards have. If a rank is lost, functions throw
/// Error (rank); steps on the GPU may wait for it for ever, so the process should end by _exit.
template <class E>
class CudaShardsEngine {
  using Shard = typename E::shard;

 public:
  using precision = typename E::precision;
  /// The plan of the whole network; how many shards it has, and how many of them are on a GPU; and
  /// the GPU of each shard of this process, whose numbers begin with `first`.
  struct Plan {
    typename E::Plan units;
    std::size_t shards = 0, each = 0, first = 0;
    std::vector<int> devices;
  };

  /// The plan of `spec` for the GPUs and shards of `options`. If `E` cannot run it on as many
  /// multiprocessors, the result is empty, and `why` gives the reason in half a sentence. Throws
  /// Error (usage, device) if there are no such GPUs, or they cannot be divided so.
  static std::optional<Plan> plan(const Spec& spec, const EngineOptions& options,
                                  std::string& why) {
    if (options.ranks != nullptr) return plan_of_rank(spec, *options.ranks, why);
    const std::vector<int> devices = detail::devices_of_shards(options);
    const std::set<int> different(devices.begin(), devices.end());
    const std::size_t each = devices.size() / different.size();
    std::vector<detail::units::ShardPlace> places;
    for (const int device : different) {
      const detail::OnDevice on(device);
      places.push_back(detail::units::own_place());
    }
    auto units = plan_units(spec, places, each, devices.size(), why);
    if (!units) return std::nullopt;
    return Plan{std::move(*units), devices.size(), each, 0, devices};
  }

  /// `spec` must be valid and `batch` 1. Throws Error (usage, device, memory).
  CudaShardsEngine(const Spec& spec, int batch, const EngineOptions& options)
      : CudaShardsEngine(spec, plan_or_throw(spec, batch, options), options) {}

  /// `plan` must be that of `spec` and `options`. Throws Error (device, memory).
  CudaShardsEngine(const Spec& spec, const Plan& plan, const EngineOptions& options)
      : ranks_(options.ranks), all_shards_(plan.shards), shards_(plan.devices, plan.each) {
    if (ranks_ == nullptr) detail::connect_devices({plan.devices.begin(), plan.devices.end()});
    together([&] {
      for (std::size_t k = 0; k < plan.devices.size(); ++k) {
        shards_.add(spec, plan.units.part(plan.first + k, plan.shards), options);
      }
    });
    try {
      connect();
      if (options.restored_next) return;
      EngineState zeros;
      zeros.weights.resize(connectome().weights);
      restore(zeros);
    } catch (...) {
      leave_ranks();
      throw;
    }
  }
  CudaShardsEngine(const CudaShardsEngine&) = delete;
  CudaShardsEngine& operator=(const CudaShardsEngine&) = delete;
  ~CudaShardsEngine() { leave_ranks(); }

  [[nodiscard]] std::uint64_t step() const noexcept { return first().step(); }
  [[nodiscard]] int batch() const noexcept { return first().batch(); }
  [[nodiscard]] const Connectome& connectome() const noexcept { return first().connectome(); }
  [[nodiscard]] int block_steps() const noexcept { return first().block_steps(); }

  /// The first shard's room for frames, from which all shards of this process upload them.
  [[nodiscard]] FrameBlock stage(int steps) {
    await([](const Shard& shard) { return shard.can_stage(); });
    return shards_.stage(steps);
  }

  void run(const FrameBlock& block, Mode mode) {
    // The kernel that folds what a frozen network still lists reads records of all shards.
    if (mode == Mode::freeze) settle();
    if (!block.squeezed.empty()) await_steps();  // uploads of floats are waited for
    const std::vector<FrameBlock> blocks = shards_.blocks(block);
    // A shard's steps wait for those of the others, so nothing that may wait for a GPU comes
    // between their launches.
    each([&, k = std::size_t{0}](Shard& shard) mutable { shard.send(blocks[k++], mode); });
    each([&, k = std::size_t{0}](Shard& shard) mutable { shard.run_sent(blocks[k++]); });
  }

  void hold_rate(std::size_t layer, std::optional<float> rate) {
    each([&](Shard& shard) { shard.hold_rate(layer, rate); });
  }
  /// Waits for the steps of this process.
  void synchronize() {
    await_steps();
    each([](Shard& shard) { shard.synchronize(); });
  }

  [[nodiscard]] Score take_score() {
    synchronize();
    std::vector<Score> scores;
    each([&](Shard& shard) { scores.push_back(shard.take_score()); });
    if (ranks_ != nullptr) scores = detail::of_all_ranks(*ranks_, scores.front());
    return detail::sum_of_shards(scores);
  }

  void read_weights(std::span<float> out) {
    read(out, [&](Shard& shard) { shard.read_weights(out); });
  }
  void read_prediction(std::span<float> out) {
    read(out, [&](Shard& shard) { shard.read_prediction(out); });
  }
  void read_hidden(std::span<float> out) {
    read(out, [&](Shard& shard) { shard.read_hidden(out); });
  }
  void read_outputs(std::span<float> out) {
    read(out, [&](Shard& shard) { shard.read_outputs(out); });
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
    if (ranks_ != nullptr) {
      for (auto* values :
           {&state->weights, &state->folded, &state->hidden, &state->squeezed, &state->frames,
            &state->outputs, &state->hidden_gradients, &state->output_gradients}) {
        detail::merge_ranks(*ranks_, std::span<float>(*values));
      }
    }
    return std::move(*state);
  }
  /// `state` is the same on all ranks.
  void restore(const EngineState& state) {
    settle();
    together([&] { each([&](Shard& shard) { shard.check(state); }); });
    each([&](Shard& shard) { shard.restore(state); });
    exchange_products();
    if (ranks_ != nullptr) detail::meet(*ranks_);  // before a rank's steps write to the others
  }

  [[nodiscard]] std::string description() const {
    const std::string shards = std::to_string(all_shards_) + " shards";
    return (ranks_ == nullptr ? shards + " on GPU " : "shard of " + shards + ", here on GPU ") +
           shards_.gpus() + ", each: " + first().description() +
           (carrier_ != nullptr ? ", records carried by NCCL" : "");
  }
  /// The bytes of device memory that the shards of this process take.
  [[nodiscard]] std::size_t memory_needed() const { return shards_.memory_needed(); }
  [[nodiscard]] double device_seconds() { return shards_.device_seconds(); }

  /// Every shard stores all frames, in its part of the budget for a GPU.
  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    if (budget == 0 || frames == 0) synchronize();  // steps may be reading frames that are freed
    std::size_t room = shards_.reserve_frames(budget, frames);
    if (ranks_ != nullptr) {
      for (const std::size_t theirs : detail::of_all_ranks(*ranks_, room)) {
        room = std::min(room, theirs);
      }
    }
    return room;
  }
  void store_frames(std::size_t first, std::span<const std::uint8_t> pixels) {
    await([&](const Shard& shard) { return shard.can_store(first); });
    each([&](Shard& shard) { shard.store_frames(first, pixels); });
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) const {
    shards_.read_frame(index, pixels);
  }

 private:
  static Plan plan_or_throw(const Spec& spec, int batch, const EngineOptions& options) {
    detail::check_one_sequence(batch);
    std::string why;
    std::optional<Plan> made = plan(spec, options, why);
    if (made) return std::move(*made);
    throw Error(Fault::usage, "this network cannot be divided into shards: " + why);
  }

  /// The plan for the GPUs of all ranks, the same on each: they are asked together.
  static std::optional<Plan> plan_of_rank(const Spec& spec, OtherRanks& ranks, std::string& why) {
    if (ranks.size() > detail::most_shards) {
      throw Error(Fault::usage, "a network has " + std::to_string(detail::most_shards) +
                                    " shards at most, and there are " +
                                    std::to_string(ranks.size()) + " ranks; start fewer");
    }
    const auto places = detail::units::places_of_ranks(ranks);
    std::size_t each = 0;
    for (std::size_t k = 0; k < places.size(); ++k) {
      each = std::max(each, detail::units::shards_beside(places, k));
    }
    auto units = plan_units(spec, places, each, places.size(), why);
    if (!units) return std::nullopt;
    return Plan{std::move(*units),
                places.size(),
                each,
                static_cast<std::size_t>(ranks.rank()),
                {detail::current_device()}};
  }
  /// The plan for `shards` shards on these GPUs, `each` on one at most.
  static std::optional<typename E::Plan> plan_units(
      const Spec& spec, const std::vector<detail::units::ShardPlace>& places, std::size_t each,
      std::size_t shards, std::string& why) {
    int multiprocessors = places.front().multiprocessors;
    std::size_t shared = places.front().shared_bytes;
    for (const detail::units::ShardPlace& place : places) {
      multiprocessors = std::min(multiprocessors, place.multiprocessors);
      shared = std::min(shared, place.shared_bytes);
    }
    const int of_shard = multiprocessors / static_cast<int>(each);
    auto units = E::Plan::make(spec, make_connectome(spec), of_shard * static_cast<int>(shards),
                               shared, why, shards);
    if (!units) return std::nullopt;
    if (static_cast<std::size_t>(units->thread_blocks()) >= shards) return units;
    why = "it has fewer units than there are shards";
    return std::nullopt;
  }

  [[nodiscard]] Shard& engine(std::size_t k) { return shards_[k]; }
  [[nodiscard]] const Shard& first() const { return shards_.first(); }

  /// Calls work(shard) for one shard of this process after the other, each with its GPU current.
  template <class Work>
  void each(Work work) {
    shards_.each(work);
  }
  /// The same when all shards have done their steps, and so have all records of others.
  template <class Work>
  void each_settled(Work work) {
    settle();
    each(work);
  }
  /// Does `work`, and throws on all ranks what one of them throws.
  template <class Work>
  void together(Work work) {
    if (ranks_ == nullptr) return work();
    detail::on_all_ranks(*ranks_, work);
  }

  /// Waits until done(shard) is true of all shards of this process, if there are other ranks. CUDA
  /// would wait for a lost rank for ever: so this comes before whatever waits for steps.
  template <class Done>
  void await(Done done) {
    if (ranks_ == nullptr) return;
    ranks_->wait_until([&] { return shards_.all(done); });
  }
  void await_steps() {
    await([](const Shard& shard) { return shard.is_done(); });
  }
  /// Waits for the steps of all shards.
  void settle() {
    synchronize();
    if (ranks_ != nullptr) detail::meet(*ranks_);
  }
  /// Calls work(shard), which writes to `out` what a shard has.
  template <class Work>
  void read(std::span<float> out, Work work) {
    if (ranks_ != nullptr) std::fill(out.begin(), out.end(), 0.0F);
    each_settled(work);
    if (ranks_ != nullptr) detail::merge_ranks(*ranks_, out);
  }

  /// Tells each shard where the others are.
  void connect() {
    if (ranks_ != nullptr) return connect_ranks();
    each([&, k = std::size_t{0}](Shard& shard) mutable { shard.connect(peers_of(k++)); });
  }
  /// By the memory of the other ranks' GPUs, else by what carries records.
  void connect_ranks() {
    std::string why;
    try {
      opened_ = std::make_unique<detail::units::OpenedPeers>(
          *ranks_, engine(0).past(), engine(0).begun(), engine(0).thread_blocks());
    } catch (const Error& error) {  // on all ranks
      if (error.fault() != Fault::device) throw;
      why = error.what();
    }
    if (opened_ != nullptr) return together([&] { engine(0).connect(opened_->peers()); });
    carrier_ = detail::units::make_carrier(*ranks_, engine(0).records(), why);
    engine(0).connect(*carrier_);
  }
  [[nodiscard]] detail::units::Peers peers_of(std::size_t k) {
    detail::units::Peers peers{};
    for (std::size_t i = 0; i < shards_.size(); ++i) {
      peers.thread_blocks += static_cast<unsigned>(engine(i).thread_blocks());
      if (i == k) continue;
      peers.past[peers.count] = engine(i).past().get();
      peers.begun[peers.count++] = engine(i).begun().get();
    }
    return peers;
  }
  /// Closes the memory of the other ranks, if there are any, and returns when they have closed this
  /// one's. If one is lost, steps may go on for ever, and all memory is left to the process's end.
  void leave_ranks() noexcept {
    if (ranks_ == nullptr) return;
    try {
      settle();
      opened_.reset();
      carrier_.reset();
      detail::meet(*ranks_);
    } catch (...) {
      (void)opened_.release();
      (void)carrier_.release();
      shards_.abandon();
    }
  }

  /// Tells all shards the inner products that each has recomputed for its own units in `restore`.
  void exchange_products() {
    std::vector<std::uint32_t> all;
    each([&](Shard& shard) {
      std::vector<std::uint32_t> own = shard.read_past();
      shard.clear_past_of_others(own);
      all.resize(own.size());
      for (std::size_t i = 0; i < own.size(); ++i) all[i] |= own[i];
    });
    if (ranks_ != nullptr) {
      detail::merge_ranks(*ranks_, std::span(all));
      ranks_->broadcast(std::as_writable_bytes(std::span(all)));
    }
    each([&](Shard& shard) { shard.write_past(all); });
  }

  OtherRanks* ranks_;
  std::size_t all_shards_;
  detail::ShardList<Shard> shards_;  // of this process
  // If there are other ranks, one of these:
  std::unique_ptr<detail::units::OpenedPeers> opened_;
  std::unique_ptr<detail::units::RecordCarrier> carrier_;
};

}  // namespace pvm::inline v0
