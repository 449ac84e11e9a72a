// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// A network as a type: its sizes are compile-time constants, and a mistake in it does not compile.
/// Trains in bf16.
///     04_compiled_network [STEPS]

#include <cstdio>
#include <exception>

#include <pvm/io/synthetic.hpp>
#include <pvm/pvm.hpp>

#include "arguments.hpp"

// A part that is left out has the value of model_zoo/small.json. Try Input<48, ...>: it is refused
// with a sentence, because the sides do not match.
using Net = pvm::Network<pvm::Input<40, 3, 5>, pvm::Layers<8, 4, 2, 1>, pvm::Hidden<6>,
                         pvm::FanIn<2>, pvm::Feedback<2>, pvm::TopToAll,
                         pvm::Activation<pvm::PolynomialTrue>, pvm::LearningRate<0.02>,
                         pvm::LayerDelay<200>, pvm::NoFinalRate, pvm::NoIntermediateRate>;

int main(int argc, char** argv) try {
  const Arguments arguments{argc, argv, 0, 1, "04_compiled_network [STEPS]"};
  pvm::set_log_sink(pvm::log_to_stderr);
  pvm::Trainer<pvm::bf16, 1, Net, pvm::host>
      trainer;  // gives the same results as its spec in a file
  pvm::io::Synthetic frames;
  pvm::LastPass last{500};

  trainer.fit(frames, pvm::Steps{arguments.steps(1, 10'000)}, pvm::Progress{}, last);
  std::printf("%zu weights, %d hidden values in a unit, %.1f dB\n", trainer.connectome().weights,
              Net::hidden, pvm::psnr(pvm::prediction_mse(last.score())));
} catch (const std::exception& error) {
  std::fprintf(stderr, "04_compiled_network: %s\n", error.what());
  return 1;
}
