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
#include <pvm/engine/cuda/units/step/multiprocessor.cuh>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::units {

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ auto Multiprocessor<Precision, Hidden, home>::load_pixels(
    int u, int ahead_by, int first) const -> Pixels {
  const ChipLaunch& l = launch();
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
    const std::uint32_t at = shared[ChipAreas::offsets + k];
    pixels.v[i] = squeezed ? __float_as_uint(__ldcg(values + at)) : __ldcg(bytes + at);
  }
  return pixels;
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::store_pixels(
    int u, int ahead_by, int first, const Pixels& pixels) const {
  const ChipUnit& my = unit(u);
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

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::finish_patch(
    int u, int ahead_by) const {
  const ChipUnit& my = unit(u);
  const unsigned long long t = now().step + static_cast<unsigned>(ahead_by);
  __syncwarp();  // the lanes read pixels that other lanes have written
  const float* saw = seen(my, -ahead_by);
  const int age = min(lane() & (table_row - 1), S::terms - 1);
  const float* then = seen(my, 3 + age - ahead_by);
  const float sum =
      patch_product([&](int k) { return four(saw + k); }, [&](int k) { return four(then + k); },
                    [&](int k) { return saw[k]; }, [&](int k) { return then[k]; });
  if (lane() < table_row) {
    std::uint32_t* record = past(t) + a.first_patch + my.patch * a.patch_record;
    record[a.patch_products + lane()] = __float_as_uint(sum);
    primary_sums(u, t)[lane()] = sum;
  }
}

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::read_patch(
    int u, int ahead_by) const {
#pragma unroll 1
  for (int first = lane(); first - lane() < a.patch; first += 32 * pixels_at_once) {
    store_pixels(u, ahead_by, first, load_pixels(u, ahead_by, first));
  }
  finish_patch(u, ahead_by);
}

template <class Precision, int Hidden, Home home>
template <class FourNow, class FourThen, class NowAt, class ThenAt>
__device__ __forceinline__ float Multiprocessor<Precision, Hidden, home>::patch_product(
    FourNow four_now, FourThen four_then, NowAt now_at, ThenAt then_at) const {
  const int half = lane() / table_row;
  const int in_fours = a.patch / 4 * 4;
  float4 sum = {0, 0, 0, 0};
#pragma unroll 3
  for (int k = 4 * half; k < in_fours; k += 8) {
    const float4 v = four_now(k), w = four_then(k);
    sum.x = __fmaf_rn(v.x, w.x, sum.x);
    sum.y = __fmaf_rn(v.y, w.y, sum.y);
    sum.z = __fmaf_rn(v.z, w.z, sum.z);
    sum.w = __fmaf_rn(v.w, w.w, sum.w);
  }
#pragma unroll 1
  for (int k = in_fours + half; k < a.patch; k += 2) {
    sum.x = __fmaf_rn(now_at(k), then_at(k), sum.x);
  }
  const float mine = (sum.x + sum.y) + (sum.z + sum.w);
  const float all = mine + __shfl_xor_sync(every_lane, mine, table_row);
  return (lane() & (table_row - 1)) < S::terms ? all : 0.0F;
}

}  // namespace pvm::inline v0::detail::units
