// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Detects runs that do not learn any more because their learning rates are too high.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include <pvm/core/log.hpp>
#include <pvm/train/callback.hpp>
#include <pvm/train/trainer_base.hpp>

namespace pvm::inline v0 {

/// The mean squared error, on pixels in [0, 1], of predicting 0.5 everywhere for `frame`, which
/// must not be empty.
inline double grey_mse(std::span<const std::uint8_t> frame) {
  double sum = 0;
  for (const std::uint8_t pixel : frame) sum += std::pow(pixel / 255.0 - 0.5, 2);
  return sum / static_cast<double>(frame.size());
}

/// The number of steps after which a run can be judged by its prediction. The first two steps learn
/// from a past of all ones (docs/model.md), and at a high rate it takes some steps to unlearn that.
inline constexpr std::uint64_t steps_to_settle = 50;

/// Returns why a run has diverged, as part of a sentence; empty if it has not. `score` is the score
/// of the latest steps, `frame` one of their frames (8-bit), and `step` the number of steps the run
/// has done. An untrained network predicts grey. If updates that are too large have driven the
/// units to the ends of their range, the network predicts worse than that and hardly learns any
/// more, but its weights and errors stay finite, because units bound their outputs.
inline std::string divergence(const Score& score, std::span<const std::uint8_t> frame,
                              std::uint64_t step = steps_to_settle) {
  if (!std::isfinite(score.loss) || !std::isfinite(score.prediction)) {
    return "the errors are no longer numbers";
  }
  if (score.pixels == 0 || frame.empty() || step < steps_to_settle) return {};
  // Frames differ from one another, and an untrained network does not predict exactly grey.
  constexpr double margin = 1.25;
  const double grey = grey_mse(frame);
  if (prediction_mse(score) <= margin * grey) return {};
  char text[120];
  std::snprintf(text, sizeof text,
                "the prediction is worse than a grey picture (%.1f dB against %.1f dB)",
                psnr(prediction_mse(score)), psnr(grey));
  return text;
}

/// A callback that logs one warning if a run that learns has diverged. It checks at every multiple
/// of `every` steps and at the end.
class DivergenceWarning {
 public:
  explicit DivergenceWarning(std::uint64_t every = 1000)
      : every_(std::max<std::uint64_t>(1, every)) {}

  void begin(const Moment&) { warned_ = false; }
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    return warned_ ? never : next_multiple(step, every_);
  }
  void at(const Moment& moment) { check(moment); }
  void end(const Moment& moment) {
    if (!warned_) check(moment);
  }

 private:
  void check(const Moment& moment) {
    if (!moment.trainer.learns()) return;
    const std::string why = divergence(moment.score, moment.trainer.last_frame(), moment.step);
    if (why.empty()) return;
    warned_ = true;
    log(Severity::warning, "at step " + std::to_string(moment.step) + " " + why +
                               ": the learning rates are too high for these frames; start again "
                               "with lower ones");
  }

  std::uint64_t every_;
  bool warned_ = false;
};

static_assert(Callback<DivergenceWarning>);

}  // namespace pvm::inline v0
