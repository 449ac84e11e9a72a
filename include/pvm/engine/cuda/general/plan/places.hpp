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
/// panels and slabs that take several rounds. `r_at`: offset of r in ThreadBlock::area.
inline void Planner::fix_offsets(Draft& d, u32 r_at) const {
  place_sums(d, r_at);
  std::vector<Item> early_items = placed_early_items(d);
  std::vector<Item> late_items = placed_late_items(d, r_at);
  // The listed d1 come first: their tiles are prefetched before the barrier wait.
  std::stable_partition(early_items.begin(), early_items.end(),
                        [](const Item& item) { return item.work == Work::history; });
  if (whole_groups(shape_.rows_per_tile)) {
    const auto together = static_cast<std::size_t>(shape_.tiles_in_flight);
    while (early_items.size() % together != 0) early_items.push_back(Item{});
    while (late_items.size() % together != 0) late_items.push_back(Item{});
  }
  d.early_items = std::move(early_items);
  d.late_items = std::move(late_items);
}

/// Takes room for the staged factors of folds. 16-bit panels that fold in the same step have them
/// at the same time, up to most_folds_at_once.
inline void Planner::place_factors(Draft& d) const {
  Program& p = d.program;
  if (shape_.four_bytes == sizeof(float) * 4) {
    p.column_factors = d.allocate(fold_stage_floats);
    p.row_factors = d.allocate(static_cast<std::size_t>(16 * shape_.groups * 8));
    return;
  }
  std::vector<std::size_t> due(static_cast<std::size_t>(shape_.period));
  for (const Fold& fold : d.folds) ++due[fold.phase];
  const std::size_t most = *std::max_element(due.begin(), due.end());
  constexpr int pairs = fold_depth / 2;
  const u32 columns = u(static_cast<std::size_t>(pairs * fold_stride(shape_.panel_columns())));
  p.fold_slot = columns + u(static_cast<std::size_t>(pairs * fold_stride(shape_.padded)));
  p.folds_at_once = u(std::clamp<std::size_t>(most, 1, most_folds_at_once));
  p.column_factors = d.allocate(std::size_t{p.folds_at_once} * p.fold_slot);
  p.row_factors = p.column_factors + columns;
}

/// Takes room for the sums and completes the offsets in the output units.
inline void Planner::place_sums(Draft& d, u32 r_at) const {
  for (RepresentationTask& task : d.representation_tasks)
    task.out = d.allocate(static_cast<std::size_t>(shape_.terms));
  for (OutputUnit& unit : d.output_units) {
    unit.sum = d.allocate((parts() + static_cast<std::size_t>(shape_.sections)) * padded());
    unit.corrections = unit.sum + u(parts() * padded());
    unit.r += r_at;
    unit.h_two_back += r_at;
  }
  for (OutputBlock& block : d.blocks) {
    block.sum = d.allocate(static_cast<std::size_t>(shape_.history_slabs) * parts() * padded());
    block.history_weights = d.allocate(static_cast<std::size_t>(shape_.history_rows()));
  }
}

/// The early items. In a draft, `sum` of a Work::history item is the index of its block.
inline std::vector<Item> Planner::placed_early_items(const Draft& d) const {
  std::vector<Item> placed;
  for (Item item : d.early_items) {
    if (item.work == Work::hidden) {
      item.column_vector += d.program.x / 4;
      placed.push_back(item);  // add_hidden_unit has repeated it for each round
      continue;
    }
    const OutputBlock& block = d.blocks[item.sum];
    const u32 stride = d.program.column_count / 4;
    item.weight += d.program.history + item.slab * u(padded()) * stride;
    item.y_stride = stride;
    item.column_vector += d.program.d1 / 4;
    item.row_vector += block.history_weights;
    item.sum = block.sum + item.slab * u(parts() * padded());
    for (int round = 0; round < shape_.rounds; ++round) {
      item.round = u(static_cast<std::size_t>(round));
      if (round > 0) item.flags &= ~starts_y;
      placed.push_back(item);
    }
  }
  return placed;
}

/// The late items. In a draft, `sum` is the index of the output unit. All column blocks of a unit
/// follow each other within a round, because the row sums run over all of them.
inline std::vector<Item> Planner::placed_late_items(const Draft& d, u32 r_at) const {
  std::vector<Item> placed;
  for (std::size_t at = 0; at < d.late_items.size();) {
    std::size_t end = at;
    while (end < d.late_items.size() && d.late_items[end].sum == d.late_items[at].sum) ++end;
    for (int round = 0; round < shape_.rounds; ++round) {
      for (std::size_t k = at; k < end; ++k) {
        Item item = d.late_items[k];
        item.column_vector += d.program.d1 / 4;
        item.y_stride = d.program.column_count / 4;
        item.row_vector += r_at;
        item.sum = d.output_units[item.sum].sum;
        item.round = u(static_cast<std::size_t>(round));
        placed.push_back(item);
      }
    }
    at = end;
  }
  return placed;
}

}  // namespace pvm::inline v0::detail::general
