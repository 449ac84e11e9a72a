// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The producer warps of a sweep: they load tiles, gathered rows and copies of W1 into shared
/// memory. sweep.cuh has the overview.

#include <cstdint>

#include <pvm/engine/cuda/batch/sweep_shape.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/registers.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail::batch {

/// What a producer thread does: it loads for one tile after the other, as far ahead as there are
/// free slots. In a step it loads for a tile, in this order:
///
///     W0   x(t-3) in chunks, then d0(t-1) with a part's first tile (n), then x(t) in parts
///     W1   W1(t-2) and W1(t), then the targets [A|B](t) in chunks, then r(t-2) likewise (n)
///
/// The task settle has x(t-3) and d0(t-1) alone, the task publish d1(t-1) and r(t-3). (The rows of
/// n are loaded in any case, also where the task leaves the part as it is.)
template <class M, int Bp, SweepKind Kind>
class Bringer : SweepRole<M, Bp, Kind> {
  using Base = SweepRole<M, Bp, Kind>;
  using Base::a_, Base::state_, Base::shared_, Base::count_;
  using typename Base::S;
  static constexpr int bringing_warps = S::bringers / 32;
  static constexpr std::uint32_t unit = S::row_bytes / 16;  ///< length of a row, in 16 bytes

 public:
  /// Arrivals that make a tile's slot empty. In steps only consumer warps arrive: they wait for
  /// rows of every tile, and so for all producer warps to have read it. In other tasks producers
  /// may have nothing to load for a tile; without an arrival of their own, a slow producer warp
  /// could find the next tile in the slot and wait for ever.
  static constexpr unsigned tile_readers =
      static_cast<unsigned>(S::warps + (Base::steps ? 0 : bringing_warps)) * warp_arrivals;

  __device__ Bringer(const Arguments& a, Task task, SweepState<Bp>& state, unsigned char* shared)
      : Base(a, task, state, shared), me_(static_cast<int>(threadIdx.x) - S::warps * 32) {}

  /// Loads the first tiles, which do not depend on the kernel before.
  __device__ void start() {
    bring_tile(0);
    bring_tile(1);
  }
  /// Reads where rows start in this step, for all producer warps.
  __device__ void look() const {
    static_assert(start_places <= S::bringers);
    if (me_ < 2) {
      const std::uint32_t now = Base::start_of_step().cursor.y;
      state_.copy_slots[me_] = me_ == 0 ? slot_before(now, y_slots, 2) : now;
    }
    if (me_ < start_places && count_ > 0) {
      (&state_.places[0][0])[me_] = Base::start_of_step().places[me_];
    }
    sync_warps(bringers_meet, S::bringers);
  }
  /// Loads everything for all tiles of the thread block.
  __device__ void run() {
    for (int i = 0; i < count_; ++i) {
      const Turns<S::tiles> turn{i};
      barrier_wait(&state_.tiles[turn.place()].full, turn.parity());
      const SweepTile& t = Base::tile_at(i);
      const auto* words = reinterpret_cast<const std::uint32_t*>(Base::slot_of(i) + sizeof(t));
      bring_rows_of(t, words);
      if constexpr (!Base::steps) arrive_warp(&state_.tiles[turn.place()].empty, lane());
      bring_tile(i + 2);
      __syncwarp();
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) & 31; }

  /// The first producer thread loads the block's `tile`-th tile, if there is one. (It asks for its
  /// thread number anew, so that no register has to keep it.)
  __device__ void bring_tile(int tile) {
    if (tile >= count_ || thread_number() != S::warps * 32) return;
    const Turns<S::tiles> turn{tile};
    Exchange& exchange = state_.tiles[turn.place()];
    barrier_wait(&exchange.empty, turn.parity() ^ 1U);
    barrier_expect(&exchange.full, sweep_tile_bytes);
    copy_bulk_async(Base::slot_of(tile),
                    a_.sweep + (Base::first_ + static_cast<std::size_t>(tile)) * sweep_tile_bytes,
                    sweep_tile_bytes, &exchange.full);
  }
  /// Loads the rows of tile `t`, whose row words are `words`. In steps neither may be read after
  /// the tile's last stage was filled: consumers may then have given up its slot. Tiles of W0 and
  /// W1 share this code, because the instruction cache has little room. The rows of n follow the
  /// first stages, for which there is room while the part before still needs its own n.
  __device__ void bring_rows_of(const SweepTile& t, const std::uint32_t* words) {
    const bool forward = t.forward != 0, begins = t.begins != 0;
    const int rows = Base::rows_of(t);
    if (Base::publishes()) {
      if (!forward) bring_chunks(range(output_gradient(t), rows));
    } else if (forward || !Base::settles()) {
      if (!forward) bring_copies(t);
      bring_chunks(listed(words, forward ? before_view : forward_view));
    }
    if (begins) bring_n(words, forward || Base::publishes() ? before_view : gradient_view);
    if (!forward || Base::publishes() || Base::settles()) return;
#pragma unroll 1
    for (int part = 0; part < Base::parts_of(rows); ++part) {
      bring_part(listed(words + part * S::part_rows, forward_view));
    }
  }

  // Where rows lie, in units of 16 bytes from the arena's start. `listed` and `range` return
  // functions of a row's number in the tile, which `find` calls.

  /// d1 of the step before, of the tile's first m.
  __device__ std::uint32_t output_gradient(const SweepTile& t) const {
    return state_.places[before_view][static_cast<int>(Stream::output_gradient)] + t.outputs * unit;
  }

  /// The rows that row words name.
  __device__ auto listed(const std::uint32_t* words, SweepView view) const {
    const std::uint32_t* streams = state_.places[view];
    return [=](int row) { return row_place(streams, words[row], unit); };
  }
  /// `count` consecutive rows from `start` on; further ones do not exist.
  __device__ static auto range(std::uint32_t start, int count) {
    return [=](int row) {
      return row < count ? start + static_cast<std::uint32_t>(row) * unit : nowhere;
    };
  }

  /// How the producer warps share `Rows` rows of `Bytes`, 16 bytes a lane. A warp copies `at_once`
  /// rows with one instruction; the warps take turns, so that the rows of a lane are a constant
  /// number of rows (`turn`) apart. Where a row does not divide a warp's 512 bytes, rows are copied
  /// piece by piece.
  template <int Rows, int Bytes>
  struct Shares {
    /// Bytes of a row that one instruction copies: the whole row, or a piece.
    static constexpr int together = 512 % Bytes == 0 ? Bytes : S::piece_bytes;
    static constexpr int pieces = together / 16;             ///< lanes that copy a row
    static constexpr int at_once = 32 / pieces;              ///< rows of an instruction
    static constexpr int turn = bringing_warps * at_once;    ///< rows of a turn of all warps
    static constexpr int copies = (Rows + turn - 1) / turn;  ///< rows that a lane copies of
    static constexpr int each = copies * at_once;            ///< rows of a warp
    static_assert(32 % pieces == 0 && (8 % turn == 0 || turn % 8 == 0));
    /// The number of a warp's `i`-th row.
    __device__ static unsigned row(unsigned warp, unsigned i) {
      return i / at_once * turn + warp * at_once + i % at_once;
    }
  };
  /// Where the rows lie that a lane copies of, or `nowhere`.
  template <int Rows, int Bytes>
  struct Places {
    std::uint32_t of[Shares<Rows, Bytes>::copies];
  };
  /// Loads the rows of n, once a part: all sequences of each.
  __device__ void bring_n(const std::uint32_t* words, SweepView view) {
    const Turns<S::n_buffers> turn{panel_++};
    Exchange& exchange = state_.n[turn.place()];
    Places<panel_width, S::row_bytes> places;
    find(places, listed(words + S::rows, view));
    barrier_wait(&exchange.empty, turn.parity() ^ 1U);
    __syncwarp();
    bring_rows(places, a_.arena, shared_ + S::n_start + turn.place() * S::n_bytes);
    copies_arrive(&exchange.full);
  }
  /// Loads a tile's copies W1(t-2) and W1(t), into one stage or two.
  __device__ void bring_copies(const SweepTile& t) {
    const int bytes = (Base::rows_of(t) + 15) / 16 * copy_words * 4;
#pragma unroll 1
    for (int copy = 0; copy < 2; ++copy) {
      const Turns<S::stages> turn{stage_};
      Exchange& exchange = state_.stages[turn.place()];
      if (copy == 0 || S::copy_stages == 2) barrier_wait(&exchange.empty, turn.parity() ^ 1U);
      __syncwarp();
      const unsigned char* from = Base::copy_of(t.panel, 0, state_.copy_slots[copy]);
      unsigned char* to = shared_ + turn.place() * S::stage_bytes;
      if (S::copy_stages == 1) to += copy * S::copy_bytes;
#pragma unroll 1
      for (int at = me_ * 16; at < bytes; at += S::bringers * 16) copy_async(to + at, from + at);
      if (copy == 0 && S::copy_stages == 1) continue;
      copies_arrive(&exchange.full);
      ++stage_;
    }
  }
  /// Loads all m of a tile, one stage for each chunk of the sequences.
  template <class Place>
  __device__ void bring_chunks(Place&& place) {
    Places<S::rows, S::chunk_bytes> places;
    find(places, place);
#pragma unroll 1
    for (int chunk = 0; chunk < S::chunks; ++chunk) {
      bring_stage(places, a_.arena + chunk * S::chunk_bytes);
    }
  }
  /// Loads all sequences of `part_rows` m into a stage.
  template <class Place>
  __device__ void bring_part(Place&& place) {
    Places<S::part_rows, S::row_bytes> places;
    find(places, place);
    bring_stage(places, a_.arena);
  }
  /// Fills the next stage once it is empty. `from`: as in `bring_rows`.
  template <int Rows, int Bytes>
  __device__ __forceinline__ void bring_stage(const Places<Rows, Bytes>& places,
                                              const unsigned char* from) {
    const Turns<S::stages> turn{stage_++};
    Exchange& exchange = state_.stages[turn.place()];
    barrier_wait(&exchange.empty, turn.parity() ^ 1U);
    __syncwarp();
    bring_rows(places, from, shared_ + turn.place() * S::stage_bytes);
    copies_arrive(&exchange.full);
  }
  /// Looks up where rows lie, before there is room for them: one lane looks each row of the warp up
  /// and shuffles give the result to the lanes that copy the row. (Values that follow from the
  /// thread number are computed anew instead of being kept in registers.)
  template <int Rows, int Bytes, class Place>
  __device__ void find(Places<Rows, Bytes>& places, Place&& place) const {
    using Share = Shares<Rows, Bytes>;
    constexpr int pieces = Share::pieces, copies = Share::copies;
    const auto me = static_cast<unsigned>(thread_number() - S::warps * 32);
    const unsigned copy = me % pieces, row = me % 32 / pieces;
    std::uint32_t found[(copies + pieces - 1) / pieces];
#pragma unroll
    for (int k = 0; k < copies; k += pieces) {
      const unsigned i = (k + copy) * Share::at_once + row;
      found[k / pieces] =
          i < Share::each && (Rows % Share::turn == 0 || Share::row(me / 32, i) < Rows)
              ? place(static_cast<int>(Share::row(me / 32, i)))
              : nowhere;
    }
#pragma unroll
    for (int k = 0; k < copies; ++k) {
      places.of[k] = __shfl_sync(~0U, found[k / pieces], k % pieces, pieces);
    }
  }
  /// Copies `Bytes` bytes of each row to `to`, asynchronously. `from` is the arena's start plus the
  /// offset in a row of the first byte to copy. In partial steps padding sequences become zeros.
  template <int Rows, int Bytes>
  __device__ void bring_rows(const Places<Rows, Bytes>& places, const unsigned char* from,
                             unsigned char* to) const {
    using Share = Shares<Rows, Bytes>;
    const int at = lane() % Share::pieces * 16;
    const int start = static_cast<int>(Share::row(static_cast<unsigned>(me_) / 32, 0)) +
                      lane() / Share::pieces;  // less than a turn
    const int lies = S::template at<Rows>(start, at);
    from = as_one(from + at);
#pragma unroll
    for (int k = 0; k < Share::copies; ++k) {
      if (Rows % Share::turn != 0 && k * Share::turn + start >= Rows) break;
      const int row =
          S::further(lies, S::twist(k * Share::turn)) + k * Share::turn * S::piece_bytes;
#pragma unroll
      for (int next = 0; next < Bytes; next += Share::together) {
        const unsigned char* piece = from + next;
        const bool padding = Base::partial && piece >= a_.arena + Base::live_bytes();
        copy_row_async(to + row + next * Rows, piece, places.of[k], padding ? 0 : 16);
      }
    }
  }

  const int me_;               ///< number among the producer threads
  int stage_ = 0, panel_ = 0;  ///< stages, and rows of n, that have been loaded
};

}  // namespace pvm::inline v0::detail::batch
