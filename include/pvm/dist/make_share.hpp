// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Decides whether ranks compute on GPUs or on CPUs.

#include <memory>
#include <string>

#include <pvm/core/error.hpp>
#include <pvm/core/log.hpp>
#include <pvm/dist/communicator.hpp>
#include <pvm/dist/gpu_shard.hpp>
#include <pvm/dist/gpus_of_ranks.hpp>
#include <pvm/dist/ranks_by.hpp>
#include <pvm/dist/shard.hpp>
#include <pvm/dist/share.hpp>
#include <pvm/engine/backend_choice.hpp>
#include <pvm/engine/engine.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::dist {

/// What engine the ranks are to make, the same on all of them.
struct ShareTask {
  Spec spec;
  int batch = 1;
  std::string precision;
  EngineOptions options;  ///< `devices`: GPUs for the ranks of a host, see take_gpu
  BackendChoice wanted = BackendChoice::automatic;
};

namespace detail {

/// A share on a GPU, a GPU for each rank. Throws on all ranks alike.
template <Communicator C>
std::unique_ptr<Share> make_gpu_share(C& ranks, const ShareTask& task,
                                      const pvm::detail::GpuEngines* gpu) {
  RanksBy<C> all(ranks);
  if (task.options.shards > 0) {
    throw Error(Fault::usage, "each rank has one shard of the network; leave shards out");
  }
  take_gpu(all, task.options.devices, gpu);
  return std::make_unique<GpuShard<C>>(ranks, task.spec, task.batch, task.options, gpu->make);
}

}  // namespace detail

/// This rank's share: on GPUs if that is wanted, or, if the choice is automatic, if every rank can
/// have one and the network can be divided there. Naming GPUs wants them. All ranks call it with
/// the same task, and all throw what one of them throws: Error (usage, device, memory).
template <Communicator C>
std::unique_ptr<Share> make_share(C& ranks, const ShareTask& task,
                                  const pvm::detail::GpuEngines* gpu) {
  const bool named = !task.options.devices.empty() || task.options.shards > 0;
  if (task.wanted == BackendChoice::host && named) {
    throw Error(Fault::usage,
                "devices and shards are for GPUs, and the run is to be on the host; leave them "
                "out, or choose the cuda backend");
  }
  const bool required = named || task.wanted == BackendChoice::cuda;
  if (required || (gpu != nullptr && task.wanted == BackendChoice::automatic)) {
    try {
      return detail::make_gpu_share(ranks, task, gpu);
    } catch (const Error& error) {
      const bool impossible = error.fault() == Fault::device || error.fault() == Fault::usage;
      if (required || !impossible) throw;
      if (ranks.rank() == 0) {
        log(Severity::warning, std::string("the ranks compute on their CPUs: ") + error.what());
      }
    }
  }
  return std::make_unique<Shard<C>>(ranks, task.spec, task.batch, task.precision, task.options);
}

}  // namespace pvm::inline v0::dist
