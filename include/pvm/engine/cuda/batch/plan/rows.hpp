// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Part of Plan: a unit's row words, for the rows of x and r that it reads and the rows of d0 and
/// d1 that it writes. Functions return the index in `Plan::rows` of the first word they add.

#include <cstddef>
#include <cstdint>
#include <span>

#include <pvm/engine/cuda/batch/plan/plan.hpp>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0::detail::batch {

inline Planner::UnitRows Planner::add_unit_rows(std::size_t u) {
  UnitRows unit_rows{};
  unit_rows.x = add_inputs(u);
  input_start_.push_back(unit_rows.x);
  unit_rows.r = add_representation(u);
  unit_rows.d0 = add_range(RowArray::hidden_gradient, u * count(net_.hidden), count(net_.hidden));
  unit_rows.d1 =
      add_range(RowArray::output_gradient, output_start[u], count(net_.units[u].outputs));
  return unit_rows;
}

inline std::uint32_t Planner::add_range(RowArray array, std::size_t first, std::size_t n) {
  const std::uint32_t start = word(rows.size());
  for (std::size_t i = 0; i < n; ++i) rows.push_back(row_word(array, word(first + i)));
  return start;
}

/// Adds x, padded with zero rows to whole weight blocks.
inline std::uint32_t Planner::add_inputs(std::size_t u) {
  const std::uint32_t start = word(rows.size());
  for (const bool older : {false, true}) {
    if (net_.units[u].layer == 0) {
      add_patch(u, older ? RowArray::pixels_1 : RowArray::pixels_0);
    } else {
      add_sources(net_.primary[u], older ? RowArray::squeezed_2 : RowArray::squeezed_1);
    }
  }
  add_sources(net_.context[u], RowArray::squeezed_1);
  rows.push_back(one_row);
  while ((rows.size() - start) % block_ != 0) rows.push_back(zero_row);
  return start;
}

inline void Planner::add_patch(std::size_t u, RowArray array) {
  const Unit& unit = net_.units[u];
  const std::size_t side = count(spec_.frame_side());
  const std::size_t size = count(spec_.input_block_size);
  const std::size_t channels = count(spec_.input_channels);
  for (std::size_t i = 0; i < size; ++i) {
    const std::size_t pixel = ((count(unit.row) * size + i) * side + count(unit.column) * size);
    add_range(array, pixel * channels, size * channels);
  }
}

inline void Planner::add_sources(std::span<const std::uint32_t> sources, RowArray array) {
  for (const auto s : sources) add_range(array, s * count(net_.hidden), count(net_.hidden));
}

/// Adds r in panels of 56 rows, each padded with zero rows to 64.
inline std::uint32_t Planner::add_representation(std::size_t u) {
  const std::uint32_t start = word(rows.size());
  const auto put = [&](std::uint32_t row) {
    if ((rows.size() - start) % panel_depth == panel_width) pad_panel(start);
    rows.push_back(row);
  };
  const std::size_t hidden = count(net_.hidden);
  for (std::size_t i = 0; i < hidden; ++i) {
    put(row_word(RowArray::hidden_0, word(u * hidden + i)));
  }
  put(one_row);
  if (spec_.feed_context_in_complex_layer) {
    for (const auto s : net_.context[u]) {
      for (std::size_t i = 0; i < hidden; ++i) {
        put(row_word(RowArray::hidden_1, word(s * hidden + i)));
      }
    }
  }
  pad_panel(start);
  return start;
}
inline void Planner::pad_panel(std::uint32_t start) {
  while ((rows.size() - start) % panel_depth != 0) rows.push_back(zero_row);
}

}  // namespace pvm::inline v0::detail::batch
