// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How good the prediction is at the end of a run.

#include <algorithm>
#include <cstdint>

#include <pvm/train/callback.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// Keeps the score of a run's last `window` steps: of a whole pass of a source, for example. If the
/// run is stopped early, of the last whole window before, or of everything if there was none.
class LastPass {
 public:
  explicit LastPass(std::uint64_t window) : window_(std::max<std::uint64_t>(1, window)) {}

  void begin(const Moment& moment) {
    target_ = moment.target;
    previous_ = moment.begin;
    score_ = {};
    steps_ = 0;
  }
  /// Windows are counted back from the target.
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    if (step >= target_) return never;
    return target_ - (target_ - step - 1) / window_ * window_;
  }
  void at(const Moment& moment) { keep(moment); }
  void end(const Moment& moment) {
    if (steps_ == 0 && moment.step != previous_) keep(moment);
  }

  [[nodiscard]] const Score& score() const noexcept { return score_; }
  /// The steps it is of; 0 if there were none.
  [[nodiscard]] std::uint64_t steps() const noexcept { return steps_; }

 private:
  void keep(const Moment& moment) {
    score_ = moment.score;
    steps_ = moment.step - previous_;
    previous_ = moment.step;
  }

  std::uint64_t window_;
  std::uint64_t target_ = 0;
  std::uint64_t previous_ = 0;  // step of the call before
  Score score_;
  std::uint64_t steps_ = 0;
};

static_assert(Callback<LastPass>);

}  // namespace pvm::inline v0
