// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// A program outside the project: trains a tiny network on the generated sequence.

#include <cstdio>

#include <pvm/io/synthetic.hpp>
#include <pvm/pvm.hpp>

int main(int argc, char** argv) {
  if (argc < 2) return 2;
  pvm::Trainer<pvm::fp32, 1> trainer{pvm::load_spec(argv[1])};
  pvm::io::Synthetic source;
  trainer.fit(source, pvm::Steps{50});
  std::printf("%llu steps\n", static_cast<unsigned long long>(trainer.step()));
  return trainer.step() == 50 ? 0 : 1;
}
