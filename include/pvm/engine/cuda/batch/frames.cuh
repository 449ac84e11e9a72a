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
  float* missed;  ///< swept: [steps][tiles] of repeating the frame, as it is found out
};

/// What a block of threads makes rows of: so many pixels of so many sequences in a step.
inline constexpr int frame_threads = 128;
inline constexpr int tile_pixels = 64, tile_sequences = 32;
inline unsigned tiles_along(const Shape& s) {
  return static_cast<unsigned>((s.pixels + tile_pixels - 1) / tile_pixels);
}
inline unsigned tiles_across(const Shape& s) {
  return static_cast<unsigned>((s.padded + tile_sequences - 1) / tile_sequences);
}

/// squeeze_pixel of byte `k` of four, with its bits. Conversions have an eighth of the throughput
/// of other arithmetic, so the byte becomes the end of 2^23 + byte.
__device__ __forceinline__ float squeeze_byte(std::uint32_t four, unsigned k) {
  constexpr float scale = 0.8F / 255.0F;
  const float v = __uint_as_float(__byte_perm(four, 0x4b000000U, 0x7440U + k));
  return __fadd_rn(__fmaf_rn(v, scale, -8388608.0F * scale), 0.1F);
}

/// Neighbouring pixels of a frame, as they come: a thread's share of a tile.
template <bool Squeezed>
class PixelRun {
 public:
  static constexpr int length = tile_pixels * tile_sequences / frame_threads;
  static_assert(length == 16);

  /// Those behind `first` of a frame of `count`, as far as they exist.
  __device__ __forceinline__ PixelRun(const Uploaded& from, std::size_t frame, int first, int count)
      : left_(count - first) {
    if constexpr (Squeezed) {
      squeezed_ = from.squeezed + frame * static_cast<std::size_t>(count) + first;
    } else {
      const std::uint8_t* pixels = from.frames[frame] + first;
      if (left_ >= length && reinterpret_cast<std::uintptr_t>(pixels) % length == 0) {
        words_ = __ldg(reinterpret_cast<const uint4*>(pixels));
      } else {
        words_ = {four(pixels, 0), four(pixels, 4), four(pixels, 8), four(pixels, 12)};
      }
    }
  }
  /// Pixels 4 `quad` to 4 `quad` + 3, squeezed.
  __device__ __forceinline__ void read(float (&v)[4], int quad) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (Squeezed) {
        v[k] = exists(4 * quad + k) ? squeezed_[4 * quad + k] : 0.0F;
      } else {
        v[k] = squeeze_byte(
            quad < 2 ? (quad == 0 ? words_.x : words_.y) : (quad == 2 ? words_.z : words_.w),
            static_cast<unsigned>(k));
      }
    }
  }

  [[nodiscard]] __device__ bool exists(int pixel) const { return pixel < left_; }

 private:
  __device__ __forceinline__ std::uint32_t four(const std::uint8_t* pixels, int first) const {
    if (first + 3 < left_ && reinterpret_cast<std::uintptr_t>(pixels) % 4 == 0) {
      return *reinterpret_cast<const std::uint32_t*>(pixels + first);
    }
    std::uint32_t word = 0;
    for (int k = first; k < first + 4; ++k) {
      if (k < left_) word |= static_cast<std::uint32_t>(pixels[k]) << 8 * (k - first);
    }
    return word;
  }

  int left_;
  uint4 words_{};
  const float* squeezed_ = nullptr;
};

/// A tile's operands, [sequence][pixel]: words of one or two neighbouring pixels.
template <class M>
struct FrameTile {
  static constexpr int each = 4 / sizeof(typename M::Word);  ///< pixels of a word
  static constexpr int words = tile_pixels / each;
  std::uint32_t of[tile_sequences][words + 1];
};
/// Four neighbouring pixels of a sequence.
template <class M>
struct FourPixels {
  static constexpr int each = FrameTile<M>::each;
  std::uint32_t words[4 / each];

  __device__ __forceinline__ void round(const float (&v)[4]) {
#pragma unroll
    for (int i = 0; i < 4 / each; ++i) {
      if constexpr (each == 2) {
        words[i] = M::pair(v[2 * i], v[2 * i + 1]);
      } else {
        words[i] = M::operand(v[i]);
      }
    }
  }
  __device__ __forceinline__ void read(float (&v)[4]) const {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if constexpr (each == 2) {
        v[k] = k % 2 == 0 ? M::low_value(words[k / 2]) : M::high_value(words[k / 2]);
      } else {
        v[k] = M::value(words[k]);
      }
    }
  }
};

/// The first halves of two words, or their second ones.
template <int Which>
__device__ __forceinline__ std::uint32_t halves(std::uint32_t a, std::uint32_t b) {
  return __byte_perm(a, b, Which == 0 ? 0x5410U : 0x7632U);
}
/// The tile that a block of threads has to do with.
template <class M>
class FrameBlockTile {
  using T = FrameTile<M>;
  using Word = typename M::Word;

 public:
  __device__ __forceinline__ FrameBlockTile(const Arguments& a, T& tile) : a_(a), tile_(tile) {}

  __device__ static int pixel() { return static_cast<int>(blockIdx.x) * tile_pixels; }
  __device__ static int sequence() { return static_cast<int>(blockIdx.y) * tile_sequences; }

  /// What a step before has left in the frame of slot `slot`.
  __device__ __forceinline__ void read(std::size_t slot) {
    for_each_piece(slot, [&](uint4* low, uint4* high, std::uint32_t* words) {
      const uint4 a = *low;
      const uint4 b = high != nullptr ? *high : a;
      const std::uint32_t first[4] = {a.x, a.y, a.z, a.w}, second[4] = {b.x, b.y, b.z, b.w};
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        words[k * (T::words + 1)] = T::each == 1
                                        ? (k < 4 ? first[k] : second[k - 4])
                                        : (k % 2 == 0 ? halves<0>(first[k / 2], second[k / 2])
                                                      : halves<1>(first[k / 2], second[k / 2]));
      }
    });
  }
  __device__ __forceinline__ void write(std::size_t slot) {
    for_each_piece(slot, [&](uint4* low, uint4* high, const std::uint32_t* words) {
      std::uint32_t w[8];
#pragma unroll
      for (int k = 0; k < 8; ++k) w[k] = words[k * (T::words + 1)];
      if constexpr (T::each == 1) {
        *low = {w[0], w[1], w[2], w[3]};
        *high = {w[4], w[5], w[6], w[7]};
      } else {
        *low = {halves<0>(w[0], w[1]), halves<0>(w[2], w[3]), halves<0>(w[4], w[5]),
                halves<0>(w[6], w[7])};
        if (high == nullptr) return;
        *high = {halves<1>(w[0], w[1]), halves<1>(w[2], w[3]), halves<1>(w[4], w[5]),
                 halves<1>(w[6], w[7])};
      }
    });
  }

 private:
  /// Calls what(low, high, words) for each word of each eight sequences: `low` and `high` are
  /// those sequences' 16 bytes of its two pixels' rows, or all 32 bytes of its one pixel's; without
  /// a second pixel there is no `high`.
  template <class What>
  __device__ __forceinline__ void for_each_piece(std::size_t slot, What&& what) {
    const Shape& s = a_.shape;
    const auto padded = static_cast<std::size_t>(s.padded);
#pragma unroll
    for (int turn = 0; turn < tile_sequences / 8 * T::words / frame_threads; ++turn) {
      const unsigned i = threadIdx.x + turn * frame_threads;
      const int own = static_cast<int>(i % (tile_sequences / 8)) * 8;
      const int word = static_cast<int>(i / (tile_sequences / 8));
      const int first = pixel() + word * T::each;
      if (sequence() + own >= s.padded || first >= s.pixels) continue;
      const std::size_t row = slot * static_cast<std::size_t>(s.pixels) + first;
      Word* low = reinterpret_cast<Word*>(a_.pixels) + row * padded + sequence() + own;
      Word* high = T::each == 1 ? low + 4 : (first + 1 < s.pixels ? low + padded : nullptr);
      what(reinterpret_cast<uint4*>(low), reinterpret_cast<uint4*>(high), &tile_.of[own][word]);
    }
  }

  const Arguments& a_;
  T& tile_;
};

/// The sum over a block of threads, to its tile's place among those of the frame.
__device__ __forceinline__ void store_persistence(const Uploaded& from, float missed) {
  __shared__ float of_warps[frame_threads / 32];
  for (int other = 16; other > 0; other /= 2) missed += __shfl_xor_sync(~0U, missed, other);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = missed;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (const float v : of_warps) sum += v;
  from.missed[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}
/// What else a step of the block knows of its frames.
__device__ __forceinline__ void copy_tables(const Arguments& a, const Uploaded& from,
                                            std::size_t step, std::size_t slot) {
  const Shape& s = a.shape;
  const int thread = static_cast<int>(threadIdx.x);
  auto* scored = const_cast<std::uint8_t*>(a.scored) + slot * static_cast<std::size_t>(s.padded);
  for (int b = thread; b < s.batch; b += frame_threads) {
    scored[b] = from.scored[step * static_cast<std::size_t>(s.batch) + static_cast<std::size_t>(b)];
  }
  auto* table = const_cast<float*>(a.tables) + slot * static_cast<std::size_t>(s.table);
  for (int i = thread; i < s.table; i += frame_threads) {
    table[i] = from.tables[step * static_cast<std::size_t>(s.table) + static_cast<std::size_t>(i)];
  }
}

/// Where the frame of two steps ago is, for the score of repeating it.
enum class Before { nowhere, in_this_block, in_rows };

/// A thread's share of a tile: words to `to`. Returns what repeating `older`, or what lies there,
/// would miss.
template <class M, Before Where, bool Squeezed>
__device__ __forceinline__ float convert_run(std::uint32_t* to, const PixelRun<Squeezed>& now,
                                             const PixelRun<Squeezed>& older) {
  constexpr int words = 4 / FrameTile<M>::each;
  float missed = 0;
#pragma unroll
  for (int quad = 0; quad < PixelRun<Squeezed>::length / 4; ++quad, to += words) {
    float v[4], wanted[4], said[4];
    FourPixels<M> pixels, before;
    now.read(v, quad);
    pixels.round(v);
    if constexpr (Where != Before::nowhere) {
      if constexpr (Where == Before::in_this_block) {
        older.read(said, quad);
        before.round(said);
      } else {
#pragma unroll
        for (int i = 0; i < words; ++i) before.words[i] = to[i];
      }
      pixels.read(wanted);
      before.read(said);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (Where == Before::in_rows && !now.exists(4 * quad + k)) said[k] = wanted[k];
      }
      add_missed(missed, wanted, said, 15);
    }
#pragma unroll
    for (int i = 0; i < words; ++i) to[i] = pixels.words[i];
  }
  return missed;
}

/// The thread's share of the block's tile.
template <class M, bool Squeezed>
__device__ __forceinline__ float convert_share(FrameTile<M>& tile, const Uploaded& from,
                                               const Shape& s, Before before) {
  using Run = PixelRun<Squeezed>;
  constexpr unsigned runs = tile_pixels / Run::length;
  const unsigned own = threadIdx.x / runs;
  const int first = static_cast<int>(threadIdx.x % runs) * Run::length;
  const int pixel = FrameBlockTile<M>::pixel() + first;
  const int b = FrameBlockTile<M>::sequence() + static_cast<int>(own);
  std::uint32_t* to = &tile.of[own][first / FrameTile<M>::each];
  if (b >= s.batch) {  // padding
    for (int i = 0; i < Run::length / FrameTile<M>::each; ++i) to[i] = 0;
    return 0;
  }
  const auto batch = static_cast<std::size_t>(s.batch);
  const std::size_t frame = blockIdx.z * batch + static_cast<std::size_t>(b);
  const Run now(from, frame, pixel, s.pixels);
  float missed = 0;
  if (before == Before::in_this_block) {  // asked for before it is known whether it is scored
    const Run older(from, frame - 2 * batch, pixel, s.pixels);
    missed = convert_run<M, Before::in_this_block>(to, now, older);
  } else if (before == Before::in_rows) {
    missed = convert_run<M, Before::in_rows>(to, now, now);
  } else {
    convert_run<M, Before::nowhere>(to, now, now);
  }
  return from.scored[frame] != 0 ? missed : 0;
}

/// Grid: (pixels / 64, Bp / 32, steps). What repeating the frame would miss is scored here, where
/// the steps do not wait for it. Blocks of threads are small and short: they have the
/// multiprocessors to themselves between two sweeps, and the next one waits for them.
template <class M, bool Squeezed>
__global__ void __launch_bounds__(frame_threads)
    frames_kernel(const __grid_constant__ Arguments a, const __grid_constant__ Uploaded from) {
  __shared__ FrameTile<M> tile;
  FrameBlockTile<M> rows(a, tile);
  const Shape& s = a.shape;
  const unsigned step = blockIdx.z;
  const auto frames = static_cast<unsigned>(s.frames);
  const unsigned slot = from.slot + step < frames ? from.slot + step : from.slot + step - frames;
  Before before = Before::nowhere;
  if (from.missed != nullptr) before = step < 2 ? Before::in_rows : Before::in_this_block;
  if (before == Before::in_rows) {
    rows.read(slot_before(slot, s.frames, 2));
    __syncthreads();
  }
  const float missed = convert_share<M, Squeezed>(tile, from, s, before);
  __syncthreads();
  rows.write(slot);
  if (before != Before::nowhere) store_persistence(from, missed);
  if (blockIdx.x == 0 && blockIdx.y == 0) copy_tables(a, from, step, slot);
}

template <class M>
void convert_frames(const Arguments& a, const Uploaded& from, int steps, cudaStream_t stream) {
  const auto kernel = from.squeezed != nullptr ? frames_kernel<M, true> : frames_kernel<M, false>;
  const dim3 grid(tiles_along(a.shape), tiles_across(a.shape), static_cast<unsigned>(steps));
  cuda_check(launch(kernel, {grid, frame_threads, 0, stream}, a, from),
             "launching the frames kernel");
}

}  // namespace pvm::inline v0::detail::batch
