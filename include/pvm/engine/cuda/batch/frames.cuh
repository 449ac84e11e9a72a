// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Converts a block of frames, [steps][batch][pixels], into rows of operands, [steps][pixels][Bp],
/// in the ring of frames: squeezed, rounded and transposed by way of shared memory. Copies the
/// block's rate tables and flags into their rings, and computes the errors of repeating the frame
/// of two steps ago. Runs on the upload stream.

#include <cstdint>

#include <pvm/engine/cuda/batch/error_math.cuh>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>

namespace pvm::inline v0::detail::batch {

/// A block of frames on the device.
struct Uploaded {
  const std::uint8_t* const* frames;  ///< [steps][batch] pointers to [pixels] bytes
  const float* squeezed;       ///< used in place of them if not null: [steps][batch][pixels] values
  const std::uint8_t* scored;  ///< [steps][batch]: whether the frame is scored
  const float* tables;         ///< [steps][table]: rate tables
  std::uint32_t slot;          ///< slot of the first step in the ring of frames
  /// [steps][tiles]: sums of squared errors of repeating the frame, an output; null if the network
  /// is not swept (then errors.cuh computes them).
  float* persistence_errors;
};

/// A thread block converts a tile of so many pixels by so many sequences of a step.
inline constexpr int frame_threads = 128;
inline constexpr int tile_pixels = 64, tile_sequences = 32;
/// Tiles along the pixels, and across the sequences.
inline unsigned tiles_along(const Shape& s) {
  return static_cast<unsigned>((s.pixels + tile_pixels - 1) / tile_pixels);
}
inline unsigned tiles_across(const Shape& s) {
  return static_cast<unsigned>((s.padded + tile_sequences - 1) / tile_sequences);
}

/// squeeze_pixel of byte `k` of `four`, with the same bits. Conversion instructions have an eighth
/// of the throughput of other arithmetic, so the byte is inserted as the low bits of the float
/// 2^23 + byte instead.
__device__ __forceinline__ float squeeze_byte(std::uint32_t four, unsigned k) {
  constexpr float scale = 0.8F / 255.0F;
  const float v = __uint_as_float(__byte_perm(four, 0x4b000000U, 0x7440U + k));
  return __fadd_rn(__fmaf_rn(v, scale, -8388608.0F * scale), 0.1F);
}

/// 16 consecutive pixels of a frame as uploaded: a thread's share of a tile. `Squeezed`: floats,
/// not bytes.
template <bool Squeezed>
class PixelRun {
 public:
  static constexpr int length = tile_pixels * tile_sequences / frame_threads;
  static_assert(length == 16);

  /// The pixels from `first` on of a frame of `count` pixels, as many as exist. `frame`: its number
  /// in the block, step * batch + sequence.
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

  /// Whether the run's pixel number `pixel` lies in the frame.
  [[nodiscard]] __device__ bool exists(int pixel) const { return pixel < left_; }

 private:
  /// Bytes `first` to `first + 3`, in one load where that is aligned; bytes beyond the frame are 0.
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

  int left_;  ///< pixels of the frame from the run's first on
  uint4 words_{};
  const float* squeezed_ = nullptr;
};

/// A tile's operands in shared memory, [sequence][pixel]: words of one or two neighbouring pixels.
/// One word of padding a sequence avoids bank conflicts.
template <class M>
struct FrameTile {
  static constexpr int each = 4 / sizeof(typename M::Word);  ///< pixels in a word
  static constexpr int words = tile_pixels / each;
  std::uint32_t of[tile_sequences][words + 1];
};
/// Four neighbouring pixels of a sequence, as operands.
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

/// The low 16 bits of two words (`Which` 0), or the high ones, as one word.
template <int Which>
__device__ __forceinline__ std::uint32_t halves(std::uint32_t a, std::uint32_t b) {
  return __byte_perm(a, b, Which == 0 ? 0x5410U : 0x7632U);
}
/// The copies between a thread block's tile in shared memory and the ring of frames, whose layout
/// is transposed: [slot][pixel][sequence].
template <class M>
class TileInRing {
  using T = FrameTile<M>;
  using Word = typename M::Word;

 public:
  __device__ __forceinline__ TileInRing(const Arguments& a, T& tile) : a_(a), tile_(tile) {}

  /// The tile's first pixel, and its first sequence.
  __device__ static int pixel() { return static_cast<int>(blockIdx.x) * tile_pixels; }
  __device__ static int sequence() { return static_cast<int>(blockIdx.y) * tile_sequences; }

  /// Reads the tile from slot `slot`, which an earlier step has filled.
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
  /// Writes the tile to slot `slot`.
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
  /// Calls what(low, high, words) for the thread's pieces, a word of each of eight sequences.
  /// `words` is the first sequence's word in the tile. With two pixels a word, `low` and `high` are
  /// the eight sequences' 16 bytes in the rows of the first and the second pixel; `high` is null
  /// where the frame has no second one. With one pixel a word, they are the two halves of its 32
  /// bytes.
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

/// Sums `error_sum` over the thread block, in a fixed order, and stores the sum for its tile.
__device__ __forceinline__ void store_persistence(const Uploaded& from, float error_sum) {
  __shared__ float of_warps[frame_threads / 32];
  for (int other = 16; other > 0; other /= 2) error_sum += __shfl_xor_sync(~0U, error_sum, other);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = error_sum;
  __syncthreads();
  if (threadIdx.x != 0) return;
  float sum = 0;
  for (const float v : of_warps) sum += v;
  from.persistence_errors[(blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x] = sum;
}
/// Copies a step's flags and rate table into slot `slot` of their rings.
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

/// Where the frame of two steps ago is read, for the score of repeating it.
enum class OlderFrame {
  not_scored,  ///< it is not scored here
  in_block,    ///< in the uploaded block of frames
  in_ring      ///< in the ring of frames; read into the tile before
};

/// Converts a thread's share of a tile to words at `to`. Returns the sum of squared errors of
/// repeating the frame of two steps ago, which is `older` or, for OlderFrame::in_ring, what lies at
/// `to`.
template <class M, OlderFrame Where, bool Squeezed>
__device__ __forceinline__ float convert_run(std::uint32_t* to, const PixelRun<Squeezed>& now,
                                             const PixelRun<Squeezed>& older) {
  constexpr int words = 4 / FrameTile<M>::each;
  float error_sum = 0;
#pragma unroll
  for (int quad = 0; quad < PixelRun<Squeezed>::length / 4; ++quad, to += words) {
    float v[4], target[4], predicted[4];
    FourPixels<M> pixels, before;
    now.read(v, quad);
    pixels.round(v);
    if constexpr (Where != OlderFrame::not_scored) {
      if constexpr (Where == OlderFrame::in_block) {
        older.read(predicted, quad);
        before.round(predicted);
      } else {
#pragma unroll
        for (int i = 0; i < words; ++i) before.words[i] = to[i];
      }
      pixels.read(target);
      before.read(predicted);
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (Where == OlderFrame::in_ring && !now.exists(4 * quad + k)) predicted[k] = target[k];
      }
      add_squared_errors(error_sum, target, predicted, 15);
    }
#pragma unroll
    for (int i = 0; i < words; ++i) to[i] = pixels.words[i];
  }
  return error_sum;
}

/// Converts the thread's share of the thread block's tile. Returns the errors of repeating the
/// frame if the frame is scored, else 0.
template <class M, bool Squeezed>
__device__ __forceinline__ float convert_share(FrameTile<M>& tile, const Uploaded& from,
                                               const Shape& s, OlderFrame before) {
  using Run = PixelRun<Squeezed>;
  constexpr unsigned runs = tile_pixels / Run::length;
  const unsigned own = threadIdx.x / runs;
  const int first = static_cast<int>(threadIdx.x % runs) * Run::length;
  const int pixel = TileInRing<M>::pixel() + first;
  const int b = TileInRing<M>::sequence() + static_cast<int>(own);
  std::uint32_t* to = &tile.of[own][first / FrameTile<M>::each];
  if (b >= s.batch) {  // padding
    for (int i = 0; i < Run::length / FrameTile<M>::each; ++i) to[i] = 0;
    return 0;
  }
  const auto batch = static_cast<std::size_t>(s.batch);
  const std::size_t frame = blockIdx.z * batch + static_cast<std::size_t>(b);
  const Run now(from, frame, pixel, s.pixels);
  float error_sum = 0;
  if (before == OlderFrame::in_block) {  // loaded without waiting for whether it is scored
    const Run older(from, frame - 2 * batch, pixel, s.pixels);
    error_sum = convert_run<M, OlderFrame::in_block>(to, now, older);
  } else if (before == OlderFrame::in_ring) {
    error_sum = convert_run<M, OlderFrame::in_ring>(to, now, now);
  } else {
    convert_run<M, OlderFrame::not_scored>(to, now, now);
  }
  return from.scored[frame] != 0 ? error_sum : 0;
}

/// Grid: (tiles along the pixels, tiles across the sequences, steps). The errors of repeating the
/// frame are computed here, on the upload stream, so that no step waits for them. Thread blocks are
/// small and short: beside a sweep there is no room for them on an SM, so they run between two
/// sweeps, and the next sweep waits for them.
template <class M, bool Squeezed>
__global__ void __launch_bounds__(frame_threads)
    frames_kernel(const __grid_constant__ Arguments a, const __grid_constant__ Uploaded from) {
  __shared__ FrameTile<M> tile;
  TileInRing<M> rows(a, tile);
  const Shape& s = a.shape;
  const unsigned step = blockIdx.z;
  const auto frames = static_cast<unsigned>(s.frames);
  const unsigned slot = from.slot + step < frames ? from.slot + step : from.slot + step - frames;
  OlderFrame before = OlderFrame::not_scored;
  if (from.persistence_errors != nullptr)
    before = step < 2 ? OlderFrame::in_ring : OlderFrame::in_block;
  if (before == OlderFrame::in_ring) {
    rows.read(slot_before(slot, s.frames, 2));
    __syncthreads();
  }
  const float error_sum = convert_share<M, Squeezed>(tile, from, s, before);
  __syncthreads();
  rows.write(slot);
  if (before != OlderFrame::not_scored) store_persistence(from, error_sum);
  if (blockIdx.x == 0 && blockIdx.y == 0) copy_tables(a, from, step, slot);
}

/// Launches `frames_kernel` for a block of `steps` steps.
template <class M>
void convert_frames(const Arguments& a, const Uploaded& from, int steps, cudaStream_t stream) {
  const auto kernel = from.squeezed != nullptr ? frames_kernel<M, true> : frames_kernel<M, false>;
  const dim3 grid(tiles_along(a.shape), tiles_across(a.shape), static_cast<unsigned>(steps));
  cuda_check(launch(kernel, {grid, frame_threads, 0, stream}, a, from),
             "launching the frames kernel");
}

}  // namespace pvm::inline v0::detail::batch
