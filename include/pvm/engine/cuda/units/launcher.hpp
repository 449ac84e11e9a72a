// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Launches the kernels for one sequence (kernel.cuh).

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/units/kernel.cuh>

namespace pvm::inline v0::detail::units {

/// The launch configuration: `blocks` thread blocks, as many as the plan has programs, each with
/// `shared_bytes` of dynamic shared memory. All functions throw Error if CUDA reports a failure.
template <class Precision, int Hidden, Home home, class Own>
class Launcher {
  using S = Sizes<Precision, Hidden, home>;
  /// Of a shard, too: these kernels exchange nothing.
  static constexpr Home whole = whole_of(home);

 public:
  Launcher(int blocks, std::size_t shared_bytes) : blocks_(blocks), shared_(shared_bytes) {}

  void steps(const Arguments& arguments, cudaStream_t stream) const {
    cuda_check(
        launch_together(units::steps<Precision, Hidden, home, Own>, shape(stream), arguments),
        "launching a step");
  }
  void materialise(const Arguments& arguments, unsigned long long step, const std::uint32_t* index,
                   const float* coefficients, std::uint32_t* to, cudaStream_t stream) const {
    cuda_check(launch(units::materialise<Precision, Hidden, whole>, shape(stream), arguments, step,
                      index, coefficients, to),
               "reading the weights");
  }
  void restore_products(const Arguments& arguments, unsigned long long step,
                        cudaStream_t stream) const {
    cuda_check(
        launch(units::restore_products<Precision, Hidden, whole>, shape(stream), arguments, step),
        "restoring a state");
  }

 private:
  [[nodiscard]] LaunchShape shape(cudaStream_t stream) const {
    return {dim3(static_cast<unsigned>(blocks_)), S::threads, shared_, stream};
  }

  int blocks_;
  std::size_t shared_;
};

}  // namespace pvm::inline v0::detail::units
