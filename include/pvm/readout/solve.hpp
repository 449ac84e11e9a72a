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
/// factor L. Exactly computed, no pivot is less than `least[j]`. One that is, is what rounding has
/// left of an input that follows from those before it: its row and column become those of the
/// identity, and `left_out[j]` 1. So no element of L is larger than the diagonal of `a` allows.
struct Factorise {
  double* a;
  std::size_t n;
  const double* least;
  unsigned char* left_out;

  [[gnu::always_inline]] inline void operator()() const {
    for (std::size_t j = 0; j < n; ++j) {  // row by row: inner products of contiguous values
      double* row = a + j * n;
      for (std::size_t k = 0; k < j; ++k) {
        row[k] = left_out[k] != 0 ? 0 : (row[k] - dot(row, a + k * n, k)) / a[k * n + k];
      }
      const double pivot = row[j] - dot(row, row, j);
      left_out[j] = pivot < least[j] ? 1 : 0;
      if (left_out[j] != 0) {
        for (std::size_t k = 0; k < j; ++k) row[k] = 0;
      }
      row[j] = left_out[j] != 0 ? 1 : std::sqrt(pivot);
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
/// their unit. An input that never changes gets the weight 0, and so does one that follows from
/// others as far as rounding can tell. Without any rows, everything is 0.
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
  // A Gram matrix adds up blocks of rows in single precision. Each addition loses up to 2^-24 of the
  // sum, and all of them the same way if the values are alike. A variance that is a smaller part of
  // the squares than that is rounding: such an input counts as one that never changes, and its row
  // becomes that of the identity.
  constexpr double lost = Gram::block_rows * 0x1p-24;
  constexpr double rounding = 1e-6;  // that is typical
  std::vector<bool> changes(n);
  double variance = 0;
  for (std::size_t i = 0; i < n; ++i) {
    const double own = covariance(inputs[i], inputs[i]);
    changes[i] = own > lost * gram(inputs[i], inputs[i]) / rows;
    if (changes[i]) variance += own / static_cast<double>(n);
  }
  std::vector<double> a(n * n);
  std::vector<double> b(n);
  std::vector<double> least(n);
  for (std::size_t i = 0; i < n; ++i) {
    if (!changes[i]) {
      a[i * n + i] = 1;
      continue;
    }
    for (std::size_t j = 0; j <= i; ++j) {
      if (changes[j]) a[i * n + j] = covariance(inputs[i], inputs[j]);
    }
    const double penalty = strength * variance + rounding * gram(inputs[i], inputs[i]) / rows;
    a[i * n + i] += penalty;
    least[i] = 0.9 * penalty;  // some room for the rounding of the factor itself
    b[i] = covariance(inputs[i], target);
  }
  std::vector<unsigned char> left_out(n);
  simd::for_best_isa(detail::Factorise{a.data(), n, least.data(), left_out.data()});
  for (std::size_t i = 0; i < n; ++i) {
    if (left_out[i] != 0) b[i] = 0;
  }
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
