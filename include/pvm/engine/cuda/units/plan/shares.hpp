// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Deals units to multiprocessors so that their loads, the sums of their units' costs, are about
/// equal: bin packing (MULTIFIT), then exchanges between pairs.

#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>
#include <vector>

namespace pvm::inline v0::detail::units {

/// [multiprocessor]: its units.
using Shares = std::vector<std::vector<std::size_t>>;

/// First fit: each unit, in the given order, goes to the first of `bins` multiprocessors whose load
/// stays within `room`, and which has fewer than `most` units. Returns nothing if a unit fits
/// nowhere.
inline Shares first_fit(const std::vector<double>& cost, const std::vector<std::size_t>& order,
                        std::size_t bins, std::size_t most, double room) {
  Shares share(bins);
  std::vector<double> load(bins);
  for (const std::size_t u : order) {
    std::size_t to = 0;
    while (to < bins && (share[to].size() == most || load[to] + cost[u] > room)) ++to;
    if (to == bins) return {};
    share[to].push_back(u);
    load[to] += cost[u];
  }
  return share;
}

/// The shares for the least load within which first fit, largest unit first, finds room for all
/// units. Found by bisection (MULTIFIT).
inline Shares least_fit(const std::vector<double>& cost, std::size_t bins, std::size_t most) {
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
inline bool exchange_units(const std::vector<double>& cost, std::size_t most, Shares& share,
                           std::vector<double>& load, std::size_t a, std::size_t b) {
  double best = load[a] - 1e-6, moved = 0;
  std::size_t gives = 0, gets = 0;
  for (std::size_t i = 0; i < share[a].size(); ++i) {
    // k == size: a move, nothing comes back.
    const std::size_t end = share[b].size() + (share[b].size() < most ? 1 : 0);
    for (std::size_t k = 0; k < end; ++k) {
      const double theirs = k < share[b].size() ? cost[share[b][k]] : 0;
      const double mine = cost[share[a][i]];
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
  if (gets < share[b].size()) {
    std::swap(share[a][gives], share[b][gets]);
  } else {
    share[b].push_back(share[a][gives]);
    share[a].erase(share[a].begin() + static_cast<std::ptrdiff_t>(gives));
  }
  load[a] -= moved;
  load[b] += moved;
  return true;
}

/// Exchanges units between all pairs until no exchange makes the larger load of a pair smaller.
inline void make_alike(const std::vector<double>& cost, std::size_t most, Shares& share) {
  std::vector<double> load;
  for (const auto& units : share) {
    load.push_back(0);
    for (const std::size_t u : units) load.back() += cost[u];
  }
  for (bool better = true; better;) {
    better = false;
    for (std::size_t a = 0; a < share.size(); ++a) {
      for (std::size_t b = 0; b < share.size(); ++b) {
        while (a != b && load[a] > load[b] && exchange_units(cost, most, share, load, a, b)) {
          better = true;
        }
      }
    }
  }
}

/// The shares for up to `multiprocessors` multiprocessors of at most `most` units each, which must
/// be enough; without those that get no unit. A share's units are in ascending order.
inline Shares share_out(const std::vector<double>& cost, std::size_t multiprocessors,
                        std::size_t most) {
  Shares share = least_fit(cost, multiprocessors, most);
  make_alike(cost, most, share);
  share.erase(
      std::remove_if(share.begin(), share.end(), [](const auto& units) { return units.empty(); }),
      share.end());
  for (auto& units : share) std::sort(units.begin(), units.end());
  return share;
}

}  // namespace pvm::inline v0::detail::units
