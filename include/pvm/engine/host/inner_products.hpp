// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Inner products of a unit's values with its past.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/simd.hpp>

namespace pvm::inline v0 {

/// Inner products of the newest values of every unit with the values of its past,
/// [step modulo 3][unit][b][age][b'], where b' is the sequence of the past values. The inner
/// products of x vectors are sums of these, and all units that read a source share its products.
class InnerProducts {
 public:
  InnerProducts() = default;
  InnerProducts(std::size_t units, std::size_t terms, std::size_t batch)
      : units_(units), size_(simd::padded(terms * batch * batch)), values_(3 * units * size_) {}

  /// The products with index `step`, [b][age][b']; HostNetwork says which ones those are.
  [[nodiscard]] float* at(std::uint64_t step, std::size_t unit) {
    return values_.data() + (static_cast<std::size_t>(step % 3) * units_ + unit) * size_;
  }
  /// Floats per step and unit, padded to whole Lanes.
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::size_t units_ = 0, size_ = 0;
  HugeArray values_;
};

}  // namespace pvm::inline v0
