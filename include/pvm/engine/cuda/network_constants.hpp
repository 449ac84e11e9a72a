// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernels know of a network and a batch when they are compiled, and what they are told of
/// its activation instead.

#include <string>
#include <type_traits>

#include <pvm/core/error.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail {

/// `hidden`: the hidden values of a unit, 0 where a kernel's arguments tell. `Own`: an activation
/// of the program's own, void for the library's, which the arguments choose.
template <int Hidden = 0, class OwnActivation = void>
struct NetworkConstants {
  static constexpr int hidden = Hidden;
  using Own = OwnActivation;
};

/// The activation of `Net` if it is one of the program's own that runs on GPUs, else void.
template <class Net, class A = typename Net::activation>
using OwnOnGpu = std::conditional_t<RunsOnGpu<A>, A, void>;

/// What the type `Net` makes known.
template <class Net>
using ConstantsOf = NetworkConstants<Net::hidden == dynamic ? 0 : Net::hidden, OwnOnGpu<Net>>;

/// Throws Error (usage) for a spec with another activation of a program's own than `Own`.
template <class Own>
void check_own_activation(const Spec& spec) {
  std::string known;
  if constexpr (!std::is_void_v<Own>) known = own_name<Own>();
  if (spec.own_activation != known) {
    throw Error(Fault::usage,
                "the spec's activation is " +
                    (spec.own_activation.empty() ? "the library's" : quote(spec.own_activation)) +
                    " and this engine was compiled for " +
                    (known.empty() ? "the library's" : quote(known)));
  }
}

/// Which of the library's activations the arguments choose: 0 polynomial, 1 with the true
/// derivative, 2 logistic.
inline int activation_number(const Spec& spec) {
  if (spec.activation == ActivationKind::logistic) return 2;
  return spec.true_derivative ? 1 : 0;
}

}  // namespace pvm::inline v0::detail
