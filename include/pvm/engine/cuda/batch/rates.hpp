// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The learning rates as the update and sweep kernels read them: one table for each step.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/unit/deferred.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0::detail::batch {

/// The number T of gradients to list, at most 64. When a gradient leaves the list, W has it with
/// its final share rate / (1-m), of which m^(T+1)/(1-m) times the rate is not due yet. T is the
/// smallest number for which this error, relative to rate times gradient, is at most `epsilon`, the
/// relative rounding error of the gradient's own factors.
inline int terms_for(double momentum, double epsilon) {
  int terms = 1;
  while (terms < 64 && std::pow(momentum, terms + 1) / (1 - momentum) > epsilon) ++terms;
  return terms;
}

/// Whether a 16-bit working copy may correct the master for the youngest listed gradient only. The
/// older gradients then count with their final shares a step or two early: the error is m^2/(1-m)
/// of the second youngest gradient (times the rate), and less of the older ones. That is acceptable
/// if it is at most a 64th of a gradient (a momentum of 0.1 gives a 90th), whatever the rate; or if
/// it is below the copy's own rounding error: at most m^2/(1-m) rate |d x|, where |d x| <= 1/2,
/// against epsilon/2 of a weight of 1/8.
inline bool youngest_suffices(double momentum, double rate, double epsilon) {
  const double early = momentum * momentum / (1 - momentum);
  return early <= 1.0 / 64 || early * rate <= epsilon / 8;
}

/// Whether a rule needs the number of the update. The others (Momentum, Sgd) move weights in
/// proportion to rate times gradient at every step, so that the factor `sequence_weight` of a
/// sequence is multiplied into the rate; for counting rules the kernel multiplies it into the
/// gradient.
template <class Rule>
inline constexpr bool counts_updates =
    !std::is_same_v<Rule, Momentum> && !std::is_same_v<Rule, Sgd>;

/// What a table holds for a layer.
enum class RateKind {
  plain,    ///< 2 floats: the rate times `sequence_weight`, and the momentum
  counted,  ///< 8 words: the rate, the momentum, the 64-bit number of this update, from 1 (0 if the
            ///< layer does not learn in this step), and RuleStep::own
  listed    ///< 2 T floats: for each listed gradient, youngest first, the coefficient with which it
            ///< is added to the master, and its coefficient in W beside the master (w_j)
};

/// The kind for `Rule`; `listed`: the momentum is a list of gradients.
template <class Rule>
constexpr RateKind rate_kind(bool listed) {
  if (listed) return RateKind::listed;
  return counts_updates<Rule> ? RateKind::counted : RateKind::plain;
}

/// What a rule computes once for a step of a layer (rule_step). The host does it for the kernels.
using BeginRuleStep = RuleStep (*)(RuleStep);

/// Makes the tables. A table starts with 4 floats: 1 if the step learns; 1 if the step's d1 must be
/// stored, for a checkpoint or for reading the weights (`write` leaves it 0, the engine sets it);
/// two unused. Then follow the layers.
class RateTables {
 public:
  /// `terms`: number of listed gradients, T; `sequence_weight`: factor of one sequence's gradient.
  RateTables(std::size_t layers, int terms, RateKind kind, float sequence_weight,
             BeginRuleStep begin_step)
      : layers_(layers),
        terms_(static_cast<std::size_t>(terms)),
        kind_(kind),
        sequence_weight_(sequence_weight),
        begin_step_(begin_step),
        deferred_(layers, DeferredRates({1, terms})),
        updates_(layers) {}

  /// Floats of a table.
  [[nodiscard]] std::size_t size() const noexcept { return 4 + layers_ * each(); }
  /// Forgets all gradients and updates.
  void clear() {
    deferred_.assign(layers_, DeferredRates({1, static_cast<int>(terms_)}));
    updates_.assign(layers_, 0);
  }

  /// EngineState::coefficients. Where updates are counted, nothing is deferred, and the first
  /// coefficient of a layer is the number of its updates.
  [[nodiscard]] std::vector<double> save() const {
    std::vector<double> all;
    for (std::size_t l = 0; l < layers_; ++l) {
      auto saved = deferred_[l].save();
      if (kind_ == RateKind::counted) saved.front() = static_cast<double>(updates_[l]);
      all.insert(all.end(), saved.begin(), saved.end());
    }
    return all;
  }
  /// Restores what `save` returned. Returns false if `coefficients` has a wrong size.
  [[nodiscard]] bool restore(const std::vector<double>& coefficients) {
    const std::size_t of_a_layer = coefficients.size() / layers_;
    for (std::size_t l = 0; l < layers_; ++l) {
      const auto from = coefficients.begin() + static_cast<std::ptrdiff_t>(l * of_a_layer);
      std::vector<double> saved(from, from + static_cast<std::ptrdiff_t>(of_a_layer));
      if (kind_ == RateKind::counted) {
        constexpr double most = 1ULL << 62;  // of a file, which may say anything
        updates_[l] =
            static_cast<std::uint64_t>(std::clamp(std::exchange(saved.front(), 0.0), 0.0, most));
      }
      if (!deferred_[l].restore(saved)) return false;
    }
    return true;
  }

  /// Writes the table of step `step` to `out` and advances `schedule` to that step. To be called
  /// for one step after the other.
  void write(std::uint64_t step, bool learn, RateSchedule& schedule, float* out) {
    schedule.begin_step(step);
    out[0] = learn ? 1.0F : 0.0F;
    out[1] = out[2] = out[3] = 0;
    for (std::size_t l = 0; l < layers_; ++l) {
      const Rates rates = schedule.layers()[l];
      float* row = out + 4 + l * each();
      if (kind_ == RateKind::plain) {
        row[0] = sequence_weight_ * rates.learning_rate;
        row[1] = rates.momentum;
        continue;
      }
      if (kind_ == RateKind::counted) {
        write_counted(rates, learn && schedule.is_on(l) ? ++updates_[l] : 0, row);
        continue;
      }
      if (learn) {
        deferred_[l].end_step(step, rates);
        deferred_[l].begin_step(step + 1);
      }
      write_terms(l, step, row);
    }
  }
  /// Writes the table for reading W after step `step`, marked as a step that does not learn: of the
  /// coefficients only those of W (w_j) are used.
  void write_now(std::uint64_t step, float* out) const {
    std::fill_n(out, size(), 0.0F);
    if (kind_ != RateKind::listed) return;
    for (std::size_t l = 0; l < layers_; ++l) write_terms(l, step, out + 4 + l * each());
  }

 private:
  /// Floats of a layer in a table.
  [[nodiscard]] std::size_t each() const noexcept {
    return kind_ == RateKind::listed ? 2 * terms_ : (kind_ == RateKind::counted ? 8 : 2);
  }
  /// `number`: of the layer's update, from 1; 0: it makes none.
  void write_counted(const Rates& rates, std::uint64_t number, float* row) const {
    RuleStep step{rates.learning_rate, rates.momentum, number == 0 ? 0 : number - 1};
    if (number != 0) step = begin_step_(step);
    row[0] = step.rate;
    row[1] = step.momentum;
    std::memcpy(row + 2, &number, sizeof(number));
    std::memcpy(row + 4, step.own, sizeof(step.own));
  }
  void write_terms(std::size_t l, std::uint64_t step, float* row) const {
    for (std::size_t age = 0; age < terms_; ++age) {
      const auto slot = static_cast<std::size_t>((step + 64 * terms_ - age) % terms_);
      row[2 * age] = sequence_weight_ * deferred_[l].fold(slot);
      row[2 * age + 1] = sequence_weight_ * deferred_[l].weight(0, slot);
    }
  }

  std::size_t layers_, terms_;
  RateKind kind_;
  float sequence_weight_;
  BeginRuleStep begin_step_;
  std::vector<DeferredRates> deferred_;
  std::vector<std::uint64_t> updates_;
};

}  // namespace pvm::inline v0::detail::batch
