// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// W1 of a unit in a program. W1 transposed is cut into blocks of columns (outputs) and slabs of
/// rows (the unit's hidden values, then every fed context source); the listed d1 are treated as
/// further rows of each block.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/general/plan/planner.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0::detail::general {

/// Adds W1 of unit `id` to the draft.
inline void Planner::add_output_unit(Draft& d, u32 id) {
  OutputUnit unit{};
  unit.unit = id;
  unit.layer = d.local_layer(net_.units[id].layer);
  unit.first_block = u(d.blocks.size());
  list_representation(d, unit);
  const u32 first_column = list_targets(d, id);
  const u32 f4 = u((static_cast<std::size_t>(net_.units[id].outputs) + 3) / 4);
  unit.sum = 0;
  for (u32 from = 0; from < f4;) {
    const u32 width = u(shape_.panel_width(f4 - from));
    OutputBlock block{};
    block.unit = u(d.output_units.size());
    block.first_phase = u(d.phases.size());
    Item item{};
    item.resident = -1;
    item.width = width;
    item.column_vector = first_column / 4 + from;
    item.part_width = part_width(width);
    item.y = first_column / 4 + from;
    const u32 sum_flags = (from == 0 ? starts_sum : 0) | (from + width == f4 ? ends_sum : 0);
    add_slabs(d, unit, block, item, from, sum_flags);
    add_history(d, item);
    d.blocks.push_back(block);
    from += width;
  }
  unit.blocks = u(d.blocks.size()) - unit.first_block;
  d.output_units.push_back(unit);
}

/// Lists the source words of r(t-1), slab by slab, and of h(t-2), and the representation tasks.
inline void Planner::list_representation(Draft& d, OutputUnit& unit) const {
  const std::size_t h = hidden();
  const auto list = [&](u32 source, u32 back) {
    for (std::size_t i = 0; i < padded(); ++i) {
      d.r_words.push_back(i < h ? word(back, shape_.raw(source * h + i)) : zero_word());
    }
  };
  unit.first_task = u(d.representation_tasks.size());
  unit.slabs = slabs(unit.unit);
  unit.r = u(d.r_words.size());
  for (u32 slab = 0; slab < unit.slabs; ++slab) {
    const u32 source = slab_source(unit.unit, slab);
    list(source, slab_back(slab));
    d.representation_tasks.push_back({source, slab_back(slab), 0});
  }
  unit.h_two_back = u(d.r_words.size());
  list(unit.unit, 2);
  while (d.r_words.size() % 4 != 0) d.r_words.push_back(zero_word());
}

/// Lists the source words of the values that the unit's outputs predict. Returns the index of the
/// first one among the SM's columns.
inline Planner::u32 Planner::list_targets(Draft& d, u32 id) const {
  const Unit& unit = net_.units[id];
  const std::size_t h = hidden();
  const auto outputs = static_cast<std::size_t>(unit.outputs);
  const auto base = static_cast<std::size_t>(unit.base);
  const auto target = [&](std::size_t o) {
    const std::size_t k = o % base;
    const u32 in_b_half = o < base ? 0 : 1;
    if (unit.layer == 0) return word(in_b_half, shape_.pixel(id * base + k));
    return word(1 + in_b_half, shape_.squeezed(net_.primary[id][k / h] * h + k % h));
  };
  const u32 first_column = u(d.targets.size());
  for (std::size_t o = 0; o < (outputs + 3) / 4 * 4; ++o) {
    d.targets.push_back(o < outputs ? target(o) : zero_word());
  }
  d.output_ids.push_back(id);
  d.first_column.push_back(first_column);
  return first_column;
}

/// Adds the panels of one column block, one per slab. `item` has the block's columns, which start
/// `from` f4 behind the unit's first. `sum_flags`: whether the row sums of the hidden slab start or
/// end with this block.
inline void Planner::add_slabs(Draft& d, const OutputUnit& unit, OutputBlock& block, Item item,
                               u32 from, u32 sum_flags) {
  for (u32 slab = 0; slab < unit.slabs; ++slab) {
    const u32 phase = new_phase(d);
    d.phases.push_back(phase);
    if (slab == 0) block.phase = phase;
    item.weight = new_panel({unit.unit, true, slab, from * 4, item.width, 0, phase});
    item.rows = u(padded());
    item.row_vector = unit.r + slab * u(padded());
    item.work = slab == 0 ? Work::output : Work::context;
    item.sum = block.unit;  // index of the unit until placed_late_items
    item.flags = slab == 0 ? sum_flags : 0;
    d.late_items.push_back(item);
    d.folds.push_back({item.weight, -1, item.width, item.part_width, unit.layer, phase,
                       slab_source(unit.unit, slab), slab_back(slab), item.column_vector * 4,
                       slab == 0 ? 1U : 0U});
  }
}

/// Adds the slabs of the listed d1 for the columns of the item `columns`, which belong to the block
/// that is pushed next. The last row that exists is the bias of W1.
inline void Planner::add_history(Draft& d, const Item& columns) const {
  for (int slab = 0; slab < shape_.history_slabs; ++slab) {
    Item past = columns;
    past.weight = columns.column_vector;  // placed_early_items completes this and the next two
    const int rows = shape_.history + 1 - slab * shape_.padded;
    past.rows = u(static_cast<std::size_t>(std::min(rows, shape_.padded)));
    past.row_vector = u(static_cast<std::size_t>(slab) * padded());
    past.sum = u(d.blocks.size());  // index of the block
    past.work = Work::history;
    past.slab = u(static_cast<std::size_t>(slab));
    past.flags = starts_sum | ends_sum | (slab == 0 ? starts_y : 0);
    d.early_items.push_back(past);
  }
}

}  // namespace pvm::inline v0::detail::general
