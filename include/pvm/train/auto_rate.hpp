// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Finds a learning rate for a run by trials. The result depends on the run alone, not on a clock.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/model/network.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/divergence.hpp>
#include <pvm/train/trainer_base.hpp>
#include <pvm/train/trial.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// A trial of a rate.
struct RateTrial {
  double rate = 0;
  double psnr = 0;          ///< of the prediction in the trial's last quarter, in dB
  double gain = 0;          ///< ... more than in the quarter before
  std::uint64_t steps = 0;  ///< its length
  bool diverged = false;
};

struct RateChoice {
  double rate = 0;
  std::uint64_t steps = 0;        ///< of all trials together
  std::vector<RateTrial> trials;  ///< in their order

  /// One line that says what was chosen, and why.
  [[nodiscard]] std::string why() const {
    const std::uint64_t last = trials.empty() ? 0 : trials.back().steps;
    std::string others;
    for (const RateTrial& trial : trials) {
      const bool counts = trial.steps == last || trial.diverged;
      if (!counts || trial.rate == rate) continue;
      others += (others.empty() ? "" : ", ") + text_of(trial);
    }
    std::string chosen;
    for (const RateTrial& trial : trials) {
      if (trial.rate == rate) chosen = text_of(trial);
    }
    return "rate " + chosen + " after " + std::to_string(last) + " steps" +
           (others.empty() ? "" : "; " + others) + " (" + std::to_string(trials.size()) +
           " trials, " + std::to_string(steps) + " steps)";
  }

 private:
  static std::string text_of(const RateTrial& trial) {
    char text[64];
    if (trial.diverged) {
      std::snprintf(text, sizeof text, "%g diverges", trial.rate);
    } else {  // what the last quarter has gained
      std::snprintf(text, sizeof text, "%g: %.2f dB (%+.2f)", trial.rate, trial.psnr, trial.gain);
    }
    return text;
  }
};

namespace detail {

/// Measures the quarters of a trial, and ends it when it diverges.
class TrialScore {
 public:
  explicit TrialScore(std::uint64_t steps) : part_(std::max<std::uint64_t>(1, steps / 4)) {}

  [[nodiscard]] std::uint64_t next(std::uint64_t step) const { return next_multiple(step, part_); }
  void at(const Moment& moment) {
    before_ = std::exchange(last_, moment.score);
    // The first steps unlearn the past of a new run, at high rates too.
    const bool begins = before_.pixels == 0 && std::isfinite(moment.score.loss);
    if (begins) return;
    if (divergence(moment.score, moment.trainer.last_frame(), moment.step).empty()) return;
    diverged_ = true;
    moment.trainer.request_stop();
  }
  [[nodiscard]] bool diverged() const noexcept { return diverged_; }
  [[nodiscard]] double psnr() const { return pvm::psnr(prediction_mse(last_)); }
  [[nodiscard]] double gain() const { return psnr() - pvm::psnr(prediction_mse(before_)); }

 private:
  std::uint64_t part_;
  Score before_{}, last_{};
  bool diverged_ = false;
};

static_assert(Callback<TrialScore>);

/// The search for a rate among those that are the first guess times a power of 2.
template <class Backend>
class RateSearch {
 public:
  RateSearch(const TrialRun& run, std::uint64_t budget)
      : run_(run), guess_(first_guess(run)), left_(budget), short_(budget / most_short) {}

  RateChoice find() {
    climb();
    const int best = best_of(short_trials_);
    // The best and its neighbours again, for longer, and one more if an outer one is the best.
    const std::uint64_t longer = left_ / 4;
    for (const int k : {best - 1, best, best + 1}) try_longer(k, longer);
    const int outer = best_of(long_trials_);
    if (outer != best) try_longer(2 * outer - best, longer);
    choice_.rate = rate(safest());
    return std::move(choice_);
  }

 private:
  static constexpr std::uint64_t most_short = 20;  // short trials are a twentieth of the budget
  static constexpr int most_trials = 8;            // ... of which there are no more

  /// The rule of docs/quality.md. Rules other than momentum have other scales: there the spec's
  /// rate is the guess.
  static double first_guess(const TrialRun& run) {
    if (run.spec.learning_rule != Momentum::name && run.spec.initial_learning_rate > 0) {
      return run.spec.initial_learning_rate;
    }
    constexpr double of_one = 0.04;
    const int batch = run.options.batch;
    const double all = of_one * std::min(batch, 8);
    return run.options.reduce == Reduce::sum ? all / batch : all;
  }
  /// In three digits, so that a person can write the same rate.
  [[nodiscard]] double rate(int k) const {
    char text[32];
    std::snprintf(text, sizeof text, "%.3g", std::ldexp(guess_, k));
    return std::strtod(text, nullptr);
  }

  RateTrial try_rate(int k, std::uint64_t steps) {
    RateTrial trial{rate(k), 0, 0, steps, false};
    try_run<Backend>(run_, trial.rate, [&](TrainerBase& trainer, auto& streams) {
      TrialScore score(steps);
      const std::uint64_t begin = trainer.step();
      const FitResult result = trainer.fit(streams, Steps{begin + steps}, score);
      trial.diverged = score.diverged();
      trial.psnr = score.psnr();
      trial.gain = score.gain();
      choice_.steps += result.step - begin;
      left_ -= std::min(left_, result.step - begin);
    });
    choice_.trials.push_back(trial);
    return trial;
  }

  void try_longer(int k, std::uint64_t steps) {
    const auto known = short_trials_.find(k);
    const bool diverges = known != short_trials_.end() && known->second.diverged;
    long_trials_[k] = diverges ? known->second : try_rate(k, steps);
  }

  /// Tries rates until both neighbours of the best one are known not to be better.
  void climb() {
    short_trials_[0] = try_rate(0, short_);
    for (int k = 0; static_cast<int>(short_trials_.size()) < most_trials;) {
      k = best_of(short_trials_);
      const bool none = short_trials_.at(k).diverged;
      const int next = none                             ? short_trials_.begin()->first - 3
                       : !short_trials_.contains(k + 1) ? k + 1
                       : !short_trials_.contains(k - 1) ? k - 1
                                                        : k;
      if (next == k) return;
      short_trials_[next] = try_rate(next, short_);
    }
  }

  /// The prediction as if it went on getting better for half of the trial, but not by much: what
  /// has hardly begun to learn gains most.
  static double ahead(const RateTrial& trial) {
    constexpr double most = 0.1;  // dB
    return trial.psnr + 2 * std::clamp(trial.gain, -most, most);
  }

  using Trials = std::map<int, RateTrial>;
  /// The best, of equals the one nearest to the guess, which many runs stand for. A new network
  /// predicts the mean picture for a while whatever its rate, so that small differences say
  /// nothing. The lowest if all diverge.
  static int best_of(const Trials& trials) {
    constexpr double equal = 0.1;  // dB
    int best = trials.begin()->first;
    for (const auto& [k, trial] : trials) {
      if (trial.diverged) continue;
      if (trials.at(best).diverged || ahead(trial) > ahead(trials.at(best))) best = k;
    }
    int nearest = best;
    for (const auto& [k, trial] : trials) {
      const bool good = !trial.diverged && ahead(trial) >= ahead(trials.at(best)) - equal;
      if (good && std::abs(k) < std::abs(nearest)) nearest = k;
    }
    return nearest;
  }
  /// The best of the long trials; never one whose double diverges, if there is a lower one. Throws
  /// Error (usage) if all diverge.
  [[nodiscard]] int safest() const {
    const int k = best_of(long_trials_);
    if (long_trials_.at(k).diverged) {
      throw Error(Fault::usage, "no learning rate was found: the run diverges even at " +
                                    std::to_string(rate(k)) +
                                    "; look at the frames, or name a rate");
    }
    const auto above = long_trials_.find(k + 1), below = long_trials_.find(k - 1);
    const bool close = above != long_trials_.end() && above->second.diverged;
    const bool lower = below != long_trials_.end() && !below->second.diverged;
    return close && lower ? k - 1 : k;
  }

  const TrialRun& run_;
  double guess_;
  std::uint64_t left_, short_;
  Trials short_trials_, long_trials_;
  RateChoice choice_;
};

}  // namespace detail

/// The least steps in which a rate can be found.
inline constexpr std::uint64_t least_rate_budget = 2000;

/// Throws Error (Fault::usage) if a rate cannot be found in that many steps.
inline void require_rate_budget(std::uint64_t budget) {
  if (budget >= least_rate_budget) return;
  throw Error(Fault::usage, "a rate cannot be found in " + std::to_string(budget) +
                                " steps; allow " + std::to_string(least_rate_budget) + " at least");
}

/// Finds a rate at which all layers of `run` learn from the start, by trials of `budget` steps at
/// most: first short ones, from the rate that docs/quality.md recommends up or down by factors of 2
/// until the prediction gets worse, then longer ones of the best three or four. What counts is the
/// prediction and how fast it gets better. Among rates of equal worth (0.1 dB) that nearest to the
/// recommended one is taken, and none that diverges. Throws Error: Fault::usage if the budget is
/// less than `least_rate_budget` or all rates diverge; what a Trainer throws.
template <class Backend = DefaultBackend<RuntimeNetwork>>
RateChoice find_rate(const TrialRun& run, std::uint64_t budget = 10'000) {
  require_rate_budget(budget);
  return detail::RateSearch<Backend>(run, budget).find();
}

}  // namespace pvm::inline v0
