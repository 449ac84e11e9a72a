// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Networks of whole units with an activation of the program's own. A program that has one compiles
/// its kernels, so it compiles one engine for them: that on which the network runs on a GPU of
/// about a hundred multiprocessors. Include it from files that nvcc compiles.

#include <concepts>
#include <cstddef>
#include <optional>

#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/cuda/numbers/network_constants.hpp>
#include <pvm/engine/cuda/units/engine.hpp>
#include <pvm/engine/cuda/units/make_planned.hpp>
#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail {

/// Where an engine for units of `Hidden` values, padding included, has the weights of a network
/// with these values; nothing if there is no such engine. Those of units of 49 values stay on the
/// chip if a multiprocessor has at most three units, those of smaller ones always, and those of
/// larger ones never.
template <class Precision, int Hidden>
constexpr std::optional<units::Home> home_of(const NetworkValues& values) {
  using units::Home;
  constexpr bool published = Hidden == units_hidden;
  constexpr int most_resident = 400;
  if (values.feed_context_in_complex_layer) {
    if (published && std::same_as<Precision, bf16>) return Home::streamed_context;
    return std::nullopt;
  }
  if constexpr (Hidden > units_hidden) {
    return Home::streamed;
  } else {
    int units = 0;
    for (std::size_t l = 0; l < values.layer_shapes.size(); ++l) {
      units += values.layer_shapes[l] * values.layer_shapes[l];
    }
    if (published && units > most_resident) return Home::streamed;
    if (units::dies_out<Precision, Hidden, Home::resident>(values.momentum)) return Home::resident;
    if (published && std::same_as<Precision, fp32>) return Home::resident_long_lists;
    return std::nullopt;
  }
}

/// The engine in `units/` for `spec`, which is that of `Net`, if there is one.
template <class Precision, class Net>
std::optional<AnyEngine> make_own_units(const Spec& spec, const EngineOptions& options) {
  constexpr int hidden = padded_hidden<Precision>(Net::hidden);
  if constexpr (hidden > 0) {
    constexpr std::optional<units::Home> home = home_of<Precision, hidden>(Net::values);
    if constexpr (home.has_value()) {
      using E = CudaUnitsEngine<Precision, hidden, *home, OwnOnGpu<Net>>;
      if (E::streams && !worth_streaming<Precision>(spec)) return std::nullopt;
      return make_if_planned<E>(spec, options);
    }
  }
  return std::nullopt;
}

}  // namespace pvm::inline v0::detail
