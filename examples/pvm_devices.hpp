// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The command `pvm devices`.

#include <cstdio>
#include <string>

#include <CLI/CLI.hpp>

#include <pvm/core/error.hpp>
#include <pvm/core/printable.hpp>
#include <pvm/engine/choose.hpp>

namespace devices_command {

struct Options {
  bool quiet = false;
};

inline void describe(CLI::App& app, Options&) {
  app.footer(R"(
pvm --device N trains on GPU N of this list. CUDA_VISIBLE_DEVICES=2,0 in the environment makes GPU 2
the first of the list and GPU 0 the second, and hides the others.)");
}

inline int devices(const Options&) {
  std::string why;
  const auto all = pvm::gpus(&why);
  if (all.empty()) throw pvm::Error(pvm::Fault::device, why);
  for (const pvm::GpuInfo& gpu : all) {
    std::printf("%d: %s, %.1f GB, %d multiprocessors, compute capability %d.%d\n", gpu.index,
                pvm::printable(gpu.name).c_str(), static_cast<double>(gpu.memory) / 1e9,
                gpu.multiprocessors, gpu.capability / 10, gpu.capability % 10);
  }
  return 0;
}

}  // namespace devices_command
