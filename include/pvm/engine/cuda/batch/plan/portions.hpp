// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Part of Plan: the distribution of a sweep's tiles over thread blocks. Panels are put in an order
/// and cut into portions of about equal cost; portions are dealt to the thread blocks round robin.
/// For a panel that several thread blocks share, one of them is chosen to add up the partial
/// sums.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <pvm/engine/cuda/batch/plan/plan.hpp>
#include <pvm/engine/cuda/batch/plan/sweep_tuning.hpp>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0::detail::batch {

/// The panels in the order of their units' heights in the image: thread blocks then work on
/// neighbouring units at the same time, which read the same rows.
inline std::vector<std::size_t> Planner::swept_order() const {
  std::vector<std::size_t> order(panels.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  const auto height = [&](std::size_t panel) {
    const Unit& unit = net_.units[sweep_places_[panel].unit];
    return (unit.row + 0.5) / spec_.layer_shapes[count(unit.layer)];
  };
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return height(a) < height(b); });
  return order;
}

/// Number of portions for each thread block.
inline std::size_t Planner::portions_each() const {
  std::size_t all = 0;
  for (const Panel& panel : panels) all += ceil(panel.m_end, count(sweep_rows));
  return std::max<std::size_t>(1, all / (portion_tiles * swept_.blocks));
}

/// A panel is cut at multiples of so many m. The master of a swept W0 keeps `sweep_rows` m together
/// (`swept_master_index`), so that smaller tiles of it would not be contiguous.
inline std::size_t Planner::least_rows(const Panel& panel) const {
  return swept_w0(panel) ? sweep_rows : 16;
}

/// The tiles, in such portions that the most expensive portion is as cheap as possible: a binary
/// search for the lowest cost limit with which the number of portions suffices.
inline std::vector<Planner::Piece> Planner::balance_portions() const {
  const std::vector<std::size_t> order = swept_order();
  const std::size_t portions = portions_each() * swept_.blocks;
  std::size_t least = 0, most = 0;
  const SweepCycles cycles = sweep_cycles(swept_.padded);
  for (const Panel& panel : panels) {
    const bool is_w0 = swept_w0(panel);
    const std::size_t each =
        cycles.part + cycles.tile(is_w0, least_rows(panel)) + cycles.results(is_w0);
    least = std::max(least, each);
    most += ceil(panel.m_end, 16) * each;
  }
  while (least < most) {
    const std::size_t middle = (least + most) / 2;
    if (fill_portions(order, middle).back().portion < portions) {
      most = middle;
    } else {
      least = middle + 1;
    }
  }
  return fill_portions(order, most);
}

/// The tiles of the panels in `order`, filled into portions that cost at most `most` cycles each. A
/// tile that exceeds what is left of a portion is cut.
inline std::vector<Planner::Piece> Planner::fill_portions(const std::vector<std::size_t>& order,
                                                          std::size_t most) const {
  const SweepCycles cycles = sweep_cycles(swept_.padded);
  std::vector<Piece> pieces;
  std::size_t portion = 0, spent = 0;
  for (const std::size_t k : order) {
    const bool is_w0 = swept_w0(panels[k]);
    const std::size_t cut = least_rows(panels[k]);
    for (std::size_t first = 0; first < panels[k].m_end;) {
      const std::size_t start = spent + (first == 0 || spent == 0 ? cycles.part : 0);
      const std::size_t left = panels[k].m_end - first;
      const std::size_t m = std::min(count(sweep_rows), left);
      const auto with = [&](std::size_t taken) {
        return start + cycles.tile(is_w0, taken) + (taken == left ? cycles.results(is_w0) : 0);
      };
      std::size_t fits = m;
      while (fits > 0 && with(fits) > most) fits = (fits - 1) / cut * cut;
      if (fits > 0) {
        pieces.push_back({k, first, fits, portion, 0});
        spent = with(fits);
        first += fits;
      }
      if (fits < m) {
        ++portion;
        spent = 0;
      }
    }
  }
  return pieces;
}

/// Numbers the parts: a panel's pieces in the same portion are one part. The part whose thread
/// block has the highest number adds up the sums, so that a thread block only waits for thread
/// blocks that start before it. If that thread block has two parts of the panel, the one it works
/// on last adds (portions are worked on in reverse order).
inline void Planner::number_parts(std::vector<Piece>& pieces) {
  std::size_t last = 0;
  parts_.resize(panels.size());
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    Piece& piece = pieces[i];
    Parts& parts = parts_[piece.panel];
    if (piece.first == 0) parts.first = word(scratch);
    if (piece.first == 0 || pieces[i - 1].portion != piece.portion) {
      const std::size_t block = piece.portion % swept_.blocks;
      if (piece.first == 0 || block > last) {
        last = block;
        parts.adds = word(scratch);
      }
      ++parts.count;
      ++scratch;
    }
    piece.part = word(scratch - 1);
  }
}

}  // namespace pvm::inline v0::detail::batch
