// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Shared by the benchmarks here that do not use Google Benchmark: parses the command line, and
/// reports a failure in one sentence.

#include <exception>
#include <iostream>

#include <CLI/CLI.hpp>

#include <pvm/core/error.hpp>

namespace pvm_bench {

/// Parses the command line and calls `run`. Returns the exit code, as `pvm` does: 0, 2 if the
/// arguments or the spec are wrong, 1 for any other failure.
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
