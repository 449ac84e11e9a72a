// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The patches that units of the first layer see.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/chip/multiprocessor.cuh>
#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/chip/state.cuh>
#include <pvm/engine/cuda/instructions.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden, Home home>
__device__ __forceinline__ void Multiprocessor<Precision, Hidden, home>::read_patch(
    int u, int ahead_by) const {
  const ChipUnit& my = unit(u);
  const ChipLaunch& l = launch();
  const int frame = now().frame + ahead_by;
  const unsigned long long t = now().step + static_cast<unsigned>(ahead_by);
  const int across = a.side / a.block_size;
  const auto patch = static_cast<int>(my.patch);
  const int corner =
      (patch / across * a.block_size * a.side + patch % across * a.block_size) * a.channels;
  const std::size_t size = static_cast<std::size_t>(a.patches) * a.patch;
  const float* values = l.squeezed == nullptr
                            ? nullptr
                            : l.squeezed + static_cast<std::size_t>(frame) * size + corner;
  const std::uint8_t* bytes = frames()[frame];
  const std::uint8_t* next = frame + 1 < l.count ? frames()[frame + 1] : nullptr;
  std::uint32_t* record = past(t) + a.first_patch + my.patch * a.patch_record;
  std::uint32_t* x = shared + my.x + ((t & 1) != 0 ? my.padded : 0);
  float v[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) v[i] = 0;
  constexpr int at_once = 3;  // pixels that a lane has under way
#pragma unroll 1
  for (int first = lane(); first < a.patch; first += 32 * at_once) {
    std::uint32_t words[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int k = first + 32 * i;
      words[i] = 0;
      if (k >= a.patch) continue;
      const std::uint32_t at = shared[ChipAreas::offsets + k];
      words[i] = Words::pack(values != nullptr
                                 ? __ldcg(values + at)
                                 : squeeze_pixel(static_cast<float>(__ldcg(bytes + corner + at))));
      if (next != nullptr) prefetch_line(next + corner + at);
    }
    float pixel[at_once];
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      const int k = first + 32 * i;
      pixel[i] = Words::unpack(words[i]);
      if (k >= a.patch) continue;
      x[k] = words[i];
      record[in_pieces(k)] = words[i];
      seen(my, t)[k] = pixel[i];
    }
#pragma unroll
    for (int age = 0; age < S::terms; ++age) {
      const float* then = seen(my, t - 3 - age + ring) + first;
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (first + 32 * i < a.patch) v[age] = __fmaf_rn(pixel[i], then[32 * i], v[age]);
      }
    }
  }
  const float sum = sum_each(v);
  if (lane() < sums) {
    record[a.patch_products + lane()] = __float_as_uint(sum);
    primary_sums(u, t)[lane()] = sum;
  }
}

template <class Precision, int Hidden, Home home>
template <int Half>
__device__ __forceinline__ float Multiprocessor<Precision, Hidden, home>::sum_each(
    float (&v)[32]) const {
  const bool upper = (lane() & Half) != 0;
#pragma unroll
  for (int i = 0; i < Half; ++i) {
    const float send = upper ? v[i] : v[i + Half];
    const float keep = upper ? v[i + Half] : v[i];
    v[i] = keep + __shfl_xor_sync(every_lane, send, Half);
  }
  if constexpr (Half > 1) {
    return sum_each<Half / 2>(v);
  } else {
    return v[0];
  }
}

}  // namespace pvm::inline v0::detail::chip
