// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Whether a program was started as one of several ranks.

#include <cstdlib>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::dist {

/// How many ranks the launcher (mpirun, mpiexec, srun) has started, by the environment that it
/// gives them; 1 if the program was started without one.
inline int launched_ranks() {
  const auto number = [](const char* name) {
    const char* const text = std::getenv(name);
    return text == nullptr ? 0 : std::atoi(text);
  };
  // Open MPI; MPICH, Intel MPI and others with its process manager.
  for (const char* name : {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE"}) {
    if (number(name) > 0) return number(name);
  }
  if (std::getenv("PMIX_RANK") != nullptr && number("SLURM_STEP_NUM_TASKS") > 0)
    return number("SLURM_STEP_NUM_TASKS");
  return 1;
}

}  // namespace pvm::inline v0::dist
