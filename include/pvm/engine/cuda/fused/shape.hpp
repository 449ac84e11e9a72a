// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How units are cut into tiles, what a step's tables measure, and what a row of the past holds.

#include <algorithm>
#include <cstddef>

#include <pvm/engine/cuda/tuning.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0::detail::fused {

/// Rows of a tile for units of `hidden` values: those that pad them least.
constexpr int tile_rows_for(int hidden) {
  return (hidden + 6) / 7 * 7 <= (hidden + 7) / 8 * 8 ? 7 : 8;
}

/// Sizes that follow from the spec, the batch and the plan.
struct StepShape {
  int rows_per_tile = 7;  ///< RG
  int groups = 7;         ///< row groups of a unit
  int parts = 2;          ///< warps side by side on a panel
  int passes = 1;
  int padded = 49;  ///< rows, padded to groups * RG
  int terms = 23;   ///< L
  int period = 16;  ///< R
  int batch = 1;
  int list = 23;                      ///< T = L * batch
  int history = 25;                   ///< M: rows of the d1 ring, times batch
  int history_slabs = 1;              ///< of `padded` rows, the bias row included
  int chunks = 3;                     ///< of terms_per_task terms
  int table_stride = 0;               ///< floats of a layer's coefficients, see CoefficientTables
  std::size_t values = 0, frame = 0;  ///< units * H, pixels of a frame

  StepShape(const Spec& spec, const Connectome& net, DeferralPlan plan, int batch_)
      : batch(batch_), frame(spec.frame_size()) {
    const int hidden = net.hidden;
    values = net.units.size() * static_cast<std::size_t>(hidden);
    rows_per_tile = tile_rows_for(hidden);
    groups = (hidden + rows_per_tile - 1) / rows_per_tile;
    padded = groups * rows_per_tile;
    parts = std::max(1, step_warps / groups);
    passes = (groups * parts + step_warps - 1) / step_warps;
    terms = plan.terms;
    period = plan.period;
    list = terms * batch;
    history = terms + 2;
    history_slabs = (history * batch + 1 + padded - 1) / padded;
    table_stride = (2 * terms * (period + 1) + 1 + 3) / 4 * 4;
    chunks = (list + terms_per_task - 1) / terms_per_task;
  }
  [[nodiscard]] int panel_columns() const { return std::min(parts, 2) * 128; }
  /// Row groups of a pass: the partial sums of y.
  [[nodiscard]] int y_groups() const { return passes == 1 ? groups : step_warps; }
  [[nodiscard]] int history_rows() const { return history_slabs * padded; }

  // A row of the past: [c(h) | h | d0 | frame | 0 | 1 | pad].
  [[nodiscard]] std::size_t squeezed(std::size_t value) const { return value; }
  [[nodiscard]] std::size_t raw(std::size_t value) const { return values + value; }
  [[nodiscard]] std::size_t d0(std::size_t value) const { return 2 * values + value; }
  [[nodiscard]] std::size_t pixel(std::size_t index) const { return 3 * values + index; }
  [[nodiscard]] std::size_t zero() const { return 3 * values + frame; }
  [[nodiscard]] std::size_t one() const { return zero() + 1; }
  [[nodiscard]] std::size_t row() const { return (zero() + 2 + 31) / 32 * 32; }
};

}  // namespace pvm::inline v0::detail::fused
