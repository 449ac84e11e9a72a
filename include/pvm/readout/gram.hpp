// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A Gram matrix that accumulates while rows come in: the sum of z z^T over all rows z.

#include <algorithm>
#include <cstddef>
#include <span>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0::readout {

namespace detail {

/// Adds the products of columns i to i + 3 with columns j to j + 31 of `rows` to `out`: four rows
/// of `stride` floats. `rows` is [count][stride].
[[gnu::always_inline]] inline void add_gram_tile(const float* rows, std::size_t count,
                                                 std::size_t stride, std::size_t i, std::size_t j,
                                                 double* out) {
  using simd::Lanes;
  Lanes sums[4][2] = {};
  for (std::size_t t = 0; t < count; ++t) {
    const float* row = rows + t * stride;
    const Lanes left = simd::at(row + j);
    const Lanes right = simd::at(row + j + simd::width);
    for (std::size_t k = 0; k < 4; ++k) {
      sums[k][0] += row[i + k] * left;
      sums[k][1] += row[i + k] * right;
    }
  }
  for (std::size_t k = 0; k < 4; ++k) {
    double* to = out + (i + k) * stride + j;
    for (std::size_t l = 0; l < simd::width; ++l) {
      to[l] += static_cast<double>(sums[k][0][l]);
      to[l + simd::width] += static_cast<double>(sums[k][1][l]);
    }
  }
}

/// Adds rows^T rows to the lower triangle of `out`, [stride][stride]. Tiles that meet the diagonal
/// also write above it.
struct AddGram {
  const float* rows;
  std::size_t count;
  std::size_t stride;  // a multiple of 32
  double* out;

  [[gnu::always_inline]] inline void operator()() const {
    for (std::size_t j = 0; j < stride; j += 2 * simd::width) {
      for (std::size_t i = j; i < stride; i += 4) add_gram_tile(rows, count, stride, i, j, out);
    }
  }
};

}  // namespace detail

/// The sum of z z^T over rows z of `columns` values. Rows are summed in single precision in blocks
/// of at most `block_rows`, and blocks in double, so that a run of any length loses nothing. Sums
/// have a fixed order: the same rows in the same calls give the same bits.
class Gram {
 public:
  static constexpr std::size_t block_rows = 256;

  explicit Gram(std::size_t columns)
      : columns_(columns), stride_(stride_of(columns)), sums_(stride_ * stride_) {}

  /// The length of a row in memory: `columns` rounded up. What is behind the columns must be 0.
  [[nodiscard]] static constexpr std::size_t stride_of(std::size_t columns) noexcept {
    constexpr std::size_t whole = 2 * simd::width;
    return (columns + whole - 1) / whole * whole;
  }

  /// Adds `count` rows, [count][stride_of(columns)].
  void add(const float* rows, std::size_t count) {
    rows_ += count;
    for (std::size_t t = 0; t < count; t += block_rows) {
      simd::for_best_isa(detail::AddGram{rows + t * stride_, std::min(block_rows, count - t),
                                         stride_, sums_.data()});
    }
  }

  /// The sum of the products of columns i and j.
  [[nodiscard]] double operator()(std::size_t i, std::size_t j) const {
    return sums_[std::max(i, j) * stride_ + std::min(i, j)];
  }
  [[nodiscard]] std::size_t columns() const noexcept { return columns_; }
  /// The number of rows added.
  [[nodiscard]] std::size_t rows() const noexcept { return rows_; }

  void clear() {
    rows_ = 0;
    std::fill(sums_.begin(), sums_.end(), 0.0);
  }

  /// Everything, to be saved: the lower triangle row by row, as one list.
  [[nodiscard]] std::vector<double> triangle() const {
    std::vector<double> out;
    out.reserve(columns_ * (columns_ + 1) / 2);
    for (std::size_t i = 0; i < columns_; ++i) {
      for (std::size_t j = 0; j <= i; ++j) out.push_back((*this)(i, j));
    }
    return out;
  }
  /// Replaces everything by what `triangle` has returned after `rows` rows.
  void restore(std::span<const double> triangle, std::size_t rows) {
    clear();
    rows_ = rows;
    std::size_t k = 0;
    for (std::size_t i = 0; i < columns_; ++i) {
      for (std::size_t j = 0; j <= i; ++j) sums_[i * stride_ + j] = triangle[k++];
    }
  }

 private:
  std::size_t columns_, stride_;
  std::size_t rows_ = 0;
  std::vector<double> sums_;  // [stride][stride], the lower triangle counts
};

}  // namespace pvm::inline v0::readout
