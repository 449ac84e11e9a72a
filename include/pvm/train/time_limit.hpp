// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Ends a run when its time is up.

#include <cstdint>

#include <pvm/train/callback.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// Stops `fit` once `seconds` of wall time have passed, as Ctrl-C would: checkpoints are saved. How
/// many steps that are depends on the machine; what the steps compute does not.
class TimeLimit {
 public:
  explicit TimeLimit(double seconds) : seconds_(seconds) {}

  [[nodiscard]] static std::uint64_t next(std::uint64_t step) noexcept {
    constexpr std::uint64_t look_every = 100;
    return next_multiple(step, look_every);
  }
  void at(const Moment& moment) const {
    if (moment.seconds >= seconds_) moment.trainer.request_stop();
  }

 private:
  double seconds_;
};

static_assert(Callback<TimeLimit>);

}  // namespace pvm::inline v0
