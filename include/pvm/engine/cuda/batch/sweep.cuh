// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A step where products are of 16 bits, the momentum dies out soon and W1 is no wider than a
/// panel: one pass over the master weights. What the step before left W0 to learn moves a tile of
/// it, and while W0(t) is in the multiprocessor it is multiplied with x(t), so that no copy of it
/// is ever written. W1 needs nothing of this step's h: d1(t) is multiplied with W1(t) and teaches
/// it at once, so that no other step needs d1. It is made on the spot of the targets and of y(t-2)
/// = f(W1(t-2) r(t-2)), which the multiprocessor makes only now: r(t-2) is there for the gradient,
/// and no y is ever written. W1(t) and W1(t-2) are copies in 16 bits that earlier steps left. The
/// tiles of both hide each other's latencies.
///
/// What warps do is in sweep_bringer.cuh, and in sweeper.cuh, sweep_worker.cuh and
/// sweep_results.cuh.
///
/// The master Z holds every gradient with its final share; W = Z + w g of the youngest gradient.
/// The older ones are in it a step or two early (`youngest_suffices`).

#include <cstdint>

#include <pvm/engine/cuda/batch/sizes.hpp>
#include <pvm/engine/cuda/batch/sweep_bringer.cuh>
#include <pvm/engine/cuda/batch/sweeper.cuh>
#include <pvm/engine/cuda/check.hpp>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/group_products.cuh>
#include <pvm/engine/cuda/instructions/registers.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>
#include <pvm/engine/cuda/launch.hpp>

namespace pvm::inline v0::detail::batch {

/// Where warps cannot leave others their registers there is room for fewer.
template <int Bp>
inline constexpr int resident_sweeps = SweepShape<Bp>::blocks - (multiplies_in_groups ? 0 : 1);

/// A block of threads has tiles as the plan says. In a step the cursor goes on to its next sweep.
template <class M, int Bp, SweepKind Kind>
__device__ __forceinline__ void sweep(const Arguments& a, Task task) {
  using S = SweepShape<Bp>;
  auto* shared = aligned_dynamic_shared();
  auto& state = *reinterpret_cast<SweepState<Bp>*>(shared + S::state_start);
  const auto i = static_cast<int>(threadIdx.x);
  let_next_kernel_start();
  if (i == 0) {
    const auto prepare = [](Exchange& exchange, unsigned fill, unsigned leave) {
      barrier_init(&exchange.full, fill);
      barrier_init(&exchange.empty, leave);
    };
    constexpr unsigned computing = S::warps * warp_arrivals;
    for (Exchange& exchange : state.stages) prepare(exchange, S::bringers, computing);
    for (Exchange& exchange : state.n) prepare(exchange, S::bringers, computing);
    for (Exchange& exchange : state.tiles) {
      prepare(exchange, 1, Bringer<M, Bp, Kind>::tile_readers);
    }
    for (auto& places : state.masters) {
      for (CopyBarrier& masters : places) barrier_init(&masters, 1);
    }
  }
  __syncthreads();
  const bool brings = i >= S::warps * 32;
  Bringer<M, Bp, Kind> bringer(a, task, state, shared);
  Sweeper<M, Bp, Kind> sweeper(a, task, state, shared);
  if (brings) bringer.start();
  wait_for_previous_kernel();
  if (brings) {
    leave_registers<S::bringing_registers>();
    bringer.look();
    bringer.run();
    return;
  }
  const Cursor cursor = a.first[blockIdx.x].cursor;
  take_registers<S::computing_registers>();
  sweeper.start();
  if (i == 0) state.cursor = cursor;
  if (i < 32) {
    static_assert(Bp / 8 <= 32);
    const bool some = i < Bp / 8;
    const unsigned who = some ? ErrorMath<M>::look(a, cursor, static_cast<std::size_t>(i) * 8) : 0U;
    if (some) state.who[i] = static_cast<std::uint16_t>(who);
    const bool all = __all_sync(~0U, who >> 8 == (who & 0xffU)) != 0;
    if (i == 0) state.all_scored = all;
  }
  for (int k = i; k < 2 * a.shape.layers; k += S::warps * 32) {
    const int layer = k >> 1, now = k & 1;
    const float* table =
        a.tables + static_cast<std::size_t>(slot_before(cursor.frame, a.shape.frames, 1 - now)) *
                       static_cast<std::size_t>(a.shape.table);
    const float* rates = table + 4 + layer * 2 * a.shape.terms;
    state.rates[now][layer][0] = now != 0 || cursor.owed != 0 ? rates[0] : 0.0F;
    state.rates[now][layer][1] = rates[1];
    if (k == 1) state.keeps = table[1] != 0.0F;
  }
  sync_warps(sweepers_meet, S::warps * 32);
  sweeper.run();
}
/// What steps run is a kernel of its own: the instruction cache has no room for more.
template <class M, int Bp, SweepKind Kind>
__global__ void __launch_bounds__(SweepShape<Bp>::threads, resident_sweeps<Bp>)
    sweep_kernel(const __grid_constant__ Arguments a, Task task) {
  if constexpr (has_bulk_copies) sweep<M, Bp, Kind>(a, task);
}

/// Launches `sweep_kernel` for a batch.
template <class M, int Batch>
struct SweepLauncher {
  int padded;  ///< one of `swept_sizes`
  bool early;

  template <class What>
  void for_batch(What&& what) const {
    with_swept_size<Batch>(padded, what);
  }
  /// A batch that is known when compiling has steps of one kind.
  template <int Bp>
  static auto kernel(SweepKind kind) {
    constexpr auto usual = Batch == dynamic || Batch == Bp ? SweepKind::steps : SweepKind::partial;
    if (kind == SweepKind::other) return sweep_kernel<M, Bp, SweepKind::other>;
    if constexpr (Batch == dynamic) {
      if (kind == SweepKind::partial) return sweep_kernel<M, Bp, SweepKind::partial>;
    }
    return sweep_kernel<M, Bp, usual>;
  }
  /// Blocks of threads that a multiprocessor runs at once.
  [[nodiscard]] unsigned int blocks_each() const {
    unsigned int blocks = 0;
    for_batch([&]<int Bp>() { blocks = SweepShape<Bp>::blocks; });
    return blocks;
  }
  /// Of a block of threads.
  [[nodiscard]] int shared_bytes() const {
    int bytes = 0;
    for_batch([&]<int Bp>() { bytes = sweep_shared_bytes<Bp>(); });
    return bytes;
  }
  /// Once, before the first launch.
  void prepare() const {
    for_batch([&]<int Bp>() {
      for (const auto kind : {SweepKind::other, SweepKind::steps, SweepKind::partial}) {
        allow_shared(kernel<Bp>(kind), static_cast<std::size_t>(shared_bytes()));
      }
    });
  }
  void operator()(const Arguments& a, Task task, unsigned int blocks, cudaStream_t stream) const {
    const bool full = a.shape.batch == a.shape.padded;
    const SweepKind kind = task != Task::learn ? SweepKind::other
                           : full              ? SweepKind::steps
                                               : SweepKind::partial;
    for_batch([&]<int Bp>() {
      cuda_check(launch(kernel<Bp>(kind),
                        {dim3(blocks), SweepShape<Bp>::threads,
                         static_cast<std::size_t>(shared_bytes()), stream, early},
                        a, task),
                 "launching the sweep kernel");
    });
  }
};

}  // namespace pvm::inline v0::detail::batch
