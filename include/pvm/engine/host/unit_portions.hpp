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

/// Every thread owns a portion of the units: consecutive units, with about as many weights as the
/// other portions, so that it finds in its core's cache the weights that it has left there. Every
/// other step goes through the units backwards, because the weights used last are the ones that are
/// still cached. A thread that has finished its portion takes units of other portions. No result
/// depends on which thread computes a unit.
class UnitPortions {
 public:
  UnitPortions(const WeightLayout& layout, std::size_t units, std::size_t threads)
      : units_(units), portions_(threads) {
    std::size_t u = 0;
    for (std::size_t i = 0; i < threads; ++i) {
      portions_[i].first = u;
      const std::size_t end = layout.size() / threads * (i + 1);
      while (u < units && (i + 1 == threads || layout[u].w0 < end)) ++u;
      portions_[i].size = u - portions_[i].first;
    }
  }

  [[nodiscard]] std::size_t units() const noexcept { return units_; }

  /// Prepares a block of `steps` steps. Must not be called while threads take units.
  void begin_block(std::size_t steps) { taken_ = std::vector<Counter>(steps * portions_.size()); }

  /// The next unit for `thread` in step `t`, which is step `i` of the block; `units()` if none is
  /// left.
  [[nodiscard]] std::size_t take(std::size_t thread, std::size_t i, std::uint64_t t) {
    const std::size_t threads = portions_.size();
    for (std::size_t k = 0; k < threads; ++k) {
      const std::size_t whose = (thread + k) % threads;
      const Portion& portion = portions_[whose];
      std::atomic<std::size_t>& taken = taken_[i * threads + whose].value;
      if (taken.load(std::memory_order_relaxed) >= portion.size) continue;
      const std::size_t n = taken.fetch_add(1, std::memory_order_relaxed);
      if (n < portion.size) return portion.first + (t % 2 == 1 ? portion.size - 1 - n : n);
    }
    return units_;
  }

 private:
  struct Portion {  // a range of units
    std::size_t first = 0, size = 0;
  };
  struct alignas(64) Counter {  // a cache line each
    std::atomic<std::size_t> value{0};
  };
  std::size_t units_;
  std::vector<Portion> portions_;
  std::vector<Counter> taken_;  // [steps][threads]: units taken of the portion
};

}  // namespace pvm::inline v0
