// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Shards of one network in several processes, the ranks: one shard each, on GPUs of one host. They
/// write records into each other's memory, as the shards of one process do.

#include <cuda_runtime.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/host_id.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/devices.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/opened_memory.hpp>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/other_ranks.hpp>

namespace pvm::inline v0::detail::units {

/// Where a rank's shard is: its GPU, and what a plan needs to know of that.
struct ShardPlace {
  std::array<char, 64> host{};
  BusId bus{};
  int multiprocessors = 0;
  std::size_t shared_bytes = 0;

  [[nodiscard]] bool shares_gpu_with(const ShardPlace& other) const {
    return host == other.host && bus == other.bus;
  }
};

/// The place on this rank's current GPU.
inline ShardPlace own_place() {
  ShardPlace place;
  const std::string host = host_id();
  std::copy_n(host.data(), std::min(host.size(), place.host.size()), place.host.data());
  place.bus = bus_id(current_device());
  const DeviceFacts facts = describe_device();
  place.multiprocessors = facts.multiprocessors;
  place.shared_bytes = facts.shared_bytes;
  return place;
}
/// Those of all ranks, in their order.
inline std::vector<ShardPlace> places_of_ranks(OtherRanks& ranks) {
  ShardPlace own;
  on_all_ranks(ranks, [&] { own = own_place(); });
  return of_all_ranks(ranks, own);
}
/// How many of these shards are on the GPU of shard `k`.
inline std::size_t shards_beside(const std::vector<ShardPlace>& places, std::size_t k) {
  return static_cast<std::size_t>(
      std::count_if(places.begin(), places.end(),
                    [&](const ShardPlace& other) { return other.shares_gpu_with(places[k]); }));
}

/// Throws Error (device) if kernels on the current GPU cannot access the memory of the GPU of rank
/// `rank`.
inline void require_access_to(const ShardPlace& own, const ShardPlace& other, int rank) {
  const std::string its = "the GPU of rank " + std::to_string(rank);
  if (own.host != other.host) {
    throw Error(Fault::device, its +
                                   " is on another host, and GPUs share a network within one; "
                                   "start all ranks on one host");
  }
  if (own.shares_gpu_with(other)) return;
  int number = 0;
  if (cudaDeviceGetByPCIBusId(&number, other.bus.data()) != cudaSuccess) {
    (void)cudaGetLastError();
    throw Error(Fault::device, its +
                                   " is not visible to this process; let every rank see all GPUs "
                                   "of the host (CUDA_VISIBLE_DEVICES)");
  }
  require_access(current_device(), number);
}

/// The rings of records and the counters of the other ranks' shards, opened on this rank's GPU.
class OpenedPeers {
 public:
  /// All ranks construct one, with the place of their shard, and its memory in whole pages. Throws
  /// Error (device) on all of them.
  OpenedPeers(OtherRanks& ranks, const DeviceArray<std::uint32_t>& past,
              const DeviceArray<unsigned int>& begun, int thread_blocks) {
    struct Lent {
      ShardPlace place;
      cudaIpcMemHandle_t past, begun;
      int thread_blocks;
    } own{};
    on_all_ranks(ranks, [&] {
      own = {own_place(), handle_of(past), handle_of(begun), thread_blocks};
    });
    const std::vector<Lent> all = of_all_ranks(ranks, own);
    on_all_ranks(ranks, [&] {
      for (int r = 0; r < ranks.size(); ++r) {
        const Lent& lent = all[static_cast<std::size_t>(r)];
        peers_.thread_blocks += static_cast<unsigned>(lent.thread_blocks);
        if (r == ranks.rank()) continue;
        require_access_to(own.place, lent.place, r);
        past_.emplace_back(lent.past);
        begun_.emplace_back(lent.begun);
        peers_.past[peers_.count] = past_.back().get();
        peers_.begun[peers_.count++] = begun_.back().get();
      }
    });
  }
  [[nodiscard]] const Peers& peers() const noexcept { return peers_; }

 private:
  Peers peers_{};
  std::vector<OpenedMemory<std::uint32_t>> past_;
  std::vector<OpenedMemory<unsigned int>> begun_;
};

}  // namespace pvm::inline v0::detail::units
