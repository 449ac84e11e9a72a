// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// A loop of the program's own, instead of `fit`: the program has the pictures, and sees what the
/// network makes of each. Handing many frames to `step` at once is faster; results are the same.
///     11_own_loop SPEC FILE [STEPS]

#include <cstdio>
#include <exception>
#include <span>

#include <opencv2/videoio.hpp>

#include <pvm/io/mat.hpp>
#include <pvm/pvm.hpp>

#include "arguments.hpp"

int main(int argc, char** argv) try {
  const Arguments arguments{argc, argv, 2, 3, "11_own_loop SPEC FILE [STEPS]"};
  pvm::Trainer<> trainer{pvm::load_spec(arguments[1])};
  cv::VideoCapture video{arguments[2]};
  const auto steps = arguments.steps(3, 1000);

  pvm::Score all;
  cv::Mat picture;
  while (trainer.step() < steps) {
    if (!video.read(picture)) {  // the end: from the beginning again, as a new sequence
      if (trainer.step() == 0) throw pvm::Error(pvm::Fault::source, "no picture can be read");
      video.open(arguments[2]);
      trainer.start_sequence();
      continue;
    }
    auto stepped = trainer.step(picture);  // learns; resized to the network's frame
    all += stepped.score();
    const std::span<const float> next = stepped.prediction();  // of the frame two steps ahead
    const auto hidden = trainer.hidden();
    if (trainer.step() % 100 != 0) continue;
    std::printf("step %llu: the corner will be %.2f, the first unit's activity is %.2f\n",
                static_cast<unsigned long long>(trainer.step()), static_cast<double>(next[0]),
                static_cast<double>(hidden[0]));
  }
  trainer.save("own_loop.safetensors");
  std::printf("own_loop.safetensors; prediction %.1f dB, repeating the last frame %.1f dB\n",
              pvm::psnr(pvm::prediction_mse(all)), pvm::psnr(pvm::persistence_mse(all)));
} catch (const std::exception& error) {
  std::fprintf(stderr, "11_own_loop: %s\n", error.what());
  return 1;
}
