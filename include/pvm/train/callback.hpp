// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What happens beside the steps: callbacks, given to `fit` behind the source.

#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <optional>

#include <pvm/engine/engine.hpp>

namespace pvm::inline v0 {

class TrainerBase;

/// What a callback is shown.
struct Moment {
  TrainerBase& trainer;      ///< for weights, predictions, checkpoints
  std::uint64_t step = 0;    ///< steps done
  std::uint64_t begin = 0;   ///< steps that were done when `fit` was called
  std::uint64_t target = 0;  ///< steps `fit` is to reach
  double seconds = 0;        ///< of wall time since `fit` was called
  Score score{};             ///< of the steps since this callback was last called
  bool cut_short = false;    ///< at the end: whether it comes before the target
};

/// A callback is called once it has asked for a step: `next(step)` names the first step after
/// `step` it wants to be called at (or `never`; any other is refused), `at` is the call. Blocks of
/// steps are cut there, which changes no result. Where it has them, `begin` is called before the
/// first step, and `end` after the last one, with the score of the steps since the last call.
/// Called in the order given.
template <class C>
concept Callback = requires(C callback, std::uint64_t step, const Moment& moment) {
  { callback.next(step) } -> std::same_as<std::uint64_t>;
  {callback.at(moment)};
};

inline constexpr std::uint64_t never = std::numeric_limits<std::uint64_t>::max();

/// The first multiple of `every` after `step`; `never` for 0.
constexpr std::uint64_t next_multiple(std::uint64_t step, std::uint64_t every) noexcept {
  return every == 0 || step > never - every ? never : (step / every + 1) * every;
}

/// The step counter at which `fit` returns (it counts on from a checkpoint); without one it is the
/// spec's `steps`. Given like a callback, but never called.
struct Steps {
  std::uint64_t count = 0;

  [[nodiscard]] static std::uint64_t next(std::uint64_t) noexcept { return never; }
  static void at(const Moment&) noexcept {}
};

/// A callback that may be absent, for programs that choose at run time.
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
  void end(const Moment& moment) {
    if constexpr (requires { callback->end(moment); }) {
      if (callback) callback->end(moment);
    }
  }
};

/// Peak signal-to-noise ratio in dB of a mean squared error on [0, 1]; infinite for 0, NaN for NaN.
inline double psnr(double mse) { return -10.0 * std::log10(mse); }

/// Means of a Score; NaN where nothing was measured.
inline double prediction_mse(const Score& score) {
  return score.prediction / static_cast<double>(score.pixels);
}
inline double persistence_mse(const Score& score) {
  return score.persistence / static_cast<double>(score.pixels);
}
inline double mean_loss(const Score& score) {
  return score.loss / static_cast<double>(score.outputs);
}

}  // namespace pvm::inline v0
