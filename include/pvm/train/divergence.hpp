// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Says when a run learns nothing any more because its rates are too high.

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

/// Mean squared error, on [0, 1], of predicting `frame` as grey everywhere.
inline double grey_mse(std::span<const std::uint8_t> frame) {
  double sum = 0;
  for (const std::uint8_t pixel : frame) sum += std::pow(pixel / 255.0 - 0.5, 2);
  return sum / static_cast<double>(frame.size());
}

/// Steps after which a run can be judged by its prediction. The first learn from a past of all ones
/// (docs/model.md), and at a high rate it takes them some steps to unlearn that.
inline constexpr std::uint64_t steps_to_settle = 50;

/// Why steps that gave this score are those of a run gone wrong; empty if they are not. `frame` is
/// one of theirs, `step` how many the run has made. An untrained network predicts grey. One whose
/// units have been driven to the ends of their range by updates that are too large does worse, and
/// hardly learns: its weights and errors stay finite, because units bound them.
inline std::string divergence(const Score& score, std::span<const std::uint8_t> frame,
                              std::uint64_t step = steps_to_settle) {
  if (!std::isfinite(score.loss) || !std::isfinite(score.prediction)) {
    return "the errors are no longer numbers";
  }
  if (score.pixels == 0 || frame.empty() || step < steps_to_settle) return {};
  constexpr double margin = 1.25;  // frames differ, and an untrained network is not quite grey
  const double grey = grey_mse(frame);
  if (prediction_mse(score) <= margin * grey) return {};
  char text[120];
  std::snprintf(text, sizeof text,
                "the prediction is worse than a grey picture (%.1f dB against %.1f dB)",
                psnr(prediction_mse(score)), psnr(grey));
  return text;
}

/// Logs one warning in a run that learns and diverges, looking at every multiple of `every` steps
/// and at the end.
class DivergenceWarning {
 public:
  explicit DivergenceWarning(std::uint64_t every = 1000)
      : every_(std::max<std::uint64_t>(1, every)) {}

  void begin(const Moment&) { warned_ = false; }
  [[nodiscard]] std::uint64_t next(std::uint64_t step) const {
    return warned_ ? never : next_multiple(step, every_);
  }
  void at(const Moment& moment) { look(moment); }
  void end(const Moment& moment) {
    if (!warned_) look(moment);
  }

 private:
  void look(const Moment& moment) {
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
