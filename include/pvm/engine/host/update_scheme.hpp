// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How the gradients of a spec enter the host engine's weights.

#include <algorithm>
#include <concepts>
#include <string>

#include <pvm/core/tags.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/host_rule.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// The spec with the momentum of its rule: plain descent (sgd) is momentum 0.
inline Spec with_schedule_of_rule(Spec spec) {
  if (spec.learning_rule == Sgd::name) spec.momentum = 0;
  return spec;
}

/// Whether and how updates are deferred. Batches of up to 4 sequences defer them
/// (unit/deferred.hpp). Larger batches, and momenta that outlive the list, use a momentum array
/// instead: there the pass over the weights is bound by arithmetic, or the list would cost more
/// than the array. Learning rules other than momentum update every weight in every step.
struct UpdateScheme {
  DeferralPlan plan;
  bool immediate = false;  ///< updates are made in every step, not deferred; then `plan` is {1, 1}
  bool by_rule = false;    ///< they are made by a learning rule, in a pass of its own
  float sequence_weight = 1;  ///< weight of one sequence's gradient in the update

  /// Momentum in fp32 is updated in the multiplying pass, with an array beside the weights. Every
  /// other update that is not deferred is the pass of a rule.
  [[nodiscard]] bool momentum_array() const { return immediate && !by_rule; }

  /// The scheme for `spec` (from with_schedule_of_rule), `batch` sequences and products in
  /// `Precision`.
  template <class Precision>
  [[nodiscard]] static UpdateScheme of(const Spec& spec, int batch, Reduce reduce) {
    constexpr bool full_precision = std::same_as<Precision, fp32>;
    // A fold of 16-bit weights moves more bytes than a step reads, so they are folded less often
    // than fp32 weights. Still less often would mean a longer list, and more corrections in every
    // step.
    constexpr int fold_period = full_precision ? 8 : 12;
    UpdateScheme scheme;
    scheme.plan = DeferralPlan::for_momentum(spec.momentum, std::max(1, fold_period / batch));
    scheme.immediate = batch > 4 || !scheme.plan.fits() || !is_momentum(spec);
    if (scheme.immediate) scheme.plan = {1, 1};
    scheme.by_rule = scheme.immediate && (!full_precision || !is_momentum(spec));
    scheme.sequence_weight = reduce == Reduce::mean ? 1.0F / static_cast<float>(batch) : 1.0F;
    return scheme;
  }

  /// The name of the order of folding and of the kept state. Only a state with the same name can be
  /// resumed bit by bit.
  template <class Precision>
  [[nodiscard]] std::string layout_name(const Spec& spec) const {
    const std::string order = momentum_array() ? "momentum array"
                              : by_rule        ? "rule " + spec.learning_rule
                                               : "folds by unit";
    if (std::same_as<Precision, fp32>) return order;
    return order + ", " + std::string(Precision::name);
  }
};

}  // namespace pvm::inline v0
