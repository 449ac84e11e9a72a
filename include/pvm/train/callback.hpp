// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The concept of a callback, which `fit` calls between steps, and functions that callbacks use.

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>

#include <pvm/engine/engine.hpp>

namespace pvm::inline v0 {

class TrainerBase;

/// The state of a run when a callback is called.
struct Moment {
  TrainerBase& trainer;      ///< for weights, predictions, checkpoints
  std::uint64_t step = 0;    ///< the step counter: steps done, those before `fit` included
  std::uint64_t begin = 0;   ///< the step counter when `fit` was called
  std::uint64_t target = 0;  ///< the step counter at which `fit` returns
  double seconds = 0;        ///< wall time since `fit` was called
  Score score{};             ///< score of the steps since the previous call of this callback
  bool cut_short = false;    ///< in `end`: the run ends before its target
};

/// `next(step)` returns the first step after `step` at which the callback wants to be called, or
/// `never` (anything not after `step` is refused with Fault::usage); `at(moment)` is that call.
/// Blocks of steps are cut there, which changes no result. Two functions are optional:
/// `begin(moment)` is called before the first step, and `end(moment)` after the last one, with the
/// score of the steps since the last call of `at`. A callback that shows the prediction of the last
/// step has `bool before_last(moment)`, which is called when a run is cut short: if it returns
/// true, two more steps are run before `end`, unless their frames do not come. While a run is
/// paused (see Command), `idle(moment)` is called again and again, some twenty times a second, if a
/// callback has it; the moment has no score. Callbacks are called in the order given to `fit`.
template <class C>
concept Callback = requires(C callback, std::uint64_t step, const Moment& moment) {
  { callback.next(step) } -> std::same_as<std::uint64_t>;
  {callback.at(moment)};
};

/// A step that is never reached: a callback returns it if it need not be called again.
inline constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

/// The first multiple of `every` after `step`; `never` if `every` is 0.
constexpr std::uint64_t next_multiple(std::uint64_t step, std::uint64_t every) noexcept {
  return every == 0 || step > never - every ? never : (step / every + 1) * every;
}

/// The target of a `fit`: the value of the step counter at which it returns, counted from the start
/// of the run, not from a checkpoint it continues. Without it the target is the spec's `steps`.
/// Given like a callback, but never called.
struct Steps {
  std::uint64_t count = 0;

  [[nodiscard]] static std::uint64_t next(std::uint64_t) noexcept { return never; }
  static void at(const Moment&) noexcept {}
};

/// A callback that may be absent, for programs that choose at run time. Without a value it is never
/// called.
template <class C>
struct Optionally {
  static_assert(Callback<C>,
                "pvm::Optionally: what may be absent is no callback: it needs std::uint64_t "
                "next(std::uint64_t step) and at(const pvm::Moment&)");

  std::optional<C> callback{};

  void begin(const Moment& moment) {
    if constexpr (requires { callback->begin(moment); }) {
      if (callback) callback->begin(moment);
    }
  }
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    return callback ? callback->next(step) : never;
  }
  void at(const Moment& moment) { callback->at(moment); }
  void idle(const Moment& moment) {
    if constexpr (requires { callback->idle(moment); }) {
      if (callback) callback->idle(moment);
    }
  }
  bool before_last(const Moment& moment) {
    if constexpr (requires { callback->before_last(moment); }) {
      return callback && callback->before_last(moment);
    } else {
      return false;
    }
  }
  void end(const Moment& moment) {
    if constexpr (requires { callback->end(moment); }) {
      if (callback) callback->end(moment);
    }
  }
};

/// The peak signal-to-noise ratio in dB for a mean squared error of values in [0, 1]; infinite for
/// 0, NaN for NaN.
inline double psnr(double mse) { return -10.0 * std::log10(mse); }

/// The mean squared error of the prediction, on pixels in [0, 1]; NaN if nothing was measured.
inline double prediction_mse(const Score& score) {
  return score.prediction / static_cast<double>(score.pixels);
}
/// The mean squared error of repeating the frame of two steps before instead of predicting.
inline double persistence_mse(const Score& score) {
  return score.persistence / static_cast<double>(score.pixels);
}
/// The mean squared error of all outputs of all units, on squeezed values; NaN if nothing was
/// measured.
inline double mean_loss(const Score& score) {
  return score.loss / static_cast<double>(score.outputs);
}

}  // namespace pvm::inline v0
