// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Trains on a zip of frames, and compares the prediction with the frames that followed.
///     01_zip SPEC.json SEQUENCE.zip [STEPS]

#include <cstdio>
#include <exception>

#include <pvm/io/zip.hpp>
#include <pvm/pvm.hpp>

#include "arguments.hpp"

int main(int argc, char** argv) try {
  const Arguments arguments{argc, argv, 2, 3, "01_zip SPEC.json SEQUENCE.zip [STEPS]"};
  pvm::set_log_sink(pvm::log_to_stderr);
  pvm::Trainer<> trainer{pvm::load_spec(arguments[1])};
  pvm::io::Zip frames{arguments[2]};

  pvm::LastPass last{*frames.length()};  // a callback that keeps the score of the last pass
  trainer.fit(frames, pvm::Steps{arguments.steps(3, 10'000)}, pvm::Progress{},
              pvm::Checkpoints{"zip_run", 10'000}, last);

  std::printf("PSNR over the last %llu steps: %.2f dB, repeating the last frame: %.2f dB\n",
              static_cast<unsigned long long>(last.steps()),
              pvm::psnr(pvm::prediction_mse(last.score())),
              pvm::psnr(pvm::persistence_mse(last.score())));
} catch (const std::exception& error) {
  std::fprintf(stderr, "01_zip: %s\n", error.what());
  return 1;
}
