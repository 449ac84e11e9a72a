// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// One kernel from what a network sees to where the objects are: the heatmap of a ridge readout,
/// its smoothing, its enlargement to the frame, the peak, the median, and the component of the
/// peak.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/readout/gpu/followed.cuh>

namespace pvm::inline v0::readout::gpu {

/// What the kernel finds in a heatmap; the host decides whether that is an object.
struct Spot {
  float peak, median;
  int left, top, right, bottom;  ///< of the component, the last column and row included
};

inline constexpr int find_threads = 1024;
inline constexpr int colour_levels = 32;  ///< as ColourBins::levels

struct FindArguments {
  int cells, block, channels;
  int hidden;                ///< values of a unit
  int classes;               ///< objects, each with a readout of its own
  int smoothing;             ///< radius in cells
  const double* thresholds;  ///< by class: between the median (0) and the peak (1)
  // The fits as RidgeReadout::arranged has them, class by class.
  const float* linear;
  const std::size_t* start;  ///< of each position in a class's `linear`
  const float* biases;
  const float4* tables;  ///< null: no colours
  std::size_t linear_each, biases_each, tables_each;
  const std::uint32_t* unit_start;  ///< by position; null: no hidden values
  const std::uint32_t* units;
  int pixels;             ///< values of a patch that are read: 0, or all
  const int4* tap_cells;  ///< as CubicTaps has them
  const float4* tap_weights;
  const float* given;  ///< heatmaps [step][class][cells][cells] instead of all these; or null
  Spot* spots;         ///< [slots][block_steps][classes]
  float* heats;        ///< smoothed, [slots][block_steps][classes][cells][cells]; null: not kept

  __host__ __device__ int positions() const { return cells * cells; }
  __host__ __device__ int side() const { return cells * block; }
  __host__ __device__ int words() const { return (side() + 31) / 32; }
  /// Bytes of shared memory.
  __host__ __device__ std::size_t shared_bytes() const {
    const auto cell = static_cast<std::size_t>(positions());
    const std::size_t colours = tables != nullptr ? 2 * cell * sizeof(float4) : 0;
    return colours + 4 * (2 * cell + static_cast<std::size_t>(cells) * side()) +
           8 * static_cast<std::size_t>(side()) * words();
  }
};

/// One heatmap, and the shared memory in which a thread block works on it.
struct Finder {
  const FindArguments& a;
  int thread, kind;
  float4 *colours, *pooled;        // [cells][cells]: a value per radius
  float *heat, *scratch;           // [cells][cells]
  float* wide;                     // [cells][side]
  std::uint32_t *above, *reached;  // [side][words]: a bit for each pixel

  __device__ Finder(const FindArguments& arguments, int kind_number, unsigned char* shared)
      : a(arguments), thread(static_cast<int>(threadIdx.x)), kind(kind_number) {
    colours = reinterpret_cast<float4*>(shared);
    pooled = colours + (a.tables != nullptr ? a.positions() : 0);
    heat = reinterpret_cast<float*>(pooled + (a.tables != nullptr ? a.positions() : 0));
    scratch = heat + a.positions();
    wide = scratch + a.positions();
    above = reinterpret_cast<std::uint32_t*>(wide + a.cells * a.side());
    reached = above + a.side() * a.words();
  }

  /// The part that is linear in hidden values and pixels: a warp for each position.
  __device__ void make_linear(const float* h, const std::uint8_t* frame) const {
    const int lane = thread % 32;
    const int line = a.block * a.channels;
    for (int p = thread / 32; p < a.positions(); p += find_threads / 32) {
      const std::size_t fit = a.biases_each == 1 ? 0 : static_cast<std::size_t>(p);
      const float* weights = a.linear + kind * a.linear_each + a.start[fit];
      float sum = 0;
      if (a.unit_start != nullptr) {
        const std::uint32_t* const units = a.units + a.unit_start[p];
        const int count = static_cast<int>(a.unit_start[p + 1] - a.unit_start[p]) * a.hidden;
#pragma unroll 4
        for (int k = lane; k < count; k += 32) {
          sum = __fmaf_rn(weights[k], h[units[k / a.hidden] * a.hidden + k % a.hidden], sum);
        }
        weights += count;
      }
      const std::uint8_t* const patch =
          frame + (static_cast<std::size_t>(p / a.cells) * a.block * a.cells + p % a.cells) * line;
#pragma unroll 4
      for (int k = lane; k < a.pixels; k += 32) {
        const std::uint8_t byte =
            patch[static_cast<std::size_t>(k / line) * a.cells * line + k % line];
        sum = __fmaf_rn(weights[k], static_cast<float>(byte), sum);
      }
      for (int bits = 16; bits > 0; bits /= 2) sum += __shfl_xor_sync(0xffffffffU, sum, bits);
      if (lane == 0) heat[p] = sum + a.biases[kind * a.biases_each + fit];
    }
  }

  /// Looks up the colours of each position's pixels: a thread for each position.
  __device__ void look_up_colours(const std::uint8_t* frame) const {
    const float4* const tables = a.tables + kind * a.tables_each;
    const int line = a.block * a.channels;
    for (int p = thread; p < a.positions(); p += find_threads) {
      const std::uint8_t* row =
          frame + (static_cast<std::size_t>(p / a.cells) * a.block * a.cells + p % a.cells) * line;
      float4 sum = make_float4(0, 0, 0, 0);
      for (int i = 0; i < a.block; ++i, row += static_cast<std::size_t>(a.cells) * line) {
#pragma unroll 5
        for (int j = 0; j < a.block; ++j) {
          const float4 v = __ldg(tables + colour(row + j * a.channels));
          sum.x += v.x;
          sum.y += v.y;
          sum.z += v.z;
        }
      }
      colours[p] = sum;
    }
  }
  __device__ int colour(const std::uint8_t* pixel) const {
    int c = pixel[0] >> 3;
    for (int k = 1; k < 3 && a.channels >= 3; ++k) c = c * colour_levels + (pixel[k] >> 3);
    return c;
  }
  /// The mean of get(cell) over the cells at most `radius` from `at` along a line of cells.
  template <class Get>
  __device__ float mean_around(int at, int radius, Get get) const {
    const int first = max(0, at - radius), last = min(a.cells - 1, at + radius);
    const float share = 1.0F / static_cast<float>(last - first + 1);
    float sum = share * get(first);
    for (int k = first + 1; k <= last; ++k) sum = __fmaf_rn(share, get(k), sum);
    return sum;
  }
  /// Adds the colours of the patch, and the means over the 3 x 3 and 5 x 5 patches around it.
  __device__ void add_colours() const {
    for (int p = thread; p < a.positions(); p += find_threads) {
      const float4* const row = colours + p / a.cells * a.cells;
      pooled[p].y = mean_around(p % a.cells, 1, [row](int k) { return row[k].y; });
      pooled[p].z = mean_around(p % a.cells, 2, [row](int k) { return row[k].z; });
    }
    __syncthreads();
    for (int p = thread; p < a.positions(); p += find_threads) {
      const float4* const column = pooled + p % a.cells;
      const int cells = a.cells;
      float sum = heat[p] + colours[p].x;
      sum += mean_around(p / cells, 1, [=](int k) { return column[k * cells].y; });
      sum += mean_around(p / cells, 2, [=](int k) { return column[k * cells].z; });
      heat[p] = sum;
    }
  }
  /// Replaces each value by the mean of the cells around it.
  __device__ void smooth() const {
    for (int p = thread; p < a.positions(); p += find_threads) {
      const float* const row = heat + p / a.cells * a.cells;
      scratch[p] = mean_around(p % a.cells, a.smoothing, [row](int k) { return row[k]; });
    }
    __syncthreads();
    for (int p = thread; p < a.positions(); p += find_threads) {
      const float* const column = scratch + p % a.cells;
      const int cells = a.cells;
      heat[p] = mean_around(p / cells, a.smoothing, [=](int k) { return column[k * cells]; });
    }
    __syncthreads();
  }

  /// The interpolation along the rows; `large` does that between them.
  __device__ void widen() const {
    for (int k = thread; k < a.cells * a.side(); k += find_threads) {
      const float* const row = heat + k / a.side() * a.cells;
      const int4 cell = a.tap_cells[k % a.side()];
      const float4 w = a.tap_weights[k % a.side()];
      wide[k] =
          __fadd_rn(__fadd_rn(__fadd_rn(__fmul_rn(w.x, row[cell.x]), __fmul_rn(w.y, row[cell.y])),
                              __fmul_rn(w.z, row[cell.z])),
                    __fmul_rn(w.w, row[cell.w]));
    }
  }
  __device__ float large(int pixel) const {
    const int side = a.side(), column = pixel % side;
    const int4 cell = a.tap_cells[pixel / side];
    const float4 w = a.tap_weights[pixel / side];
    return __fmaf_rn(w.x, wide[cell.x * side + column],
                     __fmul_rn(w.y, wide[cell.y * side + column])) +
           __fmaf_rn(w.z, wide[cell.z * side + column],
                     __fmul_rn(w.w, wide[cell.w * side + column]));
  }

  /// The largest pixel and the first one that has it; -1 if there is none. All threads get it.
  struct Peak {
    float value;
    int pixel;
  };
  __device__ static Peak better(const Peak& one, const Peak& two) {
    if (two.pixel < 0) return one;
    if (one.pixel < 0) return two;
    if (one.value != two.value) return one.value > two.value ? one : two;
    return one.pixel < two.pixel ? one : two;
  }
  __device__ Peak find_peak() const {
    __shared__ Peak of_warps[find_threads / 32];
    Peak best{0, -1};
    for (int k = thread; k < a.side() * a.side(); k += find_threads) {
      const float value = large(k);
      if (value == value) best = better(best, {value, k});
    }
    for (int bits = 16; bits > 0; bits /= 2) {
      best = better(best, {__shfl_xor_sync(0xffffffffU, best.value, bits),
                           __shfl_xor_sync(0xffffffffU, best.pixel, bits)});
    }
    if (thread % 32 == 0) of_warps[thread / 32] = best;
    __syncthreads();
    for (int k = 0; k < find_threads / 32; ++k) best = better(best, of_warps[k]);
    return best;
  }
  /// The median of the positions: that with as many smaller ones as half of them.
  __device__ float find_median() const {
    __shared__ float median;
    const int n = a.positions();
    if (thread == 0) median = nanf("");  // and stays so if a value is no number
    __syncthreads();
    for (int p = thread; p < n; p += find_threads) {
      const float value = heat[p];
      int before = 0;
      for (int k = 0; k < n; ++k) before += heat[k] < value || (heat[k] == value && k < p) ? 1 : 0;
      if (before == n / 2) median = value;
    }
    __syncthreads();
    return median;
  }

  /// Sets the bits of the pixels above `level`: a warp for each word.
  __device__ void mark_above(float level) const {
    const int lane = thread % 32, words = a.words();
    for (int k = thread / 32; k < a.side() * words; k += find_threads / 32) {
      const int column = k % words * 32 + lane;
      const bool is = column < a.side() && large(k / words * a.side() + column) > level;
      const unsigned bits = __ballot_sync(0xffffffffU, is ? 1 : 0);
      if (lane == 0) {
        above[k] = bits;
        reached[k] = 0;
      }
    }
  }
  /// The bits of `mask` that are connected to those of `seed`, within a word.
  __device__ static std::uint32_t flood_word(std::uint32_t seed, std::uint32_t mask) {
    seed &= mask;
    for (std::uint32_t grown = seed; (grown = (seed | seed << 1 | seed >> 1) & mask) != seed;) {
      seed = grown;
    }
    return seed;
  }
  /// Reaches all pixels above the level that are connected, by edges or corners, to `start`: each
  /// thread floods words from those around them, until nothing changes.
  __device__ void flood(int start) const {
    const int words = a.words(), side = a.side();
    if (thread == 0) reached[start / side * words + start % side / 32] = 1U << (start % side % 32);
    __syncthreads();
    for (bool changes = true; changes;) {
      bool mine = false;
      for (int first = 0; first < side * words; first += find_threads) {
        const int k = first + thread;
        const bool is_word = k < side * words;
        const std::uint32_t before = is_word ? reached[k] : 0;
        const std::uint32_t now =
            is_word && above[k] != 0 ? flood_word(seed_of(k), above[k]) | before : before;
        __syncthreads();  // all have read what others write
        if (now != before) {
          reached[k] = now;
          mine = true;
        }
      }
      changes = __syncthreads_or(mine ? 1 : 0) != 0;
    }
  }
  /// The pixels of word `k` that are next to one that was reached.
  __device__ std::uint32_t seed_of(int k) const {
    const int words = a.words(), row = k / words, word = k % words;
    std::uint32_t seed = 0;
    for (int i = max(0, row - 1); i <= min(a.side() - 1, row + 1); ++i) {
      const std::uint32_t* const line = reached + i * words;
      seed |= line[word] | line[word] << 1 | line[word] >> 1;
      if (word > 0) seed |= line[word - 1] >> 31;
      if (word + 1 < words) seed |= line[word + 1] << 31;
    }
    return seed;
  }
  /// The bounds of what was reached: one warp's work.
  __device__ void find_bounds(Spot& spot) const {
    const int words = a.words();
    int left = a.side(), top = a.side(), right = -1, bottom = -1;
    for (int k = thread; k < a.side() * words; k += 32) {
      const std::uint32_t bits = reached[k];
      if (bits == 0) continue;
      const int first = k % words * 32;
      left = min(left, first + __ffs(static_cast<int>(bits)) - 1);
      right = max(right, first + 31 - __clz(static_cast<int>(bits)));
      top = min(top, k / words);
      bottom = max(bottom, k / words);
    }
    spot.left = __reduce_min_sync(0xffffffffU, left);
    spot.top = __reduce_min_sync(0xffffffffU, top);
    spot.right = __reduce_max_sync(0xffffffffU, right);
    spot.bottom = __reduce_max_sync(0xffffffffU, bottom);
  }
};

/// Grid: (steps, classes); one thread block for each heatmap.
__global__ void __launch_bounds__(find_threads, 1)
    find_objects(const __grid_constant__ FindArguments a, const __grid_constant__ FollowedSteps s) {
  const auto i = static_cast<int>(blockIdx.x);
  if (i >= followed_count(s)) return;
  const auto kind = static_cast<int>(blockIdx.y);
  const Finder f(a, kind, pvm::detail::dynamic_shared<unsigned char>());
  const auto positions = static_cast<std::size_t>(a.positions());
  const std::size_t at = followed_row(s, i) * a.classes + kind;
  if (a.given != nullptr) {
    for (int p = f.thread; p < a.positions(); p += find_threads) {
      f.heat[p] = a.given[(static_cast<std::size_t>(i) * a.classes + kind) * positions + p];
    }
  } else {
    f.make_linear(followed_hidden(s, i), followed_frame(s, i));
    if (a.tables != nullptr) f.look_up_colours(followed_frame(s, i));
    __syncthreads();
    if (a.tables != nullptr) f.add_colours();
  }
  __syncthreads();
  if (a.smoothing > 0) f.smooth();
  if (a.heats != nullptr) {
    for (int p = f.thread; p < a.positions(); p += find_threads) {
      a.heats[at * positions + p] = f.heat[p];
    }
  }
  f.widen();
  __syncthreads();
  const Finder::Peak peak = f.find_peak();
  Spot spot{peak.value, f.find_median(), 0, 0, -1, -1};
  if (peak.pixel >= 0) {
    const double contrast = static_cast<double>(spot.peak) - static_cast<double>(spot.median);
    f.mark_above(spot.median + static_cast<float>(a.thresholds[kind] * contrast));
    __syncthreads();
    f.flood(peak.pixel);
    if (f.thread < 32) f.find_bounds(spot);
  }
  if (f.thread == 0) a.spots[at] = spot;
}

inline void launch_find(const FindArguments& a, const FollowedSteps& s, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(s.most_steps), static_cast<unsigned>(a.classes));
  cuda_check(pvm::detail::launch(find_objects,
                                 {.grid = grid,
                                  .threads = find_threads,
                                  .shared_bytes = a.shared_bytes(),
                                  .stream = stream},
                                 a, s),
             "launching a readout");
}

}  // namespace pvm::inline v0::readout::gpu
