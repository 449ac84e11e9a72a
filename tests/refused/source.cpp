// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: the frames given to fit are no source

#include <pvm/pvm.hpp>

struct NoFrames {
  void next() {}
};

void train(pvm::Trainer<pvm::fp32, 1, pvm::RuntimeNetwork, pvm::host>& trainer) {
  NoFrames frames;
  trainer.fit(frames, pvm::Steps{1});
}
