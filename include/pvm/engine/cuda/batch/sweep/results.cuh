// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The end of a part in a sweep: the consumer warps turn their accumulators of the panel's sums
/// into h and c(h), or d0, without another kernel.
///
/// Where thread blocks share a panel, all but one store the sums of their parts in device memory
/// (`store_partial_sums`) and go on; the one whose tiles have `adds` set adds these to its own
/// (`make_results`). The lowest bit of each float is the parity of the step (`step_tag`): the
/// adding warp polls until it sees this step's bit, so there is neither a counter nor a fence. By
/// the plan the adding thread block gets there long after the other blocks, so that it rarely
/// waits; and it only waits for thread blocks with lower numbers, which start before it
/// (plan/shares.hpp), so that there is no deadlock.

#include <cstdint>

#include <pvm/engine/cuda/batch/error_math.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>
#include <pvm/engine/cuda/instructions/memory.cuh>
#include <pvm/engine/cuda/instructions/registers.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail::batch {

/// Octets (8 sequences each) of a chunk, which one product covers.
template <int Bp>
inline constexpr int sum_octets = sweep_chunk(Bp) / 8;
/// Accumulators of a warp's 16 hidden values by all sequences: [chunk][octet][4]. Of every octet
/// lane l holds sequences 2(l%4) and 2(l%4) + 1: elements 0 and 1 of row l/4, 2 and 3 of row
/// l/4 + 8.
template <int Bp>
using SweepSums = float[Bp / 8 / sum_octets<Bp>][sum_octets<Bp>][4];

/// What a consumer warp does with its sums after the last tile of a part. `make_results` works in
/// turns of 16 rows by 32 sequences. In shared memory the 16-bit values of a turn form a *square*,
/// [16 rows][32 sequences], swizzled; a warp has room for up to three.
template <class M, int Bp>
class SweepResults {
  using Sums = SweepSums<Bp>;
  static constexpr int octets = 4;                 ///< of a turn
  static constexpr int piece_bytes = octets * 16;  ///< a row of a square
  static constexpr int square_bytes = 16 * piece_bytes;
  static constexpr int squares = Bp < 96 ? Bp / 32 : 3;  ///< 64 sequences take only two turns

 public:
  /// Shared memory for the squares of a warp, and of all four warps.
  static constexpr int warp_buffer_bytes = squares * square_bytes;
  static constexpr int all_buffers_bytes = 4 * warp_buffer_bytes;

  /// `t`: the last tile of the part. `bytes`: how many of a row's bytes (16 bits a sequence) are to
  /// be computed.
  __device__ SweepResults(const Arguments& a, const SweepTile& t, int bytes)
      : a_(a), tile_(t), turns_((bytes + piece_bytes - 1) / piece_bytes) {}

  /// Prefetches to the L2 cache what `make_results` will read: the other part's sums if the panel
  /// has two parts, and h(t-2) for d0.
  __device__ void prefetch_inputs(const StepCursor& cursor) const {
    if (tile_.adds == 0) return;
    if (tile_.parts == 2) {
      const uint4* from = stored_sums(other_part()) - lane();  // the start of the warp's sums
      constexpr int lines = Bp / 2;                            // of 128 bytes
#pragma unroll
      for (int i = 0; i < lines; i += 32) {
        if (lines % 32 == 0 || i + lane() < lines) prefetch_line(from + (i + lane()) * 8);
      }
    }
    if (tile_.is_w0 == 0) {
      const auto* from = reinterpret_cast<const typename M::Stored::Type*>(a_.stored_h);
      const std::uint32_t slot = slot_before(cursor.hidden, a_.shape.ring, 2);
      constexpr int lines = (Bp + 63) / 64;  // of 128 bytes in a row
#pragma unroll
      for (int i = 0; i < 16 * lines; i += 32) {
        const int row = (i + lane()) / lines;
        if (row >= rows() || row >= 16) break;
        prefetch_line(from + hidden_index(a_.shape, slot,
                                          tile_.out + static_cast<unsigned>(warp() * 16 + row),
                                          static_cast<unsigned>((i + lane()) % lines * 64)));
      }
    }
  }

  /// Whether this part makes the panel's results; one part does, which adds the sums of the others
  /// to its own. It calls `make_results`, the others `store_partial_sums`.
  [[nodiscard]] __device__ bool adds() const { return tile_.adds != 0; }
  /// Stores the sums for the part that adds them, tagged with the step, and does not wait.
  __device__ void store_partial_sums(const Sums& sums, const StepCursor& cursor) const {
    if (!any_row_exists()) return;
    const std::uint32_t tag = step_tag(cursor.step);
    uint4* to = stored_sums(tile_.part);
#pragma unroll
    for (int i = 0; i < Bp / 8; ++i) {
      const float* v = sums[i / sum_octets<Bp>][i % sum_octets<Bp>];
      store_relaxed_16(to + i * 32, make_uint4(tagged(v[0], tag), tagged(v[1], tag),
                                               tagged(v[2], tag), tagged(v[3], tag)));
    }
  }

  /// Makes h and c(h), or d0, of the panel's sums in the step of `cursor`, 32 sequences a turn.
  /// Shared memory: `result_buffers` is for the squares of all warps; `partial_sums` is the warp's
  /// own, for two turns of the other part's sums (4 KiB) if the panel has two parts. Asynchronous
  /// copies load h(t-2) two turns ahead, and the other part's sums one turn ahead. Each call of
  /// `load_both` commits two groups of copies, so that `copies_wait<1>` waits for all but h(t-2) of
  /// the next turn.
  __device__ void make_results(const Sums& sums, const StepCursor& cursor,
                               unsigned char* result_buffers, unsigned char* partial_sums) {
    reread_thread();
    const Offsets offsets(*this, cursor);
    unsigned char* buffer = result_buffers + warp() * warp_buffer_bytes;
    const bool gradient = tile_.is_w0 == 0;
    const std::uint32_t parts = tile_.parts;
    const auto load_both = [&](int hidden_turn, int sums_turn) {
      if (parts == 2 && sums_turn < turns_) load_partial_sums(partial_sums, sums_turn);
      copies_commit();
      if (gradient && hidden_turn < turns_)
        load_hidden(square(buffer, hidden_turn), offsets, hidden_turn);
      copies_commit();
    };
    if (gradient) load_hidden(buffer, offsets, 0);
    load_both(1, 0);
#pragma unroll 1
    for (int turn = 0; turn < turns_; ++turn) {
      float v[octets][4];
      select_sums(v, sums, turn);
      copies_wait<1>();
      __syncwarp();
      load_both(turn + 2, turn + 1);
      if (parts > 1) add_other_parts(v, partial_sums, turn, step_tag(cursor.step));
      if (gradient) {
        make_gradients(v, square(buffer, turn), offsets, cursor.step, turn);
      } else {
        make_hidden(v, buffer, offsets, turn);
      }
    }
  }

 private:
  using Stored = typename M::Stored;
  /// 16 rows by 16 sequences of 16 bits as a warp holds them: four 8 x 8 matrices, a pair a lane.
  using Words = std::uint32_t[4];

  /// Reads the thread number anew, so that nothing that follows from it is kept in registers across
  /// phases: there are none to spare.
  __device__ void reread_thread() { thread_ = thread_number(); }
  [[nodiscard]] __device__ int warp() const { return thread_ >> 5; }
  [[nodiscard]] __device__ int lane() const { return thread_ & 31; }
  /// How many of the warp's rows are hidden values, possibly more than 16 or negative. (W1 has one
  /// column more, of the bias, of which no result is made.)
  [[nodiscard]] __device__ int rows() const { return a_.sum_rows - warp() * 16; }

  // In registers a square lies across the warp as accumulators do (`ldmatrix`, `stmatrix`); between
  // shared and device memory it is copied 16 bytes a lane, eight rows at a time.

  /// Byte offset of the 16-byte unit `piece` of a row in a square, swizzled every two rows so that
  /// reads have no bank conflicts.
  [[nodiscard]] __device__ static int square_offset(int row, int piece) {
    return row * piece_bytes + (piece ^ (row >> 1 & 3)) * 16;
  }
  [[nodiscard]] __device__ static unsigned char* square(unsigned char* buffer, int turn) {
    return buffer + static_cast<unsigned>(turn) % squares * square_bytes;
  }
  /// A lane's addresses in squares and rings, computed once for all turns.
  struct Offsets {
    /// Offsets in a square: of the row that the lane addresses for ldmatrix and stmatrix, and of
    /// the 16 bytes that it copies in row l/4 (the same of row l/4 + 8 lie 8 rows further on).
    int words, piece;
    bool exists[2];  ///< whether these two rows exist
    /// Where, for the first turn, these 16 bytes lie in row l/4: index of a value in the ring that
    /// the result goes to, and in the ring of stored h for h(t-2).
    std::uint32_t to, hidden;
    __device__ Offsets(const SweepResults& r, const StepCursor& cursor) {
      const int l = r.lane(), row = l / octets;
      words = square_offset(l & 15, l >> 4);
      piece = square_offset(row, l % octets);
      exists[0] = row < r.rows();
      exists[1] = row + 8 < r.rows();
      const auto in_slot =  // a ring has fewer than 2^32 values
          (r.tile_.out + static_cast<unsigned>(r.warp() * 16 + row)) * Bp +
          static_cast<unsigned>(l % octets * 8);
      const Shape& s = r.a_.shape;
      const auto slot = static_cast<unsigned>(s.hidden) * Bp;
      to = (r.tile_.is_w0 == 0 ? cursor.gradient : cursor.hidden) * slot + in_slot;
      hidden = slot_before(cursor.hidden, s.ring, 2) * slot + in_slot;
    }
  };
  static constexpr int eight_rows_bytes = 8 * Bp * 2;  ///< bytes of 8 rows of a ring

  /// Copies h(t-2), which d0 is made of, to a square, asynchronously.
  __device__ void load_hidden(unsigned char* square, const Offsets& offsets, int turn) const {
    const unsigned char* from =
        reinterpret_cast<const unsigned char*>(a_.stored_h) +
        static_cast<std::size_t>(offsets.hidden + static_cast<unsigned>(turn * 32)) * 2;
    unsigned char* to = square + offsets.piece;
    if (offsets.exists[0]) copy_async(to, from);
    if (offsets.exists[1]) copy_async(to + 8 * piece_bytes, from + eight_rows_bytes);
  }
  /// Copies a complete square to a ring of hidden rows.
  __device__ void store(unsigned char* ring, const unsigned char* square, const Offsets& offsets,
                        int turn) const {
    unsigned char* to =
        ring + static_cast<std::size_t>(offsets.to + static_cast<unsigned>(turn * 32)) * 2;
    const unsigned char* from = square + offsets.piece;
    const auto copy = [](unsigned char* to, const unsigned char* from) {
      *reinterpret_cast<uint4*>(to) = *reinterpret_cast<const uint4*>(from);
    };
    if (offsets.exists[0]) copy(to, from);
    if (offsets.exists[1]) copy(to + eight_rows_bytes, from + 8 * piece_bytes);
  }
  /// Stores convert(stored) in a ring of hidden rows, by way of square number `number`.
  template <class Ring, class Convert>
  __device__ __forceinline__ void store_words(unsigned char* buffer,
                                              const Words (&stored)[octets / 2], Ring* ring,
                                              int number, const Offsets& offsets, int turn,
                                              Convert&& convert) const {
    unsigned char* to = square(buffer, number);
    __syncwarp();  // all lanes have read the square's former content
#pragma unroll
    for (int i = 0; i < octets / 2; ++i) {
      Words words;
#pragma unroll
      for (int k = 0; k < 4; ++k) words[k] = convert(stored[i][k]);
      store_matrices(to + (offsets.words ^ i * 32), words);
    }
    __syncwarp();
    store(reinterpret_cast<unsigned char*>(ring), to, offsets, turn);
  }
  /// d0 = f'(h(t-2)) v for a turn; h(t-2) is in `square`, where d0 replaces it.
  __device__ void make_gradients(const float (&v)[octets][4], unsigned char* square,
                                 const Offsets& offsets, unsigned long long step, int turn) const {
    with_derivative<M>(a_.shape.activation, step, [&](auto activation) {
#pragma unroll
      for (int i = 0; i < octets / 2; ++i) {
        unsigned char* at = square + (offsets.words ^ i * 32);
        Words h, d0;
        load_matrices(h, at);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          const float* sum = v[2 * i + k / 2] + k % 2 * 2;
          d0[k] = M::pair(activation.derivative(decode_low(h[k])) * sum[0],
                          activation.derivative(decode_high(h[k])) * sum[1]);
        }
        store_matrices(at, d0);
      }
    });
    __syncwarp();
    store(a_.d0, square, offsets, turn);
  }
  /// h = f(v) for a turn, stored as `M::Stored`, as operand h and as operand c(h). Both operands
  /// are made of the stored (rounded) h, because a run that is resumed from a checkpoint has no
  /// other.
  __device__ void make_hidden(const float (&v)[octets][4], unsigned char* buffer,
                              const Offsets& offsets, int turn) const {
    Words stored[octets / 2];
    with_activation<M>(a_.shape.activation, [&](auto activation) {
#pragma unroll
      for (int i = 0; i < octets * 2; ++i) {
        const float* sum = v[i / 2] + i % 2 * 2;
        stored[i / 4][i % 4] = encode(activation.value(sum[0]), activation.value(sum[1]));
      }
    });
    store_words(buffer, stored, a_.stored_h, 0, offsets, turn, [](std::uint32_t h) { return h; });
    store_words(buffer, stored, a_.raw, 1, offsets, turn,
                [](std::uint32_t h) { return M::pair(decode_low(h), decode_high(h)); });
    store_words(buffer, stored, a_.squeezed, 2, offsets, turn, [](std::uint32_t h) {
      return M::pair(squeeze(decode_low(h)), squeeze(decode_high(h)));
    });
  }
  // Pairs of stored values.

  __device__ static std::uint32_t encode(float low, float high) {
    return Stored::encode(low) | static_cast<std::uint32_t>(Stored::encode(high)) << 16;
  }
  __device__ static float decode_low(std::uint32_t pair) {
    return Stored::decode(static_cast<typename Stored::Type>(pair));
  }
  __device__ static float decode_high(std::uint32_t pair) {
    return Stored::decode(static_cast<typename Stored::Type>(pair >> 16));
  }

  /// Where another part's sums for the lane and octet `i` of a turn are copied to in shared memory
  /// (double buffering).
  template <class Byte>
  [[nodiscard]] __device__ Byte* partial_sum_at(Byte* partial_sums, int turn, int i) const {
    return partial_sums + ((turn % 2 * octets + i) * 32 + lane()) * 16;
  }
  /// Copies the other part's sums of a turn to shared memory, asynchronously: each lane copies the
  /// sums that it will add itself.
  __device__ void load_partial_sums(unsigned char* partial_sums, int turn) const {
    if (!any_row_exists()) return;
    const uint4* from = stored_sums(other_part()) + turn * octets * 32;
#pragma unroll
    for (int i = 0; i < octets; ++i)
      copy_async(partial_sum_at(partial_sums, turn, i), from + i * 32);
  }

  // Sums that `store_partial_sums` stores: [part][warp][octet][lane] of 4 floats, the lowest bit of
  // each float replaced by the step's tag (`step_tag`).

  [[nodiscard]] __device__ static std::uint32_t tagged(float v, std::uint32_t tag) {
    return (__float_as_uint(v) & ~1U) | tag;
  }
  [[nodiscard]] __device__ static bool have_tag(const uint4& v, std::uint32_t tag) {
    return (((v.x ^ tag) | (v.y ^ tag) | (v.z ^ tag) | (v.w ^ tag)) & 1U) == 0;
  }
  /// The lane's sums of octet 0; those of the next octet are 32 elements (uint4) further on.
  [[nodiscard]] __device__ uint4* stored_sums(std::uint32_t part) const {
    return reinterpret_cast<uint4*>(a_.scratch +
                                    static_cast<std::size_t>(part) * sweep_part_floats(Bp)) +
           warp() * (Bp / 8 * 32) + lane();
  }
  /// Whether at least one of the lane's rows exists.
  [[nodiscard]] __device__ bool any_row_exists() const { return lane() / 4 < rows(); }
  /// The other part of a panel with two parts, as SweepTile::part.
  [[nodiscard]] __device__ std::uint32_t other_part() const {
    return 2 * tile_.first_part + 1 - tile_.part;
  }
  /// Adds the four sums stored at `at`. `seen` was read there before; as long as it does not have
  /// this step's tag, they are read again.
  __device__ static void add_stored_sums(float (&to)[4], const uint4* at, uint4 seen,
                                         std::uint32_t tag) {
    while (!have_tag(seen, tag)) seen = load_relaxed_16(at);
    to[0] += __uint_as_float(seen.x);
    to[1] += __uint_as_float(seen.y);
    to[2] += __uint_as_float(seen.z);
    to[3] += __uint_as_float(seen.w);
  }

  /// v = the sums of a turn. The recursion selects by `turn` while register indices stay constants.
  /// There is a value for any `turn`: otherwise the compiler treats the undefined v as live from
  /// the start of the kernel and spends registers on it.
  template <int Turn = 0>
  __device__ __forceinline__ static void select_sums(float (&v)[octets][4], const Sums& sums,
                                                     int turn) {
    if constexpr (Turn + 1 < Bp / 8 / octets) {
      if (turn != Turn) return select_sums<Turn + 1>(v, sums, turn);
    }
    constexpr int first = Turn * octets % sum_octets<Bp>;
#pragma unroll
    for (int i = 0; i < octets; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) v[i][k] = sums[Turn * octets / sum_octets<Bp>][first + i][k];
      keep_branches_apart<Turn>(v[i]);
    }
  }
  /// Adds the sums of the other parts: of a single one from `partial_sums`, of several from device
  /// memory, in the order of the parts.
  __device__ __forceinline__ void add_other_parts(float (&v)[octets][4],
                                                  const unsigned char* partial_sums, int turn,
                                                  std::uint32_t tag) const {
    if (!any_row_exists()) return;
    if (tile_.parts == 2) {
      const uint4* from = stored_sums(other_part()) + turn * octets * 32;
#pragma unroll
      for (int i = 0; i < octets; ++i) {
        add_stored_sums(v[i], from + i * 32,
                        *reinterpret_cast<const uint4*>(partial_sum_at(partial_sums, turn, i)),
                        tag);
      }
    } else {
#pragma unroll 1
      for (std::uint32_t i = 0; i < tile_.parts; ++i) {
        if (tile_.first_part + i == tile_.part) continue;
        const uint4* from = stored_sums(tile_.first_part + i) + turn * octets * 32;
#pragma unroll
        for (int k = 0; k < octets; ++k) {
          add_stored_sums(v[k], from + k * 32, __ldcg(from + k * 32), tag);
        }
      }
    }
  }

  const Arguments& a_;
  const SweepTile& tile_;
  int turns_;  ///< turns that have sequences to compute
  int thread_ = thread_number();
};

}  // namespace pvm::inline v0::detail::batch
