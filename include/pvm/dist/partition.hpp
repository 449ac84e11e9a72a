// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which rank computes which units, and which parts of a network's values these are.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/engine/unit_ranges.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::dist {

using pvm::detail::balanced_ranges, pvm::detail::weights_of_units;

/// What every unit costs besides its weights, before that was measured; in weights.
inline constexpr double default_each = 20'000;

/// What a unit's step costs, in weights: that of its weights, and `each`, which every unit costs.
inline std::vector<double> costs_of_units(const Connectome& net, double each = default_each) {
  std::vector<double> costs = weights_of_units(net);
  for (double& cost : costs) cost += each;
  return costs;
}

/// The mean of these times without the longest third of them, in which the machine has probably
/// done something else, too; 0 if there is none. Not the median: where a part of the weights stays
/// in caches, times are of two kinds, and both count.
inline double usual_time(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  times.resize((2 * times.size() + 2) / 3);
  const double sum = std::accumulate(times.begin(), times.end(), 0.0);
  return times.empty() ? 0 : sum / static_cast<double>(times.size());
}

/// What every unit costs in weights, by the measured `seconds` of each unit's step: the units of a
/// rank, those from starts[r] up to starts[r + 1], show what a weight more costs. They are compared
/// with each other only, because another rank's core may have been slower for a moment, and all
/// ranks count as equally fast. A time of 0 was not measured. Returns `otherwise` if the times do
/// not tell.
inline double measured_each(const Connectome& net, std::span<const float> seconds,
                            std::span<const std::size_t> starts, double otherwise) {
  const std::vector<double> weights = weights_of_units(net);
  double squares = 0, products = 0, all_weights = 0, all_seconds = 0, units = 0;
  for (std::size_t r = 0; r + 1 < starts.size(); ++r) {
    double n = 0, w = 0, t = 0, ww = 0, wt = 0;
    for (std::size_t u = starts[r]; u < starts[r + 1]; ++u) {
      const auto time = static_cast<double>(seconds[u]);
      if (!(time > 0)) continue;
      n += 1;
      w += weights[u];
      t += time;
      ww += weights[u] * weights[u];
      wt += weights[u] * time;
    }
    if (n == 0) continue;
    squares += ww - w * w / n;
    products += wt - w * t / n;
    all_weights += w;
    all_seconds += t;
    units += n;
  }
  constexpr double most = 100'000;
  if (!(products > 0) || !(squares > 0)) return otherwise;
  const double each = (all_seconds * squares / products - all_weights) / units;
  return std::clamp(each, 0.0, most);
}

/// A run of consecutive values.
struct Run {
  std::size_t begin = 0, count = 0;
};
using Runs = std::vector<Run>;

inline std::size_t total(const Runs& runs) {
  std::size_t sum = 0;
  for (const Run& run : runs) sum += run.count;
  return sum;
}

/// The values of `runs` in each of `rows` rows of `all`, one after the other; and back.
inline std::vector<float> pack(std::span<const float> all, std::size_t rows, const Runs& runs) {
  std::vector<float> packed;
  packed.reserve(rows * total(runs));
  for (std::size_t row = 0; row < rows; ++row) {
    const float* from = all.data() + row * (all.size() / rows);
    for (const Run& run : runs)
      packed.insert(packed.end(), from + run.begin, from + run.begin + run.count);
  }
  return packed;
}
inline void unpack(std::span<const float> packed, std::span<float> all, std::size_t rows,
                   const Runs& runs) {
  const float* from = packed.data();
  for (std::size_t row = 0; row < rows; ++row) {
    float* to = all.data() + row * (all.size() / rows);
    for (const Run& run : runs) {
      std::copy_n(from, run.count, to + run.begin);
      from += run.count;
    }
  }
}

/// The parts of a network's values that belong to the units from `first` up to `end`.
struct Part {
  Part(const Spec& spec, const Connectome& net, std::size_t first_, std::size_t end_)
      : first(first_), end(end_) {
    const auto hidden = static_cast<std::size_t>(net.hidden);
    Run w0{net.units[first].w0, 0}, w1{net.units[first].w1, 0}, out;
    for (std::size_t u = 0; u < end; ++u) {
      const Unit& unit = net.units[u];
      const auto outputs = static_cast<std::size_t>(unit.outputs);
      if (u < first) {
        out.begin += outputs;
        continue;
      }
      w0.count += hidden * static_cast<std::size_t>(unit.inputs);
      w1.count += outputs * static_cast<std::size_t>(unit.representation);
      out.count += outputs;
    }
    weights = {w0, w1};
    outputs = {out};
    units = {{first * hidden, (end - first) * hidden}};
    add_patches(spec, net);
  }

  std::size_t first, end;
  Runs weights;  ///< in reference order
  Runs outputs;  ///< of all units' outputs
  Runs units;    ///< of all units' hidden values
  Runs pixels;   ///< of a frame: the patches, line by line
  Run lines;     ///< of a frame: the lines that hold these patches

 private:
  void add_patches(const Spec& spec, const Connectome& net) {
    const auto block = static_cast<std::size_t>(spec.input_block_size);
    const auto channels = static_cast<std::size_t>(spec.input_channels);
    const std::size_t line = static_cast<std::size_t>(spec.frame_side()) * channels;
    const std::size_t patches = std::min(end, net.layer_start[1]);
    for (std::size_t u = first; u < patches; ++u) {
      const auto row = static_cast<std::size_t>(net.units[u].row) * block;
      const auto column = static_cast<std::size_t>(net.units[u].column) * block;
      for (std::size_t y = 0; y < block; ++y)
        pixels.push_back({(row + y) * line + column * channels, block * channels});
    }
    if (first >= patches) return;
    const auto top = static_cast<std::size_t>(net.units[first].row) * block;
    const auto bottom = (static_cast<std::size_t>(net.units[patches - 1].row) + 1) * block;
    lines = {top * line, (bottom - top) * line};
  }
};

}  // namespace pvm::inline v0::dist
