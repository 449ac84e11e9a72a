// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How a launch begins and ends, and how one step follows the other. A launch begins by loading
/// from device memory what an earlier step of it would have left in shared memory: weights,
/// outputs, patches and the units' past. The past lies in device memory as rings of rows, a row for
/// each step; a launch stores the rows that are still needed when it ends. thread_block.cuh
/// documents the functions.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/run/cursor.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/exchange.cuh>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/cuda/units/step/thread_block.cuh>
#include <pvm/engine/cuda/units/step/view.cuh>

namespace pvm::inline v0::detail::units {

/// Fills the Launch from the cursor and the staged block of frames: one thread's work.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::begin_launch() const {
  const Cursor cursor = *a.cursor;
  begin(cursor.step);
  now(0).frame = 0;
  Launch& l = launch();
  const std::size_t staging = cursor.block % static_cast<unsigned>(a.staging);
  const std::size_t tables = static_cast<std::size_t>(a.block_steps + 1) * a.layers;
  const std::size_t rows = staging * a.block_steps + cursor.frame;
  const std::uint32_t* index = a.index + staging * (1 + tables);
  const int left = static_cast<int>(index[0] & ~frames_are_floats) - static_cast<int>(cursor.frame);
  l.count = max(0, min(left, a.most_steps));
  l.ends = l.count == left;
  l.index = index + 1 + static_cast<std::size_t>(cursor.frame) * a.layers;
  l.coefficients = a.coefficients + staging * tables * a.table_stride;
  l.frames = a.frames + rows;
  l.scored = a.scored + rows;
  const std::size_t frame = static_cast<std::size_t>(a.patches) * a.patch;
  l.squeezed = (index[0] & frames_are_floats) != 0 ? a.squeezed + rows * frame : nullptr;
}

/// Loads to shared memory what the steps of the launch need: pointers to frames, table numbers,
/// pixel offsets of a patch.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::load_launch() const {
  const Launch& l = launch();
  for (int i = thread; i < l.count; i += S::threads) {
    frames()[i] = l.squeezed == nullptr ? l.frames[i] : nullptr;
    scored()[i] = l.scored[i];
  }
  const auto tables = [&] { return S::pipelined ? l.count + 1 : l.count; };
  for (int i = thread; i < tables() * unit_count(); i += S::threads) {
    const int u = i % unit_count();
    const int step = i / unit_count();
    table_numbers(u)[step] = static_cast<std::uint16_t>(
        l.index[static_cast<std::size_t>(step) * a.layers + unit(u).layer]);
  }
  const int line = a.block_size * a.channels;
  for (int k = thread; k < a.patch; k += S::threads) {
    shared[Areas::offsets + k] =
        static_cast<std::uint32_t>(k / line * a.side * a.channels + k % line);
  }
}

/// Loads the past from device memory to where steps use it. It calls the next four functions.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::load_past() const {
  const unsigned long long t = now().step;
  start_areas();
  __syncthreads();
  load_histories(t);
  if constexpr (!S::streams) load_outputs();
  load_patches(t);
  // B(t) = A(t-1), which is c(h(t-2)) of the primary sources.
  gather_values(t - 2, (t & 1) == 0, thread, S::threads);
}

/// Clears x and the warps' parts of sums, invalidates the coefficients, and loads the scores.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::start_areas() const {
  const std::uint32_t words = (S::reads_context ? 2 : 1) * p.x_words;
  for (std::uint32_t i = static_cast<std::uint32_t>(thread); i < words; i += S::threads)
    shared[p.x + i] = 0;
  constexpr int parts = (S::multipliers + 1) * S::values + S::multipliers * S::part1_words;
  if (thread < unit_count()) area(thread)[S::loaded_table] = ~0U;
  for (int i = thread; i < unit_count() * parts; i += S::threads) {
    float_area(i / parts)[S::part0 + static_cast<std::uint32_t>(i % parts)] = 0;
  }
  if constexpr (S::reads_context) {
    constexpr int sums = S::multipliers * S::values;
    const int groups = static_cast<int>(p.row_group_count) - unit_count();
    for (int i = thread; i < groups * sums; i += S::threads) {
      const std::uint32_t at = this->row_group(unit_count() + i / sums).sums;
      reinterpret_cast<float*>(a.unit_areas)[at + static_cast<unsigned>(i % sums)] = 0;
    }
    for (int i = thread; i < unit_count() * S::values; i += S::threads) {
      float_area(i / S::values)[S::ones + static_cast<unsigned>(i % S::values)] = 1;
    }
  }
  for (int i = thread; i < S::warps * 3; i += S::threads) {
    reinterpret_cast<double*>(shared + Areas::score)[i] =
        a.score[static_cast<std::size_t>(this->program_number()) * S::warps * 3 + i];
  }
}

/// Loads h and d0 of the last `history` steps before step t, and c(h) of the last `past_rows`.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::load_histories(
    unsigned long long t) const {
  struct Values {
    float hidden, d0;
    std::uint32_t squeezed;
  };
  copy_each(
      unit_count() * S::past_rows * Hidden, thread, S::threads,
      [&](int k) -> Values {
        const unsigned long long step = step_before(t, k / Hidden % S::past_rows);
        const int i = k % Hidden;
        const std::uint32_t number = unit(k / Hidden / S::past_rows).unit;
        if (!is_used(i)) return {0, 0, 0};
        const std::size_t at = number * used() + static_cast<unsigned>(i);
        return {
            __ldcg(a.hidden + static_cast<std::size_t>(step & (S::ring - 1)) * a.hidden_row + at),
            __ldcg(a.d0 + static_cast<std::size_t>(step & (S::history - 1)) * a.hidden_row + at),
            __ldcg(past(step) + number * S::record + in_pieces(i))};
      },
      [&](int k, Values v) {
        const int back = 1 + k / Hidden % S::past_rows;
        const int i = k % Hidden, u = k / Hidden / S::past_rows;
        history_row(S::squeezed, u, back)[i] = Words::unpack(v.squeezed);
        if (back > S::unit_rows) return;
        history_row(S::hidden, u, back)[i] = v.hidden;
        history_row(S::d0, u, back)[i] = v.d0;
        if (i == 0) history_row(S::hidden, u, back)[Hidden] = 1;  // r = [h | 1]: the bias's input
      });
}

/// Loads y of the last two steps.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::load_outputs() const {
  copy_each(
      static_cast<int>(2 * p.out_count), thread, S::threads,
      [&](int i) { return __ldcg(&all_output(i)); }, [&](int i, float v) { own_output(i) = v; });
}

/// Loads the patches of the last `past_rows` steps before step t.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::load_patches(
    unsigned long long t) const {
  for (int u = 0; u < unit_count(); ++u) {
    const ProgramUnit& my = unit(u);
    if (thread == 0) shared[my.one] = Words::pack(1.0F);
    if (my.patch == not_a_patch) continue;
    if (thread == 0) area(u)[S::corner] = corner_of(my.patch);
    const auto base = static_cast<int>(my.base);
    copy_each(
        S::past_rows * base, thread, S::threads,
        [&](int i) {
          return __ldcg(past(step_before(t, i / base)) + a.first_patch + my.patch * a.patch_record +
                        in_pieces(i % base));
        },
        [&](int i, std::uint32_t v) {
          seen(my, i / base + 1)[i % base] = Words::unpack(v);
          // Row 0 is the patch of step t - 1, which is B(t).
          if (i < base) shared[my.x + ((t & 1) != 0 ? 0 : my.padded) + i] = v;
        });
  }
}

/// Loads the remainder rows of this warp's blocks of W0 to shared memory.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::load_remainders() const {
  copy_each(
      this->my_count() * S::remainder_words, lane(), 32,
      [&](int i) {
        const W0Block& block = this->my_blocks()[i / S::remainder_words];
        return this->remainder_word(block, i % S::remainder_words);
      },
      [&](int i, std::uint32_t word) {
        this->my_remainder(i / S::remainder_words)[i % S::remainder_words] = word;
      });
}

/// Loads this warp's blocks of W1 that stay in shared memory, and fills the lists of all its
/// blocks: remainder rows, bias and listed d1.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::load_w1_weights() const {
  const auto* blocks = list<W1Block>(p.w1_blocks);
#pragma unroll 1
  for (std::uint32_t k = p.w1_start[warp()]; k < p.w1_start[warp() + 1]; ++k) {
    const W1Block& block = blocks[k];
    const ProgramUnit& my = unit(unit_in(block.what));
    const std::uint32_t out = my.all_out + block.out - my.out;
    const bool stays = !this->is_in_memory(block.where);
    Weights w{};  // these loads are in flight together with those of the list
    if (stays) this->load_streamed(w, this->streamed(block));
    this->store_list(list_of(block), block, [&](int e, int o) {
      const unsigned long long step =
          now().step + S::history - 1 - static_cast<unsigned>(age_of(e));
      return a.d1 + static_cast<std::size_t>(step & (S::history - 1)) * a.output_row + out + o;
    });
    if (stays) this->store_w1(block, w);
  }
}

/// Stores outputs and scores to device memory.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::store_results() const {
  for (int i = thread; i < static_cast<int>(2 * p.out_count) && !S::streams; i += S::threads) {
    all_output(i) = own_output(i);
  }
  for (int i = thread; i < S::warps * 3; i += S::threads) {
    a.score[static_cast<std::size_t>(this->program_number()) * S::warps * 3 + i] =
        reinterpret_cast<double*>(shared + Areas::score)[i];
  }
}

/// Advances the cursor: one thread's work, when all thread blocks have read it.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::end_launch() const {
  const Launch& l = launch();
  Cursor end = *a.cursor;
  end.step += static_cast<unsigned>(l.count);
  end.frame += static_cast<unsigned>(l.count);
  if (l.ends) {
    end.frame = 0;
    ++end.block;
  }
  *a.cursor = end;
}

/// Sets `next` to the step after the current one.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::prepare(
    Now& next) const {
  const Now& n = now();
  next.step = n.step + 1;
  next.frame = n.frame + 1;
  const auto after = [](int number, int count) { return number + 1 == count ? 0 : number + 1; };
  next.phase = after(n.phase, S::period);
  next.d1_row = after(n.d1_row, S::list_d1_rows);
  if constexpr (S::two_plans) next.w1_phase = after(n.w1_phase, S::w1_period);
  if constexpr (S::counts_rows) next.past_row = after(n.past_row, S::past_rows);
}

/// Prepares the next step, and counts that this thread block has begun the current one: one
/// thread's work.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::prepare_step() const {
  prepare(now(turn ^ 1));
  count_begun<S::shards>(a, now().step);
}

/// A row of the ring buffer in device memory is overwritten after `ring` steps. So that no thread
/// block overwrites a row that the slowest thread block may still read, it waits before step t
/// until all thread blocks have begun step t - ahead. `slowest_counter` counts the thread blocks
/// that have; `load_slowest` loads it.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ const unsigned int*
ThreadBlock<Precision, Hidden, home, Own>::slowest_counter(unsigned long long t) const {
  return a.begun + (t + rounds - ahead) % rounds;
}

template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ unsigned int ThreadBlock<Precision, Hidden, home, Own>::load_slowest(
    unsigned long long t) const {
  return load_begun<S::shards>(slowest_counter(t));
}

/// Waits; `begun` is what `load_slowest` has loaded earlier.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::wait_for_slowest(
    unsigned long long t, unsigned int begun) const {
  if (t < ahead) return;
  const unsigned long long step = t - ahead;
  const unsigned int target =
      (static_cast<unsigned>(step / rounds) + 1) * all_thread_blocks<S::shards>(a);
  while (static_cast<int>(begun - target) < 0) begun = load_slowest(t);
}

template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::wait_for_slowest(
    unsigned long long t) const {
  wait_for_slowest(t, load_slowest(t));
}

}  // namespace pvm::inline v0::detail::units
