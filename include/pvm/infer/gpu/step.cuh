// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the kernels of a frozen step have in common, and those that take frames into the streams'
/// values and that make h = f(W0 x) and the predictions f(W1 r) for few streams. many_streams.cuh
/// makes them for many.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/infer/gpu/activate.cuh>
#include <pvm/infer/gpu/formats.cuh>

namespace pvm::inline v0::infer::gpu {

/// What a granule of an input is a part of.
/// Of the step before, the one before that, or this one.
enum Kind : std::uint32_t { hidden_1, hidden_2, hidden_now, patch_now, patch_1 };
inline constexpr int kinds = 5;
inline constexpr int kind_shift =
    28;  ///< of a kind in an entry of the table; below it, the granule

inline constexpr int warps = 8;         ///< of a thread block
inline constexpr int tile_rows = 16;    ///< streams that a warp multiplies at once
inline constexpr int tile_columns = 7;  ///< tiles of eight rows of a matrix, at most
inline constexpr int item_rows = 8 * tile_columns;
inline constexpr int chunk_granules = 4;  ///< of an input, which are multiplied together

/// Up to 56 rows of a matrix. Every sum is made of eight parts of its depth, whoever makes them,
/// and the parts are added in order: so its bits do not depend on how many streams there are.
struct Item {
  std::uint32_t table = 0;    ///< its first entry, one for each granule of the input
  std::uint32_t weights = 0;  ///< its first granule of weights, [chunk][tile][lane]
  std::uint32_t chunks = 0;   ///< of its input
  std::uint32_t scale = 0;    ///< its first row in `scales`
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
  const float2* scales = nullptr;  ///< of each row of the items: its scale and offset
  const StepRow* rows = nullptr;
  int count = 0;                         ///< of rows
  uint4* values = nullptr;               ///< of all streams, in granules
  const std::uint8_t* frames = nullptr;  ///< [row][frame]
  float* hidden = nullptr;               ///< [row][unit][hidden], null: not asked for
  float* predictions = nullptr;          ///< [row][frame]
  const std::int32_t* pixels = nullptr;  ///< of a patch: where each is, seen from the first one
  int patches = 0, patch = 0, line = 0, block = 0, frame = 0, frame_row = 0;
  int hidden_each = 0, units = 0;               ///< hidden values of a unit
  int hidden_granules = 0, patch_granules = 0;  ///< of a unit
  int sms = 1;                                  ///< of the device
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
    uint4 all;
    typename Format::Stored each[Format::each];
  } granule;
#pragma unroll
  for (int k = 0; k < Format::each; ++k) {
    const bool there = first + k < a.patch;
    granule.each[k] = there ? Format::store_pixel(frame[__ldg(a.pixels + first + k)])
                            : typename Format::Stored{0};
  }
  a.values[row.base[patch_now] + static_cast<std::uint32_t>(i)] = granule.all;
}

/// The first chunk of a part of an item's depth.
__device__ __forceinline__ int part_begin(const Item& item, int part) {
  return part * static_cast<int>(item.chunks) / warps;
}

/// Where the values of an item's rows belong, of one stream.
template <class Format, bool Predicts>
struct Place {
  typename Format::Stored* stored = nullptr;
  float* out = nullptr;  ///< null: not asked for

  /// `hidden_base`: the stream's first granule of this step's hidden values.
  __device__ __forceinline__ Place(const StepArguments& a, const Item& item, int row,
                                   std::uint32_t hidden_base) {
    if constexpr (Predicts) {
      out = a.predictions + static_cast<std::size_t>(row) * out_stride(a) +
            item.unit_row * a.block * a.frame_row + item.unit_column * a.line;
    } else {
      stored =
          reinterpret_cast<typename Format::Stored*>(
              a.values + hidden_base + item.unit * static_cast<std::uint32_t>(a.hidden_granules)) +
          item.first;
      if (a.hidden != nullptr) {
        out = a.hidden + static_cast<std::size_t>(row) * out_stride(a) +
              item.unit * static_cast<std::size_t>(a.hidden_each) + item.first;
      }
    }
  }
  /// From a stream's `out` to the next one's.
  [[nodiscard]] __device__ __forceinline__ static std::size_t out_stride(const StepArguments& a) {
    return Predicts ? static_cast<std::size_t>(a.frame)
                    : static_cast<std::size_t>(a.units) * static_cast<std::size_t>(a.hidden_each);
  }
  /// The value of the item's row `r`; `pixel`: where it is in the patch, of a prediction.
  __device__ __forceinline__ void put(int r, int pixel, float v) const {
    if constexpr (Predicts) {
      out[pixel] = unsqueeze(v);
    } else {
      stored[r] = Format::store(v);
      if (out != nullptr) out[r] = v;
    }
  }
};

/// One item for up to 16 streams: each warp of the thread block makes a part of every sum. Weights
/// and values come straight from memory, as many loads at once as registers hold.
template <class Format, class Function, bool Predicts>
__global__ void __launch_bounds__(32 * warps, 2) few_streams(const StepArguments a) {
  __shared__ StepRow rows[tile_rows];
  __shared__ typename Format::Sum parts[warps][tile_rows][item_rows];
  const Item item = a.items[blockIdx.x];
  const auto thread = static_cast<int>(threadIdx.x);
  const int first = static_cast<int>(blockIdx.y) * tile_rows;
  if (thread < tile_rows) rows[thread] = a.rows[first + thread];
  __syncthreads();
  const int lane = thread % 32, warp = thread / 32, tiles = (item.rows + 7) / 8;
  const std::uint32_t* const upper = rows[lane / 4].base;
  const std::uint32_t* const lower = rows[lane / 4 + 8].base;
  const std::uint32_t* const table = a.table + item.table + lane % 4;
  const auto* const weights =
      static_cast<const typename Format::Weights*>(a.weights) + item.weights + lane;
  typename Format::Sum sums[tile_columns][4] = {};
  const int end = part_begin(item, warp + 1);
  [[maybe_unused]] constexpr int at_once = 32 / static_cast<int>(sizeof(typename Format::Weights));
#pragma unroll at_once
  for (int chunk = part_begin(item, warp); chunk < end; ++chunk) {
    const std::uint32_t entry = __ldg(table + chunk_granules * chunk);
    const std::uint32_t kind = entry >> kind_shift, at = entry & ((1U << kind_shift) - 1);
    const uint4 x = a.values[upper[kind] + at], y = a.values[lower[kind] + at];
#pragma unroll
    for (int n = 0; n < tile_columns; ++n) {
      if (n < tiles) multiply_chunk<Format>(sums[n], x, y, weights[(chunk * tiles + n) * 32]);
    }
  }
#pragma unroll
  for (int n = 0; n < tile_columns; ++n) {
    for (int i = 0; i < 4; ++i) {
      parts[warp][lane / 4 + i / 2 * 8][8 * n + lane % 4 * 2 + i % 2] = sums[n][i];
    }
  }
  __syncthreads();
  for (int i = thread; i < tile_rows * item_rows; i += 32 * warps) {
    const int row = i / item_rows, r = i % item_rows;
    if (rows[row].used == 0 || r >= item.rows) continue;
    typename Format::Sum sum = parts[0][row][r];
    for (int part = 1; part < warps; ++part) sum += parts[part][row][r];
    const float2 scale = __ldg(a.scales + item.scale + r);
    const int pixel = Predicts ? __ldg(a.pixels + item.first + r) : 0;
    Place<Format, Predicts>(a, item, first + row, rows[row].base[hidden_now])
        .put(r, pixel, value_of_sum<Function>(scale, static_cast<float>(sum)));
  }
}

}  // namespace pvm::inline v0::infer::gpu
