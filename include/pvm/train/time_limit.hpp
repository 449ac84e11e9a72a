// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Ends a run when its time is up.

#include <algorithm>
#include <cstdint>

#include <pvm/train/callback.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// Stops `fit` once `seconds` of wall time have passed, as Ctrl-C would: checkpoints are saved. How
/// many steps that are depends on the machine; what the steps compute does not. It looks at the
/// clock about once a second, at first after a step: one may take seconds.
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
    // as many steps as take so long, but not many more than there were to judge by
    const double more = std::min(wait * steps / std::max(moment.seconds, 1e-9), 2 * steps);
    look_at_ = moment.step + std::max<std::uint64_t>(1, static_cast<std::uint64_t>(more));
  }

 private:
  double seconds_;
  std::uint64_t look_at_ = 0;
};

static_assert(Callback<TimeLimit>);

}  // namespace pvm::inline v0
