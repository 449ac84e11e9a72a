// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How the benchmarks of this directory begin and end that are not Google Benchmark's: a command
/// line, and one sentence where something fails.

#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>

namespace pvm_bench {

/// Reads the command line and calls `run`. Returns the exit code: 2 where it cannot be read, 1
/// where `run` throws.
template <class Run>
int run_app(CLI::App& app, int argc, char** argv, Run&& run) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // --help too
    return app.exit(error) == 0 ? 0 : 2;
  }
  try {
    run();
  } catch (const std::exception& error) {
    std::cerr << app.get_name() << ": " << error.what() << '\n';
    return 1;
  }
  return 0;
}

}  // namespace pvm_bench
