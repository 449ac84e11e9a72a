// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Deals the units of a network to those that share it, in ranges of consecutive units.

#include <cstddef>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0::detail {

/// Deals units with these costs to `ranks` ranks or shards, each a range of consecutive units, at
/// least one, so that the largest sum of costs is as small as such ranges allow. Rank r gets the
/// units from result[r] up to result[r + 1]. Where there is slack, rank 0 has it: it has the frames
/// to see to. There must be as many units as ranks, and no negative cost.
inline std::vector<std::size_t> balanced_ranges(std::span<const double> costs, std::size_t ranks) {
  // Fills ranges from the last unit on, as far as `most` allows; empty if rank 0 gets more.
  const auto fill = [&](double most) {
    std::vector<std::size_t> starts(ranks + 1, costs.size());
    std::size_t u = costs.size();
    double sum = 0;
    for (std::size_t r = ranks; r-- > 0; sum = 0) {
      const std::size_t last = r == 0 ? 0 : u - 1;  // at least one unit each
      while (u > r && (u > last || sum + costs[u - 1] <= most)) sum += costs[--u];
      if (sum > most) return std::vector<std::size_t>();
      starts[r] = u;
    }
    return u == 0 ? starts : std::vector<std::size_t>();
  };
  double enough = std::accumulate(costs.begin(), costs.end(), 0.0) * (1 + 1e-9);
  double too_small = 0;
  std::vector<std::size_t> best = fill(enough);
  for (int i = 0; i < 60; ++i) {
    const double middle = 0.5 * (too_small + enough);
    auto starts = fill(middle);
    if (starts.empty()) {
      too_small = middle;
    } else {
      enough = middle;
      best = std::move(starts);
    }
  }
  return best;
}

/// The weights of each unit.
inline std::vector<double> weights_of_units(const Connectome& net) {
  std::vector<double> weights;
  for (const Unit& unit : net.units) {
    weights.push_back(static_cast<double>(net.hidden) * unit.inputs +
                      static_cast<double>(unit.outputs) * unit.representation);
  }
  return weights;
}

}  // namespace pvm::inline v0::detail
