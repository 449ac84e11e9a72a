// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Whether the object is there: a threshold on the contrast of a heatmap, found from labelled
/// frames, and a confidence.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::readout {

/// The contrast above which the object counts as present, and how sure that is.
struct Presence {
  double threshold = 0;
  double spread = 0.1;  ///< a contrast this far from the threshold is fairly sure

  /// That the object is present: 0 to 1, 0.5 at the threshold.
  [[nodiscard]] double confidence(double contrast) const {
    return 1 / (1 + std::exp(-(contrast - threshold) / spread));
  }
  bool operator==(const Presence&) const = default;
};

/// The contrast of a labelled frame's heatmap, and whether the object is there.
struct PresenceExample {
  double contrast = 0;
  bool present = false;
};

/// The threshold that tells present from absent with the highest share of right answers, where
/// missing a present object costs `miss` times as much as seeing an absent one. Half way between
/// the two examples around it; of equally good ones the lowest. `otherwise` if the examples do not
/// have both kinds.
inline Presence fit_presence(std::vector<PresenceExample> examples, const Presence& otherwise,
                             double miss = 1) {
  const auto present = static_cast<double>(
      std::count_if(examples.begin(), examples.end(), [](const auto& e) { return e.present; }));
  if (present == 0 || present == static_cast<double>(examples.size())) return otherwise;
  std::sort(examples.begin(), examples.end(), [](const auto& a, const auto& b) {
    return std::pair(a.contrast, a.present) < std::pair(b.contrast, b.present);
  });
  double cost = static_cast<double>(examples.size()) - present;  // threshold below all examples
  double least = cost;
  Presence best = otherwise;
  best.threshold = examples.front().contrast / 2;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    cost += examples[i].present ? miss : -1;
    const bool last = i + 1 == examples.size();
    if (!last && examples[i + 1].contrast == examples[i].contrast) continue;
    if (cost >= least) continue;
    least = cost;
    best.threshold =
        last ? examples[i].contrast : (examples[i].contrast + examples[i + 1].contrast) / 2;
  }
  // How far contrasts of either kind scatter about their own mean.
  double sums[2] = {}, squares[2] = {}, counts[2] = {};
  for (const PresenceExample& e : examples) {
    sums[e.present] += e.contrast;
    squares[e.present] += e.contrast * e.contrast;
    counts[e.present] += 1;
  }
  double variance = 0;
  for (int k = 0; k < 2; ++k) variance += squares[k] - sums[k] * sums[k] / counts[k];
  variance /= static_cast<double>(examples.size());
  best.spread = std::max(0.02, 0.5 * std::sqrt(std::max(0.0, variance)));
  return best;
}

}  // namespace pvm::inline v0::readout
