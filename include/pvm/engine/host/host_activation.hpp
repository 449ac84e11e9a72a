// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// An activation applied to whole vectors: how the host engine calls what unit/activation.hpp
/// defines for one value.

#include <cstddef>

#include <pvm/engine/host/simd.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0 {

/// The two functions of an activation, over n values.
struct HostActivation {
  void (*value)(const float* sums, float* out, std::size_t n);             ///< out = f(sums)
  void (*times_derivative)(const float* values, float* d, std::size_t n);  ///< d *= g(values)
};

namespace detail {

template <class Activation>
struct ApplyValue {
  const float* sums;
  float* out;
  std::size_t n;
  [[gnu::always_inline]] inline void operator()() const {
    for (std::size_t i = 0; i < n; ++i) out[i] = Activation::value(sums[i]);
  }
};

template <class Activation>
struct ApplyDerivative {
  const float* values;
  float* d;
  std::size_t n;
  [[gnu::always_inline]] inline void operator()() const {
    for (std::size_t i = 0; i < n; ++i) d[i] *= Activation::derivative(values[i]);
  }
};

}  // namespace detail

template <class Activation>
inline constexpr HostActivation host_activation = {
    [](const float* sums, float* out, std::size_t n) {
      simd::for_best_isa(detail::ApplyValue<Activation>{sums, out, n});
    },
    [](const float* values, float* d, std::size_t n) {
      simd::for_best_isa(detail::ApplyDerivative<Activation>{values, d, n});
    }};

/// The activation a spec asks for at step `step`. At steps 0 and 1 the past is all ones, where the
/// true derivative of the polynomial is 0; the compatible one makes them learn in either case.
inline HostActivation activation_of(const Spec& spec, std::uint64_t step) {
  if (spec.activation == Activation::logistic) return host_activation<Logistic>;
  return spec.true_derivative && step >= 2 ? host_activation<PolynomialTrue>
                                           : host_activation<Polynomial>;
}

}  // namespace pvm::inline v0
