// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Frames as they come, [steps][batch][pixels], become rows of operands [pixels][Bp], and the
/// block's tables take their places in the rings. Runs on the upload stream.

#include <cstdint>

#include <pvm/engine/cuda/batch/product_core.cuh>
#include <pvm/engine/cuda/check.hpp>
#include <pvm/engine/cuda/launch.hpp>

namespace pvm::inline v0::detail::batch {

/// A block of frames on the device.
struct Uploaded {
  const std::uint8_t* const* frames;  ///< [steps][batch]: [pixels], or
  const float* squeezed;              ///< ... values that are squeezed already
  const std::uint8_t* scored;         ///< [steps][batch]
  const float* tables;                ///< [steps][table]
  std::uint32_t slot;                 ///< of the first frame
};

/// Pixels `first` to `first + 3` of a frame of `count`, squeezed, as far as they exist.
__device__ __forceinline__ void read_pixels(float (&v)[4], const Uploaded& from, std::size_t frame,
                                            int first, int count) {
  if (from.squeezed != nullptr) {
    const float* squeezed = from.squeezed + frame * static_cast<std::size_t>(count);
    for (int k = 0; k < 4; ++k) v[k] = first + k < count ? squeezed[first + k] : 0.0F;
    return;
  }
  const std::uint8_t* pixels = from.frames[frame] + first;
  if (first + 3 < count && reinterpret_cast<std::uintptr_t>(pixels) % 4 == 0) {
    const std::uint32_t four = *reinterpret_cast<const std::uint32_t*>(pixels);
    for (int k = 0; k < 4; ++k) v[k] = squeeze_pixel(static_cast<float>(four >> 8 * k & 255U));
    return;
  }
  for (int k = 0; k < 4; ++k) {
    if (first + k < count) v[k] = squeeze_pixel(static_cast<float>(pixels[k]));
  }
}

/// Grid: (pixels / 64, Bp / 32, steps), 256 threads.
template <class M>
__global__ void __launch_bounds__(256)
    frames_kernel(const __grid_constant__ Arguments a, const __grid_constant__ Uploaded from) {
  __shared__ float tile[32][65];
  const Shape& s = a.shape;
  const auto step = static_cast<std::size_t>(blockIdx.z);
  const std::size_t slot = (from.slot + step) % static_cast<std::size_t>(s.frames);
  const int first_pixel = static_cast<int>(blockIdx.x) * 64;
  const int first_sequence = static_cast<int>(blockIdx.y) * 32;
  const int thread = static_cast<int>(threadIdx.x);
#pragma unroll
  for (int i = thread; i < 32 * 16; i += 256) {
    const int b = first_sequence + i / 16;
    const int pixel = first_pixel + i % 16 * 4;
    float v[4] = {};
    if (b < s.batch) {
      const std::size_t frame =
          step * static_cast<std::size_t>(s.batch) + static_cast<std::size_t>(b);
      read_pixels(v, from, frame, pixel, s.pixels);
    }
    for (int k = 0; k < 4; ++k) tile[i / 16][i % 16 * 4 + k] = v[k];
  }
  __syncthreads();
  auto* rows = reinterpret_cast<typename M::Word*>(a.pixels) +
               slot * static_cast<std::size_t>(s.pixels) * static_cast<std::size_t>(s.padded);
#pragma unroll
  for (int i = thread; i < 8 * 64; i += 256) {
    const int own = i % 8 * 4;  // of four sequences
    const int b = first_sequence + own;
    const int pixel = first_pixel + i / 8;
    if (b >= s.padded || pixel >= s.pixels) continue;
    const float v[4] = {tile[own][i / 8], tile[own + 1][i / 8], tile[own + 2][i / 8],
                        tile[own + 3][i / 8]};
    store_operands<M>(rows + static_cast<std::size_t>(pixel) * static_cast<std::size_t>(s.padded) +
                          static_cast<std::size_t>(b),
                      v);
  }
  if (blockIdx.x != 0 || blockIdx.y != 0) return;
  auto* scored = const_cast<std::uint8_t*>(a.scored) + slot * static_cast<std::size_t>(s.padded);
  for (int b = thread; b < s.batch; b += 256) {
    scored[b] = from.scored[step * static_cast<std::size_t>(s.batch) + static_cast<std::size_t>(b)];
  }
  auto* table = const_cast<float*>(a.tables) + slot * static_cast<std::size_t>(s.table);
  for (int i = thread; i < s.table; i += 256) {
    table[i] = from.tables[step * static_cast<std::size_t>(s.table) + static_cast<std::size_t>(i)];
  }
}

template <class M>
void convert_frames(const Arguments& a, const Uploaded& from, int steps, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>((a.shape.pixels + 63) / 64),
                  static_cast<unsigned>((a.shape.padded + 31) / 32), static_cast<unsigned>(steps));
  cuda_check(launch(frames_kernel<M>, {grid, threads, 0, stream}, a, from),
             "launching the frames kernel");
}

}  // namespace pvm::inline v0::detail::batch
