// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Inner products of current values with the same values of the listed steps: of a source's newest
/// hidden values with their past. Their sums over sources give x_j . x and r_j . r for the listed
/// gradients j.

#include <cstdint>

#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/general/tuning.hpp>

namespace pvm::inline v0::detail::general {

/// *out(task, age) = sum over o < length of current(task, o) times the value of step t - (back + 3
/// + age) at place + o, where place(task) returns {place, back}. Eight lanes compute one sum.
template <class Precision, int RG, class Known>
template <class Current, class Place, class Out>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::inner_products(
    const Team& team, int tasks, int length, Current current, Place place, Out out) const {
  const int count = tasks * a.terms;
  const int sub = lane() & 7;
#pragma unroll 1
  for (int start = 0; start < count; start += team.threads() / 8) {
    const int k = start + (team.thread() >> 3);
    const int task = a.by_terms.quotient(min(k, count - 1));
    const int age = min(k, count - 1) - task * a.terms;
    const uint2 where = place(task);
    const float* then = a.past + past_row(static_cast<int>(where.y) + 3 + age) + where.x;
    float sum = 0;
#pragma unroll 1
    for (int base = sub; base < length; base += 64) {
      float v[8], w[8];
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int o = min(base + 8 * i, length - 1);
        w[i] = load_fresh(then + o);
        v[i] = current(task, o);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) sum += base + 8 * i < length ? v[i] * w[i] : 0.0F;
    }
    sum += __shfl_xor_sync(full_warp, sum, 4);
    sum += __shfl_xor_sync(full_warp, sum, 2);
    sum += __shfl_xor_sync(full_warp, sum, 1);
    if (sub == 0 && k < count) *out(task, age) = sum;
  }
}

/// The inner products of a source with the listed inputs, [age]. `version`: 0 to 5, taken modulo 3.
template <class Precision, int RG, class Known>
__device__ __forceinline__ float* ThreadBlock<Precision, RG, Known>::inner_row(
    int version, std::uint32_t source) const {
  const int slot = version >= 3 ? version - 3 : version;
  const int row = slot * (a.units + a.patches + 1);
  return a.inner + (static_cast<unsigned>(row) + source) * static_cast<unsigned>(a.terms);
}

/// Inner products of r(t-1) with the r of the listed gradients, slab by slab.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::representation_products(
    const Team& team) const {
  const RepresentationTask* tasks = list<RepresentationTask>(p.representation_tasks);
  inner_products(
      team, static_cast<int>(p.representation_count), hidden(),
      [&](int k, int o) {
        return load_fresh(a.past + past_row(static_cast<int>(tasks[k].back)) + a.first_raw +
                          tasks[k].source * hidden() + o);
      },
      [&](int k) { return make_uint2(a.first_raw + tasks[k].source * hidden(), tasks[k].back); },
      [&](int k, int age) { return area + tasks[k].out + age; });
}

/// Inner products of c(h(t)) with its past, for all units that read c(h(t)): in step t+1 and, as
/// part of the B half of x, in step t+2.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::publish_products(
    const Team& team) const {
  const HiddenUnit* units = list<HiddenUnit>(p.hidden_units);
  inner_products(
      team, static_cast<int>(p.hidden_count), hidden(),
      [&](int k, int o) { return area[units[k].squeezed_h + o]; },
      [&](int k) { return make_uint2(units[k].unit * hidden(), 0); },
      [&](int k, int age) { return inner_row(now.inner + 1, units[k].unit) + age; });
}

}  // namespace pvm::inline v0::detail::general
