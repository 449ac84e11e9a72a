// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The errors role of the products kernel: d1 = g(y(t-2)) ([A|B](t) - y(t-2)),
/// d0 = g(h(t-2)) (W1^T d1), and the sums for the score, where g is the activation's derivative as
/// a function of the value (docs/model.md). The arithmetic is in batch/error_math.cuh.

#include <cstdint>

#include <pvm/engine/cuda/batch/error_math.cuh>
#include <pvm/engine/cuda/batch/two_kernels/forward.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>

namespace pvm::inline v0::detail::batch {

/// Makes the rows of d1 for the product W1^T d1, stage by stage: targets and y(t-2) are copied to
/// shared memory (the targets to where the product expects its rows, y to the second rows), and
/// then each thread turns the targets that it copied itself into d1.
template <class M, int Slice>
class ErrorRows {
  using S = ProductShape<M, Slice, true>;
  static constexpr int size = OperandVector<M>::size;
  /// Pieces of 16 bytes that a thread has in a stage, all of the same sequences.
  static constexpr int each = S::rows * S::chunks / threads;
  static_assert(threads % S::chunks == 0 && each * threads == S::rows * S::chunks);

 public:
  /// `offsets`: shared memory for where the first `most_part_rows` targets lie; to be synchronised
  /// before `load`.
  __device__ ErrorRows(const Arguments& a, const Product& p, const BlockState& state,
                       std::uint32_t* offsets)
      : a_(a),
        p_(p),
        state_(state),
        offsets_(offsets),
        math_(a.shape, ErrorMath<M>::masks_of(a, state.cursor, first_sequence())) {
    const Shape& s = a.shape;
    row_bytes_ = static_cast<std::size_t>(s.padded) * sizeof(typename M::Word);
    const std::size_t offset = first_sequence() * sizeof(typename M::Word);
    const auto outputs = static_cast<std::size_t>(s.outputs);
    const StepCursor& cursor = state.cursor;
    const auto frame = static_cast<std::ptrdiff_t>(static_cast<std::size_t>(s.pixels) * row_bytes_);
    older_ = (static_cast<std::ptrdiff_t>(slot_before(cursor.frame, s.frames, 2)) -
              static_cast<std::ptrdiff_t>(cursor.frame)) *
             frame;
    y_ = a.y + (slot_before(cursor.y, y_slots, 2) * outputs + p.errors) * row_bytes_ + offset;
    d1_ = a.d1 + (cursor.gradient * outputs + p.errors) * row_bytes_ + offset;
    from_ = a.arena + offset;
    for (int i = static_cast<int>(threadIdx.x); i < min(static_cast<int>(p.depth), most_part_rows);
         i += threads) {
      offsets[i] = find(i);
    }
  }

  /// Copies the targets and y(t-2) of a stage's rows, from row `first` of the product on, to the
  /// stage `to`, asynchronously.
  __device__ void load(int first, unsigned char* to) const {
    for_each_piece(first, to, [&](int, int row, unsigned char* piece) {
      copy_async(piece, source(row));
      copy_async(piece + S::second, y_ + byte_offset(row));
    });
  }

  /// Turns the thread's targets in this stage into d1, rows that do not exist into zeros, and adds
  /// to the score. Stores d1 where the product is the first of its unit (`parts`).
  __device__ void transform(int first, unsigned char* to) {
    with_derivative<M>(a_.shape.activation, state_.cursor.step, [&](auto activation) {
      OperandVector<M> next = before(first + row_of(0));
#pragma unroll 1
      for (int i = 0; i < each; ++i) {
        unsigned char* piece = piece_at(i, to);
        const int row = first + row_of(i);
        const OperandVector<M> older = next;
        if (i + 1 < each) next = before(first + row_of(i + 1));
        if (row >= static_cast<int>(p_.depth)) {
          *reinterpret_cast<uint4*>(piece) = make_uint4(0, 0, 0, 0);
          continue;
        }
        OperandVector<M> target;
        StoredVector<M> prediction;
        target.bits = *reinterpret_cast<const uint4*>(piece);
        prediction.bits = *reinterpret_cast<const uint4*>(piece + S::second);
        if (is_pixel(row)) {
          math_.score_prediction(target, prediction);
          math_.score_persistence(target, older);
        }
        const uint4 d1 = math_.gradient(activation, target, prediction);
        *reinterpret_cast<uint4*>(piece) = d1;
        if (p_.parts != 0) *reinterpret_cast<uint4*>(d1_ + byte_offset(row)) = d1;
      }
    });
  }
  [[nodiscard]] __device__ const ErrorSums& sums() const { return math_.sums; }

 private:
  /// The first of the thread's sequences.
  __device__ static std::size_t first_sequence() {
    return blockIdx.y * Slice + threadIdx.x % S::chunks * size;
  }
  /// The row in the stage of the thread's `i`-th piece.
  __device__ static int row_of(int i) {
    return (static_cast<int>(threadIdx.x) + i * threads) / S::chunks;
  }
  /// The thread's `i`-th piece in the stage `to`.
  __device__ static unsigned char* piece_at(int i, unsigned char* to) {
    return to + row_of(i) * S::stride + static_cast<int>(threadIdx.x) % S::chunks * 16;
  }
  /// Calls what(i, row of the product, piece) for the thread's pieces of rows that exist.
  template <class What>
  __device__ void for_each_piece(int first, unsigned char* to, What&& what) const {
#pragma unroll
    for (int i = 0; i < each; ++i) {
      const int row = first + row_of(i);
      if (row < static_cast<int>(p_.depth)) what(i, row, piece_at(i, to));
    }
  }
  /// Where target `row` lies in the arena, in units of 16 bytes.
  __device__ std::uint32_t find(int row) const {
    return row_offset(state_.array_offsets, a_.rows[p_.rows + static_cast<std::uint32_t>(row)],
                      static_cast<std::uint32_t>(row_bytes_ / 16));
  }
  /// The thread's sequences of target `row` in device memory.
  __device__ const unsigned char* source(int row) const {
    return from_ + static_cast<std::size_t>(row < most_part_rows ? offsets_[row] : find(row)) * 16;
  }
  /// Byte offset of a row from the product's first row of y or d1.
  __device__ std::size_t byte_offset(int row) const {
    return static_cast<std::uint32_t>(row) * static_cast<std::uint32_t>(row_bytes_);
  }
  /// Whether target `row` is a pixel of this frame and any of the thread's sequences is scored.
  __device__ bool is_pixel(int row) const {
    return static_cast<std::uint32_t>(row) < p_.pixels && math_.scores();
  }

  /// The pixel of two steps before where it is to be scored, else zeros.
  __device__ OperandVector<M> before(int row) const {
    OperandVector<M> out;
    out.bits = make_uint4(0, 0, 0, 0);
    if (is_pixel(row)) out.bits = *reinterpret_cast<const uint4*>(source(row) + older_);
    return out;
  }

  const Arguments& a_;
  const Product& p_;
  const BlockState& state_;
  const std::uint32_t* offsets_;
  ErrorMath<M> math_;
  std::size_t row_bytes_;
  const unsigned char* from_;  ///< the arena plus the offset of the thread's sequences in a row
  std::ptrdiff_t older_;       ///< bytes from a pixel of this frame to the one of two steps before
  const unsigned char* y_;     ///< y(t-2), the product's first row, at the thread's sequences
  unsigned char* d1_;          ///< d1(t), likewise
};

/// Adds the sums of all threads of the thread block to score[0..2], in a fixed order.
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

/// The work of a thread block with product `p` of the errors role.
template <class M, int Slice>
__device__ __forceinline__ void errors(const Arguments& a, const Product& p, BlockState& state,
                                       unsigned char* shared) {
  using S = ProductShape<M, Slice, true>;
  const auto slice = static_cast<std::size_t>(blockIdx.y);
  unsigned char* pipe = shared + S::words_bytes;
  ErrorRows<M, Slice> rows(a, p, state, reinterpret_cast<std::uint32_t*>(shared));
  __syncthreads();
  product<M, S>(
      pipe,
      a.working_copies + state.cursor.current_copy * a.copy_stride +
          static_cast<std::size_t>(p.weights) * block_words,
      static_cast<int>(p.blocks), [&](int first, int, unsigned char* to) { rows.load(first, to); },
      [&](int first, unsigned char* at) { rows.transform(first, at); });
  for (int i = static_cast<int>(threadIdx.x); i < static_cast<int>(p.count) * (Slice / 4);
       i += threads) {
    const int n = i / (Slice / 4);
    const int b = i % (Slice / 4) * 4;
    const float4 u = read_sum<M, Slice>(pipe, n, b);
    const float sum[4] = {u.x, u.y, u.z, u.w};
    const std::size_t row = p.out + static_cast<std::size_t>(n);
    const std::size_t sequence = slice * Slice + static_cast<std::size_t>(b);
    store_hidden_gradient<M>(a, state.cursor, row, sequence,
                             hidden_before<M>(a, state.cursor, row, sequence), sum);
  }
  if (p.parts != 0) add_score(rows.sums(), state, a.score + (slice * a.score_slice + p.score) * 3);
}

}  // namespace pvm::inline v0::detail::batch
