// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernels of a frozen step for many streams: frames into the streams' values, h = f(W0 x), and
/// the predictions f(W1 r).

#include <cuda_runtime.h>

#include <concepts>
#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
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
inline constexpr int stages = 4;  ///< chunks in shared memory: one in use, the others on their way

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
      out = a.predictions + static_cast<std::size_t>(row) * static_cast<std::size_t>(a.frame) +
            item.unit_row * a.block * a.frame_row + item.unit_column * a.line;
    } else {
      stored =
          reinterpret_cast<typename Format::Stored*>(
              a.values + hidden_base + item.unit * static_cast<std::uint32_t>(a.hidden_granules)) +
          item.first;
      if (a.hidden != nullptr) {
        out = a.hidden +
              (static_cast<std::size_t>(row) * static_cast<std::size_t>(a.units) + item.unit) *
                  static_cast<std::size_t>(a.hidden_each) +
              item.first;
      }
    }
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
      if (n < tiles) Format::multiply(sums[n], x, y, weights[(chunk * tiles + n) * 32]);
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

/// What a thread block of `many_streams` has in shared memory.
template <class Format>
struct Staged {
  StepRow rows[warps][tile_rows];
  alignas(16) uint4 values[stages][warps][tile_rows][chunk_granules];
  alignas(16) typename Format::Weights weights[stages][tile_columns * 32];
};

/// One item for up to 128 streams: each warp makes the sums of 16 of them. Chunks of weights and
/// values are copied to shared memory while earlier ones are multiplied.
template <class Format, class Function, bool Predicts>
struct ManyStreams {
  const StepArguments& a;
  const Item& item;
  Staged<Format>& shared;
  int thread, lane, warp, tiles;
  int first;                ///< stream of the warp
  std::uint32_t entry = 0;  ///< of the chunk that is copied next, for the lane's granule

  __device__ __forceinline__ ManyStreams(const StepArguments& arguments, const Item& of_block,
                                         Staged<Format>& staged)
      : a(arguments),
        item(of_block),
        shared(staged),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % 32),
        warp(thread / 32),
        tiles((item.rows + 7) / 8),
        first((static_cast<int>(blockIdx.y) * warps + warp) * tile_rows) {
    if (works() && lane < tile_rows) shared.rows[warp][lane] = a.rows[first + lane];
    look_up(0);
    __syncwarp();
  }

  __device__ void run() {
    const auto chunks = static_cast<int>(item.chunks);
    for (int c = 0; c < stages - 1; ++c) copy(c);
    typename Format::Sum sums[tile_columns][4] = {}, all[tile_columns][4] = {};
    int part = 0;
    for (int c = 0; c < chunks; ++c) {
      detail::copies_wait<stages - 2>();
      __syncthreads();
      copy(c + stages - 1);
      if (works()) multiply(c % stages, sums);
      if constexpr (std::same_as<typename Format::Sum, float>) {
        while (part < warps && part_begin(item, part + 1) <= c + 1) {
          ++part;
          move(sums, all);
        }
      }
    }
    if (!works()) return;
    put(std::same_as<typename Format::Sum, float> ? all : sums);
  }

 private:
  using Sums = typename Format::Sum[tile_columns][4];

  [[nodiscard]] __device__ __forceinline__ bool works() const { return first < a.count; }

  __device__ __forceinline__ void look_up(int chunk) {
    if (chunk < static_cast<int>(item.chunks)) {
      entry = __ldg(a.table + item.table + chunk * chunk_granules + lane % chunk_granules);
    }
  }

  /// Begins the copies of a chunk, if there is one: of the weights by all threads, of the values of
  /// the warp's streams by the warp.
  __device__ __forceinline__ void copy(int chunk) {
    if (chunk < static_cast<int>(item.chunks)) {
      const int stage = chunk % stages;
      const int size = static_cast<int>(sizeof(typename Format::Weights)) * 32 * tiles;  // bytes
      const auto* const from =
          static_cast<const unsigned char*>(a.weights) +
          (static_cast<std::size_t>(item.weights) * sizeof(typename Format::Weights) +
           static_cast<std::size_t>(chunk) * static_cast<std::size_t>(size));
      auto* const to = reinterpret_cast<unsigned char*>(shared.weights[stage]);
      for (int i = 16 * thread; i < size; i += 16 * 32 * warps) {
        detail::copy_async(to + i, from + i);
      }
      if (works()) {
        const std::uint32_t kind = entry >> kind_shift, at = entry & ((1U << kind_shift) - 1);
        const int granule = lane % chunk_granules;
#pragma unroll
        for (int i = 0; i < tile_rows; i += 32 / chunk_granules) {
          const int row = i + lane / chunk_granules;
          detail::copy_async(&shared.values[stage][warp][row][granule],
                             a.values + shared.rows[warp][row].base[kind] + at);
        }
      }
      look_up(chunk + 1);
    }
    detail::copies_commit();
  }

  __device__ __forceinline__ void multiply(int stage, Sums& sums) const {
    const uint4 x = shared.values[stage][warp][lane / 4][lane % 4];
    const uint4 y = shared.values[stage][warp][lane / 4 + 8][lane % 4];
#pragma unroll
    for (int n = 0; n < tile_columns; ++n) {
      if (n < tiles) Format::multiply(sums[n], x, y, shared.weights[stage][n * 32 + lane]);
    }
  }

  /// A part is done: adds its sums to those of the parts before.
  __device__ __forceinline__ static void move(Sums& sums, Sums& all) {
#pragma unroll
    for (int n = 0; n < tile_columns; ++n) {
      for (int i = 0; i < 4; ++i) {
        all[n][i] += sums[n][i];
        sums[n][i] = 0;
      }
    }
  }

  __device__ __forceinline__ void put(const Sums& sums) const {
    const StepRow& upper = shared.rows[warp][lane / 4];
    const StepRow& lower = shared.rows[warp][lane / 4 + 8];
    const int row = first + lane / 4;
    const Place<Format, Predicts> of_upper(a, item, row, upper.base[hidden_now]);
    const Place<Format, Predicts> of_lower(a, item, row + 8, lower.base[hidden_now]);
#pragma unroll
    for (int n = 0; n < tile_columns; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int r = 8 * n + lane % 4 * 2 + i;
        if (r >= item.rows) continue;
        const float2 scale = __ldg(a.scales + item.scale + r);
        const int pixel = Predicts ? __ldg(a.pixels + item.first + r) : 0;
        const auto value = [&](int k) {
          return value_of_sum<Function>(scale, static_cast<float>(sums[n][k]));
        };
        if (upper.used != 0) of_upper.put(r, pixel, value(i));
        if (lower.used != 0) of_lower.put(r, pixel, value(2 + i));
      }
    }
  }
};

template <class Format, class Function, bool Predicts>
__global__ void __launch_bounds__(32 * warps, 2) many_streams(const StepArguments a) {
  const Item item = a.items[blockIdx.x];
  ManyStreams<Format, Function, Predicts>(a, item, *detail::dynamic_shared<Staged<Format>>()).run();
}

}  // namespace pvm::inline v0::infer::gpu
