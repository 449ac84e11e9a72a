// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of the original's readout: the networks of all positions learn, or only answer, step
/// by step. A thread block has one position, whose network depends on no other.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/readout/gpu/followed.cuh>

namespace pvm::inline v0::readout::gpu {

/// What the host says about a step. The target is 0.9 in the rectangle and 0.1 elsewhere.
struct MlpStep {
  int learns = 0;
  float rate = 0;
  int left = 0, top = 0, right = 0, bottom = 0;  ///< in pixels of the heatmap
};

inline constexpr int mlp_threads = 512;
inline constexpr int together = 8;    ///< loads of a lane that are in flight at a time
inline constexpr int mlp_layers = 3;  ///< of weights, at most

struct MlpArguments {
  int layers;   ///< of weights: 2 or 3
  int middle;   ///< values of a hidden layer
  int outputs;  ///< of a position: block * block
  int cells, block;
  int hidden;   ///< values of a unit
  int longest;  ///< inputs of a position, at most
  int sign_error;
  float momentum;
  const std::uint32_t* unit_start;  ///< by position: of its units
  const std::uint32_t* units;
  float* weights[mlp_layers];  ///< as MlpReadout has them
  float* changes[mlp_layers];
  const std::size_t* start[mlp_layers];  ///< by position: of its matrix
  const MlpStep* steps;                  ///< [slots][block_steps]
  float* heat;                           ///< outputs of the last step, [side][side]
};

/// Floats of shared memory: the values of all layers with their 1, and two errors.
inline std::size_t mlp_shared_floats(const MlpArguments& a) {
  const auto most = static_cast<std::size_t>(a.middle > a.outputs ? a.middle : a.outputs) + 1;
  return 2 * static_cast<std::size_t>(a.longest + 1) + 2 * mlp_layers * most + 2 * most;
}

/// The network of one position. `values[l]` are the inputs of layer l, and those of the step before
/// the last are kept for the update that is still due.
struct MlpNetwork {
  const MlpArguments& a;
  int position, inputs;
  float* values[mlp_layers + 1];
  float* before[mlp_layers];  // the inputs of the step whose update is due
  float* delta[mlp_layers];   // and its errors
  float due_rate = 0;         // 0: no update is due
  bool due = false;

  __device__ int size_in(int l) const { return l == 0 ? inputs : a.middle; }
  __device__ int size_out(int l) const { return l + 1 == a.layers ? a.outputs : a.middle; }
  __device__ std::size_t matrix(int l) const { return a.start[l][position]; }

  __device__ void gather(const float* hidden) const {
    const std::uint32_t* units = a.units + a.unit_start[position];
    for (int k = static_cast<int>(threadIdx.x); k <= inputs; k += mlp_threads) {
      values[0][k] = k == inputs ? 1.0F : hidden[units[k / a.hidden] * a.hidden + k % a.hidden];
    }
  }

  /// A warp for each row: makes the update that is due, and the product with the inputs, in one
  /// pass over the weights.
  __device__ void forward(int l) const {
    const int stride = size_in(l) + 1;
    const int lane = static_cast<int>(threadIdx.x % 32);
    float* const w = a.weights[l] + matrix(l);
    float* const dw = a.changes[l] + matrix(l);
    for (int i = static_cast<int>(threadIdx.x / 32); i < size_out(l); i += mlp_threads / 32) {
      float* const row = w + static_cast<std::size_t>(i) * stride;
      float* const change = dw + static_cast<std::size_t>(i) * stride;
      const float step = due ? __fmul_rn(due_rate, delta[l][i]) : 0.0F;
      float sum = 0;
      for (int first = lane; first < stride; first += 32 * together) {
        float weight[together], old[together];
#pragma unroll
        for (int k = 0; k < together; ++k) {
          const int j = first + 32 * k;
          weight[k] = j < stride ? row[j] : 0.0F;
          old[k] = due && j < stride ? change[j] : 0.0F;
        }
#pragma unroll
        for (int k = 0; k < together; ++k) {
          const int j = first + 32 * k;
          if (j >= stride) continue;
          if (due) {
            const float d = changed(old[k], step, before[l][j]);
            change[j] = d;
            row[j] = weight[k] = __fadd_rn(weight[k], d);
          }
          sum = __fmaf_rn(weight[k], values[l][j], sum);
        }
      }
      for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, bits);
      if (lane == 0) values[l + 1][i] = 1.0F / (1.0F + expf(-sum));
    }
    if (threadIdx.x == 0) values[l + 1][size_out(l)] = 1.0F;
  }
  /// dW = m dW + rate d v.
  __device__ float changed(float old, float step, float input) const {
    return __fmaf_rn(a.momentum, old, __fmul_rn(step, input));
  }
  /// The update that is due, alone.
  __device__ void catch_up() const {
    for (int l = 0; l < a.layers; ++l) {
      const int stride = size_in(l) + 1;
      float* const w = a.weights[l] + matrix(l);
      float* const dw = a.changes[l] + matrix(l);
      for (int i = static_cast<int>(threadIdx.x / 32); i < size_out(l); i += mlp_threads / 32) {
        const float step = __fmul_rn(due_rate, delta[l][i]);
        float* const row = w + static_cast<std::size_t>(i) * stride;
        float* const change = dw + static_cast<std::size_t>(i) * stride;
#pragma unroll 4
        for (int j = static_cast<int>(threadIdx.x % 32); j < stride; j += 32) {
          const float d = changed(change[j], step, before[l][j]);
          change[j] = d;
          row[j] = __fadd_rn(row[j], d);
        }
      }
    }
  }

  /// The errors of all layers, from the last to the first, through the weights as they are. One
  /// thread for each value.
  __device__ void errors(const MlpStep& step) const {
    const int last = a.layers - 1;
    const int row = position / a.cells * a.block, column = position % a.cells * a.block;
    for (int i = static_cast<int>(threadIdx.x); i < a.outputs; i += mlp_threads) {
      const int y = row + i / a.block, x = column + i % a.block;
      const bool on = x >= step.left && x < step.right && y >= step.top && y < step.bottom;
      const float o = values[last + 1][i];
      float e = (on ? 0.9F : 0.1F) - o;
      if (a.sign_error != 0) e = copysignf(1.0F, e);
      delta[last][i] = o * (1 - o) * e;
    }
    for (int l = last; l > 0; --l) {
      __syncthreads();
      const int stride = size_in(l) + 1;
      const float* const w = a.weights[l] + matrix(l);
      for (int j = static_cast<int>(threadIdx.x); j < size_in(l); j += mlp_threads) {
        float sum = 0;
        for (int i = 0; i < size_out(l); ++i) {
          sum = __fmaf_rn(w[static_cast<std::size_t>(i) * stride + j], delta[l][i], sum);
        }
        const float o = values[l][j];
        delta[l - 1][j] = o * (1 - o) * sum;
      }
    }
  }

  __device__ void place() const {
    const int side = a.cells * a.block;
    const int row = position / a.cells * a.block, column = position % a.cells * a.block;
    for (int i = static_cast<int>(threadIdx.x); i < a.outputs; i += mlp_threads) {
      a.heat[static_cast<std::size_t>(row + i / a.block) * side + column + i % a.block] =
          values[a.layers][i];
    }
  }
};

/// Follows the steps: learns from those that have a label, and leaves the heatmap of the last one.
/// Grid: one thread block for each position. A sum over inputs has a fixed order, so that the same
/// steps give the same bits, however they are cut into parts.
__global__ void __launch_bounds__(mlp_threads)
    follow_mlp(const __grid_constant__ MlpArguments a, const __grid_constant__ FollowedSteps s) {
  float* at = pvm::detail::dynamic_shared<float>();
  const auto take = [&at](int count) {
    float* const taken = at;
    at += count;
    return taken;
  };
  const int most = (a.middle > a.outputs ? a.middle : a.outputs) + 1;
  const auto position = static_cast<int>(blockIdx.x);
  const std::uint32_t units = a.unit_start[position + 1] - a.unit_start[position];
  MlpNetwork network{a, position, static_cast<int>(units) * a.hidden, {}, {}, {}};
  for (int l = 0; l <= a.layers; ++l) network.values[l] = take(l == 0 ? a.longest + 1 : most);
  for (int l = 0; l < a.layers; ++l) network.before[l] = take(l == 0 ? a.longest + 1 : most);
  for (int l = 0; l < a.layers; ++l) network.delta[l] = take(most);
  const int count = followed_count(s);
  for (int i = 0; i < count; ++i) {
    const MlpStep step = a.steps[followed_row(s, i)];
    if (step.learns == 0 && i + 1 < count) continue;
    network.gather(followed_hidden(s, i));
    __syncthreads();
    for (int l = 0; l < a.layers; ++l) {
      network.forward(l);
      __syncthreads();
    }
    network.due = step.learns != 0;
    if (i + 1 == count) network.place();
    if (!network.due) break;
    network.errors(step);
    network.due_rate = step.rate;
    for (int l = 0; l < a.layers; ++l) {  // the inputs of this step are those of the update
      float* const now = network.values[l];
      network.values[l] = network.before[l];
      network.before[l] = now;
    }
    __syncthreads();
  }
  if (network.due) network.catch_up();
}

inline void launch_mlp(const MlpArguments& a, const FollowedSteps& s, cudaStream_t stream) {
  const auto positions = static_cast<unsigned>(a.cells * a.cells);
  cuda_check(pvm::detail::launch(follow_mlp,
                                 {.grid = dim3(positions),
                                  .threads = mlp_threads,
                                  .shared_bytes = mlp_shared_floats(a) * sizeof(float),
                                  .stream = stream},
                                 a, s),
             "launching a readout");
}

}  // namespace pvm::inline v0::readout::gpu
