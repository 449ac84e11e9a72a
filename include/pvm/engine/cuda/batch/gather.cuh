// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The second kernel of a swept step, a short one: the sums of parts that the sweep left become h,
/// c(h) and d0, which the next sweep needs whole. What repeating the frame would miss is scored
/// here too: it needs nothing of the network.

#include <cstdint>

#include <pvm/engine/cuda/batch/errors.cuh>
#include <pvm/engine/cuda/check.hpp>
#include <pvm/engine/cuda/launch.hpp>

namespace pvm::inline v0::detail::batch {

/// A block of threads gathers some rows of a panel, a thread four sequences of one, or scores so
/// many rows of pixels for a slice of the sequences.
template <int Bp>
struct GatherShape {
  static constexpr int quads = Bp / 4;  ///< of a row, four sequences each
  static constexpr int panel_quads = panel_width * quads;
  static constexpr unsigned int panel_blocks = (panel_quads + threads - 1) / threads;
  static constexpr int slice = Bp < 64 ? Bp : 64;
  static constexpr int slices = Bp / slice;
  static constexpr int pixel_rows = 128;
  static constexpr int blocks = 8;  ///< on a multiprocessor
  PVM_HOST_DEVICE static constexpr unsigned int pixel_blocks(int pixels) {
    return static_cast<unsigned int>((pixels + pixel_rows - 1) / pixel_rows * slices);
  }
};

/// The sums of a panel's parts for four sequences of a row.
template <int Bp>
__device__ __forceinline__ float4 add_parts(const Arguments& a, const PanelSums& panel, int quad) {
  using G = GatherShape<Bp>;
  using W = SweepWarps<Bp>;
  const auto* from = reinterpret_cast<const float4*>(sweep_part<Bp>(a, panel.part)) + quad;
  const int shares = static_cast<int>(panel.parts) * (W::kept / W::across);
  float4 sum = make_float4(0, 0, 0, 0);
#pragma unroll 2
  for (int share = 0; share < shares; ++share) {
    const float4 more = __ldcg(from + share * G::panel_quads);
    sum.x += more.x;
    sum.y += more.y;
    sum.z += more.z;
    sum.w += more.w;
  }
  return sum;
}

/// h and c(h), or d0, of the block's rows of a panel.
template <class M, int Bp>
__device__ __forceinline__ void gather_rows(const Arguments& a, const PanelSums& panel, int block) {
  using G = GatherShape<Bp>;
  const int quad = block * threads + static_cast<int>(threadIdx.x);
  if (quad >= static_cast<int>(panel.count) * G::quads) return;
  const std::size_t row = panel.out + static_cast<std::size_t>(quad / G::quads);
  const auto sequence = static_cast<std::size_t>(quad % G::quads * 4);
  const Cursor now = *a.second;
  if (panel.gradient != 0) {
    const KeptQuad<M> h = hidden_before<M>(a, now, row, sequence);  // asked for before the sums
    const float4 sum = add_parts<Bp>(a, panel, quad);
    publish_gradient<M>(a, now, row, sequence, h, {sum.x, sum.y, sum.z, sum.w});
  } else {
    const float4 sum = add_parts<Bp>(a, panel, quad);
    publish<M>(a, now.hidden, row, sequence, {sum.x, sum.y, sum.z, sum.w});
  }
}

/// How far pixels moved in two steps, those of block `block`.
template <class M, int Bp>
__device__ __forceinline__ void score_frames(const Arguments& a, int block, double* score) {
  using G = GatherShape<Bp>;
  const int first = block / G::slices * G::pixel_rows;
  const int slice = block % G::slices;
  constexpr int size = Octet<M>::size;
  constexpr int chunks = G::slice / size;
  constexpr std::size_t row_bytes = Bp * sizeof(typename M::Word);
  __shared__ BlockState state;
  const Cursor now = *a.second;
  const int chunk = static_cast<int>(threadIdx.x) % chunks;
  const auto sequence = static_cast<std::size_t>(slice * G::slice + chunk * size);
  ErrorMath<M> math(a.shape, ErrorMath<M>::look(a, now, sequence));
  const auto frame = [&](int back) {
    return a.pixels +
           (static_cast<std::size_t>(slot_before(now.frame, a.shape.frames, back)) *
            static_cast<std::size_t>(a.shape.pixels)) *
               row_bytes +
           sequence * sizeof(typename M::Word);
  };
  const unsigned char* pixels = frame(0);
  const unsigned char* older = frame(2);
  const int end = min(first + G::pixel_rows, a.shape.pixels);
  const int start = first + static_cast<int>(threadIdx.x) / chunks;
  if (math.scores()) {
#pragma unroll 4
    for (int row = start; row < end; row += threads / chunks) {
      const std::size_t at = static_cast<std::size_t>(row) * row_bytes;
      Octet<M> target, before;
      target.bits = *reinterpret_cast<const uint4*>(pixels + at);
      before.bits = *reinterpret_cast<const uint4*>(older + at);
      math.score_persistence(target, before);
    }
  }
  add_score(math.sums, state, score);
}

/// Blocks: those of the pixels, which take longest, then those of the panels. The cursor goes on to
/// the next step.
template <class M, int Bp>
__global__ void __launch_bounds__(threads, GatherShape<Bp>::blocks)
    gather_kernel(const __grid_constant__ Arguments a) {
  using G = GatherShape<Bp>;
  const unsigned int pixel_blocks = G::pixel_blocks(a.shape.pixels);
  const bool scores = blockIdx.x < pixel_blocks;
  const unsigned int block = scores ? blockIdx.x : blockIdx.x - pixel_blocks;
  PanelSums panel{};
  if (!scores) panel = a.sums[block / G::panel_blocks];
  wait_for_previous_kernel();
  let_next_kernel_start();  // not before: it may read masters at once
  if (threadIdx.x == 0 && blockIdx.x == 0) *a.first = next_step(a.shape, *a.second, false);
  if (scores) {
    score_frames<M, Bp>(a, static_cast<int>(block), a.score + (a.score_slice + block) * 3);
  } else {
    gather_rows<M, Bp>(a, panel, static_cast<int>(block % G::panel_blocks));
  }
}

/// Launches `gather_kernel` for a batch that is known at run time.
template <class M>
struct GatherLauncher {
  int padded;
  bool early;

  template <class What>
  void for_batch(What&& what) const {
    with_constant<16, 32, 64, 128, 256>(padded, what);
  }
  /// Places of the score for the frames of `pixels`.
  [[nodiscard]] std::size_t scores(int pixels) const {
    std::size_t places = 0;
    for_batch([&]<int Bp>() {
      using G = GatherShape<Bp>;
      places = G::pixel_blocks(pixels);
    });
    return places;
  }
  void operator()(const Arguments& a, cudaStream_t stream) const {
    for_batch([&]<int Bp>() {
      using G = GatherShape<Bp>;
      const dim3 grid(G::pixel_blocks(a.shape.pixels) + a.sum_count * G::panel_blocks);
      cuda_check(launch(gather_kernel<M, Bp>, {grid, threads, 0, stream, early}, a),
                 "launching the gather kernel");
    });
  }
};

}  // namespace pvm::inline v0::detail::batch
