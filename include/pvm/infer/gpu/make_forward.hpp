// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes frozen steps on a GPU. Include it from files that nvcc compiles.

#include <cstddef>
#include <memory>
#include <span>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/devices.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/infer/forward.hpp>
#include <pvm/infer/frozen_network.hpp>
#include <pvm/infer/gpu/forward.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::infer::gpu {

template <class Format>
std::unique_ptr<Forward> make(const Spec& spec, const ReadRow& read_row, Team& team,
                              const GpuPlace& place) {
  if (place.device >= 0) {
    detail::require_devices({place.device});
    detail::cuda_check(cudaSetDevice(place.device), "choosing the GPU");
  }
  using Made = GpuForward<Format>;
  return std::make_unique<Made>(spec, read_row, team, typename Made::Options{place.rows});
}

/// A network of pvm::quantize, in its own format.
inline std::unique_ptr<Forward> of_bytes(const FrozenNetwork& network, Team& team,
                                         const GpuPlace& place) {
  if (network.format == FrozenFormat::int8) {
    return make<Int8>(network.spec, rows_of(network), team, place);
  }
  return make<Fp8>(network.spec, rows_of(network), team, place);
}
/// Weights in reference order, rounded to bf16 or fp16.
inline std::unique_ptr<Forward> of_weights(const Spec& spec, std::span<const float> weights,
                                           bool in_bf16, Team& team, const GpuPlace& place) {
  return in_bf16 ? make<SixteenBits<bf16>>(spec, rows_of(weights), team, place)
                 : make<SixteenBits<fp16>>(spec, rows_of(weights), team, place);
}

}  // namespace pvm::inline v0::infer::gpu
