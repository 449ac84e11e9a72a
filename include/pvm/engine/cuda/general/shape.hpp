// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Sizes of the general engine's kernels: how units are cut into tiles, the sizes of a step's
/// tables, and the layout of a row of the past.

#include <algorithm>
#include <cstddef>

#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0::detail::general {

/// The longest list of gradients with which this engine is faster than the one for batches.
inline constexpr int most_terms = 288;

/// How the warps of a thread block cover a panel: column parts side by side, and rounds.
struct PanelCover {
  int parts, rounds;
  /// Row groups of a round.
  [[nodiscard]] constexpr int groups_at_once(int warps) const { return warps / parts; }
};

/// That for panels of `groups` row groups. All in one round, in as many parts as there are warps
/// for, if there are enough warps. Else in one part or in two, whichever leaves fewer warps idle in
/// the last round: a panel of two parts has twice the columns.
constexpr PanelCover cover_panel(int groups, int warps) {
  const auto in_rounds_of = [&](int at_once) { return (groups + at_once - 1) / at_once; };
  if (groups <= warps) return {warps / std::max(1, groups), 1};
  const PanelCover one{1, in_rounds_of(warps)}, two{2, in_rounds_of(warps / 2)};
  return two.rounds < 2 * one.rounds ? two : one;
}

/// Rows of a tile for units of `hidden` values: 7 or 8, whichever needs less padding. Where a tile
/// is all that a warp has of a panel's columns, or half of it, warps that have none in the last
/// round are padding, too.
template <class Precision>
constexpr int tile_rows_for(int hidden) {
  const auto padded = [&](int rows) {
    const int warps = step_warps<Precision>(rows), groups = (hidden + rows - 1) / rows;
    const PanelCover cover = cover_panel(groups, warps);
    const bool all_at_once = cover.rounds == 1 && cover.parts > 1;
    return (all_at_once ? groups : cover.rounds * cover.groups_at_once(warps)) * rows;
  };
  return padded(7) <= padded(8) ? 7 : 8;
}

/// Sizes that follow from the spec and the deferral plan.
struct StepShape {
  int rows_per_tile = 7;        ///< RG
  int groups = 7;               ///< row groups of a unit
  int parts = 2;                ///< column parts of a panel: warps side by side in a row group
  int rounds = 1;               ///< rounds in which the warps cover all tiles of a panel
  int padded = 49;              ///< hidden rows, padded to groups * RG
  int terms = 23;               ///< L
  int period = 16;              ///< R
  int history = 25;             ///< M: steps (rows) in the ring of listed d1
  int history_slabs = 1;        ///< slabs of `padded` rows of the d1 ring and the bias row
  int sections = 3;             ///< sections of terms_per_task terms in the list
  int table_stride = 0;         ///< floats of a layer's coefficients, see CoefficientTables
  int warps = 14;               ///< of a thread block
  int tiles_in_flight = 2;      ///< see Stored
  std::size_t four_bytes = 16;  ///< of four weights as products read them
  std::size_t values = 0, frame = 0;  ///< units * H; values of a frame

  /// `Stored<Precision>`: how weights are stored.
  template <template <class> class Stored, class Precision>
  StepShape(const Spec& spec, const Connectome& net, DeferralPlan plan, Stored<Precision> /*how*/)
      : rows_per_tile(tile_rows_for<Precision>(net.hidden)),
        warps(step_warps<Precision>(rows_per_tile)),
        tiles_in_flight(Stored<Precision>::tiles_in_flight),
        four_bytes(sizeof(typename Stored<Precision>::Four)),
        frame(spec.frame_size()) {
    const int hidden = net.hidden;
    values = net.units.size() * static_cast<std::size_t>(hidden);
    groups = (hidden + rows_per_tile - 1) / rows_per_tile;
    padded = groups * rows_per_tile;
    parts = cover_panel(groups, warps).parts;
    rounds = cover_panel(groups, warps).rounds;
    terms = plan.terms;
    period = plan.period;
    history = terms + 2;
    history_slabs = (history + 1 + padded - 1) / padded;
    table_stride = (2 * terms * (period + 1) + 1 + 3) / 4 * 4;
    sections = (terms + terms_per_task - 1) / terms_per_task;
  }
  /// Columns of a panel, at most.
  [[nodiscard]] int panel_columns() const { return std::min(parts, 2) * 128; }
  /// f4 columns of the first of the panels that `width` f4 columns are cut into: of a whole panel
  /// as long as there is one, so that its rows are whole lines of the L2 cache.
  [[nodiscard]] std::size_t panel_width(std::size_t width) const {
    return std::min(width, static_cast<std::size_t>(panel_columns()) / 4);
  }
  /// Row groups of a round. Each has its own partial sums of y.
  [[nodiscard]] int groups_at_once() const { return rounds == 1 ? groups : warps / parts; }
  /// Rows of an SM's listed d1, with the bias row and padding.
  [[nodiscard]] int history_rows() const { return history_slabs * padded; }

  // Indices in a row of the past: [c(h) | h | d0 | frame | 0 | 1 | padding].
  [[nodiscard]] std::size_t squeezed(std::size_t value) const { return value; }
  [[nodiscard]] std::size_t raw(std::size_t value) const { return values + value; }
  [[nodiscard]] std::size_t d0(std::size_t value) const { return 2 * values + value; }
  [[nodiscard]] std::size_t pixel(std::size_t index) const { return 3 * values + index; }
  [[nodiscard]] std::size_t zero() const { return 3 * values + frame; }
  [[nodiscard]] std::size_t one() const { return zero() + 1; }
  [[nodiscard]] std::size_t row() const { return (zero() + 2 + 31) / 32 * 32; }
};

}  // namespace pvm::inline v0::detail::general
