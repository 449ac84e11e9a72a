// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels: `steps` runs training steps, `materialise` computes W(step) for readers, and
/// `restore_products` prepares the inner products after the past was written by the host.
///
/// `steps` runs up to `most_steps` steps of a staging block and then one tail, which computes y of
/// the last step. Per step it waits at one grid-wide barrier; between a thread block's arrival
/// there and its wait it does the work that depends on no other thread block.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/general/arguments.hpp>
#include <pvm/engine/cuda/general/device.cuh>
#include <pvm/engine/cuda/general/folds.cuh>
#include <pvm/engine/cuda/general/folds_16bit.cuh>
#include <pvm/engine/cuda/general/frames.cuh>
#include <pvm/engine/cuda/general/products.cuh>
#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/step.cuh>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/general/tiles.cuh>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/engine/cuda/run/cursor.hpp>

namespace pvm::inline v0::detail::general {

/// Copies the SM's blob (and its source words, if there is room) to shared memory, marks all
/// coefficient tables as not loaded, and returns the thread block's state. All threads call it.
template <class Precision, int RG, class Known>
__device__ __forceinline__ ThreadBlock<Precision, RG, Known> open_thread_block(
    const StepArguments& a, float* shared) {
  using Block = ThreadBlock<Precision, RG, Known>;
  constexpr int threads = Block::threads;
  const std::uint32_t* from = a.blobs + a.blob_start[blockIdx.x];
  const std::uint32_t words = from[0];
  auto* blob = reinterpret_cast<std::uint32_t*>(shared);
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < words; i += threads) blob[i] = from[i];
  __syncthreads();
  const Program& p = *reinterpret_cast<const Program*>(blob);
  float* area = shared + words;
  float4* y_part = p.y_shared != 0
                       ? reinterpret_cast<float4*>(area + p.y)
                       : reinterpret_cast<float4*>(a.y_scratch + blockIdx.x * a.y_scratch_floats);
  const Block thread_block{a,     p,    *reinterpret_cast<Now*>(area + p.now),
                           blob,  area, reinterpret_cast<typename Block::Four*>(area + p.resident),
                           y_part};
  if (p.words_shared != 0) {
    auto* copy = reinterpret_cast<std::uint32_t*>(area + p.words_copy);
    const std::uint32_t count = p.x_count + p.r_count + p.column_count;
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < count; i += threads) {
      copy[i] = a.source_words[p.source_words + i];
    }
  }
  if (threadIdx.x < p.layer_count) thread_block.table_numbers()[threadIdx.x] = 0xffffffffU;
  return thread_block;
}

/// Sets `now` from the cursor: the launch's first step. One thread calls it.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void begin_launch(
    const StepArguments& a, const ThreadBlock<Precision, RG, Known>& thread_block) {
  const Cursor begin = *a.cursor;
  Now& now = thread_block.now;
  const std::size_t staging = begin.block % static_cast<unsigned>(a.staging);
  const std::size_t tables = static_cast<std::size_t>(a.block_steps + 1) * a.layers;
  const std::size_t rows = staging * a.block_steps;
  const std::size_t frame = static_cast<std::size_t>(a.patches) * a.patch;
  thread_block.set_step(begin.step);
  now.begin = begin.step;
  now.index = a.index + staging * (1 + tables);
  now.first = static_cast<int>(begin.frame);
  now.frame = now.first;
  now.last = min(static_cast<int>(now.index[0] & ~frames_are_floats), now.first + a.most_steps);
  now.coefficients = a.coefficients + staging * tables * a.table_stride;
  now.frames = a.frames + rows;
  now.squeezed = (now.index[0] & frames_are_floats) != 0 ? a.squeezed + rows * frame : nullptr;
  now.index += 1;
  now.scored = a.scored + rows;
  now.passed = begin.barriers;
}

/// Advances the cursor behind the launch's last step. One thread of the grid calls it.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void end_launch(const StepArguments& a,
                                           const ThreadBlock<Precision, RG, Known>& thread_block) {
  const Now& now = thread_block.now;
  Cursor end = *a.cursor;
  end.step += now.last - now.first;
  end.frame = now.last;
  end.barriers = now.passed;
  if (now.last == static_cast<int>(now.index[-1] & ~frames_are_floats)) {
    end.frame = 0;
    ++end.block;
  }
  *a.cursor = end;
}

template <class Precision, int RG, class Known>
__global__ void __launch_bounds__(step_warps<Precision>(RG) * 32, 1)
    steps(const __grid_constant__ StepArguments a) {
  const ThreadBlock<Precision, RG, Known> thread_block =
      open_thread_block<Precision, RG, Known>(a, dynamic_shared<float>());
  Now& now = thread_block.now;
  if (threadIdx.x == 0) begin_launch(a, thread_block);
  __syncthreads();
  typename ThreadBlock<Precision, RG, Known>::Tiles tiles;
#pragma unroll 1
  for (int ahead = 0; ahead < 3 && now.first + ahead < now.last; ++ahead) {
    thread_block.convert_frame(ahead);
  }
  grid_barrier_arrive(a.barrier);
  thread_block.move_resident(true);
#pragma unroll 1
  for (;;) {
    // Between arrival and wait: work that needs nothing from this barrier.
    const bool tail = now.frame == now.last;
    // (Except in the first step, whose frame other thread blocks have just converted.)
    const bool first = now.frame == now.first;
    if (first) grid_barrier_wait(a.barrier, now.passed);
    if (!tail) thread_block.patch_products(thread_block.everybody());
    thread_block.open_tables();
    thread_block.prefetch(tiles);
    if (!first) grid_barrier_wait(a.barrier, now.passed);
    thread_block.run_step(tail, tiles);
    if (tail) break;
    grid_barrier_arrive(a.barrier);
    if constexpr (ThreadBlock<Precision, RG, Known>::Weights::two_halves) {
      thread_block.fold_step_16bit();
    } else {
      thread_block.fold_step();
    }
    // Three steps ahead: patch_products(thread_block.everybody()) reads a frame before the barrier
    // wait of its step, and the conversion must be complete in all thread blocks before the wait of
    // the step before that.
    if (now.frame + 3 < now.last) thread_block.convert_frame(3);
    __syncthreads();
    if (threadIdx.x == 0) thread_block.next_step();
    __syncthreads();
  }
  __syncthreads();
  thread_block.move_resident(false);
  if (blockIdx.x == 0 && threadIdx.x == 0) end_launch(a, thread_block);
}

/// Stores W(step) = Z + sum over the listed gradients j of w_j g(j) in `copy` and, if weights have
/// them, `copy_of_low_halves` (laid out like the arena) and `bias_copy` (laid out like past_d1).
/// `coefficients` are the tables of this step, and `index` has the table number of each layer.
template <class Precision, int RG, class Known>
__global__ void __launch_bounds__(step_warps<Precision>(RG) * 32, 1)
    materialise(const __grid_constant__ StepArguments a, unsigned long long step,
                const std::uint32_t* index, const float* coefficients, void* copy,
                void* copy_of_low_halves, float* bias_copy) {
  const ThreadBlock<Precision, RG, Known> thread_block =
      open_thread_block<Precision, RG, Known>(a, dynamic_shared<float>());
  if (threadIdx.x == 0) {
    thread_block.set_step(step);
    thread_block.now.coefficients = coefficients;
    thread_block.now.index = index;
    thread_block.now.frame = 0;
  }
  __syncthreads();
  thread_block.open_tables();
  const Fold* folds = thread_block.template list<Fold>(thread_block.p.folds);
  using Block = ThreadBlock<Precision, RG, Known>;
  using Four = typename Block::Four;
#pragma unroll 1
  for (std::uint32_t k = 0; k < thread_block.p.fold_count; ++k) {
    const Fold& fold = folds[k];
    const float* table = thread_block.layer_table(fold.layer) + thread_block.phase_row(fold.phase);
    const auto home = thread_block.in_arena(fold.weight);
    Four* const to = static_cast<Four*>(copy) + fold.weight;
    if constexpr (Block::Weights::two_halves) {
      const typename Block::Home copies{to, static_cast<Four*>(copy_of_low_halves) + fold.weight};
      thread_block.fold_together(
          &fold, 1,
          [&](const Fold&) {
            return FoldedGradients{a.terms, nullptr, table};
          },
          [&](const Fold&) { return home; }, [&](const Fold&) { return copies; }, bias_copy);
    } else {
      thread_block.fold_panel(
          fold, a.terms, false, [](int n) { return n; }, [&](int n) { return table[n]; },
          home.weights, to, bias_copy);
    }
  }
}

/// Rounds `count` times four listed d1 and biases to what products read.
template <class Precision>
__global__ void round_listed(const float4* from, void* to, std::size_t count) {
  const std::size_t stride = static_cast<std::size_t>(gridDim.x) * blockDim.x;
  for (std::size_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count; i += stride) {
    static_cast<typename Stored<Precision>::Four*>(to)[i] = Stored<Precision>::rounded(from[i]);
  }
}

/// Computes the inner products that step `step` starts from, from a past that the host has written.
template <class Precision, int RG, class Known>
__global__ void __launch_bounds__(step_warps<Precision>(RG) * 32, 1)
    restore_products(const __grid_constant__ StepArguments a, unsigned long long step) {
  const ThreadBlock<Precision, RG, Known> thread_block =
      open_thread_block<Precision, RG, Known>(a, dynamic_shared<float>());
  const HiddenUnit* units = thread_block.template list<HiddenUnit>(thread_block.p.hidden_units);
  // Version t of the inner products belongs to c(h(t-1)), which step t - 1 published, and to the
  // patches of frame t. Step `step` reads versions `step` and, for the B half of x, `step` - 1. It
  // computes the patches' version `step` itself.
#pragma unroll 1
  for (int back = 1; back <= 2; ++back) {
    __syncthreads();
    if (threadIdx.x == 0) {
      // 6 * ring keeps the number positive and does not change it modulo ring, 3 and 2.
      thread_block.set_step(step + 6 * static_cast<unsigned long long>(a.ring) - back);
    }
    __syncthreads();
    const int hidden = thread_block.hidden();
    for (int k = threadIdx.x; k < static_cast<int>(thread_block.p.hidden_count) * hidden;
         k += thread_block.threads) {
      const HiddenUnit& unit = units[k / hidden];
      const int row = k % hidden;
      thread_block.area[unit.squeezed_h + row] =
          load_fresh(a.past + thread_block.past_row(0) + unit.unit * hidden + row);
    }
    __syncthreads();
    thread_block.publish_products(thread_block.everybody());
    __syncthreads();
    if (back == 1) thread_block.patch_products(thread_block.everybody());
  }
}

}  // namespace pvm::inline v0::detail::general
