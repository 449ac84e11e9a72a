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
      : UnitPortions(layout, units, threads, 0, units) {}
  /// The same for the units from `first` up to `end`, of `units` units.
  UnitPortions(const WeightLayout& layout, std::size_t units, std::size_t threads,
               std::size_t first, std::size_t end)
      : units_(units), portions_(threads) {
    std::size_t u = first;
    for (std::size_t i = 0; i < threads; ++i) {
      portions_[i].first = u;
      const std::size_t weights = layout.size() / threads * (i + 1);
      while (u < end && (i + 1 == threads || layout[u].w0 < weights)) ++u;
      portions_[i].size = u - portions_[i].first;
    }
  }

  [[nodiscard]] std::size_t units() const noexcept { return units_; }

  /// From now on the last `parts` eighths of each portion are split: they are taken once in a step
  /// for their hidden values, and once more, by `take_split`, for their outputs.
  void split(std::size_t parts) {
    split_units_.assign(2 * units_, 0);
    for (Portion& portion : portions_) {
      portion.split = (portion.size * parts + 7) / 8;
      for (std::size_t parity = 0; parity < 2; ++parity) {
        for (std::size_t n = portion.size - portion.split; n < portion.size; ++n)
          split_units_[parity * units_ + portion.unit(n, parity)] = 1;
      }
    }
  }
  /// Whether `unit` is split in step `t`.
  [[nodiscard]] bool splits(std::size_t unit, std::uint64_t t) const noexcept {
    return !split_units_.empty() && split_units_[t % 2 * units_ + unit] != 0;
  }

  /// Prepares a block of `steps` steps. Must not be called while threads take units.
  void begin_block(std::size_t steps) {
    taken_ = std::vector<Counter>(steps * portions_.size());
    if (!split_units_.empty()) taken_split_ = std::vector<Counter>(taken_.size());
  }

  /// The next unit for `thread` in step `t`, which is step `i` of the block; `units()` if none is
  /// left.
  [[nodiscard]] std::size_t take(std::size_t thread, std::size_t i, std::uint64_t t) {
    return take_of(taken_, thread, i, t, [](const Portion&) { return std::size_t{0}; });
  }
  /// The same for the outputs of the units that are split.
  [[nodiscard]] std::size_t take_split(std::size_t thread, std::size_t i, std::uint64_t t) {
    return take_of(taken_split_, thread, i, t,
                   [](const Portion& portion) { return portion.size - portion.split; });
  }

 private:
  struct Portion {  // a range of units
    std::size_t first = 0, size = 0;
    std::size_t split = 0;  // how many of them are split, at the end of a step

    /// Its n-th unit in a step.
    [[nodiscard]] std::size_t unit(std::size_t n, std::uint64_t t) const {
      return first + (t % 2 == 1 ? size - 1 - n : n);
    }
  };
  struct alignas(64) Counter {  // a cache line each
    std::atomic<std::size_t> value{0};
  };

  /// `skip(portion)`: how many of a portion's units are not to be taken.
  template <class Skip>
  [[nodiscard]] std::size_t take_of(std::vector<Counter>& counters, std::size_t thread,
                                    std::size_t i, std::uint64_t t, Skip skip) {
    const std::size_t threads = portions_.size();
    for (std::size_t k = 0; k < threads; ++k) {
      const std::size_t whose = (thread + k) % threads;
      const Portion& portion = portions_[whose];
      const std::size_t skipped = skip(portion);
      std::atomic<std::size_t>& taken = counters[i * threads + whose].value;
      if (skipped + taken.load(std::memory_order_relaxed) >= portion.size) continue;
      const std::size_t n = skipped + taken.fetch_add(1, std::memory_order_relaxed);
      if (n < portion.size) return portion.unit(n, t);
    }
    return units_;
  }

  std::size_t units_;
  std::vector<Portion> portions_;
  std::vector<char> split_units_;     // [parity of the step][units]; empty: no unit is split
  std::vector<Counter> taken_;        // [steps][threads]: units taken of the portion
  std::vector<Counter> taken_split_;  // the same for the outputs of split units
};

}  // namespace pvm::inline v0
