// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Chooses how a network's steps are computed for a batch: by one kernel (a sweep) or two, and with
/// the momentum as a list of gradients or as an array. Makes the plan of the tables accordingly.

#include <algorithm>
#include <cstddef>
#include <string>
#include <type_traits>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/batch/plan/plan.hpp>
#include <pvm/engine/cuda/batch/plan/sizes.hpp>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/engine/cuda/batch/rates.hpp>
#include <pvm/engine/cuda/batch/sweep/kernel.cuh>
#include <pvm/engine/cuda/batch/tuning.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/numbers/network_constants.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/deferred.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0::detail::batch {

/// What `SchemeChooser` chose.
struct Scheme {
  bool swept = false;   ///< a step is one pass over the weights: engine/cuda/batch/sweep/kernel.cuh
  bool listed = false;  ///< the last gradients are listed; else the rule keeps floats per weight
  int rule_floats = 0;  ///< floats that the learning rule keeps per weight; 0 if listed
  Shape shape{};        ///< without `columns` and `table`, which Memory fills in

  [[nodiscard]] DeferralPlan deferral() const { return {1, shape.terms}; }
  /// EngineState::layout: states of the same layout and deferral plan continue bit by bit.
  [[nodiscard]] std::string layout_name() const {
    return listed ? "folds every step" : "rule's array";
  }
};

/// Chooses the scheme for learning rule `Rule` and products in precision `M`.
template <class M, int Batch, class Rule>
class SchemeChooser {
  using Word = typename M::Word;

 public:
  SchemeChooser(const Spec& spec, const Connectome& net, int batch, Reduce reduce,
                const DeviceFacts& device)
      : spec_(spec), net_(net), batch_(batch), reduce_(reduce), device_(device) {}

  [[nodiscard]] Scheme choose() const {
    Scheme scheme;
    Shape& s = scheme.shape;
    describe(s);
    const int terms = terms_for(spec_.momentum, M::epsilon);
    const bool listable = std::is_same_v<Rule, Momentum> && terms <= most_terms;
    const int whole = swept_size(batch_);
    scheme.swept = listable && whole >= batch_ && sweeps(whole, terms);
    s.slice = scheme.swept ? whole : choose_slice(batch_, 128 * M::most_tiles);
    s.padded = (batch_ + s.slice - 1) / s.slice * s.slice;
    const int more = (terms - 1) * s.padded * static_cast<int>(sizeof(Word));
    scheme.listed = scheme.swept || (listable && more <= Tuning::most_listed_bytes);
    scheme.rule_floats = scheme.listed ? 0 : Rule::state;
    s.terms = scheme.listed ? terms : 1;
    if (scheme.swept) s.terms = std::max(s.terms, 2);  // it reads d0(t-1) while it writes d0(t)
    s.ring = ring_of(s.terms);
    s.frames = 2 * Tuning::block_steps(s.padded) + s.terms + 6;
    return scheme;
  }

 private:
  /// Slots of the rings of hidden rows, for so many listed gradients.
  static int ring_of(int terms) { return terms + 5; }
  [[nodiscard]] int layers() const { return static_cast<int>(net_.layer_start.size()) - 1; }

  /// Fills in what follows from the network and the options.
  void describe(Shape& s) const {
    s.batch = batch_;
    s.hidden = static_cast<int>(net_.units.size()) * net_.hidden;
    s.pixels = static_cast<int>(spec_.frame_size());
    s.outputs = static_cast<int>(net_.outputs);
    s.layers = layers();
    s.activation = activation_number(spec_);
    s.sign_error = spec_.opt_abs_diff ? 1 : 0;
    s.sequence_weight = reduce_ == Reduce::mean ? 1.0F / static_cast<float>(batch_) : 1.0F;
  }

  /// Whether a sweep with `padded` sequences and `terms` listed gradients can make the steps.
  [[nodiscard]] bool sweeps(int padded, int terms) const {
    if constexpr (sizeof(Word) == 2) {
      const double ring = static_cast<double>(ring_of(std::max(terms, 2))) * padded *
                          static_cast<double>(net_.units.size()) * net_.hidden;
      if (ring >= 0x1p32) return false;  // a sweep indexes the values of a ring with 32 bits
      const double rate = std::max({spec_.initial_learning_rate, spec_.intermediate_learning_rate,
                                    spec_.final_learning_rate}) *
                          (reduce_ == Reduce::sum ? batch_ : 1);
      int columns = net_.hidden;
      for (const Unit& unit : net_.units) columns = std::max(columns, unit.representation);
      const auto shared = SweepLauncher<M, Batch>{padded, false}.shared_bytes();
      return device_.is_hopper_or_later && columns <= panel_width &&
             layers() <= most_swept_layers &&
             static_cast<std::size_t>(shared) <= device_.shared_bytes &&
             youngest_suffices(spec_.momentum, rate, M::epsilon);
    }
    return false;
  }

  const Spec& spec_;
  const Connectome& net_;
  int batch_;
  Reduce reduce_;
  const DeviceFacts& device_;
};

/// The tables of `units` for a scheme on a device.
template <class M, int Batch>
Plan make_plan(const Spec& spec, const Connectome& net, const Range& units, const Scheme& scheme,
               const DeviceFacts& device) {
  std::size_t rows = 0;
  for (std::size_t u = units.first; u < units.end; ++u) {
    rows += static_cast<std::size_t>(net.units[u].inputs);
  }
  const int part_blocks = Tuning::part_rows(rows, device.multiprocessors) / M::block;
  Plan::Sweep sweep;
  if (scheme.swept) {
    const int padded = scheme.shape.padded;
    const unsigned int each = SweepLauncher<M, Batch>{padded, false}.blocks_each();
    sweep = {padded, static_cast<unsigned>(device.multiprocessors) * each};
  }
  return Planner::make(spec, net, units, M::block, part_blocks, sweep);
}

}  // namespace pvm::inline v0::detail::batch
