// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The first half of a unit's step: x(t) and h(t) = f(W0 x(t)).

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/past_products.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/engine/host/step_inputs.hpp>
#include <pvm/engine/host/unit_task.hpp>
#include <pvm/engine/host/weight_layout.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0 {

/// Stores x(t) in the scratch memory and h(t) in the past.
template <class Precision, int Hidden>
class HiddenWork : protected UnitTask<Precision, Hidden> {
  using Base = UnitTask<Precision, Hidden>;

 protected:
  using Base::activation_, Base::folding_, Base::folding_terms_, Base::listed_, Base::listed_terms_,
      Base::n_, Base::prefetcher_, Base::s_, Base::t_, Base::u_, Base::batch, Base::hidden_values,
      Base::in_layer_0, Base::inputs, Base::product, Base::set_matrix;
  using Base::Base;
  using typename Base::Pass;
  using typename Base::Term;

  /// Gathers x(t). In layer 0 also takes the patch from the frame, and computes its inner products
  /// with earlier patches; not if that is done (`first` is false).
  [[gnu::always_inline]] inline void gather_input(const StepFrames& frames, bool first = true) {
    Past& past = n_.past;
    const std::size_t now = past.slot(t_, 0);
    for (int i = 0; i < 32; ++i) prefetcher_.prefetch(8);
    for (std::size_t b = 0; b < batch(); ++b) {
      if (first && in_layer_0()) take_patch(frames, now, b);
      past.template gather_input<Hidden>(t_, 0, b, u_, s_.x.data() + b * inputs());
    }
    if (first && in_layer_0()) compute_patch_products(n_, t_, 0, u_, prefetcher_);
  }

  /// h(t) = f(W0 x(t)), where W0 is the stored matrix plus w_j times each listed gradient j.
  [[gnu::always_inline]] inline void compute_hidden() {
    prepare_hidden_fold();
    const UnitWeights& w = n_.layout[u_];
    Pass pass;
    set_matrix(pass, w.w0, hidden_values(), w.w0_columns);
    pass.x = s_.x.data();
    pass.dot = s_.sums.data();
    pass.dot_stride = n_.past.stride();
    Base::template run_pass<false>(pass, w.w0);
    if (listed_ > 0) {
      sum_input_products();
      correct_hidden();
    }
    activate_hidden();
  }

 private:
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

  /// Prepares the terms (rows x_j) and factors (coefficient * d0_j) of the fold or update of W0.
  [[gnu::always_inline]] inline void prepare_hidden_fold() {
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
          factor[i * terms] = folding_terms_[j].coefficient * d0[i];
        }
      }
    }
  }

  /// x(t) . x_j for all listed gradients j: sums, over the sources, of the shared inner products.
  /// The B half of x uses those of step t - 1.
  [[gnu::always_inline]] inline void sum_input_products() {
    float* products = s_.products.data();
    const std::size_t size = n_.squeezed_products.size();
    std::fill_n(products, size, 1.0F);  // the bias
    if (in_layer_0()) {
      simd::add(products, n_.patch_products.at(t_, u_), size);
      simd::add(products, n_.patch_products.at(t_ + 2, u_), size);  // of step t - 1, modulo 3
    }
    for (const auto s : n_.net.primary[u_]) {
      simd::add(products, n_.squeezed_products.at(t_, s), size);
      simd::add(products, n_.squeezed_products.at(t_ + 2, s), size);
    }
    for (const auto s : n_.net.context[u_])
      simd::add(products, n_.squeezed_products.at(t_, s), size);
  }

  /// W0 x += sum over j of w_j (x . x_j) d0_j.
  [[gnu::always_inline]] inline void correct_hidden() {
    for (std::size_t b = 0; b < batch(); ++b) {
      float* sums = s_.sums.data() + b * n_.past.stride();
      for (std::size_t j = 0; j < listed_; ++j) {
        const Term& term = listed_terms_[j];
        for (std::size_t c = 0; c < batch(); ++c) {
          simd::add_scaled(sums, term.coefficient * product(b, term, c),
                           n_.past.d0(term.slot, c, u_), n_.past.stride());
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
};

}  // namespace pvm::inline v0
