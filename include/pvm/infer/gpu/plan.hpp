// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Lays a frozen network out for the kernels of step.cuh and many_streams.cuh.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/infer/frozen_network.hpp>
#include <pvm/infer/gpu/formats.cuh>
#include <pvm/infer/gpu/step.cuh>
#include <pvm/infer/patch_lines.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::infer::gpu {

/// Writes row `r` of a matrix to `columns`, and its scale and offset.
using ReadRow = std::function<void(const FrozenMatrix& matrix, std::size_t r, float* columns,
                                   float& scale, float& offset)>;

/// The rows of a network in bytes.
inline ReadRow rows_of(const FrozenNetwork& network) {
  return [&network](const FrozenMatrix& matrix, std::size_t r, float* columns, float& scale,
                    float& offset) {
    const std::uint8_t* bytes = network.values.data() + matrix.values + r * matrix.columns;
    for (std::size_t c = 0; c < matrix.columns; ++c) {
      columns[c] = value_of(network.format, bytes[c]);
    }
    scale = network.scales[matrix.first_row + r];
    offset = network.offsets[matrix.first_row + r];
  };
}
/// Those of weights in reference order.
inline ReadRow rows_of(std::span<const float> weights) {
  return [weights](const FrozenMatrix& matrix, std::size_t r, float* columns, float& scale,
                   float& offset) {
    offset = unsqueezed_row(matrix, weights, r, columns);
    scale = 1;
  };
}

/// The items of a step and everything that they refer to.
template <class Format>
class Plan {
 public:
  static constexpr std::size_t each = Format::each;
  static constexpr std::size_t weight_bytes = sizeof(typename Format::Weights);

  /// Throws Error (Fault::spec) if the network has too many values for the tables.
  Plan(const Spec& spec, const ReadRow& read_row)
      : net_(make_connectome(spec)),
        lines_(spec),
        hidden_granules(granules(static_cast<std::size_t>(net_.hidden))),
        patch_granules(granules(lines_.patch)) {
    if (slot_granules() >> kind_shift != 0) {
      throw Error(Fault::spec, "spec " + quote(spec.name) +
                                   " has too many hidden values for prediction on a GPU");
    }
    for (const FrozenMatrix& matrix : frozen_matrices(spec, net_)) place(matrix, read_row);
    // Those that take longest begin first.
    for (auto* list : {&hidden_items, &output_items}) {
      std::stable_sort(list->begin(), list->end(), [](const Item& a, const Item& b) {
        return std::pair(a.chunks, a.rows) > std::pair(b.chunks, b.rows);
      });
    }
  }

  [[nodiscard]] const Connectome& net() const noexcept { return net_; }
  [[nodiscard]] const PatchLines& lines() const noexcept { return lines_; }
  [[nodiscard]] std::size_t patches() const noexcept { return net_.layer_start[1]; }

  // A stream's values: hidden values of 3 steps, then patches of 2. Step t is in part t modulo
  // that number.
  [[nodiscard]] std::size_t slot_granules() const {
    return 3 * net_.units.size() * hidden_granules + 2 * patches() * patch_granules;
  }
  /// The first granule of a kind in the stream's values, before its step `step`.
  [[nodiscard]] std::size_t base(Kind kind, std::uint64_t step) const {
    const std::size_t hidden = net_.units.size() * hidden_granules;
    const std::size_t patch = patches() * patch_granules;
    switch (kind) {
      case hidden_1:
        return (step + 2) % 3 * hidden;
      case hidden_2:
        return (step + 1) % 3 * hidden;
      case hidden_now:
        return step % 3 * hidden;
      case patch_now:
        return 3 * hidden + step % 2 * patch;
      default:
        return 3 * hidden + (step + 1) % 2 * patch;
    }
  }
  /// The values of a stream that begins: ones, and zeros behind the values of a unit.
  [[nodiscard]] std::vector<typename Format::Stored> ones() const {
    std::vector<typename Format::Stored> all(slot_granules() * each);
    const auto fill = [&](std::size_t first, std::size_t count, std::size_t stride,
                          std::size_t values) {
      for (std::size_t u = 0; u < count; ++u) {
        std::fill_n(all.begin() + static_cast<std::ptrdiff_t>((first + u * stride) * each), values,
                    Format::store(1.0F));
      }
    };
    const std::size_t units = net_.units.size();
    fill(0, 3 * units, hidden_granules, static_cast<std::size_t>(net_.hidden));
    fill(3 * units * hidden_granules, 2 * patches(), patch_granules, lines_.patch);
    return all;
  }

 private:
  [[nodiscard]] static std::size_t granules(std::size_t values) {
    return (values + each - 1) / each;
  }

  Connectome net_;
  PatchLines lines_;

 public:
  const std::size_t hidden_granules, patch_granules;  ///< of a unit
  std::vector<Item> hidden_items, output_items;
  std::vector<std::uint32_t> table;
  std::vector<std::uint8_t> weights;
  std::vector<float2> scales;  ///< and offsets

 private:
  /// A part of an input: `values` values that begin a granule, in columns from `column` on.
  struct Segment {
    std::size_t column, values;
  };

  /// Appends the entries of a matrix's input to the table; where each granule's columns are.
  std::vector<Segment> list_input(const FrozenMatrix& matrix) {
    std::vector<Segment> segments;
    std::size_t column = 0;
    const auto append = [&](Kind kind, std::size_t unit, std::size_t values, std::size_t stride) {
      for (std::size_t i = 0; i < values; i += each) {
        table.push_back(static_cast<std::uint32_t>(kind) << kind_shift |
                        static_cast<std::uint32_t>(unit * stride + i / each));
        segments.push_back({column + i, std::min(each, values - i)});
      }
      column += values;
    };
    const auto hidden = static_cast<std::size_t>(net_.hidden);
    if (matrix.predicts) {
      append(hidden_now, matrix.unit, hidden, hidden_granules);
    } else if (matrix.unit < patches()) {
      append(patch_now, matrix.unit, lines_.patch, patch_granules);
      append(patch_1, matrix.unit, lines_.patch, patch_granules);
    } else {
      for (const Kind kind : {hidden_1, hidden_2}) {
        for (const auto s : net_.primary[matrix.unit]) append(kind, s, hidden, hidden_granules);
      }
    }
    if (column < matrix.columns) {
      for (const auto s : net_.context[matrix.unit]) append(hidden_1, s, hidden, hidden_granules);
    }
    while (segments.size() % chunk_granules != 0) {  // whole chunks; these meet weights of 0
      table.push_back(static_cast<std::uint32_t>(hidden_1) << kind_shift);
      segments.push_back({0, 0});
    }
    return segments;
  }

  void place(const FrozenMatrix& matrix, const ReadRow& read_row) {
    const std::size_t first_entry = table.size();
    const std::vector<Segment> segments = list_input(matrix);
    std::vector<float> columns(matrix.columns);
    for (std::size_t first = 0; first < matrix.rows; first += item_rows) {
      const std::size_t rows = std::min<std::size_t>(item_rows, matrix.rows - first);
      const std::size_t tiles = (rows + 7) / 8;
      Item item;
      item.table = static_cast<std::uint32_t>(first_entry);
      item.weights = static_cast<std::uint32_t>(weights.size() / weight_bytes);
      item.chunks = static_cast<std::uint32_t>(segments.size() / chunk_granules);
      item.scale = static_cast<std::uint32_t>(scales.size());
      item.rows = static_cast<std::uint16_t>(rows);
      item.first = static_cast<std::uint16_t>(first);
      item.unit = matrix.unit;
      item.unit_row = static_cast<std::uint16_t>(net_.units[matrix.unit].row);
      item.unit_column = static_cast<std::uint16_t>(net_.units[matrix.unit].column);
      (matrix.predicts ? output_items : hidden_items).push_back(item);
      const std::size_t begin = weights.size();
      weights.resize(begin + segments.size() * tiles * 8 * weight_bytes);
      for (std::size_t r = 0; r < rows; ++r) {
        float scale = 0, offset = 0;
        read_row(matrix, first + r, columns.data(), scale, offset);
        scales.push_back({scale * Format::unit, offset});
        for (std::size_t g = 0; g < segments.size(); ++g) {
          // [chunk][tile][row of the tile][granule of the chunk]: the last two are a lane.
          const std::size_t chunk = g / chunk_granules, place = g % chunk_granules;
          const std::size_t at = ((chunk * tiles + r / 8) * 8 + r % 8) * chunk_granules + place;
          for (std::size_t i = 0; i < segments[g].values; ++i) {
            Format::encode(columns[segments[g].column + i], static_cast<int>(i),
                           weights.data() + begin + at * weight_bytes);
          }
        }
      }
    }
  }
};

}  // namespace pvm::inline v0::infer::gpu
