// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How much main memory a run on the host takes, by purpose, before it begins.

#include <algorithm>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

#include <pvm/core/tags.hpp>
#include <pvm/engine/host/host_rule.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/engine/host/update_scheme.hpp>
#include <pvm/engine/host/weight_layout.hpp>
#include <pvm/engine/host/weight_store.hpp>
#include <pvm/engine/memory_part.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0 {

/// What a run takes all the time, and what it takes besides at its start and when it saves.
struct MemoryEstimate {
  MemoryParts parts{};
  MemoryPart passing{};  ///< the largest of what is taken for a moment only

  [[nodiscard]] std::size_t lasting() const { return sum_of(parts); }
  /// The most that is taken at once.
  [[nodiscard]] std::size_t peak() const { return lasting() + passing.bytes; }
};

/// What the frames of a run take.
struct FramesAhead {
  std::size_t streams = 1;  ///< sequences of the batch
  std::size_t ahead = 256;  ///< most frames that each reads ahead
  std::size_t cached = 0;   ///< frames in the frame cache
};

namespace detail {

/// Bytes of a HugeArray of `count` floats.
inline std::size_t array_bytes(std::size_t count) {
  constexpr std::size_t page = std::size_t{2} << 20;
  const std::size_t bytes = count * sizeof(float) + 64;
  return bytes < page ? bytes : (bytes + page - 1) / page * page;
}

}  // namespace detail

/// The estimate for a run of the host engine on `spec`, which must be valid. `threads`: of the
/// engine; `goes_on`: it begins with a checkpoint, which is in memory already. What the program and
/// its libraries take is not in it (see `resident_bytes`).
template <class Precision>
MemoryEstimate estimate_host_memory(const Spec& of, int batch, int threads,
                                    const FramesAhead& frames, Reduce reduce = Reduce::mean,
                                    bool goes_on = false) {
  const Spec spec = with_schedule_of_rule(of);
  const Connectome net = make_connectome(spec);
  const WeightLayout layout(net, WeightStore<Precision>::group);
  const UpdateScheme scheme = UpdateScheme::of<Precision>(spec, batch, reduce);
  const auto b = static_cast<std::size_t>(batch);
  const auto terms = static_cast<std::size_t>(scheme.plan.terms);
  const std::size_t units = net.units.size(), patches = net.layer_start[1];
  const std::size_t stride = simd::padded(static_cast<std::size_t>(net.hidden));
  const auto patch =
      static_cast<std::size_t>(spec.input_block_size * spec.input_block_size * spec.input_channels);
  const auto array = [](std::size_t count) { return detail::array_bytes(count); };
  MemoryEstimate estimate;
  const auto add = [&estimate](std::string purpose, std::size_t bytes) {
    if (bytes > 0) estimate.parts.push_back({std::move(purpose), bytes});
  };

  const std::size_t copy = std::same_as<Precision, fp32> ? 0 : array(layout.size() / 2);
  const std::size_t master =
      std::same_as<Precision, bf16> ? array(layout.size() / 2) : array(layout.size());
  add("weights", master + copy);
  std::size_t arrays = scheme.momentum_array() ? 1 : 0;
  if (scheme.by_rule) {
    arrays = static_cast<std::size_t>(rule_of<RuntimeNetwork::rule>(spec).state);
  }
  add(scheme.by_rule ? "state of the learning rule" : "momentum", arrays * array(layout.size()));

  std::size_t outputs = 0, most_inputs = 0, most_outputs = 0, most_representation = 0;
  for (const Unit& unit : net.units) {
    const std::size_t padded = layout.padded(static_cast<std::size_t>(unit.outputs));
    outputs += padded;
    most_outputs = std::max(most_outputs, padded);
    most_inputs = std::max(most_inputs, layout.padded(static_cast<std::size_t>(unit.inputs)));
    most_representation =
        std::max(most_representation, simd::padded(static_cast<std::size_t>(unit.representation)));
  }
  const std::size_t depth = terms + 5;
  add("past of activity and gradients",
      2 * array(depth * b * units * stride) + array(depth * b * patches * simd::padded(patch)) +
          array(3 * b * outputs) + array(terms * b * units * stride) + array(terms * b * outputs));
  if (!scheme.immediate) {
    const std::size_t products = simd::padded(terms * b * b);
    add("inner products", 2 * array(3 * units * products) + array(3 * patches * products));
  }
  const std::size_t listed = terms * b;
  const std::size_t scratch = array(b * most_inputs) + array(b * most_representation) +
                              array(b * stride) + array(b * most_representation) +
                              2 * array(b * most_outputs) +
                              array(listed * std::max(most_inputs, most_representation)) +
                              array(std::max(stride, most_representation) * listed) +
                              (scheme.immediate ? 0 : 2 * array(b * listed));
  add("scratch of the threads", static_cast<std::size_t>(threads) * scratch);
  add("wiring", units * (2 * sizeof(Unit) + sizeof(UnitWeights)) +
                    2 * sizeof(std::uint32_t) * (net.primary.ids.size() + net.context.ids.size()));
  const std::size_t frame = spec.frame_size();
  add("frames read ahead", frames.streams * frames.ahead * frame);
  add("frame cache", frames.cached * frame);

  // What glibc does not give back: a freed array of up to 32 MB, which it expects to be asked for
  // again.
  constexpr std::size_t most_kept = std::size_t{32} << 20;
  const std::size_t one_array = array(layout.size());
  add("kept by the allocator", one_array < most_kept ? one_array : 0);

  // Saving: the weights of the step and those that are folded, learning's arrays, and the past.
  const std::size_t histories =
      (terms + 4) * b * (2 * units * static_cast<std::size_t>(net.hidden) + frame) +
      (2 + terms) * b * net.outputs + terms * b * units * static_cast<std::size_t>(net.hidden);
  const std::size_t saved = sizeof(float) * ((2 + arrays) * net.weights + histories);
  estimate.passing = {"saving a checkpoint", saved};
  // It has the room of the one that was loaded, which is freed before.
  if (goes_on) estimate.passing = {"saving a checkpoint, in the loaded one's room", 0};
  return estimate;
}

}  // namespace pvm::inline v0
