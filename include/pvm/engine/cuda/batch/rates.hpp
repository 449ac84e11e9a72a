// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The learning rates of the steps to come, as the update kernel reads them: a table a step.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/batch/tables.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/unit/deferred.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0::detail::batch {

/// How many gradients to list so that what is left out of W for a while, m^(T+1)/(1-m) of a
/// gradient, is less than the rounding of the gradient's own factors.
inline int terms_for(double momentum, double epsilon) {
  int terms = 1;
  while (terms < 64 && std::pow(momentum, terms + 1) / (1 - momentum) > epsilon) ++terms;
  return terms;
}

/// Whether a 16-bit working copy may leave out all but the youngest gradient. The older ones are in
/// it a step or two early then: m^2/(1-m) of the second youngest, less of the others. That is a
/// ninetieth of a gradient for a momentum of 0.1, whatever the rate; or it is at most
/// m^2/(1-m) rate |d x|, and |d x| <= 1/2: no more than the copy's own rounding, epsilon/2 of it,
/// at a weight of 1/8.
inline bool youngest_suffices(double momentum, double rate, double epsilon) {
  const double early = momentum * momentum / (1 - momentum);
  return early <= 1.0 / 64 || early * rate <= epsilon / 8;
}

/// Whether a rule moves weights in proportion to rate times gradient, whatever the step: then a
/// sequence's share is part of the rate, and nobody counts updates.
template <class Rule>
inline constexpr bool counts_updates =
    !std::is_same_v<Rule, Momentum> && !std::is_same_v<Rule, Sgd>;

/// What a layer has in a table.
enum class RateKind {
  plain,    ///< its rate, with a sequence's share in it, and its momentum
  counted,  ///< its rate, its momentum, and in two words the number of this update, from 1; 0: none
  listed    ///< for each gradient, youngest first, what the master gains of it and what W has of it
};

/// Of `Rule`; `listed`: the last gradients are.
template <class Rule>
constexpr RateKind rate_kind(bool listed) {
  if (listed) return RateKind::listed;
  return counts_updates<Rule> ? RateKind::counted : RateKind::plain;
}

/// A table is [1 if the step learns, 1 if its d1 may be asked for, 2 unused], then what each layer
/// has.
class RateTables {
 public:
  RateTables(std::size_t layers, int terms, RateKind kind, float share)
      : layers_(layers),
        terms_(static_cast<std::size_t>(terms)),
        kind_(kind),
        share_(share),
        deferred_(layers, DeferredRates({1, terms})),
        updates_(layers) {}

  [[nodiscard]] std::size_t size() const noexcept { return 4 + layers_ * each(); }
  void clear() {
    deferred_.assign(layers_, DeferredRates({1, static_cast<int>(terms_)}));
    updates_.assign(layers_, 0);
  }

  /// The coefficients of a checkpoint. Where updates are counted nothing is deferred, and a layer's
  /// first coefficient is their number.
  [[nodiscard]] std::vector<double> save() const {
    std::vector<double> all;
    for (std::size_t l = 0; l < layers_; ++l) {
      auto saved = deferred_[l].save();
      if (kind_ == RateKind::counted) saved.front() = static_cast<double>(updates_[l]);
      all.insert(all.end(), saved.begin(), saved.end());
    }
    return all;
  }
  /// False if they cannot have been saved here.
  [[nodiscard]] bool restore(const std::vector<double>& coefficients) {
    const std::size_t of_a_layer = coefficients.size() / layers_;
    for (std::size_t l = 0; l < layers_; ++l) {
      const auto from = coefficients.begin() + static_cast<std::ptrdiff_t>(l * of_a_layer);
      std::vector<double> saved(from, from + static_cast<std::ptrdiff_t>(of_a_layer));
      if (kind_ == RateKind::counted) {
        updates_[l] = static_cast<std::uint64_t>(std::max(0.0, std::exchange(saved.front(), 0.0)));
      }
      if (!deferred_[l].restore(saved)) return false;
    }
    return true;
  }

  /// The table of step `step`, whose rates `schedule` becomes.
  void write(std::uint64_t step, bool learn, RateSchedule& schedule, float* out) {
    schedule.begin_step(step);
    out[0] = learn ? 1.0F : 0.0F;
    out[1] = out[2] = out[3] = 0;
    for (std::size_t l = 0; l < layers_; ++l) {
      const Rates rates = schedule.layers()[l];
      float* row = out + 4 + l * each();
      if (kind_ == RateKind::plain) {
        row[0] = share_ * rates.learning_rate;
        row[1] = rates.momentum;
        continue;
      }
      if (kind_ == RateKind::counted) {
        row[0] = rates.learning_rate;
        row[1] = rates.momentum;
        const std::uint64_t number = learn && schedule.is_on(l) ? ++updates_[l] : 0;
        std::memcpy(row + 2, &number, sizeof(number));
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
    if (kind_ != RateKind::listed) return;
    for (std::size_t l = 0; l < layers_; ++l) write_shares(l, step, out + 4 + l * each());
  }

 private:
  [[nodiscard]] std::size_t each() const noexcept {
    return kind_ == RateKind::listed ? 2 * terms_ : (kind_ == RateKind::counted ? 4 : 2);
  }
  void write_shares(std::size_t l, std::uint64_t step, float* row) const {
    for (std::size_t age = 0; age < terms_; ++age) {
      const auto slot = static_cast<std::size_t>((step + 64 * terms_ - age) % terms_);
      row[2 * age] = share_ * deferred_[l].fold(slot);
      row[2 * age + 1] = share_ * deferred_[l].weight(0, slot);
    }
  }

  std::size_t layers_, terms_;
  RateKind kind_;
  float share_;
  std::vector<DeferredRates> deferred_;
  std::vector<std::uint64_t> updates_;
};

}  // namespace pvm::inline v0::detail::batch
