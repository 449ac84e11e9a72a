// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// W0 of a unit in a program: groups of sources that fold at the same steps, their panels and
/// items.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/engine/cuda/general/plan/planner.hpp>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0::detail::general {

/// Adds W0 of unit `id` to the draft. `x_start`: index of the SM's first word in source_words.
inline void Planner::add_hidden_unit(Draft& d, u32 id, std::size_t x_start) {
  const std::vector<Piece> pieces = pieces_of(id);
  HiddenUnit unit = new_hidden_unit(d, id);
  // Groups of several panels, if the unit has as many pieces.
  const std::size_t most = panels_of_a_group * static_cast<std::size_t>(shape_.panel_columns());
  std::vector<Item> items;
  std::span<const Piece> left = pieces;
  while (!left.empty()) {
    const std::size_t count = fitting(left, most);
    const Group together{new_phase(d), source_words.size()};
    list_sources(d, left.first(count), together.phase);
    add_source_tasks(d, count, unit.layer);
    while ((source_words.size() - together.start) % 4 != 0) {
      source_words.push_back(zero_word());
      x_reference.push_back(-1);
    }
    cut_group(d, unit, together, x_start, items);
    left = left.subspan(count);
  }
  unit.tasks = u(d.source_tasks.size()) - unit.first_task;
  d.hidden_units.push_back(unit);
  for (int round = 0; round < shape_.rounds; ++round) {
    for (std::size_t k = 0; k < items.size(); ++k) {
      items[k].round = u(static_cast<std::size_t>(round));
      items[k].flags = (k == 0 ? starts_sum : 0) | (k + 1 == items.size() ? ends_sum : 0);
      d.early_items.push_back(items[k]);
    }
  }
}

/// The pieces of x in the order of W0's columns: A(t), B(t) = A(t-1), the context, the bias.
inline std::vector<Planner::Piece> Planner::pieces_of(u32 id) const {
  const Unit& unit = net_.units[id];
  const std::size_t h = hidden();
  const auto base = static_cast<std::size_t>(unit.base);
  std::vector<Piece> pieces;
  std::size_t at = 0;
  const auto hidden_piece = [&](u32 source, u32 in_b_half) {
    pieces.push_back({source, in_b_half, 1 + in_b_half, shape_.squeezed(source * h), h, at});
    at += h;
  };
  if (unit.layer == 0) {
    const u32 source = u(net_.units.size()) + id;
    pieces.push_back({source, 0, 0, shape_.pixel(id * base), base, 0});
    pieces.push_back({source, 1, 1, shape_.pixel(id * base), base, base});
    at = 2 * base;
  } else {
    for (const auto s : net_.primary[id]) hidden_piece(s, 0);
    for (const auto s : net_.primary[id]) hidden_piece(s, 1);
  }
  for (const auto s : net_.context[id]) hidden_piece(s, 0);
  const u32 bias = u(net_.units.size() + net_.layer_start[1]);
  pieces.push_back({bias, 0, 0, shape_.one(), 1, at});
  return pieces;
}

/// A HiddenUnit with room in shared memory; its source tasks follow.
inline HiddenUnit Planner::new_hidden_unit(Draft& d, u32 id) const {
  const Unit& unit = net_.units[id];
  HiddenUnit made{};
  made.unit = id;
  made.layer = d.local_layer(unit.layer);
  made.patch = unit.layer == 0 ? id : Source::none;
  made.sum = d.allocate(static_cast<std::size_t>((shape_.parts + shape_.sections) * shape_.padded));
  made.corrections = made.sum + u(static_cast<std::size_t>(shape_.parts * shape_.padded));
  if (made.patch != Source::none) d.patches.push_back(made.patch);
  made.q = d.allocate(static_cast<std::size_t>(shape_.terms));
  made.squeezed_h = d.allocate(static_cast<std::size_t>(2 * shape_.padded));
  made.first_task = u(d.source_tasks.size());
  return made;
}

/// How many of the pieces make the next group: as many as fit into `most` columns, but at least
/// one.
inline std::size_t Planner::fitting(std::span<const Piece> pieces, std::size_t most) {
  std::size_t count = 0, length = 0;
  while (count < pieces.size() && (count == 0 || length + pieces[count].length <= most)) {
    length += pieces[count++].length;
  }
  return count;
}

/// Lists the source words and the sources of the pieces of a group.
inline void Planner::list_sources(Draft& d, std::span<const Piece> pieces, u32 phase) {
  for (const Piece& piece : pieces) {
    for (std::size_t k = 0; k < piece.length; ++k) {
      source_words.push_back(word(piece.back, piece.place + k));
      x_reference.push_back(static_cast<std::int32_t>(piece.reference + k));
    }
    d.sources.push_back({piece.source, phase, piece.in_b_half});
  }
}

/// Divides the last `count` sources of the list into tasks.
inline void Planner::add_source_tasks(Draft& d, std::size_t count, u32 layer) const {
  for (std::size_t first = d.sources.size() - count; first < d.sources.size();
       first += sources_per_task) {
    const std::size_t some = std::min<std::size_t>(sources_per_task, d.sources.size() - first);
    d.source_tasks.push_back(
        {u(first), u(some), layer, d.allocate(static_cast<std::size_t>(shape_.terms))});
  }
}

/// Cuts the columns of a group, which are the last ones in source_words, into panels, with an item
/// and a fold each.
inline void Planner::cut_group(Draft& d, const HiddenUnit& unit, const Group& group,
                               std::size_t x_start, std::vector<Item>& items) {
  const std::size_t columns_f4 = (source_words.size() - group.start) / 4;
  for (std::size_t from = 0; from < columns_f4;) {
    const std::size_t width = shape_.panel_width(columns_f4 - from);
    const u32 weight =
        new_panel({unit.unit, false, 0, u(group.start + from * 4), u(width), 0, group.phase});
    Item item{};
    item.weight = weight;
    item.resident = -1;
    item.width = u(width);
    item.part_width = part_width(item.width);
    item.rows = u(padded());
    item.column_vector = u((group.start - x_start) / 4 + from);
    item.sum = unit.sum;
    item.work = Work::hidden;
    items.push_back(item);
    d.folds.push_back({weight, -1, u(width), part_width(u(width)), unit.layer, group.phase,
                       unit.unit, 0, u(group.start - x_start + from * 4), 0});
    from += width;
  }
}

}  // namespace pvm::inline v0::detail::general
