// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Learning rules over arrays: how the host engine calls the function that unit/learning_rule.hpp
/// defines for one weight.

#include <array>
#include <concepts>
#include <cstddef>
#include <string>
#include <type_traits>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// A rule over n weights. `state`, the field: floats per weight. `state`, the argument: [state
/// arrays][stride]; it points at the state of w[0] in the first array, and the next array lies
/// `stride` floats behind.
struct HostRule {
  int state = 0;
  RuleStep (*begin_step)(RuleStep step) = nullptr;  ///< see rule_step: once for each layer and step
  void (*apply)(float* w, float* state, std::size_t stride, const float* gradient, std::size_t n,
                RuleStep step) = nullptr;
};

namespace detail {

template <class Rule>
struct ApplyRule {
  float* w;
  float* state;
  std::size_t stride;
  const float* gradient;
  std::size_t n;
  RuleStep step;

  [[gnu::always_inline]] inline void operator()() const {
    for (std::size_t i = 0; i < n; ++i) {
      std::array<float, Rule::state + 1> own;  // a rule without state still gets an address
      for (std::size_t k = 0; k < Rule::state; ++k) own[k] = state[k * stride + i];
      w[i] = Rule::apply(w[i], own.data(), gradient[i], step);
      for (std::size_t k = 0; k < Rule::state; ++k) state[k * stride + i] = own[k];
    }
  }
};

template <class Rule>
struct BeginRuleStep {
  RuleStep& step;

  [[gnu::always_inline]] inline void operator()() const { step = rule_step<Rule>(step); }
};

}  // namespace detail

template <LearningRuleType Rule>
inline constexpr HostRule host_rule = {
    Rule::state,
    [](RuleStep step) {
      simd::for_best_isa(detail::BeginRuleStep<Rule>{step});
      return step;
    },
    [](float* w, float* state, std::size_t stride, const float* gradient, std::size_t n,
       RuleStep step) {
      simd::for_best_isa(detail::ApplyRule<Rule>{w, state, stride, gradient, n, step});
    }};

/// Whether the spec's rule is Momentum or its special case Sgd, whose updates can be deferred.
inline bool is_momentum(const Spec& spec) {
  return spec.learning_rule == Momentum::name || spec.learning_rule == Sgd::name;
}

/// The rule that a spec names: one of the library's, or the program's own type `Own` (void: none).
/// Throws Error (Fault::spec) for any other name.
template <class Own>
HostRule rule_of(const Spec& spec) {
  if (is_momentum(spec)) return host_rule<Momentum>;
  if (spec.learning_rule == Adam::name) return host_rule<Adam>;
  if constexpr (!std::is_void_v<Own>) {
    if (spec.learning_rule == detail::own_name<Own>()) return host_rule<Own>;
  }
  throw Error(Fault::spec, "spec " + quote(spec.name) + ": key 'learning_rule' is " +
                               quote(spec.learning_rule) +
                               "; allowed: momentum, sgd, adam, or the name of the rule that a "
                               "program gives its Network as pvm::LearningRule<...>");
}

}  // namespace pvm::inline v0
