// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Launches the general engine's kernels that fit a network: those for its tile height, or those
/// that are compiled for its number of hidden values.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/general/arguments.hpp>
#include <pvm/engine/cuda/general/kernel.cuh>
#include <pvm/engine/cuda/general/shape.hpp>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/engine/cuda/numbers/network_constants.hpp>

namespace pvm::inline v0::detail::general {

template <class Precision, int RG, class Known>
struct StepKernels {
  static constexpr unsigned threads = step_warps<Precision>(RG) * 32;
  static_assert(RG == 7 || RG == 8,
                "no step kernel for this tile height: tiles have 7 or 8 rows, see StepShape");
  static constexpr auto steps = general::steps<Precision, RG, Known>;
  static constexpr auto materialise = general::materialise<Precision, RG, Known>;
  static constexpr auto restore_products = general::restore_products<Precision, RG, Known>;
};

/// `Known`: NetworkConstants; if they name a number of hidden values, only the kernels for that
/// number are compiled.
template <class Precision, class Known = NetworkConstants<>>
class StepLauncher {
 public:
  /// The number of hidden values that is a constant in the kernels; 0: none is. Units so large that
  /// their panels take several rounds have kernels with the sizes as arguments.
  static constexpr int constant_hidden = [] {
    constexpr int rows = tile_rows_for<Precision>(Known::hidden);
    return (Known::hidden + rows - 1) / rows <= step_warps<Precision>(rows) ? Known::hidden : 0;
  }();

  StepLauncher(int hidden, int rows_per_tile, int blocks, std::size_t shared_bytes)
      : has_49_hidden_(hidden == 49),
        tall_(rows_per_tile == 8),
        blocks_(blocks),
        shared_(shared_bytes) {}

  void steps(const StepArguments& arguments, cudaStream_t stream) const {
    visit([&](auto kernels) {
      cuda_check(launch_together(kernels.steps, shape(kernels, stream), arguments),
                 "launching a step");
    });
  }
  void materialise(const StepArguments& arguments, unsigned long long step,
                   const std::uint32_t* index, const float* coefficients, void* copy,
                   void* copy_of_low_halves, float* bias, cudaStream_t stream) const {
    visit([&](auto kernels) {
      cuda_check(launch(kernels.materialise, shape(kernels, stream), arguments, step, index,
                        coefficients, copy, copy_of_low_halves, bias),
                 "reading the weights");
    });
  }
  void restore_products(const StepArguments& arguments, unsigned long long step,
                        cudaStream_t stream) const {
    visit([&](auto kernels) {
      cuda_check(launch(kernels.restore_products, shape(kernels, stream), arguments, step),
                 "restoring a state");
    });
  }

  /// Rounds the listed d1 and biases, `count` times four, to what products read; in fp32 these are
  /// the same array.
  void round_listed(const StepArguments& arguments, std::size_t count, cudaStream_t stream) const {
    if constexpr (Stored<Precision>::two_halves) {
      const LaunchShape shape{dim3(static_cast<unsigned>(blocks_)), 256, 0, stream};
      cuda_check(
          launch(general::round_listed<Precision>, shape,
                 reinterpret_cast<const float4*>(arguments.past_d1), arguments.listed, count),
          "rounding listed errors");
    }
  }

 private:
  template <class F>
  void visit(F f) const {
    using Own = typename Known::Own;
    using Constants = NetworkConstants<constant_hidden, Own>;
    if constexpr (constant_hidden != 0) {
      f(StepKernels<Precision, tile_rows_for<Precision>(constant_hidden), Constants>{});
    } else {
      if constexpr (Known::hidden == 0) {  // the number of most published networks
        if (has_49_hidden_) return f(StepKernels<Precision, 7, NetworkConstants<49, Own>>{});
      }
      tall_ ? f(StepKernels<Precision, 8, Constants>{}) : f(StepKernels<Precision, 7, Constants>{});
    }
  }
  template <class Kernels>
  [[nodiscard]] LaunchShape shape(Kernels, cudaStream_t stream) const {
    return {dim3(static_cast<unsigned>(blocks_)), Kernels::threads, shared_, stream};
  }

  bool has_49_hidden_, tall_;
  int blocks_;
  std::size_t shared_;
};

}  // namespace pvm::inline v0::detail::general
