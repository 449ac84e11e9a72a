// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One step of a thread block, from the gathering to the publication: its position, its coefficient
/// tables, and the order of its parts. The work between the barrier's arrival and wait is in
/// kernel.cuh.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/general/corrections.cuh>
#include <pvm/engine/cuda/general/finish.cuh>
#include <pvm/engine/cuda/general/folds.cuh>
#include <pvm/engine/cuda/general/folds_16bit.cuh>
#include <pvm/engine/cuda/general/gather.cuh>
#include <pvm/engine/cuda/general/products.cuh>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/general/tiles.cuh>
#include <pvm/engine/cuda/general/tuning.hpp>

namespace pvm::inline v0::detail::general {

/// Sets `now` to step t, or moves it to the next step. One thread calls these, between two
/// __syncthreads() of the thread block.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::set_step(
    unsigned long long t) const {
  now.ring = static_cast<int>(t % static_cast<unsigned>(a.ring));
  now.inner = static_cast<int>(t % 3);
  now.history = static_cast<int>(t % static_cast<unsigned>(a.history));
  now.phase = static_cast<int>(t % static_cast<unsigned>(a.period));
  now.y = static_cast<int>(t % 2);
  now.kind = a.activation == 1 && t < 2 ? 0 : a.activation;
}

template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::next_step() const {
  const auto next = [](int& value, int modulus) { value = value + 1 == modulus ? 0 : value + 1; };
  next(now.ring, a.ring);
  next(now.inner, 3);
  next(now.history, a.history);
  next(now.phase, a.period);
  next(now.y, 2);
  ++now.frame;
  now.kind = a.activation == 1 && now.begin + (now.frame - now.first) < 2 ? 0 : a.activation;
}

/// Makes the coefficient tables of the step current: if any table number changed, copies the tables
/// to shared memory (if they lie there). All threads call it.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::open_tables() const {
  const std::uint32_t* index = now.index + static_cast<std::size_t>(now.frame) * a.layers;
  const std::uint32_t* layers = list<std::uint32_t>(p.layer_list);
  std::uint32_t mine = 0;
  if (threadIdx.x < p.layer_count) mine = __ldg(index + layers[threadIdx.x]);
  const bool changed = threadIdx.x < p.layer_count && mine != table_numbers()[threadIdx.x];
  if (!__syncthreads_or(changed)) return;
  if (changed) table_numbers()[threadIdx.x] = mine;
  __syncthreads();
  if (p.tables_shared != 0) {
#pragma unroll 1
    for (std::uint32_t l = 0; l < p.layer_count; ++l) {
      const float* from =
          now.coefficients + static_cast<std::size_t>(table_numbers()[l]) * a.table_stride;
      float* to = area + p.tables + l * a.table_stride;
#pragma unroll 2
      for (int i = threadIdx.x; i < a.table_stride; i += threads) to[i] = __ldg(from + i);
    }
    __syncthreads();
  }
}

/// One step, up to the publication. `tail`: the launch's last step is done; compute only its y, for
/// readers and for the next launch. `tiles`: see run_items.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::run_step(bool tail,
                                                                            Tiles& tiles) const {
  // What a piece of work waits for is mostly loads, so teams of warps do several at once.
  const auto by = [](const Team& team, auto work) {
    if (team.has_me()) work(team);
  };
  by(team(p.gather_teams, 0), [&](const Team& mine) { gather_inputs(mine, tail); });
  by(team(p.gather_teams, 1), [&](const Team& mine) { representation_products(mine); });
  if (!tail) {
    by(team(p.gather_teams, 2), [&](const Team& mine) { weigh_sources(mine); });
    by(team(p.gather_teams, 3),
       [&](const Team& mine) { gather_errors(mine, now.scored[now.frame] != 0); });
  }
  __syncthreads();
  correction_factors(tail);
  __syncthreads();
  if (!tail) {
    if constexpr (!Weights::two_halves) stage_first_fold();
    correct_hidden();
  }
  run_items(tail, tiles, [&] {
    __syncthreads();
    if (!tail) {
      by(team(p.hidden_teams, 0), [&](const Team& mine) { finish_hidden(mine); });
      by(team(p.hidden_teams, 1), [&](const Team& mine) { correct_output(mine); });
    }
  });
  __syncthreads();
  if (!tail) {
    if constexpr (Weights::two_halves) prefetch_folds();
    by(team(p.finish_teams, 0), [&](const Team& mine) { publish_products(mine); });
    by(team(p.finish_teams, 1), [&](const Team& mine) { finish_gradient(mine); });
  }
  if (now.frame > now.first) {
    by(team(p.finish_teams, 2), [&](const Team& mine) { finish_outputs(mine); });
  }
}

}  // namespace pvm::inline v0::detail::general
