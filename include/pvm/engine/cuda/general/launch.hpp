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

template <int RG, class Known>
struct StepKernels {
  static_assert(RG == 7 || RG == 8,
                "no step kernel for this tile height: tiles have 7 or 8 rows, see StepShape");
  static constexpr auto steps = general::steps<RG, Known>;
  static constexpr auto materialise = general::materialise<RG, Known>;
  static constexpr auto restore_products = general::restore_products<RG, Known>;
};

/// `Known`: NetworkConstants; if they name a number of hidden values, only the kernels for that
/// number are compiled.
template <class Known = NetworkConstants<>>
class StepLauncher {
 public:
  /// The number of hidden values that is a constant in the kernels; 0: none is. Units so large that
  /// their panels take several rounds have kernels with the sizes as arguments.
  static constexpr int constant_hidden =
      (Known::hidden + tile_rows_for(Known::hidden) - 1) / tile_rows_for(Known::hidden) <=
              step_warps
          ? Known::hidden
          : 0;

  StepLauncher(int hidden, int rows_per_tile, int blocks, std::size_t shared_bytes)
      : has_49_hidden_(hidden == 49),
        tall_(rows_per_tile == 8),
        blocks_(blocks),
        shared_(shared_bytes) {}

  void steps(const StepArguments& arguments, cudaStream_t stream) const {
    visit([&](auto kernels) {
      cuda_check(launch_together(kernels.steps, shape(stream), arguments), "launching a step");
    });
  }
  void materialise(const StepArguments& arguments, unsigned long long step,
                   const std::uint32_t* index, const float* coefficients, float4* copy, float* bias,
                   cudaStream_t stream) const {
    visit([&](auto kernels) {
      cuda_check(launch(kernels.materialise, shape(stream), arguments, step, index, coefficients,
                        copy, bias),
                 "reading the weights");
    });
  }
  void restore_products(const StepArguments& arguments, unsigned long long step,
                        cudaStream_t stream) const {
    visit([&](auto kernels) {
      cuda_check(launch(kernels.restore_products, shape(stream), arguments, step),
                 "restoring a state");
    });
  }

 private:
  template <class F>
  void visit(F f) const {
    using Own = typename Known::Own;
    using Constants = NetworkConstants<constant_hidden, Own>;
    if constexpr (constant_hidden != 0) {
      f(StepKernels<tile_rows_for(constant_hidden), Constants>{});
    } else {
      if constexpr (Known::hidden == 0) {  // the number of most published networks
        if (has_49_hidden_) return f(StepKernels<7, NetworkConstants<49, Own>>{});
      }
      tall_ ? f(StepKernels<8, Constants>{}) : f(StepKernels<7, Constants>{});
    }
  }
  [[nodiscard]] LaunchShape shape(cudaStream_t stream) const {
    return {dim3(static_cast<unsigned>(blocks_)), step_threads, shared_, stream};
  }

  bool has_49_hidden_, tall_;
  int blocks_;
  std::size_t shared_;
};

}  // namespace pvm::inline v0::detail::general
