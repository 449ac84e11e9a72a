// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A unit as its thread block sees it: its columns of W0, its blocks, sources and targets; and the
/// layout of a row of the past.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/engine/cuda/units/plan/draft.hpp>
#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// Lays out a row of the past in device memory: units' records | patches' records | a record of 1
/// and zeros | zeros. Values are in pieces of three words and a tag.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::lay_out_row() {
  patch_products = words_in_pieces(static_cast<std::size_t>(net_.units[0].base));
  patch_record = patch_products + S::table_row;
  patch_row = round_up(static_cast<std::size_t>(net_.units[0].base), 4);
  const std::size_t patches = net_.layer_start[1];
  first_patch = net_.units.size() * S::record;
  one = first_patch + patches * patch_record;  // its first value is the input of biases
  zero = one + 4;
  row_words = one + words_in_pieces(2 * columns);
}

/// Numbers the blocks and outputs of all units, unit by unit.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::lay_out_units() {
  const std::size_t n = net_.units.size();
  for (std::size_t u = 0; u < n; ++u) {
    context_panels_.push_back(context_panels_of(u));
    first_block_index_.push_back(blocks);
    blocks += width(u) / columns;
    first_context_index_.push_back(blocks);
    blocks += context_blocks(u);
    first_group_.push_back(output_groups);
    output_groups += groups(u);
    output_start.push_back(static_cast<std::uint32_t>(outputs));
    outputs += 2 * padded(u);
  }
  w1_blocks = outputs / columns;
  block_number_.resize(blocks);
}

/// Divides the context of unit u into panels of up to `panel_sources` sources. The last panel has
/// the bias as well; without any context it is the only one and has nothing else.
template <class Precision, int Hidden, Home home>
std::vector<ContextPanel> Plan<Precision, Hidden, home>::context_panels_of(std::size_t u) const {
  const std::size_t sources = net_.context[u].size();
  std::vector<ContextPanel> panels;
  std::size_t column = 0;
  for (std::size_t first = 0; first < sources || first == 0; first += S::panel_sources) {
    const std::size_t count = std::min(S::panel_sources, sources - first);
    const bool last = first + count >= sources;
    const std::size_t width = round_up(count * used() + (last ? 1 : 0), columns);
    panels.push_back({first, count, column, width});
    column += width;
    if (last) break;
  }
  return panels;
}

/// The column of input k of unit u (reference order) in [A | B | context panels], where each part
/// is padded to whole blocks.
template <class Precision, int Hidden, Home home>
std::size_t Plan<Precision, Hidden, home>::padded_column(std::size_t u, std::size_t k) const {
  const std::size_t p = base(u);
  if (k < p) return k;
  if (k < 2 * p) return padded(u) + k - p;
  const std::size_t slot = (k - 2 * p) / used();
  const std::size_t index = std::min(slot / S::panel_sources, context_panels_[u].size() - 1);
  const ContextPanel& panel = context_panels_[u][index];
  return 2 * padded(u) + panel.column + (k - 2 * p - panel.first * used());
}

/// The estimated time of a unit in a step, in units of the time of a block of W0. The constants
/// were measured on an H200.
template <class Precision, int Hidden, Home home>
double Plan<Precision, Hidden, home>::cost(std::size_t u) const {
  return S::unit_cost + static_cast<double>(width(u)) / columns +
         static_cast<double>(context_blocks(u)) +
         S::w1_cost * static_cast<double>(2 * padded(u)) / columns;
}

/// Adds unit u with its sources and targets. `next_panel` points to its panels (panels_of()) and
/// is advanced to the next unit's.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::add_unit(
    Draft& draft, std::size_t u, std::vector<W0Panel>::const_iterator& next_panel) const {
  ProgramUnit unit = new_unit(draft, u);
  const auto next_phase = [&] {
    const std::uint32_t phase = narrow((next_panel++)->phase);
    unit.due_phases |= 1U << phase;
    return phase;
  };
  for (int part = 0; part < 2; ++part) unit.own_phase[part] = next_phase();
  std::vector<PanelSources> panels;
  const auto add = [&](std::span<const std::uint32_t> sources, std::size_t column,
                       std::uint32_t odd_columns, std::uint32_t phase) {
    panels.push_back({narrow(draft.sources.size()), narrow(sources.size()), phase});
    add_sources(draft, sources, column, odd_columns);
  };
  if (unit.primary > 0) add(net_.primary[u], 0, unit.padded, unit.own_phase[0]);
  for (const ContextPanel& panel : context_panels_[u]) {
    unit.own_phase[2] = next_phase();  // the bias is in the last panel
    add(net_.context[u].subspan(panel.first, panel.count), 2 * padded(u) + panel.column, 0,
        unit.own_phase[2]);
  }
  list_groups(draft, unit, panels);
  draft.units.push_back(unit);
  for (std::uint32_t o = 0; o < 2 * unit.padded; o += columns) {
    draft.targets.push_back(target_of(unit, o));
  }
  if (unit.layer == 0) ++draft.patches;
  draft.x += narrow(width(u));
  draft.out += 2 * unit.padded;
}

/// Unit u as the draft's next unit, without what depends on its sources.
template <class Precision, int Hidden, Home home>
ProgramUnit Plan<Precision, Hidden, home>::new_unit(const Draft& draft, std::size_t u) const {
  ProgramUnit unit{};
  unit.unit = narrow(u);
  unit.layer = narrow(static_cast<std::size_t>(net_.units[u].layer));
  unit.base = narrow(base(u));
  unit.padded = narrow(padded(u));
  unit.x = draft.x;
  unit.one = draft.x + narrow(padded_column(u, static_cast<std::size_t>(net_.units[u].inputs) - 1));
  unit.out = draft.out;
  unit.all_out = output_start[u];
  unit.first_source = narrow(draft.sources.size());
  unit.primary = narrow(net_.primary[u].size());
  unit.context = narrow(net_.context[u].size());
  unit.patch = unit.layer == 0 ? unit.unit : not_a_patch;
  unit.history = unit.squeezed = in_memory;
  unit.seen = narrow(static_cast<std::size_t>(draft.patches) * S::past_rows * patch_row);
  return unit;
}

/// Adds sources, whose values go to the columns from `column` on of the unit that is being added;
/// on odd steps `odd_columns` further on.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::add_sources(Draft& draft,
                                                std::span<const std::uint32_t> sources,
                                                std::size_t column,
                                                std::uint32_t odd_columns) const {
  for (std::size_t s = 0; s < sources.size(); ++s) {
    const std::uint32_t to = draft.x + narrow(column + s * used());
    draft.sources.push_back({narrow(sources[s] * S::record), to | (to + odd_columns) << 16});
  }
}

/// Lists where in a row of the past each lane finds its piece of a source's inner products, and the
/// phase of the columns that the source feeds. A warp reads `group_sources` sources at once, a
/// group: first a group of primary sources (further primary sources are not listed), padded, then
/// the context's sources, whatever their panels.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::list_groups(Draft& draft, ProgramUnit& unit,
                                                const std::vector<PanelSources>& panels) {
  std::vector<std::uint32_t> places;  // [source]: its first piece of products | phase
  for (const PanelSources& panel : panels) {
    const bool is_primary = panel.first < unit.first_source + unit.primary;
    for (std::uint32_t s = 0; s < panel.count && (s < S::group_sources || !is_primary); ++s) {
      places.push_back((draft.sources[panel.first + s].from + 4 * S::value_pieces) |
                       panel.phase << phase_shift);
    }
    if (is_primary) places.resize(round_up(places.size(), S::group_sources), no_source);
  }
  unit.products = narrow(draft.products.size());
  unit.groups = narrow(round_up(places.size(), S::group_sources) / S::group_sources);
  for (std::size_t at = 0; at < unit.groups * 32; ++at) {
    const std::size_t lane = at % 32,
                      source = at / 32 * S::group_sources + lane / S::product_pieces;
    const bool is = lane < S::group_sources * S::product_pieces && source < places.size() &&
                    places[source] != no_source;
    draft.products.push_back(is ? places[source] + 4 * narrow(lane % S::product_pieces)
                                : no_source);
  }
}

/// The target of outputs `o` to `o` + 15 of a unit, in [A | B] padded to whole blocks: what these
/// outputs predict, which are the unit's own A and B.
template <class Precision, int Hidden, Home home>
Target Plan<Precision, Hidden, home>::target_of(const ProgramUnit& unit, std::uint32_t o) const {
  const bool second = o >= unit.padded;
  const std::uint32_t k = second ? o - unit.padded : o;
  const bool pixels = !second && unit.patch != not_a_patch;
  Target target{};
  target.x = both_steps(unit.x + o, unit.padded, second);
  target.count = std::min<std::uint32_t>(columns, unit.base - std::min(unit.base, k));
  target.out = unit.all_out + o;
  target.seen = pixels ? unit.seen + k : no_pixel;
  return target;
}

}  // namespace pvm::inline v0::detail::units
