// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The patches that units of layer 0 see: their pixels become A, and their inner products with the
/// patches in the steps of the listed gradients take the place of those that sources send.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/cuda/units/step/thread_block.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::units {

/// Starts the loads of pixels `first`, first + 32 and so on of a unit's patch, in the frame
/// `ahead_by` steps after the current one. Loads nothing if the launch does not have that frame.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ auto ThreadBlock<Precision, Hidden, home, Own>::load_pixels(
    int u, int ahead_by, int first) const -> Pixels {
  const Launch& l = launch();
  const int frame = now().frame + ahead_by;
  Pixels pixels{};
  if (frame >= l.count) return pixels;
  const std::uint32_t corner = area(u)[S::corner];
  const bool squeezed = l.squeezed != nullptr;
  const std::size_t size = static_cast<std::size_t>(a.patches) * a.patch;
  const float* values = l.squeezed + static_cast<std::size_t>(frame) * size + corner;
  const std::uint8_t* bytes = frames()[frame] + corner;
#pragma unroll
  for (int i = 0; i < pixels_at_once; ++i) {
    const int k = first + 32 * i;
    if (k >= a.patch) continue;
    const std::uint32_t at = shared[Areas::offsets + k];
    pixels.v[i] = squeezed ? __float_as_uint(__ldcg(values + at)) : __ldcg(bytes + at);
  }
  return pixels;
}

/// Stores these pixels to A of that frame's step, to its row of the past, and to the history.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::store_pixels(
    int u, int ahead_by, int first, const Pixels& pixels) const {
  const ProgramUnit& my = unit(u);
  const unsigned long long t = now().step + static_cast<unsigned>(ahead_by);
  const bool squeezed = launch().squeezed != nullptr;
  std::uint32_t* record = past(t) + a.first_patch + my.patch * a.patch_record;
  std::uint32_t* x = shared + my.x + ((t & 1) != 0 ? my.padded : 0);
  float* saw = seen(my, -ahead_by);
#pragma unroll
  for (int i = 0; i < pixels_at_once; ++i) {
    const int k = first + 32 * i;
    if (k >= a.patch) continue;
    const std::uint32_t word = Words::pack(
        squeezed ? __uint_as_float(pixels.v[i]) : squeeze_pixel(static_cast<float>(pixels.v[i])));
    x[k] = word;
    record[in_pieces(k)] = word;
    saw[k] = Words::unpack(word);
  }
}

/// Makes the inner products of a complete patch with the listed past: one warp's work.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::finish_patch(
    int u, int ahead_by) const {
  const ProgramUnit& my = unit(u);
  const unsigned long long t = now().step + static_cast<unsigned>(ahead_by);
  __syncwarp();  // the lanes read pixels that other lanes have written
  const float* saw = seen(my, -ahead_by);
  const int age = min(lane() & (S::row_lanes - 1), S::terms - 1);
  const float* then = seen(my, 3 + age - ahead_by);
  const float sum =
      patch_product([&](int k) { return four(saw + k); }, [&](int k) { return four(then + k); },
                    [&](int k) { return saw[k]; }, [&](int k) { return then[k]; });
  if (lane() < S::table_row) {
    std::uint32_t* record = past(t) + a.first_patch + my.patch * a.patch_record;
    record[a.patch_products + lane()] = __float_as_uint(sum);
    primary_sums(u, t)[lane()] = sum;
  }
}

/// Loads, stores and finishes a patch: one warp's work.
template <class Precision, int Hidden, Home home, class Own>
__device__ __forceinline__ void ThreadBlock<Precision, Hidden, home, Own>::read_patch(
    int u, int ahead_by) const {
#pragma unroll 1
  for (int first = lane(); first - lane() < a.patch; first += 32 * pixels_at_once) {
    store_pixels(u, ahead_by, first, load_pixels(u, ahead_by, first));
  }
  finish_patch(u, ahead_by);
}

/// The inner product of two patches, of which `four_now(i)` and `four_then(i)` return pixels i to i
/// + 3, `now_at(i)` and `then_at(i)` pixel i. Where a warp has two rows of ages, each
/// half of it sums every other four pixels; both get the sum. Written with explicit fused
/// multiply-adds, so that it is rounded alike in all kernels.
template <class Precision, int Hidden, Home home, class Own>
template <class FourNow, class FourThen, class NowAt, class ThenAt>
__device__ __forceinline__ float ThreadBlock<Precision, Hidden, home, Own>::patch_product(
    FourNow four_now, FourThen four_then, NowAt now_at, ThenAt then_at) const {
  constexpr int parts = 32 / S::row_lanes;
  const int part = lane() / S::row_lanes;
  const int in_fours = a.patch / 4 * 4;
  float4 sum = {0, 0, 0, 0};
#pragma unroll 3
  for (int k = 4 * part; k < in_fours; k += 4 * parts) {
    const float4 v = four_now(k), w = four_then(k);
    sum.x = __fmaf_rn(v.x, w.x, sum.x);
    sum.y = __fmaf_rn(v.y, w.y, sum.y);
    sum.z = __fmaf_rn(v.z, w.z, sum.z);
    sum.w = __fmaf_rn(v.w, w.w, sum.w);
  }
#pragma unroll 1
  for (int k = in_fours + part; k < a.patch; k += parts) {
    sum.x = __fmaf_rn(now_at(k), then_at(k), sum.x);
  }
  const float mine = (sum.x + sum.y) + (sum.z + sum.w);
  const float all = parts == 1 ? mine : mine + __shfl_xor_sync(every_lane, mine, S::row_lanes);
  return (lane() & (S::row_lanes - 1)) < S::terms ? all : 0.0F;
}

}  // namespace pvm::inline v0::detail::units
