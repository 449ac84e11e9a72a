// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The finishers of the specialised step (specialised.cuh has the roles and barriers): they finish
/// units or gather x(t+1). This is the critical path between thread blocks, which wait for each
/// other's h(t).

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/loops/specialised.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// The step loop of a finisher, for one launch. x(t+1) is gathered as soon as no multiplier reads
/// x(t) any more.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::finish_all() {
  release_registers<S::finisher_registers>();
  const bool finishes = finisher() < with_units();
  Pixels pixels{};
  if (finishes && patch_from(finisher()) >= 0) {
    pixels = this->load_pixels(patch_from(finisher()), 1, lane());
  }
  if (gathers()) gather(now().step);
  arrive_gate(gathered);
#pragma unroll 1
  for (;;) {
    reread_thread();
    if (finishes) {
      begin_units();
    } else {
      this->mark(Part::wait_tables);
      named_barrier_sync(begun_for_gatherers, finishing);
    }
    this->mark(Part::listed);
    each_listed_unit([&](int u) { this->make_listed_part(u); });
    reread_thread();
    if (finishes) {
      finish_units();
    } else {
      named_barrier_arrive(sums_made, multiplying + finishing);
    }
    reread_thread();
    const bool ends = last();
    if (!ends) {
      this->mark(Part::wait_x_free);
      named_barrier_sync(x_free, multiplying + finishing);
      this->mark(Part::patches);
      if (finishes) read_patches(pixels);
      reread_thread();
      this->mark(Part::gather);
      if (gathers()) gather(now().step + 1);
      reread_thread();
      arrive_gate(gathered);
    }
    if (finishes) finish_gradients();
    if (ends) break;
    next_step();
  }
}

/// Prepares the next step's Now, counts that this step has begun, loads this step's tables of
/// coefficients when folders no longer read those of the step before, and lets folders and the
/// other finishers begin.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::begin_units() const {
  if (thread == multiplying) {  // the first thread of the first finisher, which has a unit
    this->prepare(now((turn + 1) & 3));
    count_begun<S::shards>(a, now().step);
  }
  this->mark(Part::wait_tables);
  if (!first()) named_barrier_sync(tables_free, with_units_threads() + folding);
  this->mark(Part::tables);
  each_own_unit([&](int u) { this->load_coefficients(u); });
  named_barrier_arrive(begun_for_folders, with_units_threads() + folding);
  named_barrier_arrive(begun_for_gatherers, finishing);
}

/// Waits for the sums, then makes and sends h(t) and its inner products.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::finish_units() const {
  this->mark(Part::wait_sums);
  named_barrier_sync(sums_made, multiplying + finishing);
  this->mark(Part::hidden);
  each_own_unit([&](int u) { this->finish_unit(u); });
  arrive_gate(hidden_made);
}

/// Reads the patches of step t+1. On entry `pixels` holds the first pixels, loaded a step ahead; on
/// return, the first pixels for step t+2 are in flight to it.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::read_patches(
    Pixels& pixels) const {
  const int start = patch_from(finisher());
  if (start < 0) return;
  // Each iteration stores the pixels that the previous one loaded and loads the next ones: of the
  // patch of unit u in the frame `ahead` steps after the current one, this lane's pixels `first`,
  // first + 32 and so on, pixels_at_once of them. The last loads are the first pixels of step t+2.
  int u = start, first = lane(), ahead = 1;
#pragma unroll 1
  do {
    this->store_pixels(u, ahead, first, pixels);
    first += 32 * pixels_at_once;
    if (first - lane() >= a.patch) {
      this->finish_patch(u, ahead);
      first = lane();
      u = patch_from(u + with_units());
      if (u < 0) {
        u = start;
        ++ahead;
      }
    }
    pixels = this->load_pixels(u, ahead, first);
  } while (ahead == 1);
}

/// Waits for W1^T d1(t), then makes d0(t).
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::finish_gradients()
    const {
  this->mark(Part::wait_gradients);
  named_barrier_sync(gradients_made, multiplying + with_units_threads());
  this->mark(Part::gradient);
  each_own_unit([&](int u) { this->finish_gradient(u); });
}

/// Gathers x(t) except for the patches. Then waits until step t may overwrite its row of the past
/// (`wait_for_slowest`).
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void Specialised<Precision, Hidden, home, Own>::gather(
    unsigned long long t) const {
  const int before = multiplying + first_gatherer() * 32;
  const unsigned int begun = this->load_slowest(t);  // in flight while values are gathered
  this->gather_values(t - 1, (t & 1) != 0, thread - before, S::threads - folding - before);
  reread_thread();
  if (lane() == 0) this->wait_for_slowest(t, begun);
  __syncwarp();
}

}  // namespace pvm::inline v0::detail::units
