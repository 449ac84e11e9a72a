// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The sweep kernel: a whole training step in one pass over the fp32 master weights. It is used
/// where products have 16-bit operands, the momentum dies out soon and W1 is no wider than a panel
/// (56 columns).
///
/// A thread block works through a list of tiles, each up to 64 m by up to 56 n of W0 or W1
/// (tables.hpp defines m, n, panels and rows). With the master Z, and `gain` and `correction` from
/// the rate table, step t does this for a tile:
///
///     W0   g = d0(t-1) x(t-3)^T                       the gradient of step t-1
///          Z += gain g,  W0(t) = Z + correction g     rates of step t-1
///          sums += W0(t) x(t)                         of which h(t) is made
///     W1   y(t-2) = f(W1(t-2) r(t-2))
///          d1(t) = f'(y(t-2)) ([A|B](t) - y(t-2))
///          g = d1(t) r(t-2)^T
///          Z += gain g,  W1(t+1) = Z + correction g   rates of step t
///          sums += W1(t)^T d1(t)                      of which d0(t) is made
///
/// Step t-1's gradient of W0 is only added in step t: W0(t) is then multiplied with x(t) while it
/// is in registers, and there is no working copy of W0. W1 is updated in the same step, because d1
/// needs nothing of this step's h. y(t-2) is only computed now, because r(t-2) is loaded for the
/// gradient anyway; neither y nor (usually) d1 is stored. W1(t) and W1(t-2) are 16-bit working
/// copies in device memory that earlier steps wrote. W0's and W1's tiles do not depend on each
/// other within a step. The two or three thread blocks of a streaming multiprocessor (SM) hide each
/// other's latencies: thread blocks depend on each other only where they share a panel.
///
/// Four producer warps (sweep/producer.cuh) load tiles, gathered rows and copies of W1 as far ahead
/// as there is room. Four consumer warps (sweep/consumer.cuh, sweep/consumer_base.cuh,
/// sweep/results.cuh) compute and load their own masters. mbarriers in shared memory synchronise
/// them (`SweepState`):
///
///     what      filled by                    `full` waited for by    emptied by
///     tiles     a producer thread, in bulk   all warps               consumers
///     stages    all producer threads         consumers               consumers
///     n         all producer threads         consumers               consumers
///     masters   each consumer warp, in bulk  the same warp           the same warp's bulk store
///
/// Consumers empty a slot by arriving at its `empty`, for which producers wait. (Outside of steps
/// producers also arrive at that of a tile.) A buffer of masters has no `empty`: the warp waits
/// until its store to device memory has read the buffer, and then loads the next masters.
///
/// Consecutive tiles of a panel in a thread block are a *part* of the panel. At the end of a part
/// the consumers make h or d0 of the sums; where a panel has several parts, one of them adds up the
/// sums of all (sweep/results.cuh).
///
/// The master Z holds every gradient with its final share (the limit of its coefficient in W, see
/// unit/deferred.hpp). W differs from Z by `correction` g, usually negative, of the
/// youngest gradient only. Older gradients are thus in W with their final share a step or two early
/// (`youngest_suffices`).

#include <cstdint>

#include <pvm/engine/cuda/batch/plan/sizes.hpp>
#include <pvm/engine/cuda/batch/sweep/consumer.cuh>
#include <pvm/engine/cuda/batch/sweep/producer.cuh>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/group_products.cuh>
#include <pvm/engine/cuda/instructions/registers.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail::batch {

/// Thread blocks per SM that registers are allocated for: one fewer where warps cannot hand
/// registers over to others (`setmaxnreg`, sm_90a).
template <int Bp>
inline constexpr int resident_sweeps = SweepShape<Bp>::blocks - (multiplies_in_groups ? 0 : 1);

/// Initialises the mbarriers: one thread's work.
template <class M, int Bp, SweepKind Kind>
__device__ __forceinline__ void init_barriers(SweepState<Bp>& state) {
  using S = SweepShape<Bp>;
  // `full_arrivals`, `empty_arrivals`: arrivals per use at `full` and `empty`.
  const auto prepare = [](SlotBarriers& barriers, unsigned full_arrivals, unsigned empty_arrivals) {
    mbarrier_init(&barriers.full, full_arrivals);
    mbarrier_init(&barriers.empty, empty_arrivals);
  };
  constexpr unsigned consumer_arrivals = S::consumer_warps * warp_arrivals;
  for (SlotBarriers& barriers : state.stages)
    prepare(barriers, S::producer_threads, consumer_arrivals);
  for (SlotBarriers& barriers : state.n) prepare(barriers, S::producer_threads, consumer_arrivals);
  for (SlotBarriers& barriers : state.tiles) {
    prepare(barriers, 1, SweepProducer<M, Bp, Kind>::tile_readers);
  }
  for (auto& of_warp : state.masters) {
    for (MBarrier& masters : of_warp) mbarrier_init(&masters, 1);
  }
}
/// Notes which sequences exist and which of them are scored, eight a lane. Called by all lanes of
/// one warp.
template <class M, int Bp>
__device__ __forceinline__ void make_sequence_masks(const Arguments& a, const StepCursor& cursor,
                                                    SweepState<Bp>& state, int lane) {
  static_assert(Bp / 8 <= 32);
  const bool some = lane < Bp / 8;
  const unsigned masks =
      some ? ErrorMath<M>::masks_of(a, cursor, static_cast<std::size_t>(lane) * 8) : 0U;
  if (some) state.sequence_masks[lane] = static_cast<std::uint16_t>(masks);
  const bool all = __all_sync(~0U, masks >> 8 == (masks & 0xffU)) != 0;
  if (lane == 0) state.all_scored = all;
}
/// Reads the rates of layer k / 2 from the table of this step (odd k) or of the step before (even
/// k), and once, for k = 1, whether this step stores d1. If the master of W0 already includes the
/// gradient of the step before (`work_pending` is 0), its gain is 0.
template <int Bp>
__device__ __forceinline__ void read_rates(const Arguments& a, const StepCursor& cursor,
                                           SweepState<Bp>& state, int k) {
  const int layer = k >> 1, current = k & 1;
  const float* table =
      a.tables + static_cast<std::size_t>(slot_before(cursor.frame, a.shape.frames, 1 - current)) *
                     static_cast<std::size_t>(a.shape.table);
  const float* rates = table + 4 + layer * 2 * a.shape.terms;
  state.rates[current][layer][0] = current != 0 || cursor.work_pending != 0 ? rates[0] : 0.0F;
  state.rates[current][layer][1] = rates[1];
  if (k == 1) state.stores_d1 = table[1] != 0.0F;
}

/// The work of a producer warp, when the kernel before has ended.
template <class M, int Bp, SweepKind Kind>
__device__ __forceinline__ void produce(SweepProducer<M, Bp, Kind>& producer) {
  release_registers<SweepShape<Bp>::producer_registers>();
  producer.read_step_start();
  producer.run();
}
/// The work of consumer thread `i`, when the kernel before has ended. Together these warps first
/// read what all tiles of the step need.
template <class M, int Bp, SweepKind Kind>
__device__ __forceinline__ void consume(const Arguments& a, const StepCursor& cursor,
                                        SweepState<Bp>& state, SweepConsumer<M, Bp, Kind>& consumer,
                                        int i) {
  using S = SweepShape<Bp>;
  take_registers<S::consumer_registers>();
  consumer.start();
  if (i == 0) state.cursor = cursor;
  if (i < 32) make_sequence_masks<M>(a, cursor, state, i);
  for (int k = i; k < 2 * a.shape.layers; k += S::consumer_warps * 32) {
    read_rates(a, cursor, state, k);
  }
  named_barrier_sync(consumer_barrier, S::consumer_warps * 32);
  consumer.run();
}
/// The work of a thread block: the tiles that the plan gives it, for `task`. In a step it also
/// writes the cursor for its next sweep.
template <class M, int Bp, SweepKind Kind>
__device__ __forceinline__ void sweep(const Arguments& a, Task task) {
  using S = SweepShape<Bp>;
  auto* shared = aligned_dynamic_shared();
  auto& state = *reinterpret_cast<SweepState<Bp>*>(shared + S::state_start);
  const auto i = static_cast<int>(threadIdx.x);
  let_next_kernel_start();
  if (i == 0) init_barriers<M, Bp, Kind>(state);
  __syncthreads();
  const bool is_producer = i >= S::consumer_warps * 32;
  SweepProducer<M, Bp, Kind> producer(a, task, state, shared);
  SweepConsumer<M, Bp, Kind> consumer(a, task, state, shared);
  if (is_producer) producer.start();
  wait_for_previous_kernel();
  if (is_producer) return produce(producer);  // loads rows, copies of W1, tiles: producer.cuh
  const StepCursor cursor = a.step_start[blockIdx.x].cursor;
  consume(a, cursor, state, consumer, i);  // multiplies, updates the masters: consumer.cuh
}
/// Steps have kernels of their own (`Kind`), without the code of the other tasks, because the
/// instruction cache has no room for more. Grid: the plan's thread blocks.
template <class M, int Bp, SweepKind Kind>
__global__ void __launch_bounds__(SweepShape<Bp>::threads, resident_sweeps<Bp>)
    sweep_kernel(const __grid_constant__ Arguments a, Task task) {
  if constexpr (has_bulk_copies) {
    sweep<M, Bp, Kind>(a, task);
  } else {
    __trap();  // DeviceFacts::is_hopper_or_later is wrong
  }
}

/// Launches `sweep_kernel` for a batch of `Batch` sequences, or of a number known at run time
/// (`dynamic`).
template <class M, int Batch>
struct SweepLauncher {
  int padded;  ///< one of `swept_sizes`
  bool early;  ///< whether the kernel may start while the one before it ends

  template <class What>
  void for_batch(What&& what) const {
    with_swept_size<Batch>(padded, what);
  }
  /// With a batch known at compile time only one kind of step is compiled.
  template <int Bp>
  static auto kernel(SweepKind kind) {
    constexpr auto usual = Batch == dynamic || Batch == Bp ? SweepKind::steps : SweepKind::partial;
    if (kind == SweepKind::other) return sweep_kernel<M, Bp, SweepKind::other>;
    if constexpr (Batch == dynamic) {
      if (kind == SweepKind::partial) return sweep_kernel<M, Bp, SweepKind::partial>;
    }
    return sweep_kernel<M, Bp, usual>;
  }
  /// Thread blocks per SM.
  [[nodiscard]] unsigned int blocks_each() const {
    unsigned int blocks = 0;
    for_batch([&]<int Bp>() { blocks = SweepShape<Bp>::blocks; });
    return blocks;
  }
  /// Dynamic shared memory of a thread block.
  [[nodiscard]] int shared_bytes() const {
    int bytes = 0;
    for_batch([&]<int Bp>() { bytes = sweep_shared_bytes<Bp>(); });
    return bytes;
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
