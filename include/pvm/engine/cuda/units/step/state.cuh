// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The arguments of the kernels in this directory, which name the state in device memory that lives
/// from launch to launch; and what a thread block knows of the launch and the step, in shared
/// memory.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/run/cursor.hpp>
#include <pvm/engine/cuda/run/most_shards.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/timeline.hpp>

namespace pvm::inline v0::detail::units {

/// In a shard: the other shards of its network.
struct Peers {
  int count;                             ///< of the others
  unsigned int thread_blocks;            ///< of all shards
  std::uint32_t* past[most_shards - 1];  ///< Arguments::past of each other shard
  unsigned int* begun[most_shards - 1];  ///< and its Arguments::begun
};

struct Arguments {
  Areas areas;
  /// `patch` is the number of values of a patch, `block_size` its side, `side` the side of a frame
  /// in pixels.
  int units, layers, patches, patch, block_size, channels, side;
  /// Hidden values that a unit has (the rest of `Hidden` is padding), the pieces of a record that
  /// have them, and 2^31 divided by these, rounded up: a division is a product then.
  int used, used_pieces;
  unsigned int pieces_inverse;
  /// A row of the past, in words: its length, where the records of patches start, the length of
  /// such a record, and where in it the inner products start.
  unsigned int row_words, first_patch, patch_record, patch_products;
  unsigned int patch_row;               ///< words of a row of a patch's history in shared memory
  unsigned int hidden_row, output_row;  ///< floats of a row of `hidden` and `d0`; of `d1` and `y`
  int activation;                       ///< 0 polynomial, 1 with the true derivative, 2 logistic
  int sign_error;                       ///< whether units learn from the sign of their error
  int staging, block_steps, table_stride;
  int most_steps;                      ///< of this launch
  const std::uint32_t* programs;       ///< the programs of all thread blocks
  const std::uint32_t* program_start;  ///< word where each of them starts
  /// If `in_slots` (`take_program`): the sides of SMs, by their number (null: none is known); the
  /// order in which thread blocks take programs; and how many of each side have taken one in this
  /// launch, [2].
  const std::uint8_t* sides;
  const std::uint32_t* order;
  unsigned int* taken;
  /// Tiles of W0, tiles of W1, remainder rows of W0, remainder rows of W1 with the bias. In 16 bits
  /// these are the high halves, and the low halves follow in the same order. If `in_slots`: chunks
  /// with the slots of all blocks (Sizes::SlotKind).
  std::uint32_t* weights;
  unsigned long long w1, remainder, w1_remainder;  ///< words where the latter three parts start
  unsigned long long low_halves;                   ///< word where the low halves start
  /// If all weights are streamed: how many words behind W1's chunks those with its low halves are.
  unsigned long long w1_low_halves;
  /// If all weights are streamed: W1's lists, unless slots have them, and the areas of units.
  std::uint32_t *lists, *unit_areas;
  /// [ring][row_words]: in each row the records of units, those of patches, 1, and zeros.
  std::uint32_t* past;
  float* hidden;          ///< h, [ring][units][used]
  float* d0;              ///< [history][units][used]
  float* d1;              ///< [history][outputs]
  float* y;               ///< [2][outputs]
  double* score;          ///< [thread blocks][warps][3], see `errors`
  Cursor* cursor;         ///< where the run stands
  unsigned int* barrier;  ///< number of thread blocks that have ended their launch
  /// [rounds]: entry i counts, over all thread blocks, how often steps i, i + rounds and so on have
  /// begun.
  unsigned int* begun;
  const std::uint8_t* const* frames;  ///< [staging][block_steps]
  const float* squeezed;              ///< [staging][block_steps][...]
  const std::uint8_t* scored;         ///< [staging][block_steps]
  const std::uint32_t* index;         ///< see general::StepArguments
  const float* coefficients;          ///< see CoefficientTables
  int second_part;                    ///< of its tables: where the coefficients of W1 are
#if defined(PVM_TIMELINE)
  TimelineMarks timeline;
#endif
  Peers peers;  ///< unused unless Sizes::shards
};

inline constexpr unsigned int every_lane = 0xffffffffU;

/// What a thread block knows of the launch, in shared memory.
struct Launch {
  const std::uint32_t* index;         ///< numbers of the tables of its steps, [steps][layers]
  const float* coefficients;          ///< the tables
  const std::uint8_t* const* frames;  ///< pixels, by step
  const std::uint8_t* scored;         ///< whether a frame counts for the score, by step
  const float* squeezed;              ///< frames as floats; null if they are pixels
  int count;                          ///< steps of the launch
  bool ends;                          ///< whether it uses up the staged block of frames
};
/// What a thread block knows of a step. There are several of them, because warps do not begin a
/// step at the same time.
struct Now {
  unsigned long long step;
  int frame;  ///< number of the step in the launch
  int phase;  ///< step % period
  /// step % list_d1_rows: row S::first_d1_row + d1_row of W1's lists takes d1 of this step.
  int d1_row;
  /// If `two_plans`: step % w1_period; if `counts_rows`: step % past_rows.
  int w1_phase, past_row;
};
static_assert(sizeof(Now) <= 8 * sizeof(float), "the plan keeps 8 words for each");
static_assert(sizeof(Launch) <= 16 * sizeof(float), "the plan keeps 16 words for it");

}  // namespace pvm::inline v0::detail::units
