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

/// A block of threads gathers a panel for a slice of the sequences, or scores so many rows of
/// pixels for it.
template <int Bp>
struct GatherShape {
  static constexpr int slice = Bp < 64 ? Bp : 64;
  static constexpr int slices = Bp / slice;
  static constexpr int stride = slice + 4;
  static constexpr int pixel_rows = 128;
  static constexpr int blocks = 5;  ///< on a multiprocessor, so that all panels of small fit
  static constexpr unsigned int pixel_blocks(int pixels) {
    return static_cast<unsigned int>((pixels + pixel_rows - 1) / pixel_rows);
  }
};

/// The panel's sums over its parts, [56][stride].
template <int Bp>
__device__ __forceinline__ void add_parts(const Arguments& a, const PanelSums& panel, float* sums) {
  using G = GatherShape<Bp>;
  using W = SweepWarps<Bp>;
  constexpr int pieces = G::slice / 16 * panel_tiles;
  constexpr int each = (pieces + threads / 32 - 1) / (threads / 32);  ///< of a warp
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int across = static_cast<int>(blockIdx.y) * (G::slice / 16);
  float4 sum[each];
#pragma unroll
  for (int i = 0; i < each; ++i) sum[i] = make_float4(0, 0, 0, 0);
  for (std::uint32_t part = panel.part; part < panel.part + panel.parts; ++part) {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int piece = warp + i * (threads / 32);
      if (piece >= pieces) continue;
#pragma unroll
      for (int deep = 0; deep < W::kept / W::across; ++deep) {
        const int from = deep * W::across + across + piece / panel_tiles;
        const float4 more = __ldcg(sweep_part<Bp>(a, part, from) + piece % panel_tiles * 32 + lane);
        sum[i].x += more.x;
        sum[i].y += more.y;
        sum[i].z += more.z;
        sum[i].w += more.w;
      }
    }
  }
#pragma unroll
  for (int i = 0; i < each; ++i) {
    const int piece = warp + i * (threads / 32);
    if (piece >= pieces) continue;
    float* to = sums + (piece % panel_tiles * 8 + (lane & 3) * 2) * G::stride +
                piece / panel_tiles * 16 + (lane >> 2);
    to[0] = sum[i].x;
    to[G::stride] = sum[i].y;
    to[8] = sum[i].z;
    to[G::stride + 8] = sum[i].w;
  }
}

/// h and c(h), or d0, of a panel.
template <class M, int Bp>
__device__ __forceinline__ void publish_panel(const Arguments& a, const PanelSums& panel,
                                              const Cursor& now, const float* sums) {
  using G = GatherShape<Bp>;
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(panel.count) * (G::slice / 4);
       i += threads) {
    const int n = i / (G::slice / 4);
    const int b = i % (G::slice / 4) * 4;
    const float4 v = *reinterpret_cast<const float4*>(sums + n * G::stride + b);
    const float four[4] = {v.x, v.y, v.z, v.w};
    const std::size_t row = panel.out + static_cast<std::size_t>(n);
    const std::size_t sequence =
        static_cast<std::size_t>(blockIdx.y) * G::slice + static_cast<std::size_t>(b);
    if (panel.gradient != 0) {
      publish_gradient<M>(a, now, row, sequence, four);
    } else {
      publish<M>(a, now.hidden, row, sequence, four);
    }
  }
}

/// How far pixels moved in two steps, rows `first` and on.
template <class M, int Bp>
__device__ __forceinline__ void score_frames(const Arguments& a, int first, BlockState& state,
                                             double* score) {
  using G = GatherShape<Bp>;
  constexpr int size = Octet<M>::size;
  constexpr int chunks = G::slice / size;
  constexpr std::size_t row_bytes = Bp * sizeof(typename M::Word);
  const Cursor& now = state.cursor;
  const int chunk = static_cast<int>(threadIdx.x) % chunks;
  const std::size_t sequence =
      static_cast<std::size_t>(blockIdx.y) * G::slice + static_cast<std::size_t>(chunk * size);
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

/// Blocks (x: panels, then rows of pixels; y: slices). The cursor goes on to the next step.
template <class M, int Bp>
__global__ void __launch_bounds__(threads, GatherShape<Bp>::blocks)
    gather_kernel(const __grid_constant__ Arguments a) {
  using G = GatherShape<Bp>;
  __shared__ __align__(16) float sums[panel_width * G::stride];
  __shared__ BlockState state;
  __shared__ PanelSums panel;
  const bool gathers = blockIdx.x < a.sum_count;
  if (threadIdx.x == 0 && gathers) panel = a.sums[blockIdx.x];
  wait_for_previous_kernel();
  let_next_kernel_start();  // not before: it may read masters at once
  if (threadIdx.x == 0) {
    state.cursor = *a.second;
    if (blockIdx.x == 0 && blockIdx.y == 0) *a.first = next_step(a.shape, state.cursor, false);
  }
  __syncthreads();
  if (gathers) {
    add_parts<Bp>(a, panel, sums);
    __syncthreads();
    publish_panel<M, Bp>(a, panel, state.cursor, sums);
  } else {
    const unsigned int block = blockIdx.x - a.sum_count;
    score_frames<M, Bp>(a, static_cast<int>(block) * G::pixel_rows, state,
                        a.score + (a.score_slice + block * G::slices + blockIdx.y) * 3);
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
      places = static_cast<std::size_t>(G::pixel_blocks(pixels)) * G::slices;
    });
    return places;
  }
  void operator()(const Arguments& a, cudaStream_t stream) const {
    for_batch([&]<int Bp>() {
      using G = GatherShape<Bp>;
      const dim3 grid(a.sum_count + G::pixel_blocks(a.shape.pixels), G::slices);
      cuda_check(launch(gather_kernel<M, Bp>, {grid, threads, 0, stream, early}, a),
                 "launching the gather kernel");
    });
  }
};

}  // namespace pvm::inline v0::detail::batch
