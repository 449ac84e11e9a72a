// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The rate of a run that goes on: it is the checkpoint's, and another cannot be named.

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/unit/rates.hpp>

namespace pvm::inline v0 {

namespace detail {

/// Whether a run in this state learns at `rate` in all layers that it has switched on.
inline bool learns_at(const EngineState& state, double rate) {
  return std::all_of(state.rates.begin(), state.rates.end(), [&](const Rates& layer) {
    const bool off = layer.learning_rate == 0 && state.step < state.rates.size();
    return off || layer.learning_rate == static_cast<float>(rate);
  });
}

[[noreturn]] inline void refuse_rate(const std::string& what) {
  throw Error(Fault::usage,
              what + " is for new runs, a checkpoint's goes on at its own rates; leave it out");
}

}  // namespace detail

/// Throws Error (Fault::usage) if the run of `checkpoint`, which can be continued, learns at
/// another rate than this. `what` begins the message: who named the rate.
inline void require_rate(const io::Checkpoint& checkpoint, double rate, const std::string& what) {
  if (!detail::learns_at(checkpoint.state, rate)) detail::refuse_rate(what);
}

/// The rate that trials found when the run of `checkpoint` began. Throws Error (Fault::usage) if
/// they did not.
inline double found_rate(const io::Checkpoint& checkpoint, const std::string& what) {
  if (checkpoint.chosen.find("rate ") == std::string::npos) detail::refuse_rate(what);
  const auto& rates = checkpoint.state.rates;
  // The shortest number that is this rate, as it was written when the run began.
  char text[32] = {};
  std::to_chars(text, text + sizeof text - 1, rates.empty() ? 0 : rates.front().learning_rate);
  const double rate = std::strtod(text, nullptr);
  require_rate(checkpoint, rate, what);
  return rate;
}

}  // namespace pvm::inline v0
