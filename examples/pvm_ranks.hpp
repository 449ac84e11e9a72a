// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// `pvm` as several ranks: mpirun -n 4 pvm ... Rank 0 is the program as ever; the others compute
/// their share of the network for it.

#include <string>
#include <vector>

#include <signal.h>

#include <pvm/engine/engine_maker.hpp>

namespace ranks_of_run {

/// Stops a run of several ranks: mpirun passes this signal on, and kills nobody after it.
inline constexpr int stop_signal = SIGUSR1;

/// Runs `program` on rank 0, and what it needs on the others. Returns the exit code.
int run(int argc, char** argv, int (*program)(int, char**));

/// What makes the engines of the ranks; null if there is only one.
pvm::EngineMaker* maker();

/// Throws pvm::Error if another rank has other files at these paths.
void compare_files(const std::vector<std::string>& paths);

}  // namespace ranks_of_run
