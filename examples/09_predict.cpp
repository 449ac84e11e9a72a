// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Runs a trained network without learning, and writes a picture and a score of its prediction. The
/// same with the command line: pvm -L RUN.safetensors -f FILE --freeze --preview predicted.png
///     09_predict RUN.safetensors FILE [STEPS]

#include <cstdio>
#include <exception>

#include <pvm/io/open.hpp>
#include <pvm/io/preview.hpp>
#include <pvm/pvm.hpp>

#include "arguments.hpp"

int main(int argc, char** argv) try {
  const Arguments arguments{argc, argv, 2, 3, "09_predict RUN.safetensors FILE [STEPS]"};
  const auto checkpoint = pvm::io::load_checkpoint(arguments[1]);
  const auto begin = checkpoint.state.step;
  pvm::TrainerOptions options;
  options.mode = pvm::Mode::freeze;
  pvm::Trainer<pvm::fp32, 1, pvm::RuntimeNetwork, pvm::host> trainer{checkpoint, options};

  auto frames = pvm::io::opener(arguments[2])();
  const auto steps = arguments.steps(3, 500);
  pvm::LastPass all{steps};
  trainer.fit(frames, pvm::Steps{begin + steps}, pvm::io::Preview{"predicted.png", steps}, all);
  std::printf("predicted.png; prediction %.1f dB, repeating the last frame %.1f dB\n",
              pvm::psnr(pvm::prediction_mse(all.score())),
              pvm::psnr(pvm::persistence_mse(all.score())));
} catch (const std::exception& error) {
  std::fprintf(stderr, "09_predict: %s\n", error.what());
  return 1;
}
