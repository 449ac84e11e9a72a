// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One thread's view of its thread block: its number, warp and lane, and the addresses of
/// everything it works with in shared memory and device memory.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/state.cuh>

namespace pvm::inline v0::detail::units {

/// Calls store(i, load(i)) for all i below `count`. The work is shared by `threads` threads, of
/// which this is number `me`. Each thread has several loads in flight, because a launch begins with
/// many accesses to device memory.
template <class Load, class Store>
__device__ __forceinline__ void copy_each(int count, int me, int threads, Load load, Store store) {
  constexpr int at_once = 8;
#pragma unroll 1
  for (int first = me; first < count; first += at_once * threads) {
    decltype(load(0)) v[at_once];
#pragma unroll
    for (int k = 0; k < at_once; ++k) v[k] = load(min(first + k * threads, count - 1));
#pragma unroll
    for (int k = 0; k < at_once; ++k) {
      if (first + k * threads < count) store(first + k * threads, v[k]);
    }
  }
}

/// One thread's view. Every function is inlined. Parameters called `u` are local numbers of units
/// (within the thread block), `step` and `t` are step numbers of the run, `what` is the field of a
/// W0Block or W1Block, or a row constant of Sizes.
template <class Precision, int Hidden, Home home>
struct View {
  using S = Sizes<Precision, Hidden, home>;

  const Arguments& a;
  const Program& p;
  std::uint32_t* shared;
  mutable int thread;  ///< number in the thread block
  int turn;            ///< index of the current step's Now

  /// Reads the thread number anew, so that what is computed from it has a short live range. The
  /// compiler would otherwise keep such values in registers for the whole run, and registers are
  /// needed for weights.
  __device__ __forceinline__ void reread_thread() const { thread = thread_number(); }
  __device__ __forceinline__ int warp() const { return thread >> 5; }
  __device__ __forceinline__ int lane() const { return thread & 31; }
  /// A lane's row, and the first of its pair of adjacent columns, in a fragment of mma operand A.
  __device__ __forceinline__ int row() const { return lane() >> 2; }
  __device__ __forceinline__ int pair() const { return (lane() & 3) * 2; }

  /// The list of the program that starts at word `at` of shared memory.
  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return reinterpret_cast<const T*>(shared + at);
  }
  __device__ __forceinline__ float* floats(std::uint32_t at) const {
    return reinterpret_cast<float*>(shared + at);
  }
  /// The area of unit u (Sizes): in shared memory, or in device memory if all weights are streamed.
  __device__ __forceinline__ std::uint32_t* area(int u) const {
    if constexpr (S::streams) {
      return a.unit_areas + static_cast<std::size_t>(unit(u).unit) * S::unit_words;
    }
    return shared + a.areas.units + static_cast<std::uint32_t>(u) * S::unit_words;
  }
  __device__ __forceinline__ float* float_area(int u) const {
    return reinterpret_cast<float*>(area(u));
  }
  /// Number `which` of the four Now; without a number, that of the current step.
  __device__ __forceinline__ Now& now(int which) const {
    return *reinterpret_cast<Now*>(shared + Areas::now + which * 8);
  }
  __device__ __forceinline__ const Now& now() const { return now(turn); }
  /// The step's phase for blocks of W1.
  __device__ __forceinline__ int w1_phase() const {
    return S::two_plans ? now().w1_phase : now().phase;
  }
  __device__ __forceinline__ Launch& launch() const {
    return *reinterpret_cast<Launch*>(shared + Areas::launch);
  }
  __device__ __forceinline__ const ProgramUnit& unit(int u) const {
    return list<ProgramUnit>(p.units)[u];
  }
  /// If `reads_context`: the rows whose blocks have this number.
  __device__ __forceinline__ const RowGroup& row_group(int number) const {
    return list<RowGroup>(p.row_groups)[number];
  }
  /// What the context adds to the outputs of step t, [out_count].
  __device__ __forceinline__ float* context_outputs(unsigned long long t) const {
    return floats(p.context_y) + static_cast<unsigned>(t & 1) * p.out_count;
  }
  /// The number of this thread block's program.
  __device__ __forceinline__ unsigned int program_number() const {
    if constexpr (S::in_slots) return p.number;
    return blockIdx.x;
  }
  __device__ __forceinline__ int unit_count() const { return static_cast<int>(p.unit_count); }
  /// Notes that this warp begins `part` of its step, if the program records timelines
  /// (timeline.hpp).
  __device__ __forceinline__ void mark([[maybe_unused]] Part part) const {
#if defined(PVM_TIMELINE)
    const int step = now().frame - a.timeline.first;
    if (lane() != 0 || step < 0 || step >= a.timeline.steps) return;
    const auto warp_number = static_cast<std::size_t>(program_number()) * S::warps + warp();
    const std::size_t row = warp_number * a.timeline.steps + step;
    a.timeline.marks[row * part_count + static_cast<std::size_t>(part)] =
        static_cast<unsigned long long>(clock64());
#endif
  }
  /// One thread's work, when a launch begins (0) and ends (1): notes the SM and its clock.
  __device__ __forceinline__ void mark_launch([[maybe_unused]] int which) const {
#if defined(PVM_TIMELINE)
    const unsigned long long before = nanosecond_timer();
    unsigned long long tick = before;
    while (tick == before) tick = nanosecond_timer();
    unsigned long long* clocks = a.timeline.clocks + 4 * program_number() + 2 * which;
    clocks[0] = static_cast<unsigned long long>(clock64());
    clocks[1] = tick;
    a.timeline.sms[program_number()] = sm_number();
#endif
  }
  /// The row of a step in the ring buffer of records in device memory.
  __device__ __forceinline__ std::uint32_t* past(unsigned long long step) const {
    return a.past + static_cast<std::size_t>(step & (S::ring - 1)) * a.row_words;
  }
  /// A ring buffer of unit u, rows of S::values floats: `what` is S::hidden (h), S::d0 or
  /// S::squeezed (c(h)).
  __device__ __forceinline__ float* history_rows(std::uint32_t what, int u) const {
    if constexpr (S::streams) {
      const bool squeezed = what == S::squeezed;
      const std::uint32_t at = squeezed ? unit(u).squeezed : unit(u).history;
      if (at != in_memory) return floats(at) + (squeezed ? 0 : what - S::hidden);
    }
    return float_area(u) + what;
  }
  /// Number of the row of the step `back` steps before this one (-1: the next one) in ring buffers
  /// of S::past_rows rows.
  __device__ __forceinline__ unsigned past_row(int back) const {
    if constexpr (!S::counts_rows) return recent_row(back);
    return counted_row(back);
  }
  __device__ __forceinline__ unsigned counted_row(int back) const {
    const int row = now().past_row - back;
    return static_cast<unsigned>(row < 0               ? row + S::past_rows
                                 : row >= S::past_rows ? row - S::past_rows
                                                       : row);
  }
  /// The same in ring buffers of `unit_rows` rows.
  __device__ __forceinline__ unsigned recent_row(int back) const {
    if constexpr (S::long_lists) return counted_row(back);
    return static_cast<unsigned>(now().step - static_cast<unsigned>(back)) & (S::history - 1U);
  }
  /// The row of that step in the ring buffer `what` of unit u.
  __device__ __forceinline__ float* history_row(std::uint32_t what, int u, int back) const {
    const unsigned row = what == S::squeezed ? past_row(back) : recent_row(back);
    return history_rows(what, u) + row * S::values;
  }
  /// The patch that a unit saw in that step, as floats.
  __device__ __forceinline__ float* seen(const ProgramUnit& my, int back) const {
    return floats(my.seen) + past_row(back) * a.patch_row;
  }
  /// Coefficients of W0's listed gradients by age, [table_row], for blocks that fold at `phase`.
  /// Entries behind the `terms` coefficients are finite.
  __device__ __forceinline__ const float* coefficients_of(int u, int phase) const {
    const int since = now().phase - phase;
    return float_area(u) + S::tables + (since < 0 ? since + S::period : since) * S::table_row;
  }
  /// The same for W1. Behind the `w1_terms` coefficients, entry table_row - 2 is 1 and all others
  /// are 0.
  __device__ __forceinline__ const float* w1_coefficients_of(int u, int phase) const {
    const int since = w1_phase() - phase;
    return float_area(u) + S::w1_tables + (since < 0 ? since + S::w1_period : since) * S::table_row;
  }
  /// What blocks of W0, or W1, of unit u that fold in this step gain of each listed gradient, by
  /// age, [table_row]. Entry table_row - 1 is the number of gradients of which they gain anything.
  __device__ __forceinline__ float* fold_coefficients(int u, bool w1) const {
    return float_area(u) +
           (w1 ? S::w1_tables + S::w1_period * S::table_row : S::tables + S::period * S::table_row);
  }
  /// Whether blocks of unit u gain anything when they fold in this step (0 or 1).
  __device__ __forceinline__ std::uint32_t& any_gain(int u) const {
    return area(u)[S::any_gain + (static_cast<std::uint32_t>(turn) & 1U)];
  }

  /// Whether blocks of W0 of unit u fold in this step.
  __device__ __forceinline__ bool has_due_blocks(int u) const {
    return (unit(u).due_phases >> now().phase & 1U) != 0;
  }
  /// Whether blocks of unit u gain anything when they fold in this step: one thread's work, once a
  /// step, which sets any_gain.
  __device__ __forceinline__ void note_gain(int u) const {
    const float gains = fold_coefficients(u, false)[S::table_row - 1];
    const float w1_gains = S::two_plans ? fold_coefficients(u, true)[S::table_row - 1] : gains;
    any_gain(u) = gains != 0 || w1_gains != 0 ? 1 : 0;
  }
  /// Whether this step is of the phase in which a block of W1 folds.
  __device__ __forceinline__ bool is_w1_due(std::uint32_t what) const {
    return phase_in(what) == w1_phase();
  }
  /// Whether a block of W0, or of W1, folds in this step, and gains anything.
  __device__ __forceinline__ bool folds(std::uint32_t what) const {
    return phase_in(what) == now().phase && any_gain(unit_in(what)) != 0;
  }
  __device__ __forceinline__ bool w1_folds(std::uint32_t what) const {
    return is_w1_due(what) && any_gain(unit_in(what)) != 0;
  }

  // -------------------------------------------------------------- blocks of weights

  /// This warp's blocks of W0. In `pipelined` the list stays in device memory, because only folds
  /// read it, and is sorted by phase.
  __device__ __forceinline__ const W0Block* my_blocks() const {
    if constexpr (S::pipelined) {
      const std::uint32_t* program = a.programs + a.program_start[p.number];
      return reinterpret_cast<const W0Block*>(program + (p.blocks - p.start)) +
             p.block_start[warp()];
    }
    return list<W0Block>(p.blocks) + p.block_start[warp()];
  }
  __device__ __forceinline__ int my_count() const {
    return static_cast<int>(p.block_start[warp() + 1] - p.block_start[warp()]);
  }
  /// This warp's blocks of W1.
  __device__ __forceinline__ const W1Block* my_w1_blocks() const {
    return list<W1Block>(p.w1_blocks) + p.w1_start[warp()];
  }
  __device__ __forceinline__ int my_w1_count() const {
    return static_cast<int>(p.w1_start[warp() + 1] - p.w1_start[warp()]);
  }
  /// Prefetches `Words` words to the L2 cache: a warp's work, one line for each lane.
  template <int Words>
  __device__ __forceinline__ void prefetch(const std::uint32_t* words) const {
    static_assert(Words <= 32 * line_words);
    prefetch_line_if(lane() * line_words < Words, words + lane() * line_words);
  }
  /// The outputs y of step t from the one with local number `local` and global number `all` on.
  __device__ __forceinline__ float* outputs_of(unsigned long long t, std::uint32_t local,
                                               std::uint32_t all) const {
    const auto odd = static_cast<unsigned>(t & 1);
    if constexpr (S::streams) return a.y + static_cast<std::size_t>(odd) * a.output_row + all;
    return floats(p.y) + odd * p.out_count + local;
  }
  /// Whether the tiles of a block, whose field `where` this is, are in device memory.
  __device__ __forceinline__ static bool is_in_memory(std::uint32_t where) {
    return S::streams || where == in_memory;
  }
  /// Word offset of a slot, which begins at a line.
  __device__ __forceinline__ static std::size_t slot_start(std::uint32_t line) {
    return static_cast<std::size_t>(line) * line_words;
  }
  /// In 16 bits: word offset of the remainder rows of the block of W0 whose slot begins at `line`.
  __device__ __forceinline__ static std::size_t slot_remainder_start(std::uint32_t line) {
    return slot_start(line & ~(chunk_lines - 1U)) + line % 4 * S::remainder_words;
  }
  /// Word offset of the slot of a block of W1, whose field `where` this is.
  __device__ __forceinline__ static std::size_t w1_slot_start(std::uint32_t where) {
    return slot_start(where & ~low_is_odd);
  }
  /// Word offset of the slot of a block's low halves. In W1 it has the same place in a pair of
  /// chunks, except for which chunk of the pair it is.
  __device__ __forceinline__ static std::size_t low_slot_of(const W0Block& block) {
    return slot_start(block.block);
  }
  __device__ __forceinline__ std::size_t low_slot_of(const W1Block& block) const {
    constexpr std::uint32_t second = chunk_lines;
    const std::uint32_t line = block.where & ~(second | low_is_odd);
    return slot_start((block.where & low_is_odd) != 0 ? line | second : line) + a.w1_low_halves;
  }
  /// Word offset of a block's tiles among all weights in device memory.
  __device__ __forceinline__ std::size_t start_of(const W0Block& block) const {
    if constexpr (S::streams) return slot_start(block.where);
    if constexpr (S::in_slots) return slot_start(block.block);
    return start_of(block.block);
  }
  __device__ __forceinline__ std::size_t start_of(const W1Block& block) const {
    if constexpr (S::streams) return w1_slot_start(block.where);
    if constexpr (S::in_slots) return slot_start(block.block);
    return a.w1 + start_of(block.block);
  }
  __device__ __forceinline__ static std::size_t start_of(std::uint32_t block) {
    return static_cast<std::size_t>(block) * S::block_words;
  }
  /// Word offset of its remainder rows.
  __device__ __forceinline__ std::size_t remainder_start_of(const W0Block& block) const {
    if constexpr (S::fp32_weights) return start_of(block) + S::block_words;
    if constexpr (S::in_slots) return slot_remainder_start(block.where);
    return a.remainder + static_cast<std::size_t>(block.block) * S::remainder_words;
  }
  __device__ __forceinline__ std::size_t remainder_start_of(const W1Block& block) const {
    if constexpr (S::pipelined) {
      return low_slot_of(block) + S::unpacked_words + S::w1_remainder_words;
    }
    if constexpr (S::fp32_weights) return start_of(block) + S::block_words;
    return a.w1_remainder + static_cast<std::size_t>(block.block) * S::w1_remainder_words;
  }
  template <class Block>
  __device__ __forceinline__ std::uint32_t* words_of(const Block& block) const {
    return a.weights + start_of(block);
  }
  /// Word, in a row of the past, of the input of a block's column.
  __device__ __forceinline__ std::uint32_t place_in_past(const W0Block& block,
                                                         std::uint32_t column) const {
    if (S::lists_places && block.cut == listed_places) return shared[block.first + column];
    return column < block.cut ? block.first + in_pieces(block.from + column)
                              : block.second + in_pieces(column - block.cut);
  }
  /// The list of the block of W1 that has the output with local number `out`.
  __device__ __forceinline__ std::uint32_t* list_of(std::uint32_t out) const {
    if constexpr (S::lists_in_slots) {
      return a.weights + w1_slot_start(shared[p.list_slots + out / columns]) + S::block_words;
    }
    return (S::streams ? a.lists : shared) + p.lists + out / columns * S::list_words;
  }
  __device__ __forceinline__ std::uint32_t* list_of(const W1Block& block) const {
    if constexpr (S::lists_in_slots) {
      return a.weights + w1_slot_start(block.where) + S::block_words;
    }
    return list_of(block.out);
  }
  /// What the 16 rows of the list of a block of W1, which folds at `phase`, are multiplied by for
  /// y: see ThreadBlock::write_list_factors.
  __device__ __forceinline__ const std::uint32_t* list_factors_of(int u, int phase) const {
    const int since = w1_phase() - phase;
    return area(u) + S::list_factors + (since < 0 ? since + S::w1_period : since) * S::table_row;
  }
  /// The factors of this step's folds; `which` is S::fold0 or S::fold1.
  __device__ __forceinline__ std::uint32_t* factors_of(std::uint32_t which, int u) const {
    return area(u) + which + (turn & (S::factor_copies - 1)) * S::factor_words;
  }
  /// Age of the gradient whose d1 is in list row e >= S::first_d1_row. `list_d1_rows - 1`, which
  /// is `w1_terms`: the row is that of the current step, and no gradient is listed in it yet.
  __device__ __forceinline__ int age_of(int e) const {
    const int age = now().d1_row - 1 - (e - S::first_d1_row);
    return age < 0 ? age + S::list_d1_rows : age;
  }
  /// List row that has d1 of the gradient of that age.
  __device__ __forceinline__ int list_row_of_age(int age) const {
    const int e = S::first_d1_row - 1 + now().d1_row - age;
    return e < S::first_d1_row ? e + S::list_d1_rows : e;
  }
  /// Index of list row e in a table of W1's coefficients by age (`w1_coefficients_of`). Remainder
  /// rows and bias take the entry that is 1.
  __device__ __forceinline__ int table_index(int e) const {
    return e < S::first_d1_row ? S::table_row - 2 : age_of(e);
  }
  /// A factor of the listed gradient of that age: h(j-2) (`what` is S::hidden) or d0(j) (S::d0),
  /// where j = t - 1 - age.
  __device__ __forceinline__ const float* listed_row(std::uint32_t what, int u, int age) const {
    const int back = what == S::d0 ? 1 : 3;
    return history_row(what, u, back + age);
  }
};

}  // namespace pvm::inline v0::detail::units
