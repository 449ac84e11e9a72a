// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Means of few measurements, with what they may be off by.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <vector>

namespace pvm_bench {

/// A sample's mean and spread. With one value, all but the mean are 0.
struct Sample {
  std::size_t n = 0;
  double mean = 0;
  double deviation = 0;  ///< standard deviation of the values
  double error = 0;      ///< standard error of the mean
  double t = 0;          ///< the mean over its standard error
};

inline Sample sample(const std::vector<double>& values) {
  Sample s{values.size(), 0, 0, 0, 0};
  for (const double value : values) s.mean += value / static_cast<double>(s.n);
  if (s.n < 2) return s;
  double squares = 0;
  for (const double value : values) squares += (value - s.mean) * (value - s.mean);
  s.deviation = std::sqrt(squares / static_cast<double>(s.n - 1));
  s.error = s.deviation / std::sqrt(static_cast<double>(s.n));
  s.t = s.error > 0 ? s.mean / s.error : 0;
  return s;
}

/// The differences of two samples, value by value: what a paired t test looks at.
inline Sample paired(const std::vector<double>& values, const std::vector<double>& reference) {
  std::vector<double> differences;
  for (std::size_t i = 0; i < std::min(values.size(), reference.size()); ++i) {
    differences.push_back(values[i] - reference[i]);
  }
  return sample(differences);
}

/// The t that the mean of `n` values, at least 2, exceeds in 5 % of the cases if it is 0 in truth
/// (two-sided).
inline double critical_t(std::size_t n) {
  constexpr double by_freedom[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365,
                                   2.306,  2.262, 2.228, 2.201, 2.179, 2.160, 2.145,
                                   2.131,  2.120, 2.110, 2.101, 2.093, 2.086};
  const std::size_t last = std::size(by_freedom) - 1;
  return by_freedom[std::min(std::max<std::size_t>(n, 2) - 2, last)];
}

}  // namespace pvm_bench
