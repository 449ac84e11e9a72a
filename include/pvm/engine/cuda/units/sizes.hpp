// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Constants and program structures that the host's plan, the kernels and the engine share: how
/// the weights of a unit are laid out, what a unit keeps beside them, and where everything is in
/// shared memory.
///
/// A block is Hidden rows (hidden values) by 16 columns of a unit's matrix: 16 inputs of W0, or 16
/// outputs of W1, which is stored transposed. Eight rows of a block are a tile; two tiles are one
/// 16 x 16 mma operand A, of which each lane holds two pairs of columns of one row of each tile.
/// In 16 bits that is one 16-byte word for each lane; fp32 weights have the same order and take two
/// such words. Rows beyond full tiles are the remainder rows: 49 = 6 * 8 + 1, and 64 has none.
///
///     W0:  tiles, and apart from them the remainder rows
///     W1:  tiles, and the list, two more tiles, 16 rows e by the block's 16 outputs:
///          e < remainder_rows     remainder rows of W1^T
///          e == remainder_rows    the bias
///          e >= first_d1_row      d1 of the last steps, a ring buffer of `list_d1_rows` rows
///          Without remainder rows, row 1 is between these and 0.
///
/// One product of the list with d1 gives both the remainder rows of W1^T d1 and the inner products
/// d1(j).d1. One product of the transposed list with 16 factors gives what the remainder rows, the
/// bias and the listed gradients add to W1 r (r is h with a 1 for the bias behind it).
///
/// Terms: `phase` is the step number modulo the fold period R, which W0 and W1 have each their own
/// of; a block folds in the steps of its own phase. The `age` in step t of the listed gradient of
/// step j is t - 1 - j. A held block stays in registers for a whole launch; a streamed block is
/// loaded from device memory in every step. Names with `w1` are about W1; the same names without it
/// are about W0, or about both.
///
/// Outputs may read the context, too (`reads_context`). The columns of W1 for that are a matrix of
/// their own, Wc: y = f(W1 [h | 1] + Wc h'), where h' are hidden values of the context's sources of
/// the step before. Wc is cut like W0: a block is `group_outputs` outputs (a group, those of
/// `pairs` blocks of W1) by 16 columns of the context, and is multiplied in the pass over W0. A
/// group folds as a whole, in the phase of its blocks of W1, so that their lists' products with
/// factors serve both matrices.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>
#include <pvm/core/tags.hpp>

namespace pvm::inline v0::detail::units {

inline constexpr int most_warps = 16;        ///< of a thread block, at most
inline constexpr int columns = 16;           ///< of a block of weights
inline constexpr int line_words = 32;        ///< of a line of the L2 cache
inline constexpr int published_hidden = 49;  ///< hidden values of a unit in most published specs
/// Lines, and words, of a chunk: memory on one side of the L2 cache.
inline constexpr int chunk_lines = 32, chunk_words = chunk_lines * line_words;
inline constexpr int ring = 32;           ///< usual Sizes::ring, which shards have
inline constexpr int ahead = 8;           ///< steps that one thread block may be ahead of another
inline constexpr int rounds = 2 * ahead;  ///< counters of begun steps; step t uses t % rounds
inline constexpr int launch_steps = 256;  ///< of one launch, at most
/// Each step of a launch, and the step after it, may have its own table of coefficients for each
/// layer; the numbers of these tables have 16 bits.
inline constexpr std::size_t most_layers = (std::size_t{1} << 16) / (launch_steps + 1);

/// Thread blocks exchange data in pieces of 16 bytes, written and read whole: three words of data
/// and a tag, the number of the step after the one the data belongs to. A reader that finds the
/// expected tag also has the three words, so no other synchronisation is needed. A record is a
/// sequence of pieces. `in_pieces(i)` is the word of value i in a record, `words_in_pieces(count)`
/// the length in words of a record of `count` values.
PVM_HOST_DEVICE constexpr std::uint32_t in_pieces(std::uint32_t i) { return i + i / 3; }
constexpr std::size_t words_in_pieces(std::size_t count) { return (count + 2) / 3 * 4; }

/// Whether these engines can run units of `hidden` values: they are cut into an even number of full
/// tiles and at most 4 remainder rows. Only where 16-bit weights stream (`pipelined`) may there be
/// no remainder rows, or more than 64 values: elsewhere a warp keeps or sends a unit's values in
/// two registers of each lane.
constexpr bool fits_tiles(int hidden, bool pipelined) {
  const bool fits = hidden > 16 && hidden / 8 % 2 == 0 && hidden % 8 <= 4;
  return fits && (pipelined ? hidden <= 104 : hidden <= 64 && hidden % 8 >= 1);
}

/// Where weights and unit areas are: `resident`, in registers and shared memory as far as there is
/// room; or `streamed`, in device memory, from which every step streams all weights, however many
/// units there are. The latter two are the same for a shard, a launch that has some of a network's
/// units and exchanges records with launches that have the others (step/exchange.cuh).
/// `streamed_context` is `streamed` for networks whose outputs read the context;
/// `resident_long_lists` is `resident` in fp32 for a momentum that lives longer.
enum class Home {
  resident,
  streamed,
  resident_shard,
  streamed_shard,
  streamed_context,
  resident_long_lists
};
constexpr bool is_shard(Home home) {
  return home == Home::resident_shard || home == Home::streamed_shard;
}
/// The home of a shard of `home`; and of whole networks whose plan a shard has a part of.
constexpr Home shard_of(Home home) {
  return home == Home::streamed ? Home::streamed_shard : Home::resident_shard;
}
constexpr Home whole_of(Home home) {
  if (home == Home::streamed_shard) return Home::streamed;
  return home == Home::resident_shard ? Home::resident : home;
}
/// Whether every step streams all weights from device memory.
constexpr bool streams_all(Home home) {
  return home != Home::resident_long_lists && whole_of(home) != Home::resident;
}

template <class Precision, int Hidden, Home home = Home::resident>
struct Sizes {
  /// Whether every step streams all weights from device memory.
  static constexpr bool streams = streams_all(home);
  /// Whether outputs read the context.
  static constexpr bool reads_context = home == Home::streamed_context;
  /// Whether lists hold gradients until a momentum of 0.5 has died out.
  static constexpr bool long_lists = home == Home::resident_long_lists;
  /// Whether units may have fewer than Hidden values. The rest are padding: h and c(h) are 0, and
  /// so are the weights that make and read them, and their gradients. Nobody gathers them. Kernels
  /// for the published number have no code for that.
  static constexpr bool pads = Hidden != published_hidden;
  /// Whether units may have so few values that a block's inputs are of more than two records.
  static constexpr bool lists_places = pads && !streams;
  /// Whether there are other launches that have the rest of the network's units.
  static constexpr bool shards = is_shard(home);
  /// Thread blocks on each streaming multiprocessor (SM). When all weights are streamed there are
  /// two, so that one loads weights while the other is between its passes.
  static constexpr int thread_blocks_per_sm = streams ? 2 : 1;
  /// Whether weights are fp32. Otherwise a weight is two 16-bit halves: the high half is the
  /// working copy that is multiplied, the low half holds what rounding left out (masters.cuh).
  static constexpr bool fp32_weights = std::same_as<Precision, fp32>;
  /// In `specialised` each warp has one of three roles (specialised.cuh): it multiplies, finishes
  /// units, or folds. In `pipelined` it has one of two roles (pipelined.cuh): it streams weights
  /// and folds them, or finishes units. If neither is set, all warps multiply and fold.
  static constexpr bool specialised = !streams && !fp32_weights;
  static constexpr bool pipelined = streams && !fp32_weights;
  /// Whether blocks have slots in device memory on the side of the L2 cache that reads them
  /// (sides.cuh). In `specialised` this gains nothing (row 117 of docs/log/units.md).
  static constexpr bool in_slots = !specialised;
  static constexpr int tiles = Hidden / 8;           ///< of a block, eight rows each
  static constexpr int remainder_rows = Hidden % 8;  ///< rows beyond full tiles
  static constexpr int pairs = tiles / 2;            ///< of tiles: 16 rows, one mma operand A
  /// Whether blocks are so large that a warp has registers for one copy of a block only, the stored
  /// one, and an SM has them for no more than four streamers in a thread block.
  static constexpr bool large_blocks = pipelined && pairs > 4;
  /// Whether a block's tiles take 12 bits a weight in device memory (packed.hpp).
  static constexpr bool packed = pipelined && !large_blocks && std::same_as<Precision, bf16>;
  static constexpr int multipliers = large_blocks ? 4 : streams || specialised ? 8 : 12;
  static constexpr int finishers = pipelined || specialised ? 4 : 0;
  static constexpr int folders = specialised ? 4 : 0;
  static constexpr int warps = multipliers + finishers + folders;
  static constexpr int threads = warps * 32;
  static_assert(warps <= most_warps);
  static_assert(finishers == 0 || (multipliers % 4 == 0 && finishers % 4 == 0 && folders % 4 == 0),
                "four warps change the number of their registers together");
  static constexpr int weights_per_word = fp32_weights ? 1 : 2;  ///< words of 32 bits
  /// Registers per thread of each role (`setmaxnreg`); an SM has 65,536 for its thread blocks.
  static constexpr int multiplier_registers = pipelined && !large_blocks ? 88 : 176;
  static constexpr int finisher_registers = pipelined && !large_blocks ? 64 : 80;
  static constexpr int folder_registers = 80;
  /// Blocks of W0 that each multiplying warp holds in registers.
  static constexpr int held_blocks = streams ? 0 : (fp32_weights ? 2 : 8);
  /// Streamed blocks whose loads to registers are in flight while a warp multiplies another block.
  static constexpr int blocks_in_flight = streams ? 1 : 2;
  /// Streamed blocks after those in flight that a warp prefetches to the L2 cache. 16-bit weights
  /// that do not fit on the chip are in the L2 cache anyway.
  static constexpr int prefetched_blocks = pipelined ? 2 : streams ? 1 : fp32_weights ? 2 : 0;
  /// Blocks of W1 that each warp streams although shared memory has room for them: they are loaded
  /// while errors are computed, when no other loads are in flight. The blocks of W0 that take their
  /// room need not be loaded while all warps wait for W0 x.
  static constexpr std::size_t w1_always_streamed = fp32_weights ? 1 : 0;
  /// Time that a block of W1 takes, relative to a block of W0. It is larger in fp32, because there
  /// not all of W1 fits on a thread block that has many of its blocks.
  static constexpr double w1_cost = streams ? 1.5 : (fp32_weights ? 2.4 : 1.3);
  /// Time that a unit takes whatever its blocks, in blocks of W0.
  static constexpr double unit_cost = streams || fp32_weights ? 28 : 24;
  /// Time that a warp takes to begin with the blocks of another unit, in blocks of W0.
  static constexpr std::size_t unit_switch_cost = 4;
  /// Relative numbers of blocks of fp32 W0 for warps of each `Duty` (plan/draft.hpp: finishes a
  /// unit, reads a patch, writes factors, others), such that all warps are busy for the same time.
  static constexpr double portions[] = {1.0, 1.05, 0.9, 1.0};
  /// Units of a thread block, at most. With fp32 weights on the chip each unit takes a warp that
  /// finishes it and one that writes its factors; in `pipelined` unit numbers have 7 bits
  /// (input_unit_shift).
  static constexpr std::size_t most_units = pipelined ? 127
                                            : streams ? 255
                                                      : (specialised ? 8 : warps / 2);
  /// Percentage of the streamed fp32 weights that are marked to stay in the L2 cache, where only a
  /// part of all weights is streamed.
  static constexpr int evict_last_percent = 80;

  static_assert(fits_tiles(Hidden, pipelined),
                "units must have tiles of 16 hidden values and 1 to 4 more, 64 at most, like 36 or "
                "49, or where 16-bit weights stream 0 to 4 more, 104 at most, like 64 or 100; use "
                "the general engine for others");

  /// The first row for d1 in W1's list, and how many there are, a ring buffer by step; and the
  /// number of listed gradients of W1, which is smaller by one, because one row of d1 is being
  /// written. (Units keep h for as long as 13 gradients need it, so 14 rows are enough.)
  static constexpr int first_d1_row = remainder_rows == 0 ? 2 : remainder_rows + 1;
  static constexpr int list_rows = long_lists ? 24 : 16;
  static constexpr int list_d1_rows = list_rows - first_d1_row;
  static constexpr int w1_terms = list_d1_rows - 1;
  static_assert(!long_lists || fp32_weights, "16-bit lists are one mma operand A");
  /// The number of listed gradients of W0. In `pipelined` it is larger, because what folds read and
  /// write takes a good part of a step: as many as fit an mma operand and whole pieces of a record.
  /// Where outputs read the context, the sum of a unit's values takes the last product's place.
  static constexpr int terms = pipelined ? (reads_context ? 14 : 15) : w1_terms;
  /// The row length of tables by age, longer than `terms` by two or more; and how many lanes have
  /// one age each, so that a warp has room for two such rows or for one.
  static constexpr int table_row = long_lists ? 24 : 16;
  static constexpr int row_lanes = long_lists ? 32 : 16;
  static_assert(terms < table_row && terms >= w1_terms);
  static_assert(!long_lists || terms + 2 < table_row);
  /// The fold periods of W0 and W1: as late as the list of gradients allows. R = L, as
  /// CoefficientTables know the momentum of a step before its folds. With long lists blocks fold
  /// sooner: their tables have a row for each step of the period, and are in shared memory.
  static constexpr int period = long_lists ? 13 : terms;
  static constexpr int w1_period = long_lists ? period : w1_terms;
  static_assert(period <= 32, "ProgramUnit::due_phases has a bit for each phase");
  /// Whether W1 folds in other phases than W0, with coefficients of its own.
  static constexpr bool two_plans = terms != w1_terms;
  /// Rows (steps) of the past in device memory, and of d0 and d1 there; 2^k.
  static constexpr int ring = long_lists ? 2 * units::ring : units::ring;
  static constexpr int history = long_lists ? 32 : 16;
  /// Numbers of phases of blocks of W0 and, from `period` on, of Wc, whose phases are those of W1.
  static constexpr int phases = period + (reads_context ? w1_period : 0);
  static_assert(!reads_context || (pipelined && two_plans), "Wc has the plan of W1");
  /// Rows (steps) of the ring buffers of c(h) and of patches: a step's row, and those up to the
  /// input of W0's oldest listed gradient, which is 2 + terms steps old.
  static constexpr int past_rows = two_plans || long_lists ? 3 + terms : history;
  /// Rows that a unit keeps of h and d0; and whether their number is not 2^k, so that a step's row
  /// is counted (Now::past_row).
  static constexpr int unit_rows = long_lists ? past_rows : history;
  static constexpr bool counts_rows = two_plans || long_lists;
  static_assert(past_rows >= unit_rows && unit_rows >= 3 + w1_terms && unit_rows > terms);

  /// Sizes in 32-bit words: the tiles of a block as they are multiplied (their low halves take as
  /// many) and as they are stored, the remainder rows of a block of W0, and the list of a block of
  /// W1.
  static constexpr int unpacked_words = tiles * 8 * columns / weights_per_word;
  static constexpr int block_words = packed ? unpacked_words / 4 * 3 : unpacked_words;
  static constexpr int remainder_words = remainder_rows * columns / weights_per_word;
  static constexpr int list_words = list_rows * columns / weights_per_word;
  /// Words of the remainder rows of a block of W1 in device memory: one row more, the bias. Device
  /// memory holds tiles and remainder rows apart, so that tiles begin at a line of the L2 cache.
  static constexpr int w1_remainder_words = remainder_words + columns / weights_per_word;
  static_assert(block_words % line_words == 0);
  /// If `in_slots`, weights lie in chunks, each of which is on one side of the L2 cache. In fp32 a
  /// chunk is the slot of one block, of its tiles and remainder rows. In 16 bits a chunk has slots
  /// for two or three blocks, of one of three kinds:
  ///     W0:   tiles; before all slots of a chunk there are the remainder rows of their blocks
  ///     W1:   tiles and the list
  ///     low:  low halves of the tiles and remainder rows of W0 or W1; for W1 also the high halves
  ///           of remainder rows, which only folds read
  struct SlotKind {
    int first_line;  ///< of the first slot in its chunk
    int lines;       ///< from one slot to the next
    [[nodiscard]] constexpr int slots() const { return (chunk_lines - first_line) / lines; }
  };
  static constexpr bool lists_in_slots = pipelined;
  static constexpr SlotKind whole_chunk{0, chunk_lines};
  /// The number of slots of `words` words in a chunk is one or two.
  static constexpr SlotKind half_or_whole(int words) {
    return words <= chunk_words / 2 ? SlotKind{0, chunk_lines / 2} : whole_chunk;
  }
  /// In 16 bits the first lines of a chunk's slots of W0 are different modulo 4, and this number
  /// says which of the remainder rows are a slot's (View::slot_remainder_start).
  static constexpr SlotKind block_slot =
      fp32_weights ? whole_chunk
                   : SlotKind{(4 * remainder_words + line_words - 1) / line_words,
                              (block_words / line_words + 2) / 4 * 4 + 1};
  static constexpr SlotKind low_slot = half_or_whole(unpacked_words + remainder_words);
  /// Slots of W1 and of its low halves have the same number of lines (View::low_slot_of).
  static constexpr SlotKind w1_slot =
      fp32_weights ? whole_chunk
                   : half_or_whole(std::max(block_words + list_words,
                                            unpacked_words + 2 * w1_remainder_words));
  static_assert(!fp32_weights || block_words + w1_remainder_words <= chunk_words);
  static_assert(!in_slots || (block_slot.slots() >= 1 && block_slot.slots() <= 4));
  static_assert(!pipelined || (block_words + list_words <= chunk_words &&
                               unpacked_words + 2 * w1_remainder_words <= chunk_words));

  /// Words of a row of a unit's values (h, c(h), d0 or a part of W0 x), rounded up to 16 bytes;
  /// there is at least one word behind the values, which in rows of h holds the 1 of the bias.
  static constexpr int values = (Hidden + 4) / 4 * 4;
  static constexpr int operands = pairs + 1;  ///< mma operands A for all rows of a fold
  /// Pieces of a unit's record: c(h), then its inner products with the listed past, by age.
  static constexpr int value_pieces = (Hidden + 2) / 3;
  static constexpr int product_pieces = (terms + 2) / 3;
  static constexpr int record = 4 * (value_pieces + product_pieces);
  /// Sources whose inner products a warp reads at once.
  static constexpr int group_sources = long_lists ? 4 : 6;
  // A fold reads the inputs of the oldest listed gradient, and B those of the step before.
  static_assert(ahead + terms + 6 <= ring, "the fastest writes over what the slowest reads");
  static_assert(!reads_context || terms + 1 == 3 * product_pieces, "a sum follows the products");
  /// Outputs of a block of Wc: those of so many blocks of W1.
  static constexpr int group_blocks = pairs, group_outputs = group_blocks * columns;
  static_assert(group_sources * product_pieces <= 32,
                "a warp reads the products of a group at once");
  /// Context sources of one panel, which folds together, at most. With folder warps it is smaller,
  /// so that about the same number of blocks folds in every step.
  static constexpr std::size_t panel_sources = specialised ? 4 : 6;

  // The area of a unit: what it has beside weights and inputs. The constants are word offsets from
  // the start of the area, which is in shared memory or, if `streams`, in device memory.

  /// Coefficients of the listed gradients by age, of W0 and of W1: [since][table_row], `period`
  /// rows, then a row with the coefficients that the folds of this step add. `since` is the number
  /// of steps since a block's last fold, modulo the period: 0 for the blocks that fold in this
  /// step.
  static constexpr std::uint32_t tables = 0;
  static constexpr std::uint32_t w1_tables = two_plans ? (period + 1) * table_row : tables;
  /// [step parity][table_row]: inner products of A with its past, by age. Those of B are A's of the
  /// step before.
  static constexpr std::uint32_t primary = w1_tables + (w1_period + 1) * table_row;
  /// [since][table_row]: what the rows of W1's list are multiplied by for y (`write_list_factors`),
  /// packed (Split).
  static constexpr std::uint32_t list_factors = primary + 2 * table_row;
  /// h(t), packed (Split); in `pipelined` h(t - 1).
  static constexpr std::uint32_t packed_hidden = list_factors + w1_period * table_row;
  /// [multipliers][values]: each warp's part of W0 x; then a row of what the listed gradients add
  /// to W0 x; then [multipliers][part1_words]: each warp's part of W1^T d1.
  static constexpr std::uint32_t part0 = packed_hidden + values;
  static constexpr std::uint32_t listed_part = part0 + multipliers * values;
  static constexpr std::uint32_t part1 = listed_part + values;
  static constexpr int part1_words = tiles * 8 + list_rows;
  /// Ring buffers by step: `unit_rows` rows of h and of d0, `past_rows` rows of c(h).
  static constexpr std::uint32_t hidden = part1 + multipliers * part1_words;
  static constexpr std::uint32_t d0 = hidden + unit_rows * values;
  static constexpr std::uint32_t squeezed = d0 + unit_rows * values;
  /// Factors of the folds of W0 (`fold0`) and W1 (`fold1`): with 16-bit weights mma operands A, for
  /// which some words behind a row of values are read, too; with fp32 weights the coefficients.
  /// There is one copy for even and one for odd steps; where warps have roles there is one copy
  /// only, which is overwritten when all warps have read that of the step before.
  static constexpr std::uint32_t fold0 = squeezed + past_rows * values;
  static constexpr int factor_words = fp32_weights ? table_row : operands * 128;
  static constexpr int factor_copies = finishers > 0 ? 1 : 2;
  /// Held blocks that a folder folds in a step while they are multiplied, at most.
  static constexpr int early_folds = 6;
  /// Words of scratch memory of each warp that folds. In fp32 it holds the past inputs of a block's
  /// columns. Folders keep the new remainder rows of held blocks there until the multipliers no
  /// longer read the old ones.
  static constexpr int scratch_words =
      fp32_weights ? terms * columns + 4 : (specialised ? early_folds * remainder_words : 0);
  static constexpr std::uint32_t fold1 = fold0 + factor_copies * factor_words;
  /// Words of the ring buffers of h and d0, and some behind them that are read, too; and of c(h).
  static constexpr int history_words = 2 * unit_rows * values + 16;
  static constexpr int squeezed_words = past_rows * values;
  /// [2], by the low bit of `turn`: whether the folds of a step change anything (View::any_gain).
  static constexpr std::uint32_t any_gain = fold1 + factor_copies * factor_words;
  /// Number of the table in `tables`, or ~0.
  static constexpr std::uint32_t loaded_table = any_gain + 2;
  static constexpr std::uint32_t corner = any_gain + 3;  ///< first pixel of the patch in a frame
  /// In `pipelined`, which makes y(t - 1) in step t: the coefficients for that, [since][table_row]
  /// with `since` in step t, and the inner products of h(t - 1) with its past, by age.
  static constexpr std::uint32_t tables_after = any_gain + 4;
  static constexpr std::uint32_t products = tables_after + (pipelined ? w1_period * table_row : 0);
  /// If `reads_context`: a row of ones; the inner products by age of this step's context (hidden
  /// values) with that of listed gradients; the sums of the context's squeezed values of the last
  /// `history` steps, a ring buffer; and the row `since` = 0 of `w1_tables`, kept for the next
  /// step.
  static constexpr std::uint32_t ones = products + (pipelined ? table_row : 0);
  static constexpr std::uint32_t context_products = ones + (reads_context ? values : 0);
  static constexpr std::uint32_t context_sums = context_products + (reads_context ? table_row : 0);
  static constexpr std::uint32_t folded_coefficients = context_sums + (reads_context ? history : 0);
  /// Table numbers of the steps of a launch, 16 bits each; in `pipelined` also that of the step
  /// after it, for the last y.
  static constexpr std::uint32_t table_numbers =
      folded_coefficients + (reads_context ? table_row : 0);
  static constexpr std::uint32_t unit_words =
      table_numbers + launch_steps / 2 + (pipelined ? 4 : 0);
  static_assert(fold0 % 4 == 0 && unit_words % 4 == 0 && part0 % 4 == 0 && part1 % 4 == 0);
};

// In the structures below "word" is a word offset from the start of shared memory, unless a comment
// says otherwise. "A local number" counts within a thread block, "a global number" within the
// network.

/// A unit as its thread block sees it. The thread block keeps the unit's input x as two copies of
/// A, padded to whole blocks, then the context and the 1 of the bias: A of even steps, A of odd
/// steps. B(t) = A(t-1) is the copy of the other parity.
struct ProgramUnit {
  std::uint32_t unit, layer;       ///< global numbers
  std::uint32_t base, padded;      ///< P, and P rounded up to whole blocks
  std::uint32_t x;                 ///< word of [A even | A odd | context, 1]
  std::uint32_t one;               ///< word of the 1 of the bias
  std::uint32_t out;               ///< local number of the first of its 2 * padded outputs
  std::uint32_t all_out;           ///< its global number
  std::uint32_t first_source;      ///< index of its first source
  std::uint32_t primary;           ///< so many of its sources, the first ones, are primary
  std::uint32_t context;           ///< and so many are its context's
  std::uint32_t groups, products;  ///< groups of sources; word of [groups][32], `source_place`
  std::uint32_t own_phase[3];      ///< phases of A, B and the bias
  std::uint32_t due_phases;        ///< a bit for each phase: whether blocks of W0 fold in it
  std::uint32_t patch;             ///< in layer 0: number of its patch, else not_a_patch
  std::uint32_t seen;              ///< word of the patch's history, [past_rows][patch_row]
  /// If `streams`: words of the ring buffers of h and d0, and of c(h), if they are in shared
  /// memory; `in_memory` if they are in the unit's area in device memory.
  std::uint32_t history, squeezed;
};
inline constexpr std::uint32_t not_a_patch = ~0U;
/// Instead of a word in shared memory: the data is in device memory.
inline constexpr std::uint32_t in_memory = ~0U;
/// An element of a unit's `products`, which tells a lane where to find its piece of a source's
/// inner products: a word in a row of the past | the phase of the panel that the source feeds <<
/// phase_shift. `no_source`: the lane has none.
inline constexpr int phase_shift = 24;
inline constexpr std::uint32_t no_source = (1U << phase_shift) - 1;

/// A source of a unit. `from`: word in a row of the past where its record starts. `to`: word in x
/// where its values go, in even steps (low 16 bits) and in odd ones (high 16 bits).
struct alignas(8) Source {
  std::uint32_t from, to;
};

/// A block of W0. (If `streams`, `where` is the first line of its slot among all lines of weights,
/// and `block` that of the slot of its low halves; else, if `in_slots`, `block` is the former.) Its
/// inputs are values of one or two records of a row of the past: column c is value `from` + c of
/// the record at word `first`, and from column `cut` on value c - cut of the record at word
/// `second` (both are offsets in the row). If `lists_places` and `cut` is `listed_places`, `first`
/// is the word of a list of the columns' places in the row instead.
struct alignas(16) W0Block {
  std::uint32_t x;      ///< word of its first input, in even (low 16 bits) and odd (high) steps
  std::uint32_t what;   ///< unit | phase << 8 | blocks left of the unit << run_shift
  std::uint32_t where;  ///< word of its tiles; `in_memory` if they are held or streamed
  std::uint32_t block;  ///< global number: its place in device memory, unless `in_slots`
  std::uint32_t first, second, from;
  std::uint16_t cut;
  /// The row of the past with the input of the newest listed gradient is that of step t - back.
  std::uint16_t back;
};
inline constexpr std::uint16_t listed_places = 0xffff;
/// The fields of `what`: the local number of the unit, the phase in which the block folds, and how
/// many blocks of this unit the warp has from this one on (1: it is the last).
inline constexpr int run_shift = 20;
PVM_HOST_DEVICE constexpr int unit_in(std::uint32_t what) { return static_cast<int>(what & 0xffU); }
PVM_HOST_DEVICE constexpr int phase_in(std::uint32_t what) { return unit_in(what >> 8); }
PVM_HOST_DEVICE constexpr std::uint32_t left_in(std::uint32_t what) { return what >> run_shift; }
/// In `pipelined` `Program::inputs` has, for each block of W0, what the pass over W0 needs to know
/// of it.
struct alignas(8) W0Input {
  std::uint32_t x;  ///< as in W0Block
  /// First line of the block's slot | local number of its unit, or RowGroup, << input_unit_shift |
  /// last_of_unit if it is the warp's last block of this unit.
  std::uint32_t slot;
};
inline constexpr int input_unit_shift = 24;
inline constexpr std::uint32_t input_lines = 1U << input_unit_shift;  ///< slots begin before it
inline constexpr std::uint32_t last_of_unit = 1U << 31;
/// In `specialised`: the consecutive blocks of W0 that a warp has of one unit, by where their tiles
/// are. A streamed block is early if it is loaded before x(t) is there, and late if it is loaded to
/// the registers of an early one, while other blocks are multiplied.
struct alignas(16) UnitRun {
  std::uint32_t sums;   ///< word where the warp's part of the unit's W0 x goes
  std::uint32_t block;  ///< global number of the warp's first late block
  /// A bit for each early block of the warp (`blocks_in_flight` bits), then for each held one:
  /// whether it is in this run; | number of the run's blocks in shared memory << 16.
  std::uint32_t present;
  /// The run's late blocks, numbers `first` to `end` (exclusive) among the warp's late blocks:
  /// first | end << 8 | number of all late blocks of the warp << 16; | last_run if the run is the
  /// warp's last.
  std::uint32_t late;
};
inline constexpr std::uint32_t last_run = 1U << 31;
/// Flag of an element of `Program::folding`: it is the index of a block of W1.
inline constexpr std::uint32_t of_w1 = 1U << 31;
/// Instead of the index of a block of a warp: there is none.
inline constexpr std::uint32_t no_block = ~0U;

/// A block of W1.
struct alignas(16) W1Block {
  std::uint32_t what;  ///< like that of a W0Block
  std::uint32_t out;   ///< local number of its first output
  /// Word of its tiles, or `in_memory` if they are streamed. If `streams`: the first line of its
  /// slot | low_is_odd if the slot of its low halves is in the second chunk of a pair.
  std::uint32_t where;
  /// Global number: its outputs, and its place in device memory. In fp32 on the chip: the first
  /// line of its slot.
  std::uint32_t block;
};
inline constexpr std::uint32_t low_is_odd = 1;

/// If `reads_context`: rows whose blocks are summed together, those of a unit's W0, or of a group
/// of outputs in its Wc. First come the units in their order, then the groups. Blocks of Wc are
/// described as a W0Block, with the number of a RowGroup instead of a unit's, and with a phase from
/// Sizes::period on.
struct alignas(16) RowGroup {
  std::uint32_t unit;   ///< local number
  std::uint32_t sums;   ///< word among the units' areas of [multipliers][values], the warps' sums
  std::uint32_t out;    ///< of a group: local number of its first output
  std::uint32_t phase;  ///< of a group: its phase among those of W1 | its outputs << 8
};

/// Sixteen outputs of a unit, and their targets, which are inputs of the unit itself.
struct alignas(16) Target {
  std::uint32_t x;      ///< word in x of the first target, even (low 16 bits) and odd steps (high)
  std::uint32_t count;  ///< number of outputs; the rest of the 16 is padding
  std::uint32_t out;    ///< global number of the first output
  std::uint32_t seen;   ///< word of the target in row 0 of a patch's history, or `no_pixel`
};
inline constexpr std::uint32_t no_pixel = ~0U;

/// Layout of shared memory, in words from its start: first what all thread blocks have at the same
/// places, then the areas of the units (unless `streams`), then the program of the thread block and
/// the areas that the program lists.
struct Areas {
  static constexpr std::uint32_t now = 0;                ///< [4] Now, 8 words each
  static constexpr std::uint32_t launch = now + 4 * 8;   ///< Launch
  static constexpr std::uint32_t gates = launch + 16;    ///< mbarriers, where warps have roles
  static constexpr std::uint32_t score = gates + 2 * 4;  ///< [warps][3] doubles
  static constexpr std::uint32_t frames = score + most_warps * 3 * 2;  ///< pointers, by step
  static constexpr std::uint32_t scored = frames + 2 * launch_steps;   ///< bytes, by step
  /// [patch]: offset of each pixel of a patch from the patch's first one in a frame.
  static constexpr std::uint32_t offsets = scored + launch_steps / 4;
  std::uint32_t units;    ///< areas of the units, [units][unit_words]
  std::uint32_t scratch;  ///< scratch memory of the warps that fold, [warps][scratch_words]
};

/// The program of a thread block: everything that its steps consist of. Its lists follow it; the
/// fields without a comment are the words of lists or areas, or their sizes.
struct Program {
  std::uint32_t start, words;  ///< word of the program, and its length with its lists
  /// `x_words`: of the inputs of all units. If `reads_context`, as many words follow, with hidden
  /// values where inputs have the squeezed ones of the context.
  std::uint32_t unit_count, source_count, out_count, x_words;
  std::uint32_t units, sources, blocks, w1_blocks, targets, products, places;
  /// Which blocks fold when:
  ///     fp32, on the chip:  `folding` has indices of blocks within a warp, sorted by warp and
  ///                         phase, without those that fold while they are streamed.
  ///                         `folding_start`, [warps][period + 1], is where a phase starts.
  ///     specialised:        `folding` has indices within the thread block, sorted by folder and
  ///                         phase; in a phase the held blocks of W0 that fold early, other blocks
  ///                         of W0, and blocks of W1 (`of_w1`). `folding_start`,
  ///                         [folders][period][3] and the end, is where each of these starts.
  ///     pipelined:          only `folding_start`, [multipliers][phases + 1]; the list of blocks
  ///                         itself is sorted by warp and phase.
  std::uint32_t folding, folding_start;
  /// In fp32 on the chip, [warps][period]: index of the warp's first block that folds while it is
  /// streamed, or `no_block`.
  std::uint32_t first_in_pass;
  /// In `specialised`, [multipliers][period]: a bit for each held block that folds in a phase, and
  /// has to be loaded again.
  std::uint32_t reload;
  /// In `specialised`, [2][input_count]: words of the first inputs of all blocks, in even and in
  /// odd steps. In `pipelined`, [input_count]: a W0Input for each block.
  std::uint32_t inputs, input_count;
  /// In `pipelined`: word of the list of W1Block::where, in the order of outputs.
  std::uint32_t list_slots;
  /// Index of the first block of W0, and of W1, of each warp; element w + 1 is the end for warp w.
  std::uint32_t block_start[most_warps + 1], w1_start[most_warps + 1];
  /// Order of a warp's blocks of W0, with indices from 0 for each warp:
  ///     fp32, on the chip:  held | streamed, up to `streamed_to` | in shared memory
  ///     specialised:        streamed early, up to `streamed_to` | held | in shared memory |
  ///                         streamed late, from `late_from` on
  std::uint32_t streamed_to[most_warps], late_from[most_warps];
  /// Word of the remainder rows of a warp's first block of W0; unless `streams`.
  std::uint32_t remainder_first[most_warps];
  /// Areas whose sizes differ from thread block to thread block. If `streams`, `lists` is an offset
  /// in the array of all lists in device memory instead of a word.
  std::uint32_t x, y, d1, lists, seen;
  /// In `specialised`: word of the list of UnitRun; index of each multiplier's first UnitRun; word
  /// of the tiles of each multiplier's first block of W0 in shared memory.
  std::uint32_t runs, run_start[most_warps], shared_from[most_warps];
  std::uint32_t number;  ///< of this program
  /// If `reads_context`: word of the list of RowGroup, and how many there are; and of
  /// [2][out_count], what the context adds to the outputs of the last two steps.
  std::uint32_t row_groups, row_group_count, context_y;
};

}  // namespace pvm::inline v0::detail::units
