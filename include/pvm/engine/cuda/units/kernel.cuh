// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels for one sequence.
///   steps             a persistent cooperative kernel that runs up to `launch_steps` training
///                     steps. Each streaming multiprocessor (SM) runs one thread block (two where
///                     all weights are streamed), and each thread block owns whole units: only c(h)
///                     and its inner products cross between thread blocks.
///   materialise       computes W(step), the stored weights plus the listed gradients.
///   restore_products  recomputes the inner products of a past that the host has written.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/units/loops/finishers.cuh>
#include <pvm/engine/cuda/units/loops/folders.cuh>
#include <pvm/engine/cuda/units/loops/multipliers.cuh>
#include <pvm/engine/cuda/units/loops/pipelined.cuh>
#include <pvm/engine/cuda/units/loops/resident.cuh>
#include <pvm/engine/cuda/units/loops/specialised.cuh>
#include <pvm/engine/cuda/units/loops/streamed.cuh>
#include <pvm/engine/cuda/units/loops/streamers.cuh>
#include <pvm/engine/cuda/units/step/errors.cuh>
#include <pvm/engine/cuda/units/step/gather.cuh>
#include <pvm/engine/cuda/units/step/hidden.cuh>
#include <pvm/engine/cuda/units/step/launch.cuh>
#include <pvm/engine/cuda/units/step/learn.cuh>
#include <pvm/engine/cuda/units/step/listed.cuh>
#include <pvm/engine/cuda/units/step/patches.cuh>
#include <pvm/engine/cuda/units/weights/folds_16bit.cuh>
#include <pvm/engine/cuda/units/weights/folds_fp32.cuh>

namespace pvm::inline v0::detail::units {

/// The class with the step loop for a precision and a home of the weights. `Own`: an activation
/// type of the program, or void for the library's.
template <class Precision, int Hidden, Home home, class Own,
          Home way = streams_all(home) ? Home::streamed : Home::resident>
struct StepLoopOf {
  using type = Specialised<Precision, Hidden, home, Own>;
};
template <int Hidden, Home home, class Own>
struct StepLoopOf<fp32, Hidden, home, Own, Home::resident> {
  using type = Resident<Hidden, home, Own>;
};
template <class Precision, int Hidden, Home home, class Own>
struct StepLoopOf<Precision, Hidden, home, Own, Home::streamed> {
  using type = Pipelined<Precision, Hidden, home, Own>;
};
template <int Hidden, Home home, class Own>
struct StepLoopOf<fp32, Hidden, home, Own, Home::streamed> {
  using type = Streamed<Hidden, home, Own>;
};
template <class Precision, int Hidden, Home home, class Own>
using StepLoop = typename StepLoopOf<Precision, Hidden, home, Own>::type;

/// One thread's work: the number of a program that no other thread block takes. The thread blocks
/// of one side of the L2 cache take programs of `order` from the first one on, and those of the
/// other side from the last one down. So each program is run on the side that has its weights
/// (sides.cuh), as far as the sides have as many thread blocks as programs.
__device__ __forceinline__ unsigned int take_program(const Arguments& a) {
  const unsigned int side = a.sides != nullptr ? a.sides[sm_number()] : 0U;
  const unsigned int before = atomicAdd(a.taken + side, 1U);
  return a.order[side == 0 ? before : gridDim.x - 1 - before];
}
/// One thread's work at the end of a launch. Returns whether this is the last thread block to come
/// here; it makes everything ready for the next launch.
template <class S>
__device__ __forceinline__ bool leave_launch(const Arguments& a) {
  if (atomicAdd(a.barrier, 1U) != gridDim.x - 1) return false;
  *a.barrier = 0;
  if constexpr (S::in_slots) a.taken[0] = a.taken[1] = 0;
  return true;
}

/// Copies program `number` to shared memory, where its header says, and returns the thread's view
/// of it. All threads call it; it ends with __syncthreads().
template <class Precision, int Hidden, Home home, class Own = void>
__device__ __forceinline__ StepLoop<Precision, Hidden, home, Own> load_program(
    const Arguments& a, std::uint32_t* shared, unsigned int number) {
  using S = Sizes<Precision, Hidden, home>;
  const std::uint32_t* from = a.programs + a.program_start[number];
  const auto* header = reinterpret_cast<const Program*>(from);
  const std::uint32_t words = header->words;
  std::uint32_t* program = shared + header->start;
  copy_each(
      static_cast<int>(words / 4), thread_number(), S::threads,
      [&](int i) { return __ldg(reinterpret_cast<const uint4*>(from) + i); },
      [&](int i, uint4 v) { reinterpret_cast<uint4*>(program)[i] = v; });
  __syncthreads();
  return {{{{a, *reinterpret_cast<const Program*>(program), shared, thread_number(), 0}}}};
}

/// Runs the next steps of the staged frames: as many as are left of the block of frames, at most
/// `most_steps`. The cursor in device memory says where the run stands, and is advanced.
template <class Precision, int Hidden, Home home, class Own,
          class S = Sizes<Precision, Hidden, home>>
__global__ void __launch_bounds__(S::threads, S::thread_blocks_per_sm)
    steps(const __grid_constant__ Arguments a) {
  auto* shared = dynamic_shared<std::uint32_t>();
  unsigned int number = blockIdx.x;
  if constexpr (S::in_slots) {
    if (threadIdx.x == 0) shared[Areas::launch] = take_program(a);
    __syncthreads();
    number = shared[Areas::launch];
  }
  auto loop = load_program<Precision, Hidden, home, Own>(a, shared, number);
  if (threadIdx.x == 0) {
    loop.begin_launch();
    if constexpr (S::finishers > 0) loop.init_gates();
  }
  __syncthreads();
  if (loop.launch().count == 0) {
    if (S::in_slots && threadIdx.x == 0) leave_launch<S>(a);
    return;
  }
  loop.load_launch();
  loop.load_past();
  typename StepLoop<Precision, Hidden, home, Own>::Held held;
  loop.load_weights(held);
  __syncthreads();
  const unsigned long long t = loop.now().step;
  // What the step before would have left for step t: the inner products of B(t) = A(t-1) with its
  // past, and the patch of step t.
  for (int u = loop.warp(); u < loop.unit_count(); u += S::warps) {
    const ProgramUnit& my = loop.unit(u);
    float products = 0;
    if (my.patch != not_a_patch) {
      const std::uint32_t* record =
          loop.past(t - 1 + S::ring) + a.first_patch + my.patch * a.patch_record + a.patch_products;
      if (loop.lane() < S::table_row) products = __uint_as_float(__ldcg(record + loop.lane()));
    } else {
      products = loop.sum_over_sources(loop.primary_products(u, t - 2, 0));
    }
    if (loop.lane() < S::table_row) loop.primary_sums(u, t + 1)[loop.lane()] = products;
    if constexpr (S::reads_context) loop.load_context_sums(u, t);
    if (my.patch != not_a_patch) loop.read_patch(u, 0);
  }
  __syncthreads();
  if (threadIdx.x == 0) loop.mark_launch(0);
  loop.run(held);
  if (threadIdx.x == 0) loop.mark_launch(1);
  // Streamed 16-bit weights are up to date in device memory already, remainder rows included.
  if constexpr (S::fp32_weights || !S::streams) loop.store_weights(held);
  loop.store_results();
  // The last thread block to come here advances the cursor: all have read it by then.
  if (threadIdx.x == 0 && leave_launch<S>(a)) loop.end_launch();
}

/// Writes W(step) = stored weights + listed gradients to `to`, which has the layout of
/// `Arguments::weights`. `index` and `coefficients` are the tables of this step alone: the table of
/// each layer. Blocks go phase by phase, because blocks that fold in the same phase have the same
/// coefficients, which are written as the factors of a fold.
template <class Precision, int Hidden, Home home, class S = Sizes<Precision, Hidden, home>>
__global__ void __launch_bounds__(S::threads, S::thread_blocks_per_sm)
    materialise(const __grid_constant__ Arguments a, unsigned long long step,
                const std::uint32_t* index, const float* coefficients, std::uint32_t* to) {
  const auto loop =
      load_program<Precision, Hidden, home>(a, dynamic_shared<std::uint32_t>(), blockIdx.x);
  if (threadIdx.x == 0) {
    loop.begin(step);
    loop.now(0).frame = 0;
    loop.launch().coefficients = coefficients;
  }
  if (static_cast<int>(threadIdx.x) < loop.unit_count()) {
    const auto u = static_cast<int>(threadIdx.x);
    loop.table_numbers(u)[0] = static_cast<std::uint16_t>(index[loop.unit(u).layer]);
  }
  __syncthreads();
  loop.load_past();
  loop.load_w1_weights();
  const int warp = loop.warp();
  __syncthreads();
  const auto each_unit = [&](auto&& work) {
    for (int u = warp; u < loop.unit_count(); u += S::warps) work(u);
  };
  each_unit([&](int u) { loop.load_coefficients(u); });
  const W0Block* blocks = loop.my_blocks();
  const auto* w1 = loop.template list<W1Block>(loop.p.w1_blocks);
#pragma unroll 1
  for (int phase = 0; phase < S::period; ++phase) {
    __syncthreads();
    each_unit([&](int u) { loop.write_present_factors(u, phase); });
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < loop.my_count(); ++k) {
      if (phase_in(blocks[k].what) != phase) continue;
      loop.materialise(blocks[k], to);
    }
#pragma unroll 1
    for (std::uint32_t k = loop.p.w1_start[warp]; k < loop.p.w1_start[warp + 1]; ++k) {
      if (phase_in(w1[k].what) != phase) continue;
      loop.materialise(w1[k], to);
    }
  }
  if constexpr (S::reads_context) {
#pragma unroll 1
    for (int k = 0; k < loop.my_count(); ++k) {
      if (phase_in(blocks[k].what) >= S::period) loop.materialise_context(blocks[k], to);
    }
  }
}

/// Values i to i + 3 of a record; value(record, i) reads one.
template <class Value>
__device__ __forceinline__ float4 four_values(const std::uint32_t* record, int i, Value value) {
  return make_float4(value(record, i), value(record, i + 1), value(record, i + 2),
                     value(record, i + 3));
}
/// One warp's work: recomputes the inner products with the listed past in the records of unit u of
/// steps `step` - 1 and `step` - 2; if `reads_context` also the sums in those of earlier steps.
template <class Loop>
__device__ __forceinline__ void restore_unit(const Loop& loop, int u, unsigned long long step) {
  using S = typename Loop::S;
  using Words = typename Loop::Words;
  const ProgramUnit& my = loop.unit(u);
  constexpr unsigned steps = S::reads_context ? S::history + 1 : 2;
#pragma unroll 1
  for (unsigned back = 1; back <= steps; ++back) {
    const unsigned long long t = step + 2 * S::ring - back;
    std::uint32_t* record = loop.past(t) + my.unit * S::record;
    const std::uint32_t* then =
        loop.past(t - 3 -
                  static_cast<unsigned>(min(loop.lane() & (S::row_lanes - 1), S::terms - 1))) +
        my.unit * S::record;
    const auto value = [](const std::uint32_t* from, int i) {
      return Words::unpack(__ldcg(from + in_pieces(static_cast<std::uint32_t>(i))));
    };
    const auto then_value = [&](const std::uint32_t* from, int i) {
      if (S::reads_context && loop.lane() == S::terms) return 1.0F;  // a sum, see unit_products
      return value(from, i);
    };
    const float sum = loop.inner_product([&](int i) { return four_values(record, i, value); },
                                         [&](int i) { return four_values(then, i, then_value); },
                                         [&](int i) { return value(record, i); },
                                         [&](int i) { return then_value(then, i); });
    loop.send_products(record, sum, step - static_cast<unsigned>(back));
  }
}
/// One warp's work: the same for the patch that unit u saw in step `step` - 1.
template <class Loop>
__device__ __forceinline__ void restore_patch(const Loop& loop, int u, unsigned long long step) {
  using S = typename Loop::S;
  using Words = typename Loop::Words;
  const Arguments& a = loop.a;
  const ProgramUnit& my = loop.unit(u);
  const unsigned long long t = step + 2 * S::ring - 1;
  std::uint32_t* record = loop.past(t) + a.first_patch + my.patch * a.patch_record;
  const std::uint32_t* then =
      loop.past(t - 3 -
                static_cast<unsigned>(min(loop.lane() & (S::row_lanes - 1), S::terms - 1))) +
      a.first_patch + my.patch * a.patch_record;
  const auto value = [](const std::uint32_t* from, int k) {
    return Words::unpack(__ldcg(from + in_pieces(static_cast<std::uint32_t>(k))));
  };
  const float sum = loop.patch_product([&](int k) { return four_values(record, k, value); },
                                       [&](int k) { return four_values(then, k, value); },
                                       [&](int k) { return value(record, k); },
                                       [&](int k) { return value(then, k); });
  if (loop.lane() < S::table_row) {
    record[a.patch_products + loop.lane()] = __float_as_uint(sum);
  }
}
/// Recomputes the inner products of a past that the host has written, for a run that continues at
/// `step`.
template <class Precision, int Hidden, Home home, class S = Sizes<Precision, Hidden, home>>
__global__ void __launch_bounds__(S::threads, S::thread_blocks_per_sm)
    restore_products(const __grid_constant__ Arguments a, unsigned long long step) {
  const auto loop =
      load_program<Precision, Hidden, home>(a, dynamic_shared<std::uint32_t>(), blockIdx.x);
  for (int u = loop.warp(); u < loop.unit_count(); u += S::warps) {
    restore_unit(loop, u, step);
    if (loop.unit(u).patch != not_a_patch) restore_patch(loop, u, step);
  }
}

}  // namespace pvm::inline v0::detail::units
