// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The plan of a sweep: the panels of a unit, and the lists of tiles of the thread blocks.
/// plan/portions.hpp decides which tiles a thread block has.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <vector>

#include <pvm/engine/cuda/batch/plan/plan.hpp>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0::detail::batch {

/// The panel of unit u's W0 for its hidden values from `first` on. The sweep multiplies it with x
/// when it updates it, so that it has no working copy.
inline void Planner::add_swept_w0(std::size_t u, const UnitRows& unit_rows, std::size_t first) {
  add_panel(w0_panel(u, unit_rows, first), w0_origin(u, first));
  sweep_places_.push_back({unit_rows.x, word(u * count(net_.hidden) + first), 0, 0, u});
}

/// The panel of unit u's W1, one for all columns. Its working copies are in the sweep's own layout,
/// `copy_words` for every 16 m.
inline void Planner::add_swept_w1(std::size_t u, const UnitRows& unit_rows) {
  const Unit& unit = net_.units[u];
  Panel panel = w1_panel(u, unit_rows, unit_rows.r, count(unit.representation));
  panel.copy_over_m = word(copies);
  copies += ceil(count(unit.outputs), 16);
  add_panel(panel, w1_origin(u, 0));
  sweep_places_.push_back({unit_rows.x, word(u * count(net_.hidden)), output_start[u],
                           unit.layer == 0 ? count(unit.base) : 0, u});
}

/// All tiles of the sweep, thread block by thread block.
inline void Planner::add_sweep() {
  std::vector<Piece> pieces = balance_portions();
  number_parts(pieces);
  std::vector<std::vector<Piece>> of_blocks(swept_.blocks);
  for (const Piece& piece : pieces) of_blocks[piece.portion % swept_.blocks].push_back(piece);
  sweep_starts.push_back(0);
  for (auto& mine : of_blocks) {
    // Thread blocks work through their pieces backwards. The part of a panel that began in the
    // thread block before is then the last of its portion, so that the sums of the other parts are
    // there when this block adds them.
    std::reverse(mine.begin(), mine.end());
    add_block(mine);
    sweep_starts.push_back(sweep_starts.back() + word(mine.size()));
  }
}

/// The tiles of a thread block, which are the pieces `mine` in this order.
inline void Planner::add_block(const std::vector<Piece>& mine) {
  std::uint32_t part_number = 0, stage = 0;
  for (std::size_t k = 0; k < mine.size(); ++k) {
    const Piece& piece = mine[k];
    const bool last = k + 1 == mine.size();
    SweepTile tile = tile_of(piece);
    tile.begins = k == 0 || mine[k - 1].part != piece.part ? 1 : 0;
    tile.ends = last ? 2 : (mine[k + 1].part != piece.part ? 1 : 0);
    tile.number = word(k);
    part_number += k == 0 ? 0 : tile.begins;
    tile.part_number = part_number;
    tile.stage = stage;
    stage += sweep_stages(swept_.padded, tile.rows, tile.is_w0 != 0);
    tile.last_stage = stage - 1;
    if (!last) describe_next(tile, mine[k + 1]);
    add_words(tile);
    add_row_words(sweep_places_[piece.panel].rows + word(piece.first), piece.m, count(sweep_rows));
    add_row_words(tile.panel.n_rows, tile.panel.n, count(panel_width));
  }
}

/// The fields of a tile that do not depend on the tiles before and after it.
inline SweepTile Planner::tile_of(const Piece& piece) const {
  const SweepPlaces& sweep_panel = sweep_places_[piece.panel];
  const Parts& parts = parts_[piece.panel];
  SweepTile tile{};
  tile.panel = panels[piece.panel];
  tile.panel.m_begin = word(piece.first);
  tile.panel.m_end = word(piece.first + piece.m);
  tile.is_w0 = swept_w0(tile.panel) ? 1 : 0;
  tile.part = piece.part;
  tile.outputs = sweep_panel.outputs + word(piece.first);
  tile.pixels = word(std::max(sweep_panel.pixels, piece.first) - piece.first);
  tile.out = sweep_panel.out;
  tile.first_part = parts.first;
  tile.parts = parts.count;
  tile.adds = parts.adds == piece.part ? 1 : 0;
  tile.rows = word(piece.m);
  tile.first_master = tile.panel.master + piece.first * tile.panel.n;
  return tile;
}

/// Names the masters of the next tile, because they are loaded before that tile is in shared
/// memory.
inline void Planner::describe_next(SweepTile& tile, const Piece& next) const {
  const Panel& panel = panels[next.panel];
  tile.next_first_master = panel.master + next.first * panel.n;
  tile.next_rows = word(next.m);
  tile.next_n = panel.n;
  tile.next_is_w0 = swept_w0(panel) ? 1 : 0;
}

/// Appends the words of a tile.
inline void Planner::add_words(const SweepTile& tile) {
  std::uint32_t words[sizeof(SweepTile) / 4];
  std::memcpy(words, &tile, sizeof(tile));
  sweep_tiles.insert(sweep_tiles.end(), std::begin(words), std::end(words));
}
/// Appends `n` row words from `rows[first]` on, then `zero_row` up to `room` words.
inline void Planner::add_row_words(std::uint32_t first, std::size_t n, std::size_t room) {
  for (std::size_t i = 0; i < room; ++i) {
    sweep_tiles.push_back(i < n ? rows[first + word(i)] : zero_row);
  }
}

}  // namespace pvm::inline v0::detail::batch
