// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Deals units to thread blocks so that their loads, the sums of their units' costs, are about
/// equal: bin packing (MULTIFIT), then exchanges between pairs.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace pvm::inline v0::detail::units {

/// [thread block]: its units.
using Portions = std::vector<std::vector<std::size_t>>;

/// First fit: each unit, in the given order, goes to the first of `bins` thread blocks whose load
/// stays within `room`, and which has fewer than `most` units. Returns nothing if a unit fits
/// nowhere.
inline Portions first_fit(const std::vector<double>& cost, const std::vector<std::size_t>& order,
                          std::size_t bins, std::size_t most, double room) {
  Portions portion(bins);
  std::vector<double> load(bins);
  for (const std::size_t u : order) {
    std::size_t to = 0;
    while (to < bins && (portion[to].size() == most || load[to] + cost[u] > room)) ++to;
    if (to == bins) return {};
    portion[to].push_back(u);
    load[to] += cost[u];
  }
  return portion;
}

/// The portions for the least load within which first fit, largest unit first, finds room for all
/// units. Found by bisection (MULTIFIT).
inline Portions least_fit(const std::vector<double>& cost, std::size_t bins, std::size_t most) {
  std::vector<std::size_t> order(cost.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return cost[a] > cost[b]; });
  double low = 0, high = 0;
  for (const std::size_t u : order) high += cost[u];
  for (int i = 0; i < 40; ++i) {
    const double middle = (low + high) / 2;
    (first_fit(cost, order, bins, most, middle).empty() ? low : high) = middle;
  }
  return first_fit(cost, order, bins, most, high);
}

/// Swaps a unit of `a`, which has the larger load, with a smaller one of `b`, or moves it to `b`:
/// whatever makes the larger of the two loads smallest. Returns false if nothing makes it smaller.
inline bool exchange_units(const std::vector<double>& cost, std::size_t most, Portions& portion,
                           std::vector<double>& load, std::size_t a, std::size_t b) {
  double best = load[a] - 1e-6, moved = 0;
  std::size_t gives = 0, gets = 0;
  for (std::size_t i = 0; i < portion[a].size(); ++i) {
    // k == size: a move, nothing comes back.
    const std::size_t end = portion[b].size() + (portion[b].size() < most ? 1 : 0);
    for (std::size_t k = 0; k < end; ++k) {
      const double theirs = k < portion[b].size() ? cost[portion[b][k]] : 0;
      const double mine = cost[portion[a][i]];
      if (mine <= theirs) continue;
      const double larger = std::max(load[a] - mine + theirs, load[b] - theirs + mine);
      if (larger >= best) continue;
      best = larger;
      gives = i;
      gets = k;
      moved = mine - theirs;
    }
  }
  if (moved == 0) return false;
  if (gets < portion[b].size()) {
    std::swap(portion[a][gives], portion[b][gets]);
  } else {
    portion[b].push_back(portion[a][gives]);
    portion[a].erase(portion[a].begin() + static_cast<std::ptrdiff_t>(gives));
  }
  load[a] -= moved;
  load[b] += moved;
  return true;
}

/// Exchanges units between all pairs until no exchange makes the larger load of a pair smaller.
inline void make_alike(const std::vector<double>& cost, std::size_t most, Portions& portion) {
  std::vector<double> load;
  for (const auto& units : portion) {
    load.push_back(0);
    for (const std::size_t u : units) load.back() += cost[u];
  }
  for (bool better = true; better;) {
    better = false;
    for (std::size_t a = 0; a < portion.size(); ++a) {
      for (std::size_t b = 0; b < portion.size(); ++b) {
        while (a != b && load[a] > load[b] && exchange_units(cost, most, portion, load, a, b)) {
          better = true;
        }
      }
    }
  }
}

/// The portions for up to `thread_blocks` thread blocks of at most `most` units each, which must be
/// enough; without those that get no unit. A portion's units are in ascending order.
inline Portions deal_units(const std::vector<double>& cost, std::size_t thread_blocks,
                           std::size_t most) {
  Portions portion = least_fit(cost, thread_blocks, most);
  make_alike(cost, most, portion);
  portion.erase(std::remove_if(portion.begin(), portion.end(),
                               [](const auto& units) { return units.empty(); }),
                portion.end());
  for (auto& units : portion) std::sort(units.begin(), units.end());
  return portion;
}

}  // namespace pvm::inline v0::detail::units
