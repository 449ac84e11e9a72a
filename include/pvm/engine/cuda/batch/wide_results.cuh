// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a wide sweep makes of a panel's sums where they were made: h and c(h), or d0. Where blocks
/// of threads share a panel, each leaves the sums of its part in device memory but the one that
/// comes last, which adds them up. Nobody waits for another, and no kernel but the sweep reads
/// sums.

#include <cstdint>

#include <pvm/engine/cuda/batch/errors.cuh>

namespace pvm::inline v0::detail::batch {

/// Sums of a warp's 16 hidden values by 256 sequences, in halves: lane l holds rows l/4 and
/// l/4 + 8, and of every 8 sequences 2(l%4) and the next.
using WideSums = float[2][16][4];
inline constexpr int wide_part_floats = 64 * 256;  ///< of all four warps

/// What a warp does with its sums when the tiles of a part are through.
template <class M>
class WideResults {
  static constexpr int octets = 8;  ///< of 64 sequences
  /// Of a row's quarter in shared memory, with a gap so that any writes find different banks.
  static constexpr int row_bytes = 64 * 4 + 32;
  /// A warp makes results of 8 rows by 64 sequences in a turn: two octets a lane.
  static constexpr int rows_at_once = 2;
  static constexpr int halves = 2, turns = 4 * halves;

 public:
  static constexpr int room_bytes = 16 * row_bytes;  ///< that a warp needs in shared memory
  /// ... and all four, of which the last has 8 rows at most.
  static constexpr int rooms_bytes = 3 * room_bytes + (panel_width - 48) * row_bytes;

  __device__ WideResults(const Arguments& a, const SweepTile& t) : a_(a), tile_(t) {}

  /// Asks for what will be added to the sums, or multiplied with them, up to the second-level
  /// cache.
  __device__ void announce(const Cursor& now) const {
    if (tile_.parts == 2) {
      const float4* from = left(other_part()) - lane();  // of the warp
#pragma unroll
      for (int i = 0; i < 4; ++i) prefetch_line(from + (i * 32 + lane()) * 8);
    }
    if (tile_.forward == 0) {
      const auto* from = reinterpret_cast<const typename M::Kept::Type*>(a_.kept);
      const std::uint32_t slot = slot_before(now.hidden, a_.shape.ring, 2);
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int row = i * 8 + lane() / 4;
        if (row >= rows()) break;
        prefetch_line(from + hidden_place(a_.shape, slot,
                                          tile_.out + static_cast<unsigned>(warp() * 16 + row),
                                          static_cast<unsigned>(lane() % 4 * 64)));
      }
    }
  }

  /// Whether the panel's sums are complete, as all other parts are there; else they have been left
  /// to whoever comes last. Of two parts that one adds the other to its own, of more all that were
  /// left, in their order: whoever it is, the sum is the same.
  __device__ bool complete(const WideSums& sums) const {
    if (tile_.parts == 1) return true;
    unsigned int* counter = a_.counters + tile_.first_part * 4 + static_cast<unsigned>(warp());
    if (tile_.parts > 2 || !other_came(counter)) {
      leave(sums);
      if (!comes_last(counter)) return false;
    }
    if (lane() == 0) *counter = 0;  // for the next step
    __syncwarp();
    return true;
  }

  /// Makes h and c(h), or d0, of complete sums, in the step of `now`, a quarter of the sequences
  /// after the other. In shared memory, `room`: for sums of all warps; `more`: the warp's own, for
  /// what another part adds to them.
  __device__ void publish(const WideSums& sums, const Cursor& now, unsigned char* room,
                          unsigned char* more) {
    const bool gradient = tile_.forward == 0;
    begin_phase();
    bring(more, 0);
    Before h[rows_at_once];
    look(h, now, 0);
#pragma unroll 1
    for (int turn = 0; turn < turns; ++turn) {
      if (turn % halves == 0) {
        const int quarter = turn / halves;
        begin_phase();
        __syncwarp();
        if (quarter == 0) put<0>(sums, room, more);
        if (quarter == 1) put<1>(sums, room, more);
        if (quarter == 2) put<2>(sums, room, more);
        if (quarter == 3) put<3>(sums, room, more);
        __syncwarp();
        if (quarter < 3) bring(more, quarter + 1);
      }
      begin_phase();
      if (turn % halves * 8 < rows()) {
        float v[rows_at_once][octets];
        get(v, room, turn);
        if (gradient) {
          make_gradients(v, h, now, turn);
        } else {
          make_hidden(v, now, turn);
        }
      }
    }
  }

 private:
  using Before = KeptValues<M, octets>;  ///< h of two steps ago

  /// What follows from the thread's number is found anew: there are no registers to keep it in.
  __device__ void begin_phase() { me_ = thread_number(); }
  [[nodiscard]] __device__ int warp() const { return me_ >> 5; }
  [[nodiscard]] __device__ int lane() const { return me_ & 31; }
  /// Of the warp's hidden values, how many exist. (W1 has a column more, of the bias.)
  [[nodiscard]] __device__ int rows() const { return a_.sum_rows - warp() * 16; }

  // In a turn a lane has an octet of two rows, four apart.

  [[nodiscard]] __device__ int row_of(int turn, int i) const {
    return turn % halves * 8 + i * 4 + lane() / octets;
  }
  [[nodiscard]] __device__ bool exists(int turn, int i) const { return row_of(turn, i) < rows(); }
  /// Where the first of them is in a ring of hidden rows, which have fewer than 2^32 values.
  [[nodiscard]] __device__ std::uint32_t first_of(std::uint32_t slot, int turn) const {
    const auto row = static_cast<unsigned>(warp() * 16 + row_of(turn, 0));
    const auto sequence = static_cast<unsigned>(turn / halves * 64 + lane() % octets * 8);
    return (slot * static_cast<unsigned>(a_.shape.hidden) + tile_.out + row) * 256 + sequence;
  }
  static constexpr std::uint32_t rows_apart = 4 * 256;

  __device__ void look(Before (&h)[rows_at_once], const Cursor& now, int turn) const {
    const std::uint32_t from = first_of(slot_before(now.hidden, a_.shape.ring, 2), turn);
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      h[i].piece = make_uint4(0, 0, 0, 0);
      if (tile_.forward == 0 && exists(turn, i)) {
        h[i] = kept_hidden<M, octets>(a_, from + static_cast<unsigned>(i) * rows_apart);
      }
    }
  }
  __device__ void get(float (&v)[rows_at_once][octets], const unsigned char* room, int turn) const {
    const unsigned char* from =
        room + warp() * room_bytes + row_of(turn, 0) * row_bytes + lane() % octets * 32;
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      const auto* quads = reinterpret_cast<const float4*>(from + i * 4 * row_bytes);
      const float4 first = quads[0], second = quads[1];
      const float all[octets] = {first.x,  first.y,  first.z,  first.w,
                                 second.x, second.y, second.z, second.w};
#pragma unroll
      for (int k = 0; k < octets; ++k) v[i][k] = all[k];
    }
  }
  /// ... where h of the next turn is asked for as soon as this one's is used.
  __device__ void make_gradients(float (&v)[rows_at_once][octets], Before (&h)[rows_at_once],
                                 const Cursor& now, int turn) const {
    with_derivative<M>(a_.shape.activation, now.step, [&](auto activation) {
#pragma unroll
      for (int i = 0; i < rows_at_once * octets; ++i) {
        v[i / octets][i % octets] *=
            activation.derivative(M::Kept::decode(h[i / octets].kept[i % octets]));
      }
    });
    const int next = turn + (rows() > 8 ? 1 : halves);
    if (next < turns) look(h, now, next);
    const std::size_t to = first_of(now.gradient, turn);
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      if (!exists(turn, i)) continue;
      store_operands<M>(
          a_.d0 + (to + static_cast<unsigned>(i) * rows_apart) * sizeof(typename M::Word), v[i]);
    }
  }
  __device__ void make_hidden(float (&v)[rows_at_once][octets], const Cursor& now, int turn) const {
    with_activation<M>(a_.shape.activation, [&](auto activation) {
#pragma unroll
      for (int i = 0; i < rows_at_once * octets; ++i) {
        float& x = v[i / octets][i % octets];
        x = activation.value(x);
      }
    });
    const std::size_t to = first_of(now.hidden, turn);
#pragma unroll
    for (int i = 0; i < rows_at_once; ++i) {
      if (exists(turn, i)) {
        store_hidden<M>(a_, to + static_cast<unsigned>(i) * rows_apart, v[i]);
      }
    }
  }

  /// Another part's quarter of the sums, each lane what it will add itself.
  __device__ void bring(unsigned char* more, int quarter) const {
    if (tile_.parts != 2 || !holds_any()) return;
    const float4* from = left(other_part()) + quarter * octets * 32;
#pragma unroll
    for (int i = 0; i < octets; ++i) copy_async(more + (i * 32 + lane()) * 16, from + i * 32);
  }

  // Sums that are left lie in device memory as they do across the warp.

  [[nodiscard]] __device__ float4* left(std::uint32_t part) const {
    return reinterpret_cast<float4*>(a_.scratch +
                                     static_cast<std::size_t>(part) * wide_part_floats) +
           warp() * (32 * 32) + lane();
  }
  /// Whether a value of the lane's is of a row that exists.
  [[nodiscard]] __device__ bool holds_any() const { return lane() / 4 < rows(); }
  __device__ void leave(const WideSums& sums) const {
    float4* to = left(tile_.part);
    if (!holds_any()) return;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      const float* v = sums[i / 16][i % 16];
      to[i * 32] = make_float4(v[0], v[1], v[2], v[3]);
    }
  }
  [[nodiscard]] __device__ std::uint32_t other_part() const {  // of two
    return 2 * tile_.first_part + 1 - tile_.part;
  }
  [[nodiscard]] __device__ bool other_came(const unsigned int* counter) const {
    bool came = false;
    if (lane() == 0) came = load_acquire(counter) != 0;
    return __shfl_sync(~0U, came, 0);
  }
  [[nodiscard]] __device__ bool comes_last(unsigned int* counter) const {
    __syncwarp();
    bool last = false;
    if (lane() == 0) last = add_one_in_turn(counter) == tile_.parts - 1;
    return __shfl_sync(~0U, last, 0);
  }

  /// A quarter of the panel's sums to shared memory.
  template <int Quarter>
  __device__ __forceinline__ void put(const WideSums& sums, unsigned char* room,
                                      const unsigned char* more) const {
    float v[octets][4];
#pragma unroll
    for (int i = 0; i < octets; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) v[i][k] = sums[Quarter / 2][Quarter % 2 * 8 + i][k];
      keep_apart<Quarter>(v[i]);
    }
    if (tile_.parts == 2) {
      copies_wait_all();
#pragma unroll
      for (int i = 0; i < octets; ++i) {
        add(v[i], *reinterpret_cast<const float4*>(more + (i * 32 + lane()) * 16));
      }
    } else if (tile_.parts > 2) {
#pragma unroll
      for (int i = 0; i < octets * 4; ++i) v[i / 4][i % 4] = 0.0F;
#pragma unroll 1
      for (std::uint32_t i = 0; i < tile_.parts; ++i) {
        const float4* from = left(tile_.first_part + i) + Quarter * octets * 32;
#pragma unroll
        for (int k = 0; k < octets; ++k) add(v[k], __ldcg(from + k * 32));
      }
    }
    auto* to =
        reinterpret_cast<float2*>(room + warp() * room_bytes + lane() / 4 * row_bytes) + lane() % 4;
    const bool lower = rows() > 8;
#pragma unroll
    for (int i = 0; i < octets; ++i) {
      to[i * 4] = make_float2(v[i][0], v[i][1]);
      if (lower) to[i * 4 + row_bytes] = make_float2(v[i][2], v[i][3]);  // 8 rows on
    }
  }
  __device__ static void add(float (&v)[4], const float4& more) {
    v[0] += more.x;
    v[1] += more.y;
    v[2] += more.z;
    v[3] += more.w;
  }

  const Arguments& a_;
  const SweepTile& tile_;
  int me_ = thread_number();
};

}  // namespace pvm::inline v0::detail::batch
