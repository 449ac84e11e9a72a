// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Conversion of weights between reference order and the panels of the general engine's kernels, on
/// the host.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/core/parallel.hpp>
#include <pvm/engine/cuda/general/plan/planner.hpp>
#include <pvm/engine/cuda/general/shape.hpp>
#include <pvm/engine/cuda/general/weights.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0::detail::general {

/// Index arithmetic only: which weight of the arena, or of the bias rows, is which weight in
/// reference order. Padding has no weight. `Precision`: of the arena's weights.
template <class Precision>
class WeightMap {
 public:
  WeightMap(const Connectome& net, const StepShape& shape, const Plan& plan)
      : net_(net), shape_(shape), plan_(plan) {}

  /// From `arena` and `bias` (laid out like past_d1) to reference order, and back.
  void export_weights(const std::vector<float>& arena, const std::vector<float>& bias,
                      std::span<float> out) const {
    for_each([&](std::size_t reference, std::size_t own) {
      out[reference] = Stored<Precision>::get(arena, own);
    });
    for_each_bias([&](std::size_t reference, std::size_t own) { out[reference] = bias[own]; });
  }
  void import_weights(std::span<const float> from, std::vector<float>& arena,
                      std::vector<float>& bias) const {
    for_each([&](std::size_t reference, std::size_t own) {
      Stored<Precision>::set(arena, own, from[reference]);
    });
    for_each_bias([&](std::size_t reference, std::size_t own) { bias[own] = from[reference]; });
  }
  /// Copies the bias rows between two arrays that are laid out like past_d1.
  void copy_bias(const std::vector<float>& from, std::vector<float>& to) const {
    for_each_bias([&](std::size_t, std::size_t own) { to[own] = from[own]; });
  }

 private:
  /// visit(index in reference order, index in the arena), in floats, for all weights but the bias
  /// of W1, on several threads.
  template <class Visit>
  void for_each(Visit visit) const {
    in_parallel(plan_.panels.size(), net_.weights, [&](std::size_t p) {
      for (int tile = 0; tile < shape_.groups * shape_.parts; ++tile) {
        visit_tile(plan_.panels[p], tile / shape_.parts, tile % shape_.parts, visit);
      }
    });
  }

  template <class Visit>
  void visit_tile(const Panel& panel, int group, int part, Visit visit) const {
    const int width = static_cast<int>(panel.width);
    const int part_width = (width + shape_.parts - 1) / shape_.parts;
    const int first = part * part_width;
    const int lanes = std::min(part_width, width - first);
    const Unit& unit = net_.units[panel.unit];
    for (int r = 0; r < shape_.rows_per_tile; ++r) {
      const int row = group * shape_.rows_per_tile + r;
      if (row >= net_.hidden) return;
      for (int lane = 0; lane < lanes; ++lane) {
        const int f4 =
            group * shape_.rows_per_tile * width + first * shape_.rows_per_tile + r * lanes + lane;
        const std::size_t own = (panel.weight + static_cast<std::size_t>(f4)) * 4;
        for (int k = 0; k < 4; ++k) {
          const auto column = panel.column + static_cast<std::uint32_t>((first + lane) * 4 + k);
          const auto reference = find(panel, unit, row, column);
          if (reference != none) visit(reference, own + static_cast<std::size_t>(k));
        }
      }
    }
  }

  static constexpr std::size_t none = ~std::size_t{0};

  /// The reference index of an element of a panel, or `none` for padding. `row`: hidden row of the
  /// panel. `column`: for W0 an index into the planner's source_words, for W1 an output of the
  /// unit.
  [[nodiscard]] std::size_t find(const Panel& panel, const Unit& unit, int row,
                                 std::uint32_t column) const {
    const auto i = static_cast<std::size_t>(row);
    if (!panel.output) {
      const std::int32_t reference = plan_.x_reference[column];
      if (reference < 0) return none;
      return unit.w0 + i * static_cast<std::size_t>(unit.inputs) +
             static_cast<std::size_t>(reference);
    }
    if (column >= static_cast<std::uint32_t>(unit.outputs)) return none;
    const auto hidden = static_cast<std::size_t>(net_.hidden);
    const std::size_t in_r = panel.slab == 0 ? i : hidden + 1 + (panel.slab - 1) * hidden + i;
    return unit.w1 + column * static_cast<std::size_t>(unit.representation) + in_r;
  }

  /// visit(index in reference order, index in past_d1) for the bias of every W1.
  template <class Visit>
  void for_each_bias(Visit visit) const {
    const auto row = static_cast<std::size_t>(shape_.history);
    for (std::size_t u = 0; u < net_.units.size(); ++u) {
      const Unit& unit = net_.units[u];
      for (std::size_t o = 0; o < static_cast<std::size_t>(unit.outputs); ++o) {
        visit(unit.w1 + o * static_cast<std::size_t>(unit.representation) +
                  static_cast<std::size_t>(net_.hidden),
              plan_.history_start[u] + row * plan_.history_stride[u] + o);
      }
    }
  }

  const Connectome& net_;
  const StepShape& shape_;
  const Plan& plan_;
};

}  // namespace pvm::inline v0::detail::general
