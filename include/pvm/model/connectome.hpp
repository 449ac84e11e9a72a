// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Turns a spec into flat tables: the units, their sources, and the offsets of their weights.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// One unit. Its input vector is x = [ A (base) | B (base) | context | 1 ]; its outputs predict [ A
/// | B ]; its representation vector is r = [ hidden | 1 | context, not squeezed ], the last part
/// only with `feed_context_in_complex_layer`. docs/model.md defines them.
struct Unit {
  int layer = 0;
  int row = 0;             ///< in the layer's grid, from the top of the picture
  int column = 0;          ///< in the layer's grid, from the left
  int base = 0;            ///< P: values of the patch, or hidden values of all primary sources
  int inputs = 0;          ///< length of x, the bias included
  int outputs = 0;         ///< D = 2P
  int representation = 0;  ///< length of r, the bias included
  std::size_t w0 = 0;      ///< index of the first value of W0 (hidden x inputs) in reference order
  std::size_t w1 = 0;      ///< index of the first value of W1 (outputs x representation), likewise

  /// False for a unit that another engine computes (engine/unit_exchange.hpp): it has no inputs.
  [[nodiscard]] bool is_here() const noexcept { return inputs > 0; }
};

/// For every unit a list of unit numbers, all lists concatenated.
struct SourceLists {
  std::vector<std::uint32_t> start{0};  ///< unit u has ids[start[u]] up to ids[start[u + 1] - 1]
  std::vector<std::uint32_t> ids;

  /// The list of unit `unit`.
  [[nodiscard]] std::span<const std::uint32_t> operator[](std::size_t unit) const {
    return std::span(ids).subspan(start[unit], start[unit + 1] - start[unit]);
  }
  /// Adds the list of the next unit.
  void append(std::span<const std::uint32_t> list) {
    ids.insert(ids.end(), list.begin(), list.end());
    start.push_back(static_cast<std::uint32_t>(ids.size()));
  }
};

/// The wiring of a network. Units are numbered layer by layer, and in a layer row by row.
///
/// Reference order of weights: W0 of all units, then W1 of all units, each unit by unit and
/// row-major.
struct Connectome {
  int hidden = 0;                        ///< hidden values of a unit
  std::vector<Unit> units;               ///< by unit number
  std::vector<std::size_t> layer_start;  ///< first unit of each layer, then the number of units
  SourceLists primary;                   ///< primary sources, ascending; none in layer 0
  SourceLists context;                   ///< context sources in the order of x; they may repeat
  std::size_t weights = 0;               ///< number of weights
  std::size_t outputs = 0;               ///< sum of all units' outputs
};

namespace detail {

/// Along one axis: the coordinate, in the layer below with side `below`, of place `k` (0 to square
/// - 1) in the square of the unit at `position` of a layer with side `here`. Computed in double and
/// truncated, as the original implementation does.
inline int fan_in_coordinate(int position, int below, int here, int square, int k) {
  if (here > 1) {
    const double factor = ((below - 1) - (square - 1)) / static_cast<double>(here - 1);
    return static_cast<int>(factor * position + k);
  }
  return static_cast<int>((below - square) / 2.0 + k);
}

/// Builds the source lists of all units.
class Wiring {
 public:
  explicit Wiring(const Spec& spec) : spec_(spec) {
    std::size_t count = 0;
    for (const int side : spec.layer_shapes) {
      layer_start_.push_back(count);
      count += static_cast<std::size_t>(side) * static_cast<std::size_t>(side);
    }
    layer_start_.push_back(count);
    primary_.resize(count);
    above_.resize(count);
    context_.resize(count);
    for_each_unit([&](std::uint32_t unit, std::size_t l, int row, int column) {
      if (l > 0) find_primary(unit, l, row, column);
    });
    for_each_unit([&](std::uint32_t unit, std::size_t l, int row, int column) {
      find_context(unit, l, row, column);
    });
    if (spec.last_layer_context_to_all) add_last_layer();
  }

  [[nodiscard]] Connectome tables() const {
    Connectome net;
    net.hidden = spec_.hidden();
    net.layer_start = layer_start_;
    for (std::size_t u = 0; u < primary_.size(); ++u) {
      net.primary.append(primary_[u]);
      net.context.append(context_[u]);
    }
    for_each_unit([&](std::uint32_t unit, std::size_t l, int row, int column) {
      net.units.push_back(make_unit(unit, l, row, column));
    });
    for (Unit& unit : net.units) {
      unit.w0 = net.weights;
      net.weights += static_cast<std::size_t>(net.hidden) * static_cast<std::size_t>(unit.inputs);
      net.outputs += static_cast<std::size_t>(unit.outputs);
    }
    for (Unit& unit : net.units) {
      unit.w1 = net.weights;
      net.weights +=
          static_cast<std::size_t>(unit.outputs) * static_cast<std::size_t>(unit.representation);
    }
    return net;
  }

 private:
  /// Calls f(unit, layer, row, column) for all units in order.
  template <class F>
  void for_each_unit(F&& f) const {
    std::uint32_t unit = 0;
    for (std::size_t l = 0; l < spec_.layer_shapes.size(); ++l) {
      for (int row = 0; row < spec_.layer_shapes[l]; ++row) {
        for (int column = 0; column < spec_.layer_shapes[l]; ++column) f(unit++, l, row, column);
      }
    }
  }

  [[nodiscard]] std::uint32_t id(std::size_t layer, int row, int column) const {
    return static_cast<std::uint32_t>(layer_start_[layer]) +
           static_cast<std::uint32_t>(row * spec_.layer_shapes[layer] + column);
  }

  void find_primary(std::uint32_t unit, std::size_t l, int row, int column) {
    const int below = spec_.layer_shapes[l - 1];
    const int here = spec_.layer_shapes[l];
    const int square = spec_.fan_in_square_size;
    const double centre = (square - 1) * 0.5;
    auto& sources = primary_[unit];
    for (int i = 0; i < square; ++i) {
      for (int j = 0; j < square; ++j) {
        const double dx = i - centre;
        const double dy = j - centre;
        if (dx * dx + dy * dy > spec_.fan_in_radius * spec_.fan_in_radius) continue;
        sources.push_back(id(l - 1, fan_in_coordinate(row, below, here, square, i),
                             fan_in_coordinate(column, below, here, square, j)));
      }
    }
    std::sort(sources.begin(), sources.end());
    sources.erase(std::unique(sources.begin(), sources.end()), sources.end());
    for (const auto source : sources) above_[source].push_back(unit);
  }

  void find_context(std::uint32_t unit, std::size_t l, int row, int column) {
    auto& sources = context_[unit];
    const int side = spec_.layer_shapes[l];
    const int r = spec_.lateral_radius;
    for (int i = std::max(0, row - r); i <= std::min(side - 1, row + r); ++i) {
      for (int j = std::max(0, column - r); j <= std::min(side - 1, column + r); ++j) {
        const int dx = i - row;
        const int dy = j - column;
        const bool self = dx == 0 && dy == 0;
        if (dx * dx + dy * dy <= r * r && !(self && spec_.context_exclude_self)) {
          sources.push_back(id(l, i, j));
        }
      }
    }
    const auto& up = above_[unit];
    sources.insert(sources.end(), up.begin(), up.end());
    if (spec_.send_context_two_layers_back) {
      // Once for every path, so a source can repeat; every repetition has weights of its own.
      for (const auto d : up) sources.insert(sources.end(), above_[d].begin(), above_[d].end());
    }
  }

  void add_last_layer() {
    for (std::size_t top = layer_start_[layer_start_.size() - 2]; top < layer_start_.back();
         ++top) {
      for (auto& sources : context_) {
        const auto id = static_cast<std::uint32_t>(top);
        if (std::find(sources.begin(), sources.end(), id) == sources.end()) sources.push_back(id);
      }
    }
  }

  [[nodiscard]] Unit make_unit(std::uint32_t id, std::size_t l, int row, int column) const {
    const int hidden = spec_.hidden();
    const int context = hidden * static_cast<int>(context_[id].size());
    Unit unit;
    unit.layer = static_cast<int>(l);
    unit.row = row;
    unit.column = column;
    unit.base = l == 0 ? spec_.input_block_size * spec_.input_block_size * spec_.input_channels
                       : hidden * static_cast<int>(primary_[id].size());
    unit.inputs = 2 * unit.base + context + 1;
    unit.outputs = 2 * unit.base;
    unit.representation = hidden + 1 + (spec_.feed_context_in_complex_layer ? context : 0);
    return unit;
  }

  const Spec& spec_;
  std::vector<std::size_t> layer_start_;
  // By unit: its primary sources, the units that have it as a primary source, its context sources.
  std::vector<std::vector<std::uint32_t>> primary_, above_, context_;
};

}  // namespace detail

/// The wiring of `spec`, which must be valid (see `validate`). docs/model.md has the rules.
inline Connectome make_connectome(const Spec& spec) { return detail::Wiring(spec).tables(); }

}  // namespace pvm::inline v0
