// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The producer warps of a sweep: they load tiles, gathered rows and copies of W1 into shared
/// memory. sweep/kernel.cuh has the overview.

#include <cstdint>

#include <pvm/engine/cuda/batch/sweep/shape.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/registers.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail::batch {

/// What a producer thread does: it loads for one tile after the other, as far ahead as there are
/// free slots. In a step it loads for a tile, in this order (rows of n only with the first tile of
/// a part):
///
///     W0   x(t-3), a stage for each chunk; d0(t-1), rows of n; x(t), x_stage_rows for each stage
///     W1   W1(t-2) and W1(t); targets [A|B](t), a stage for each chunk; r(t-2), rows of n
///
/// Task::update_w0 only loads x(t-3) and d0(t-1), for W0; Task::write_copies only d1(t-1) and
/// r(t-3), for W1. (The rows of n are loaded in any case, even for parts that the task does not
/// change.)
template <class M, int Bp, SweepKind Kind>
class SweepProducer : SweepRole<M, Bp, Kind> {
  using Base = SweepRole<M, Bp, Kind>;
  using Base::a_, Base::state_, Base::shared_, Base::count_;
  using typename Base::S;
  static constexpr int producer_warps = S::producer_threads / 32;
  static constexpr std::uint32_t row_length = S::row_bytes / 16;  ///< length of a row, in 16 bytes

 public:
  /// Arrivals that make a tile's slot empty. In steps only consumer warps arrive: they wait for
  /// rows of every tile, and so for all producer warps to have read it. In other tasks producers
  /// may have nothing to load for a tile; without an arrival of their own, a slow producer warp
  /// could find a later tile in the slot and wait for ever.
  static constexpr unsigned tile_readers =
      static_cast<unsigned>(S::consumer_warps + (Base::steps ? 0 : producer_warps)) * warp_arrivals;

  __device__ SweepProducer(const Arguments& a, Task task, SweepState<Bp>& state,
                           unsigned char* shared)
      : Base(a, task, state, shared),
        thread_(static_cast<int>(threadIdx.x) - S::consumer_warps * 32) {}

  /// Starts loading the first two tiles, which do not depend on the kernel before.
  __device__ void start() {
    load_tile(0);
    load_tile(1);
  }
  /// Reads the step's slots of W1's copies, and where rows start, for all producer warps.
  __device__ void read_step_start() const {
    static_assert(array_offset_count <= S::producer_threads);
    if (thread_ < 2) {
      const std::uint32_t current_slot = Base::step_start().cursor.y;
      state_.copy_slots[thread_] =
          thread_ == 0 ? slot_before(current_slot, y_slots, 2) : current_slot;
    }
    if (thread_ < array_offset_count && count_ > 0) {
      (&state_.array_offsets[0][0])[thread_] = Base::step_start().array_offsets[thread_];
    }
    named_barrier_sync(producer_barrier, S::producer_threads);
  }
  /// Loads everything for all tiles of the thread block.
  __device__ void run() {
    for (int i = 0; i < count_; ++i) {
      const RingUse<S::tiles> use{i};
      mbarrier_wait(&state_.tiles[use.slot()].full, use.parity());
      const SweepTile& t = Base::tile_at(i);
      const auto* words = reinterpret_cast<const std::uint32_t*>(Base::slot_of(i) + sizeof(t));
      load_rows_of(t, words);
      if constexpr (!Base::steps) arrive_warp(&state_.tiles[use.slot()].empty, lane());
      load_tile(i + 2);
      __syncwarp();
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) & 31; }

  /// The first producer thread loads the block's `tile`-th tile, if there is one. (It reads its
  /// thread number anew, so that no register has to keep it.)
  __device__ void load_tile(int tile) {
    if (tile >= count_ || thread_number() != S::consumer_warps * 32) return;
    const RingUse<S::tiles> use{tile};
    SlotBarriers& barriers = state_.tiles[use.slot()];
    mbarrier_wait(&barriers.empty, use.parity() ^ 1U);
    mbarrier_expect(&barriers.full, sweep_tile_bytes);
    copy_bulk_async(
        Base::slot_of(tile),
        a_.sweep_tiles + (Base::first_ + static_cast<std::size_t>(tile)) * sweep_tile_bytes,
        sweep_tile_bytes, &barriers.full);
  }
  /// Loads the rows of tile `t`, whose row words are `words`. In steps neither may be read once the
  /// thread has loaded the last rows of the tile: consumers may then release the tile's slot. Tiles
  /// of W0 and W1 share this code, because the instruction cache has little room. The rows of n
  /// follow the first stages, for which there is room while the part before still needs its own n.
  __device__ void load_rows_of(const SweepTile& t, const std::uint32_t* words) {
    const bool is_w0 = t.is_w0 != 0, begins = t.begins != 0;
    const int rows = Base::rows_of(t);
    if (Base::only_writes_copies()) {
      if (!is_w0) load_chunks(consecutive_rows(d1_offset(t), rows));
    } else if (is_w0 || !Base::only_updates_w0()) {
      if (!is_w0) load_copies(t);
      load_chunks(named_rows(words, is_w0 ? before_view : forward_view));
    }
    if (begins) load_n(words, is_w0 || Base::only_writes_copies() ? before_view : gradient_view);
    if (!is_w0 || Base::only_writes_copies() || Base::only_updates_w0()) return;
#pragma unroll 1
    for (int x_stage = 0; x_stage < Base::x_stages_of(rows); ++x_stage) {
      load_x_stage(named_rows(words + x_stage * S::x_stage_rows, forward_view));
    }
  }

  // Where rows lie, in units of 16 bytes from the arena's start. `named_rows` and
  // `consecutive_rows` return functions of a row's number in the tile, which `find_offsets` calls.

  /// d1 of the step before, of the tile's first m.
  __device__ std::uint32_t d1_offset(const SweepTile& t) const {
    return state_.array_offsets[before_view][static_cast<int>(RowArray::output_gradient)] +
           t.outputs * row_length;
  }

  /// The rows that row words name.
  __device__ auto named_rows(const std::uint32_t* words, SweepView view) const {
    const std::uint32_t* array_offsets = state_.array_offsets[view];
    return [=](int row) { return row_offset(array_offsets, words[row], row_length); };
  }
  /// `count` consecutive rows from `start` on; further ones do not exist.
  __device__ static auto consecutive_rows(std::uint32_t start, int count) {
    return [=](int row) {
      return row < count ? start + static_cast<std::uint32_t>(row) * row_length : no_offset;
    };
  }

  /// How the producer warps share `Rows` rows of `Bytes`, 16 bytes a lane. A warp copies `at_once`
  /// rows with one instruction; the warps take turns, so that the rows of a lane are a constant
  /// number of rows (`rows_per_turn`) apart. Where a row does not divide a warp's 512 bytes, rows
  /// are copied piece by piece.
  template <int Rows, int Bytes>
  struct Shares {
    /// Bytes of a row that one instruction copies: the whole row, or a piece.
    static constexpr int together = 512 % Bytes == 0 ? Bytes : S::piece_bytes;
    static constexpr int pieces = together / 16;  ///< lanes that copy a row or piece together
    static constexpr int at_once = 32 / pieces;   ///< rows of an instruction
    static constexpr int rows_per_turn = producer_warps * at_once;  ///< rows of a turn of all warps
    /// Number of rows of which a lane copies 16 bytes (or 16 of each piece).
    static constexpr int copies = (Rows + rows_per_turn - 1) / rows_per_turn;
    static constexpr int each = copies * at_once;  ///< rows of a warp
    static_assert(32 % pieces == 0 && (8 % rows_per_turn == 0 || rows_per_turn % 8 == 0));
    /// The number of a warp's `i`-th row.
    __device__ static unsigned row(unsigned warp, unsigned i) {
      return i / at_once * rows_per_turn + warp * at_once + i % at_once;
    }
  };
  /// By copy: where the row lies of which the lane copies 16 bytes (or 16 of each piece), in units
  /// of 16 bytes from the arena's start, or `no_offset`.
  template <int Rows, int Bytes>
  struct RowOffsets {
    std::uint32_t values[Shares<Rows, Bytes>::copies];
  };
  /// Loads the rows of n, once a part: all sequences of each.
  __device__ void load_n(const std::uint32_t* words, SweepView view) {
    const RingUse<S::n_buffers> use{part_++};
    SlotBarriers& barriers = state_.n[use.slot()];
    RowOffsets<panel_width, S::row_bytes> offsets;
    find_offsets(offsets, named_rows(words + S::rows, view));
    mbarrier_wait(&barriers.empty, use.parity() ^ 1U);
    __syncwarp();
    load_rows(offsets, a_.arena, shared_ + S::n_start + use.slot() * S::n_bytes);
    mbarrier_arrive_after_copies(&barriers.full);
  }
  /// Loads a tile's copies W1(t-2) and W1(t), into one stage or two.
  __device__ void load_copies(const SweepTile& t) {
    const int bytes = (Base::rows_of(t) + 15) / 16 * copy_words * 4;
#pragma unroll 1
    for (int copy = 0; copy < 2; ++copy) {
      const RingUse<S::stages> use{stage_};
      SlotBarriers& barriers = state_.stages[use.slot()];
      if (copy == 0 || S::copy_stages == 2) mbarrier_wait(&barriers.empty, use.parity() ^ 1U);
      __syncwarp();
      const unsigned char* from = Base::copy_of(t.panel, 0, state_.copy_slots[copy]);
      unsigned char* to = shared_ + use.slot() * S::stage_bytes;
      if (S::copy_stages == 1) to += copy * S::copy_bytes;
#pragma unroll 1
      for (int at = thread_ * 16; at < bytes; at += S::producer_threads * 16)
        copy_async(to + at, from + at);
      if (copy == 0 && S::copy_stages == 1) continue;
      mbarrier_arrive_after_copies(&barriers.full);
      ++stage_;
    }
  }
  /// Loads all m of a tile, one stage for each chunk of the sequences.
  template <class OffsetOf>
  __device__ void load_chunks(OffsetOf&& offset_of) {
    RowOffsets<S::rows, S::chunk_bytes> offsets;
    find_offsets(offsets, offset_of);
#pragma unroll 1
    for (int chunk = 0; chunk < S::chunks; ++chunk) {
      load_stage(offsets, a_.arena + chunk * S::chunk_bytes);
    }
  }
  /// Loads all sequences of `x_stage_rows` m into a stage.
  template <class OffsetOf>
  __device__ void load_x_stage(OffsetOf&& offset_of) {
    RowOffsets<S::x_stage_rows, S::row_bytes> offsets;
    find_offsets(offsets, offset_of);
    load_stage(offsets, a_.arena);
  }
  /// Fills the next stage once it is empty. `from`: as in `load_rows`.
  template <int Rows, int Bytes>
  __device__ __forceinline__ void load_stage(const RowOffsets<Rows, Bytes>& offsets,
                                             const unsigned char* from) {
    const RingUse<S::stages> use{stage_++};
    SlotBarriers& barriers = state_.stages[use.slot()];
    mbarrier_wait(&barriers.empty, use.parity() ^ 1U);
    __syncwarp();
    load_rows(offsets, from, shared_ + use.slot() * S::stage_bytes);
    mbarrier_arrive_after_copies(&barriers.full);
  }
  /// Looks up where rows lie, before there is room for them: a single lane looks up each row of the
  /// warp, and shuffles pass the result to the lanes that copy the row. (Values that follow from
  /// the thread number are computed anew instead of being kept in registers.)
  template <int Rows, int Bytes, class OffsetOf>
  __device__ void find_offsets(RowOffsets<Rows, Bytes>& offsets, OffsetOf&& offset_of) const {
    using Share = Shares<Rows, Bytes>;
    constexpr int pieces = Share::pieces, copies = Share::copies;
    const auto thread = static_cast<unsigned>(thread_number() - S::consumer_warps * 32);
    const unsigned copy = thread % pieces, row = thread % 32 / pieces;
    std::uint32_t found[(copies + pieces - 1) / pieces];
#pragma unroll
    for (int k = 0; k < copies; k += pieces) {
      const unsigned i = (k + copy) * Share::at_once + row;
      found[k / pieces] =
          i < Share::each && (Rows % Share::rows_per_turn == 0 || Share::row(thread / 32, i) < Rows)
              ? offset_of(static_cast<int>(Share::row(thread / 32, i)))
              : no_offset;
    }
#pragma unroll
    for (int k = 0; k < copies; ++k) {
      offsets.values[k] = __shfl_sync(~0U, found[k / pieces], k % pieces, pieces);
    }
  }
  /// Copies `Bytes` bytes of each row to `to`, asynchronously. `from` is the arena's start plus the
  /// offset in a row of the first byte to copy. In partial steps padding sequences become zeros.
  template <int Rows, int Bytes>
  __device__ void load_rows(const RowOffsets<Rows, Bytes>& offsets, const unsigned char* from,
                            unsigned char* to) const {
    using Share = Shares<Rows, Bytes>;
    const int at = lane() % Share::pieces * 16;
    const int start = static_cast<int>(Share::row(static_cast<unsigned>(thread_) / 32, 0)) +
                      lane() / Share::pieces;  // less than a turn
    const int offset = S::template at<Rows>(start, at);
    from = keep_in_one_register(from + at);
#pragma unroll
    for (int k = 0; k < Share::copies; ++k) {
      if (Rows % Share::rows_per_turn != 0 && k * Share::rows_per_turn + start >= Rows) break;
      const int row = S::advance(offset, S::swizzle(k * Share::rows_per_turn)) +
                      k * Share::rows_per_turn * S::piece_bytes;
#pragma unroll
      for (int next = 0; next < Bytes; next += Share::together) {
        const unsigned char* piece = from + next;
        const bool padding = Base::partial && piece >= a_.arena + Base::live_bytes();
        copy_row_async(to + row + next * Rows, piece, offsets.values[k], padding ? 0 : 16);
      }
    }
  }

  const int thread_;          ///< number among the producer threads
  int stage_ = 0, part_ = 0;  ///< how many stages, and parts' rows of n, have been loaded
};

}  // namespace pvm::inline v0::detail::batch
