// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Compares deferred updates of a single weight with plain momentum learning, in double.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/run/coefficients.hpp>
#include <pvm/model/schedule.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

#include "catch.hpp"

namespace {

/// The rates of a layer that has a learning rate before it is switched on (so no momentum until
/// step 50), and whose rate changes at step 200.
pvm::Rates rates_at(std::uint64_t step, double momentum) {
  return {step < 200 ? 0.01F : 0.003F, step < 50 ? 0.0F : static_cast<float>(momentum)};
}

/// A weight under deferred updates, once for a unit of each phase, after the gradients so far.
class Weights {
 public:
  /// `told`: whether each step's momentum is known before its folds. `saved`: the plan of the
  /// coefficients that another plan takes over, those of a matrix that lists as many gradients or
  /// more.
  explicit Weights(pvm::DeferralPlan plan, bool told = false,
                   std::optional<pvm::DeferralPlan> saved = {})
      : plan_(plan),
        told_(told),
        rates_(plan),
        saved_(saved.value_or(plan)),
        z_(static_cast<std::size_t>(plan.period)) {}

  [[nodiscard]] double now(std::size_t phase) const {
    double w = z_[phase];
    each_listed([&](std::size_t slot, double g) {
      w += static_cast<double>(rates_.weight(phase, slot)) * g;
    });
    return w;
  }
  void step(double gradient, pvm::Rates rates) {
    const std::uint64_t t = gradients_.size();
    for (pvm::DeferredRates* each : {&rates_, &saved_}) {
      if (told_) {
        each->begin_step(t, rates.momentum);
      } else {
        each->begin_step(t);
      }
    }
    double& z = z_[static_cast<std::size_t>(t) % z_.size()];
    each_listed(
        [&](std::size_t slot, double g) { z += static_cast<double>(rates_.fold(slot)) * g; });
    gradients_.push_back(gradient);
    for (pvm::DeferredRates* each : {&rates_, &saved_}) each->end_step(t, rates);
  }
  /// Continues with another plan, from the current weight and the listed gradients.
  void take_over(pvm::DeferralPlan plan, float momentum) {
    const double w = now(0);
    const std::vector<double> saved = saved_.save();
    const std::uint64_t t = gradients_.size();
    const auto gains =
        pvm::DeferredRates::outstanding(saved, saved_.plan(), t, plan, momentum, plan_.terms);
    double settled = w;
    for (std::size_t age = 0; age < gains.size(); ++age) {
      settled += static_cast<double>(gains[age]) * gradients_[gradients_.size() - 1 - age];
    }
    pvm::DeferredRates rates(plan);
    REQUIRE(rates.rebase(saved, saved_.plan(), t, momentum));
    rates_ = saved_ = rates;
    plan_ = plan;
    z_.assign(static_cast<std::size_t>(plan.period), settled);
  }
  [[nodiscard]] std::size_t phases() const { return z_.size(); }

 private:
  template <class Work>
  void each_listed(Work work) const {
    const auto terms = static_cast<std::size_t>(plan_.terms);
    for (std::size_t age = 0; age < std::min(terms, gradients_.size()); ++age) {
      const std::size_t j = gradients_.size() - 1 - age;
      work(j % terms, gradients_[j]);
    }
  }

  pvm::DeferralPlan plan_;
  bool told_;
  pvm::DeferredRates rates_, saved_;
  std::vector<double> z_, gradients_;
};

/// The largest difference, in 400 steps, between the deferred weights and W(t+1) = W(t) + dW(t),
/// dW(t) = m dW(t-1) + lr g, as a fraction of the largest update. If `change` is not 0, the plan is
/// `other` from that step on, and the momentum is `then` unless that is negative. `told` is that of
/// Weights.
double distance(double momentum, pvm::DeferralPlan plan, std::uint64_t change = 0,
                pvm::DeferralPlan other = {}, double then = -1, bool told = false) {
  std::mt19937 random(1);
  Weights weights(plan, told);
  double w = 0, dw = 0, worst = 0, largest = 0;
  for (std::uint64_t t = 0; t < 400; ++t) {
    if (change != 0 && t == change) {
      if (then >= 0) momentum = then;
      weights.take_over(other, rates_at(t, momentum).momentum);
    }
    for (std::size_t phase = 0; phase < weights.phases(); ++phase) {
      worst = std::max(worst, std::abs(weights.now(phase) - w));
    }
    const double gradient = static_cast<double>(random() >> 8) * 0x1p-24 - 0.5;
    const pvm::Rates rates = rates_at(t, momentum);
    const double step = static_cast<double>(rates.learning_rate) * gradient;
    dw = static_cast<double>(rates.momentum) * dw + step;
    w += dw;
    largest = std::max(largest, std::abs(step));
    weights.step(gradient, rates);
  }
  return worst / largest;
}

/// Each of about 13 gradients may be unlisted with 2^-20 of its share missing, and shares are fp32.
constexpr double bound = 16 * 0x1p-20;

}  // namespace

TEST_CASE("deferred updates are plain momentum learning", "[deferred]") {
  for (const double momentum : {0.0, 0.1, 0.2, 0.5, 0.75}) {
    for (const int period : {1, 2, 8, 12, 16}) {
      INFO("momentum " << momentum << ", folds every " << period);
      const auto plan = pvm::DeferralPlan::for_momentum(momentum, period);
      REQUIRE(plan.terms > period);
      CHECK(distance(momentum, plan) < bound);
    }
  }
}

TEST_CASE("a list as long as the period needs to know the momentum before folds", "[deferred]") {
  const auto told = [](double momentum, pvm::DeferralPlan plan) {
    return distance(momentum, plan, 0, {}, -1, true);
  };
  CHECK(told(0.1, {13, 13}) < bound);    // the plan of CudaChipEngine
  CHECK(told(0.5, {13, 13}) < 0x1p-11);  // 2^-13 of each of several updates is missing
  for (const double momentum : {0.0, 0.1, 0.2}) {
    for (const int period : {9, 12, 16}) CHECK(told(momentum, {period, period}) < bound);
  }
  CHECK(distance(0.1, {13, 13}) > 0x1p-10);  // a momentum that is switched on late is not known
  for (const std::uint64_t step : {1, 2, 50, 51, 120, 121, 125, 200}) {
    INFO("from another plan at step " << step);
    CHECK(distance(0.1, {16, 17}, step, {13, 13}, -1, true) < bound);
    CHECK(distance(0.1, {13, 13}, step, {16, 17}, -1, true) < bound);
  }
}

TEST_CASE("steps that share a table have the coefficients of their own", "[deferred]") {
  pvm::Spec spec;
  spec.layer_shapes.assign(2, 1);
  spec.momentum = 0.2;
  spec.initial_learning_rate = 0.01;
  spec.final_learning_rate = 0.003;
  spec.delay_final_learning_rate = 20;   // layer 1 has a rate from here on,
  spec.delay_each_layer_learning = 200;  // and a momentum from here on
  constexpr std::size_t layers = 2, steps = 256;
  for (const pvm::DeferralPlan plan : {pvm::DeferralPlan{13, 13}, {15, 16}}) {
    pvm::detail::CoefficientTables whole(layers, plan), single(layers, plan);
    pvm::RateSchedule schedule(spec), same(spec);
    std::vector<std::uint32_t> index((steps + 1) * layers), numbers(2 * layers);
    std::vector<float> tables(index.size() * whole.stride());
    const std::size_t used = whole.write(0, steps, true, schedule, index.data(), tables.data());
    CHECK(used < index.size() / 2);
    for (std::size_t t = 0; t < steps; ++t) {
      std::vector<float> own(numbers.size() * single.stride());
      single.write(t, 1, true, same, numbers.data(), own.data());
      for (std::size_t l = 0; l < layers; ++l) {
        INFO("folds every " << plan.period << " steps, step " << t << ", layer " << l);
        const auto stride = static_cast<std::ptrdiff_t>(whole.stride());
        const auto shared = tables.cbegin() + index[t * layers + l] * stride;
        CHECK(std::equal(shared, shared + stride, own.cbegin() + numbers[l] * stride));
      }
    }
  }
}

TEST_CASE("the steps of a frozen block share a table of zeros for each layer", "[deferred]") {
  pvm::Spec spec;
  spec.layer_shapes.assign(2, 1);
  spec.momentum = 0.2;
  spec.initial_learning_rate = 0.01;
  constexpr std::size_t layers = 2, steps = 100;
  pvm::detail::CoefficientTables coefficients(layers, pvm::DeferralPlan{13, 13});
  pvm::RateSchedule schedule(spec);
  std::vector<std::uint32_t> index((steps + 1) * layers);
  std::vector<float> tables(index.size() * coefficients.stride(), 1.0F);
  coefficients.write(0, steps, true, schedule, index.data(), tables.data());
  coefficients.clear();
  REQUIRE(coefficients.write(steps, steps, false, schedule, index.data(), tables.data()) == layers);
  for (std::size_t i = 0; i < index.size(); ++i) CHECK(index[i] == i % layers);
  constexpr std::ptrdiff_t used = 13 * (2 * 13 + 2) + 1;  // the rest of a table is padding
  const auto is_zero = [&](std::uint32_t table) {
    const auto from = tables.cbegin() + table * static_cast<std::ptrdiff_t>(coefficients.stride());
    return std::all_of(from, from + used, [](float v) { return v == 0; });
  };
  CHECK(is_zero(0));
  CHECK(is_zero(1));
  // A block that learns again does not use them.
  CHECK(coefficients.write(2 * steps, steps, true, schedule, index.data(), tables.data()) > layers);
  CHECK_FALSE(is_zero(index[layers]));
}

TEST_CASE("tables of two plans are those of each plan, one behind the other", "[deferred]") {
  pvm::Spec spec;
  spec.layer_shapes.assign(2, 1);
  spec.momentum = 0.2;
  spec.delay_each_layer_learning = 50;
  constexpr std::size_t layers = 2, steps = 128;
  const pvm::DeferralPlans plans{{15, 15}, {13, 13}};
  pvm::detail::CoefficientTables both(layers, plans), first(layers, plans.w0),
      second(layers, plans.w1);
  CHECK(first.second_part() == 0);
  CHECK(both.second_part() == first.stride());
  REQUIRE(both.stride() == first.stride() + second.stride());
  struct Block {
    std::vector<std::uint32_t> index;
    std::vector<float> tables;
    /// The table of layer `l` in step `t`.
    std::span<const float> table(std::size_t t, std::size_t l, std::size_t stride) const {
      return std::span(tables).subspan(index[t * layers + l] * stride, stride);
    }
  };
  const auto write = [&](pvm::detail::CoefficientTables& tables) {
    pvm::RateSchedule schedule(spec);
    Block block{std::vector<std::uint32_t>((steps + 1) * layers), {}};
    block.tables.resize(block.index.size() * tables.stride());
    tables.write(0, steps, true, schedule, block.index.data(), block.tables.data());
    return block;
  };
  const Block of_both = write(both), of_first = write(first), of_second = write(second);
  for (std::size_t t = 0; t <= steps; ++t) {
    for (std::size_t l = 0; l < layers; ++l) {
      INFO("step " << t << ", layer " << l);
      const auto table = of_both.table(t, l, both.stride());
      CHECK(std::ranges::equal(table.first(first.stride()), of_first.table(t, l, first.stride())));
      CHECK(std::ranges::equal(table.subspan(both.second_part()),
                               of_second.table(t, l, second.stride())));
    }
  }
}

TEST_CASE("another plan takes over what is listed", "[deferred]") {
  for (const double momentum : {0.0, 0.1, 0.5}) {
    const auto longer = pvm::DeferralPlan::for_momentum(momentum, 16);
    const auto shorter = pvm::DeferralPlan::for_momentum(momentum, 8);
    for (const std::uint64_t step : {1, 2, 50, 51, 120, 121, 125, 200}) {
      INFO("momentum " << momentum << ", at step " << step);
      CHECK(distance(momentum, longer, step, shorter) < bound);
      CHECK(distance(momentum, shorter, step, longer) < bound);
      if (momentum < 0.3) CHECK(distance(momentum, longer, step, {12, 13}) < bound);
    }
  }
}

TEST_CASE("a longer list is taken over for the matrix that has the shorter one", "[deferred]") {
  // After 4 steps a gradient lacks 0.2^4 of its share, which shows, but only until it has grown.
  constexpr double momentum = 0.2;
  for (const pvm::DeferralPlan next : {pvm::DeferralPlan{8, 17}, {12, 12}, {4, 4}, {15, 16}}) {
    for (const std::uint64_t step : {60, 61, 67, 120}) {
      INFO("then folds every " << next.period << " steps, at step " << step);
      Weights weights({4, 4}, true, pvm::DeferralPlan{12, 12});
      std::mt19937 random(1);
      double w = 0, dw = 0, worst = 0;
      for (std::uint64_t t = 0; t < step + 100; ++t) {
        if (t == step) weights.take_over(next, rates_at(t, momentum).momentum);
        // No gradients at the end: what was left out has grown by then.
        const double gradient =
            t < step + 50 ? static_cast<double>(random() >> 8) * 0x1p-24 - 0.5 : 0;
        const pvm::Rates rates = rates_at(t, momentum);
        dw = static_cast<double>(rates.momentum) * dw +
             static_cast<double>(rates.learning_rate) * gradient;
        w += dw;
        weights.step(gradient, rates);
      }
      for (std::size_t phase = 0; phase < weights.phases(); ++phase) {
        worst = std::max(worst, std::abs(weights.now(phase) - w));
      }
      CHECK(worst < 0.01 * bound);
    }
  }
}

TEST_CASE("what is listed goes on with another momentum", "[deferred]") {
  for (const auto& [before, after] : {std::pair{0.75, 0.0}, {0.5, 0.1}, {0.1, 0.5}, {0.1, 0.12}}) {
    const auto plan = pvm::DeferralPlan::for_momentum(before, 8);
    const auto other = pvm::DeferralPlan::for_momentum(after, 8);
    for (const std::uint64_t step : {1, 30, 55, 120, 121, 126}) {
      INFO("momentum " << before << " and then " << after << ", at step " << step);
      // Gradients that do not fit into the shorter list of a lower momentum are added at once, a
      // little early.
      const bool shorter = after > 0 && other.terms < plan.terms;
      CHECK(distance(before, plan, step, other, after) < (shorter ? 0x1p-11 : bound));
    }
  }
}
