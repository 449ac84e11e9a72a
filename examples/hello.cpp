// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// The program of README.md: docs_test checks that the two are the same.
// [hello]
#include <cstdio>
#include <pvm/io/preview.hpp>
#include <pvm/io/synthetic.hpp>
#include <pvm/pvm.hpp>

int main(int argc, char** argv) try {
  pvm::Trainer<> trainer{pvm::load_spec(argc > 1 ? argv[1] : "model_zoo/first_steps.json")};
  pvm::io::Synthetic frames;  // or pvm::io::Zip, Video, ImageDirectory, Camera, or your own
  pvm::LastPass last{1'000};  // keeps the score of the last 1,000 steps

  trainer.fit(frames, pvm::Steps{40'000}, pvm::Progress{}, pvm::Checkpoints{"runs/hello"},
              pvm::Metrics{"runs/hello.jsonl"}, pvm::io::Preview{"runs/hello.png"}, last);

  std::printf("the prediction: %.1f dB, repeating the last frame: %.1f dB\n",
              pvm::psnr(pvm::prediction_mse(last.score())),
              pvm::psnr(pvm::persistence_mse(last.score())));
} catch (const pvm::Error& error) {
  std::fprintf(stderr, "hello: %s\n", error.what());
  return 1;
}
// [/hello]
