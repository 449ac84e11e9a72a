// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernels know about a network at compile time, and how the library's activations are
/// numbered in kernel arguments.

#include <string>
#include <type_traits>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail {

/// Compile-time constants of a kernel. `hidden`: the hidden values of a unit, or 0 if the kernel's
/// arguments hold the number. `Own`: an activation type that the program defines, or void for the
/// library's, which the kernel's arguments choose.
template <int Hidden = 0, class OwnActivation = void>
struct NetworkConstants {
  static constexpr int hidden = Hidden;
  using Own = OwnActivation;
};

/// The activation of `Net` if the program defines it and it runs on GPUs, else void.
template <class Net, class A = typename Net::activation>
using OwnOnGpu = std::conditional_t<RunsOnGpu<A>, A, void>;

/// The constants of the network type `Net`.
template <class Net>
using ConstantsOf = NetworkConstants<Net::hidden == dynamic ? 0 : Net::hidden, OwnOnGpu<Net>>;

/// What `Spec::own_activation` has to be for kernels that are compiled for the activation `Own`;
/// empty if that is void.
template <class Own>
std::string known_activation() {
  if constexpr (std::is_void_v<Own>) {
    return {};
  } else {
    return std::string(own_name<Own>());
  }
}

/// Throws Error (usage) unless the spec names the activation `Own` (void: one of the library's).
template <class Own>
void check_own_activation(const Spec& spec) {
  const std::string known = known_activation<Own>();
  if (spec.own_activation != known) {
    throw Error(Fault::usage,
                "the spec's activation is " +
                    (spec.own_activation.empty() ? "the library's" : quote(spec.own_activation)) +
                    " and this engine was compiled for " +
                    (known.empty() ? "the library's" : quote(known)));
  }
}

/// The number of the spec's activation in kernel arguments: 0 polynomial, 1 polynomial with the
/// true derivative, 2 logistic.
inline int activation_number(const Spec& spec) {
  if (spec.activation == ActivationKind::logistic) return 2;
  return spec.true_derivative ? 1 : 0;
}

}  // namespace pvm::inline v0::detail
