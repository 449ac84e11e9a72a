// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How a program makes frozen steps on a GPU, if it can: as for engines (engine/choose.hpp), they
/// are in pvm::compiled, or in what nvcc compiles.

#include <concepts>
#include <cstddef>
#include <memory>
#include <span>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/core/tags.hpp>
#include <pvm/engine/choose.hpp>
#include <pvm/engine/host/team.hpp>
#include <pvm/infer/forward.hpp>
#include <pvm/infer/frozen_network.hpp>
#include <pvm/model/network.hpp>
#include <pvm/model/spec.hpp>

#if defined(__CUDACC__) && !defined(PVM_COMPILED)
#include <pvm/infer/gpu/make_forward.hpp>
#endif

namespace pvm::inline v0::infer {

struct GpuForwards {
  bool (*available)(std::string* why);
  /// `team` copies for it, and must outlive it. Both throw Error (usage) if there is no such GPU.
  std::unique_ptr<Forward> (*of_bytes)(const FrozenNetwork& network, Team& team,
                                       const GpuPlace& place);
  /// In bf16, or else fp16. `weights`: in reference order.
  std::unique_ptr<Forward> (*of_weights)(const Spec& spec, std::span<const float> weights,
                                         bool in_bf16, Team& team, const GpuPlace& place);
};

#if defined(PVM_COMPILED)
/// Those in pvm::compiled; null if it was built without nvcc.
const GpuForwards* gpu_forwards_in_library();
#endif

/// Those that this file can use; null if there are none.
template <class Backend>
const GpuForwards* gpu_forwards() {
  if constexpr (std::same_as<Backend, host>) {
    return nullptr;
  } else {
#if defined(PVM_COMPILED)
    return gpu_forwards_in_library();
#elif defined(__CUDACC__)
    static constexpr GpuForwards all{cuda_available, gpu::of_bytes, gpu::of_weights};
    return &all;
#else
    return nullptr;
#endif
  }
}

/// Those for a choice of backend; null for the host. Throws Error (Fault::device) if a GPU is asked
/// for and cannot be used.
inline const GpuForwards* gpu_forwards_for(BackendChoice wanted) {
  if (wanted == BackendChoice::host) return nullptr;
  const GpuForwards* all = gpu_forwards<DefaultBackend<RuntimeNetwork>>();
  std::string why = "this program was built without CUDA; build it with nvcc (PVM_CUDA=ON)";
  if (all != nullptr && all->available(&why)) return all;
  if (wanted == BackendChoice::cuda) throw Error(Fault::device, "no GPU can be used: " + why);
  log(Severity::warning, "no GPU can be used, so the CPU predicts: " + why);
  return nullptr;
}

}  // namespace pvm::inline v0::infer
