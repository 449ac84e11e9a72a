// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Deferred updates: the most recent gradients are kept as factors and corrected for in the
/// products, instead of being added to the weights in every step.
///
/// Plain momentum learning makes, at step j, the gradient g(j) = d(j) x(j-2)^T, and then
///     dW(t) = m(t) dW(t-1) + lr(t) g(t),      W(t+1) = W(t) + dW(t).
/// So W(t) = W(0) + a sum of past gradients. The coefficient c_j of a gradient keeps growing for as
/// many steps as the momentum lasts:
///     c_j(t) = lr(j) (1 + m(j+1) + m(j+1) m(j+2) + ...)   up to the factor m(t-1).
/// We store Z, the weights to which most gradients have already been added ("folded"), and the last
/// L gradients as factors (d, x), the "listed" gradients:
///     W(t) = Z + sum_j w_j(t) g(j),        w_j(t) = c_j(t) - (coefficient of g(j) in Z),
///     W(t) x = Z x + sum_j w_j(t) d(j) (x(j-2) . x).
/// A step then only reads the weights. Every R steps a unit folds: it adds each listed g(j) to Z so
/// that its coefficient in Z is the final one, the limit of c_j. From then on w_j < 0, and it dies
/// out as m^k does; the factors stay listed until it has. There is no momentum array.
///
/// Units fold at different steps, so that every step costs the same: a unit has a phase, from 0 to
/// R - 1 (on the host, its number mod R), and folds at the steps that are the phase mod R. So
/// within R steps all units have folded a gradient, and a list of R gradients is enough if its
/// limit is right when it is folded. One limit may change when the gradient is one step old: when a
/// layer's momentum is switched on, the last gradient from before, whose limit was its rate, gets a
/// larger limit. (The velocity of older gradients is 0 by then, so their limits do not change.) So
/// a step's momentum has to be known before its folds; otherwise a gradient stays listed for one
/// more step, to fold the difference.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/unit/rates.hpp>

namespace pvm::inline v0 {

/// Sizes of the deferral: how often a unit folds and for how many steps gradients are listed.
/// Engines that update in every step use {1, 1}.
struct DeferralPlan {
  int period = 16;  ///< R
  /// L, at least as many steps as the momentum needs to die out; and L > R, or L = R where
  /// `DeferredRates::begin_step` is told the momentum.
  int terms = 17;

  /// The longest list. A momentum that lasts longer is better kept as an array.
  static constexpr int most_terms = 64;

  /// The number of steps after which a momentum has decayed to 2^-bits of its start, or to less.
  [[nodiscard]] static int lifetime(double momentum, double bits) {
    if (momentum <= 0) return 0;
    return static_cast<int>(std::min(std::ceil(-bits * std::log(2.0) / std::log(momentum)), 1e6));
  }
  /// A momentum below 2^-20 of its start moves no weight by more than rounding does; `bits`: how
  /// much counts where weights are rounded to less. The plan may exceed `most_terms`: ask `fits()`.
  [[nodiscard]] static DeferralPlan for_momentum(double momentum, int period, double bits = 20) {
    return {period, std::max(period + 1, lifetime(momentum, bits))};
  }
  [[nodiscard]] bool fits() const noexcept { return terms <= most_terms; }
  /// Whether a run can have this plan, with at most `most` terms: false for a damaged checkpoint's.
  [[nodiscard]] bool possible(int most) const noexcept {
    return period >= 1 && terms >= period && terms <= most;
  }
  /// How many numbers DeferredRates::save() returns.
  [[nodiscard]] std::size_t saved_numbers() const noexcept {
    return static_cast<std::size_t>(terms) * (4 + static_cast<std::size_t>(period));
  }
  bool operator==(const DeferralPlan&) const = default;
};

/// The plans of a unit's two matrices. They differ where an engine can list more gradients of one.
struct DeferralPlans {
  /// One plan for both, as in most engines; implicit.
  DeferralPlans(DeferralPlan both) : w0(both), w1(both) {}
  /// `w1` lists at most as many gradients as `w0`.
  DeferralPlans(DeferralPlan w0_, DeferralPlan w1_) : w0(w0_), w1(w1_) {}

  DeferralPlan w0, w1;
  bool operator==(const DeferralPlans&) const = default;
};

/// The coefficients of one layer's listed gradients, for every phase. All units of a layer have the
/// same rates, so this small table is the whole momentum rule. It is computed on the host; engines
/// read `weight()` and `fold()`. A gradient of step j has the slot j % terms.
class DeferredRates {
 public:
  explicit DeferredRates(DeferralPlan plan)
      : plan_(plan),
        term_(count(plan.terms)),
        folded_(count(plan.terms * plan.period)),
        fold_(count(plan.terms)) {}

  /// Like the function below, for a step that will have `momentum`.
  void begin_step(std::uint64_t step, float momentum) {
    for (Term& term : term_) {
      if (term.momentum != momentum) settle(term, momentum);
    }
    begin_step(step);
  }
  /// Prepares step `step`, in which the units of phase `step % period` fold. Afterwards
  /// `fold(slot)` is the coefficient with which these units add each gradient to Z, and weight()
  /// assumes that they have.
  void begin_step(std::uint64_t step) {
    const std::size_t phase = phase_of(step);
    any_fold_ = false;
    for (std::size_t s = 0; s < term_.size(); ++s) {
      float& folded = folded_[phase * term_.size() + s];
      fold_[s] = term_[s].final_share - folded;
      folded = term_[s].final_share;
      any_fold_ = any_fold_ || fold_[s] != 0.0F;
    }
  }

  /// Finishes step `step`, which had `rates`: the coefficients of older gradients grow by the
  /// momentum, and the gradient of this step takes the slot `step % terms`.
  void end_step(std::uint64_t step, Rates rates) {
    const double momentum = rates.momentum;
    for (Term& term : term_) {
      term.velocity *= momentum;
      term.share += term.velocity;
      if (term.momentum != rates.momentum) settle(term, rates.momentum);
    }
    const std::size_t slot = static_cast<std::size_t>(step % term_.size());
    term_[slot] = {rates.learning_rate, rates.learning_rate, 0, 0};
    settle(term_[slot], rates.momentum);
    for (std::size_t p = 0; p < count(plan_.period); ++p) folded_[p * term_.size() + slot] = 0;
  }

  /// w_j of the gradient in `slot` for units of phase `phase`; 0 once it has died out.
  [[nodiscard]] float weight(std::size_t phase, std::size_t slot) const {
    const double folded = static_cast<double>(folded_[phase * term_.size() + slot]);
    return unless_died_out(term_[slot].share - folded, term_[slot].final_share);
  }
  /// The coefficient with which the units that fold in this step add the gradient in `slot` to Z.
  [[nodiscard]] float fold(std::size_t slot) const { return fold_[slot]; }
  /// Whether any of these coefficients is not 0.
  [[nodiscard]] bool any_fold() const noexcept { return any_fold_; }
  [[nodiscard]] const DeferralPlan& plan() const noexcept { return plan_; }

  /// The state as numbers, for checkpoints: 4 per term, then the folded shares.
  [[nodiscard]] std::vector<double> save() const {
    std::vector<double> out;
    for (const Term& t : term_) {
      out.insert(out.end(), {t.velocity, t.share, t.momentum, t.final_share});
    }
    out.insert(out.end(), folded_.begin(), folded_.end());
    return out;
  }
  /// Restores what `save` returned under the same plan. Returns false if the size is that of
  /// another plan.
  [[nodiscard]] bool restore(const std::vector<double>& saved) {
    if (saved.size() != 4 * term_.size() + folded_.size()) return false;
    for (std::size_t s = 0; s < term_.size(); ++s) {
      const double* v = saved.data() + 4 * s;
      term_[s] = {v[0], v[1], static_cast<float>(v[2]), static_cast<float>(v[3])};
    }
    std::transform(saved.end() - static_cast<std::ptrdiff_t>(folded_.size()), saved.end(),
                   folded_.begin(), [](double v) { return static_cast<float>(v); });
    return true;
  }

  /// Takes over the coefficients of another engine, which folds in another order. `saved` is from
  /// its `save`, under `plan` after `step` steps. This engine's Z starts as the other engine's
  /// W(step), to which the caller has added the `outstanding` coefficients. So the present share of
  /// each gradient counts as folded. A gradient that leaves this engine's list before all units
  /// have folded it counts as folded with its final share. `momentum` is that of step `step`, which
  /// may differ from the one before. Returns false if the size is wrong.
  [[nodiscard]] bool rebase(const std::vector<double>& saved, DeferralPlan plan, std::uint64_t step,
                            float momentum) {
    const std::size_t theirs = count(plan.terms);
    if (saved.size() != theirs * (4 + count(plan.period))) return false;
    *this = DeferredRates(plan_);
    const std::uint64_t ages = std::min<std::uint64_t>({step, theirs, term_.size()});
    for (std::uint64_t age = 0; age < ages; ++age) {
      const double* v = saved.data() + 4 * static_cast<std::size_t>((step - 1 - age) % theirs);
      const auto slot = static_cast<std::size_t>((step - 1 - age) % term_.size());
      term_[slot] = restored_term(v, momentum);
      for (std::size_t p = 0; p < count(plan_.period); ++p) {
        folded_[p * term_.size() + slot] =
            folds_in_time(plan_, age) ? static_cast<float>(v[1]) : term_[slot].final_share;
      }
    }
    return true;
  }
  /// By age, the coefficients with which the listed gradients of `saved` (see rebase) have to be
  /// added to W(step) so that a run can continue under the plan `next`: 0 for gradients that it
  /// folds in time. Of a matrix that lists fewer gradients than `saved` has, only the newest
  /// `listed` ones: W(step) has older ones with their final share, and if the run folds them once
  /// more, what it will add is subtracted.
  [[nodiscard]] static std::vector<float> outstanding(const std::vector<double>& saved,
                                                      DeferralPlan plan, std::uint64_t step,
                                                      DeferralPlan next, float momentum,
                                                      int listed) {
    std::vector<float> gains(count(plan.terms));
    for (std::size_t age = 0; age < gains.size() && age < step; ++age) {
      const bool is_listed = age < count(listed);
      if (folds_in_time(next, age) == is_listed) continue;
      const double* v =
          saved.data() + 4 * static_cast<std::size_t>((step - 1 - age) % gains.size());
      const Term term = restored_term(v, momentum);
      const float lacks = unless_died_out(term.final_share - term.share, term.final_share);
      gains[age] = is_listed ? lacks : -lacks;
    }
    return gains;
  }

 private:
  struct Term {
    double velocity = 0;    ///< coefficient of the gradient in dW
    double share = 0;       ///< c_j, its coefficient in W
    float momentum = 0;     ///< for which final_share was computed
    float final_share = 0;  ///< the limit of c_j
  };

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  /// Whether all units will fold a gradient that has this age before it leaves the list.
  static bool folds_in_time(DeferralPlan plan, std::size_t age) {
    return age + count(plan.period) <= count(plan.terms);
  }
  /// w, or 0 if it is at most 2^-20 of the final share.
  static float unless_died_out(double w, float final_share) {
    constexpr double died_out = 1.0 / (1 << 20);
    return std::abs(w) <= died_out * static_cast<double>(final_share) ? 0.0F
                                                                      : static_cast<float>(w);
  }
  [[nodiscard]] std::size_t phase_of(std::uint64_t step) const {
    return static_cast<std::size_t>(step % static_cast<std::uint64_t>(plan_.period));
  }
  /// A term from four saved numbers, with its limit under `momentum`.
  static Term restored_term(const double* saved, float momentum) {
    Term term{saved[0], saved[1], static_cast<float>(saved[2]), static_cast<float>(saved[3])};
    if (term.momentum != momentum) settle(term, momentum);
    return term;
  }
  /// Sets the limit of the share, if the momentum stays as given.
  static void settle(Term& term, float momentum) {
    const double m = momentum;
    term.momentum = momentum;
    term.final_share = static_cast<float>(term.share + term.velocity * m / (1 - m));
  }

  DeferralPlan plan_;
  std::vector<Term> term_;     ///< [slot]
  std::vector<float> folded_;  ///< [phase][slot]: coefficient of the gradient in Z
  std::vector<float> fold_;    ///< [slot]: see fold()
  bool any_fold_ = false;
};

}  // namespace pvm::inline v0
