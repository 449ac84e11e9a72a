// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which units a position of the readout reads. There is one position for each unit of layer 0: it
/// answers for the patch that this unit sees.

#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/model/connectome.hpp>

namespace pvm::inline v0::readout {

namespace detail {

/// For every unit, the rows (or columns) of layer 0 that its primary sources lead to, as one flag
/// for each. `coordinate` is Unit::row or Unit::column.
inline std::vector<std::vector<bool>> coverage(const Connectome& net, int side,
                                               int Unit::*coordinate) {
  std::vector<std::vector<bool>> covers(net.units.size(),
                                        std::vector<bool>(static_cast<std::size_t>(side)));
  for (std::size_t u = 0; u < net.units.size(); ++u) {
    if (net.units[u].layer == 0) {
      covers[u][static_cast<std::size_t>(net.units[u].*coordinate)] = true;
      continue;
    }
    for (const std::uint32_t source : net.primary[u]) {
      for (std::size_t i = 0; i < covers[u].size(); ++i) {
        if (covers[source][i]) covers[u][i] = true;
      }
    }
  }
  return covers;
}

}  // namespace detail

/// The units that each position reads, ascending: list p is that of position p = row * side +
/// column, where `side` is that of layer 0. A unit is read if it covers the row AND the column, so
/// the corners count that `fan_in_radius` cuts off. Only primary sources count. Lists may differ in
/// length, where units of a higher layer do not cover the whole layer below.
inline SourceLists position_units(const Connectome& net, int side) {
  const auto rows = detail::coverage(net, side, &Unit::row);
  const auto columns = detail::coverage(net, side, &Unit::column);
  SourceLists lists;
  std::vector<std::uint32_t> units;
  for (std::size_t row = 0; row < static_cast<std::size_t>(side); ++row) {
    for (std::size_t column = 0; column < static_cast<std::size_t>(side); ++column) {
      units.clear();
      for (std::size_t u = 0; u < net.units.size(); ++u) {
        if (rows[u][row] && columns[u][column]) units.push_back(static_cast<std::uint32_t>(u));
      }
      lists.append(units);
    }
  }
  return lists;
}

}  // namespace pvm::inline v0::readout
