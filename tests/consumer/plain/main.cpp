// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// A program that has the headers and nothing else: no CUDA, no OpenCV, no JSON. It runs an engine on
// a network that is a type.

#include <algorithm>
#include <cstdint>
#include <cstdio>

#include <pvm/engine/host/engine.hpp>
#include <pvm/model/network.hpp>

using Net = pvm::Network<pvm::Input<12, 1, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<4>>;

int main() {
  pvm::HostEngine<1, pvm::fp32, Net> engine{Net::spec()};
  pvm::EngineState start;
  start.weights.assign(engine.connectome().weights, 0.01F);
  engine.restore(start);
  for (int t = 0; t < 50; ++t) {
    const auto block = engine.stage(1);
    std::fill(block.pixels.begin(), block.pixels.end(), static_cast<std::uint8_t>(t));
    engine.run(block, pvm::Mode::learn);
  }
  std::printf("pvm %d.%d.%d: %llu steps\n", PVM_VERSION_MAJOR, PVM_VERSION_MINOR, PVM_VERSION_PATCH,
              static_cast<unsigned long long>(engine.step()));
  return engine.step() == 50 ? 0 : 1;
}
