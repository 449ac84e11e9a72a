// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// d1 = g(y(t-2)) ([A|B](t) - y(t-2)), d0 = g(h(t-2)) (W1^T d1), and the sums for the score.

#include <cstdint>

#include <pvm/engine/cuda/batch/forward.cuh>

namespace pvm::inline v0::detail::batch {

/// 16 bytes of a row as floats.
template <class M>
struct Octet {
  static constexpr int size = 16 / sizeof(typename M::Word);
  union {
    uint4 bits;
    typename M::Word operand[size];
  };
};
/// As many values of a kept row.
template <class M>
struct KeptOctet {
  static constexpr int size = 16 / sizeof(typename M::Word);
  static_assert(sizeof(typename M::Kept::Type) == sizeof(typename M::Word));
  union {
    uint4 bits;
    typename M::Kept::Type kept[size];
  };
};

/// A thread's share of the score.
struct ErrorSums {
  float prediction = 0, persistence = 0, loss = 0;
};

template <class M>
struct ErrorRows {
  const Arguments& a;
  const Product& p;
  const unsigned char* const* base;
  const unsigned char* older;  ///< frames two steps back
  const unsigned char* y;      ///< of two steps back
  unsigned char* d1;           ///< of this step
  const std::uint8_t* scored;
  unsigned long long step;
  std::size_t row_bytes;

  /// 16 bytes of row `o`, from sequence `b` on; padding of the batch has no error.
  __device__ uint4 make(int o, std::size_t b, ErrorSums& sums) const {
    constexpr int size = Octet<M>::size;
    const std::size_t offset = b * sizeof(typename M::Word);
    const std::size_t row = (static_cast<std::size_t>(p.errors) + static_cast<std::size_t>(o)) *
                            row_bytes;
    const std::uint32_t word = a.rows[p.rows + static_cast<std::uint32_t>(o)];
    const std::size_t source = (word & row_mask) * row_bytes + offset;
    Octet<M> target, out;
    KeptOctet<M> then;
    target.bits = *reinterpret_cast<const uint4*>(base[word >> stream_shift] + source);
    then.bits = *reinterpret_cast<const uint4*>(y + row + offset);
    const bool pixel = static_cast<std::uint32_t>(o) < p.pixels;
#pragma unroll
    for (int i = 0; i < size; ++i) {
      const float v = M::Kept::decode(then.kept[i]);
      const bool real = b + static_cast<std::size_t>(i) < static_cast<std::size_t>(a.shape.batch);
      const float e = real ? M::value(target.operand[i]) - v : 0.0F;
      sums.loss += e * e;
      const float used = a.shape.sign_error != 0 && real ? copysignf(1.0F, e) : e;
      out.operand[i] = M::operand(slope(a.shape.activation, step, v) * used);
      if (pixel && real && scored[b + static_cast<std::size_t>(i)] != 0) {
        const auto before =
            *reinterpret_cast<const typename M::Word*>(older + source + i * sizeof(typename M::Word));
        const float now = unsqueeze(M::value(target.operand[i]));
        const float missed = unsqueeze(v) - now;
        const float moved = unsqueeze(M::value(before)) - now;
        sums.prediction += missed * missed;
        sums.persistence += moved * moved;
      }
    }
    if (p.parts != 0) *reinterpret_cast<uint4*>(d1 + row + offset) = out.bits;
    return out.bits;
  }
};

/// The block's sums, added in the order of its threads.
__device__ inline void add_score(const ErrorSums& mine, BlockState& state, double* score) {
  double v[3] = {static_cast<double>(mine.prediction), static_cast<double>(mine.persistence),
                 static_cast<double>(mine.loss)};
#pragma unroll
  for (int i = 0; i < 3; ++i) {
    for (int other = 16; other > 0; other /= 2) v[i] += __shfl_xor_sync(~0U, v[i], other);
    if ((threadIdx.x & 31) == 0) state.sums[threadIdx.x >> 5][i] = v[i];
  }
  __syncthreads();
  if (threadIdx.x < 3) {
    double sum = score[threadIdx.x];
    for (int w = 0; w < threads / 32; ++w) sum += state.sums[w][threadIdx.x];
    score[threadIdx.x] = sum;
  }
}

template <class M, int Slice>
__device__ __forceinline__ void errors(const Arguments& a, const Product& p, BlockState& state,
                                       unsigned char* shared) {
  using S = ProductShape<M, Slice>;
  const Shape& s = a.shape;
  const auto slice = static_cast<std::size_t>(blockIdx.y);
  const unsigned long long step = state.cursor.step;
  unsigned char* pipe = shared + S::words_bytes;
  const std::size_t row_bytes = static_cast<std::size_t>(s.padded) * sizeof(typename M::Word);
  const auto outputs = static_cast<std::size_t>(s.outputs);
  const ErrorRows<M> rows{
      a, p, state.base,
      a.pixels + ring_slot(step, s.frames, 2) * row_bytes * static_cast<std::size_t>(s.pixels),
      a.y + ring_slot(step, 4, 2) * row_bytes * outputs,
      a.d1 + ring_slot(step, s.terms, 0) * row_bytes * outputs,
      a.scored + static_cast<std::size_t>(ring_slot(step, s.frames, 0)) *
                     static_cast<std::size_t>(s.padded),
      step, row_bytes};
  ErrorSums sums;
  product<M, Slice>(
      pipe,
      a.work + state.cursor.now * a.flip + static_cast<std::size_t>(p.weights) * block_words,
      static_cast<int>(p.blocks), [&](int first, int count, unsigned char* to) {
        for (int i = static_cast<int>(threadIdx.x); i < count * S::chunks; i += threads) {
          const int row = i / S::chunks;
          const int chunk = i % S::chunks;
          uint4 v = make_uint4(0, 0, 0, 0);
          if (first + row < static_cast<int>(p.depth)) {
            v = rows.make(first + row,
                          slice * Slice + static_cast<std::size_t>(chunk * Octet<M>::size), sums);
          }
          *reinterpret_cast<uint4*>(to + row * S::stride + chunk * 16) = v;
        }
      });
  using Kept = typename M::Kept;
  const auto hidden = static_cast<std::size_t>(s.hidden);
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(p.count) * (Slice / 4);
       i += threads) {
    const int n = i / (Slice / 4);
    const int b = i % (Slice / 4) * 4;
    const float4 u = read_sum<M, Slice>(pipe, n, b);
    const std::size_t at = (p.out + static_cast<std::size_t>(n)) * static_cast<std::size_t>(s.padded) +
                           slice * Slice + static_cast<std::size_t>(b);
    const auto* h = reinterpret_cast<const typename Kept::Type*>(a.kept) +
                    ring_slot(step, s.ring, 2) * hidden * static_cast<std::size_t>(s.padded) + at;
    const float sum[4] = {u.x, u.y, u.z, u.w};
    float d[4];
#pragma unroll
    for (int k = 0; k < 4; ++k) d[k] = slope(s.activation, step, Kept::decode(h[k])) * sum[k];
    store_operands<M>(a.d0 + ring_slot(step, s.terms, 0) * row_bytes * hidden +
                          at * sizeof(typename M::Word),
                      d);
  }
  if (p.parts != 0) add_score(sums, state, a.score + (slice * a.score_slice + p.score) * 3);
}

}  // namespace pvm::inline v0::detail::batch
