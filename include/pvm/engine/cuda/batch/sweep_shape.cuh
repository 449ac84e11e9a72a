// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a block of threads of a sweep has in shared memory, and what all of its warps know.

#include <cstdint>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>

namespace pvm::inline v0::detail::batch {

/// How a block of threads works on tiles of [rows m][56 n] with `Bp` sequences: four warps compute,
/// 16 hidden values each, and four bring what they need. Rows come in stages: for a gradient, and
/// W1's errors, all m and a chunk of the sequences; for W0's product a part of the m and all
/// sequences.
template <int Bp>
struct SweepShape {
  static constexpr int blocks = Bp == 32 ? 3 : 2;  ///< on a multiprocessor
  static constexpr int bringers = 128;             ///< threads
  /// Warps that compute need more registers than those that bring: these leave them theirs, in
  /// multiples of 8.
  static constexpr int computing_registers = Bp == 32 ? 120 : 216, bringing_registers = 40;
  static constexpr int warps = sweep_warps;
  static constexpr int threads = warps * 32 + bringers;
  static constexpr int rows = sweep_rows;
  static constexpr int row_bytes = Bp * 2;
  static constexpr int chunk_bytes = sweep_chunk(Bp) * 2;
  static constexpr int chunks = row_bytes / chunk_bytes;
  static constexpr int piece_bytes = chunk_bytes % 128 == 0 ? 128 : 64;  ///< of a row, together
  static constexpr int part_rows = rows / chunks;
  /// Blocks of 16 m by 16 sequences that a warp makes errors of at once.
  static constexpr int error_blocks = 2;
  /// W1(t-2) and W1(t) of a tile come in stages before its rows.
  static constexpr int copy_stages = static_cast<int>(sweep_copy_stages(Bp));
  static constexpr int copy_bytes = rows / 16 * copy_words * 4;
  /// Where byte `byte`, a multiple of 16, of row `row` of `Rows` lies, as products of four warps
  /// read them: column by column of such pieces, with 16 bytes each in other places in every row of
  /// 128 bytes, or every two of 64, so that any reads find different banks.
  template <int Rows>
  __device__ static constexpr int at(int row, int byte) {
    return byte / piece_bytes * (Rows * piece_bytes) + row * piece_bytes +
           (byte % piece_bytes ^ twist(row));
  }
  __device__ static constexpr int twist(int row) {
    return piece_bytes == 128 ? (row & 7) << 4 : (row >> 1 & 3) << 4;
  }
  /// `bytes` further on in the same row, a multiple of 32 and within a piece.
  __device__ static constexpr int further(int place, int bytes) { return place ^ bytes; }
  static constexpr int stage_bytes = chunk_bytes == 64 ? copy_bytes : rows * chunk_bytes;
  static constexpr int stages = Bp == 64 ? 6 : 4;
  static_assert(rows * chunk_bytes <= stage_bytes && 2 * copy_bytes <= copy_stages * stage_bytes);
  static_assert(stage_bytes % (8 * piece_bytes) == 0);
  static constexpr int tiles = Bp == 128 ? 3 : 4;
  static constexpr int n_buffers = Bp < 128 ? 2 : 1;
  static constexpr int n_bytes = panel_width * row_bytes;
  static_assert(stage_bytes >= part_rows * row_bytes);
  static constexpr int n_start = stages * stage_bytes;
  static constexpr int tiles_start = n_start + n_buffers * n_bytes;
  static constexpr int state_start = tiles_start + tiles * sweep_tile_bytes;
  static_assert(state_start % 16 == 0);
  /// Tiles whose masters there is room for: where it is two, the next tile's come meanwhile.
  static constexpr int master_places = Bp < 256 ? 2 : 1;
  static constexpr int master_floats = 16 * rows;  ///< that a warp has room for
};

inline constexpr int most_swept_layers = 32;
/// Barriers of warps (`sync_warps`); the first are of warps that make errors together.
inline constexpr int bringers_meet = 14, sweepers_meet = 15;

/// A warp arrives at a barrier by its first lane, behind __syncwarp. compute-sanitizer's racecheck
/// does not see that this orders what the other lanes did; in a program that is compiled with
/// PVM_RACECHECK all of them arrive.
#if defined(PVM_RACECHECK)
inline constexpr unsigned warp_arrivals = 32;
#else
inline constexpr unsigned warp_arrivals = 1;
#endif
__device__ __forceinline__ void arrive_warp(CopyBarrier* barrier, int lane) {
  __syncwarp();
  if (warp_arrivals > 1 || lane == 0) barrier_arrive(barrier);
}

/// Something in shared memory that is full, or empty, in turns.
struct Exchange {
  CopyBarrier full, empty;
};
/// The places of exchange `i` of `Count` that follow each other.
template <int Count>
struct Turns {
  int i = 0;
  [[nodiscard]] __device__ int place() const {
    return static_cast<int>(static_cast<unsigned>(i) % Count);
  }
  /// What the wait for it to be full asks for; to be empty, the opposite.
  [[nodiscard]] __device__ unsigned parity() const { return static_cast<unsigned>(i) / Count & 1U; }
};

/// What a block of threads shares beside that.
template <int Bp>
struct SweepState {
  using S = SweepShape<Bp>;
  Cursor cursor;
  std::uint32_t places[sweep_views][static_cast<int>(Stream::count)];
  std::uint32_t copy_slots[2];  ///< of W1(t-2) and W1(t)
  /// What the master gains of a gradient and what W has beside it, of the step before and of this.
  float rates[2][most_swept_layers][2];
  bool keeps;       ///< whether d1 is stored, for a checkpoint or whoever reads the weights
  bool all_scored;  ///< whether predictions for all sequences that exist are
  Exchange stages[S::stages], tiles[S::tiles], n[S::n_buffers];
  CopyBarrier masters[S::warps][S::master_places];  ///< of each warp, full
  double score[S::warps][2];  ///< what each warp's predictions and outputs have missed
  std::uint16_t who[Bp / 8];  ///< of every 8 sequences, for their errors
};

/// Where masters lie in shared memory, behind that: bulk copies to what is no multiple of 128 bytes
/// are slower. Then how much there is of it all.
template <int Bp>
inline constexpr int masters_start = SweepShape<Bp>::state_start +
                                     (static_cast<int>(sizeof(SweepState<Bp>)) + 127) / 128 * 128;
template <int Bp>
constexpr int sweep_shared_bytes() {
  using S = SweepShape<Bp>;
  return masters_start<Bp> + S::warps * S::master_places * S::master_floats * 4;
}

/// What a sweep's kernel does.
enum class SweepKind {
  other,   ///< all tasks but steps
  steps,   ///< steps
  partial  ///< steps of fewer sequences than there is room for; most of what the others would
           ///< take is left out
};

/// What warps of both kinds know.
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

  /// Each block of threads keeps its own, as no other kernel tells it.
  [[nodiscard]] __device__ StepStart& start_of_step() const { return a_.first[blockIdx.x]; }
  [[nodiscard]] __device__ bool settles() const { return !steps && task_ == Task::settle; }
  [[nodiscard]] __device__ bool publishes() const { return !steps && task_ != Task::settle; }
  /// Bytes of a row that something is made of: all, or those of sequences in whole 16s.
  [[nodiscard]] __device__ int live_bytes() const {
    return partial ? (a_.shape.batch + 15) / 16 * 32 : S::row_bytes;
  }
  [[nodiscard]] __device__ unsigned char* slot_of(int tile) const {
    return shared_ + S::tiles_start + tile % S::tiles * sweep_tile_bytes;
  }
  [[nodiscard]] __device__ const SweepTile& tile_at(int tile) const {
    return *reinterpret_cast<const SweepTile*>(slot_of(tile));
  }
  /// W1's copy of 16 m of the panel, from the tile's `row` on, for the step in slot `slot`.
  [[nodiscard]] __device__ unsigned char* copy_of(const Panel& p, int row,
                                                  std::uint32_t slot) const {
    return reinterpret_cast<unsigned char*>(
        a_.work + slot * a_.flip +
        static_cast<std::size_t>(p.work + (p.first + static_cast<unsigned>(row)) / 16) *
            copy_words);
  }
  /// m of a tile that exist.
  [[nodiscard]] __device__ static int rows_of(const SweepTile& t) {
    return static_cast<int>(t.rows);
  }
  /// Parts of the product of a tile with so many m: one, where a part has room for all.
  [[nodiscard]] __device__ static int parts_of(int rows) {
    return S::chunks == 1 ? 1 : (rows + S::part_rows - 1) / S::part_rows;
  }

  const Arguments& a_;
  SweepState<Bp>& state_;
  unsigned char* shared_;
  const Task task_;
  const unsigned first_;
  const int count_;
};

}  // namespace pvm::inline v0::detail::batch
