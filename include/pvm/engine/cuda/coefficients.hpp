// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The learning rule of a block of steps as tables for the step kernel, made on the host.
///
/// A table is one layer's coefficients at one step, by age a of the listed gradient (that of step
/// t - 1 - a) and by how many steps ago a panel folded:
///     before[R][L]   the weights w_j in step t, before the folds of step t
///     after[R][L]    those of step t - 1 after its folds, for y(t-1); age counts from t - 2 there
///     fold[L]        what the panels that fold in step t gain
///     count, ages[L] which of those are not 0
/// While rates stay the same, so do the tables, and steps share one.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/model/schedule.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0::detail {

class CoefficientTables {
 public:
  CoefficientTables(std::size_t layers, DeferralPlan plan, float share)
      : plan_(plan),
        share_(share),
        rates_(layers, DeferredRates(plan)),
        last_(layers),
        stable_(layers, 0),
        after_(layers, std::vector<float>(square())) {}

  [[nodiscard]] std::size_t stride() const { return (2 * square() + 2 * terms() + 1 + 3) / 4 * 4; }
  [[nodiscard]] std::vector<DeferredRates>& layers() { return rates_; }
  [[nodiscard]] const std::vector<DeferredRates>& layers() const { return rates_; }

  /// Forgets what it knows about steps before `layers()` was changed from outside.
  void restart() {
    std::fill(stable_.begin(), stable_.end(), 0);
    for (auto& table : after_) std::fill(table.begin(), table.end(), 0.0F);
  }
  /// Everything is in Z, nothing is listed.
  void clear() {
    rates_.assign(rates_.size(), DeferredRates(plan_));
    restart();
  }

  /// Writes the tables of the `steps` steps from `step` on, and of the step after them, moving
  /// `schedule` along. `index` gets (steps + 1) * layers table numbers, `tables` room for as many.
  /// Returns the number of tables. A frozen block learns nothing.
  std::size_t write(std::uint64_t step, std::size_t steps, bool learn, RateSchedule& schedule,
                    std::uint32_t* index, float* tables) {
    const std::size_t layers = rates_.size();
    std::vector<std::uint32_t> current(layers);
    std::size_t used = 0;
    for (std::size_t i = 0; i <= steps; ++i) {
      const std::uint64_t t = step + i;
      const bool beyond = i == steps;
      for (std::size_t l = 0; l < layers; ++l) {
        const bool repeat = i > 0 && stable_[l] > 2 * (plan_.terms + plan_.period);
        if (!repeat) {
          current[l] = static_cast<std::uint32_t>(used++);
          write_weights(l, t, tables + current[l] * stride());
        }
        index[i * layers + l] = current[l];
        if (beyond) continue;
        if (learn) {
          rates_[l].begin_step(t);
          if (!repeat) write_after(l, t);
        }
        if (!repeat) write_folds(l, t, learn, tables + current[l] * stride() + 2 * square());
      }
      if (beyond) break;
      schedule.begin_step(t);
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

  /// The table of step `step`'s weights alone, all layers, for reading W(step).
  void write_now(std::uint64_t step, std::uint32_t* index, float* tables) {
    for (std::size_t l = 0; l < rates_.size(); ++l) {
      index[l] = static_cast<std::uint32_t>(l);
      write_weights(l, step, tables + l * stride());
    }
  }

 private:
  [[nodiscard]] std::size_t terms() const { return static_cast<std::size_t>(plan_.terms); }
  [[nodiscard]] std::size_t period() const { return static_cast<std::size_t>(plan_.period); }
  [[nodiscard]] std::size_t square() const { return terms() * period(); }
  /// Of the gradient of step t - 1 - age, also where that is before step 0.
  [[nodiscard]] std::size_t slot(std::uint64_t t, std::size_t age) const {
    return static_cast<std::size_t>((t + terms() - 1 - age) % terms());
  }
  [[nodiscard]] std::size_t phase(std::uint64_t t, std::size_t since) const {
    return static_cast<std::size_t>((t + period() - since) % period());
  }

  void write_weights(std::size_t layer, std::uint64_t t, float* table) const {
    for (std::size_t since = 0; since < period(); ++since) {
      for (std::size_t age = 0; age < terms(); ++age) {
        table[since * terms() + age] = share_ * rates_[layer].weight(phase(t, since), slot(t, age));
      }
    }
    std::copy(after_[layer].begin(), after_[layer].end(), table + square());
    std::fill_n(table + 2 * square(), 2 * terms() + 1, 0.0F);
  }
  void write_after(std::size_t layer, std::uint64_t t) {
    for (std::size_t since = 0; since < period(); ++since) {  // since the fold, as of step t + 1
      for (std::size_t age = 0; age < terms(); ++age) {
        after_[layer][since * terms() + age] =
            share_ * rates_[layer].weight(phase(t + 1, since), slot(t, age));
      }
    }
  }
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
  std::vector<Rates> last_;
  std::vector<int> stable_;
  std::vector<std::vector<float>> after_;
};

}  // namespace pvm::inline v0::detail
