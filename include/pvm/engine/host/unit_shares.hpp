// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The assignment of units to threads in a step.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/host/weight_layout.hpp>

namespace pvm::inline v0 {

/// Every thread owns a share of the units: consecutive units, with about as many weights as the
/// other shares, so that it finds in its core's cache the weights that it has left there. Every
/// other step goes through the units backwards, because the weights used last are the ones that are
/// still cached. A thread that has finished its share takes units of other shares. No result
/// depends on which thread computes a unit.
class UnitShares {
 public:
  UnitShares(const WeightLayout& layout, std::size_t units, std::size_t threads)
      : units_(units), shares_(threads) {
    std::size_t u = 0;
    for (std::size_t i = 0; i < threads; ++i) {
      shares_[i].first = u;
      const std::size_t end = layout.size() / threads * (i + 1);
      while (u < units && (i + 1 == threads || layout[u].w0 < end)) ++u;
      shares_[i].size = u - shares_[i].first;
    }
  }

  [[nodiscard]] std::size_t units() const noexcept { return units_; }

  /// Prepares a block of `steps` steps. Must not be called while threads take units.
  void begin_block(std::size_t steps) { taken_ = std::vector<Counter>(steps * shares_.size()); }

  /// The next unit for `thread` in step `t`, which is step `i` of the block; `units()` if none is
  /// left.
  [[nodiscard]] std::size_t take(std::size_t thread, std::size_t i, std::uint64_t t) {
    const std::size_t threads = shares_.size();
    for (std::size_t k = 0; k < threads; ++k) {
      const std::size_t whose = (thread + k) % threads;
      const Share& share = shares_[whose];
      std::atomic<std::size_t>& taken = taken_[i * threads + whose].value;
      if (taken.load(std::memory_order_relaxed) >= share.size) continue;
      const std::size_t n = taken.fetch_add(1, std::memory_order_relaxed);
      if (n < share.size) return share.first + (t % 2 == 1 ? share.size - 1 - n : n);
    }
    return units_;
  }

 private:
  struct Share {  // a range of units
    std::size_t first = 0, size = 0;
  };
  struct alignas(64) Counter {  // a cache line each
    std::atomic<std::size_t> value{0};
  };
  std::size_t units_;
  std::vector<Share> shares_;
  std::vector<Counter> taken_;  // [steps][threads]: units taken of the share
};

}  // namespace pvm::inline v0
