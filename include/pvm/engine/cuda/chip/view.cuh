// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where a thread of a multiprocessor's block is, and where everything is that it works with.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/chip/state.cuh>
#include <pvm/engine/cuda/instructions.cuh>

namespace pvm::inline v0::detail::chip {

/// Calls store(i, load(i)) for all i below `count`, the work of `threads` threads of which this is
/// number `me`, with several loads under way at once: a launch begins with many trips to memory.
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

/// One thread's view. Every function is inlined.
template <class Precision, int Hidden, Home home>
struct View {
  using S = Sizes<Precision, Hidden, home>;

  const ChipArguments& a;
  const ChipProgram& p;
  std::uint32_t* shared;
  mutable int thread;  ///< in its block
  int turn;            ///< which ChipNow

  /// What comes from the thread's number is made again from here on: registers are for weights, and
  /// the compiler would keep all of it for the whole run.
  __device__ __forceinline__ void begin_phase() const { thread = thread_number(); }
  __device__ __forceinline__ int warp() const { return thread >> 5; }
  __device__ __forceinline__ int lane() const { return thread & 31; }
  /// A lane's row and pair of columns in tensor-core operands.
  __device__ __forceinline__ int row() const { return lane() >> 2; }
  __device__ __forceinline__ int pair() const { return (lane() & 3) * 2; }

  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return reinterpret_cast<const T*>(shared + at);
  }
  __device__ __forceinline__ float* floats(std::uint32_t at) const {
    return reinterpret_cast<float*>(shared + at);
  }
  /// The area of unit u of this multiprocessor.
  __device__ __forceinline__ std::uint32_t* area(int u) const {
    if constexpr (S::streams) {
      return a.unit_areas + static_cast<std::size_t>(unit(u).unit) * S::unit_words;
    }
    return shared + a.areas.units + static_cast<std::uint32_t>(u) * S::unit_words;
  }
  __device__ __forceinline__ float* float_area(int u) const {
    return reinterpret_cast<float*>(area(u));
  }
  __device__ __forceinline__ ChipNow& now(int which) const {
    return *reinterpret_cast<ChipNow*>(shared + ChipAreas::now + which * 8);
  }
  __device__ __forceinline__ const ChipNow& now() const { return now(turn); }
  __device__ __forceinline__ ChipLaunch& launch() const {
    return *reinterpret_cast<ChipLaunch*>(shared + ChipAreas::launch);
  }
  __device__ __forceinline__ const ChipUnit& unit(int u) const {
    return list<ChipUnit>(p.units)[u];
  }
  __device__ __forceinline__ int unit_count() const { return static_cast<int>(p.unit_count); }
  __device__ __forceinline__ std::uint32_t* past(unsigned long long step) const {
    return a.past + static_cast<std::size_t>(step & (ring - 1)) * a.row_words;
  }
  /// What unit u had in the last steps, [history] rows: `what` is S::hidden, squeezed or d0.
  __device__ __forceinline__ float* history_rows(std::uint32_t what, int u) const {
    if constexpr (S::streams) {
      const bool squeezed = what == S::squeezed;
      const std::uint32_t at = squeezed ? unit(u).squeezed : unit(u).past;
      if (at != in_memory) return floats(at) + (squeezed ? 0 : what - S::hidden);
    }
    return float_area(u) + what;
  }
  /// Of these the values of step `step`.
  __device__ __forceinline__ float* history_row(std::uint32_t what, int u,
                                                unsigned long long step) const {
    return history_rows(what, u) + static_cast<unsigned>(step & (history - 1)) * S::values;
  }
  /// The patch that a unit saw in step `step`.
  __device__ __forceinline__ float* seen(const ChipUnit& my, unsigned long long step) const {
    return floats(my.seen) + static_cast<unsigned>(step & (history - 1)) * a.patch_row;
  }
  /// Coefficients of the listed gradients by age, for blocks that fold at `phase`; then 0, 1, 0.
  __device__ __forceinline__ const float* weights_of(int u, int phase) const {
    const int since = now().phase - phase;
    return float_area(u) + S::tables + (since < 0 ? since + a.period : since) * sums;
  }
  __device__ __forceinline__ float* folds_of(int u) const {
    return float_area(u) + S::tables + S::most_period * sums;
  }
  /// Whether blocks of unit u gain anything when they fold in this step.
  __device__ __forceinline__ std::uint32_t& gains(int u) const {
    return area(u)[S::gains + (static_cast<std::uint32_t>(turn) & 1U)];
  }

  /// Whether it is the turn of a block of W0 or W1 to fold, and whether it then gains anything.
  __device__ __forceinline__ bool has_turn(std::uint32_t what) const {
    return phase_in(what) == now().phase;
  }
  __device__ __forceinline__ bool folds(std::uint32_t what) const {
    return has_turn(what) && gains(unit_in(what)) != 0;
  }

  // -------------------------------------------------------------- blocks of weights

  /// Where a step is pipelined they are in device memory, because only folds look at them, and by
  /// when they fold.
  __device__ __forceinline__ const ChipBlock* my_blocks() const {
    if constexpr (S::pipelined) {
      const std::uint32_t* program = a.programs + a.program_start[blockIdx.x];
      return reinterpret_cast<const ChipBlock*>(program + (p.blocks - p.start)) +
             p.block_start[warp()];
    }
    return list<ChipBlock>(p.blocks) + p.block_start[warp()];
  }
  __device__ __forceinline__ int my_count() const {
    return static_cast<int>(p.block_start[warp() + 1] - p.block_start[warp()]);
  }
  /// And of W1.
  __device__ __forceinline__ const ChipWideBlock* my_wide_blocks() const {
    return list<ChipWideBlock>(p.wide_blocks) + p.wide_start[warp()];
  }
  __device__ __forceinline__ int my_wide_count() const {
    return static_cast<int>(p.wide_start[warp() + 1] - p.wide_start[warp()]);
  }
  /// Where all is streamed, a warp's blocks of W0 lie one behind the other: the first, and where
  /// the rows beside the tiles of a block are.
  __device__ __forceinline__ std::uint32_t first_block() const {
    return p.first_block + p.block_start[warp()];
  }
  __device__ __forceinline__ std::uint32_t* rest_at(std::uint32_t block) const {
    return a.weights + a.beside + static_cast<std::size_t>(block) * S::rest_words;
  }
  /// To the second-level cache, by a warp.
  template <int Words>
  __device__ __forceinline__ void prefetch(const std::uint32_t* words) const {
    static_assert(Words <= 32 * S::line_words);
    if (lane() * S::line_words < Words) prefetch_line(words + lane() * S::line_words);
  }
  /// Outputs of step t: the first is number `local` of this multiprocessor's, `all` of all.
  __device__ __forceinline__ float* outputs_of(unsigned long long t, std::uint32_t local,
                                               std::uint32_t all) const {
    const auto odd = static_cast<unsigned>(t & 1);
    if constexpr (S::streams) return a.y + static_cast<std::size_t>(odd) * a.output_row + all;
    return floats(p.y) + odd * p.out_count + local;
  }
  /// Where their tiles start among all weights.
  __device__ __forceinline__ static std::size_t start_of(std::uint32_t block) {
    return static_cast<std::size_t>(block) * S::block_words;
  }
  __device__ __forceinline__ std::size_t start_of(const ChipBlock& block) const {
    return start_of(block.block);
  }
  __device__ __forceinline__ std::size_t start_of(const ChipWideBlock& block) const {
    return a.wide + start_of(block.block);
  }
  /// And the rows beside them.
  __device__ __forceinline__ std::size_t beside_of(const ChipBlock& block) const {
    return a.beside + static_cast<std::size_t>(block.block) * S::rest_words;
  }
  __device__ __forceinline__ std::size_t beside_of(const ChipWideBlock& block) const {
    return a.wide_beside + static_cast<std::size_t>(block.block) * S::wide_rest_words;
  }
  template <class Block>
  __device__ __forceinline__ std::uint32_t* words_of(const Block& block) const {
    return a.weights + start_of(block);
  }
  /// Where in a row of the past the input of a block's column is.
  __device__ __forceinline__ static std::uint32_t place_in_past(const ChipBlock& block,
                                                                std::uint32_t column) {
    return column < block.cut ? block.first + in_pieces(block.from + column)
                              : block.second + in_pieces(column - block.cut);
  }
  /// The list beside W1's tiles of 16 outputs, of which `out` is one.
  __device__ __forceinline__ std::uint32_t* list_of(std::uint32_t out) const {
    return (S::streams ? a.lists : shared) + p.lists + out / columns * S::list_words;
  }
  /// The hidden values that a block of W1 is multiplied by beside its own: see list_representation.
  __device__ __forceinline__ const std::uint32_t* listed_of(int u, int phase) const {
    const int since = now().phase - phase;
    return area(u) + S::listed + (since < 0 ? since + a.period : since) * sums;
  }
  /// Where the factors of this step's folds are; `which` is S::fold0 or S::fold1.
  __device__ __forceinline__ std::uint32_t* factors_of(std::uint32_t which, int u) const {
    return area(u) + which + (turn & (S::factor_turns - 1)) * S::factor_words;
  }
  /// How old the gradient is that stands in column e of those beside W1's tiles; `lags - 1`: none.
  __device__ __forceinline__ int age_of(int e) const {
    const int age = now().lag - 1 - (e - S::rest - 1);
    return age < 0 ? age + S::lags : age;
  }
  /// And the column of the gradient of that age.
  __device__ __forceinline__ int column_of(int age) const {
    const int column = S::rest + now().lag - age;
    return column <= S::rest ? column + S::lags : column;
  }
  /// Where in a table that column's coefficient stands: 14 is 1, for W1's own columns.
  __device__ __forceinline__ int table_place(int e) const {
    return e <= S::rest ? sums - 2 : age_of(e);
  }
  /// The row of a listed gradient's hidden values (`what` is S::hidden) or d0, by age.
  __device__ __forceinline__ const float* listed_row(std::uint32_t what, int u, int age) const {
    const int back = what == S::d0 ? 1 : 3;
    return history_row(what, u, now().step - static_cast<unsigned>(back + age) + history);
  }
};

}  // namespace pvm::inline v0::detail::chip
