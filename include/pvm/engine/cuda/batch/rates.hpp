// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The learning rates of the steps to come, as the update kernel reads them: a table a step.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/engine/cuda/batch/tables.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0::detail::batch {

/// How many gradients to list so that what is left out of W for a while, m^(T+1)/(1-m) of a
/// gradient, is less than the rounding of the gradient's own factors.
inline int terms_for(double momentum, double epsilon) {
  int terms = 1;
  while (terms < 64 && std::pow(momentum, terms + 1) / (1 - momentum) > epsilon) ++terms;
  return terms;
}

/// A table is [1 if the step learns, 3 unused], then for each layer its rate and momentum, or for
/// each listed gradient, youngest first, what the master gains of it and what of it W has beside
/// the master.
class RateTables {
 public:
  RateTables(std::size_t layers, int terms, bool listed, float share)
      : layers_(layers),
        terms_(static_cast<std::size_t>(terms)),
        listed_(listed),
        share_(share),
        deferred_(layers, DeferredRates({1, terms})) {}

  [[nodiscard]] std::size_t size() const noexcept { return 4 + layers_ * each(); }
  [[nodiscard]] std::vector<DeferredRates>& layers() noexcept { return deferred_; }
  void clear() { deferred_.assign(layers_, DeferredRates({1, static_cast<int>(terms_)})); }

  /// The table of step `step`, whose rates `schedule` becomes.
  void write(std::uint64_t step, bool learn, RateSchedule& schedule, float* out) {
    schedule.begin_step(step);
    out[0] = learn ? 1.0F : 0.0F;
    out[1] = out[2] = out[3] = 0;
    for (std::size_t l = 0; l < layers_; ++l) {
      const Rates rates = schedule.layers()[l];
      float* row = out + 4 + l * each();
      if (!listed_) {
        row[0] = share_ * rates.learning_rate;
        row[1] = rates.momentum;
        continue;
      }
      if (learn) {
        deferred_[l].end_step(step, rates);
        deferred_[l].begin_step(step + 1);
      }
      write_shares(l, step, row);
    }
  }
  /// The table that reads W after step `step`: the master gains nothing.
  void write_now(std::uint64_t step, float* out) const {
    std::fill_n(out, size(), 0.0F);
    if (!listed_) return;
    for (std::size_t l = 0; l < layers_; ++l) write_shares(l, step, out + 4 + l * each());
  }

 private:
  [[nodiscard]] std::size_t each() const noexcept { return listed_ ? 2 * terms_ : 2; }
  void write_shares(std::size_t l, std::uint64_t step, float* row) const {
    for (std::size_t age = 0; age < terms_; ++age) {
      const auto slot = static_cast<std::size_t>((step + 64 * terms_ - age) % terms_);
      row[2 * age] = share_ * deferred_[l].fold(slot);
      row[2 * age + 1] = share_ * deferred_[l].weight(0, slot);
    }
  }

  std::size_t layers_, terms_;
  bool listed_;
  float share_;
  std::vector<DeferredRates> deferred_;
};

}  // namespace pvm::inline v0::detail::batch
