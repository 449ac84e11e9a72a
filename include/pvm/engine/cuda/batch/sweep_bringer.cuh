// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The warps of a sweep that bring tiles and rows.

#include <cstdint>

#include <pvm/engine/cuda/batch/sweep_shape.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/registers.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail::batch {

/// Brings tiles and rows, as far ahead as there is room.
template <class M, int Bp, SweepKind Kind>
class Bringer : SweepRole<M, Bp, Kind> {
  using Base = SweepRole<M, Bp, Kind>;
  using Base::a_, Base::state_, Base::shared_, Base::count_;
  using typename Base::S;
  static constexpr int bringing_warps = S::bringers / 32;
  static constexpr std::uint32_t unit = S::row_bytes / 16;

 public:
  /// Who reads a tile before another may come to its place. In steps warps that compute wait for
  /// rows of every tile, and so for all that bring; in other tasks these may have nothing to bring,
  /// and would be left behind.
  static constexpr unsigned tile_readers =
      static_cast<unsigned>(S::warps + (Base::steps ? 0 : bringing_warps)) * warp_arrivals;

  __device__ Bringer(const Arguments& a, Task task, SweepState<Bp>& state, unsigned char* shared)
      : Base(a, task, state, shared), me_(static_cast<int>(threadIdx.x) - S::warps * 32) {}

  /// The first tiles; they do not depend on the kernel before.
  __device__ void start() {
    bring_tile(0);
    bring_tile(1);
  }
  /// Where rows start in this step.
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

  __device__ void bring_tile(int tile) {
    if (tile >= count_ || thread_number() != S::warps * 32) return;  // kept in no register
    const Turns<S::tiles> turn{tile};
    Exchange& exchange = state_.tiles[turn.place()];
    barrier_wait(&exchange.empty, turn.parity() ^ 1U);
    barrier_expect(&exchange.full, sweep_tile_bytes);
    copy_bulk_async(Base::slot_of(tile),
                    a_.sweep + (Base::first_ + static_cast<std::size_t>(tile)) * sweep_tile_bytes,
                    sweep_tile_bytes, &exchange.full);
  }
  // The tile that `words` are of may be gone after its last stage.

  /// Of W0 or of W1: in the same instructions, as their cache has little room. The rows of n come
  /// behind the first stages: there is room for those while the part before needs its own n.
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

  // Where a row lies, by its number.

  /// d1 of the step before of the tile's first m.
  __device__ std::uint32_t output_gradient(const SweepTile& t) const {
    return state_.places[before_view][static_cast<int>(Stream::output_gradient)] + t.outputs * unit;
  }

  __device__ auto listed(const std::uint32_t* words, SweepView view) const {
    const std::uint32_t* streams = state_.places[view];
    return [=](int row) { return row_place(streams, words[row], unit); };
  }
  /// Those that follow `start`, where there are `count`.
  __device__ static auto range(std::uint32_t start, int count) {
    return [=](int row) {
      return row < count ? start + static_cast<std::uint32_t>(row) * unit : nowhere;
    };
  }

  /// How warps share `Rows` rows of `Bytes`, 16 bytes a lane: in turns, as many as a warp copies at
  /// once, so that a lane's are a constant apart. Where a warp's lanes are no whole number of rows,
  /// these come piece by piece.
  template <int Rows, int Bytes>
  struct Shares {
    static constexpr int together = 512 % Bytes == 0 ? Bytes : S::piece_bytes;
    static constexpr int pieces = together / 16;  ///< lanes that copy a row
    static constexpr int at_once = 32 / pieces;   ///< rows
    static constexpr int turn = bringing_warps * at_once;
    static constexpr int copies = (Rows + turn - 1) / turn;  ///< of a lane
    static constexpr int each = copies * at_once;
    static_assert(32 % pieces == 0 && (8 % turn == 0 || turn % 8 == 0));
    __device__ static unsigned row(unsigned warp, unsigned i) {
      return i / at_once * turn + warp * at_once + i % at_once;
    }
  };
  /// Where the rows lie that a lane copies of.
  template <int Rows, int Bytes>
  struct Places {
    std::uint32_t of[Shares<Rows, Bytes>::copies];
  };
  /// The rows of n, once a panel, whole.
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
  /// W1(t-2) and W1(t) of a tile.
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
  /// All m of a tile, a chunk of the sequences after the other.
  template <class Place>
  __device__ void bring_chunks(Place&& place) {
    Places<S::rows, S::chunk_bytes> places;
    find(places, place);
#pragma unroll 1
    for (int chunk = 0; chunk < S::chunks; ++chunk) {
      bring_stage(places, a_.arena + chunk * S::chunk_bytes);
    }
  }
  template <class Place>
  __device__ void bring_part(Place&& place) {
    Places<S::part_rows, S::row_bytes> places;
    find(places, place);
    bring_stage(places, a_.arena);
  }
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
  /// Each row of a warp's share is looked up by one lane, before there is room for it, and told the
  /// lanes that copy it. (What follows from the thread's number is found anew, not kept.)
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
  /// `Bytes` of rows that begin `from` the arena's start on; in partial steps padding as zeros.
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

  const int me_;
  int stage_ = 0, panel_ = 0;
};

}  // namespace pvm::inline v0::detail::batch
