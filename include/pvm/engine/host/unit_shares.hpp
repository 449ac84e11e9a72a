// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Which thread works on which unit in a step.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/host/weight_layout.hpp>

namespace pvm::inline v0 {

/// Every thread has units of its own, neighbours with about as many weights, so that it finds in
/// its core's cache what it has left there. Every other step goes through them backwards, because
/// the weights used last are the ones still in it. Who is through takes what others have left. No
/// result depends on who does what.
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

  /// Before threads take units of so many steps. Not while they do.
  void begin_block(std::size_t steps) { taken_ = std::vector<Counter>(steps * shares_.size()); }

  /// The next unit for `thread` in step `t`, number `i` of the block; `units()` if there is none.
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
  struct Share {
    std::size_t first = 0, size = 0;
  };
  struct alignas(64) Counter {  // a cache line each
    std::atomic<std::size_t> value{0};
  };
  std::size_t units_;
  std::vector<Share> shares_;
  std::vector<Counter> taken_;  // [steps][threads]
};

}  // namespace pvm::inline v0
