// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Who computes what: units to multiprocessors, blocks to warps, registers and shared memory.

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0::detail::chip {

/// Updates fold as late as the list allows. What is left of a momentum when it has fallen to 2^-8
/// is that part of one update, which 16-bit weights do not show; fp32 weights show no 2^-14. A
/// period below 3 says that the momentum lives too long.
template <class Precision, int Hidden>
DeferralPlan deferral(double momentum) {
  using S = Sizes<Precision, Hidden>;
  const double died_out = S::whole ? -14.0 : -8.0;
  int decay = 0;
  if (momentum > 0) {
    decay =
        static_cast<int>(std::min(1e6, std::ceil(died_out * std::log(2.0) / std::log(momentum))));
  }
  return {S::terms - decay, S::terms};
}

template <class Precision, int Hidden, Home home = Home::chip>
class Plan {
  using S = Sizes<Precision, Hidden, home>;

 public:
  /// Everything for a device with so many multiprocessors and so much shared memory for a block of
  /// threads on each. Ask `fits` before.
  Plan(const Connectome& net, DeferralPlan plan, int multiprocessors, std::size_t shared_bytes)
      : net_(net), period_(static_cast<std::size_t>(plan.period)) {
    patch_products = words_in_pieces(static_cast<std::size_t>(net.units[0].base));
    patch_record = patch_products + sums;
    patch_row = round_up(static_cast<std::size_t>(net.units[0].base), 4);
    const std::size_t patches = net.layer_start[1];
    first_patch = net.units.size() * S::record;
    one = first_patch + patches * patch_record;  // the input of biases
    zero = one + 4;
    row_words = one + words_in_pieces(2 * columns);
    lay_out_units();
    share_out(S::together * multiprocessors);
    lay_out_areas();
    constexpr std::size_t reserved = 1024;  // bytes, for each block of threads, by the driver
    const std::size_t there = (shared_bytes + reserved) / S::together - reserved;
    for (std::size_t m = 0; m < share_.size() && problem_.empty(); ++m) make_program(m, there / 4);
  }

  /// Whether a plan for it exists; if not, `why` says in half a sentence what is in the way.
  static bool fits(const Spec& spec, const Connectome& net, int multiprocessors,
                   std::size_t shared_bytes, std::string& why) {
    const DeferralPlan plan = deferral<Precision, Hidden>(spec.momentum);
    why.clear();
    if (net.hidden != Hidden) {
      why = "its units do not have " + std::to_string(Hidden) + " hidden values";
    } else if (plan.period < 3) {
      why = "its momentum lives too long";
    } else if (spec.feed_context_in_complex_layer) {
      why = "its outputs are fed the context";
    } else if (spec.learning_rule != "momentum") {
      why = "its learning rule is not momentum";
    } else if (!spec.own_activation.empty()) {
      why = "its activation is not the library's";
    } else {
      const Plan made(net, plan, multiprocessors, shared_bytes);
      why = made.problem_;
    }
    return why.empty();
  }

  ChipAreas areas{};
  [[nodiscard]] int multiprocessors() const { return static_cast<int>(share_.size()); }

  std::size_t shared_words = 0;  ///< of a block of threads
  std::size_t row_words = 0, first_patch = 0, patch_record = 0;
  std::size_t patch_products = 0;           ///< word of a patch's record
  std::size_t patch_row = 0;                ///< of its history in shared memory
  std::size_t one = 0, zero = 0;            ///< records of a row of the past: 1 and zeros; zeros
  std::size_t outputs = 0;                  ///< of all units, in whole blocks
  std::size_t blocks = 0, wide_blocks = 0;  ///< of W0 and of W1
  std::size_t held = 0, shared = 0, streamed = 0;  ///< blocks of W0 by where they are
  std::size_t wide_streamed = 0;                   ///< of W1 that are not on the chip
  std::size_t list_words = 0;                      ///< of W1's lists, where these are streamed
  std::vector<std::uint32_t> programs, program_start;
  std::vector<std::uint32_t> output_start;  ///< of each unit among all outputs: [A | B], padded

  /// Calls visit(index as they lie in device memory, index in reference order) for all weights.
  template <class Visit>
  void visit_weights(Visit visit) const {
    for (std::size_t u = 0; u < net_.units.size(); ++u) {
      const Unit& unit = net_.units[u];
      const auto inputs = static_cast<std::size_t>(unit.inputs);
      for (std::size_t k = 0; k < inputs; ++k) {
        const std::size_t column = padded_column(u, k);
        const std::size_t block = number_[first_block_[u] + column / columns];
        for (std::size_t i = 0; i < Hidden; ++i) {
          visit(in_tiles(i) ? weights_in(block * S::block_words) + element(i, column % columns)
                            : weights_in(first_beside() + block * S::rest_words) +
                                  element_beside(i, column % columns),
                unit.w0 + i * inputs + k);
        }
      }
      const std::size_t p = base(u);
      for (std::size_t o = 0; o < 2 * p; ++o) {
        const std::size_t column = o < p ? o : padded(u) + o - p;
        const std::size_t block = (output_start[u] + column) / columns;
        for (std::size_t i = 0; i <= Hidden; ++i) {
          visit(in_tiles(i) ? weights_in(first_wide() + block * S::block_words) +
                                  element(i, column % columns)
                            : weights_in(first_wide_beside() + block * S::wide_rest_words) +
                                  element_beside(i, column % columns),
                unit.w1 + o * (Hidden + 1) + i);
        }
      }
    }
  }
  /// Words before W1's tiles, before the rows beside those of W0, and beside those of W1; and all,
  /// as they are multiplied, rounded or not, in whole lines.
  [[nodiscard]] std::size_t first_wide() const { return blocks * S::block_words; }
  [[nodiscard]] std::size_t first_beside() const {
    return first_wide() + wide_blocks * S::block_words;
  }
  [[nodiscard]] std::size_t first_wide_beside() const {
    return first_beside() + blocks * S::rest_words;
  }
  [[nodiscard]] std::size_t weight_words() const {
    return round_up(first_wide_beside() + wide_blocks * S::wide_rest_words, S::line_words);
  }
  [[nodiscard]] std::size_t padded(std::size_t u) const { return round_up(base(u), columns); }

 private:
  static std::size_t round_up(std::size_t n, std::size_t to) { return (n + to - 1) / to * to; }
  [[nodiscard]] std::size_t base(std::size_t u) const {
    return static_cast<std::size_t>(net_.units[u].base);
  }

  static constexpr std::size_t weights_in(std::size_t words) { return words * S::in_a_word; }
  static constexpr bool in_tiles(std::size_t i) {
    return i < static_cast<std::size_t>(S::tiles) * 8;
  }
  /// Where a weight is in its tiles: row i, column c. A lane's words lie side by side.
  static std::size_t element(std::size_t i, std::size_t c) {
    const std::size_t lane = i % 8 * 4 + c % 8 / 2, lower = i % 16 / 8, side = c / 8;
    return S::whole ? ((i / 16 * 2 + side) * 32 + lane) * 4 + lower * 2 + c % 2
                    : (i / 16 * 32 + lane) * 8 + side * 4 + lower * 2 + c % 2;
  }
  /// And in the rows beside them, of which the bias of W1 is the last.
  static std::size_t element_beside(std::size_t i, std::size_t c) {
    const std::size_t row = (i - S::tiles * 8) * columns;
    return row + (S::whole ? c : c % 8 / 2 * 4 + c / 8 * 2 + c % 2);
  }

  /// One panel of context: its slots, and its columns with padding.
  struct Panel {
    std::size_t first, count, column, width;
  };
  [[nodiscard]] std::vector<Panel> panels_of(std::size_t u) const {
    const std::size_t slots = net_.context[u].size();
    std::vector<Panel> panels;
    std::size_t column = 0;
    for (std::size_t first = 0; first < slots || first == 0; first += panel_slots) {
      const std::size_t count = std::min<std::size_t>(panel_slots, slots - first);
      const bool last = first + count >= slots;
      const std::size_t width = round_up(count * Hidden + (last ? 1 : 0), columns);
      panels.push_back({first, count, column, width});
      column += width;
      if (last) break;
    }
    return panels;
  }
  /// Column of input k of unit u among [A | B | context panels], each in whole blocks.
  [[nodiscard]] std::size_t padded_column(std::size_t u, std::size_t k) const {
    const std::size_t p = base(u);
    if (k < p) return k;
    if (k < 2 * p) return padded(u) + k - p;
    const std::size_t slot = (k - 2 * p) / Hidden;
    const std::size_t index = std::min(slot / panel_slots, panels_[u].size() - 1);
    const Panel& panel = panels_[u][index];
    return 2 * padded(u) + panel.column + (k - 2 * p - panel.first * Hidden);
  }
  [[nodiscard]] std::size_t width(std::size_t u) const {
    return 2 * padded(u) + panels_[u].back().column + panels_[u].back().width;
  }

  void lay_out_units() {
    const std::size_t n = net_.units.size();
    for (std::size_t u = 0; u < n; ++u) {
      panels_.push_back(panels_of(u));
      first_block_.push_back(blocks);
      blocks += width(u) / columns;
      output_start.push_back(static_cast<std::uint32_t>(outputs));
      outputs += 2 * padded(u);
    }
    wide_blocks = outputs / columns;
    number_.resize(blocks);
  }

  /// How long a unit takes, as measured on an H200, in blocks of W0.
  [[nodiscard]] double cost(std::size_t u) const {
    return S::unit_cost + static_cast<double>(width(u)) / columns +
           S::wide_cost * static_cast<double>(2 * padded(u)) / columns;
  }

  /// The least load in which first fit, largest first, finds room for all units (MULTIFIT), then
  /// exchanges between any two that make them more alike.
  void share_out(int multiprocessors) {
    std::vector<std::size_t> order(net_.units.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return cost(a) > cost(b); });
    double low = 0, high = 0;
    for (const std::size_t u : order) high += cost(u);
    const auto bins = static_cast<std::size_t>(multiprocessors);
    for (int i = 0; i < 40; ++i) {
      const double middle = (low + high) / 2;
      (first_fit(order, bins, middle).empty() ? low : high) = middle;
    }
    share_ = first_fit(order, bins, high);
    std::vector<double> load;
    for (const auto& units : share_) {
      load.push_back(0);
      for (const std::size_t u : units) load.back() += cost(u);
    }
    for (bool better = true; better;) {
      better = false;
      for (std::size_t a = 0; a < share_.size(); ++a) {
        for (std::size_t b = 0; b < share_.size(); ++b) {
          while (a != b && load[a] > load[b] && exchange(a, b, load)) better = true;
        }
      }
    }
    share_.erase(std::remove_if(share_.begin(), share_.end(),
                                [](const auto& units) { return units.empty(); }),
                 share_.end());  // nothing runs where there is no unit
    for (auto& units : share_) std::sort(units.begin(), units.end());
  }
  /// Each unit to the first multiprocessor that has room; empty if one finds none.
  [[nodiscard]] std::vector<std::vector<std::size_t>> first_fit(
      const std::vector<std::size_t>& order, std::size_t bins, double room) const {
    std::vector<std::vector<std::size_t>> share(bins);
    std::vector<double> load(bins);
    for (const std::size_t u : order) {
      std::size_t to = 0;
      while (to < bins && load[to] + cost(u) > room) ++to;
      if (to == bins) return {};
      share[to].push_back(u);
      load[to] += cost(u);
    }
    return share;
  }
  /// Swaps a unit of `a`, the more loaded, with a smaller one of `b`, or gives it away, such that
  /// the larger of the two loads becomes as small as it can; false if nothing makes it smaller.
  bool exchange(std::size_t a, std::size_t b, std::vector<double>& load) {
    double best = load[a] - 1e-6, moved = 0;
    std::size_t gives = 0, gets = 0;
    for (std::size_t i = 0; i < share_[a].size(); ++i) {
      for (std::size_t k = 0; k <= share_[b].size(); ++k) {  // the last: nothing comes back
        const double theirs = k < share_[b].size() ? cost(share_[b][k]) : 0;
        const double mine = cost(share_[a][i]);
        if (mine <= theirs) continue;
        const double larger = std::max(load[a] - mine + theirs, load[b] - theirs + mine);
        if (larger >= best) continue;
        best = larger;
        gives = i;
        gets = k;
        moved = mine - theirs;
      }
    }
    if (moved == 0) return false;
    if (gets < share_[b].size()) {
      std::swap(share_[a][gives], share_[b][gets]);
    } else {
      share_[b].push_back(share_[a][gives]);
      share_[a].erase(share_[a].begin() + static_cast<std::ptrdiff_t>(gives));
    }
    load[a] -= moved;
    load[b] += moved;
    return true;
  }

  /// A panel of W0 with its blocks, before it has a phase.
  struct Folding {
    std::size_t unit;  // of the multiprocessor
    std::size_t first_block, blocks, column;
    std::size_t phase = 0;
  };

  void make_program(std::size_t m, std::size_t shared_words_there) {
    const auto& units = share_[m];
    std::vector<Folding> foldings = folding_panels(units);
    std::vector<std::size_t> load(period_);
    std::vector<std::size_t> order(foldings.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return foldings[a].blocks > foldings[b].blocks;
    });
    for (const std::size_t i : order) {
      const auto phase =
          static_cast<std::size_t>(std::min_element(load.begin(), load.end()) - load.begin());
      foldings[i].phase = phase;
      load[phase] += foldings[i].blocks;
    }
    write_program(units, foldings, shared_words_there);
  }

  /// A, B and the context's panels, unit by unit.
  [[nodiscard]] std::vector<Folding> folding_panels(const std::vector<std::size_t>& units) const {
    std::vector<Folding> all;
    for (std::size_t i = 0; i < units.size(); ++i) {
      const std::size_t u = units[i];
      const std::size_t side = padded(u) / columns;
      all.push_back({i, first_block_[u], side, 0});
      all.push_back({i, first_block_[u] + side, side, padded(u)});
      for (const Panel& panel : panels_[u]) {
        const std::size_t column = 2 * padded(u) + panel.column;
        all.push_back({i, first_block_[u] + column / columns, panel.width / columns, column});
      }
    }
    return all;
  }

  /// A multiprocessor's program in the making.
  struct Draft {
    ChipProgram p{};
    std::vector<ChipUnit> units;
    std::vector<ChipPanel> panels;
    std::vector<ChipSlot> slots;
    std::array<std::vector<ChipBlock>, S::multipliers> blocks;
    std::array<std::vector<ChipWideBlock>, S::multipliers> wide;
    /// Blocks of a warp that fold, by phase.
    std::array<std::vector<unsigned>, S::multipliers> due;
    std::vector<ChipTarget> targets;
    std::vector<std::uint32_t> folding, folding_start, first_in_pass, products;
    std::vector<std::uint32_t> wide_folding, wide_folding_start, reload;
    std::uint32_t x = 0, out = 0;  ///< inputs and outputs so far, in whole blocks
    std::uint32_t patches = 0;     ///< so far
  };

  void write_program(const std::vector<std::size_t>& units, const std::vector<Folding>& foldings,
                     std::size_t shared_words_there) {
    Draft draft;
    auto folding = foldings.begin();
    for (const std::size_t u : units) add_unit(draft, u, folding);
    deal(draft, foldings);
    deal_wide(draft);
    place_all(draft, shared_words_there);
    if constexpr (S::specialised) {
      list_folding_for_others(draft);
    } else if constexpr (!S::streams) {
      list_folding(draft);
    }
    append(draft);
  }

  /// One unit with its sources; `folding` goes on behind its panels.
  void add_unit(Draft& draft, std::size_t u,
                typename std::vector<Folding>::const_iterator& folding) const {
    ChipUnit unit{};
    unit.unit = narrow(u);
    unit.layer = narrow(static_cast<std::size_t>(net_.units[u].layer));
    unit.base = narrow(base(u));
    unit.padded = narrow(padded(u));
    unit.x = draft.x;
    unit.one =
        draft.x + narrow(padded_column(u, static_cast<std::size_t>(net_.units[u].inputs) - 1));
    unit.out = draft.out;
    unit.all_out = output_start[u];
    unit.first_panel = narrow(draft.panels.size());
    unit.patch = unit.layer == 0 ? unit.unit : not_a_patch;
    unit.seen = narrow(static_cast<std::size_t>(draft.patches) * history * patch_row);
    if (unit.layer == 0) ++draft.patches;
    for (int side = 0; side < 2; ++side) unit.own_phase[side] = narrow((folding++)->phase);
    const auto add_panel = [&](auto sources, std::size_t column, std::uint32_t other_side,
                               std::uint32_t phase) {
      if (sources.empty()) return;
      draft.panels.push_back({narrow(draft.slots.size()), narrow(sources.size()), phase});
      for (std::size_t s = 0; s < sources.size(); ++s) {
        const std::uint32_t to = draft.x + narrow(column + s * Hidden);
        draft.slots.push_back({narrow(sources[s] * S::record), to | (to + other_side) << 16});
      }
    };
    add_panel(net_.primary[u], 0, unit.padded, unit.own_phase[0]);
    for (const Panel& panel : panels_[u]) {
      unit.own_phase[2] = narrow((folding++)->phase);  // the bias is in the last panel
      add_panel(net_.context[u].subspan(panel.first, panel.count), 2 * padded(u) + panel.column, 0,
                unit.own_phase[2]);
    }
    unit.panels = narrow(draft.panels.size()) - unit.first_panel;
    unit.products = narrow(draft.products.size());
    for (std::uint32_t k = 0; k < unit.panels && !S::streams; ++k) {
      list_products(draft, draft.panels[unit.first_panel + k]);
    }
    draft.units.push_back(unit);
    for (std::uint32_t o = 0; o < 2 * unit.padded; o += columns) {
      draft.targets.push_back(target_of(unit, o));
    }
    draft.x += narrow(width(u));
    draft.out += 2 * unit.padded;
  }
  /// Where in a row of the past each lane finds its piece of the inner products of a panel's
  /// sources.
  static void list_products(Draft& draft, const ChipPanel& panel) {
    for (std::uint32_t lane = 0; lane < 32; ++lane) {
      const std::uint32_t source = lane / S::product_pieces, piece = lane % S::product_pieces;
      const bool is = source < std::min<std::uint32_t>(panel.count, panel_slots);
      draft.products.push_back(
          is ? draft.slots[panel.first + source].from + 4 * (S::value_pieces + piece) : no_product);
    }
  }
  /// What outputs `o` and on of a unit, [A | B], are to become: its own A and B.
  [[nodiscard]] ChipTarget target_of(const ChipUnit& unit, std::uint32_t o) const {
    const bool second = o >= unit.padded;
    const std::uint32_t k = second ? o - unit.padded : o;
    const bool pixels = !second && unit.patch != not_a_patch;
    ChipTarget target{};
    target.x = both_steps(unit.x + o, unit.padded, second);
    target.count = std::min<std::uint32_t>(columns, unit.base - std::min(unit.base, k));
    target.out = unit.all_out + o;
    target.seen = pixels ? unit.seen + k : no_pixel;
    return target;
  }
  /// A of odd steps is behind that of even ones; B is the other.
  static std::uint32_t both_steps(std::uint32_t even, std::uint32_t side, bool second) {
    return even | (second ? even - side : even + side) << 16;
  }

  /// Hands out shared memory in whole 16 bytes.
  struct Places {
    std::uint32_t at = 0;

    std::uint32_t operator()(std::size_t words) {
      const std::uint32_t here = at;
      at += narrow(round_up(words, 4));
      return here;
    }
  };

  void lay_out_areas() {
    std::size_t n = 0;
    for (const auto& units : share_) n = std::max(n, units.size());
    if (n > S::most_units) problem_ = "it has too many units";
    Places place{ChipAreas::offsets};
    (void)place(base(0));
    areas.scratch = place((S::specialised ? S::folders : S::multipliers) * S::scratch_words);
    areas.units = place.at;
  }

  /// Shared memory behind the common areas: the program, everything that is not W0, then W0 while
  /// there is room.
  void place_all(Draft& draft, std::size_t shared_words_there) {
    const std::uint32_t start =
        areas.units + (S::streams ? 0 : narrow(draft.units.size()) * S::unit_words);
    Places place{start};
    ChipProgram& p = draft.p;
    std::size_t count = 0, wide_count = 0;
    for (const auto& list : draft.blocks) count += list.size();
    for (const auto& list : draft.wide) wide_count += list.size();
    (void)place(sizeof(ChipProgram) / 4);
    p.units = place(draft.units.size() * sizeof(ChipUnit) / 4);
    p.panels = place(draft.panels.size() * sizeof(ChipPanel) / 4);
    p.slots = place(draft.slots.size() * sizeof(ChipSlot) / 4);
    p.blocks = place((count + 2) * sizeof(ChipBlock) / 4);  // what follows the last is looked at
    p.wide_blocks = place(wide_count * sizeof(ChipWideBlock) / 4);
    p.products = place(draft.products.size());
    p.targets = place(draft.targets.size() * sizeof(ChipTarget) / 4);
    if constexpr (!S::streams) {
      p.folding = place(count);  // at most: what is streamed is known when all have their place
      p.folding_start = place((S::specialised ? 2 * S::folders : S::multipliers) * (period_ + 1));
      p.first_in_pass = place(S::whole ? S::multipliers * period_ : 0);
      p.wide_folding = place(S::specialised ? wide_count : 0);
      p.wide_folding_start = place(S::folders * (period_ + 1));
      p.reload = place(S::specialised ? S::multipliers * period_ : 0);
      p.input_count = S::specialised ? narrow(count + 2) : 0;
      p.inputs = place(2 * p.input_count);
    }
    p.start = start;
    p.words = place.at - start;
    p.x = place(draft.x);
    p.x_words = draft.x;
    p.d1 = place(draft.out);
    p.seen = place(draft.patches * history * patch_row);
    if constexpr (S::streams) {
      p.lists = narrow(list_words);
      list_words += wide_count * S::list_words;
    } else {
      p.y = place(2 * draft.out);
      std::uint32_t rest = place(count * S::rest_words);
      for (std::size_t w = 0; w < S::multipliers; ++w) {
        p.rest_first[w] = rest;
        rest += narrow(draft.blocks[w].size() * S::rest_words);
      }
      p.lists = place(wide_count * S::list_words);
    }
    place_wide(draft, shared_words_there, place);
    if (place.at > shared_words_there) problem_ = "its units do not fit a multiprocessor";
    make_absolute(draft);
    place_blocks(draft, shared_words_there, place);
    shared_words = std::max<std::size_t>(shared_words, place.at);
  }
  /// From offsets in x to words of shared memory, for even and odd steps.
  static void make_absolute(Draft& draft) {
    const std::uint32_t x = draft.p.x;
    for (ChipUnit& unit : draft.units) {
      unit.x += x;
      unit.one += x;
      unit.seen += draft.p.seen;
      unit.products += draft.p.products;
    }
    for (ChipSlot& slot : draft.slots) slot.to += x | x << 16;
    for (auto& list : draft.blocks) {
      for (ChipBlock& block : list) block.x += x | x << 16;
    }
    for (ChipTarget& target : draft.targets) {
      target.x += x | x << 16;
      if (target.seen != no_pixel) target.seen += draft.p.seen;
    }
  }
  /// W1 goes before W0, but for the first of each warp's, if so many are to be streamed. Of fp32
  /// weights there may be more than there is room for; 16-bit ones are nowhere else, if they are on
  /// the chip.
  void place_wide(Draft& draft, std::size_t shared_words_there, Places& place) {
    for (auto& list : draft.wide) {
      for (std::size_t k = 0; k < list.size(); ++k) {
        const bool room = k + 1 > S::wide_ahead && place.at + S::block_words <= shared_words_there;
        const bool stays = !S::streams && (room || !S::whole);
        list[k].where = stays ? place(S::block_words) : in_memory;
        if (!stays) ++wide_streamed;
      }
    }
  }
  /// W0: some of each warp's are held in registers, others lie in shared memory, warp by warp
  /// alike, and there is no room for the rest, which is streamed. A warp has the held first, then
  /// the streamed, the first of which is asked for before all; where warps have roles the streamed
  /// come first and last, so that the last can be on their way while others are multiplied.
  void place_blocks(Draft& draft, std::size_t shared_words_there, Places& place) {
    std::array<std::size_t, S::multipliers> left{};
    std::size_t most = 0;
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      left[w] = draft.blocks[w].size();
      held += std::min<std::size_t>(left[w], S::held_blocks);
      most = std::max(most, left[w]);
    }
    std::uint32_t next = place.at;
    for (; most > S::held_blocks && !S::streams; --most) {
      for (std::size_t w = 0; w < S::multipliers; ++w) {
        if (left[w] < most || place.at + S::block_words > shared_words_there) continue;
        --left[w];
        place(S::block_words);
        ++shared;
      }
    }
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      auto& list = draft.blocks[w];
      const std::size_t held_here = std::min<std::size_t>(left[w], S::held_blocks);
      const std::size_t streamed_here = left[w] - held_here;
      const std::size_t early =
          S::specialised ? std::min<std::size_t>(streamed_here, S::under_way) : streamed_here;
      const std::size_t first_shared = held_here + early;
      const std::size_t late = list.size() - (streamed_here - early);
      streamed += streamed_here;
      draft.p.streamed_to[w] = narrow(S::specialised ? early : left[w]);
      draft.p.late_from[w] = narrow(late);
      for (std::size_t k = 0; k < list.size(); ++k) {
        list[k].where = in_memory;  // of those that are held, what others fold
        if (k < first_shared || k >= late) continue;
        list[k].where = next;
        next += S::block_words;
      }
    }
  }

  /// Puts the program behind those of the multiprocessors before.
  void append(Draft& draft) {
    ChipProgram& p = draft.p;
    p.unit_count = narrow(draft.units.size());
    p.slot_count = narrow(draft.slots.size());
    p.out_count = draft.out;
    std::vector<ChipBlock> blocks_of_all;
    std::vector<ChipWideBlock> wide_of_all;
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      p.block_start[w] = narrow(blocks_of_all.size());
      p.wide_start[w] = narrow(wide_of_all.size());
      blocks_of_all.insert(blocks_of_all.end(), draft.blocks[w].begin(), draft.blocks[w].end());
      wide_of_all.insert(wide_of_all.end(), draft.wide[w].begin(), draft.wide[w].end());
    }
    for (std::size_t w = S::multipliers; w <= S::warps; ++w) {  // these have none
      p.block_start[w] = narrow(blocks_of_all.size());
      p.wide_start[w] = narrow(wide_of_all.size());
    }
    const std::size_t start = programs.size();
    program_start.push_back(narrow(start));
    programs.resize(start + p.words);
    const auto put = [&](std::uint32_t at, const auto& values) {
      if (values.empty()) return;
      std::memcpy(programs.data() + start + at - p.start, values.data(),
                  values.size() * sizeof(values[0]));
    };
    std::memcpy(programs.data() + start, &p, sizeof(p));
    put(p.units, draft.units);
    put(p.panels, draft.panels);
    put(p.slots, draft.slots);
    put(p.blocks, blocks_of_all);  // and zeros
    put(p.wide_blocks, wide_of_all);
    put(p.products, draft.products);
    put(p.targets, draft.targets);
    put(p.folding, draft.folding);
    put(p.folding_start, draft.folding_start);
    put(p.first_in_pass, draft.first_in_pass);
    put(p.wide_folding, draft.wide_folding);
    put(p.wide_folding_start, draft.wide_folding_start);
    put(p.reload, draft.reload);
    std::vector<std::uint32_t> inputs(2 * p.input_count, p.x);
    for (std::size_t k = 0; k < inputs.size() / 2 && k < blocks_of_all.size(); ++k) {
      inputs[k] = blocks_of_all[k].x & 0xffffU;
      inputs[p.input_count + k] = blocks_of_all[k].x >> 16;
    }
    put(p.inputs, inputs);
  }

  static std::uint32_t narrow(std::size_t n) { return static_cast<std::uint32_t>(n); }

  /// Says in each block of a warp's how many of the same unit are left.
  template <class Block>
  static void count_runs(std::vector<Block>& list) {
    for (std::size_t k = list.size(), run = 0; k-- > 0;) {
      const bool last = k + 1 == list.size() || (list[k + 1].what & 0xff) != (list[k].what & 0xff);
      run = last ? 1 : run + 1;
      list[k].what |= narrow(run << run_shift);
    }
  }

  /// What a warp of a multiprocessor does beside products: it finishes a unit, or writes the
  /// factors of a unit's folds and reads its patch if it sees one, or neither. All but those that
  /// finish or read have blocks of W1.
  enum class Role { finishes, reads, writes, others };
  [[nodiscard]] static Role role(const Draft& draft, std::size_t w) {
    const std::size_t finishing = draft.units.size();
    if (w < finishing) return Role::finishes;
    const bool enough = finishing + draft.patches < S::warps;
    if (enough && w < finishing + draft.patches) return Role::reads;
    return w < 2 * finishing ? Role::writes : Role::others;
  }

  /// Blocks to warps, in the order in which they fold, to the one that has least; in 16 bits of
  /// those of which least folds in that step, because what folds is loaded again. (Most fp32 blocks
  /// fold while they are streamed.) Each warp then has its own ordered by unit, one behind the
  /// other in device memory. The shares make the warps of an H200 busy for as long.
  void deal(Draft& draft, const std::vector<Folding>& foldings) {
    const auto share_of = [&](std::size_t w) {
      return S::streams || S::specialised ? 1 : S::shares[static_cast<std::size_t>(role(draft, w))];
    };
    const auto load = [&](std::size_t w) {
      return static_cast<double>(draft.blocks[w].size()) / share_of(w);
    };
    for (auto& due : draft.due) due.assign(period_, 0);
    for (std::size_t phase = 0; phase < period_; ++phase) {
      const auto before = [&](std::size_t a, std::size_t b) {
        return std::pair(draft.due[a][phase], load(a)) < std::pair(draft.due[b][phase], load(b));
      };
      for (const Folding& f : foldings) {
        if (f.phase != phase) continue;
        for (std::size_t b = 0; b < f.blocks; ++b) {
          std::size_t to = S::multipliers - 1;
          for (std::size_t w = 0; w < S::multipliers; ++w) {
            if (before(w, to)) to = w;
          }
          draft.blocks[to].push_back(block_of(draft.units[f.unit], f, b));
          if constexpr (!S::whole) ++draft.due[to][phase];
        }
      }
    }
    for (auto& list : draft.blocks) {
      std::stable_sort(list.begin(), list.end(), [](const ChipBlock& a, const ChipBlock& b) {
        return (a.what & 0xff) < (b.what & 0xff);
      });
      count_runs(list);
      for (ChipBlock& block : list) {
        number_[block.block] = numbered_;
        block.block = narrow(numbered_++);
      }
    }
  }
  /// Block b of a panel.
  [[nodiscard]] ChipBlock block_of(const ChipUnit& unit, const Folding& f, std::size_t b) const {
    const std::size_t column = f.column + b * columns;
    const std::size_t side = column / unit.padded;
    const std::uint32_t even = unit.x + narrow(column);
    ChipBlock block{};
    block.x = side < 2 ? both_steps(even, unit.padded, side == 1) : even | even << 16;
    block.what = narrow(f.unit | f.phase << 8);
    block.block = narrow(f.first_block + b);
    // Of a patch, A of step t is frame t, where of a unit it is c(h(t-1)).
    block.back = static_cast<std::uint16_t>(4 + (side == 1 ? 1 : 0) -
                                            (side < 2 && unit.patch != not_a_patch ? 1 : 0));
    const Place first = input_place(unit, f, b * columns);
    block.first = narrow(first.record);
    block.from = narrow(first.value);
    block.cut = columns;
    for (std::uint16_t c = columns; c-- > 1;) {
      const Place place = input_place(unit, f, b * columns + c);
      // A unit can be two sources, one behind the other.
      if (place.record == first.record && place.value == first.value + c) break;
      block.cut = c;
      block.second = narrow(place.record);
    }
    return block;
  }
  /// A value in a row of the past.
  struct Place {
    std::size_t record, value;
  };
  /// Where in a row of the past input k of a panel is: a source's value, a pixel, 1 for the bias, 0
  /// for padding.
  [[nodiscard]] Place input_place(const ChipUnit& unit, const Folding& f, std::size_t k) const {
    if (f.column < 2 * unit.padded) {
      if (k >= unit.base) return {zero, k - unit.base};
      if (unit.patch != not_a_patch) return {first_patch + unit.patch * patch_record, k};
      return {net_.primary[unit.unit][k / Hidden] * S::record, k % Hidden};
    }
    const auto& panels = panels_[unit.unit];
    const std::size_t column = f.column - 2 * unit.padded;
    const auto panel = std::find_if(panels.begin(), panels.end(),
                                    [&](const Panel& one_) { return one_.column == column; });
    const std::size_t end = panel->count * Hidden;
    const bool has_bias = panel + 1 == panels.end();
    if (k >= end) return {has_bias ? one : zero, k - end};
    const auto slots = net_.context[unit.unit].subspan(panel->first, panel->count);
    return {slots[k / Hidden] * S::record, k % Hidden};
  }

  /// Blocks of W1, in runs, to the warps that have nothing else.
  void deal_wide(Draft& draft) const {
    std::vector<std::size_t> to;
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      const Role is = role(draft, w);
      if (S::streams || S::specialised || is == Role::writes || is == Role::others) to.push_back(w);
    }
    if (to.empty()) return;
    const std::size_t count = draft.targets.size();
    std::size_t next = 0;
    for (std::size_t u = 0; u < draft.units.size(); ++u) {
      const ChipUnit& unit = draft.units[u];
      for (std::uint32_t b = 0; b < 2 * unit.padded / columns; ++b, ++next) {
        draft.wide[to[next * to.size() / count]].push_back(
            {narrow(u), unit.out + b * columns, 0, unit.all_out / columns + b});
      }
    }
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      for (ChipWideBlock& block : draft.wide[w]) block.what |= narrow(free_phase(draft, w) << 8);
      count_runs(draft.wide[w]);
    }
  }
  /// The phase in which a warp folds least, if it folds its own, and of these the one in which all
  /// do.
  [[nodiscard]] static std::size_t free_phase(Draft& draft, std::size_t w) {
    auto& mine = draft.due[w];
    const auto own = [&](std::size_t phase) { return S::specialised ? 0 : mine[phase]; };
    const auto of_all = [&](std::size_t phase) {
      unsigned sum = 0;
      for (const auto& due : draft.due) sum += due[phase];
      return sum;
    };
    std::size_t best = 0;
    for (std::size_t phase = 1; phase < mine.size(); ++phase) {
      if (std::pair(own(phase), of_all(phase)) < std::pair(own(best), of_all(best))) best = phase;
    }
    ++mine[best];
    return best;
  }

  /// Each warp's blocks of W0 by the phase in which they fold; of fp32 weights those that are
  /// streamed fold in their pass, and of them only the first of each phase is noted.
  void list_folding(Draft& draft) const {
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      const auto& list = draft.blocks[w];
      for (std::size_t phase = 0; phase <= period_; ++phase) {
        draft.folding_start.push_back(narrow(draft.folding.size()));
        std::uint32_t first = no_block;
        for (std::size_t k = 0; k < list.size(); ++k) {
          if ((list[k].what >> 8 & 0xff) != phase) continue;
          if (!S::whole || k < S::held_blocks || k >= draft.p.streamed_to[w]) {
            draft.folding.push_back(narrow(k));
          } else if (first == no_block) {
            first = narrow(k);
          }
        }
        if (S::whole && phase < period_) draft.first_in_pass.push_back(first);
      }
    }
  }

  /// The same where some warps fold for others: the blocks of a phase are dealt to these in turns,
  /// first those of W0 that are held, which need not wait until nobody reads them. They are
  /// numbered among all of the multiprocessor's. A bit for each held block says whether it is to be
  /// loaded again after a phase.
  void list_folding_for_others(Draft& draft) const {
    struct Due {
      std::uint32_t phase;
      bool held;
    };
    const auto phase_of = [](const auto& block) { return block.what >> 8 & 0xff; };
    std::vector<Due> due, wide_due;
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      const auto& list = draft.blocks[w];
      const std::size_t first = draft.p.streamed_to[w];
      const std::size_t behind = std::min<std::size_t>(list.size(), first + S::held_blocks);
      for (std::size_t k = 0; k < list.size(); ++k) {
        due.push_back({phase_of(list[k]), k >= first && k < behind});
      }
      for (std::size_t phase = 0; phase < period_; ++phase) {
        std::uint32_t held_due = 0;
        for (std::size_t k = first; k < behind; ++k) {
          if (phase_of(list[k]) == phase) held_due |= 1U << (k - first);
        }
        draft.reload.push_back(held_due);
      }
    }
    for (const auto& list : draft.wide) {
      for (const ChipWideBlock& block : list) wide_due.push_back({phase_of(block), false});
    }
    for (std::size_t f = 0; f < S::folders; ++f) {
      for (std::size_t phase = 0; phase <= period_; ++phase) {
        std::size_t turn = 0, early = S::folders * S::early_folds;
        const auto deal_to = [&](std::vector<std::uint32_t>& list, const std::vector<Due>& all,
                                 bool before) {
          std::size_t held = 0;
          for (std::size_t k = 0; k < all.size(); ++k) {
            if (all[k].phase != phase) continue;
            if ((all[k].held && held++ < early) != before) continue;
            if (turn++ % S::folders == f) list.push_back(narrow(k));
          }
        };
        draft.folding_start.push_back(narrow(draft.folding.size()));
        deal_to(draft.folding, due, true);
        draft.folding_start.push_back(narrow(draft.folding.size()));
        deal_to(draft.folding, due, false);
        draft.wide_folding_start.push_back(narrow(draft.wide_folding.size()));
        deal_to(draft.wide_folding, wide_due, false);
      }
    }
  }

  Connectome net_;
  std::size_t period_;
  std::string problem_;
  std::vector<std::vector<Panel>> panels_;
  std::vector<std::size_t> first_block_;
  std::vector<std::size_t> number_;              // of each block of W0 in device memory
  std::size_t numbered_ = 0;                     // so far
  std::vector<std::vector<std::size_t>> share_;  // units of each multiprocessor
};

}  // namespace pvm::inline v0::detail::chip
