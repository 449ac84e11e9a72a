// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Deferred updates: how the last gradients, kept as factors, stand in for the weights.
///
/// Plain momentum learning makes, at step j, the gradient g(j) = d(j) x(j-2)^T, and then
///     dW(t) = m(t) dW(t-1) + lr(t) g(t),      W(t+1) = W(t) + dW(t).
/// So W(t) is a sum of past gradients, each with a coefficient that grows a little longer:
///     c_j(t) = lr(j) (1 + m(j+1) + m(j+1) m(j+2) + ...)   up to m(t-1).
/// We keep Z, the weights with most gradients added ("folded") already, and the last L gradients
/// as factors (d, x):
///     W(t) = Z + sum_j w_j(t) g(j),        w_j(t) = c_j(t) - (what of g(j) is in Z),
///     W(t) x = Z x + sum_j w_j(t) d(j) (x(j-2) . x).
/// A step then only reads the weights. Every R steps a unit folds: each g(j) enters Z with its
/// final coefficient, the limit of c_j. The difference that is not there yet, w_j < 0, dies out
/// with m^k; the factors stay listed until it has. There is no momentum array.
///
/// Units fold at different steps (phase = unit number mod R), so that every step costs the same.
/// So within R steps all have folded a gradient. It stays listed for a step more, because its limit
/// may change when it is one step old: when a layer's momentum is switched on, the last gradient
/// from before, whose limit was its rate, begins to live on. (Older ones are over by then.)

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/core/config.hpp>
#include <pvm/model/schedule.hpp>

namespace pvm::inline v0 {

/// Sizes of the deferral: how often a unit folds and how many steps' gradients are listed.
struct DeferralPlan {
  int period = 16;  ///< R
  int terms = 17;   ///< L > R, and at least as many steps as the momentum needs to die out

  /// The longest list. A momentum that lives longer is better kept as an array.
  static constexpr int most_terms = 64;

  /// After how many steps a momentum has fallen to 2^-bits of its start, or to less.
  [[nodiscard]] static int lifetime(double momentum, double bits) {
    if (momentum <= 0) return 0;
    return static_cast<int>(std::min(std::ceil(-bits * std::log(2.0) / std::log(momentum)), 1e6));
  }
  /// A momentum below 2^-20 of its start moves no weight by more than rounding does. The plan may
  /// exceed `most_terms`: ask `fits()`.
  [[nodiscard]] static DeferralPlan for_momentum(double momentum, int period) {
    return {period, std::max(period + 1, lifetime(momentum, 20))};
  }
  [[nodiscard]] bool fits() const noexcept { return terms <= most_terms; }
  bool operator==(const DeferralPlan&) const = default;
};

/// The coefficients of one layer's listed gradients, for every phase. All units of a layer have
/// the same rates, so this is all the learning rule there is; it runs on the host, and engines
/// read `weight()` and `fold()`.
class DeferredRates {
 public:
  explicit DeferredRates(DeferralPlan plan)
      : plan_(plan),
        term_(count(plan.terms)),
        folded_(count(plan.terms * plan.period)),
        fold_(count(plan.terms)) {}

  /// Prepares step `step`: the units of phase `step % period` fold now, before anything else.
  /// `fold(slot)` is what Z gains of each gradient.
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

  /// After step `step` with `rates`: older gradients move on by the momentum, and the gradient of
  /// this step takes the slot `step % terms`.
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
  /// What the units that fold at this step add to Z of the gradient in `slot`.
  [[nodiscard]] float fold(std::size_t slot) const { return fold_[slot]; }
  /// Whether any of them is not 0.
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
  /// Restores what `save` gave under the same plan. Returns false if the size is another plan's.
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

  /// Takes over the rates that `saved` (from `save`, made under `plan` after `step` steps) lists,
  /// as they are if all of each gradient's present share is already in Z, or, where it leaves the
  /// list before all units have folded, its final share: what another engine, which folds in
  /// another order, has to offer once its W has gained what is `outstanding`. `momentum` is that of
  /// step `step`, which may be another one than before. Returns false if the size is wrong.
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
  /// What W has yet to gain of the gradients that such a `saved` lists, by age, so that a run may
  /// go on by the plan `next`.
  [[nodiscard]] static std::vector<float> outstanding(const std::vector<double>& saved,
                                                      DeferralPlan plan, std::uint64_t step,
                                                      DeferralPlan next, float momentum) {
    std::vector<float> gains(count(plan.terms));
    for (std::size_t age = 0; age < gains.size() && age < step; ++age) {
      if (folds_in_time(next, age)) continue;
      const double* v =
          saved.data() + 4 * static_cast<std::size_t>((step - 1 - age) % gains.size());
      const Term term = restored_term(v, momentum);
      gains[age] = unless_died_out(term.final_share - term.share, term.final_share);
    }
    return gains;
  }

 private:
  struct Term {
    double velocity = 0;    ///< coefficient of the gradient in dW
    double share = 0;       ///< c_j, its coefficient in W
    float momentum = 0;     ///< under which final_share was computed
    float final_share = 0;  ///< the limit of c_j
  };

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  /// Whether all units fold a gradient of that age before it leaves the list.
  static bool folds_in_time(DeferralPlan plan, std::size_t age) {
    return age + count(plan.period) <= count(plan.terms);
  }
  static float unless_died_out(double w, float final_share) {
    constexpr double died_out = 1.0 / (1 << 20);
    return std::abs(w) <= died_out * static_cast<double>(final_share) ? 0.0F
                                                                      : static_cast<float>(w);
  }
  [[nodiscard]] std::size_t phase_of(std::uint64_t step) const {
    return static_cast<std::size_t>(step % static_cast<std::uint64_t>(plan_.period));
  }
  /// Of four saved numbers, with the limit that it has under `momentum`.
  static Term restored_term(const double* saved, float momentum) {
    Term term{saved[0], saved[1], static_cast<float>(saved[2]), static_cast<float>(saved[3])};
    if (term.momentum != momentum) settle(term, momentum);
    return term;
  }
  static void settle(Term& term, float momentum) {
    const double m = momentum;
    term.momentum = momentum;
    term.final_share = static_cast<float>(term.share + term.velocity * m / (1 - m));
  }

  DeferralPlan plan_;
  std::vector<Term> term_;     ///< by slot
  std::vector<float> folded_;  ///< [phase][slot]: what of the gradient is in Z
  std::vector<float> fold_;    ///< [slot]
  bool any_fold_ = false;
};

}  // namespace pvm::inline v0
