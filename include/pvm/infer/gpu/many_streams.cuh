// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The kernel of a frozen step for many streams: h = f(W0 x), and the predictions f(W1 r).

#include <cuda_runtime.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>
#include <pvm/infer/gpu/activate.cuh>
#include <pvm/infer/gpu/step.cuh>

namespace pvm::inline v0::infer::gpu {

inline constexpr int many_rows = 128;  ///< streams of a thread block of `many_streams`
/// Of the sums of a stream in shared memory: two for each lane, and eight so that lanes that write
/// sums of different streams meet different banks.
inline constexpr int finished_columns = 72;
template <class Format>
inline constexpr int many_warps = many_rows / (Format::strips * tile_rows);

/// What a thread block of `many_streams` has in shared memory.
template <class Format>
struct Staged {
  struct Chunks {
    alignas(16) uint4 values[Format::stages][many_rows][chunk_granules];
    alignas(16) typename Format::Weights weights[Format::stages][tile_columns * 32];
  };
  /// The sums of a warp; a stream's values take their place, in the same order.
  struct Finished {
    alignas(16) typename Format::Sum sums[Format::strips * tile_rows][finished_columns];
  };
  StepRow rows[many_rows];
  union {
    Chunks chunks;
    Finished finished[many_warps<Format>];  // after the last chunk
  };
};

/// One item for up to 128 streams: each warp makes the sums of one or two tiles of them. Chunks of
/// weights and values are copied to shared memory while earlier ones are multiplied.
template <class Format, class Function, bool Predicts>
struct ManyStreams {
  static constexpr int strips = Format::strips, stages = Format::stages;
  static constexpr int threads = 32 * many_warps<Format>;

  const StepArguments& a;
  const Item& item;
  Staged<Format>& shared;
  int thread, lane, warp, tiles;
  int own;    ///< the warp's first stream, of those of the thread block
  int first;  ///< the same, of all
  /// Of the table: those of eight chunks, one in each lane, and of the eight chunks after them.
  std::uint32_t entries = 0, later = 0;

  __device__ __forceinline__ ManyStreams(const StepArguments& arguments, const Item& of_block,
                                         int group, Staged<Format>& staged)
      : a(arguments),
        item(of_block),
        shared(staged),
        thread(static_cast<int>(threadIdx.x)),
        lane(thread % 32),
        warp(thread / 32),
        tiles((item.rows + 7) / 8),
        own(warp * strips * tile_rows),
        first(group * many_rows + own) {
    later = look_up(0);
    // Where there are no streams any more, it is as with padding.
    if (lane < strips * tile_rows) {
      shared.rows[own + lane] = first + lane < a.count ? a.rows[first + lane] : StepRow{};
    }
    __syncwarp();
  }

  __device__ void run() {
    const auto chunks = static_cast<int>(item.chunks);
    if constexpr (!Predicts) detail::let_next_kernel_start();
    for (int c = 0; c < stages - 1 && c < chunks; ++c) copy_weights(c);
    if constexpr (Predicts) detail::wait_for_previous_kernel();  // it writes values
    for (int c = 0; c < stages - 1; ++c) {
      if (c < chunks) copy_values(c);
      detail::copies_commit();
    }
    Sums sums = {}, all = {};
    int part = 0;
    for (int c = 0; c < chunks; ++c) {
      detail::copies_wait<stages - 2>();
      __syncthreads();
      if (const int next = c + stages - 1; next < chunks) {
        copy_weights(next);
        copy_values(next);
      }
      detail::copies_commit();
      if (works()) {
        if (tiles == tile_columns) {
          multiply<true>(c % stages, sums);
        } else {
          multiply<false>(c % stages, sums);
        }
      }
      if constexpr (has_parts) {
        while (part < warps && part_begin(item, part + 1) <= c + 1) {
          ++part;
          move(sums, all);
        }
      }
    }
    __syncthreads();
    if (works()) finish(has_parts ? all : sums);
  }

 private:
  using Sums = typename Format::Sum[strips][tile_columns][4];
  static constexpr bool has_parts = std::same_as<typename Format::Sum, float>;

  [[nodiscard]] __device__ __forceinline__ bool works() const { return first < a.count; }

  /// The lane's entry of the table, of 32 from those of a chunk on.
  [[nodiscard]] __device__ __forceinline__ std::uint32_t look_up(int chunk) const {
    const int i = chunk * chunk_granules + lane;
    return i < static_cast<int>(item.chunks) * chunk_granules ? __ldg(a.table + item.table + i) : 0;
  }

  /// Begins the copies of a chunk's weights, by all threads.
  __device__ __forceinline__ void copy_weights(int chunk) const {
    const int size = static_cast<int>(sizeof(typename Format::Weights)) * 32 * tiles;  // bytes
    const auto* const from =
        static_cast<const unsigned char*>(a.weights) +
        (static_cast<std::size_t>(item.weights) * sizeof(typename Format::Weights) +
         static_cast<std::size_t>(chunk) * static_cast<std::size_t>(size));
    auto& weights = shared.chunks.weights[chunk % stages];
    auto* const to = reinterpret_cast<unsigned char*>(weights);
    constexpr int most = static_cast<int>(sizeof(weights));
#pragma unroll
    for (int begin = 0; begin < most; begin += 16 * threads) {
      const int i = begin + 16 * thread;
      if (i < size) detail::copy_async(to + i, from + i);
    }
  }

  /// Begins the copies of a chunk of the warp's streams' values.
  __device__ __forceinline__ void copy_values(int chunk) {
    if (!works()) return;
    constexpr int looked_up = 32 / chunk_granules;
    if (chunk % looked_up == 0) {
      entries = later;
      later = look_up(chunk + looked_up);
    }
    const int granule = lane % chunk_granules;
    const std::uint32_t entry =
        __shfl_sync(0xffffffffU, entries, chunk % looked_up * chunk_granules + granule);
    const std::uint32_t kind = entry >> kind_shift, at = entry & ((1U << kind_shift) - 1);
    constexpr int copies = strips * tile_rows * chunk_granules / 32;
    std::uint32_t from[copies];  // read together
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      from[i] = shared.rows[own + i * looked_up + lane / chunk_granules].base[kind] + at;
    }
#pragma unroll
    for (int i = 0; i < copies; ++i) {
      const int row = own + i * looked_up + lane / chunk_granules;
      detail::copy_async(&shared.chunks.values[chunk % stages][row][granule], a.values + from[i]);
    }
  }

  /// Whole: seven tiles, as most items have. All operands are read first, and a sum has its second
  /// product after the first one of all others, because products that need no other's sum overlap.
  template <bool Whole>
  __device__ __forceinline__ void multiply(int stage, Sums& sums) const {
    typename Format::Weights weights[tile_columns];
    uint4 upper[strips], lower[strips];
#pragma unroll
    for (int strip = 0; strip < strips; ++strip) {
      const int row = own + strip * tile_rows + lane / 4;
      upper[strip] = shared.chunks.values[stage][row][lane % 4];
      lower[strip] = shared.chunks.values[stage][row + 8][lane % 4];
    }
#pragma unroll
    for (int n = 0; n < tile_columns; ++n) {
      if (Whole || n < tiles) weights[n] = shared.chunks.weights[stage][n * 32 + lane];
    }
    const auto half = [&](auto which) {
#pragma unroll
      for (int n = 0; n < tile_columns; ++n) {
#pragma unroll
        for (int strip = 0; strip < strips; ++strip) {
          if (Whole || n < tiles) {
            Format::template multiply_half<which.value>(sums[strip][n], upper[strip], lower[strip],
                                                        weights[n]);
          }
        }
      }
    };
    half(std::integral_constant<int, 0>{});
    half(std::integral_constant<int, 1>{});
  }

  /// A part is done: adds its sums to those of the parts before.
  __device__ __forceinline__ static void move(Sums& sums, Sums& all) {
#pragma unroll
    for (int strip = 0; strip < strips; ++strip) {
#pragma unroll
      for (int n = 0; n < tile_columns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          all[strip][n][i] += sums[strip][n][i];
          sums[strip][n][i] = 0;
        }
      }
    }
  }

  using Stored = typename Format::Stored;

  /// From sums to values. They pass through shared memory, so that a lane has the same rows of all
  /// streams, and their scales; and so that neighbouring lanes write neighbouring values.
  __device__ __forceinline__ void finish(const Sums& sums) const {
    auto& finished = shared.finished[warp].sums;
#pragma unroll
    for (int strip = 0; strip < strips; ++strip) {
#pragma unroll
      for (int n = 0; n < tile_columns; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          finished[strip * tile_rows + lane / 4 + i / 2 * 8][8 * n + lane % 4 * 2 + i % 2] =
              sums[strip][n][i];
        }
      }
    }
    __syncwarp();
    if (item.rows > 32) {
      activate<2>();
    } else {
      activate<1>();
    }
    if constexpr (!Predicts) {
      __syncwarp();
      store();
    }
  }

  /// The values of the warp's streams, four streams at a time. A lane has every 32nd row, of which
  /// there are `Count`.
  template <int Count>
  __device__ __forceinline__ void activate() const {
    auto& finished = shared.finished[warp].sums;
    const Place<Format, Predicts> place(a, item, first, 0);
    const std::size_t stride = Place<Format, Predicts>::out_stride(a);
    const unsigned used =
        __ballot_sync(0xffffffffU, shared.rows[own + lane % (strips * tile_rows)].used != 0);
    float2 scales[Count];
    std::size_t at[Count];
    bool there[Count], asked[Count];
#pragma unroll
    for (int j = 0; j < Count; ++j) {
      const int r = lane + 32 * j;
      there[j] = r < item.rows;
      asked[j] = there[j] && (Predicts || place.out != nullptr);
      scales[j] = there[j] ? __ldg(a.scales + item.scale + r) : float2{};
      at[j] = static_cast<std::size_t>(Predicts && there[j] ? __ldg(a.pixels + item.first + r) : r);
    }
    constexpr int at_once = 4;
#pragma unroll 1
    for (int row = 0; row < strips * tile_rows; row += at_once) {
      float values[at_once][Count];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
#pragma unroll
        for (int j = 0; j < Count; ++j) {
          values[i][j] = value_of_sum<Function>(
              scales[j], static_cast<float>(finished[row + i][lane + 32 * j]));
        }
      }
      if constexpr (!Predicts) __syncwarp();
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        auto* const stored = reinterpret_cast<Stored*>(finished[row + i]);
#pragma unroll
        for (int j = 0; j < Count; ++j) {
          const float value = Predicts ? unsqueeze(values[i][j]) : values[i][j];
          if (asked[j] && (used >> (row + i) & 1U) != 0) place.out[at[j]] = value;
          at[j] += stride;
          // Zeros behind them, as ever.
          if (!Predicts) stored[lane + 32 * j] = there[j] ? Format::store(values[i][j]) : Stored{0};
        }
      }
    }
  }

  /// Copies the values of the warp's streams to where other units read them, eight at a time.
  __device__ __forceinline__ void store() const {
    using Eight = typename Format::Eight;
#pragma unroll
    for (int i = 0; i < strips * tile_rows; i += 4) {
      const int row = i + lane / 8, eight = lane % 8;
      const StepRow& to = shared.rows[own + row];
      if (eight >= tiles || to.used == 0) continue;
      const Place<Format, Predicts> place(a, item, 0, to.base[hidden_now]);
      reinterpret_cast<Eight*>(place.stored)[eight] =
          reinterpret_cast<const Eight*>(shared.finished[warp].sums[row])[eight];
    }
  }
};

/// Which pair of item and streams a thread block has: those of the same item are neighbours,
/// because they read the same weights. The first `resident` thread blocks of each SM are dealt in
/// turns, items with more chunks first. Every other turn goes backwards, so that SMs have about as
/// much to do.
__device__ __forceinline__ int dealt(int block, int blocks, int sms, int resident) {
  const int turn = block / sms, begin = turn * sms, end = begin + sms;
  const bool backwards = turn % 2 == 1 && turn < resident && end <= blocks;
  return backwards ? begin + (end - 1 - block) : block;
}

template <class Format, class Function, bool Predicts>
__global__ void __launch_bounds__(32 * many_warps<Format>, Format::blocks)
    many_streams(const StepArguments a) {
  const int i =
      dealt(static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x), a.sms, Format::blocks);
  const int groups = (a.count + many_rows - 1) / many_rows;
  const Item item = a.items[i / groups];
  ManyStreams<Format, Function, Predicts>(a, item, i % groups,
                                          *detail::dynamic_shared<Staged<Format>>())
      .run();
}

}  // namespace pvm::inline v0::infer::gpu
