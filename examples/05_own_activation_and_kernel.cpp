// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Adds an activation and a kernel of the program's own, from outside the library's namespace.
///     05_own_activation_and_kernel [STEPS]

#include <cstddef>
#include <cstdio>
#include <exception>

#include <pvm/engine/host/kernel.hpp>

// [activation]
/// A straight line between 0 and 1. Its derivative keeps a little outside, so that units recover.
struct Ramp {
  static constexpr const char* name = "ramp";
  static constexpr bool on_gpu = true;
  PVM_HOST_DEVICE static float value(float a) {
    const float v = 0.25F * a + 0.5F;
    return v < 0.0F ? 0.0F : (v > 1.0F ? 1.0F : v);
  }
  PVM_HOST_DEVICE static float derivative(float v) { return v > 0.0F && v < 1.0F ? 0.25F : 0.05F; }
};
// [/activation]

// [kernel]
/// The pass over fp16 weights on processors with AVX2, row by row and column by column. (It is
/// slow: what it shows is where faster code would go.) It comes before the first use of fp16.
template <>
struct pvm::HostKernel<pvm::fp16, pvm::simd::Isa::avx2> {
  template <bool Axpy>
  static void run(const pvm::simd::HalfPass& p) {
    constexpr std::size_t group = pvm::simd::half_group;
    for (std::size_t b = 0; b < p.batch; ++b) {
      for (std::size_t r = 0; r < p.rows; ++r) {
        float sum = 0;
        for (std::size_t c = 0; c < p.columns; c += group) {
          const auto w = pvm::simd::HalfFormat<pvm::fp16>::widen(
              p.tiled + pvm::simd::tiled_index(p.rows, p.columns, r, c, group));
          for (std::size_t i = 0; i < group; ++i) {
            const std::size_t at = b * p.columns + c + i;
            const float weight = i < group / 2 ? w.first[i] : w.second[i - group / 2];
            sum += weight * p.x[at];
            if constexpr (Axpy) p.y[at] += p.q[b * p.q_stride + r] * weight;
          }
        }
        p.dot[b * p.dot_stride + r] = sum;
      }
    }
  }
};
// [/kernel]

#include <pvm/io/synthetic.hpp>
#include <pvm/pvm.hpp>

#include "arguments.hpp"

using Net = pvm::Network<pvm::Input<12, 3, 3>, pvm::Layers<4, 2, 1>, pvm::Hidden<4>,
                         pvm::Activation<Ramp>, pvm::LearningRate<0.02>, pvm::LayerDelay<100>>;

int main(int argc, char** argv) try {
  const Arguments arguments{argc, argv, 0, 1, "05_own_activation_and_kernel [STEPS]"};
  pvm::Trainer<pvm::fp16, 1, Net, pvm::host> trainer;
  pvm::io::Synthetic frames;
  pvm::LastPass last{100};
  trainer.fit(frames, pvm::Steps{arguments.steps(1, 5'000)}, last);
  std::printf("activation %s: %.1f dB\n", trainer.spec().own_activation.c_str(),
              pvm::psnr(pvm::prediction_mse(last.score())));
} catch (const std::exception& error) {
  std::fprintf(stderr, "05_own_activation_and_kernel: %s\n", error.what());
  return 1;
}
