// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What one unit does in one step, for all sequences of the batch: docs/model.md, "One step t",
/// with the weights' last updates kept as factors (unit/deferred.hpp).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#include <pvm/core/tags.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/host_activation.hpp>
#include <pvm/engine/host/host_rule.hpp>
#include <pvm/engine/host/kernel.hpp>
#include <pvm/engine/host/memory.hpp>
#include <pvm/engine/host/past.hpp>
#include <pvm/engine/host/unit_shares.hpp>
#include <pvm/engine/host/update_pass.hpp>
#include <pvm/engine/host/weight_layout.hpp>
#include <pvm/engine/host/weight_store.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/unit/activation.hpp>
#include <pvm/unit/deferred.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// The coefficients of one step, as every unit of a layer reads them.
struct StepRates {
  std::vector<float> weight;    ///< [layer][phase][term]: w_j, divided among the batch
  std::vector<float> fold;      ///< [layer][term]: what the units that fold add
  std::vector<char> folds;      ///< [layer]: whether anything is to be folded
  std::vector<float> momentum;  ///< [layer]: for engines with a momentum array
  std::vector<RuleStep> rule;   ///< [layer]: for engines with a learning rule that is not deferred
};

/// The frames of one step: in a FrameBlock or in the store.
struct StepFrames {
  const std::uint8_t* const* pixels;  ///< each sequence's frame
  const float* squeezed;  ///< instead of the pixels, or null
  const std::uint8_t* scored;
};

/// Inner products of a unit's newest values with those of its past, [3 steps][unit][b][age][b'].
/// Products of x vectors are sums of these, and a product is shared by all units that read it.
class Grams {
 public:
  Grams() = default;
  Grams(std::size_t units, std::size_t terms, std::size_t batch)
      : units_(units), size_(simd::padded(terms * batch * batch)), values_(3 * units * size_) {}

  [[nodiscard]] float* at(std::uint64_t step, std::size_t unit) {
    return values_.data() + (static_cast<std::size_t>(step % 3) * units_ + unit) * size_;
  }
  [[nodiscard]] std::size_t size() const noexcept { return size_; }

 private:
  std::size_t units_ = 0, size_ = 0;
  HugeArray values_;
};

/// Everything the units of a host engine share.
struct HostNetwork {
  const Spec& spec;
  const Connectome& net;
  const WeightLayout& layout;
  Past& past;
  Grams& squeezed_grams;  ///< at(t, s): c(h_s(t-1)) . c(h_s(t-4-age))
  Grams& raw_grams;       ///< at(t, s): h_s(t-1) . h_s(t-4-age)
  Grams& patch_grams;     ///< at(t, u): A(t) . A(t-3-age), layer 0
  DeferralPlan plan;
  std::size_t velocity;              ///< offset of the momentum array behind Z; 0: there is none
  std::vector<Score>& score;         ///< by unit
  const HostActivation* activation;  ///< the program's own; null: what the spec says
  HostRule rule;                     ///< applied in every step; apply is null: updates are deferred
  HugeArray& rule_state;             ///< the rule's arrays, each as long as the weights

  /// Whether a step makes the last step's update, instead of listing it for later.
  [[nodiscard]] bool updates_at_once() const { return velocity != 0 || rule.apply != nullptr; }
};

/// The products of one unit's values `back` steps before `step` with those three steps and more
/// before them, [b][age][b']. `row(slot, b)` gives the values, `n` (padded) of them.
template <class Row>
[[gnu::always_inline]] inline void multiply_rows(const Past& past, std::uint64_t step,
                                                 std::size_t back, std::size_t n, Row row,
                                                 float* out, simd::Ahead& ahead) {
  const std::size_t now = past.slot(step, back);
  for (std::size_t b = 0; b < past.batch(); ++b) {
    for (std::size_t age = 0; age < past.terms(); ++age) {
      ahead.pull(8);
      const std::size_t then = past.slot(step, back + 3 + age);
      for (std::size_t c = 0; c < past.batch(); ++c)
        *out++ = simd::dot(row(now, b), row(then, c), n);
    }
  }
}

/// What step `step` - `back` leaves for the next one: the products of the unit's hidden values.
[[gnu::always_inline]] inline void multiply_hidden(const HostNetwork& n, std::uint64_t step,
                                                   std::size_t back, std::size_t u,
                                                   simd::Ahead& ahead) {
  Past& past = n.past;
  const std::uint64_t reader = step + 4 - back;  // that is step + 1 - back, kept positive
  auto raw = [&](std::size_t slot, std::size_t b) { return past.raw(slot, b, u); };
  auto squeezed = [&](std::size_t slot, std::size_t b) { return past.squeezed(slot, b, u); };
  multiply_rows(past, step, back, past.stride(), raw, n.raw_grams.at(reader, u), ahead);
  multiply_rows(past, step, back, past.stride(), squeezed, n.squeezed_grams.at(reader, u), ahead);
}

/// The products of a layer-0 unit's patch at step `step` - `back`, for that step and the next.
[[gnu::always_inline]] inline void multiply_patch(const HostNetwork& n, std::uint64_t step,
                                                  std::size_t back, std::size_t u,
                                                  simd::Ahead& ahead) {
  auto patch = [&](std::size_t slot, std::size_t b) { return n.past.patch(slot, b, u); };
  multiply_rows(n.past, step, back, n.past.patch_stride(), patch,
                n.patch_grams.at(step + 3 - back, u), ahead);
}

/// Recomputes all products that step `step` will find: after a start or a restart.
struct MultiplyPast {
  const HostNetwork& n;
  std::uint64_t step;

  [[gnu::always_inline]] inline void operator()() const {
    simd::Ahead nothing;
    for (std::size_t u = 0; u < n.net.units.size(); ++u) {
      multiply_hidden(n, step, 1, u, nothing);
      multiply_hidden(n, step, 2, u, nothing);
      if (u < n.past.patches()) multiply_patch(n, step, 1, u, nothing);
    }
  }
};

/// Memory that one thread needs to step any unit.
class Scratch {
 public:
  explicit Scratch(const HostNetwork& n) {
    const std::size_t batch = n.past.batch();
    const std::size_t listed = n.past.terms() * batch;
    std::size_t inputs = 0, outputs = 0, representation = 0;
    for (const Unit& unit : n.net.units) {
      inputs = std::max(inputs, n.layout.padded(static_cast<std::size_t>(unit.inputs)));
      outputs = std::max(outputs, n.layout.padded(static_cast<std::size_t>(unit.outputs)));
      representation =
          std::max(representation, simd::padded(static_cast<std::size_t>(unit.representation)));
    }
    const std::size_t slack = n.past.slack();
    x = HugeArray(batch * inputs + slack);
    r = HugeArray(batch * representation + slack);
    sums = HugeArray(batch * n.past.stride());
    back = HugeArray(batch * representation);
    d1 = HugeArray(batch * outputs);
    y = HugeArray(batch * outputs);
    products = HugeArray(n.squeezed_grams.size());
    term_inputs = HugeArray(listed * std::max(inputs, representation) + slack);
    factors = HugeArray(std::max(n.past.stride(), representation) * listed);
    term_q = HugeArray(batch * listed);
    term_dot = HugeArray(batch * listed);
    term_row.reserve(listed);
    row.reserve(std::max(representation, listed));
  }

  HugeArray x;                 // [batch][padded inputs]
  HugeArray r;                 // [batch][padded representation]
  HugeArray sums;              // [batch][stride]: W0 x, then h
  HugeArray back;              // [batch][padded representation]: W1^T d1
  HugeArray d1, y;             // [batch][padded outputs]
  HugeArray products;          // [batch][age][batch]: x . x_j or r . r_j
  HugeArray term_inputs;       // [folding terms][padded row]
  HugeArray factors;           // [rows][folding terms]
  HugeArray term_q, term_dot;  // [batch][listed terms]
  std::vector<const float*> term_row;
  std::vector<float*> row;
};

/// One unit, one step. A callable, so that simd::for_best_isa can compile it for the processor.
/// `Precision` is that of the weights products read, `Hidden` the number of hidden values where it
/// is known when compiling.
template <class Precision, int Hidden>
class UnitStep {
 public:
  using Weights = WeightStore<Precision>;

  UnitStep(const HostNetwork& network, Weights& weights, Scratch& scratch)
      : n_(network), weights_(weights), s_(scratch) {}

  /// Step `t` of unit `u`; unit `next` will come after it (if it is one).
  [[gnu::always_inline]] inline void operator()(std::uint64_t t, std::size_t u, std::size_t next,
                                                const StepFrames& frames, const StepRates& rates,
                                                Mode mode) {
    t_ = t;
    u_ = u;
    activation_ = n_.activation != nullptr ? *n_.activation : activation_of(n_.spec, t);
    if (asks_ahead()) ahead_.begin(first_weight(u), last_weight(u), first_weight(next));
    choose_terms(rates, mode);
    look_at_input(frames);
    hidden();
    multiply_hidden(n_, t_, 0, u_, ahead_);
    errors(frames.scored);
    outputs();
    if (mode == Mode::learn) list_gradient();
  }

 private:
  struct Term {
    std::size_t slot, age;
    float amount;
  };

  static constexpr bool full_precision = std::is_same_v<Precision, fp32>;

  /// Processors with AVX-512 read 16-bit weights as fast as a core can without being asked to, and
  /// asking takes the place of what the small phases read.
  [[nodiscard]] static bool asks_ahead() {
    return full_precision || simd::best_isa() < simd::Isa::avx512;
  }
  [[nodiscard]] const void* first_weight(std::size_t u) const {
    return u < n_.net.units.size() ? weights_.address(n_.layout[u].w0) : nullptr;
  }
  [[nodiscard]] const void* last_weight(std::size_t u) const {
    return weights_.address(n_.layout[u].w1 + representation() * n_.layout[u].w1_columns);
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

  /// The gradients that still differ from what is in Z, and those that enter Z now.
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
      if (folds && (fold[slot] != 0.0F || n_.updates_at_once()))
        folding_terms_[folding_++] = {slot, age, fold[slot]};
      age = age == 0 ? terms - 1 : age - 1;
    }
  }

  /// x(t), and in layer 0 the products of the frame's patch with earlier ones.
  [[gnu::always_inline]] inline void look_at_input(const StepFrames& frames) {
    Past& past = n_.past;
    const std::size_t now = past.slot(t_, 0);
    for (int i = 0; i < 32; ++i) ahead_.pull(8);
    for (std::size_t b = 0; b < batch(); ++b) {
      if (in_layer_0()) take_patch(frames, now, b);
      past.template gather_input<Hidden>(t_, 0, b, u_, s_.x.data() + b * inputs());
    }
    if (in_layer_0()) multiply_patch(n_, t_, 0, u_, ahead_);
  }

  [[gnu::always_inline]] inline void take_patch(const StepFrames& frames, std::size_t now,
                                                std::size_t b) {
    if (frames.squeezed != nullptr) {
      const float* values = frames.squeezed + b * n_.spec.frame_size();
      n_.past.take_patch([&](std::size_t i) { return values[i]; }, now, b, u_);
    } else {
      const std::uint8_t* pixels = frames.pixels[b];
      n_.past.take_patch([&](std::size_t i) { return squeeze_pixel(pixels[i]); }, now, b, u_);
    }
  }

  /// h(t) = f(W0 x(t)), W0 = Z0 + listed gradients.
  [[gnu::always_inline]] inline void hidden() {
    fold_hidden();
    const UnitWeights& w = n_.layout[u_];
    Pass pass;
    set_matrix(pass, w.w0, hidden_values(), w.w0_columns);
    pass.x = s_.x.data();
    pass.dot = s_.sums.data();
    pass.dot_stride = n_.past.stride();
    run_pass<false>(pass, w.w0);
    if (listed_ > 0) {
      multiply_inputs();
      correct_hidden();
    }
    activate_hidden();
  }

  [[gnu::always_inline]] inline void fold_hidden() {
    s_.term_row.clear();
    if (folding_ == 0) return;
    float* x = s_.term_inputs.data();
    for (std::size_t j = 0; j < folding_; ++j) {
      for (std::size_t b = 0; b < batch(); ++b, x += inputs()) {
        n_.past.template gather_input<Hidden>(t_, 3 + folding_terms_[j].age, b, u_, x);
        s_.term_row.push_back(x);
      }
    }
    const std::size_t terms = folding_ * batch();
    for (std::size_t j = 0; j < folding_; ++j) {
      for (std::size_t b = 0; b < batch(); ++b) {
        const float* d0 = n_.past.d0(folding_terms_[j].slot, b, u_);
        float* factor = s_.factors.data() + j * batch() + b;
        for (std::size_t i = 0; i < hidden_values(); ++i) {
          factor[i * terms] = folding_terms_[j].amount * d0[i];
        }
      }
    }
  }

  /// x(t) . x_j for all gradients: sums over the sources of shared products.
  [[gnu::always_inline]] inline void multiply_inputs() {
    float* products = s_.products.data();
    const std::size_t size = n_.squeezed_grams.size();
    std::fill_n(products, size, 1.0F);  // the bias
    if (in_layer_0()) {
      simd::add(products, n_.patch_grams.at(t_, u_), size);
      simd::add(products, n_.patch_grams.at(t_ + 2, u_), size);  // of t - 1
    }
    for (const auto s : n_.net.primary[u_]) {
      simd::add(products, n_.squeezed_grams.at(t_, s), size);
      simd::add(products, n_.squeezed_grams.at(t_ + 2, s), size);
    }
    for (const auto s : n_.net.context[u_]) simd::add(products, n_.squeezed_grams.at(t_, s), size);
  }

  [[nodiscard]] float product(std::size_t b, const Term& term, std::size_t c) const {
    return s_.products.data()[(b * n_.past.terms() + term.age) * batch() + c];
  }

  [[gnu::always_inline]] inline void correct_hidden() {
    for (std::size_t b = 0; b < batch(); ++b) {
      float* sums = s_.sums.data() + b * n_.past.stride();
      for (std::size_t j = 0; j < listed_; ++j) {
        const Term& term = listed_terms_[j];
        for (std::size_t c = 0; c < batch(); ++c) {
          simd::add_scaled(sums, term.amount * product(b, term, c), n_.past.d0(term.slot, c, u_),
                           n_.past.stride());
        }
      }
    }
  }

  [[gnu::always_inline]] inline void activate_hidden() {
    const std::size_t now = n_.past.slot(t_, 0);
    for (std::size_t b = 0; b < batch(); ++b) {
      float* raw = n_.past.raw(now, b, u_);
      float* squeezed = n_.past.squeezed(now, b, u_);
      activation_.value(s_.sums.data() + b * n_.past.stride(), raw, hidden_values());
      for (std::size_t i = 0; i < hidden_values(); ++i) squeezed[i] = squeeze(raw[i]);
    }
  }

  /// d1(t) = g(y(t-2)) * ([A|B](t) - y(t-2)), and the sums for the score.
  [[gnu::always_inline]] inline void errors(const std::uint8_t* scored) {
    const auto outputs = static_cast<std::size_t>(unit().outputs);
    Score& score = n_.score[u_];
    for (std::size_t b = 0; b < batch(); ++b) {
      const float* x = s_.x.data() + b * inputs();
      const float* y = n_.past.y(t_ + 1, b, u_);  // of t - 2
      float* d1 = s_.d1.data() + b * columns();
      simd::Lanes loss = {};
      for (std::size_t o = 0; o < columns(); o += simd::width) {
        ahead_.pull(8);
        simd::Lanes e = simd::at(x + o) - simd::at(y + o);
        if (o + simd::width > outputs) {
          for (std::size_t k = o < outputs ? outputs - o : 0; k < simd::width; ++k) e[k] = 0.0F;
        }
        loss += e * e;
        simd::at(d1 + o) = e;
      }
      score.loss += static_cast<double>(simd::sum(loss));
      score.outputs += outputs;
      if (n_.spec.opt_abs_diff) {
        for (std::size_t o = 0; o < outputs; ++o) d1[o] = std::copysign(1.0F, d1[o]);
      }
      activation_.times_derivative(y, d1, columns());
      if (in_layer_0() && scored[b] != 0) score_prediction(b, y);
    }
  }

  [[gnu::always_inline]] inline void score_prediction(std::size_t b, const float* y) {
    const float* now = n_.past.patch(n_.past.slot(t_, 0), b, u_);
    const float* then = n_.past.patch(n_.past.slot(t_, 2), b, u_);
    double prediction = 0;
    double persistence = 0;
    for (std::size_t k = 0; k < n_.past.patch_size(); ++k) {
      const float pixel = (now[k] - 0.1F) * 1.25F;
      const float error = unsqueeze(y[k]) - pixel;
      const float change = (then[k] - now[k]) * 1.25F;
      prediction += static_cast<double>(error * error);
      persistence += static_cast<double>(change * change);
    }
    Score& score = n_.score[u_];
    score.prediction += prediction;
    score.persistence += persistence;
    score.pixels += n_.past.patch_size();
  }

  /// y(t) = f(W1 r(t)) and d0(t) = g(h(t-2)) * W1^T d1(t), in one pass over W1.
  [[gnu::always_inline]] inline void outputs() {
    for (std::size_t b = 0; b < batch(); ++b) {
      n_.past.template gather_representation<Hidden>(t_, 0, b, u_,
                                                     s_.r.data() + b * padded_representation());
    }
    for (std::size_t i = 0; i < batch() * columns(); ++i) s_.y.data()[i] = 0.0F;
    fold_outputs();
    pass_outputs();
    if (listed_ > 0) correct_outputs();
    for (std::size_t b = 0; b < batch(); ++b) {
      activation_.value(s_.y.data() + b * columns(), n_.past.y(t_, b, u_), columns());
    }
  }

  [[gnu::always_inline]] inline void fold_outputs() {
    s_.term_row.clear();
    if (folding_ == 0) return;
    const std::size_t terms = folding_ * batch();
    const std::size_t rows = representation();
    for (std::size_t j = 0; j < folding_; ++j) {
      for (std::size_t b = 0; b < batch(); ++b) {
        s_.term_row.push_back(n_.past.d1(folding_terms_[j].slot, b, u_));
        float* r = s_.term_inputs.data();
        n_.past.template gather_representation<Hidden>(t_, 3 + folding_terms_[j].age, b, u_, r);
        float* factor = s_.factors.data() + j * batch() + b;
        for (std::size_t i = 0; i < rows; ++i) factor[i * terms] = folding_terms_[j].amount * r[i];
      }
    }
  }

  [[gnu::always_inline]] inline void pass_outputs() {
    const UnitWeights& w = n_.layout[u_];
    Pass pass;
    set_matrix(pass, w.w1, representation(), w.w1_columns);
    pass.x = s_.d1.data();
    pass.dot = s_.back.data();
    pass.dot_stride = padded_representation();
    pass.y = s_.y.data();
    pass.q = s_.r.data();
    pass.q_stride = padded_representation();
    run_pass<true>(pass, w.w1);
  }

  /// r(t) . r_j for all gradients.
  [[gnu::always_inline]] inline void multiply_representations() {
    float* products = s_.products.data();
    const std::size_t size = n_.raw_grams.size();
    std::fill_n(products, size, 1.0F);  // the bias
    simd::add(products, n_.raw_grams.at(t_ + 1, u_), size);
    if (representation() == hidden_values() + 1) return;
    for (const auto s : n_.net.context[u_]) simd::add(products, n_.raw_grams.at(t_, s), size);
  }

  /// The listed gradients as further rows of W1: row d1_j with the left factor w_j (r . r_j).
  [[gnu::always_inline]] inline void correct_outputs() {
    multiply_representations();
    const std::size_t terms = listed_ * batch();
    s_.row.clear();
    for (std::size_t j = 0; j < listed_; ++j) {
      const Term& term = listed_terms_[j];
      for (std::size_t c = 0; c < batch(); ++c) {
        s_.row.push_back(n_.past.d1(term.slot, c, u_));
        for (std::size_t b = 0; b < batch(); ++b) {
          s_.term_q.data()[b * terms + j * batch() + c] = term.amount * product(b, term, c);
        }
      }
    }
    simd::MatrixPass pass;
    simd::Ahead nothing;  // these rows are not weights
    pass.ahead = &nothing;
    pass.row = s_.row.data();
    pass.rows = terms;
    pass.columns = columns();
    pass.batch = batch();
    pass.x = s_.d1.data();
    pass.dot = s_.term_dot.data();
    pass.dot_stride = terms;
    pass.y = s_.y.data();
    pass.q = s_.term_q.data();
    pass.q_stride = terms;
    simd::matrix_pass<fp32, true>(pass);
    for (std::size_t b = 0; b < batch(); ++b) {
      float* back = s_.back.data() + b * padded_representation();
      for (std::size_t j = 0; j < terms; ++j) {
        const Term& term = listed_terms_[j / batch()];
        const float* h = n_.past.raw(n_.past.slot(t_, 3 + term.age), j % batch(), u_);
        const float factor = term.amount * s_.term_dot.data()[b * terms + j];
        for (std::size_t i = 0; i < hidden_values(); ++i) back[i] += factor * h[i];
      }
    }
  }

  /// This step's gradient takes the place of the oldest one.
  [[gnu::always_inline]] inline void list_gradient() {
    const auto slot = static_cast<std::size_t>(t_ % n_.past.terms());
    for (std::size_t b = 0; b < batch(); ++b) {
      const float* h = n_.past.raw(n_.past.slot(t_, 2), b, u_);
      float* d0 = n_.past.d0(slot, b, u_);
      std::copy_n(s_.back.data() + b * padded_representation(), hidden_values(), d0);
      activation_.times_derivative(h, d0, hidden_values());
      const float* from = s_.d1.data() + b * columns();
      float* d1 = n_.past.d1(slot, b, u_);
      for (std::size_t o = 0; o < columns(); o += simd::width)
        simd::at(d1 + o) = simd::at(from + o);
    }
  }

  using Pass = std::conditional_t<full_precision, simd::MatrixPass, simd::HalfPass>;

  [[gnu::always_inline]] inline void set_matrix(Pass& pass, std::size_t offset, std::size_t rows,
                                                std::size_t columns) {
    pass.ahead = &ahead_;
    if constexpr (full_precision) {
      pass.tiled = weights_.data() + offset;
    } else {
      pass.tiled = weights_.copy() + offset;
    }
    pass.rows = rows;
    pass.columns = columns;
    pass.batch = batch();
  }

  /// The update that is due, in the pass itself or before it, and the pass.
  template <bool Axpy>
  [[gnu::always_inline]] inline void run_pass(Pass& pass, std::size_t offset) {
    if (folding_ > 0) {
      if constexpr (full_precision) {
        if (n_.rule.apply == nullptr) set_fold(pass);
      }
      if (!full_precision || n_.rule.apply != nullptr) update_matrix(pass, offset);
    }
    simd::matrix_pass<Precision, Axpy>(pass);
  }

  [[gnu::always_inline]] inline void set_fold(simd::MatrixPass& pass) {
    pass.term = s_.term_row.data();
    pass.factor = s_.factors.data();
    pass.terms = folding_ * batch();
    pass.velocity = n_.velocity;
    pass.momentum = momentum_;
  }

  [[gnu::always_inline]] inline void update_matrix(const Pass& pass, std::size_t offset) {
    const MatrixUpdate update{
        offset, pass.rows, pass.columns, s_.term_row.data(), s_.factors.data(), folding_ * batch()};
    if (n_.rule.apply == nullptr) {
      fold_matrix(weights_, update);
    } else {
      apply_rule(weights_, update, n_.rule, n_.rule_state.data(), n_.layout.size(), rule_step_);
    }
  }

  const HostNetwork& n_;
  Weights& weights_;
  Scratch& s_;
  simd::Ahead ahead_;
  HostActivation activation_ = {};
  std::uint64_t t_ = 0;
  std::size_t u_ = 0;
  std::size_t listed_ = 0, folding_ = 0;
  float momentum_ = 0;
  RuleStep rule_step_;
  Term listed_terms_[DeferralPlan::most_terms];
  Term folding_terms_[DeferralPlan::most_terms];
};

/// One thread's part of a step.
template <class Step>
struct StepUnits {
  Step& unit_step;
  UnitShares& shares;
  std::size_t thread;
  std::size_t i;  ///< number of the step in its block
  std::uint64_t t;
  StepFrames frames;
  const StepRates& rates;
  Mode mode;

  [[gnu::always_inline]] inline void operator()() const {
    // A thread takes its next unit before it works on this one, to know what memory comes next.
    std::size_t now = shares.take(thread, i, t);
    while (now < shares.units()) {
      const std::size_t then = shares.take(thread, i, t);
      unit_step(t, now, then, frames, rates, mode);
      now = then;
    }
  }
};

}  // namespace pvm::inline v0
