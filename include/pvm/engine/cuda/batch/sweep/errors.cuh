// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// d1 of a block of 16 outputs (m) by 16 sequences, as a consumer warp of a sweep computes it. y,
/// the targets and d1 lie across the warp as accumulators do: lane l holds rows l/4 and l/4 + 8,
/// and of every 8 sequences 2(l%4) and 2(l%4) + 1. Targets and d1 are pairs of 16-bit operands:
/// words 0 and 1 are the two rows for the first 8 sequences, words 2 and 3 for the next 8.

#include <cstdint>

#include <pvm/engine/cuda/batch/error_math.cuh>

namespace pvm::inline v0::detail::batch {

/// What a lane does for such blocks of the same 16 rows.
template <class M>
class ErrorBlock {
 public:
  /// Of the 16 rows the first `rows` exist and the first `pixels` are pixels; both numbers may be
  /// larger than 16 or negative. `all_exist`: whether all sequences exist that `make` will be
  /// called for.
  __device__ ErrorBlock(const Shape& s, int lane, int rows, int pixels, bool all_exist)
      : row_(lane >> 2),
        first_((lane & 3) * 2),
        rows_(rows - row_),
        pixels_(pixels - row_),
        sign_(s.sign_error != 0),
        scores_(pixels > 0),
        full_(all_exist) {}

  /// Whether no mask is needed: all sequences exist, all or none of the values are scored, and
  /// errors are differences, not signs. That is nearly always so.
  [[nodiscard]] __device__ bool plain(bool all_scored) const {
    return full_ && !sign_ && (!scores_ || all_scored);
  }

  /// Replaces the targets in `words`, `Count` blocks of consecutive sequences, by d1. `y`: what was
  /// predicted; `masks`: ErrorMath's `masks_of` of every 8 of these sequences; `Plain`: may be true
  /// only if `plain` is; masks are not read then. Adds to `sums`, one for each of the lane's two
  /// rows, also for rows that do not exist (`add` leaves these out).
  template <bool Plain, int Count, class Derivative>
  __device__ void make(std::uint32_t (&words)[Count][4], ErrorSums (&sums)[2],
                       Derivative derivative, const float (&y)[Count][2][4],
                       const std::uint16_t* masks) const {
    if (scores_) {
#pragma unroll
      for (int block = 0; block < Count; ++block) {
        score<Plain>(words[block], sums, y[block], masks + block * 2);
      }
    }
#pragma unroll
    for (int i = 0; i < 4 * Count; ++i) {
      std::uint32_t& word = words[i / 4][i % 4];
      const Pair pair(word, y[i / 4], i % 4);
      unsigned real = 3;
      if constexpr (!Plain) real = rows_ > (i & 1) * 8 ? masks[i >> 1] >> first_ & 3U : 0;
      float d1[2];
      make_errors(d1, sums[i & 1], derivative, pair.target, pair.predicted, real, !Plain && sign_);
      word = M::pair(d1[0], d1[1]);
      if (Plain && rows_ <= (i & 1) * 8) word = 0;
    }
  }
  /// Adds to `to` the sums that `make` made of rows that exist.
  __device__ void add(ErrorSums& to, const ErrorSums (&sums)[2]) const {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (rows_ > i * 8) to.loss += sums[i].loss;
      if (pixels_ > i * 8) to.prediction += sums[i].prediction;
    }
  }

  /// Reads y as it is stored in device memory; `from`: the block's first value, in rows of
  /// `row_bytes`.
  __device__ void read_outputs(float (&y)[2][4], const unsigned char* from, int row_bytes) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      std::uint32_t pair = 0;
      if (rows_ > (i & 1) * 8) {
        pair = *reinterpret_cast<const std::uint32_t*>(from + byte_offset(i, row_bytes));
      }
      y[i >> 1][2 * (i & 1)] = M::Stored::decode(static_cast<std::uint16_t>(pair));
      y[i >> 1][2 * (i & 1) + 1] = M::Stored::decode(static_cast<std::uint16_t>(pair >> 16));
    }
  }

 private:
  /// Target and prediction of two sequences: word `i` of a block.
  struct Pair {
    __device__ Pair(std::uint32_t word, const float (&y)[2][4], int i)
        : target{M::value(static_cast<typename M::Word>(word)),
                 M::value(static_cast<typename M::Word>(word >> 16))},
          predicted{y[i >> 1][2 * (i & 1)], y[i >> 1][2 * (i & 1) + 1]} {}
    float target[2], predicted[2];
  };
  /// Adds the squared errors of predicted pixels.
  template <bool Plain>
  __device__ void score(const std::uint32_t (&words)[4], ErrorSums (&sums)[2],
                        const float (&y)[2][4], const std::uint16_t* masks) const {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const Pair pair(words[i], y, i);
      unsigned scored = 3;
      if constexpr (!Plain) scored = masks[i >> 1] >> (8 + first_) & 3U;
      add_squared_errors(sums[i & 1].prediction, pair.target, pair.predicted, scored);
    }
  }
  /// Byte offset of a word's pair in rows of `row_bytes`.
  [[nodiscard]] __device__ int byte_offset(int word, int row_bytes) const {
    return (row_ + (word & 1) * 8) * row_bytes + (word >> 1) * 16 + first_ * 2;
  }

  int row_, first_;    ///< the lane's first row, and the first of its two sequences of every 8
  int rows_, pixels_;  ///< rows that exist, and that are pixels, counted from the lane's first row
  /// Whether errors are reduced to their signs, any of the rows are pixels, all sequences exist.
  bool sign_, scores_, full_;
};

}  // namespace pvm::inline v0::detail::batch
