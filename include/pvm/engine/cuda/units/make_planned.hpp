// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes an engine of whole units, or its shards, if there is a plan for the network. Include it
/// from files that nvcc compiles.

#include <concepts>
#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include <pvm/core/tags.hpp>
#include <pvm/engine/any_engine.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/units/engine.hpp>
#include <pvm/engine/cuda/units/shards.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail {

/// The numbers of hidden values for which the engines in `units/` are compiled: that of most
/// published models, and others that fit tiles. Of the smaller one there are only the engines that
/// keep weights on the chip, of the larger ones only that which streams bf16. They are not
/// specialised for the types of networks: a network that is a type runs on the same engine as its
/// spec in a file, and so gives the same bits.
inline constexpr int units_hidden = units::published_hidden, small_units_hidden = 36,
                     large_units_hidden = 64, largest_units_hidden = 100;

/// That of these which runs units of `hidden` values, padded if they are fewer; 0 if none does.
template <class Precision>
constexpr int padded_hidden(int hidden) {
  if (hidden == units_hidden) return units_hidden;
  if (hidden >= 1 && hidden <= small_units_hidden) return small_units_hidden;
  if (!std::same_as<Precision, bf16>) return 0;
  if (hidden == large_units_hidden) return large_units_hidden;
  return hidden > large_units_hidden && hidden <= largest_units_hidden ? largest_units_hidden : 0;
}

/// Whether CudaStreamedEngine is the better choice. It is not for fp32 weights of at most twice the
/// size of the L2 cache: CudaGeneralEngine is faster then, because it keeps weights in that cache.
template <class Precision>
bool worth_streaming(const Spec& spec) {
  const std::size_t bytes = make_connectome(spec).weights * sizeof(float);
  return !std::same_as<Precision, fp32> || bytes > 2 * describe_device().cache_bytes;
}

/// Whether engines of type `E` are compiled for shards: not fp16, other units, outputs that read
/// the context, long lists and activations of the program's own, which would take the compiler
/// longer than they are worth.
template <class E>
inline constexpr bool can_be_divided =
    !std::same_as<typename E::precision, fp16> && !E::reads_context && !E::long_lists &&
    E::library_activation && std::same_as<E, typename E::template with_hidden<units_hidden>>;

/// An engine of type `E` for one sequence, or its shards if `options` divide the network, if there
/// is a plan for `spec`, which the engine keeps: a plan is made once.
template <class E>
std::optional<AnyEngine> make_if_planned(const Spec& spec, const EngineOptions& options) {
  std::string why;
  if (options.divided()) {
    if constexpr (can_be_divided<E>) {
      using Shards = CudaShardsEngine<E>;
      const std::optional<typename Shards::Plan> divided = Shards::plan(spec, options, why);
      if (divided) return AnyEngine::make<Shards>(spec, *divided, options);
    }
    return std::nullopt;
  }
  std::optional<typename E::Plan> plan = E::plan(spec, why);
  if (!plan) return std::nullopt;
  return AnyEngine::make<E>(spec, std::move(*plan), options);
}

}  // namespace pvm::inline v0::detail
