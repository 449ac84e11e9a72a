// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Ends a run after a given wall time.

#include <algorithm>
#include <cstdint>

#include <pvm/train/callback.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// A callback that stops `fit` after `seconds` of wall time, as Ctrl-C does, so that checkpoints
/// are saved. The number of steps done by then depends on the machine; what the steps compute does
/// not. It looks at the clock about once a second; the first time after one step, since a step may
/// take seconds.
class TimeLimit {
 public:
  explicit TimeLimit(double seconds) : seconds_(seconds) {}

  void begin(const Moment&) noexcept { look_at_ = 0; }
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const noexcept {
    return std::max(look_at_, step + 1);
  }
  void at(const Moment& moment) {
    if (moment.seconds >= seconds_) moment.trainer.request_stop();
    const auto steps = static_cast<double>(moment.step - moment.begin);
    const double wait = std::clamp(seconds_ - moment.seconds, 0.0, 1.0);
    // The number of steps that take `wait` seconds at the average rate so far, but at most twice
    // the steps done, since an average over few steps is not reliable.
    const double more = std::min(wait * steps / std::max(moment.seconds, 1e-9), 2 * steps);
    look_at_ = moment.step + std::max<std::uint64_t>(1, static_cast<std::uint64_t>(more));
  }

 private:
  double seconds_;
  std::uint64_t look_at_ = 0;  // the step at which to look at the clock next
};

static_assert(Callback<TimeLimit>);

}  // namespace pvm::inline v0
