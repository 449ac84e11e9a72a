// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Measures how good the prediction is at the end of a run.

#include <algorithm>
#include <cstdint>

#include <pvm/train/callback.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// A callback that keeps the score of a run's last `window` steps (at least 1), for example of one
/// whole pass of a source. If the run is stopped early, it has the score of the latest complete
/// window, or of all steps if there was none.
class LastPass {
 public:
  explicit LastPass(std::uint64_t window) : window_(std::max<std::uint64_t>(1, window)) {}

  void begin(const Moment& moment) {
    target_ = moment.target;
    previous_ = moment.begin;
    first_ = kept_ = {};
  }
  /// The next end of a window; windows are counted back from the target.
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    if (step >= target_) return never;
    return target_ - (target_ - step - 1) / window_ * window_;
  }
  void at(const Moment& moment) {
    if (moment.step - previous_ < window_) {  // the first window, which may be incomplete
      first_ = {moment.score, moment.step - previous_};
    } else {
      kept_ = {moment.score, window_};
    }
    previous_ = moment.step;
  }
  void end(const Moment& moment) {
    if (kept_.steps > 0) return;
    kept_ = {first_.score, first_.steps + (moment.step - previous_)};
    kept_.score += moment.score;
    previous_ = moment.step;
  }

  [[nodiscard]] const Score& score() const noexcept { return kept_.score; }
  /// The number of steps that `score` covers; 0 if there were none.
  [[nodiscard]] std::uint64_t steps() const noexcept { return kept_.steps; }

 private:
  struct Scored {
    Score score{};
    std::uint64_t steps = 0;
  };

  std::uint64_t window_;
  std::uint64_t target_ = 0;
  std::uint64_t previous_ = 0;  // the step of the previous call
  Scored first_, kept_;
};

static_assert(Callback<LastPass>);

}  // namespace pvm::inline v0
