// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Checkpoints of all three formats: refused with a sentence, or restored by an engine, which
/// runs on from there and saves a state that can be restored again.

#include <cstdint>
#include <vector>

#include <pvm/engine/host/engine.hpp>
#include <pvm/io/checkpoint.hpp>
#include <pvm/io/original.hpp>

#include "fuzz.hpp"
#include "small_network.hpp"

namespace io = pvm::io;

namespace {

/// A network and its engine, which every input restores.
struct Network {
  pvm::Spec spec = fuzz::small_network();
  pvm::HostEngine<1> engine{spec, 1, {.threads = 1}};

  void run_on(const pvm::EngineState& state) {
    engine.restore(state);
    const pvm::FrameBlock block = engine.stage(3);
    for (auto& pixel : block.pixels) pixel = 100;
    engine.run(block, pvm::Mode::learn);
    engine.restore(engine.save());
  }
};

}  // namespace

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const fuzz::MemoryFile file;
  static Network network;
  const std::string path = file.write(data, size);
  fuzz::expect([&] { io::load_any_checkpoint(path); });
  fuzz::expect([&] { network.run_on(io::load_any_checkpoint(path, &network.spec).state); });
  return 0;
}
