// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// A program replaces the host engine's kernel by its own code: here by plain loops, for every
// instruction set, so that the test does not depend on the processor it runs on.

#include <atomic>
#include <cmath>
#include <cstddef>
#include <vector>

#include <pvm/engine/host/kernel.hpp>

namespace mine {

inline std::atomic<int> calls = 0;

/// The contract in the comment at MatrixPass, implemented literally.
struct PlainLoops {
  template <bool Axpy>
  static void run(const pvm::simd::MatrixPass& p) {
    ++calls;
    for (std::size_t r = 0; r < p.rows; ++r) {
      for (std::size_t c = 0; c < p.columns; ++c) {
        float& w = at(p, r, c);
        if (p.terms > 0) {
          float change = p.velocity_offset != 0 ? p.momentum * *(&w + p.velocity_offset) : 0.0F;
          for (std::size_t j = 0; j < p.terms; ++j) {
            change += p.factor[r * p.terms + j] * p.term[j][c];
          }
          if (p.velocity_offset != 0) *(&w + p.velocity_offset) = change;
          w += change;
        }
      }
      for (std::size_t b = 0; b < p.batch; ++b) {
        float sum = 0;
        for (std::size_t c = 0; c < p.columns; ++c) {
          sum += at(p, r, c) * p.x[b * p.columns + c];
          if constexpr (Axpy) p.y[b * p.columns + c] += p.q[b * p.q_stride + r] * at(p, r, c);
        }
        p.dot[b * p.dot_stride + r] = sum;
      }
    }
  }

 private:
  static float& at(const pvm::simd::MatrixPass& p, std::size_t r, std::size_t c) {
    return p.tiled != nullptr ? p.tiled[pvm::simd::tiled_index(p.rows, p.columns, r, c)]
                              : p.row[r][c];
  }
};

}  // namespace mine

template <>
struct pvm::HostKernel<pvm::fp32, pvm::simd::Isa::baseline> : mine::PlainLoops {};
template <>
struct pvm::HostKernel<pvm::fp32, pvm::simd::Isa::avx2> : mine::PlainLoops {};
template <>
struct pvm::HostKernel<pvm::fp32, pvm::simd::Isa::avx512> : mine::PlainLoops {};

#include <pvm/engine/host/engine.hpp>

#include "catch.hpp"
#include "engine_cases.hpp"
#include "reference.hpp"

TEST_CASE("A kernel of the program's own is used, and follows the reference", "[extend]") {
  for (const auto& spec : pvm_test::odd_specs()) {
    for (const int batch : {1, 6}) {
      // The sign of an error near 0 is not determined.
      if (spec.opt_abs_diff && batch > 1) continue;
      INFO(spec.name << ", batch " << batch);
      const auto weights = pvm_test::some_weights(pvm::make_connectome(spec).weights);
      pvm_test::Reference reference(spec, weights, batch);
      pvm::HostEngine<> engine(spec, batch);
      engine.restore(pvm_test::start_from(weights, batch));
      const int before = mine::calls;
      pvm_test::run_steps(engine, spec, 20);
      CHECK(mine::calls > before);
      for (std::uint64_t t = 0; t < 20; ++t) {
        std::vector<pvm_test::Vector> frames(static_cast<std::size_t>(batch),
                                             pvm_test::Vector(spec.frame_size()));
        for (std::size_t b = 0; b < frames.size(); ++b) {
          for (std::size_t i = 0; i < spec.frame_size(); ++i) {
            frames[b][i] = 0.8 * pvm_test::some_pixel(i, t, b) / 255.0 + 0.1;
          }
        }
        reference.step(frames);
      }
      const auto learned = pvm_test::weights_of(engine, spec);
      double largest = 0;
      for (std::size_t i = 0; i < learned.size(); ++i) {
        largest = std::max(largest, std::abs(double{learned[i]} - reference.weights()[i]));
      }
      CHECK(largest < 2e-6);
    }
  }
}
