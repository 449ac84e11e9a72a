// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Learning rules: how one weight changes, given its gradient.

#include <cmath>
#include <concepts>

#include <pvm/core/config.hpp>

namespace pvm::inline v0 {

/// The arguments of a rule besides the weight and its gradient: the layer's present rate and
/// momentum (set by the schedule of the spec), and the number of updates that the layer has made
/// before.
struct RuleStep {
  float rate = 0;
  float momentum = 0;
  unsigned long long step = 0;
  float own[4] = {};  ///< what the rule's `begin_step` has computed for this step
};

namespace detail {

/// Whether `begin_step` is as LearningRuleType says, or absent: another one would never be called.
template <class R>
concept BeginStepFits = !requires {
  &R::begin_step;
}
|| requires { static_cast<void (*)(RuleStep&)>(&R::begin_step); };

}  // namespace detail

/// A learning rule is a type with `static constexpr int state`, the number of floats that it keeps
/// for each weight (0 to 4, all 0 before the layer's first update), and
///     static float apply(float w, float* state, float gradient, RuleStep step)
/// which returns the new weight and updates the state. `gradient` has the sign of the update: plain
/// descent moves w by +rate * gradient. `apply` is called once for every weight of every layer that
/// is switched on, in every learning step, in no particular order and on many threads; also for
/// padding, and on copies when weights are read. It may use nothing but its arguments, and must not
/// throw. An optional `static constexpr const char* name` is stored in checkpoints. For GPUs, mark
/// `apply` PVM_HOST_DEVICE and declare `static constexpr bool on_gpu = true` (RunsOnGpu).
/// What is the same for all weights of a step (powers of its number, say), a rule computes in an
/// optional
///     static void begin_step(RuleStep& step)
/// and keeps in `step.own`, which is 0 before. The engines call it on the host, those on GPUs, too:
/// once for each layer and step, and again when weights are read. Like `apply` it may use nothing
/// but its argument, and must not throw.
template <class R>
concept LearningRuleType = requires(float w, float* state, RuleStep step) {
  { R::state } -> std::convertible_to<int>;
  { R::apply(w, state, w, step) } -> std::same_as<float>;
}
&&R::state >= 0 && R::state <= 4 && detail::BeginStepFits<R>;

/// `step` as `apply` gets it: after the rule's `begin_step`, if it has one.
template <class Rule>
inline RuleStep rule_step(RuleStep step) {
  if constexpr (requires { Rule::begin_step(step); }) Rule::begin_step(step);
  return step;
}

/// The model's own rule: dW = m dW + lr g, W += dW. The engines defer it (unit/deferred.hpp).
struct Momentum {
  static constexpr const char* name = "momentum";
  static constexpr int state = 1;
  PVM_HOST_DEVICE static float apply(float w, float* state, float gradient, RuleStep s) {
    state[0] = s.momentum * state[0] + s.rate * gradient;
    return w + state[0];
  }
};

/// Plain descent, W += lr g. It is Momentum with m = 0, and deferred like it.
struct Sgd {
  static constexpr const char* name = "sgd";
  static constexpr int state = 0;
  PVM_HOST_DEVICE static float apply(float w, float*, float gradient, RuleStep s) {
    return w + s.rate * gradient;
  }
};

/// base^n for |base| < 1, to correct the bias of running means: 1 - base^n is the share of the
/// gradients in a mean that began at 0, n updates ago. n is clamped to 65,535.
PVM_HOST_DEVICE inline float fading_power(float base, unsigned long long n) {
  const auto most = n < 65535 ? static_cast<unsigned>(n) : 65535U;
  float power = 1.0F;
  for (unsigned bit = 0; bit < 16; ++bit) {
    power *= ((most >> bit) & 1U) != 0 ? base : 1.0F;
    base *= base;
  }
  return power;
}

/// Adam (Kingma and Ba, 2014) with its published constants: bias-corrected running means of the
/// gradient and of its square, W += lr mean / (sqrt(mean square) + 1e-8). The spec's momentum has
/// no effect. A weight moves by about lr per step whatever the size of its gradient, so suitable
/// rates are small, about 1e-5.
struct Adam {
  static constexpr const char* name = "adam";
  static constexpr int state = 2;
  static constexpr float beta1 = 0.9F, beta2 = 0.999F, epsilon = 1e-8F;
  static void begin_step(RuleStep& s) {
    s.own[0] = 1.0F - fading_power(beta1, s.step + 1);
    s.own[1] = 1.0F - fading_power(beta2, s.step + 1);
  }
  PVM_HOST_DEVICE static float apply(float w, float* state, float gradient, RuleStep s) {
    state[0] = beta1 * state[0] + (1.0F - beta1) * gradient;
    state[1] = beta2 * state[1] + (1.0F - beta2) * gradient * gradient;
    const float mean = state[0] / s.own[0];
    const float square = state[1] / s.own[1];
    return w + s.rate * mean / (std::sqrt(square) + epsilon);
  }
};

}  // namespace pvm::inline v0
