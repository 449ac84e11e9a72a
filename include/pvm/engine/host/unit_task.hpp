// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The common part of a unit's step: the current unit and step, the gradients that its products and
/// its fold need, and how a pass over its weights is run.

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pvm/core/tags.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/host_activation.hpp>
#include <pvm/engine/host/host_network.hpp>
#include <pvm/engine/host/kernel.hpp>
#include <pvm/engine/host/scratch.hpp>
#include <pvm/engine/host/step_inputs.hpp>
#include <pvm/engine/host/update_pass.hpp>
#include <pvm/engine/host/weight_store.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/unit/activation.hpp>
#include <pvm/unit/deferred.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// The state of the current unit's step. `Precision`: of the weights that products read. `Hidden`:
/// the number of hidden values, or `dynamic`.
template <class Precision, int Hidden>
class UnitTask {
 protected:
  using Weights = WeightStore<Precision>;
  static constexpr bool full_precision = std::is_same_v<Precision, fp32>;
  using Pass = std::conditional_t<full_precision, simd::MatrixPass, simd::HalfPass>;

  /// A listed gradient: of step t - 1 - age, in `slot` of the list, with its coefficient.
  struct Term {
    std::size_t slot, age;
    float coefficient;
  };

  UnitTask(const HostNetwork& network, Weights& weights, Scratch& scratch)
      : n_(network), weights_(weights), s_(scratch) {}

  /// Starts step `t` of unit `u`. Unit `next` will follow it, or none if `next` is no unit number.
  [[gnu::always_inline]] inline void begin(std::uint64_t t, std::size_t u, std::size_t next,
                                           const StepRates& rates, Mode mode) {
    t_ = t;
    u_ = u;
    activation_ = n_.activation != nullptr ? *n_.activation : activation_of(n_.spec, t);
    if (uses_prefetcher()) prefetcher_.begin(weights_begin(u), weights_end(u), weights_begin(next));
    choose_terms(rates, mode);
  }

  [[nodiscard, gnu::always_inline]] inline std::size_t hidden_values() const {
    return n_.past.template hidden_or<Hidden>();
  }
  [[nodiscard]] const Unit& unit() const { return n_.net.units[u_]; }
  [[nodiscard]] std::size_t batch() const { return n_.past.batch(); }
  [[nodiscard]] std::size_t inputs() const { return n_.layout[u_].w0_columns; }
  [[nodiscard]] std::size_t columns() const { return n_.layout[u_].w1_columns; }
  [[nodiscard]] std::size_t representation() const {
    return static_cast<std::size_t>(unit().representation);
  }
  [[nodiscard]] std::size_t padded_representation() const { return simd::padded(representation()); }
  [[nodiscard]] bool in_layer_0() const { return unit().layer == 0; }

  /// x(t) . x_j or r(t) . r_j, for x or r of sequence `b` and the listed gradient of sequence `c`.
  [[nodiscard]] float product(std::size_t b, const Term& term, std::size_t c) const {
    return s_.products.data()[(b * n_.past.terms() + term.age) * batch() + c];
  }

  [[gnu::always_inline]] inline void set_matrix(Pass& pass, std::size_t offset, std::size_t rows,
                                                std::size_t columns) {
    pass.prefetcher = &prefetcher_;
    if constexpr (full_precision) {
      pass.tiled = weights_.data() + offset;
    } else {
      pass.tiled = weights_.copy() + offset;
    }
    pass.rows = rows;
    pass.columns = columns;
    pass.batch = batch();
  }

  /// Runs a pass, with the update that is due: inside the pass if it can be fused (momentum in
  /// fp32), else before it. `offset`: index of the matrix in the store.
  template <bool Axpy>
  [[gnu::always_inline]] inline void run_pass(Pass& pass, std::size_t offset) {
    if (folding_ > 0) {
      if constexpr (full_precision) {
        if (n_.rule.apply == nullptr) fuse_update(pass);
      }
      if (!full_precision || n_.rule.apply != nullptr) update_matrix(pass, offset);
    }
    simd::matrix_pass<Precision, Axpy>(pass);
  }

 private:
  /// Whether to prefetch in software. On processors with AVX-512 a core reads 16-bit weights at its
  /// full rate without that, and the prefetches would compete with the loads of the small pieces of
  /// work.
  [[nodiscard]] static bool uses_prefetcher() {
    return full_precision || simd::best_isa() < simd::Isa::avx512;
  }
  [[nodiscard]] const void* weights_begin(std::size_t u) const {
    return u < n_.net.units.size() ? weights_.address(n_.layout[u].w0) : nullptr;
  }
  [[nodiscard]] const void* weights_end(std::size_t u) const {
    return weights_.address(n_.layout[u].w1 + representation() * n_.layout[u].w1_columns);
  }

  /// Lists the gradients whose coefficient in W differs from that in Z (listed_terms_), and those
  /// that enter Z in this step (folding_terms_).
  [[gnu::always_inline]] inline void choose_terms(const StepRates& rates, Mode mode) {
    const std::size_t terms = n_.past.terms();
    const auto layer = static_cast<std::size_t>(unit().layer);
    const auto period = static_cast<std::size_t>(n_.plan.period);
    const std::size_t phase = u_ % period;
    const float* weight = rates.weight.data() + (layer * period + phase) * terms;
    const float* fold = rates.fold.data() + layer * terms;
    const bool folds = mode == Mode::learn && rates.folds[layer] != 0 && t_ % period == phase;
    listed_ = folding_ = 0;
    momentum_ = rates.momentum[layer];
    rule_step_ = rates.rule[layer];
    std::size_t age = static_cast<std::size_t>((t_ + terms - 1) % terms);  // of slot 0
    for (std::size_t slot = 0; slot < terms; ++slot) {
      if (weight[slot] != 0.0F) listed_terms_[listed_++] = {slot, age, weight[slot]};
      if (folds && (fold[slot] != 0.0F || n_.updates_immediately()))
        folding_terms_[folding_++] = {slot, age, fold[slot]};
      age = age == 0 ? terms - 1 : age - 1;
    }
  }

  /// Makes the update a part of the pass.
  [[gnu::always_inline]] inline void fuse_update(simd::MatrixPass& pass) {
    pass.term = s_.term_row.data();
    pass.factor = s_.factors.data();
    pass.terms = folding_ * batch();
    pass.velocity_offset = n_.velocity_offset;
    pass.momentum = momentum_;
  }

  /// Makes the update in a pass of its own.
  [[gnu::always_inline]] inline void update_matrix(const Pass& pass, std::size_t offset) {
    const MatrixUpdate update{
        offset, pass.rows, pass.columns, s_.term_row.data(), s_.factors.data(), folding_ * batch()};
    if (n_.rule.apply == nullptr) {
      fold_matrix(weights_, update);
    } else {
      apply_rule(weights_, update, n_.rule, n_.rule_state.data(), n_.layout.size(), rule_step_);
    }
  }

 protected:
  const HostNetwork& n_;
  Weights& weights_;
  Scratch& s_;
  simd::Prefetcher prefetcher_;
  HostActivation activation_ = {};
  std::uint64_t t_ = 0;
  std::size_t u_ = 0;
  std::size_t listed_ = 0, folding_ = 0;  // lengths of the two lists below
  float momentum_ = 0;
  RuleStep rule_step_;
  Term listed_terms_[DeferralPlan::most_terms];
  Term folding_terms_[DeferralPlan::most_terms];
};

}  // namespace pvm::inline v0
