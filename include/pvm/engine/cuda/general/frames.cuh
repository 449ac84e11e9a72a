// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Frames: conversion from bytes to patches of floats, some steps ahead, and the inner products of
/// a patch with its past.

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/general/products.cuh>
#include <pvm/engine/cuda/general/thread_block.cuh>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::general {

/// Converts the frames of step t + ahead, from [row][column][channel] bytes to patches of squeezed
/// floats in that step's row of the past. All thread blocks share the work.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::convert_frame(int ahead) const {
  const int size = a.patches * a.patch;
  const auto frame = static_cast<std::size_t>(now.frame + ahead);
  const int across = a.side / a.block_size;
  const int line = a.block_size * a.channels;
#pragma unroll 1
  for (int pixel = blockIdx.x * threads + threadIdx.x; pixel < size; pixel += gridDim.x * threads) {
    const int patch = pixel / a.patch;
    const int inside = pixel - patch * a.patch;
    const int row = patch / across * a.block_size + inside / line;
    const int at = (row * a.side + patch % across * a.block_size) * a.channels + inside % line;
    a.past[past_row(a.ring - ahead) + a.first_pixel + pixel] =
        now.squeezed != nullptr ? now.squeezed[frame * size + at]
                                : squeeze_pixel(static_cast<float>(now.frames[frame][at]));
  }
}

/// Inner products of the frame of step t with its past, for the patches of this thread block's
/// units.
template <class Precision, int RG, class Known>
__device__ __forceinline__ void ThreadBlock<Precision, RG, Known>::patch_products(
    const Team& team) const {
  const std::uint32_t* patches = list<std::uint32_t>(p.patches);
  const float* pixels = a.past + past_row(0) + a.first_pixel;
  inner_products(
      team, static_cast<int>(p.patch_count), a.patch,
      [&](int k, int o) { return load_fresh(pixels + patches[k] * a.patch + o); },
      [&](int k) { return make_uint2(a.first_pixel + patches[k] * a.patch, 0); },
      [&](int k, int age) { return inner_row(now.inner, a.units + patches[k]) + age; });
}

}  // namespace pvm::inline v0::detail::general
