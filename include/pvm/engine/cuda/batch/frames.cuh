// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Frames as they come, [steps][batch][pixels], become rows of operands [pixels][Bp], and the
/// block's tables take their places in the rings. Runs on the upload stream.

#include <cstdint>

#include <pvm/engine/cuda/batch/errors.cuh>
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

/// Blocks of threads for the frame of a step.
inline dim3 frame_blocks(const Shape& s, int steps) {
  return dim3(static_cast<unsigned>((s.pixels + 63) / 64),
              static_cast<unsigned>((s.padded + 31) / 32), static_cast<unsigned>(steps));
}
/// 64 pixels of 32 sequences, which a block of threads makes rows of.
using FrameTile = float[32][65];
/// The rows of the block's tile in the frame of slot `slot`.
template <class M>
__device__ __forceinline__ typename M::Word* block_rows(const Arguments& a, std::size_t slot) {
  const auto first = slot * static_cast<std::size_t>(a.shape.pixels) + blockIdx.x * 64;
  return reinterpret_cast<typename M::Word*>(a.pixels) +
         first * static_cast<std::size_t>(a.shape.padded) + blockIdx.y * 32;
}
/// Calls what(sequence, pixel) for each pixel of each four sequences of the tile that exist.
template <class What>
__device__ __forceinline__ void for_each_four(const Shape& s, What&& what) {
#pragma unroll
  for (int i = static_cast<int>(threadIdx.x); i < 8 * 64; i += 256) {
    const int own = i % 8 * 4;
    const int pixel = i / 8;
    if (static_cast<int>(blockIdx.y) * 32 + own < s.padded &&
        static_cast<int>(blockIdx.x) * 64 + pixel < s.pixels) {
      what(own, pixel);
    }
  }
}
/// What a step before has left there.
template <class M>
__device__ __forceinline__ void read_rows(FrameTile& tile, const Arguments& a, std::size_t slot) {
  const typename M::Word* rows = block_rows<M>(a, slot);
  for_each_four(a.shape, [&](int own, int pixel) {
    for (int k = 0; k < 4; ++k) {
      tile[own + k][pixel] = M::value(rows[pixel * a.shape.padded + own + k]);
    }
  });
}
template <class M>
__device__ __forceinline__ void write_rows(const Arguments& a, std::size_t slot,
                                           const FrameTile& tile) {
  typename M::Word* rows = block_rows<M>(a, slot);
  for_each_four(a.shape, [&](int own, int pixel) {
    const float v[4] = {tile[own][pixel], tile[own + 1][pixel], tile[own + 2][pixel],
                        tile[own + 3][pixel]};
    store_operands<M>(rows + pixel * a.shape.padded + own, v);
  });
}
/// What repeating the frame of two steps ago misses of four values.
template <class M>
__device__ __forceinline__ void add_persistence(float& missed, const float (&now)[4],
                                                const float (&older)[4]) {
  float wanted[4], said[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    wanted[k] = M::value(M::operand(now[k]));
    said[k] = M::value(M::operand(older[k]));
  }
  add_missed(missed, wanted, said, 15);
}
/// The sum over a block of threads, to its place among those of the frame.
__device__ __forceinline__ void store_persistence(const Arguments& a, std::size_t slot,
                                                  float missed) {
  __shared__ float of_warps[8];
  for (int other = 16; other > 0; other /= 2) missed += __shfl_xor_sync(~0U, missed, other);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = missed;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (const float v : of_warps) sum += v;
  a.missed[slot * static_cast<std::size_t>(a.missed_places) + blockIdx.y * gridDim.x + blockIdx.x] =
      sum;
}

/// Grid: (pixels / 64, Bp / 32, steps), 256 threads. What repeating the frame would miss is scored
/// here, where the steps do not wait for it.
template <class M>
__global__ void __launch_bounds__(256)
    frames_kernel(const __grid_constant__ Arguments a, const __grid_constant__ Uploaded from) {
  __shared__ FrameTile tile;
  const Shape& s = a.shape;
  const auto step = static_cast<std::size_t>(blockIdx.z);
  const auto batch = static_cast<std::size_t>(s.batch);
  const std::size_t slot = (from.slot + step) % static_cast<std::size_t>(s.frames);
  const int thread = static_cast<int>(threadIdx.x);
  const bool came_before = step < 2;  // the frame of two steps ago, with another block
  if (a.missed != nullptr && came_before) {
    read_rows<M>(tile, a, slot_before(static_cast<std::uint32_t>(slot), s.frames, 2));
    __syncthreads();
  }
  float missed = 0;
#pragma unroll
  for (int i = thread; i < 32 * 16; i += 256) {
    const int b = static_cast<int>(blockIdx.y) * 32 + i / 16;
    const int pixel = static_cast<int>(blockIdx.x) * 64 + i % 16 * 4;
    float* four = &tile[i / 16][i % 16 * 4];
    float v[4] = {};
    if (b < s.batch) {
      const std::size_t frame = step * batch + static_cast<std::size_t>(b);
      read_pixels(v, from, frame, pixel, s.pixels);
      if (a.missed != nullptr && from.scored[frame] != 0) {
        float older[4] = {};
        if (!came_before) read_pixels(older, from, frame - 2 * batch, pixel, s.pixels);
        for (int k = 0; k < 4; ++k) {
          if (came_before && pixel + k < s.pixels) older[k] = four[k];
        }
        add_persistence<M>(missed, v, older);
      }
    }
    for (int k = 0; k < 4; ++k) four[k] = v[k];
  }
  __syncthreads();
  write_rows<M>(a, slot, tile);
  if (a.missed != nullptr) store_persistence(a, slot, missed);
  if (blockIdx.x != 0 || blockIdx.y != 0) return;
  auto* scored = const_cast<std::uint8_t*>(a.scored) + slot * static_cast<std::size_t>(s.padded);
  for (int b = thread; b < s.batch; b += 256) {
    scored[b] = from.scored[step * batch + static_cast<std::size_t>(b)];
  }
  auto* table = const_cast<float*>(a.tables) + slot * static_cast<std::size_t>(s.table);
  for (int i = thread; i < s.table; i += 256) {
    table[i] = from.tables[step * static_cast<std::size_t>(s.table) + static_cast<std::size_t>(i)];
  }
}

template <class M>
void convert_frames(const Arguments& a, const Uploaded& from, int steps, cudaStream_t stream) {
  cuda_check(launch(frames_kernel<M>, {frame_blocks(a.shape, steps), threads, 0, stream}, a, from),
             "launching the frames kernel");
}

}  // namespace pvm::inline v0::detail::batch
