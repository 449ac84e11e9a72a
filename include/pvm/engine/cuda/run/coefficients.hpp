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
/// If the plan of W1 is not that of W0, the same follows for W1, at `second_part()`.
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
  CoefficientTables(std::size_t layers, DeferralPlans plans) : last_(layers), stable_(layers, 0) {
    parts_.emplace_back(layers, plans.w0);
    if (plans.w1 != plans.w0) parts_.emplace_back(layers, plans.w1);
  }

  /// Floats from one table to the next, a multiple of 4.
  [[nodiscard]] std::size_t stride() const {
    return parts_.size() == 1 ? parts_[0].size() : second_part() + parts_[1].size();
  }
  /// Floats from the start of a table to the coefficients of W1, a multiple of 4; 0 if they are
  /// those of W0.
  [[nodiscard]] std::size_t second_part() const {
    return parts_.size() == 1 ? 0 : parts_[0].size();
  }
  /// The coefficients by layer: those of W0, and of W1 if it has another plan.
  [[nodiscard]] std::size_t parts() const { return parts_.size(); }
  [[nodiscard]] std::vector<DeferredRates>& layers(std::size_t part) { return parts_[part].rates; }
  [[nodiscard]] const std::vector<DeferredRates>& layers(std::size_t part) const {
    return parts_[part].rates;
  }

  /// Drops what was cached of earlier steps. To be called after `layers()` was changed from
  /// outside.
  void restart() {
    std::fill(stable_.begin(), stable_.end(), 0);
    for (Part& part : parts_) {
      for (auto& table : part.after) std::fill(table.begin(), table.end(), 0.0F);
    }
  }
  /// Forgets all gradients: they are in Z completely.
  void clear() {
    for (Part& part : parts_) part.rates.assign(part.rates.size(), DeferredRates(part.plan));
    restart();
  }

  /// Writes the tables of `steps` steps from `step` on, and of the step after them, and advances
  /// `schedule`. `index` receives the table numbers, [steps + 1][layers]; `tables` must have room
  /// for as many tables. Returns the number of different tables. If `learn` is false (a frozen
  /// block), nothing is folded and no gradient is added; no gradient may be listed (`clear()`), so
  /// all tables of a layer are the same.
  std::size_t write(std::uint64_t step, std::size_t steps, bool learn, RateSchedule& schedule,
                    std::uint32_t* index, float* tables) {
    const std::size_t layers = last_.size();
    std::vector<std::uint32_t> current(layers);
    std::size_t used = 0;
    for (std::size_t i = 0; i <= steps; ++i) {
      const std::uint64_t t = step + i;
      const bool beyond = i == steps;
      if (!beyond) schedule.begin_step(t);
      for (std::size_t l = 0; l < layers; ++l) {
        // New rates count from the next step on, but a new momentum in this step's folds already.
        const float momentum = schedule.layers()[l].momentum;
        const bool constant =
            !learn || (stable_[l] > 2 * longest() && momentum == last_[l].momentum);
        const bool repeat = i > 0 && constant;
        if (!repeat) current[l] = static_cast<std::uint32_t>(used++);
        index[i * layers + l] = current[l];
        float* table = tables + current[l] * stride();
        for (Part& part : parts_) {
          if (!repeat) part.write_weights(l, t, table);
          if (!beyond && learn) part.rates[l].begin_step(t, momentum);
          if (!beyond && learn && !repeat) part.write_folded(l, t, table);
          table += part.size();
        }
      }
      if (beyond) break;
      for (std::size_t l = 0; l < layers; ++l) {
        const Rates now = schedule.layers()[l];
        const bool same = learn && now == last_[l];
        stable_[l] = same ? std::min(stable_[l] + 1, 1 << 20) : 0;
        last_[l] = now;
        if (!learn) continue;
        for (Part& part : parts_) part.rates[l].end_step(t, now);
      }
    }
    return used;
  }

  /// Writes a table for each layer that serves to read W(step): only `before` counts.
  void write_now(std::uint64_t step, std::uint32_t* index, float* tables) {
    for (std::size_t l = 0; l < last_.size(); ++l) {
      index[l] = static_cast<std::uint32_t>(l);
      float* table = tables + l * stride();
      for (Part& part : parts_) {
        part.write_weights(l, step, table);
        table += part.size();
      }
    }
  }

 private:
  /// The coefficients of one matrix, or of both.
  struct Part {
    Part(std::size_t layers, DeferralPlan plan_)
        : plan(plan_),
          rates(layers, DeferredRates(plan_)),
          after(layers, std::vector<float>(terms() * period())) {}

    DeferralPlan plan;
    std::vector<DeferredRates> rates;       // by layer
    std::vector<std::vector<float>> after;  // `after` of the next table, by layer

    [[nodiscard]] std::size_t terms() const { return static_cast<std::size_t>(plan.terms); }
    [[nodiscard]] std::size_t period() const { return static_cast<std::size_t>(plan.period); }
    [[nodiscard]] std::size_t weights_size() const { return terms() * period(); }
    /// Floats of its part of a table, a multiple of 4.
    [[nodiscard]] std::size_t size() const {
      return (2 * weights_size() + 2 * terms() + 1 + 3) / 4 * 4;
    }
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
          table[since * terms() + age] = rates[layer].weight(phase(t, since), slot(t, age));
        }
      }
      std::copy(after[layer].begin(), after[layer].end(), table + weights_size());
      std::fill_n(table + 2 * weights_size(), 2 * terms() + 1, 0.0F);
    }
    /// When the folds of step t are known: writes `fold`, `count` and `ages`, and keeps the
    /// coefficients of step t after its folds. These are `after` in the next step's table.
    void write_folded(std::size_t layer, std::uint64_t t, float* table) {
      for (std::size_t since = 0; since < period(); ++since) {  // since the fold, in step t + 1
        for (std::size_t age = 0; age < terms(); ++age) {
          after[layer][since * terms() + age] =
              rates[layer].weight(phase(t + 1, since), slot(t, age));
        }
      }
      float* fold = table + 2 * weights_size();
      float* ages = fold + terms();
      std::size_t count = 0;
      for (std::size_t age = 0; age < terms(); ++age) {
        fold[age] = rates[layer].fold(slot(t, age));
        if (fold[age] != 0.0F) ages[1 + count++] = static_cast<float>(age);
      }
      ages[0] = static_cast<float>(count);
    }
  };

  /// Steps until all that a part's coefficients depend on is as new as a layer's rates, at most.
  [[nodiscard]] int longest() const {
    int steps = 0;
    for (const Part& part : parts_) steps = std::max(steps, part.plan.terms + part.plan.period);
    return steps;
  }

  std::vector<Part> parts_;  // W0's and W1's, or that of both
  std::vector<Rates> last_;  // of the last step, by layer
  std::vector<int> stable_;  // steps since a layer's rates changed
};

}  // namespace pvm::inline v0::detail
