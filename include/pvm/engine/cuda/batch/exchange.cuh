// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What crosses between the shards of a batch, each of which has some units of the network: the
/// rows of c(h) of a step (and of h, where outputs are fed the context), which the next steps of
/// all shards read. A kernel behind each step sends a shard's own rows to the rings of all others,
/// and ends when theirs have arrived, so that the kernels of a step need not know of shards.
///
/// Why a step sees all rows of the step before, and no row is overwritten that is still read:
///   - The kernel begins when the step's kernels have ended (wait_for_previous_kernel), so it loads
///     what they have stored.
///   - Each thread block stores its part of the rows. Behind a barrier a thread fences (`sys`):
///     that covers what its thread block stored before the barrier, as causality order is
///     transitive. It then counts in the peer's memory. A thread of the peer that has seen all
///     counts, and has fenced, comes after all these stores; its kernel ends after it, and the
///     peer's next step begins after that kernel, as all kernels of a stream do. Loads of the
///     next kernel find rows in the L2 cache of the GPU that has the ring, where stores from
///     other GPUs arrive.
///   - Counts are only added up, and each sender has a counter of its own: it is at n times the
///     thread blocks when its n-th step has arrived as a whole. It may be ahead by a step, so it
///     is compared by its difference, which survives an overflow.
///   - A shard sends step t only after it has seen that all others have sent step t - 1. So the
///     slowest shard is in step t, or between t - 1 and t, when rows of step t are written into
///     its ring. Step t reads rows up to terms + 3 steps old, and a ring has terms + 5: the slot
///     of step t is not among those read.
///   - Only the last thread block waits for others. On a GPU that has several shards it takes a
///     little room from theirs, and when it runs, all other thread blocks of its kernel have
///     begun. The next kernel of the shard, which would take all room, begins only when this one
///     has ended.

#include <cuda_runtime.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/memory.hpp>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/instructions/memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>
#include <pvm/engine/cuda/run/most_shards.hpp>

namespace pvm::inline v0::detail::batch {

inline constexpr int exchange_threads = 256;
inline constexpr int exchanged_rings = 2;  ///< at most: those of c(h) and of h

/// Pointers to device memory: the shard's own, and those to memory of the other shards.
struct ExchangeArguments {
  const StepStart* step_start;        ///< its cursor is that of the next step
  int slots;                          ///< of a ring
  int rings;                          ///< that are exchanged
  std::size_t slot_bytes;             ///< of a ring's slot
  std::size_t first_byte, own_bytes;  ///< of a slot: the rows of the shard's own units
  const unsigned char* own[exchanged_rings];
  int peers;  ///< other shards
  unsigned char* theirs[exchanged_rings][most_shards - 1];
  unsigned int* sent[most_shards - 1];           ///< this shard's counter in a peer's memory
  const unsigned int* arrived[most_shards - 1];  ///< a peer's counter in this shard's memory
};

/// Stores this thread's pieces of the own rows of ring `ring` to all peers. `slot`: byte at which
/// the step's slot begins.
__device__ __forceinline__ void send_rows(const ExchangeArguments& a, int ring, std::size_t slot) {
  constexpr std::size_t piece = 16;
  const std::size_t apart = std::size_t{gridDim.x} * blockDim.x * piece;
  const std::size_t first = slot + a.first_byte, end = first + a.own_bytes;
  for (std::size_t at = first + (std::size_t{blockIdx.x} * blockDim.x + threadIdx.x) * piece;
       at < end; at += apart) {
    const uint4 v = __ldcg(reinterpret_cast<const uint4*>(a.own[ring] + at));
    for (int k = 0; k < a.peers; ++k) store_relaxed_16_system(a.theirs[ring][k] + at, v);
  }
}

/// Sends the rows of the step before the cursor's, and waits for those of the peers. Grid: as many
/// thread blocks in all shards. (A template, so that it may be in several files of a program.)
template <int Threads = exchange_threads>
__global__ void __launch_bounds__(Threads)
    exchange_kernel(const __grid_constant__ ExchangeArguments a) {
  wait_for_previous_kernel();
  const StepCursor next = a.step_start->cursor;
  const std::size_t slot = slot_before(next.hidden, a.slots, 1) * a.slot_bytes;
  for (int ring = 0; ring < a.rings; ++ring) send_rows(a, ring, slot);
  __syncthreads();
  const auto peer = static_cast<int>(threadIdx.x);
  if (peer >= a.peers) return;
  fence_system();
  add_one_system(a.sent[peer]);
  if (blockIdx.x + 1 < gridDim.x) return;
  const auto all = static_cast<unsigned int>(next.step) * gridDim.x;
  while (static_cast<int>(load_relaxed_system(a.arrived[peer]) - all) < 0) {
  }
  fence_system();
}

/// A shard's side of the exchange.
class Exchange {
 public:
  /// `memory`: the shard's, allocated. `with_h`: whether units read h of other units.
  template <class M>
  Exchange(const Memory<M>& memory, bool with_h, const DeviceFacts& device)
      : arrived_(memory.arrived.get()),
        most_blocks_(static_cast<std::size_t>(device.multiprocessors)),
        early_(device.is_hopper_or_later) {
    const Arguments a = memory.arguments();
    const std::size_t row = memory.squeezed.padded * sizeof(typename M::Word);
    rings_[0] = a.squeezed;
    rings_[1] = a.raw;
    a_.step_start = a.step_start;
    a_.slots = a.shape.ring;
    a_.rings = with_h ? 2 : 1;
    a_.slot_bytes = memory.squeezed.rows * row;
    const Range rows = memory.plan().hidden_rows;
    a_.first_byte = rows.first * row;
    a_.own_bytes = (rows.end - rows.first) * row;
  }

  /// Tells it of `all` shards' exchanges, of which it is number `own`.
  void connect(std::size_t own, const std::vector<Exchange>& all) {
    std::size_t most_bytes = 0;
    for (std::size_t k = 0; k < all.size(); ++k) {
      const Exchange& other = all[k];
      most_blocks_ = std::min(most_blocks_, other.most_blocks_);
      most_bytes = std::max(most_bytes, other.a_.own_bytes);
      if (k == own) continue;
      for (int ring = 0; ring < a_.rings; ++ring) {
        a_.theirs[ring][a_.peers] = other.rings_[ring];
      }
      a_.sent[a_.peers] = other.arrived_ + own;
      a_.arrived[a_.peers++] = arrived_ + k;
    }
    for (int ring = 0; ring < a_.rings; ++ring) a_.own[ring] = rings_[ring];
    constexpr std::size_t of_block = std::size_t{16} * exchange_threads;
    blocks_ = static_cast<unsigned int>(
        std::clamp<std::size_t>((most_bytes + of_block - 1) / of_block, 1, most_blocks_));
  }

  /// The counters of a run that begins at `step`: as if all steps before had arrived.
  [[nodiscard]] std::vector<unsigned int> arrived_before(std::uint64_t step) const {
    return std::vector<unsigned int>(most_shards, static_cast<unsigned int>(step) * blocks_);
  }
  void launch(cudaStream_t stream) const {
    cuda_check(
        detail::launch(exchange_kernel<>, {dim3(blocks_), exchange_threads, 0, stream, early_}, a_),
        "launching the exchange between shards");
  }

 private:
  ExchangeArguments a_{};
  unsigned char* rings_[exchanged_rings] = {};
  unsigned int* arrived_;
  std::size_t most_blocks_;
  unsigned int blocks_ = 0;
  bool early_;  ///< whether the kernel may start while the one before it ends
};

}  // namespace pvm::inline v0::detail::batch
