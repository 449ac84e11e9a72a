// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes frozen steps on a GPU. Include it from files that nvcc compiles.

#include <cstddef>
#include <memory>
#include <span>

#include <pvm/core/tags.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/infer/forward.hpp>
#include <pvm/infer/frozen_network.hpp>
#include <pvm/infer/gpu/forward.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::infer::gpu {

template <class Format>
std::unique_ptr<Forward> make(const Spec& spec, const ReadRow& read_row, Team& team,
                              std::size_t rows) {
  using Made = GpuForward<Format>;
  return std::make_unique<Made>(spec, read_row, team, typename Made::Options{rows});
}

/// A network of pvm::quantize, in its own format.
inline std::unique_ptr<Forward> of_bytes(const FrozenNetwork& network, Team& team,
                                         std::size_t rows) {
  if (network.format == FrozenFormat::int8) {
    return make<Int8>(network.spec, rows_of(network), team, rows);
  }
  return make<Fp8>(network.spec, rows_of(network), team, rows);
}
/// Weights in reference order, rounded to bf16 or fp16.
inline std::unique_ptr<Forward> of_weights(const Spec& spec, std::span<const float> weights,
                                           bool in_bf16, Team& team, std::size_t rows) {
  return in_bf16 ? make<SixteenBits<bf16>>(spec, rows_of(weights), team, rows)
                 : make<SixteenBits<fp16>>(spec, rows_of(weights), team, rows);
}

}  // namespace pvm::inline v0::infer::gpu
