// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Asks the engines what they would take on a GPU. Include it from files that nvcc compiles.

#include <cstddef>
#include <string>
#include <utility>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/device/facts.hpp>
#include <pvm/engine/cuda/device/imagined.hpp>
#include <pvm/engine/cuda/device/memory.hpp>
#include <pvm/engine/cuda/device/tuning.hpp>
#include <pvm/engine/cuda/make_engine.hpp>
#include <pvm/engine/device_plan.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail {

/// What `describe_device` would say of a GPU of this kind.
inline DeviceFacts facts_of(const GpuModel& gpu) {
  DeviceFacts facts;
  facts.name = gpu.name;
  facts.multiprocessors = gpu.multiprocessors;
  facts.shared_bytes = gpu.shared;
  facts.tuning = cuda_tuning(gpu.capability / 10);
  facts.is_hopper_or_later = gpu.capability >= 90;
  facts.cache_bytes =
      static_cast<std::size_t>(static_cast<double>(gpu.cache) * facts.tuning.cache_fraction);
  return facts;
}

/// What the engine that `make_cuda_engine` chooses takes on a GPU of the kind `model`, which need
/// not be there; null: on the current device. Throws what `make_cuda_engine` throws, except
/// Fault::memory.
template <class Precision, int Batch, class Net>
DevicePlan plan_cuda_engine(const Spec& spec, int batch, const EngineOptions& options,
                            const GpuModel* model) {
  const DeviceFacts facts = model != nullptr ? facts_of(*model) : describe_device();
  const std::size_t free = model != nullptr ? model->memory : free_memory();
  const Imagining imagining(facts);
  try {
    static_cast<void>(make_cuda_engine<Precision, Batch, Net>(spec, batch, options));
  } catch (Planned& planned) {
    return {std::move(planned.engine), std::move(planned.parts), free};
  }
  throw Error(Fault::device, "this engine does not say what memory it takes");
}

}  // namespace pvm::inline v0::detail
