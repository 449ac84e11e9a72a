// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Adds a source and a learning rule of the program's own.
///     06_own_source [STEPS]

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <optional>
#include <span>
#include <string>

#include <pvm/io/prefetch.hpp>
#include <pvm/pvm.hpp>

#include "arguments.hpp"

/// A bright bar that moves to the right and starts over at the left, without end.
class Bar {
 public:
  pvm::io::FrameInfo next(pvm::io::FrameShape shape, std::span<std::uint8_t> pixels) {
    const auto width = static_cast<std::size_t>(shape.width);
    const auto channels = static_cast<std::size_t>(shape.channels);
    const std::size_t bar = position_.frame % width;
    for (std::size_t i = 0; i < shape.size(); ++i) {
      pixels[i] = i / channels % width == bar ? 230 : 40;
    }
    const bool starts_sequence = position_.frame++ == 0;
    return {starts_sequence, {}};
  }
  pvm::io::Position position() const { return position_; }
  void seek(const pvm::io::Position& position) { position_ = position; }
  std::optional<std::uint64_t> length() const { return std::nullopt; }
  std::uint64_t skipped() const { return 0; }
  std::string name() const { return "bar"; }

 private:
  pvm::io::Position position_;
};

// [rule]
/// Descent that also lets every weight fade a little.
struct Fading {
  static constexpr const char* name = "fading";
  static constexpr bool on_gpu = true;
  static constexpr int state = 0;
  PVM_HOST_DEVICE static float apply(float w, float*, float gradient, pvm::RuleStep s) {
    return w + s.rate * (gradient - 1e-4F * w);
  }
};
// [/rule]

using Net = pvm::Network<pvm::Input<12, 1, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<4>,
                         pvm::Activation<pvm::PolynomialTrue>, pvm::LearningRule<Fading>,
                         pvm::LearningRate<0.1>, pvm::LayerDelay<100>>;

int main(int argc, char** argv) try {
  const Arguments arguments{argc, argv, 0, 1, "06_own_source [STEPS]"};
  pvm::Trainer<pvm::fp32, 1, Net, pvm::host> trainer;
  pvm::io::Prefetch frames{Bar{}};  // makes frames ahead, on a thread of its own
  pvm::LastPass last{120};
  trainer.fit(frames, pvm::Steps{arguments.steps(1, 10'000)}, last);
  std::printf("prediction %.1f dB, repeating the last frame %.1f dB\n",
              pvm::psnr(pvm::prediction_mse(last.score())),
              pvm::psnr(pvm::persistence_mse(last.score())));
} catch (const std::exception& error) {
  std::fprintf(stderr, "06_own_source: %s\n", error.what());
  return 1;
}
