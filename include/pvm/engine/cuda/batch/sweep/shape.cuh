// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The shared memory of a thread block of a sweep, the barriers that its warps synchronise with,
/// and the base class of both warp roles. sweep/kernel.cuh has the overview.
///
/// Dynamic shared memory, from its (1,024-byte aligned) start:
///
///     0              stages x stage_bytes       ring buffer of gathered rows and copies of W1
///     n_start        n_buffers x n_bytes        the 56 rows of n of a part
///     tiles_start    tiles x sweep_tile_bytes   ring buffer of SweepTiles with their row words
///     state_start    SweepState                 cursor, rates, mbarriers, scores
///     masters_start  [master_buffers][consumer_warps][master_floats]  fp32 master weights

#include <cstdint>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>

namespace pvm::inline v0::detail::batch {

/// How a thread block works on tiles of up to `rows` m by 56 n with `Bp` sequences. Four consumer
/// warps compute, each 16 of the 64 rows of every product (except y = W1 r, which `compute_d1`
/// distributes). These rows are hidden values, in W1's gradient outputs. Four producer warps load
/// what they need.
/// Gathered rows are loaded into stages of a ring buffer. A stage for a gradient, or for the errors
/// of W1, holds all m of the tile and one chunk of the sequences (`sweep_chunk`); a stage for the
/// product W0 x holds `x_stage_rows` of the m and all sequences. Copies of W1 take stages, too.
template <int Bp>
struct SweepShape {
  static constexpr int blocks = Bp == 32 ? 3 : 2;  ///< thread blocks per SM
  static constexpr int producer_threads = 128;
  /// Registers per thread. Consumer warps need more than producer warps, which release theirs
  /// (`setmaxnreg`, a multiple of 8).
  static constexpr int consumer_registers = Bp == 32 ? 120 : 216, producer_registers = 40;
  static constexpr int consumer_warps = sweep_consumer_warps;
  static constexpr int threads = consumer_warps * 32 + producer_threads;
  static constexpr int rows = sweep_rows;  ///< m of a full tile
  static constexpr int row_bytes = Bp * 2;
  static constexpr int chunk_bytes = sweep_chunk(Bp) * 2;  ///< a chunk's share of a row
  static constexpr int chunks = row_bytes / chunk_bytes;
  /// In shared memory a row is cut into pieces of this many bytes, the width of the swizzle (`at`).
  static constexpr int piece_bytes = chunk_bytes % 128 == 0 ? 128 : 64;
  static constexpr int x_stage_rows = rows / chunks;  ///< m of a stage of the product W0 x
  /// Blocks of 16 m by 16 sequences whose errors a warp computes at once.
  static constexpr int error_blocks = 2;
  /// The copies W1(t-2) and W1(t) of a tile take one or two stages, before the stages of its rows.
  static constexpr int copy_stages = static_cast<int>(sweep_copy_stages(Bp));
  static constexpr int copy_bytes = rows / 16 * copy_words * 4;  ///< one copy of a full tile
  /// Byte offset in a stage (or n buffer) of `Rows` rows of byte `byte`, a multiple of 16, of row
  /// `row`. This is wgmma's swizzled layout: first piece 0 of all rows, then piece 1 of all rows,
  /// and so on. Within a piece the 16-byte units are permuted by XOR, differently in each of 8
  /// consecutive rows (128-byte pieces) or in every two rows (64-byte pieces), so that reads along
  /// a column have no bank conflicts.
  template <int Rows>
  __device__ static constexpr int at(int row, int byte) {
    return byte / piece_bytes * (Rows * piece_bytes) + row * piece_bytes +
           (byte % piece_bytes ^ swizzle(row));
  }
  /// The XOR of the swizzle for a row.
  __device__ static constexpr int swizzle(int row) {
    return piece_bytes == 128 ? (row & 7) << 4 : (row >> 1 & 3) << 4;
  }
  /// The offset `bytes` further on in the same row and piece, from an offset `offset` that `at` has
  /// returned. The byte that `offset` stands for and `bytes` must have no bit in common (as with a
  /// byte below 32 and a multiple of 32), so that XOR adds.
  __device__ static constexpr int advance(int offset, int bytes) { return offset ^ bytes; }
  static constexpr int stage_bytes = chunk_bytes == 64 ? copy_bytes : rows * chunk_bytes;
  static constexpr int stages = Bp == 64 ? 6 : 4;
  static_assert(rows * chunk_bytes <= stage_bytes && 2 * copy_bytes <= copy_stages * stage_bytes);
  static_assert(stage_bytes % (8 * piece_bytes) == 0);
  static constexpr int tiles = Bp == 128 ? 3 : 4;     ///< slots of the ring buffer of tiles
  static constexpr int n_buffers = Bp < 128 ? 2 : 1;  ///< slots for the rows of n
  static constexpr int n_bytes = panel_width * row_bytes;
  static_assert(stage_bytes >= x_stage_rows * row_bytes);
  static constexpr int n_start = stages * stage_bytes;
  static constexpr int tiles_start = n_start + n_buffers * n_bytes;
  static constexpr int state_start = tiles_start + tiles * sweep_tile_bytes;
  static_assert(state_start % 16 == 0);
  /// Tiles whose masters fit at the same time. With two, the next tile's masters are loaded while
  /// this tile is worked on (double buffering).
  static constexpr int master_buffers = Bp < 256 ? 2 : 1;
  static constexpr int master_floats = 16 * rows;  ///< room for a consumer warp's part of a tile
};

/// Layers that `SweepState::rates` has room for; networks with more are not swept.
inline constexpr int most_swept_layers = 32;
/// Numbers of the named barriers (`named_barrier_sync`) of all producer warps and of all consumer
/// warps. Within a tile the consumer warps use barrier 1.
inline constexpr int producer_barrier = 14, consumer_barrier = 15;

/// Arrivals of a warp at an mbarrier: its first lane arrives for all, after __syncwarp.
/// compute-sanitizer's racecheck does not see that this orders the accesses of the other lanes; in
/// a program compiled with PVM_RACECHECK all lanes arrive.
#if defined(PVM_RACECHECK)
inline constexpr unsigned warp_arrivals = 32;
#else
inline constexpr unsigned warp_arrivals = 1;
#endif
__device__ __forceinline__ void arrive_warp(MBarrier* barrier, int lane) {
  __syncwarp();
  if (warp_arrivals > 1 || lane == 0) mbarrier_arrive(barrier);
}

/// The two mbarriers of a slot of a ring buffer: producers fill the slot and arrive at `full`,
/// consumers read it and arrive at `empty`.
struct SlotBarriers {
  MBarrier full, empty;
};
/// Slot and parity of the i-th use (from 0) of a ring buffer of `Count` slots.
template <int Count>
struct RingUse {
  int i = 0;
  [[nodiscard]] __device__ int slot() const {
    return static_cast<int>(static_cast<unsigned>(i) % Count);
  }
  /// The parity to wait for at `full`; at `empty` it is the opposite, so that the first wait for
  /// each slot passes at once.
  [[nodiscard]] __device__ unsigned parity() const { return static_cast<unsigned>(i) / Count & 1U; }
};

/// The remaining shared state of a thread block.
template <int Bp>
struct SweepState {
  using S = SweepShape<Bp>;
  StepCursor cursor;
  /// Where the rows of each array start in this step, for each view: in units of 16 bytes from the
  /// arena's start.
  std::uint32_t array_offsets[sweep_views][static_cast<int>(RowArray::count)];
  std::uint32_t copy_slots[2];  ///< slots of the copies W1(t-2) and W1(t)
  /// [0: table of step t-1, for W0 and for Task::write_copies; 1: of step t, for W1 in a step]
  /// [layer][0: `gain`; 1: `share`], with Z += gain g for the master and W = Z + share g.
  float rates[2][most_swept_layers][2];
  bool stores_d1;   ///< whether d1 is stored: for a checkpoint, or for reading the weights
  bool all_scored;  ///< whether the predictions of all sequences that exist are scored
  SlotBarriers stages[S::stages], tiles[S::tiles], n[S::n_buffers];
  /// The "full" barriers of each consumer warp's masters.
  MBarrier masters[S::consumer_warps][S::master_buffers];
  /// Each consumer warp's sums of squared errors: of predicted pixels, and of all outputs.
  double score[S::consumer_warps][2];
  std::uint16_t sequence_masks[Bp / 8];  ///< `ErrorMath::masks_of` of every 8 sequences
};

/// Byte offset of the masters in shared memory, a multiple of 16 as bulk copies require. (The state
/// takes a multiple of 128 bytes, but `state_start` need not be one.)
template <int Bp>
inline constexpr int masters_start = SweepShape<Bp>::state_start +
                                     (static_cast<int>(sizeof(SweepState<Bp>)) + 127) / 128 * 128;
/// Dynamic shared memory of a thread block.
template <int Bp>
constexpr int sweep_shared_bytes() {
  using S = SweepShape<Bp>;
  return masters_start<Bp> + S::consumer_warps * S::master_buffers * S::master_floats * 4;
}

/// The variants of the sweep kernel.
enum class SweepKind {
  other,   ///< Task::write_copies and Task::update_w0
  steps,   ///< training steps of exactly Bp sequences
  partial  ///< training steps of fewer than Bp sequences: most of the work for padding is skipped
};

/// The base class of producer and consumer warps.
template <class M, int Bp, SweepKind Kind>
class SweepRole {
 protected:
  using S = SweepShape<Bp>;
  static constexpr bool steps = Kind != SweepKind::other;
  static constexpr bool partial = Kind == SweepKind::partial;

  __device__ SweepRole(const Arguments& a, Task task, SweepState<Bp>& state, unsigned char* shared)
      : a_(a),
        state_(state),
        shared_(shared),
        task_(task),
        first_(a.sweep_starts[blockIdx.x]),
        count_(static_cast<int>(a.sweep_starts[blockIdx.x + 1] - first_)) {}

  /// The thread block's own StepStart. The thread block has written it at the end of the step
  /// before, because no other kernel that could do so runs between two sweeps.
  [[nodiscard]] __device__ StepStart& step_start() const { return a_.step_start[blockIdx.x]; }
  [[nodiscard]] __device__ bool only_updates_w0() const {
    return !steps && task_ == Task::update_w0;
  }
  [[nodiscard]] __device__ bool only_writes_copies() const {
    return !steps && task_ != Task::update_w0;
  }
  /// Bytes of a row that have to be computed: all, or in partial steps those of the sequences that
  /// exist, rounded up to 16 sequences.
  [[nodiscard]] __device__ int live_bytes() const {
    return partial ? (a_.shape.batch + 15) / 16 * 32 : S::row_bytes;
  }
  /// The shared memory of the block's `tile`-th tile: a SweepTile and its row words.
  [[nodiscard]] __device__ unsigned char* slot_of(int tile) const {
    return shared_ + S::tiles_start + tile % S::tiles * sweep_tile_bytes;
  }
  [[nodiscard]] __device__ const SweepTile& tile_at(int tile) const {
    return *reinterpret_cast<const SweepTile*>(slot_of(tile));
  }
  /// In device memory, the copy of W1 in slot `slot`: the 16 m from the tile's row `row` on (a
  /// multiple of 16).
  [[nodiscard]] __device__ unsigned char* copy_of(const Panel& p, int row,
                                                  std::uint32_t slot) const {
    return reinterpret_cast<unsigned char*>(
        a_.working_copies + slot * a_.copy_stride +
        static_cast<std::size_t>(p.copy_over_m + (p.m_begin + static_cast<unsigned>(row)) / 16) *
            copy_words);
  }
  /// The number of m of a tile, at most S::rows.
  [[nodiscard]] __device__ static int rows_of(const SweepTile& t) {
    return static_cast<int>(t.rows);
  }
  /// Stages of the product W0 x of a tile with `rows` m.
  [[nodiscard]] __device__ static int x_stages_of(int rows) {
    return S::chunks == 1 ? 1 : (rows + S::x_stage_rows - 1) / S::x_stage_rows;
  }

  const Arguments& a_;
  SweepState<Bp>& state_;
  unsigned char* shared_;
  const Task task_;
  const unsigned first_;  ///< index of the block's first tile in `a_.sweep_tiles`
  const int count_;       ///< the block's number of tiles
};

}  // namespace pvm::inline v0::detail::batch
