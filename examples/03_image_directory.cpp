// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Trains on a directory of pictures, with a callback of its own that stops the run once the
/// prediction is good enough.
///     03_image_directory SPEC.json DIRECTORY [DECIBELS]

#include <cstdint>
#include <cstdio>
#include <exception>

#include <pvm/io/image_dir.hpp>
#include <pvm/io/prefetch.hpp>
#include <pvm/pvm.hpp>

#include "arguments.hpp"

/// Checks every 1,000 steps, and ends the run when the prediction's PSNR has reached `decibels`.
struct StopWhenGood {
  double decibels;

  std::uint64_t next(std::uint64_t step) const { return pvm::next_multiple(step, 1000); }
  void at(const pvm::Moment& moment) const {
    if (pvm::psnr(pvm::prediction_mse(moment.score)) >= decibels) moment.trainer.request_stop();
  }
};

int main(int argc, char** argv) try {
  const Arguments arguments{argc, argv, 2, 3, "03_image_directory SPEC.json DIRECTORY [DECIBELS]"};
  pvm::set_log_sink(pvm::log_to_stderr);
  pvm::Trainer<> trainer{pvm::load_spec(arguments[1])};
  pvm::io::Prefetch frames{pvm::io::ImageDirectory{arguments[2]}};

  const auto result = trainer.fit(frames, pvm::Steps{100'000}, pvm::Progress{},
                                  StopWhenGood{arguments.decibels(3, 24.0)});
  std::printf(result.cut_short ? "good enough after %llu steps\n" : "not there after %llu steps\n",
              static_cast<unsigned long long>(result.step));
  pvm::io::save_checkpoint("image_dir_run.safetensors", trainer.checkpoint());
} catch (const std::exception& error) {
  std::fprintf(stderr, "03_image_directory: %s\n", error.what());
  return 1;
}
