// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The plan of an engine with whole units, made once on the host: which thread block has which
/// units, which warp has which blocks of weights, and where each block lies (registers, shared
/// memory or device memory). Two thread blocks share a streaming multiprocessor (SM) where all
/// weights are streamed.
///
/// A unit's weights are cut into blocks of 16 columns (sizes.hpp): W0 by its inputs, W1 by its
/// outputs. The inputs of a unit, its columns of W0, are padded to
///   [ A | B | context panel 0 | context panel 1 | ... and the bias ]
/// with A, B and each panel in whole blocks. A W0Panel is any of these parts: a run of columns that
/// folds together, in one step of every `period`; its phase says in which. A block of W1 folds in
/// one step of every `w1_period`.
///
/// The result is a program for each thread block (Program and its lists), which the kernel copies
/// to shared memory. Words are 32-bit words throughout. This file has the order of the work
/// (make_program); its parts are in the other files of this directory, which are included at the
/// end.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/units/plan/draft.hpp>
#include <pvm/engine/cuda/units/plan/portions.hpp>
#include <pvm/engine/cuda/units/plan/slot_dealer.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0::detail::units {

/// The deferral of these engines.
template <class Precision, int Hidden, Home home>
DeferralPlans deferral() {
  using S = Sizes<Precision, Hidden, home>;
  return {{S::period, S::terms}, {S::w1_period, S::w1_terms}};
}
/// Whether the momentum of an update has died out by the time its gradient leaves the list: whether
/// it has fallen to 2^-20 of the update for fp32 weights, or to 2^-8 for 16-bit weights. Such
/// weights do not show smaller parts of an update.
template <class Precision, int Hidden, Home home>
constexpr bool dies_out(double momentum) {
  using S = Sizes<Precision, Hidden, home>;
  double left = 1;
  for (int step = 0; step < S::w1_terms; ++step) left *= momentum;
  return left <= (S::fp32_weights ? 0x1p-20 : 0x1p-8);
}

/// If blocks are in slots: the first pair of chunks (slot_dealer.hpp) of the slots of low halves of
/// W0, of those of W1, of low halves of W1, and the end. Those of W0 are the first ones.
struct SlotPairs {
  std::size_t low_halves, w1, w1_low_halves, end;
};
/// The first lines of a block's slot and of the slot of its low halves.
struct SlotLines {
  std::uint32_t high, low;
};
inline constexpr std::uint32_t no_slot = ~0U;  ///< instead of a line: the block has no slot here

/// The plan, and the layout of everything in device memory that depends on it. A value: it is made
/// once, and the engine that runs it keeps it.
template <class Precision, int Hidden, Home home = Home::resident>
class Plan {
  using S = Sizes<Precision, Hidden, home>;

 public:
  /// Plans `spec`, of which `net` is the connectome, for a device with this number of SMs, or for
  /// that many SMs of `shards` shards (`part`), and at most `shared_bytes` of shared memory for a
  /// thread block. If there is no plan, the result is
  /// empty, and `why` gives the reason in half a sentence.
  static std::optional<Plan> make(const Spec& spec, const Connectome& net, int multiprocessors,
                                  std::size_t shared_bytes, std::string& why,
                                  std::size_t shards = 1) {
    why = lacking(spec);
    if (!why.empty()) return std::nullopt;
    Plan plan(net, multiprocessors, shared_bytes);
    for (std::size_t k = 0; k < shards; ++k) plan.check_lines(k, shards);
    why = plan.problem_;
    if (!why.empty()) return std::nullopt;
    return plan;
  }
  /// What shard number `shard` of `shards` has of this plan: every `shards`-th program, numbered
  /// anew, with the units of these. The layout of the weights on the host stays that of all.
  [[nodiscard]] Plan part(std::size_t shard, std::size_t shards) const;
  /// Whether a program of this plan, or of this part of it, has unit u.
  [[nodiscard]] bool has(std::size_t u) const { return has_unit_.empty() || has_unit_[u]; }

  Areas areas{};
  int multiprocessors = 0;  ///< for which it was made, those of all shards
  /// The number of thread blocks that have units, and so of programs.
  [[nodiscard]] int thread_blocks() const { return static_cast<int>(portions_.size()); }

  std::size_t shared_words = 0;  ///< of shared memory that a thread block needs, at most
  /// A row of the past, in words: its length, its first patch's record, and a patch's record's
  /// length. A row is [units' records | patches' records | 1 and zeros].
  std::size_t row_words = 0, first_patch = 0, patch_record = 0;
  std::size_t patch_products = 0;  ///< word of the inner products in a patch's record
  std::size_t patch_row = 0;       ///< words of a row of a patch's history in shared memory
  /// Words of a row of the past where a record of 1 and zeros begins (the input of the bias and the
  /// padding behind it), and where a record of zeros begins (other padding).
  std::size_t one = 0, zero = 0;
  std::size_t outputs = 0;                         ///< of all units, padding included
  std::size_t output_groups = 0;                   ///< of all units, if `reads_context`
  std::size_t blocks = 0, w1_blocks = 0;           ///< blocks of W0 and of W1
  std::size_t held = 0, shared = 0, streamed = 0;  ///< blocks of W0 by where they lie
  std::size_t w1_streamed = 0;                     ///< blocks of W1 that are not on the chip
  /// Words of W1's lists in device memory, where all is streamed and slots do not have them.
  std::size_t list_words = 0;
  std::vector<std::size_t> program_blocks, program_w1_blocks;  ///< of each program
  std::vector<std::size_t> program_first_block;  ///< number of each program's first block of W0
  /// All programs, one behind the other, and the word at which each one starts.
  std::vector<std::uint32_t> programs, program_start;
  std::vector<std::uint32_t> output_start;  ///< each unit's first output; a unit: [A | B], padded

  /// Calls visit(index in reference order, index in device memory) for all weights of the units
  /// that this plan has, on several threads; two units' weights are never in one word. The index in
  /// device memory counts weights, not words, from the start of Arguments::weights.
  template <class Visit>
  void for_each_weight(Visit visit) const;
  /// The layout of the weights, in words. Four parts lie one behind the other: tiles of W0, tiles
  /// of W1, remainder rows of W0, remainder rows of W1. These are the starts of the last three;
  /// weight_words() is the length of all, in whole cache lines. (Low halves of 16-bit weights
  /// follow in the same layout.) If blocks are in slots in device memory, this is the layout on the
  /// host.
  [[nodiscard]] std::size_t first_w1() const { return blocks * S::unpacked_words; }
  [[nodiscard]] std::size_t first_remainder() const {
    return first_w1() + w1_blocks * S::unpacked_words;
  }
  [[nodiscard]] std::size_t first_w1_remainder() const {
    return first_remainder() + blocks * S::remainder_words;
  }
  [[nodiscard]] std::size_t weight_words() const {
    return round_up(first_w1_remainder() + w1_blocks * S::w1_remainder_words, line_words);
  }
  /// If blocks are in slots: where each kind of slots begins.
  [[nodiscard]] SlotPairs slot_pairs(const Sides& sides) const;
  /// Gives each block its slots, and writes them into the programs. To be called once.
  void place_in_slots(const Sides& sides);
  /// The slots of each block of W0, then of W1; `no_slot` for those of other shards.
  std::vector<SlotLines> slots;
  /// The base P of unit u, rounded up to whole blocks of columns.
  [[nodiscard]] std::size_t padded(std::size_t u) const { return round_up(base(u), columns); }

 private:
  Plan(const Connectome& net, int multiprocessors_, std::size_t shared_bytes)
      : multiprocessors(multiprocessors_), net_(net) {
    lay_out_row();
    lay_out_units();
    std::vector<double> costs(net.units.size());
    for (std::size_t u = 0; u < costs.size(); ++u) costs[u] = cost(u);
    const auto bins = static_cast<std::size_t>(S::thread_blocks_per_sm * multiprocessors);
    // Finishers have units one by one: where all weights are streamed, no thread block gets more
    // than its portion of them.
    const std::size_t most = S::streams ? (costs.size() + bins - 1) / bins : costs.size();
    portions_ = deal_units(costs, bins, most);
    lay_out_areas();
    constexpr std::size_t reserved = 1024;  // bytes that the driver takes for each thread block
    const std::size_t there = (shared_bytes + reserved) / S::thread_blocks_per_sm - reserved;
    for (std::size_t m = 0; m < portions_.size() && problem_.empty(); ++m) {
      make_program(portions_[m], there / 4);
    }
  }
  /// Even if all slots of a shard's blocks of W0 were on one side, their lines have to fit a
  /// W0Input. Sets `problem_` if they do not.
  void check_lines(std::size_t shard, std::size_t shards) {
    std::size_t own = 0;
    for (std::size_t m = shard; m < program_blocks.size(); m += shards) own += program_blocks[m];
    const std::size_t lines =
        own * 2 * chunk_lines / static_cast<std::size_t>(S::block_slot.slots());
    if (S::pipelined && lines >= input_lines) problem_ = "it has too many weights";
  }
  /// What these engines cannot do of what `spec` asks for, in half a sentence; empty if nothing.
  static std::string lacking(const Spec& spec) {
    const int least = S::lists_places ? 1 : S::pads ? columns : Hidden;
    if (spec.hidden() < least || spec.hidden() > Hidden) {
      return "its units do not have " + (S::pads ? std::to_string(least) + " to " : "") +
             std::to_string(Hidden) + " hidden values";
    }
    if (!dies_out<Precision, Hidden, home>(spec.momentum)) return "its momentum lives too long";
    if (spec.layer_shapes.size() > most_layers) {
      return "it has more than " + std::to_string(most_layers) + " layers";
    }
    if (spec.feed_context_in_complex_layer != S::reads_context) {
      return std::string("its outputs are ") + (S::reads_context ? "not " : "") + "fed the context";
    }
    if (spec.learning_rule != "momentum") return "its learning rule is not momentum";
    return {};
  }

  using Draft = ProgramDraft<S>;
  static constexpr std::size_t period = S::period, w1_period = S::w1_period;
  using BlockCounts = std::array<std::size_t, S::multipliers>;               // [warp]: blocks
  using BlockLimits = std::array<std::vector<std::size_t>, S::multipliers>;  // [warp][unit]: blocks

  /// Hidden values that a unit has; the rest of `Hidden` is padding.
  [[nodiscard]] std::size_t used() const { return static_cast<std::size_t>(net_.hidden); }
  [[nodiscard]] std::size_t base(std::size_t u) const {
    return static_cast<std::size_t>(net_.units[u].base);
  }
  /// The number of columns of W0 of unit u, padding included, and those of the context.
  [[nodiscard]] std::size_t width(std::size_t u) const { return 2 * padded(u) + context_width(u); }
  [[nodiscard]] std::size_t context_width(std::size_t u) const {
    return context_panels_[u].back().column + context_panels_[u].back().width;
  }
  /// The groups of outputs of unit u, and its blocks of Wc, if `reads_context`.
  [[nodiscard]] std::size_t groups(std::size_t u) const {
    return S::reads_context ? (2 * padded(u) + S::group_outputs - 1) / S::group_outputs : 0;
  }
  [[nodiscard]] std::size_t context_blocks(std::size_t u) const {
    return groups(u) * context_width(u) / columns;
  }
  /// Packs a word's place in x on even steps (low half) and on odd steps (high half). A and B
  /// exchange their places, `apart` words apart, in every step, so that B(t) = A(t-1) need not be
  /// copied: A is in the first place on even steps and in the second on odd ones. `even` is the
  /// place on even steps; `second`: it belongs to B.
  static std::uint32_t both_steps(std::uint32_t even, std::uint32_t apart, bool second) {
    return even | (second ? even - apart : even + apart) << 16;
  }
  template <class Block>
  static std::uint32_t phase_of(const Block& block) {
    return static_cast<std::uint32_t>(phase_in(block.what));
  }

  /// Makes the program of a thread block that has `units` and `shared_words_there` words of shared
  /// memory, and appends it. Sets `problem_` if the units do not fit.
  void make_program(const std::vector<std::size_t>& units, std::size_t shared_words_there) {
    std::vector<W0Panel> panels = panels_of(units);
    give_phases(panels);
    Draft draft;
    auto next_panel = panels.cbegin();
    for (const std::size_t u : units) add_unit(draft, u, next_panel);
    deal(draft, panels);
    if constexpr (S::reads_context) deal_context(draft, panels);
    number_blocks(draft);
    deal_w1(draft);
    place_all(draft, shared_words_there);
    if constexpr (S::specialised) {
      list_folding_by_folder(draft);
      list_reloads(draft);
    } else if constexpr (!S::streams) {
      list_folding_by_warp(draft);
    }
    append(draft);
  }

  // plan/weights.hpp: the place of each weight in device memory
  template <class Visit>
  void visit_hidden(std::size_t u, Visit& visit) const;
  template <class Visit>
  void visit_output(std::size_t u, Visit& visit) const;
  template <class Visit>
  void visit_context(std::size_t u, Visit& visit) const;
  static constexpr std::size_t weights_in(std::size_t words) { return words * S::weights_per_word; }
  static constexpr bool in_tiles(std::size_t i) {
    return i < static_cast<std::size_t>(S::tiles) * 8;
  }
  static std::size_t element(std::size_t i, std::size_t c);
  static std::size_t remainder_element(std::size_t i, std::size_t c);

  // plan/units.hpp: a unit's columns, blocks, sources and targets
  void lay_out_row();
  void lay_out_units();
  [[nodiscard]] std::vector<ContextPanel> context_panels_of(std::size_t u) const;
  [[nodiscard]] std::size_t padded_column(std::size_t u, std::size_t k) const;
  [[nodiscard]] double cost(std::size_t u) const;
  void add_unit(Draft& draft, std::size_t u,
                std::vector<W0Panel>::const_iterator& next_panel) const;
  [[nodiscard]] ProgramUnit new_unit(const Draft& draft, std::size_t u) const;
  void add_sources(Draft& draft, std::span<const std::uint32_t> sources, std::size_t column,
                   std::uint32_t odd_columns) const;
  static void list_groups(Draft& draft, ProgramUnit& unit, const std::vector<PanelSources>& panels);
  [[nodiscard]] Target target_of(const ProgramUnit& unit, std::uint32_t o) const;

  // plan/blocks.hpp: deals blocks to warps
  void deal(Draft& draft, const std::vector<W0Panel>& panels);
  [[nodiscard]] BlockLimits block_limits(const Draft& draft,
                                         const std::vector<W0Panel>& panels) const;
  static bool fill_in_turn(std::vector<std::size_t> left, std::size_t most, BlockLimits& limits);
  void deal_context(Draft& draft, const std::vector<W0Panel>& panels) const;
  void add_groups(Draft& draft) const;
  [[nodiscard]] W0Block context_block(const Draft& draft, std::size_t number, const W0Panel& panel,
                                      std::size_t b) const;
  void number_blocks(Draft& draft);
  [[nodiscard]] W0Block block_of(const ProgramUnit& unit, const W0Panel& panel,
                                 std::size_t b) const;
  void list_places(Draft& draft, const W0Panel& panel, std::size_t b, W0Block& block) const;
  [[nodiscard]] InputPlace input_place(const ProgramUnit& unit, const W0Panel& panel,
                                       std::size_t k) const;
  void deal_w1(Draft& draft) const;
  [[nodiscard]] static std::size_t least_loaded_phase(Draft& draft, std::size_t w);
  /// The phase, among those of W1, of the group of outputs that a block of W1 belongs to.
  static std::uint32_t group_phase(const Draft& draft, const W1Block& block) {
    const auto group =
        std::find_if(draft.row_groups.begin() + static_cast<std::ptrdiff_t>(draft.units.size()),
                     draft.row_groups.end(),
                     [&](const RowGroup& one_) { return block.out - one_.out < one_.phase >> 8; });
    return group->phase & 0xffU;
  }
  static bool is_context(const Draft& draft, const W0Panel& panel) {
    return panel.column >= 2 * draft.units[panel.unit].padded;
  }
  template <class Block>
  static void count_runs(std::vector<Block>& list);

  // plan/places.hpp: allocates registers and shared memory
  void lay_out_areas();
  void place_all(Draft& draft, std::size_t shared_words_there);
  void place_lists(Draft& draft, SharedAllocator& allocate) const;
  void place_areas(Draft& draft, SharedAllocator& allocate);
  static void make_absolute(Draft& draft);
  void place_w1(Draft& draft, std::size_t shared_words_there, SharedAllocator& allocate);
  void place_histories(Draft& draft, std::size_t shared_words_there,
                       SharedAllocator& allocate) const;
  void place_blocks(Draft& draft, std::size_t shared_words_there, SharedAllocator& allocate);
  BlockCounts fill_shared(const Draft& draft, std::size_t shared_words_there,
                          SharedAllocator& allocate);

  // plan/folds.hpp: decides when each block folds
  [[nodiscard]] std::vector<W0Panel> panels_of(const std::vector<std::size_t>& units) const;
  void give_phases(std::vector<W0Panel>& panels) const;
  void list_folding_by_warp(Draft& draft) const;
  void list_folding_by_folder(Draft& draft) const;
  [[nodiscard]] static std::vector<DueBlock> due_blocks(const Draft& draft);
  void list_reloads(Draft& draft) const;
  [[nodiscard]] static std::pair<std::size_t, std::size_t> held_of(const Draft& draft,
                                                                   std::size_t w);

  // plan/program.hpp: writes the program
  void append(Draft& draft);
  template <class Lists>
  static typename Lists::value_type join(const Lists& lists,
                                         std::uint32_t (&start)[most_warps + 1]);
  std::vector<std::uint32_t> sort_by_phase(const Program& p, std::vector<W0Block>& all) const;
  static std::vector<std::uint32_t> first_inputs(const Program& p, const std::vector<W0Block>& all);
  static std::vector<W0Input> inputs_of(const std::vector<W0Block>& all);
  [[nodiscard]] std::vector<UnitRun> runs(Draft& draft) const;
  [[nodiscard]] UnitRun run(const Draft& draft, std::size_t w, std::size_t first,
                            std::size_t end) const;

  Connectome net_;
  std::string problem_;  // why there is no plan; empty: there is one
  std::vector<std::vector<ContextPanel>> context_panels_;  // [unit]
  // Blocks of W0 are counted in two orders: an index counts them unit by unit, a number counts them
  // warp by warp, which is the order of device memory (W0Block::block).
  std::vector<std::size_t> first_block_index_;    // [unit]
  std::vector<std::size_t> first_context_index_;  // [unit]: of its blocks of Wc, group by group
  std::vector<std::size_t> first_group_;          // [unit]: among the groups of all units
  std::vector<std::size_t> block_number_;         // [block index]
  std::size_t numbered_ = 0;                      // blocks that have a number so far
  Portions portions_;                             // [thread block]: its units
  std::vector<bool> has_unit_;                    // [unit]; empty: all
};

}  // namespace pvm::inline v0::detail::units

#include <pvm/engine/cuda/units/plan/blocks.hpp>
#include <pvm/engine/cuda/units/plan/folds.hpp>
#include <pvm/engine/cuda/units/plan/part.hpp>
#include <pvm/engine/cuda/units/plan/places.hpp>
#include <pvm/engine/cuda/units/plan/program.hpp>
#include <pvm/engine/cuda/units/plan/slots.hpp>
#include <pvm/engine/cuda/units/plan/units.hpp>
#include <pvm/engine/cuda/units/plan/weights.hpp>
