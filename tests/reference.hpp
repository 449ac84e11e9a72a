// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The reference implementation to which every engine is compared: the model in double precision,
/// written as plainly as docs/model.md. No deferred updates, no optimisation, one loop per formula.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>

namespace pvm_test {

using Vector = std::vector<double>;

class Reference {
 public:
  /// `weights` in reference order. `slip` reproduces the original's opt_abs_diff, which takes the
  /// sign only of the first floats of the error memory, as many as there are units.
  Reference(const pvm::Spec& spec, std::span<const float> weights, int batch = 1,
            pvm::Reduce reduce = pvm::Reduce::mean, bool slip = false)
      : spec_(spec),
        net_(pvm::make_connectome(spec)),
        schedule_(spec),
        batch_(static_cast<std::size_t>(batch)),
        share_(reduce == pvm::Reduce::mean ? 1.0 / batch : 1.0),
        slip_(slip),
        w_(weights.begin(), weights.end()),
        dw_(weights.size()) {
    const Past ones = [&] {
      Past past;
      for (const auto& unit : net_.units) {
        past.x.emplace_back(unit.inputs, 1.0);
        past.r.emplace_back(unit.representation, 1.0);
        past.y.emplace_back(unit.outputs, 1.0);
      }
      return past;
    }();
    for (std::size_t b = 0; b < batch_; ++b) past_.push_back({ones, ones, ones});
  }

  /// Continues with the rates of `spec`, which must be of the same network.
  void go_on_with(const pvm::Spec& spec) {
    auto rates = schedule_.layers();
    schedule_ = pvm::RateSchedule(spec);
    schedule_.restore(std::move(rates), t_);
  }

  /// Runs one step. `frames`: [batch][side][side][channels], squeezed to [0.1, 0.9].
  void step(const std::vector<Vector>& frames) {
    schedule_.begin_step(t_);
    const std::size_t now = t_ % 3;
    for (std::size_t b = 0; b < batch_; ++b) {
      for (std::size_t u = 0; u < net_.units.size(); ++u) forward(b, u, now, frames[b]);
    }
    for (std::size_t u = 0; u < net_.units.size(); ++u) backward(u, now);
    for (std::size_t i = 0; i < w_.size(); ++i) w_[i] += dw_[i];
    ++t_;
  }

  [[nodiscard]] const Vector& weights() const { return w_; }
  [[nodiscard]] const pvm::Connectome& net() const { return net_; }
  /// The hidden values of unit `u` in the last step, for sequence `b`; `outputs` likewise.
  [[nodiscard]] std::span<const double> hidden(std::size_t b, std::size_t u) const {
    return std::span(past_[b][(t_ + 2) % 3].r[u]).first(static_cast<std::size_t>(net_.hidden));
  }
  [[nodiscard]] const Vector& outputs(std::size_t b, std::size_t u) const {
    return past_[b][(t_ + 2) % 3].y[u];
  }

 private:
  struct Past {
    std::vector<Vector> x, r, y;
  };

  [[nodiscard]] bool polynomial() const {
    return spec_.activation == pvm::ActivationKind::polynomial;
  }
  [[nodiscard]] double f(double a) const {
    return polynomial() ? a / (2 * (std::abs(a) + 1)) + 0.5 : 1 / (1 + std::exp(-a));
  }
  [[nodiscard]] double g(double v) const {
    if (!polynomial()) return v * (1 - v);
    const double s = std::abs(2 * v - 1);
    if (spec_.true_derivative && t_ >= 2) return (1 - s) * (1 - s) / 2;
    return (1 + s) * (1 + s) / (2 * (1 + 2 * s) * (1 + 2 * s));
  }
  static double c(double v) { return 0.8 * v + 0.1; }

  void forward(std::size_t b, std::size_t u, std::size_t now, const Vector& frame) {
    const auto& unit = net_.units[u];
    const Past& before = past_[b][(now + 2) % 3];
    Vector x, r;
    const auto append_hidden = [&](Vector& out, std::uint32_t s, bool squeeze) {
      for (int i = 0; i < net_.hidden; ++i) {
        const double h = before.r[s][static_cast<std::size_t>(i)];
        out.push_back(squeeze ? c(h) : h);
      }
    };
    if (unit.layer == 0) {
      const int line = spec_.input_block_size * spec_.input_channels;
      for (int i = 0; i < spec_.input_block_size; ++i) {
        const int row = unit.row * spec_.input_block_size + i;
        const int start = row * spec_.frame_side() * spec_.input_channels + unit.column * line;
        for (int k = 0; k < line; ++k) x.push_back(frame[static_cast<std::size_t>(start + k)]);
      }
    }
    for (const auto s : net_.primary[u]) append_hidden(x, s, true);
    for (int i = 0; i < unit.base; ++i) x.push_back(before.x[u][static_cast<std::size_t>(i)]);
    for (const auto s : net_.context[u]) append_hidden(x, s, true);
    x.push_back(1);
    for (int i = 0; i < net_.hidden; ++i) {
      double sum = 0;
      const double* row = w_.data() + unit.w0 + static_cast<std::size_t>(i) * x.size();
      for (std::size_t k = 0; k < x.size(); ++k) sum += row[k] * x[k];
      r.push_back(f(sum));
    }
    r.push_back(1);
    if (spec_.feed_context_in_complex_layer) {
      for (const auto s : net_.context[u]) append_hidden(r, s, false);
    }
    Vector y;
    for (int o = 0; o < unit.outputs; ++o) {
      double sum = 0;
      const double* row = w_.data() + unit.w1 + static_cast<std::size_t>(o) * r.size();
      for (std::size_t k = 0; k < r.size(); ++k) sum += row[k] * r[k];
      y.push_back(f(sum));
    }
    Past& here = past_[b][now];
    here.x[u] = std::move(x);
    here.r[u] = std::move(r);
    here.y[u] = std::move(y);
  }

  void backward(std::size_t u, std::size_t now) {
    const auto& unit = net_.units[u];
    const pvm::Rates rates = schedule_.layers()[static_cast<std::size_t>(unit.layer)];
    const auto inputs = static_cast<std::size_t>(unit.inputs);
    const auto outputs = static_cast<std::size_t>(unit.outputs);
    const auto representation = static_cast<std::size_t>(unit.representation);
    const auto hidden = static_cast<std::size_t>(net_.hidden);
    const double m = static_cast<double>(rates.momentum);
    for (std::size_t i = 0; i < hidden * inputs; ++i) dw_[unit.w0 + i] *= m;
    for (std::size_t i = 0; i < outputs * representation; ++i) dw_[unit.w1 + i] *= m;
    const double lr = static_cast<double>(rates.learning_rate) * share_;
    // The unit's first index in the original's error memory, where a unit has as many floats as
    // inputs.
    std::size_t error_index = 0;
    for (std::size_t k = 0; k < u; ++k)
      error_index += static_cast<std::size_t>(net_.units[k].inputs);
    for (std::size_t b = 0; b < batch_; ++b) {
      const Past& then = past_[b][(now + 1) % 3];
      const Vector& target = past_[b][now].x[u];
      Vector d1(outputs), d0(hidden);
      for (std::size_t o = 0; o < outputs; ++o) {
        double e = target[o] - then.y[u][o];
        if (spec_.opt_abs_diff && (!slip_ || error_index + o < net_.units.size())) {
          e = std::copysign(1.0, e);
        }
        d1[o] = g(then.y[u][o]) * e;
        for (std::size_t i = 0; i < hidden; ++i) {
          d0[i] += w_[unit.w1 + o * representation + i] * d1[o];
        }
      }
      for (std::size_t i = 0; i < hidden; ++i) {
        const double delta = lr * g(then.r[u][i]) * d0[i];
        for (std::size_t k = 0; k < inputs; ++k)
          dw_[unit.w0 + i * inputs + k] += delta * then.x[u][k];
      }
      for (std::size_t o = 0; o < outputs; ++o) {
        for (std::size_t k = 0; k < representation; ++k) {
          dw_[unit.w1 + o * representation + k] += lr * d1[o] * then.r[u][k];
        }
      }
    }
  }

  pvm::Spec spec_;
  pvm::Connectome net_;
  pvm::RateSchedule schedule_;
  std::size_t batch_;
  double share_;
  bool slip_;
  Vector w_, dw_;
  std::vector<std::vector<Past>> past_;  // [batch][3], a ring buffer: step t is at t % 3
  std::uint64_t t_ = 0;
};

}  // namespace pvm_test
