// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The body of choose.hpp.

#include <string>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/engine/choose.hpp>

namespace pvm::inline v0::detail {

PVM_INLINE AnyEngine choose_engine(const Spec& spec, int batch, const EngineOptions& options,
                                   BackendChoice wanted, bool required, bool host_can,
                                   MakeEngine host, const GpuEngines* gpu) {
  if (!options.devices.empty() || options.shards > 0) {
    if (wanted == BackendChoice::host) {
      throw Error(Fault::usage,
                  "devices and shards are for GPUs, and the run is to be on the host; leave them "
                  "out, or choose the cuda backend");
    }
    required = true;
  }
  if (gpu == nullptr && required) throw Error(Fault::device, built_without_cuda);
  if (gpu == nullptr || wanted == BackendChoice::host) return host(spec, batch, options);
  std::string why;
  if (!gpu->available(&why)) {
    if (required) throw Error(Fault::device, "no GPU can be used: " + why);
    log(Severity::warning, "no GPU can be used, so the run uses the CPU: " + why);
    return host(spec, batch, options);
  }
  try {
    return gpu->make(spec, batch, options);
  } catch (const Error& error) {  // no kernels for this GPU, or none for this network
    if (required || !host_can || error.fault() != Fault::device) throw;
    log(Severity::warning, std::string("the CPU is used: ") + error.what());
    return host(spec, batch, options);
  }
}

}  // namespace pvm::inline v0::detail
