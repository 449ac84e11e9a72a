// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Part of Plan: where nothing is swept, the panels of a unit and the products that read their
/// working copies; and the update kernel's tiles.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/cuda/batch/plan/plan.hpp>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0::detail::batch {

/// Adds a panel of W0, for the hidden values from `first` on, and its forward product.
inline void Planner::add_w0(std::size_t u, const UnitRows& unit_rows, std::size_t first) {
  Panel panel = w0_panel(u, unit_rows, first);
  panel.copy_over_m = word(w0_blocks);
  add_panel(panel, w0_origin(u, first));
  add_forward(u, unit_rows, first);
}

/// Adds the product that makes these hidden values, in parts of about equal length.
inline void Planner::add_forward(std::size_t u, const UnitRows& unit_rows, std::size_t first) {
  const std::size_t blocks = ceil(count(net_.units[u].inputs), block_);
  const std::size_t each = ceil(blocks, ceil(blocks, part_blocks_));
  const std::size_t parts = ceil(blocks, each);
  for (std::size_t k = 0; k < parts; ++k) {
    const std::size_t start = k * each;
    Product p{};
    p.kind = ProductKind::forward;
    p.rows = unit_rows.x + word(start * block_);
    p.weights = word(w0_blocks + start);
    p.blocks = word(std::min(blocks, start + each) - start);
    p.depth = p.blocks * word(block_);
    p.out = word(u * count(net_.hidden) + first);
    p.count = word(std::min(count(panel_width), count(net_.hidden) - first));
    p.parts = word(parts);
    p.part = word(k);
    p.scratch = word(scratch);
    p.counter = word(counters);
    forward_.push_back(p);
  }
  if (parts > 1) {
    scratch += parts;
    ++counters;
  }
  w0_blocks += blocks;
}

/// Adds W1 in panels of 56 columns. All panels have a working copy for y; panels with columns of
/// hidden values also have one for d0.
inline void Planner::add_w1(std::size_t u, const UnitRows& unit_rows) {
  const std::size_t outputs = count(net_.units[u].outputs);
  const std::size_t representation = count(net_.units[u].representation);
  const std::size_t width = count(panel_width);
  const std::size_t count_panels = ceil(representation, width);
  const std::size_t depth_blocks = count(panel_depth) / block_;
  const std::size_t group = count_panels * depth_blocks;
  const std::size_t copy_over_n = w1_blocks;
  w1_blocks += ceil(ceil(outputs, 16) * 16, width) * group;
  for (std::size_t k = 0; k < count_panels; ++k) {
    const std::size_t first = k * width;
    Panel panel = w1_panel(u, unit_rows, unit_rows.r + word(k * panel_depth),
                           std::min(width, representation - first));
    panel.double_buffered = 1;
    panel.copy_over_n = word(copy_over_n + k * depth_blocks);
    panel.group_blocks = word(group);
    if (first < count(net_.hidden)) {
      panel.copy_over_m = word(w1_blocks);
      add_errors(u, unit_rows, first);
      w1_blocks += ceil(outputs, block_);
    }
    add_panel(panel, w1_origin(u, first));
  }
  add_outputs(u, unit_rows, copy_over_n, group);
}

/// Adds the product that makes d0 of the hidden values from `first` on. The first one of a unit
/// also stores d1 and the score.
inline void Planner::add_errors(std::size_t u, const UnitRows& unit_rows, std::size_t first) {
  const Unit& unit = net_.units[u];
  Product p{};
  p.kind = ProductKind::errors;
  p.rows = unit_rows.x;
  p.depth = word(count(unit.outputs));
  p.weights = word(w1_blocks);
  p.blocks = word(ceil(count(unit.outputs), block_));
  p.out = word(u * count(net_.hidden) + first);
  p.count = word(std::min(count(panel_width), count(net_.hidden) - first));
  p.parts = first == 0 ? 1 : 0;
  p.errors = output_start[u];
  p.pixels = unit.layer == 0 ? word(count(unit.base)) : 0;
  p.score = word(scores);
  if (first == 0) ++scores;
  errors_.push_back(p);
}

/// Adds the product that makes y. W1's copies for it start at weight block `copy_over_n`; every 56
/// outputs take `group` blocks, those of all panels.
inline void Planner::add_outputs(std::size_t u, const UnitRows& unit_rows, std::size_t copy_over_n,
                                 std::size_t group) {
  Product p{};
  p.kind = ProductKind::outputs;
  p.rows = unit_rows.r;
  p.weights = word(copy_over_n);
  p.blocks = word(group);
  p.out = output_start[u];
  p.count = word(count(net_.units[u].outputs));
  outputs_.push_back(p);
}

/// Moves the weight blocks of W1 behind those of all W0, now that the number of these is known.
inline void Planner::place_w1_copies() {
  const std::uint32_t behind = word(w0_blocks);
  for (Panel& panel : panels) {
    if (panel.copy_over_n == Panel::none) continue;
    if (panel.copy_over_m != Panel::none) panel.copy_over_m += behind;
    panel.copy_over_n += behind;
  }
  for (Product& p : errors_) p.weights += behind;
  for (Product& p : outputs_) p.weights += behind;
}

/// Adds the tiles of a panel for the update kernel.
inline void Planner::add_tiles(Panel panel) {
  for (panel.m_begin = 0; panel.m_begin < panel.m_end; panel.m_begin += tile_rows) {
    Tile tile{};
    tile.panel = panel;
    for (std::uint32_t i = 0; i < tile_rows + panel_width; ++i) {
      const bool is_m = i < tile_rows;
      const std::uint32_t at = is_m ? panel.m_begin + i : i - tile_rows;
      tile.rows[i] = at < (is_m ? panel.m_end : panel.n)
                         ? rows[(is_m ? panel.m_rows : panel.n_rows) + at]
                         : zero_row;
    }
    tiles.push_back(tile);
  }
}

/// Appends a list of products, sorted by length, longest first.
inline void Planner::collect(std::vector<Product>& list) {
  std::stable_sort(list.begin(), list.end(), [](const Product& a, const Product& b) {
    return a.blocks + a.count / 8 > b.blocks + b.count / 8;
  });
  products.insert(products.end(), list.begin(), list.end());
}

}  // namespace pvm::inline v0::detail::batch
