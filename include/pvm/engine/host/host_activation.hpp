// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Activations over arrays: how the host engine calls the functions that unit/activation.hpp
/// defines for one value.

#include <cstddef>
#include <string>
#include <type_traits>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
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

template <class Function>
struct ApplyValue {
  const float* sums;
  float* out;
  std::size_t n;
  [[gnu::always_inline]] inline void operator()() const {
    for (std::size_t i = 0; i < n; ++i) out[i] = Function::value(sums[i]);
  }
};

template <class Function>
struct ApplyDerivative {
  const float* values;
  float* d;
  std::size_t n;
  [[gnu::always_inline]] inline void operator()() const {
    for (std::size_t i = 0; i < n; ++i) d[i] *= Function::derivative(values[i]);
  }
};

}  // namespace detail

template <ActivationFunction Function>
inline constexpr HostActivation host_activation = {
    [](const float* sums, float* out, std::size_t n) {
      simd::for_best_isa(detail::ApplyValue<Function>{sums, out, n});
    },
    [](const float* values, float* d, std::size_t n) {
      simd::for_best_isa(detail::ApplyDerivative<Function>{values, d, n});
    }};

/// The program's own activation type `Own` (void: none) if the spec names it; null if the spec
/// names none, and then the spec's keys decide. Throws Error (Fault::spec) for any other name.
template <class Own>
const HostActivation* own_activation_of(const Spec& spec) {
  if (spec.own_activation.empty()) return nullptr;
  if constexpr (!std::is_void_v<Own>) {
    if (spec.own_activation == detail::own_name<Own>()) return &host_activation<Own>;
  }
  throw Error(Fault::spec, "spec " + quote(spec.name) + ": key 'own_activation' is " +
                               quote(spec.own_activation) +
                               ", a type that this program does not have; train it with a program "
                               "that gives its Network pvm::Activation<...> of that name");
}

/// The activation that a spec's keys name, for step `step`. At steps 0 and 1 the past is all ones,
/// where the true derivative of the polynomial is 0; these steps always use the compatible
/// derivative, so that they learn.
inline HostActivation activation_of(const Spec& spec, std::uint64_t step) {
  if (spec.activation == ActivationKind::logistic) return host_activation<Logistic>;
  return spec.true_derivative && step >= 2 ? host_activation<PolynomialTrue>
                                           : host_activation<Polynomial>;
}

}  // namespace pvm::inline v0
