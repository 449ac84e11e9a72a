// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Must not compile. The compiler's words must contain:
// says: an argument of fit behind the frames is no callback

#include <pvm/io/synthetic.hpp>
#include <pvm/pvm.hpp>

struct NeverDue {
  void at(const pvm::Moment&) {}
};

void train(pvm::Trainer<pvm::fp32, 1, pvm::RuntimeNetwork, pvm::host>& trainer) {
  pvm::io::Synthetic frames;
  trainer.fit(frames, NeverDue{});
}
