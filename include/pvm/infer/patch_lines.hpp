// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where the patches of layer 0's units are in a frame, and the order in which threads take units.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::infer {

/// A patch is `block` lines of a frame, `line` values each.
struct PatchLines {
  std::size_t block = 0, line = 0;
  std::size_t patch = 0;  ///< values of a patch
  std::size_t row = 0;    ///< values of a row of pixels of a frame

  explicit PatchLines(const Spec& spec)
      : block(static_cast<std::size_t>(spec.input_block_size)),
        line(block * static_cast<std::size_t>(spec.input_channels)),
        patch(block * line),
        row(static_cast<std::size_t>(spec.frame_side()) *
            static_cast<std::size_t>(spec.input_channels)) {}

  /// The index in a frame of value `k` of a unit's patch, which begins a line of it.
  [[nodiscard, gnu::always_inline]] inline std::size_t at(const Unit& unit, std::size_t k) const {
    return (static_cast<std::size_t>(unit.row) * block + k / line) * row +
           static_cast<std::size_t>(unit.column) * line;
  }
};

/// The units, those with the most weights that a frozen step reads first.
inline std::vector<std::uint32_t> largest_first(const Connectome& net) {
  const auto weights_of = [&net](std::uint32_t u) {
    const Unit& unit = net.units[u];
    return net.hidden * unit.inputs + (u < net.layer_start[1] ? unit.representation : 0);
  };
  std::vector<std::uint32_t> order(net.units.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](auto a, auto b) { return weights_of(a) > weights_of(b); });
  return order;
}

}  // namespace pvm::inline v0::infer
