// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Offsets in a program that are known only when its lists are complete: of listed d1, y, sums and
/// vectors.

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/general/plan/planner.hpp>
#include <pvm/engine/cuda/general/program.hpp>

namespace pvm::inline v0::detail::general {

/// Assigns the places of the listed d1 and of y of an SM's units in the arrays of all SMs.
inline void Planner::place_outputs(Draft& d) {
  Program& p = d.program;
  p.column_count = u(d.targets.size());
  p.history = u(history_floats / 4);
  p.outputs = u(y_columns);
  for (std::size_t k = 0; k < d.output_ids.size(); ++k) {
    history_start[d.output_ids[k]] = history_floats + d.first_column[k];
    history_stride[d.output_ids[k]] = p.column_count;
    output_start[d.output_ids[k]] = p.outputs + d.first_column[k];
  }
  history_floats +=
      static_cast<std::size_t>(p.column_count) * static_cast<std::size_t>(shape_.history_rows());
  y_columns += p.column_count;
}

/// Completes the items, because the offsets of x, d1 and r are known now, and repeats those of
/// panels and slabs that take several passes. `r_at`: offset of r in Block::area.
inline void Planner::fix_offsets(Draft& d, u32 r_at) const {
  place_sums(d, r_at);
  std::vector<Item> phase1_items = placed_phase1_items(d);
  std::vector<Item> phase2_items = placed_phase2_items(d, r_at);
  // The listed d1 come first: their tiles are prefetched before the barrier wait.
  std::stable_partition(phase1_items.begin(), phase1_items.end(),
                        [](const Item& item) { return item.work == Work::history; });
  if (phase1_items.size() % 2 != 0) phase1_items.push_back(Item{});
  if (phase2_items.size() % 2 != 0) phase2_items.push_back(Item{});
  d.phase1_items = std::move(phase1_items);
  d.phase2_items = std::move(phase2_items);
}

/// Takes room for the sums and completes the offsets in the output units.
inline void Planner::place_sums(Draft& d, u32 r_at) const {
  for (RepresentationTask& task : d.representation_tasks)
    task.out = d.allocate(static_cast<std::size_t>(shape_.terms));
  for (OutputUnit& unit : d.output_units) {
    unit.sum = d.allocate((parts() + static_cast<std::size_t>(shape_.chunks)) * padded());
    unit.corrections = unit.sum + u(parts() * padded());
    unit.r += r_at;
    unit.h_two_back += r_at;
  }
  for (OutputBlock& block : d.blocks) {
    block.sum = d.allocate(static_cast<std::size_t>(shape_.history_slabs) * parts() * padded());
    block.history_weights = d.allocate(static_cast<std::size_t>(shape_.history_rows()));
  }
}

/// The items of phase 1. In a draft, `sum` of a Work::history item is the index of its block.
inline std::vector<Item> Planner::placed_phase1_items(const Draft& d) const {
  std::vector<Item> placed;
  for (Item item : d.phase1_items) {
    if (item.work == Work::hidden) {
      item.column_vector += d.program.x / 4;
      placed.push_back(item);  // add_hidden_unit has repeated it for each pass
      continue;
    }
    const OutputBlock& block = d.blocks[item.sum];
    const u32 stride = d.program.column_count / 4;
    item.weight += d.program.history + item.slab * u(padded()) * stride;
    item.y_stride = stride;
    item.column_vector += d.program.d1 / 4;
    item.row_vector += block.history_weights;
    item.sum = block.sum + item.slab * u(parts() * padded());
    for (int pass = 0; pass < shape_.passes; ++pass) {
      item.pass = u(static_cast<std::size_t>(pass));
      if (pass > 0) item.flags &= ~starts_y;
      placed.push_back(item);
    }
  }
  return placed;
}

/// The items of phase 2. In a draft, `sum` is the index of the output unit. All column blocks of a
/// unit follow each other within a pass, because the row sums run over all of them.
inline std::vector<Item> Planner::placed_phase2_items(const Draft& d, u32 r_at) const {
  std::vector<Item> placed;
  for (std::size_t at = 0; at < d.phase2_items.size();) {
    std::size_t end = at;
    while (end < d.phase2_items.size() && d.phase2_items[end].sum == d.phase2_items[at].sum) ++end;
    for (int pass = 0; pass < shape_.passes; ++pass) {
      for (std::size_t k = at; k < end; ++k) {
        Item item = d.phase2_items[k];
        item.column_vector += d.program.d1 / 4;
        item.y_stride = d.program.column_count / 4;
        item.row_vector += r_at;
        item.sum = d.output_units[item.sum].sum;
        item.pass = u(static_cast<std::size_t>(pass));
        placed.push_back(item);
      }
    }
    at = end;
  }
  return placed;
}

}  // namespace pvm::inline v0::detail::general
