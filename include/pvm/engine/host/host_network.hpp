// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the units of a host engine share, in one structure.

#include <cstddef>
#include <vector>

#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/host_activation.hpp>
#include <pvm/engine/host/host_rule.hpp>
#include <pvm/engine/host/inner_products.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/past.hpp>
#include <pvm/engine/host/weight_layout.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0 {

/// References to the network's description and to the engine's state. The InnerProducts hold inner
/// products with the inputs of the gradient of age `age`.
struct HostNetwork {
  const Spec& spec;
  const Connectome& net;
  const WeightLayout& layout;
  Past& past;
  InnerProducts& squeezed_products;  ///< at(t, s): c(h_s(t-1)) . c(h_s(t-4-age))
  InnerProducts& raw_products;       ///< at(t, s): h_s(t-1) . h_s(t-4-age)
  InnerProducts& patch_products;     ///< at(t, u): A(t) . A(t-3-age), layer 0
  DeferralPlan plan;
  std::size_t velocity_offset;       ///< offset of the momentum array behind Z; 0: there is none
  std::vector<Score>& score;         ///< by unit
  const HostActivation* activation;  ///< the program's own; null: the spec's keys decide
  HostRule rule;                     ///< applied in every step; without `apply`: none is
  HugeArray& rule_state;             ///< [rule.state][layout.size()]

  /// Whether every step makes the update of the step before, so that no updates are deferred.
  [[nodiscard]] bool updates_immediately() const {
    return velocity_offset != 0 || rule.apply != nullptr;
  }
};

}  // namespace pvm::inline v0
