// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Adds up the errors of repeating the frame of two steps ago ("persistence"), which the frames
/// kernel computes (frames.cuh). Runs after that kernel, on the upload stream.

#include <cstddef>

#include <pvm/engine/cuda/batch/frames.cuh>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>

namespace pvm::inline v0::detail::batch {

inline constexpr int most_block_steps = 64;  ///< most steps of a block of frames
/// There is one thread block. It is large so that it ends soon: a sweep waits for the room that it
/// takes on its SM.
inline constexpr int persistence_threads = 1024;

/// Adds `persistence_errors`, [steps][tiles], to *score. A warp sums a step; the steps are then
/// added in their order, so that the result does not depend on where blocks of frames are cut. At
/// most `most_block_steps` steps.
template <int Threads = persistence_threads>
__global__ void __launch_bounds__(Threads)
    persistence_kernel(const float* persistence_errors, int steps, int tiles, double* score) {
  __shared__ double of_steps[most_block_steps];
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  for (int step = static_cast<int>(threadIdx.x) / 32; step < steps; step += Threads / 32) {
    const float* from =
        persistence_errors + static_cast<std::size_t>(step) * static_cast<std::size_t>(tiles);
    double sum = 0;
#pragma unroll 8
    for (int i = lane; i < tiles; i += 32) sum += static_cast<double>(from[i]);
    for (int other = 16; other > 0; other /= 2) sum += __shfl_xor_sync(~0U, sum, other);
    if (lane == 0) of_steps[step] = sum;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  double sum = *score;
  for (int step = 0; step < steps; ++step) sum += of_steps[step];
  *score = sum;
}

/// Launches `persistence_kernel` for a block of `steps` steps, if the block is scored
/// (`persistence_errors`).
inline void score_persistence(const Arguments& a, const Uploaded& from, int steps,
                              cudaStream_t stream) {
  if (from.persistence_errors == nullptr) return;
  const auto tiles = static_cast<int>(tiles_along(a.shape) * tiles_across(a.shape));
  cuda_check(launch(persistence_kernel<>, {dim3(1), persistence_threads, 0, stream},
                    from.persistence_errors, steps, tiles, a.score + 1),
             "launching the persistence kernel");
}

}  // namespace pvm::inline v0::detail::batch
