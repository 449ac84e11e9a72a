// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The second half of a unit's step: d1(t), y(t) = f(W1 r(t)) and d0(t).

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include <pvm/core/tags.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/engine/host/hidden_work.hpp>
#include <pvm/engine/host/kernel.hpp>
#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/engine/host/weight_layout.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0 {

/// Reads x(t) from the scratch memory and h(t) from the past; stores y(t) and the factors d0(t) and
/// d1(t) of the gradient in the past.
template <class Precision, int Hidden>
class OutputWork : protected HiddenWork<Precision, Hidden> {
  using Base = HiddenWork<Precision, Hidden>;

 protected:
  using Base::activation_, Base::folding_, Base::folding_terms_, Base::listed_, Base::listed_terms_,
      Base::n_, Base::prefetcher_, Base::s_, Base::t_, Base::u_, Base::batch, Base::columns,
      Base::hidden_values, Base::in_layer_0, Base::inputs, Base::padded_representation,
      Base::product, Base::representation, Base::set_matrix, Base::unit;
  using Base::Base;
  using typename Base::Pass;
  using typename Base::Term;

  /// d1(t) = g(y(t-2)) * e, where e = [A|B](t) - y(t-2) (its sign with opt_abs_diff), and the sums
  /// for the score. `scored`: [batch].
  [[gnu::always_inline]] inline void compute_errors(const std::uint8_t* scored) {
    const auto outputs = static_cast<std::size_t>(unit().outputs);
    Score& score = n_.score[u_];
    for (std::size_t b = 0; b < batch(); ++b) {
      const float* x = s_.x.data() + b * inputs();
      const float* y = n_.past.y(t_ + 1, b, u_);  // y(t - 2), modulo 3
      float* d1 = s_.d1.data() + b * columns();
      simd::Lanes loss = {};
      for (std::size_t o = 0; o < columns(); o += simd::width) {
        prefetcher_.prefetch(8);
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

  /// y(t) = f(W1 r(t)) and, in the scratch memory, W1^T d1(t), in one pass over W1.
  [[gnu::always_inline]] inline void compute_outputs() {
    for (std::size_t b = 0; b < batch(); ++b) {
      n_.past.template gather_representation<Hidden>(t_, 0, b, u_,
                                                     s_.r.data() + b * padded_representation());
    }
    for (std::size_t i = 0; i < batch() * columns(); ++i) s_.y.data()[i] = 0.0F;
    prepare_output_fold();
    run_output_pass();
    if (listed_ > 0) correct_outputs();
    for (std::size_t b = 0; b < batch(); ++b) {
      activation_.value(s_.y.data() + b * columns(), n_.past.y(t_, b, u_), columns());
    }
  }

  /// d0(t) = g(h(t-2)) * W1^T d1(t); d0(t) and d1(t) replace the oldest listed gradient.
  [[gnu::always_inline]] inline void list_gradient() {
    const auto slot = static_cast<std::size_t>(t_ % n_.past.terms());
    for (std::size_t b = 0; b < batch(); ++b) {
      const float* h = n_.past.raw(n_.past.slot(t_, 2), b, u_);
      float* d0 = n_.past.d0(slot, b, u_);
      std::copy_n(s_.backpropagated.data() + b * padded_representation(), hidden_values(), d0);
      activation_.times_derivative(h, d0, hidden_values());
      const float* from = s_.d1.data() + b * columns();
      float* d1 = n_.past.d1(slot, b, u_);
      for (std::size_t o = 0; o < columns(); o += simd::width)
        simd::at(d1 + o) = simd::at(from + o);
    }
  }

 private:
  /// Adds the patch of sequence b to the score. `y`: y(t-2).
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

  /// Prepares the terms (rows d1_j) and factors (coefficient * r_j) of the fold or update of W1.
  [[gnu::always_inline]] inline void prepare_output_fold() {
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
        for (std::size_t i = 0; i < rows; ++i)
          factor[i * terms] = folding_terms_[j].coefficient * r[i];
      }
    }
  }

  /// The pass over the rows of W1^T: W1^T d1 to `backpropagated`, W1 r to `y`.
  [[gnu::always_inline]] inline void run_output_pass() {
    const UnitWeights& w = n_.layout[u_];
    Pass pass;
    set_matrix(pass, w.w1, representation(), w.w1_columns);
    pass.x = s_.d1.data();
    pass.dot = s_.backpropagated.data();
    pass.dot_stride = padded_representation();
    pass.y = s_.y.data();
    pass.q = s_.r.data();
    pass.q_stride = padded_representation();
    Base::template run_pass<true>(pass, w.w1);
  }

  /// r(t) . r_j for all listed gradients j: sums, over the sources, of the shared inner products.
  [[gnu::always_inline]] inline void sum_representation_products() {
    float* products = s_.products.data();
    const std::size_t size = n_.raw_products.size();
    std::fill_n(products, size, 1.0F);  // the bias
    simd::add(products, n_.raw_products.at(t_ + 1, u_), size);
    if (representation() == hidden_values() + 1) return;
    for (const auto s : n_.net.context[u_]) simd::add(products, n_.raw_products.at(t_, s), size);
  }

  /// Corrects y and W1^T d1 for the listed gradients, as if they were further rows of W1^T: row
  /// d1_j with the left factor w_j (r . r_j).
  [[gnu::always_inline]] inline void correct_outputs() {
    sum_representation_products();
    const std::size_t terms = listed_ * batch();
    list_rows(terms);
    simd::MatrixPass pass;
    simd::Prefetcher nothing;  // prefetches nothing: these rows are not weights
    pass.prefetcher = &nothing;
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
    correct_backpropagated(terms);
  }
  /// Lists the rows d1_j and their left factors. `terms`: listed gradients times batch.
  [[gnu::always_inline]] inline void list_rows(std::size_t terms) {
    s_.row.clear();
    for (std::size_t j = 0; j < listed_; ++j) {
      const Term& term = listed_terms_[j];
      for (std::size_t c = 0; c < batch(); ++c) {
        s_.row.push_back(n_.past.d1(term.slot, c, u_));
        for (std::size_t b = 0; b < batch(); ++b) {
          s_.term_q.data()[b * terms + j * batch() + c] = term.coefficient * product(b, term, c);
        }
      }
    }
  }
  /// Adds what these rows make of W1^T d1: h_j with the factor w_j (d1_j . d1).
  [[gnu::always_inline]] inline void correct_backpropagated(std::size_t terms) {
    for (std::size_t b = 0; b < batch(); ++b) {
      float* backpropagated = s_.backpropagated.data() + b * padded_representation();
      for (std::size_t j = 0; j < terms; ++j) {
        const Term& term = listed_terms_[j / batch()];
        const float* h = n_.past.raw(n_.past.slot(t_, 3 + term.age), j % batch(), u_);
        const float factor = term.coefficient * s_.term_dot.data()[b * terms + j];
        for (std::size_t i = 0; i < hidden_values(); ++i) backpropagated[i] += factor * h[i];
      }
    }
  }
};

}  // namespace pvm::inline v0
