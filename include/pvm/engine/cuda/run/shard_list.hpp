// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The shards of one network that a process has: which GPU has which, and what is done with all of
/// them alike.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/devices.hpp>
#include <pvm/engine/cuda/device/imagined.hpp>
#include <pvm/engine/cuda/device/memory.hpp>
#include <pvm/engine/cuda/run/most_shards.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/memory_part.hpp>

namespace pvm::inline v0::detail {

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

/// The sum of the scores of all shards, which count all values alike while each adds up the errors
/// of its own units.
inline Score sum_of_shards(std::span<const Score> scores) {
  Score all;
  for (const Score& own : scores) {
    all.prediction += own.prediction;
    all.persistence += own.persistence;
    all.loss += own.loss;
    all.pixels = own.pixels;
    all.outputs = own.outputs;
  }
  return all;
}

/// Engines of type `Shard`, each on a GPU, which is made current for every call.
template <class Shard>
class ShardList {
 public:
  /// `devices`: the GPU of each shard that is to be added. `of_device`: shards of one GPU, those of
  /// other processes included.
  ShardList(std::vector<int> devices, std::size_t of_device)
      : devices_(std::move(devices)), of_device_(of_device) {}
  ShardList(const ShardList&) = delete;
  ShardList& operator=(const ShardList&) = delete;
  /// Ends the steps of all before it frees any memory, because those of one write to the memory of
  /// the others.
  ~ShardList() {
    int before = 0;
    (void)cudaGetDevice(&before);
    for (const auto& shard : shards_) shard->stop();
    for (std::size_t k = 0; k < shards_.size(); ++k) {
      (void)cudaSetDevice(devices_[k]);
      shards_[k].reset();
    }
    if (!shards_.empty()) (void)cudaSetDevice(before);
  }

  /// Makes the next shard of `arguments`. Where a GPU is only imagined, Planned is thrown with what
  /// a GPU has of all shards, which count as equally large.
  template <class... Arguments>
  void add(Arguments&&... arguments) {
    const OnDevice on(devices_[shards_.size()]);
    try {
      shards_.push_back(std::make_unique<Shard>(std::forward<Arguments>(arguments)...));
    } catch (Planned& planned) {
      planned.engine = title() + planned.engine;
      for (MemoryPart& part : planned.parts) part.bytes *= of_device_;
      throw;
    }
  }
  /// Leaves all memory to the end of the process, where steps may go on for ever.
  void abandon() noexcept {
    for (auto& shard : shards_) (void)shard.release();
    shards_.clear();
  }

  [[nodiscard]] std::size_t size() const noexcept { return shards_.size(); }
  [[nodiscard]] Shard& operator[](std::size_t k) { return *shards_[k]; }
  [[nodiscard]] const Shard& first() const { return *shards_.front(); }
  /// The GPUs of the shards, for the log, and how a line about all shards begins.
  [[nodiscard]] std::string gpus() const {
    std::string where;
    for (const int device : devices_) where += (where.empty() ? "" : ", ") + std::to_string(device);
    return where;
  }
  [[nodiscard]] std::string title() const {
    return std::to_string(devices_.size()) + " shards on GPU " + gpus() + ", each: ";
  }
  [[nodiscard]] std::size_t memory_needed() const {
    std::size_t bytes = 0;
    for (const auto& shard : shards_) bytes += shard->memory_needed();
    return bytes;
  }

  /// Calls work(shard) for one shard after the other.
  template <class Work>
  void each(Work work) const {
    for (std::size_t k = 0; k < shards_.size(); ++k) {
      const OnDevice on(devices_[k]);
      work(*shards_[k]);
    }
  }
  template <class Is>
  [[nodiscard]] bool all(Is is) const {
    return std::all_of(shards_.begin(), shards_.end(),
                       [&](const auto& shard) { return is(*shard); });
  }

  /// The first shard's room for frames, from which all shards upload them.
  [[nodiscard]] FrameBlock stage(int steps) {
    staged_.clear();
    each([&](Shard& shard) { staged_.push_back(shard.stage(steps)); });
    return staged_.front();
  }
  /// The staged `block` as each shard is to have it: all read the frames of the first one's memory.
  [[nodiscard]] std::vector<FrameBlock> blocks(const FrameBlock& block) const {
    std::vector<FrameBlock> all{block};
    for (std::size_t k = 1; k < shards_.size(); ++k) {
      FrameBlock own = part(staged_[k], 0, block.steps);
      std::copy(block.scored.begin(), block.scored.end(), own.scored.begin());
      own.pixels = block.pixels;
      own.squeezed = block.squeezed;
      own.stored = block.stored;
      all.push_back(own);
    }
    return all;
  }

  /// Every shard stores all frames, in its part of the budget for a GPU.
  std::size_t reserve_frames(std::size_t budget, std::size_t frames) {
    std::size_t room = not_stored;
    each([&](Shard& shard) {
      const std::size_t all = budget == share_of_free_memory ? free_memory() / 2 : budget;
      room = std::min(room, shard.reserve_frames(all / of_device_, frames));
    });
    return room;
  }
  void read_frame(std::size_t index, std::span<std::uint8_t> pixels) const {
    const OnDevice on(devices_.front());
    first().read_frame(index, pixels);
  }
  [[nodiscard]] double device_seconds() const {
    const OnDevice on(devices_.front());
    return shards_.front()->device_seconds();
  }

 private:
  std::vector<int> devices_;
  std::size_t of_device_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::vector<FrameBlock> staged_;
};

}  // namespace pvm::inline v0::detail
