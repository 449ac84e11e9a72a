// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels of a frozen step for many streams: frames into the streams' values, h = f(W0 x), and
/// the predictions f(W1 r).

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/infer/gpu/formats.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::infer::gpu {

/// What a granule of an input is a part of.
/// Of the step before, the one before that, or this one.
enum Kind : std::uint32_t { hidden_1, hidden_2, hidden_now, patch_now, patch_1 };
inline constexpr int kinds = 5;
inline constexpr int kind_shift = 28;  ///< of a kind in an entry of the table; below it, the granule

inline constexpr int warps = 8;            ///< of a thread block
inline constexpr int tile_rows = 16;       ///< streams that a warp multiplies at once
inline constexpr int tile_columns = 7;     ///< tiles of eight rows of a matrix, at most
inline constexpr int item_rows = 8 * tile_columns;

/// Up to 56 rows of a matrix. Every sum is made of eight parts of its depth, whoever makes them,
/// and the parts are added in order: so its bits do not depend on how many streams there are.
struct Item {
  std::uint32_t table = 0;    ///< its first entry, one for each granule of the input
  std::uint32_t weights = 0;  ///< its first granule of weights, [block][tile][lane]
  std::uint32_t blocks = 0;   ///< of four granules
  std::uint32_t scale = 0;    ///< its first row in `scales` and `offsets`
  std::uint16_t rows = 0;
  std::uint16_t first = 0;  ///< its first row in the matrix
  std::uint32_t unit = 0;
  std::uint16_t unit_row = 0, unit_column = 0;
};

/// A stream's part of a step. `base[kind]`: its first granule of that kind.
struct StepRow {
  std::uint32_t base[kinds] = {};
  std::uint32_t used = 0;  ///< 0: padding, whose results go nowhere
};

struct StepArguments {
  const Item* items = nullptr;
  const std::uint32_t* table = nullptr;
  const void* weights = nullptr;
  const float *scales = nullptr, *offsets = nullptr;
  const StepRow* rows = nullptr;
  int count = 0;                         ///< of rows
  uint2* values = nullptr;               ///< of all streams, in granules
  const std::uint8_t* frames = nullptr;  ///< [row][frame]
  float* hidden = nullptr;               ///< [row][unit][hidden], null: not asked for
  float* predictions = nullptr;          ///< [row][frame]
  int patches = 0, patch = 0, line = 0, block = 0, frame = 0, frame_row = 0;
  int hidden_each = 0, units = 0;                  ///< hidden values of a unit
  int hidden_granules = 0, patch_granules = 0;  ///< of a unit
};

/// Copies the frames into the values of the streams' layer 0: a thread for each granule.
template <class Format>
__global__ void take_frames(const StepArguments a) {
  const StepRow& row = a.rows[blockIdx.y];
  const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
  if (row.used == 0 || i >= a.patches * a.patch_granules) return;
  const int unit = i / a.patch_granules, first = i % a.patch_granules * Format::each;
  const int side = a.frame_row / a.line;  // units
  const std::uint8_t* const frame =
      a.frames + static_cast<std::size_t>(blockIdx.y) * static_cast<std::size_t>(a.frame) +
      unit / side * a.block * a.frame_row + unit % side * a.line;
  union {
    uint2 all;
    typename Format::Stored each[Format::each];
  } granule;
  granule.all = make_uint2(0, 0);
  for (int k = 0; k < Format::each && first + k < a.patch; ++k) {
    const int at = first + k;
    granule.each[k] = Format::store_pixel(frame[at / a.line * a.frame_row + at % a.line]);
  }
  a.values[row.base[patch_now] + static_cast<std::uint32_t>(i)] = granule.all;
}

/// A warp's tile of sums: 16 streams by up to 56 rows of a matrix.
template <class Format>
struct Tile {
  const StepArguments& a;
  const Item& item;
  const std::uint32_t* base;  ///< [row of the tile][kind]
  int lane;
  typename Format::Sum sums[tile_columns][4] = {};

  /// Adds part `part` of the depth.
  __device__ __forceinline__ void multiply(int part) {
    const auto blocks = static_cast<int>(item.blocks);
    const int end = (part + 1) * blocks / warps;
    const int tiles = (item.rows + 7) / 8;
    const std::uint32_t* const table = a.table + item.table + lane % 4;
    const std::uint32_t* const upper = base + lane / 4 * kinds;
    const std::uint32_t* const lower = upper + 8 * kinds;
    const auto* const weights =
        static_cast<const typename Format::Weights*>(a.weights) + item.weights + lane;
#pragma unroll 4
    for (int block = part * blocks / warps; block < end; ++block) {
      const std::uint32_t entry = __ldg(table + 4 * block);
      const std::uint32_t kind = entry >> kind_shift, at = entry & ((1U << kind_shift) - 1);
      const uint2 x = a.values[upper[kind] + at], y = a.values[lower[kind] + at];
      const std::uint32_t operand[4] = {x.x, y.x, x.y, y.y};
#pragma unroll
      for (int tile = 0; tile < tile_columns; ++tile) {
        if (tile < tiles) {
          Format::multiply(sums[tile], operand, weights[(block * tiles + tile) * 32]);
        }
      }
    }
  }
};

/// The value of a sum. Rounded after each operation, as the host rounds.
template <class Function>
__device__ __forceinline__ float value_of_sum(float scale, float sum, float offset) {
  return Function::value(__fadd_rn(__fmul_rn(scale, sum), offset));
}

/// Puts a sum's value where it belongs: row `r` of the item, stream `row`.
template <class Format, class Function, bool Predicts>
__device__ __forceinline__ void finish(const StepArguments& a, const Item& item, int row, int r,
                                       typename Format::Sum sum) {
  const StepRow& stream = a.rows[row];
  if (stream.used == 0 || r >= item.rows) return;
  const float v = value_of_sum<Function>(a.scales[item.scale + static_cast<std::uint32_t>(r)],
                                         static_cast<float>(sum),
                                         a.offsets[item.scale + static_cast<std::uint32_t>(r)]);
  const int at = item.first + r;
  if constexpr (Predicts) {
    const int pixel = (item.unit_row * a.block + at / a.line) * a.frame_row +
                      item.unit_column * a.line + at % a.line;
    a.predictions[static_cast<std::size_t>(row) * static_cast<std::size_t>(a.frame) +
                  static_cast<std::size_t>(pixel)] = unsqueeze(v);
  } else {
    auto* const to = reinterpret_cast<typename Format::Stored*>(
        a.values + stream.base[hidden_now] +
        item.unit * static_cast<std::uint32_t>(a.hidden_granules));
    to[at] = Format::store(v);
    if (a.hidden != nullptr) {
      a.hidden[(static_cast<std::size_t>(row) * static_cast<std::size_t>(a.units) + item.unit) *
                   static_cast<std::size_t>(a.hidden_each) +
               static_cast<std::size_t>(at)] = v;
    }
  }
}

/// One item for up to 16 streams: each warp of the thread block makes a part of every sum.
template <class Format, class Function, bool Predicts>
__global__ void __launch_bounds__(32 * warps, 2) few_streams(const StepArguments a) {
  __shared__ std::uint32_t base[tile_rows][kinds];
  __shared__ typename Format::Sum parts[warps][tile_rows][item_rows];
  const Item item = a.items[blockIdx.x];
  const auto thread = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(blockIdx.y) * tile_rows;
  for (int i = thread; i < tile_rows * kinds; i += 32 * warps) {
    base[i / kinds][i % kinds] = a.rows[first + i / kinds].base[i % kinds];
  }
  __syncthreads();
  const int lane = thread % 32, warp = thread / 32;
  Tile<Format> tile{a, item, base[0], lane};
  tile.multiply(warp);
#pragma unroll
  for (int n = 0; n < tile_columns; ++n) {
    for (int i = 0; i < 4; ++i) {
      parts[warp][lane / 4 + i / 2 * 8][8 * n + lane % 4 * 2 + i % 2] = tile.sums[n][i];
    }
  }
  __syncthreads();
  for (int i = thread; i < tile_rows * item_rows; i += 32 * warps) {
    typename Format::Sum sum = parts[0][i / item_rows][i % item_rows];
    for (int part = 1; part < warps; ++part) sum += parts[part][i / item_rows][i % item_rows];
    finish<Format, Function, Predicts>(a, item, first + i / item_rows, i % item_rows, sum);
  }
}

/// One item for up to 128 streams: each warp makes the sums of 16 of them.
template <class Format, class Function, bool Predicts>
__global__ void __launch_bounds__(32 * warps, 2) many_streams(const StepArguments a) {
  __shared__ std::uint32_t bases[warps][tile_rows * kinds];
  const Item item = a.items[blockIdx.x];
  const auto thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32, warp = thread / 32;
  const int first = (static_cast<int>(blockIdx.y) * warps + warp) * tile_rows;
  if (first >= a.count) return;
  for (int i = lane; i < tile_rows * kinds; i += 32) {
    bases[warp][i] = a.rows[first + i / kinds].base[i % kinds];
  }
  __syncwarp();
  typename Format::Sum all[tile_columns][4] = {};
  for (int part = 0; part < warps; ++part) {
    Tile<Format> tile{a, item, bases[warp], lane};
    tile.multiply(part);
#pragma unroll
    for (int n = 0; n < tile_columns; ++n) {
      for (int i = 0; i < 4; ++i) {
        all[n][i] = part == 0 ? tile.sums[n][i] : all[n][i] + tile.sums[n][i];
      }
    }
  }
#pragma unroll
  for (int n = 0; n < tile_columns; ++n) {
    for (int i = 0; i < 4; ++i) {
      finish<Format, Function, Predicts>(a, item, first + lane / 4 + i / 2 * 8,
                                         8 * n + lane % 4 * 2 + i % 2, all[n][i]);
    }
  }
}

}  // namespace pvm::inline v0::infer::gpu
