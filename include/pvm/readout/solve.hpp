// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Solves the ridge regression of a Gram matrix.

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include <pvm/readout/gram.hpp>

namespace pvm::inline v0::readout {

namespace detail {

/// Replaces the lower triangle of `a`, [n][n], symmetric and positive definite, by its Cholesky
/// factor L. A pivot that rounding has made less than `least` becomes `least`.
struct Factorise {
  double* a;
  std::size_t n;
  double least;

  [[gnu::always_inline]] inline void operator()() const {
    for (std::size_t j = 0; j < n; ++j) {  // row by row: inner products of contiguous values
      double* row = a + j * n;
      for (std::size_t k = 0; k < j; ++k) {
        row[k] = (row[k] - dot(row, a + k * n, k)) / a[k * n + k];
      }
      const double pivot = row[j] - dot(row, row, j);
      row[j] = std::sqrt(pivot > least ? pivot : least);
    }
  }

  /// In eight partial sums, always in the same order.
  [[gnu::always_inline]] static inline double dot(const double* x, const double* y,
                                                  std::size_t count) {
    using Eight = double __attribute__((vector_size(64), aligned(8), may_alias));
    Eight sums = {};
    std::size_t i = 0;
    for (; i + 8 <= count; i += 8) {
      sums += *reinterpret_cast<const Eight*>(x + i) * *reinterpret_cast<const Eight*>(y + i);
    }
    double sum =
        ((sums[0] + sums[4]) + (sums[2] + sums[6])) + ((sums[1] + sums[5]) + (sums[3] + sums[7]));
    for (; i < count; ++i) sum += x[i] * y[i];
    return sum;
  }
};

/// Solves L L^T x = b in place; `l` is a Cholesky factor, [n][n].
inline void substitute(const std::vector<double>& l, std::size_t n, std::vector<double>& b) {
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t k = 0; k < i; ++k) b[i] -= l[i * n + k] * b[k];
    b[i] /= l[i * n + i];
  }
  for (std::size_t i = n; i-- > 0;) {
    b[i] /= l[i * n + i];
    for (std::size_t k = 0; k < i; ++k) b[k] -= l[i * n + k] * b[i];
  }
}

}  // namespace detail

/// The linear function of some columns of a Gram matrix.
struct LinearFit {
  std::vector<float> weights;  ///< one for each of the columns
  float bias = 0;
};

/// Fits column `target` by the columns `inputs`: the function that minimises the mean squared
/// error plus a penalty on the squares of its weights. Column `one` of the Gram matrix is 1 in
/// every row; it gives the bias, which has no penalty.
///
/// The penalty is `strength` times the mean variance of the inputs, so that it does not depend on
/// their unit. An input that never changes gets the weight 0. Without any rows, everything is 0.
inline LinearFit fit_ridge(const Gram& gram, std::span<const std::size_t> inputs,
                           std::size_t target, std::size_t one, double strength) {
  const std::size_t n = inputs.size();
  LinearFit fit{std::vector<float>(n), 0};
  const double rows = gram(one, one);
  if (rows <= 0) return fit;
  const auto mean = [&](std::size_t column) { return gram(column, one) / rows; };
  const auto covariance = [&](std::size_t i, std::size_t j) {
    return gram(i, j) / rows - mean(i) * mean(j);
  };
  // Sums of squares are known to about seven digits, so a variance that is a smaller part of them
  // than that is rounding: such an input counts as one that never changes, and its row becomes that
  // of the identity.
  constexpr double rounding = 1e-6;
  std::vector<bool> changes(n);
  double variance = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double own = covariance(inputs[i], inputs[i]);
    changes[i] = own > rounding * gram(inputs[i], inputs[i]) / rows;
    if (changes[i]) variance += own / static_cast<double>(n);
  }
  std::vector<double> a(n * n);
  std::vector<double> b(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (!changes[i]) {
      a[i * n + i] = 1;
      continue;
    }
    for (std::size_t j = 0; j <= i; ++j) {
      if (changes[j]) a[i * n + j] = covariance(inputs[i], inputs[j]);
    }
    a[i * n + i] += strength * variance + rounding * gram(inputs[i], inputs[i]) / rows;
    b[i] = covariance(inputs[i], target);
  }
  simd::for_best_isa(detail::Factorise{a.data(), n, rounding * variance});
  detail::substitute(a, n, b);
  double bias = mean(target);
  for (std::size_t i = 0; i < n; ++i) {
    fit.weights[i] = static_cast<float>(b[i]);
    bias -= b[i] * mean(inputs[i]);
  }
  fit.bias = static_cast<float>(bias);
  return fit;
}

}  // namespace pvm::inline v0::readout
