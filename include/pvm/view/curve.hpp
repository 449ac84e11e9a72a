// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The learning curve of a run that is being watched, in as many points as a screen can show.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <pvm/core/need_json.hpp>

#include <nlohmann/json.hpp>

#include <pvm/train/callback.hpp>

namespace pvm::inline v0::view {

/// Collects scores, a point a second. When there are too many points each two become one, and the
/// next ones take twice as long.
class Curve {
 public:
  static constexpr std::size_t most = 400;  ///< points

  /// `score`: since the last call. `seconds`: the run's time so far.
  void add(std::uint64_t step, double seconds, const Score& score) {
    score_ += score;
    if (seconds - since_ < apart_) return;
    since_ = seconds;
    if (score_.pixels == 0) return;  // a dream is not scored
    points_.push_back({step, score_});
    score_ = {};
    if (points_.size() < most) return;
    for (std::size_t i = 0; i < most / 2; ++i) {
      Point both = points_[2 * i + 1];
      both.score += points_[2 * i].score;
      points_[i] = both;
    }
    points_.resize(most / 2);
    apart_ *= 2;
  }

  /// Lists: step, psnr of the prediction, psnr of repeating the frame of two steps before.
  [[nodiscard]] nlohmann::ordered_json json() const {
    using Json = nlohmann::ordered_json;
    Json all = {
        {"step", Json::array()}, {"psnr", Json::array()}, {"persistence_psnr", Json::array()}};
    const auto rounded = [](double db) {
      return std::isfinite(db) ? Json(std::round(db * 100) / 100) : Json();
    };
    for (const auto& [step, score] : points_) {
      all["step"].push_back(step);
      all["psnr"].push_back(rounded(psnr(prediction_mse(score))));
      all["persistence_psnr"].push_back(rounded(psnr(persistence_mse(score))));
    }
    return all;
  }

 private:
  struct Point {
    std::uint64_t step;
    Score score;
  };

  std::vector<Point> points_;
  Score score_{};
  double apart_ = 1, since_ = 0;  // seconds
};

}  // namespace pvm::inline v0::view
