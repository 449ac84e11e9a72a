// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The base class of a sweep's consumer warps: the loop over tiles, loading and storing masters,
/// the copies of W1, and errors. The products are in sweep/consumer.cuh.

#include <cstdint>

#include <pvm/engine/cuda/batch/error_math.cuh>
#include <pvm/engine/cuda/batch/fragments.cuh>
#include <pvm/engine/cuda/batch/sweep/errors.cuh>
#include <pvm/engine/cuda/batch/sweep/outputs.cuh>
#include <pvm/engine/cuda/batch/sweep/shape.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>
#include <pvm/engine/cuda/instructions/memory.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail::batch {

/// A thread of a consumer warp.
template <class M, int Bp, SweepKind Kind>
class SweepConsumerBase : protected SweepRole<M, Bp, Kind> {
  using Base = SweepRole<M, Bp, Kind>;

 protected:
  using Base::a_, Base::state_, Base::shared_, Base::steps, Base::partial;
  using typename Base::S;

  __device__ SweepConsumerBase(const Arguments& a, Task task, SweepState<Bp>& state,
                               unsigned char* shared)
      : Base(a, task, state, shared) {}

 public:
  /// Starts loading the first tile's masters, and reads the score so far. The sweep before must
  /// have ended.
  __device__ void start() {
    if (Base::count_ == 0) return;
    const double prediction = stored_score()[0], loss = stored_score()[2];
    wait_for_tile(0);
    if (lane() != 0) return;
    const SweepTile& t = Base::tile_at(0);
    const Panel& p = t.panel;
    load_masters(0, t.first_master, t.rows, p.n, t.is_w0 != 0);
    state_.score[warp()][0] = prediction;
    state_.score[warp()][1] = loss;
  }

 protected:
  /// Calls visit(tile) for one tile after the other, and waits for tiles and releases them.
  template <class Visit>
  __device__ __forceinline__ void for_each_tile(Visit&& visit) {
    if (Base::count_ == 0) return;
    for (const SweepTile* t = &Base::tile_at(0);;) {  // `start` has waited for the first tile
      if constexpr (S::master_buffers == 2) load_next_masters(*t);
      visit(*t);
      const int number = static_cast<int>(t->number);
      const bool goes_on = t->ends != 2;
      arrive(&state_.tiles[number % S::tiles].empty);
      if (!goes_on) break;
      wait_for_tile(number + 1);
      t = &Base::tile_at(number + 1);
    }
    if constexpr (steps) store_score();
  }

  /// To be called at the start of each phase of a tile: reads the thread number anew, so that
  /// addresses that follow from it are not kept over all phases, in registers that sums need.
  __device__ void reread_thread() { thread_ = thread_number(); }
  [[nodiscard]] __device__ int warp() const { return thread_ >> 5; }
  [[nodiscard]] __device__ int lane() const { return thread_ & 31; }
  /// Skips a tile that the task does not change: takes part in the synchronisation alone.
  __device__ void skip_tile(const SweepTile& t) {
    reread_thread();
    (void)rows_of_n(t);
    release_n(t);
    wait_for_masters(t);
    load_next_masters_if_single_buffered(t);
  }

  __device__ void wait_for_tile(int tile) const {
    const RingUse<S::tiles> use{tile};
    mbarrier_wait(&state_.tiles[use.slot()].full, use.parity());
  }
  /// Arrives for the warp.
  __device__ void arrive(MBarrier* barrier) const { arrive_warp(barrier, lane()); }

  /// Stores the warp's 16 m of W1 as a 16-bit working copy: W1(t+1) in a step, in the slot of
  /// W1(t-2); W1(t) for Task::write_copies. The layout is that of mma operand A of y = W1 r in
  /// registers (`read_output_weights`).
  __device__ void store_copy(const Panel& p, const Fragment& w) const {
    if (!exists(p)) return;
    // The copies are marked to stay in the L2 cache; with 256 sequences not: so much else passes
    // through it then that other data would be evicted instead.
    const auto store = [policy = evict_last()](auto* at, auto v) {
      if constexpr (Bp == 256) {
        *at = v;
      } else {
        store_with_policy(at, v, policy);
      }
    };
    const std::uint32_t current_slot = state_.cursor.y;
    unsigned char* to = Base::copy_of(
        p, warp() * 16,
        Base::only_writes_copies() ? current_slot : slot_after(current_slot, y_slots));
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const float* even = w[2 * i];
      const float* odd = w[2 * i + 1];
      store(reinterpret_cast<uint4*>(to) + i * 32 + lane(),
            make_uint4(M::pair(even[0], even[1]), M::pair(even[2], even[3]),
                       M::pair(odd[0], odd[1]), M::pair(odd[2], odd[3])));
    }
    store(reinterpret_cast<uint2*>(to + 3 * 512) + lane(),
          make_uint2(M::pair(w[6][0], w[6][1]), M::pair(w[6][2], w[6][3])));
  }

  /// Whether the tile has any of the warp's 16 m.
  [[nodiscard]] __device__ bool exists(const Panel& p) const {
    return p.m_begin + warp() * 16 < p.m_end;
  }

  /// The rows of n of the tile's part in shared memory, after waiting for them.
  __device__ const unsigned char* rows_of_n(const SweepTile& t) {
    const RingUse<S::n_buffers> use{static_cast<int>(t.part_number)};
    if (t.begins != 0) mbarrier_wait(&state_.n[use.slot()].full, use.parity());
    return shared_ + S::n_start + use.slot() * S::n_bytes;
  }
  /// Releases the rows of n after the last tile of the part.
  __device__ void release_n(const SweepTile& t) const {
    const RingUse<S::n_buffers> use{static_cast<int>(t.part_number)};
    if (t.ends != 0) arrive(&state_.n[use.slot()].empty);
  }

  /// Without wgmma: g += a b^T over a piece of the sequences. a: 16 rows from row `row` on of the
  /// stage `rows` (of `Rows` rows), the piece from byte `m_start` of a row on; b: all 56 rows of
  /// `n_rows`, the piece from byte `n_start` on.
  template <int Rows>
  __device__ void multiply_gradient_w1_piece(Fragment& g, const unsigned char* rows, int row,
                                             int m_start, const unsigned char* n_rows,
                                             int n_start) const {
    const int l = lane();
    const auto n_at = [&](int n, int byte) {
      return n_rows + S::template at<panel_width>(n, n_start + byte + (l >> 3 & 1) * 16);
    };
#pragma unroll
    for (int k = 0; k < S::piece_bytes; k += 32) {
      std::uint32_t a[4], b0, b1;
      load_matrices(a, rows + S::template at<Rows>(row + (l & 15), m_start + k + (l >> 4) * 16));
#pragma unroll
      for (int i = 0; i < panel_tiles - 1; i += 2) {
        std::uint32_t b[4];
        load_matrices(b, n_at(i * 8 + (l & 7) + (l >> 4) * 8, k));
        M::multiply(g[i], a, b[0], b[1]);
        M::multiply(g[i + 1], a, b[2], b[3]);
      }
      load_two_matrices(b0, b1, n_at(48 + (l & 7), k));
      M::multiply(g[panel_tiles - 1], a, b0, b1);
    }
  }
  /// Called by one lane: starts a bulk copy of the warp's masters of a tile to shared memory.
  /// `tile`: its number in the thread block; `first`: index of its first float in the master; `m`,
  /// `n`: its size; `is_w0`: whether it is of W0. The warp's masters are 16 m by all n (W1), or up
  /// to 16 n by all m, rounded up to a multiple of 16 (W0).
  __device__ void load_masters(unsigned tile, std::uint64_t first, unsigned m, unsigned n,
                               bool is_w0) const {
    const auto row = static_cast<unsigned>(warp() * 16);
    unsigned start = row * n;
    unsigned bytes = row < m ? 64 * n : 0;
    if (is_w0) {  // 16 n, or as many as there are
      const unsigned rows = (m + 15) / 16 * 16;
      start = row * rows;
      bytes = row < n ? min(n - row, 16U) * rows * 4 : 0;
    }
    MBarrier* barrier = masters_barrier(tile);
    mbarrier_expect(barrier, bytes);
    if (bytes == 0) return;
    copy_bulk_async(masters(tile), a_.master + first + start, bytes, barrier, evict_first());
  }
  /// Where the warp's masters of the block's `tile`-th tile lie in shared memory.
  [[nodiscard]] __device__ float* masters(unsigned tile) const {
    const auto buffer = static_cast<int>(tile % S::master_buffers) * S::consumer_warps + warp();
    return reinterpret_cast<float*>(shared_ + masters_start<Bp>) + buffer * S::master_floats;
  }
  /// The barrier of their bulk copy.
  [[nodiscard]] __device__ MBarrier* masters_barrier(unsigned tile) const {
    return &state_.masters[warp()][tile % S::master_buffers];
  }
  __device__ void wait_for_masters(const SweepTile& t) const {
    mbarrier_wait(masters_barrier(t.number), t.number / S::master_buffers & 1U);
  }

  /// Two floats: gain and share of the tile's gradient g, with Z += gain g for the master and
  /// W = Z + share g.
  [[nodiscard]] __device__ const float* rates_of(const SweepTile& t) const {
    return state_.rates[t.is_w0 == 0 && !Base::only_writes_copies() ? 1 : 0][t.panel.layer];
  }
  /// W1: Z += gain g in shared memory, then starts the store to device memory; g becomes
  /// W = Z + share g.
  __device__ void update_masters(Fragment& g, const SweepTile& t) {
    reread_thread();
    const Panel& p = t.panel;
    const float* rates = rates_of(t);
    const float gain = rates[0], share = rates[1];
    wait_for_masters(t);
    if (!exists(p)) return;
    float* z_at = masters(t.number);
    change_floats(z_at, p.n, [&](int n, int k, float z) {
      const float updated = fmaf(gain, g[n][k], z);
      g[n][k] = fmaf(share, g[n][k], updated);
      return updated;
    });
    fence_async_proxy();
    __syncwarp();
    if (!is_elected()) return;
    store_bulk_async(a_.master + t.first_master + static_cast<unsigned>(warp() * 16) * p.n, z_at,
                     64 * p.n, evict_first());
  }
  /// Where there is one buffer for masters: starts loading the next tile's once the store of this
  /// tile's has read them. Where there are two, `for_each_tile` has done so.
  __device__ void load_next_masters_if_single_buffered(const SweepTile& t) {
    if constexpr (S::master_buffers == 1) load_next_masters(t);
  }
  /// Starts loading the masters of the tile after `t`, once the store of those that were in their
  /// buffer before has read them.
  __device__ void load_next_masters(const SweepTile& t) {
    reread_thread();
    __syncwarp();  // all lanes have done with the masters that were in this buffer before
    if (is_elected()) {
      const std::uint64_t first = t.next_first_master;  // loaded before the wait
      const unsigned m = t.next_rows, n = t.next_n;
      const bool is_w0 = t.next_is_w0 != 0;
      stores_wait_read();
      if (m != 0) load_masters(t.number + 1, first, m, n, is_w0);
    }
    __syncwarp();
  }

  /// Replaces the targets of 16 m of a tile by d1. The 16 m start at the tile's m `first`, the
  /// sequences at byte `begin` of a row; their `bytes` bytes lie in one piece. `rows` points to
  /// this piece of these m in a stage of `Rows`, `r` to the same piece of the rows of r(t-2). `w`:
  /// the 16 m of W1(t-2). Adds to `score`.
  template <int Rows>
  __device__ void compute_d1_of_block(ErrorSums& score, unsigned char* rows, const unsigned char* r,
                                      const OutputWeights& w, const SweepTile& t, int first,
                                      int begin, int bytes) {
    const int piece = begin / S::piece_bytes, from = begin % S::piece_bytes;
    const ErrorBlock<M> block(a_.shape, lane(), Base::rows_of(t) - first,
                              static_cast<int>(t.pixels) - first,
                              partial || a_.shape.batch == a_.shape.padded);
    const std::uint16_t* masks = state_.sequence_masks + piece * (S::piece_bytes / 16);
    // Where this piece of the first of the 16 m lies in a slot of the ring of y: in units of 16
    // bytes from the slot's start.
    const std::uint32_t start = (t.outputs + static_cast<unsigned>(first)) * (S::row_bytes / 16) +
                                static_cast<unsigned>(piece * (S::piece_bytes / 16));
    const bool plain = block.plain(state_.all_scored) && state_.cursor.saved_y_steps == 0;
    // Ends in the piece, in bytes: of the sequences that exist, and the same rounded up to 16
    // sequences.
    const int before = piece * S::piece_bytes, end = from + bytes;
    const int exist = partial ? min(a_.shape.batch * 2 - before, end) : end;
    const int live = partial ? min(Base::live_bytes() - before, end) : end;
    with_derivative<M>(a_.shape.activation, state_.cursor.step, [&](auto derivative) {
      int at = from;
      if (plain) {
        at = compute_d1_of_sequences<Rows, true>(from, exist, score, rows, r, w, block, masks,
                                                 start, derivative);
      }
      if (partial || !plain) {
        compute_d1_of_sequences<Rows, false>(partial ? at : from, live, score, rows, r, w, block,
                                             masks, start, derivative);
      }
    });
  }
  /// Computes d1 of the sequences from byte `at` of the piece on, in turns of `error_blocks` blocks
  /// of 16 sequences (`Plain`) or of one block, as many whole turns as fit before byte `end`.
  /// Returns where the last turn ends. `Plain`: no masks are needed (ErrorBlock's `plain`) and y is
  /// computed, not read from a checkpoint. `start`: see `slot_bytes`. Other parameters: see
  /// `compute_d1_of_block`.
  template <int Rows, bool Plain, class Derivative>
  __device__ __forceinline__ int compute_d1_of_sequences(
      int at, int end, ErrorSums& score, unsigned char* rows, const unsigned char* r,
      const OutputWeights& w, const ErrorBlock<M>& block, const std::uint16_t* masks,
      std::uint32_t start, Derivative derivative) const {
    const int l = lane();
    const int target = S::template at<Rows>(l & 15, (l >> 4) * 16);
    const int upper = S::template at<panel_width>(l & 15, (l >> 4) * 16);
    const int last = S::template at<panel_width>(48 + (l & 7), (l >> 3 & 1) * 16);
    constexpr int count = Plain ? S::error_blocks : 1;
    const int stop = end - end % (32 * count);
    ErrorSums sums[2];
#pragma unroll 1
    for (; at < stop; at += 32 * count) {
      const auto block_at = [&](int offset, int i) { return S::advance(offset, at + i * 32); };
      float y[count][2][4];
      std::uint32_t d1[count][4];
      if (!Plain && state_.cursor.saved_y_steps != 0) {
        const unsigned char* from =
            a_.y + slot_bytes(slot_before(state_.cursor.y, y_slots, 2), start) + at;
#pragma unroll
        for (int i = 0; i < count; ++i) block.read_outputs(y[i], from + i * 32, S::row_bytes);
      } else {
        multiply_outputs<M>(
            y, w, [&](int i, int k) { return r + block_at(upper, i) + k * 16 * S::piece_bytes; },
            [&](int i) { return r + block_at(last, i); });
#pragma unroll
        for (int i = 0; i < count * 8; ++i) {
          activate_output<M>(y[i / 8][i / 4 % 2][i % 4], ActivationOf<M, Derivative>{});
        }
      }
#pragma unroll
      for (int i = 0; i < count; ++i) load_matrices(d1[i], rows + block_at(target, i));
      block.template make<Plain>(d1, sums, derivative, y, masks + at / 16);
#pragma unroll
      for (int i = 0; i < count; ++i) store_matrices(rows + block_at(target, i), d1[i]);
    }
    block.add(score, sums);
    return at;
  }
  /// Byte offset of the `start`-th 16 bytes of slot `slot` in a ring of all outputs (y, d1).
  [[nodiscard]] __device__ std::size_t slot_bytes(std::uint32_t slot, std::uint32_t start) const {
    return (static_cast<std::size_t>(slot) * static_cast<std::size_t>(a_.shape.outputs) *
                (S::row_bytes / 16) +
            start) *
           16;
  }
  /// Adds the sums of all lanes to the warp's.
  __device__ void add_score(ErrorSums score) const {
    for (int other = 16; other > 0; other /= 2) {
      score.prediction += __shfl_xor_sync(~0U, score.prediction, other);
      score.loss += __shfl_xor_sync(~0U, score.loss, other);
    }
    if (lane() != 0) return;
    state_.score[warp()][0] += static_cast<double>(score.prediction);
    state_.score[warp()][1] += static_cast<double>(score.loss);
  }
  /// Stores the warp's sums in device memory.
  __device__ void store_score() {
    reread_thread();
    if (lane() != 0) return;
    stored_score()[0] = state_.score[warp()][0];
    stored_score()[2] = state_.score[warp()][1];
  }
  /// The warp's score in device memory: three sums, of predictions, of persistence (which a sweep
  /// leaves alone: persistence.cuh adds it) and of the loss.
  [[nodiscard]] __device__ double* stored_score() const {
    return a_.score + (blockIdx.x * S::consumer_warps + static_cast<unsigned>(warp())) * 3;
  }

  int thread_ = thread_number();
  int stage_ = 0;  ///< the next stage to be used, counted over all tiles
};

}  // namespace pvm::inline v0::detail::batch
