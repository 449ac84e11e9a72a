// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How the benchmarks of this directory begin and end that are not Google Benchmark's: a command
/// line, and one sentence where something fails.

#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>

#include <pvm/core/error.hpp>

namespace pvm_bench {

/// Reads the command line and calls `run`. Returns the exit code, as pvm's: 2 where what was asked
/// for is impossible, 1 where anything else fails.
template <class Run>
int run_app(CLI::App& app, int argc, char** argv, Run&& run) {
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {  // --help too
    return app.exit(error) == 0 ? 0 : 2;
  }
  const auto say = [&](const std::exception& error) {
    std::cerr << app.get_name() << ": " << error.what() << '\n';
  };
  try {
    run();
  } catch (const pvm::Error& error) {
    say(error);
    return error.fault() == pvm::Fault::usage || error.fault() == pvm::Fault::spec ? 2 : 1;
  } catch (const std::exception& error) {
    say(error);
    return 1;
  }
  return 0;
}

}  // namespace pvm_bench
