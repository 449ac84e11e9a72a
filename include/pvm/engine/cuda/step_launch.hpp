// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Launches the step kernel for the tile height a network needs.

#include <cuda_runtime.h>

#include <pvm/engine/cuda/check.hpp>
#include <pvm/engine/cuda/launch.hpp>
#include <pvm/engine/cuda/step_kernel.cuh>

namespace pvm::inline v0::detail {

template <int RG, bool Single, int Hidden = 0>
struct StepKernels {
  static_assert(RG == 7 || RG == 8,
                "no step kernel for this tile height: tiles have 7 or 8 rows, see StepShape");
  static constexpr auto steps = step_kernel::steps<RG, Single, Hidden>;
  static constexpr auto materialise = step_kernel::materialise<RG, Single, Hidden>;
  static constexpr auto restore_products = step_kernel::restore_products<RG, Single, Hidden>;
};

/// `Batch`: 1 compiles the kernels for one sequence only.
template <int Batch>
class StepLauncher {
 public:
  StepLauncher(int hidden, int rows_per_tile, bool single, int blocks, std::size_t shared_bytes)
      : usual_(hidden == 49),
        tall_(rows_per_tile == 8),
        single_(single),
        blocks_(blocks),
        shared_(shared_bytes) {
    visit([&](auto kernels) {
      allow_shared(kernels.steps);
      allow_shared(kernels.materialise);
      allow_shared(kernels.restore_products);
    });
  }

  /// A cooperative launch: the blocks wait for each other.
  void steps(const StepArguments& arguments, cudaStream_t stream) const {
    visit([&](auto kernels) {
      void* parameters[] = {const_cast<StepArguments*>(&arguments)};
      cuda_check(cudaLaunchCooperativeKernel(kernels.steps, dim3(static_cast<unsigned>(blocks_)),
                                             dim3(step_threads), parameters, shared_, stream),
                 "launching a step");
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
    if constexpr (Batch != 1) {
      if (!single_) return tall_ ? f(StepKernels<8, false>{}) : f(StepKernels<7, false>{});
    }
    if (usual_) return f(StepKernels<7, true, 49>{});  // the published models' units
    tall_ ? f(StepKernels<8, true>{}) : f(StepKernels<7, true>{});
  }
  [[nodiscard]] LaunchShape shape(cudaStream_t stream) const {
    return {dim3(static_cast<unsigned>(blocks_)), step_threads, shared_, stream};
  }
  template <class Kernel>
  void allow_shared(Kernel* kernel) const {
    cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    static_cast<int>(shared_)),
               "reserving shared memory");
  }

  bool usual_, tall_, single_;
  int blocks_;
  std::size_t shared_;
};

}  // namespace pvm::inline v0::detail
