// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Trains on a zip of frames, and compares what the network predicts with what came.
///     01_zip SPEC.json SEQUENCE.zip [STEPS]

#include <cstdio>
#include <cstdlib>
#include <exception>

#include <pvm/io/zip.hpp>
#include <pvm/pvm.hpp>

int main(int argc, char** argv) try {
  if (argc < 3) {
    std::fprintf(stderr, "usage: 01_zip SPEC.json SEQUENCE.zip [STEPS]\n");
    return 2;
  }
  pvm::set_log_sink(pvm::log_to_stderr);
  pvm::Trainer<> trainer{pvm::load_spec(argv[1])};
  pvm::io::Zip frames{argv[2]};

  pvm::LastPass last{*frames.length()};  // a callback that keeps the score of the last pass
  trainer.fit(frames, pvm::Steps{argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 10'000},
              pvm::Progress{}, pvm::Checkpoints{"zip_run", 10'000}, last);

  std::printf("PSNR over the last %llu steps: %.2f dB, repeating the last frame: %.2f dB\n",
              static_cast<unsigned long long>(last.steps()),
              pvm::psnr(pvm::prediction_mse(last.score())),
              pvm::psnr(pvm::persistence_mse(last.score())));
} catch (const std::exception& error) {
  std::fprintf(stderr, "01_zip: %s\n", error.what());
  return 1;
}
