// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How a unit's weights lie on the chip: the constants that plan, kernel and engine share.
///
/// Both matrices are cut into blocks of 16 columns of what they multiply, W0 by its inputs and W1,
/// transposed, by its outputs. In a block, eight rows (hidden values) are one tile, as a lane of
/// a tensor core's operand holds it: one row and two pairs of columns. In 16 bits two tiles are one
/// word of 16 bytes of each of a warp's lanes; fp32 weights lie in the same order, two such words.
/// 49 hidden values are six tiles and one row more. Of W0 that row is kept beside the tiles. Of W1
/// it shares two more tiles, the list, with the bias and with the last gradients d1 of the block's
/// outputs, so that one product gives both W1^T d1 and d1(j).d1, and another both W1 r and its
/// correction.

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>
#include <pvm/core/tags.hpp>

namespace pvm::inline v0::detail::chip {

inline constexpr int most_warps = 16;     ///< of a block of threads
inline constexpr int columns = 16;        ///< of a block
inline constexpr int ring = 32;           ///< rows of the past in device memory, a power of two
inline constexpr int history = 16;        ///< rows of a unit's past beside it, a power of two
inline constexpr int sums = 16;           ///< room for one number for each listed gradient
inline constexpr int ahead = 8;           ///< steps that a multiprocessor may be before another
inline constexpr int rounds = 2 * ahead;  ///< steps that are counted at once
inline constexpr int launch_steps = 256;  ///< of one launch, at most
/// Each step of a launch may have a table of rates for each layer, whose numbers have 16 bits.
inline constexpr std::size_t most_layers = (std::size_t{1} << 16) / (launch_steps + 1);
inline constexpr int group_slots = 6;  ///< sources whose inner products a warp reads at once

/// What a multiprocessor tells others lies in pieces of three words and a mark, the number of the
/// step after it: whoever reads the mark has the words, and nobody waits for anything else. Word of
/// value i of such a record, and its words when it has `count` values:
PVM_HOST_DEVICE constexpr std::uint32_t in_pieces(std::uint32_t i) { return i + i / 3; }
constexpr std::size_t words_in_pieces(std::size_t count) { return (count + 2) / 3 * 4; }

/// Whether units of `hidden` values can be cut into tiles.
constexpr bool fits_tiles(int hidden) {
  return hidden > 16 && hidden / 8 % 2 == 0 && hidden % 8 >= 1 && hidden % 8 <= 4;
}

/// Where weights and units are: on the chip, as far as there is room, with a warp for each unit; or
/// in device memory, from which every step streams all of them, whatever their number.
enum class Home { chip, memory };

template <class Precision, int Hidden, Home home = Home::chip>
struct Sizes {
  static constexpr bool streams = home == Home::memory;
  /// Where all is streamed, two blocks of threads share a multiprocessor, so that one's weights
  /// come while the other is between its passes. Each counts as a multiprocessor in what follows.
  static constexpr int together = streams ? 2 : 1;
  /// Whether weights are fp32, which need no masters beside them.
  static constexpr bool whole = std::same_as<Precision, fp32>;
  /// Whether each warp has one of three roles (specialised.cuh): some multiply, some finish units,
  /// some fold. Or one of two (pipelined.cuh): some stream weights, and fold them, while the others
  /// finish units. Otherwise all multiply and fold.
  static constexpr bool specialised = !streams && !whole;
  static constexpr bool pipelined = streams && !whole;
  static constexpr int multipliers = streams || specialised ? 8 : 12;
  static constexpr int finishers = pipelined || specialised ? 4 : 0;
  static constexpr int folders = specialised ? 4 : 0;
  static constexpr int warps = multipliers + finishers + folders;
  static constexpr int threads = warps * 32;
  static_assert(warps <= most_warps);
  static constexpr int in_a_word = whole ? 1 : 2;  ///< weights
  /// Registers of a thread of each role; all blocks of a multiprocessor have 65,536.
  static constexpr int multiplier_registers = pipelined ? 88 : 176;
  static constexpr int finisher_registers = pipelined ? 64 : 80, folder_registers = 80;
  /// Blocks of W0 in the registers of each warp.
  static constexpr int held_blocks = streams ? 0 : (whole ? 2 : 8);
  /// Of those that are streamed, how many are on their way to registers while one is multiplied.
  static constexpr int under_way = streams ? 1 : 2;
  /// And how many beyond those are sent for to the second-level cache: 16-bit weights that do not
  /// fit the chip are there already.
  static constexpr int sent_for = streams ? 1 : (whole ? 2 : 0);
  /// Blocks of W1 that each warp streams although there is room: they come while errors are made,
  /// when nothing else does, and what of W0 takes their place need not come while all wait for it.
  static constexpr std::size_t wide_ahead = whole ? 1 : 0;
  /// How long a block of W1 takes beside one of W0. In fp32 there is not room for all of it where
  /// many of its blocks meet.
  static constexpr double wide_cost = streams ? 1.5 : (whole ? 2.4 : 1.3);
  /// And a unit, whatever its blocks.
  static constexpr double unit_cost = streams || whole ? 28 : 24;
  /// How many blocks of W0 take a warp as long as to begin with those of another unit.
  static constexpr std::size_t another_unit = 4;
  /// Blocks of fp32 W0 that warps get which finish a unit, read a patch, write factors, or nothing
  /// of it: such that all warps are busy for as long.
  static constexpr double shares[] = {1.0, 1.05, 0.9, 1.0};
  /// Of a multiprocessor: on the chip other warps write their factors, and where a step is
  /// pipelined seven bits say which unit it is (`input_unit_shift`).
  static constexpr std::size_t most_units = pipelined ? 127
                                            : streams ? 255
                                                      : (specialised ? 8 : warps / 2);
  /// Of fp32 weights that are streamed, the part that is marked to stay in that cache.
  static constexpr int stays_percent = 20;

  static constexpr int tiles = Hidden / 8;
  static constexpr int rest = Hidden % 8;  ///< rows beside the tiles
  static constexpr int pairs = tiles / 2;
  static_assert(fits_tiles(Hidden),
                "weights stay on the chip for units whose hidden values are tiles of 16 and 1 to 4"
                " more, like 36, 49 or 81; use the engine for batches for others");

  /// Columns for listed d1 in the two tiles that W1 has more, and gradients that are listed: one
  /// column is being written while the others are used.
  static constexpr int lags = 15 - rest;
  static constexpr int terms = lags - 1;
  static constexpr int most_period = terms;

  /// 32-bit words of a block's tiles, of the rows beside those of W0, and of W1's list.
  static constexpr int block_words = tiles * 8 * columns / in_a_word;
  static constexpr int rest_words = rest * columns / in_a_word;
  static constexpr int list_words = 16 * columns / in_a_word;
  /// Of the rows beside the tiles of W1 in device memory, which are one more. Tiles lie there apart
  /// from such rows, so that they begin with a line of the second-level cache.
  static constexpr int wide_rest_words = rest_words + columns / in_a_word;
  static constexpr int line_words = 32;
  static_assert(block_words % line_words == 0);

  /// Words of a unit's values in a row, one more for the 1 of the bias.
  static constexpr int values = (Hidden + 4) / 4 * 4;
  static constexpr int operands = pairs + 1;  ///< of 16 rows each, for all rows of a fold
  /// Pieces of a unit's record: c(h), then the inner products with the listed past.
  static constexpr int value_pieces = (Hidden + 2) / 3;
  static constexpr int product_pieces = (terms + 2) / 3;
  static constexpr int record = 4 * (value_pieces + product_pieces);
  // A fold reads the inputs of the oldest listed gradient and of the step before.
  static_assert(ahead + terms + 6 <= ring, "the fastest writes over what the slowest reads");
  static_assert(group_slots * product_pieces <= 32, "a warp reads the products of a group at once");
  /// Context sources that fold together, at most: where some warps fold for others, fewer, so that
  /// as much folds in one step as in another.
  static constexpr std::size_t panel_slots = specialised ? 4 : group_slots;

  /// What a unit has beside weights and inputs, in words from its start: in shared memory, or,
  /// where all is streamed, in device memory.
  static constexpr std::uint32_t tables =
      0;  ///< weight of listed gradients, [since a fold | folds]
  static constexpr std::uint32_t primary = tables + (most_period + 1) * sums;
  static constexpr std::uint32_t listed = primary + 2 * sums;
  static constexpr std::uint32_t raw = listed + most_period * sums;  ///< h(t), in two parts
  /// Each warp's part of W0 x, and that of the listed gradients; then each warp's of W1^T d1.
  static constexpr std::uint32_t part0 = raw + values;
  static constexpr std::uint32_t listed_part = part0 + multipliers * values;
  static constexpr std::uint32_t part1 = listed_part + values;
  static constexpr int part1_words = tiles * 8 + 16;
  static constexpr std::uint32_t hidden = part1 + multipliers * part1_words;  ///< [history] rows
  static constexpr std::uint32_t d0 = hidden + history * values;
  static constexpr std::uint32_t squeezed = d0 + history * values;
  /// Factors of the folds of W0 and W1, and whether there are any, of even and odd steps: of 16-bit
  /// weights operands, made of some words more than a row has, of others the coefficients. Where
  /// warps have roles those of a step are written over the last one's, when all have read these.
  static constexpr std::uint32_t fold0 = squeezed + history * values;
  static constexpr int factor_words = whole ? sums : operands * 128;
  static constexpr int factor_turns = finishers > 0 ? 1 : 2;
  /// Held blocks that a folder folds in a step while they are multiplied, at most.
  static constexpr int early_folds = 6;
  /// Of a warp that folds; those keep the rows beside their tiles there until nobody reads these.
  static constexpr int scratch_words =
      whole ? terms * columns + 4 : (specialised ? early_folds * rest_words : 0);
  static constexpr std::uint32_t fold1 = fold0 + factor_turns * factor_words;
  /// Words of the last steps' hidden values and d0, and some that are read behind them.
  static constexpr int past_words = 2 * history * values + 16, squeezed_words = history * values;
  static constexpr std::uint32_t gains = fold1 + factor_turns * factor_words;
  static constexpr std::uint32_t opened = gains + 2;  ///< which tables are there, if any
  static constexpr std::uint32_t corner = gains + 3;  ///< of its patch in a frame
  /// Where y(t - 1) is made in step t: the weights of listed gradients for that, [since a fold],
  /// and the inner products of h(t - 1) with its past, by age.
  static constexpr std::uint32_t tables_after = gains + 4;
  static constexpr std::uint32_t products = tables_after + (pipelined ? most_period * sums : 0);
  /// Tables of a launch's steps, 16 bits each, and, for the last y, of the step after it.
  static constexpr std::uint32_t rates = products + (pipelined ? sums : 0);
  static constexpr std::uint32_t unit_words = rates + launch_steps / 2 + (pipelined ? 4 : 0);
  static_assert(fold0 % 4 == 0 && unit_words % 4 == 0 && part0 % 4 == 0 && part1 % 4 == 0);
};

/// A unit as its multiprocessor sees it.
struct ChipUnit {
  std::uint32_t unit, layer;
  std::uint32_t base, padded;  ///< P, and P in whole blocks
  std::uint32_t x;    ///< word of [A of even steps | A of odd steps | context, 1], in whole blocks
  std::uint32_t one;  ///< word of the 1 of the bias
  std::uint32_t out;  ///< first of its 2 * padded outputs among this multiprocessor's
  std::uint32_t all_out;              ///< and among all outputs
  std::uint32_t first_slot, primary;  ///< its slots, of which so many, the first, are primary
  std::uint32_t groups, products;     ///< [groups][32]: what each lane reads of inner products
  std::uint32_t own_phase[3];         ///< when A, B and the bias fold
  std::uint32_t patch;                ///< in layer 0: which, else not_a_patch
  std::uint32_t seen;                 ///< word of the patch's own history, [history][patch_row]
  /// Where all is streamed: words in shared memory where hidden values and d0 of the last steps
  /// are, and squeezed ones, or `in_memory`: they are in its area there.
  std::uint32_t past, squeezed;
};
inline constexpr std::uint32_t not_a_patch = ~0U;
/// Of what may be in shared memory: it is in device memory.
inline constexpr std::uint32_t in_memory = ~0U;
/// What a lane reads of a source's inner products: where, in a row of the past, and when what the
/// source feeds folds.
inline constexpr int phase_shift = 24;
inline constexpr std::uint32_t no_source = (1U << phase_shift) - 1;

/// A source: where its record starts in a row of the past, and the word where its values go on even
/// (low half) and odd steps.
struct alignas(8) ChipSlot {
  std::uint32_t from, to;
};

/// A block of W0, as the warp that has it sees it. Its inputs are values of one or two records of a
/// row of the past: column c is value `from` + c of the first, from column `cut` on value c - cut
/// of the second.
struct alignas(16) ChipBlock {
  std::uint32_t x;      ///< word of its first input on even (low half) and odd steps
  std::uint32_t what;   ///< unit of the multiprocessor | phase << 8 | blocks left of it << 20
  std::uint32_t where;  ///< word in shared memory, or `in_memory`; held blocks come first
  std::uint32_t block;  ///< among all
  std::uint32_t first, second, from;
  std::uint16_t cut;
  std::uint16_t back;  ///< how many rows before the current one the last listed input is
};
/// In `what`: the unit of the multiprocessor, when the block folds, and how many blocks of its unit
/// a warp has from here.
inline constexpr int run_shift = 20;
PVM_HOST_DEVICE constexpr int unit_in(std::uint32_t what) { return static_cast<int>(what & 0xffU); }
PVM_HOST_DEVICE constexpr int phase_in(std::uint32_t what) { return unit_in(what >> 8); }
PVM_HOST_DEVICE constexpr std::uint32_t left_in(std::uint32_t what) { return what >> run_shift; }
/// In the list of blocks' inputs, where a step is pipelined.
inline constexpr int input_unit_shift = 24;
inline constexpr std::uint32_t last_of_unit = 1U << 31;
/// Blocks of W0 of one unit that a warp has, one behind the other, where warps have roles.
struct alignas(16) ChipRun {
  std::uint32_t sums;   ///< word where this warp's part of the unit's W0 x goes
  std::uint32_t block;  ///< number of the warp's first block that is streamed late
  /// A bit for each block of those that are streamed early, then of those that are held; how many
  /// lie in shared memory << 16.
  std::uint32_t there;
  /// Of the blocks that are streamed late: the first | the end << 8 | how many the warp has << 16;
  /// `last_run`.
  std::uint32_t late;
};
inline constexpr std::uint32_t last_run = 1U << 31;
/// Among the blocks that fold: one of W1.
inline constexpr std::uint32_t wide_fold = 1U << 31;
/// Among the numbers of a warp's blocks: none.
inline constexpr std::uint32_t no_block = ~0U;

/// A block of W1.
struct alignas(16) ChipWideBlock {
  std::uint32_t what;   ///< like a ChipBlock's
  std::uint32_t out;    ///< first of its outputs among this multiprocessor's
  std::uint32_t where;  ///< word in shared memory, or, of fp32 weights, `in_memory`
  std::uint32_t block;
};

/// Sixteen outputs, and what they are to become.
struct alignas(16) ChipTarget {
  std::uint32_t x;      ///< word of the first target on even (low half) and odd steps
  std::uint32_t count;  ///< outputs; the others are padding
  std::uint32_t out;    ///< the first, among all outputs
  std::uint32_t seen;   ///< word of its target in the first row of a patch's history, or `no_pixel`
};
inline constexpr std::uint32_t no_pixel = ~0U;

/// Shared memory, in words from its start: what all multiprocessors have at the same places, the
/// areas of the units, then a multiprocessor's program and what it says is where.
struct ChipAreas {
  static constexpr std::uint32_t now = 0;  ///< of a step and those after it
  static constexpr std::uint32_t launch = now + 4 * 8;
  static constexpr std::uint32_t gates = launch + 16;  ///< where warps have roles
  static constexpr std::uint32_t score = gates + 2 * 4;
  static constexpr std::uint32_t frames = score + most_warps * 3 * 2;  ///< of a launch's steps
  static constexpr std::uint32_t scored = frames + 2 * launch_steps;
  static constexpr std::uint32_t offsets = scored + launch_steps / 4;  ///< of a patch's pixels
  std::uint32_t units;
  std::uint32_t scratch;  ///< of all warps
};

/// Everything a multiprocessor's step consists of; lists follow it, at word offsets from the start
/// of shared memory.
struct ChipProgram {
  std::uint32_t start, words;  ///< where it is in shared memory, and its words with its lists
  std::uint32_t unit_count, slot_count, out_count, x_words;
  std::uint32_t units, slots, blocks, wide_blocks, targets, products;
  std::uint32_t folding, folding_start;  ///< a warp's blocks by phase; [warps][period + 1]
  std::uint32_t first_in_pass;  ///< [warps][period]: the first that folds while it is streamed
  /// Where some warps fold for others, `folding` has blocks of W1, too (`wide_fold`), and
  /// `folding_start` tells held blocks of W0 from others and from those, [folders][period][3] and
  /// the end; and a bit for each held block that folds in a phase, [multipliers][period].
  std::uint32_t reload;
  std::uint32_t inputs, input_count;  ///< words of blocks' first inputs, of even and of odd steps
  std::uint32_t block_start[most_warps + 1], wide_start[most_warps + 1];
  /// Of a warp's blocks the first are held; then come those that are not on the chip, up to
  /// `streamed_to`, then others. Where warps have roles the first, up to `streamed_to`, are not on
  /// the chip; then come those held, those in shared memory, and from `late_from` on such as the
  /// first.
  std::uint32_t streamed_to[most_warps], late_from[most_warps];
  std::uint32_t rest_first[most_warps];  ///< where a warp's rows beside the tiles start
  /// Areas whose sizes are each multiprocessor's own; `lists` are those of W1, block by block.
  std::uint32_t x, y, d1, lists, seen;
  /// Where warps have roles: the runs of blocks of each that multiplies, and where its blocks in
  /// shared memory begin.
  std::uint32_t runs, run_start[most_warps], shared_from[most_warps];
  /// Where all is streamed: the first block of W0, among all. A warp's follow those of the one
  /// before.
  std::uint32_t first_block;
};

}  // namespace pvm::inline v0::detail::chip
