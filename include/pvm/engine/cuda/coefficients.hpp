// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The coefficients of the deferred updates (unit/deferred.hpp) for a block of steps, made on the
/// host as tables for the kernels that run whole blocks.
///
/// A table holds the coefficients of one layer in one step t, as floats. They depend on the age a
/// of the listed gradient (0: that of step t - 1) and on how long ago a panel folded: s steps,
/// modulo the fold period R, so that panels with s = 0 fold in step t. L gradients are listed:
///     before[R][L]    w_j of [s][a] in step t, before the folds of step t
///     after[R][L]     w_j of [s][a] in step t - 1 after its folds, for y(t-1); there age 0 is the
///                     gradient of step t - 2
///     fold[L]         by age: the coefficient with which panels that fold in step t add a gradient
///     count, ages[L]  the number of ages with a nonzero fold[a], and these ages
/// While the rates stay the same, so do the tables, and steps share one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/model/schedule.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0::detail {

class CoefficientTables {
 public:
  /// `share`: factor of one sequence's gradient in the update.
  CoefficientTables(std::size_t layers, DeferralPlan plan, float share)
      : plan_(plan),
        share_(share),
        rates_(layers, DeferredRates(plan)),
        last_(layers),
        stable_(layers, 0),
        after_(layers, std::vector<float>(weights_size())) {}

  /// Floats from one table to the next, a multiple of 4.
  [[nodiscard]] std::size_t stride() const {
    return (2 * weights_size() + 2 * terms() + 1 + 3) / 4 * 4;
  }
  [[nodiscard]] std::vector<DeferredRates>& layers() { return rates_; }
  [[nodiscard]] const std::vector<DeferredRates>& layers() const { return rates_; }

  /// Drops what was cached of earlier steps. To be called after `layers()` was changed from
  /// outside.
  void restart() {
    std::fill(stable_.begin(), stable_.end(), 0);
    for (auto& table : after_) std::fill(table.begin(), table.end(), 0.0F);
  }
  /// Forgets all gradients: they are in Z completely.
  void clear() {
    rates_.assign(rates_.size(), DeferredRates(plan_));
    restart();
  }

  /// Writes the tables of `steps` steps from `step` on, and of the step after them, and advances
  /// `schedule`. `index` receives the table numbers, [steps + 1][layers]; `tables` must have room
  /// for as many tables. Returns the number of different tables. If `learn` is false (a frozen
  /// block), nothing is folded and no gradient is added.
  std::size_t write(std::uint64_t step, std::size_t steps, bool learn, RateSchedule& schedule,
                    std::uint32_t* index, float* tables) {
    const std::size_t layers = rates_.size();
    std::vector<std::uint32_t> current(layers);
    std::size_t used = 0;
    for (std::size_t i = 0; i <= steps; ++i) {
      const std::uint64_t t = step + i;
      const bool beyond = i == steps;
      if (!beyond) schedule.begin_step(t);
      for (std::size_t l = 0; l < layers; ++l) {
        // New rates count from the next step on, but a new momentum in this step's folds already.
        const bool repeat = i > 0 && stable_[l] > 2 * (plan_.terms + plan_.period) &&
                            schedule.layers()[l].momentum == last_[l].momentum;
        if (!repeat) {
          current[l] = static_cast<std::uint32_t>(used++);
          write_weights(l, t, tables + current[l] * stride());
        }
        index[i * layers + l] = current[l];
        if (beyond) continue;
        if (learn) {
          rates_[l].begin_step(t, schedule.layers()[l].momentum);
          if (!repeat) write_after(l, t);
        }
        if (!repeat) write_folds(l, t, learn, tables + current[l] * stride() + 2 * weights_size());
      }
      if (beyond) break;
      for (std::size_t l = 0; l < layers; ++l) {
        const Rates now = schedule.layers()[l];
        const bool same = learn && now == last_[l];
        stable_[l] = same ? std::min(stable_[l] + 1, 1 << 20) : 0;
        last_[l] = now;
        if (learn) rates_[l].end_step(t, now);
      }
    }
    return used;
  }

  /// Writes a table for each layer that serves to read W(step): only `before` counts.
  void write_now(std::uint64_t step, std::uint32_t* index, float* tables) {
    for (std::size_t l = 0; l < rates_.size(); ++l) {
      index[l] = static_cast<std::uint32_t>(l);
      write_weights(l, step, tables + l * stride());
    }
  }

 private:
  [[nodiscard]] std::size_t terms() const { return static_cast<std::size_t>(plan_.terms); }
  [[nodiscard]] std::size_t period() const { return static_cast<std::size_t>(plan_.period); }
  [[nodiscard]] std::size_t weights_size() const { return terms() * period(); }
  /// Slot in the list of the gradient of step t - 1 - age, also where that is before step 0.
  [[nodiscard]] std::size_t slot(std::uint64_t t, std::size_t age) const {
    return static_cast<std::size_t>((t + terms() - 1 - age) % terms());
  }
  /// Phase of the units that folded `since` steps before step t.
  [[nodiscard]] std::size_t phase(std::uint64_t t, std::size_t since) const {
    return static_cast<std::size_t>((t + period() - since) % period());
  }

  /// Writes `before` and `after`, and zeros for the folds.
  void write_weights(std::size_t layer, std::uint64_t t, float* table) const {
    for (std::size_t since = 0; since < period(); ++since) {
      for (std::size_t age = 0; age < terms(); ++age) {
        table[since * terms() + age] = share_ * rates_[layer].weight(phase(t, since), slot(t, age));
      }
    }
    std::copy(after_[layer].begin(), after_[layer].end(), table + weights_size());
    std::fill_n(table + 2 * weights_size(), 2 * terms() + 1, 0.0F);
  }
  /// Keeps the coefficients of step t after its folds. They are `after` in the next step's table.
  void write_after(std::size_t layer, std::uint64_t t) {
    for (std::size_t since = 0; since < period(); ++since) {  // steps since the fold, in step t + 1
      for (std::size_t age = 0; age < terms(); ++age) {
        after_[layer][since * terms() + age] =
            share_ * rates_[layer].weight(phase(t + 1, since), slot(t, age));
      }
    }
  }
  /// Writes `fold`, `count` and `ages`. `table`: address of `fold`.
  void write_folds(std::size_t layer, std::uint64_t t, bool learn, float* table) const {
    float* ages = table + terms();
    std::size_t count = 0;
    for (std::size_t age = 0; age < terms() && learn; ++age) {
      table[age] = share_ * rates_[layer].fold(slot(t, age));
      if (table[age] != 0.0F) ages[1 + count++] = static_cast<float>(age);
    }
    ages[0] = static_cast<float>(count);
  }

  DeferralPlan plan_;
  float share_;
  std::vector<DeferredRates> rates_;
  std::vector<Rates> last_;                // of the last step, by layer
  std::vector<int> stable_;                // steps since a layer's rates changed
  std::vector<std::vector<float>> after_;  // `after` of the next table, by layer
};

}  // namespace pvm::inline v0::detail
