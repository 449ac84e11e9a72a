// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How warps that compute work on a tile together where sequences are few: each moves 16 m, and
/// multiplies 16 sequences by its share of the m.

#include <cstdint>

#include <pvm/engine/cuda/batch/product_core.cuh>
#include <pvm/engine/cuda/batch/sweep_worker.cuh>

namespace pvm::inline v0::detail::batch {

template <class M, int Bp, SweepKind Kind>
class Sweeper : public SweepWorker<M, Bp, Kind> {
  using Base = SweepWorker<M, Bp, Kind>;
  using Base::a_, Base::state_, Base::shared_, Base::stage_, Base::steps;
  using Base::begin_phase, Base::warp, Base::lane, Base::arrive, Base::exists;
  using typename Base::S;
  static constexpr int depth = S::rows / S::deep;  ///< m that a warp multiplies
  static_assert(S::chunks == 1 && S::across * 16 == Bp && depth % 16 == 0);

 public:
  __device__ Sweeper(const Arguments& a, Task task, SweepState<Bp>& state, unsigned char* shared)
      : Base(a, task, state, shared) {}

  __device__ void run() {
    Sums<1> sums;
    clear<1>(sums);
    Base::walk([&](const SweepTile& t) { work(sums, t); });
  }

 private:
  __device__ void work(Sums<1>& sums, const SweepTile& t) {
    if (t.forward != 0) {
      work_w0(sums, t);
    } else {
      work_w1(sums, t);
    }
    if (steps && t.ends != 0) finish(sums, t);
  }
  __device__ void work_w0(Sums<1>& sums, const SweepTile& shared) {
    const SweepTile t = shared;  // or what is asked of it would be read again behind each barrier
    if (Base::publishes()) return Base::pass(t);
    Fragment g;
    clear(g);
    gradient(g, t);
    Base::move(g, t);
    if (Base::settles()) return Base::bring_next_masters(t);
    multiply(sums, g, t);
  }
  __device__ void work_w1(Sums<1>& sums, const SweepTile& t) {
    if (Base::settles()) return Base::pass(t);
    OutputWeights before{};  // what is undefined keeps registers
    if (!Base::publishes()) {
      if (exists(t.panel)) load_copy(before, t.panel, 2);  // comes while W1(t) does
      put_copy(t.panel);
    }
    errors(sums, before, t);
    Base::bring_next_masters(t);
  }
  template <class What>
  __device__ void with_stage(What&& what) {
    const Turns<S::stages> turn{stage_++};
    Exchange& exchange = state_.stages[turn.place()];
    barrier_wait(&exchange.full, turn.parity());
    what(shared_ + turn.place() * S::stage_bytes);
    arrive(&exchange.empty);
  }
  /// g of a tile of W0.
  __device__ void gradient(Fragment& g, const SweepTile& t) {
    begin_phase();
    const unsigned char* n = Base::rows_of_n(t);
    with_stage([&](const unsigned char* rows) {
      begin_phase();
      if (exists(t.panel)) learn_rows(g, rows, n);
    });
    Base::leave_n(t);
  }
  __device__ void learn_rows(Fragment& g, const unsigned char* rows, const unsigned char* n) const {
    Base::template multiply_gradient<S::rows>(g, rows, warp() * 16, 0, n, 0);
  }

  /// sums += what the tile of W0 adds, W(t) of which is `w`, to h.
  __device__ void multiply(Sums<1>& sums, const Fragment& w, const SweepTile& t) {
    begin_phase();
    barrier_wait(&state_.fresh, 1);  // all have read that of the tile before
    put_fresh(w);
    arrive(&state_.fresh);
    Base::bring_next_masters(t);
    barrier_wait(&state_.fresh, 0);
    begin_phase();
    with_stage([&](const unsigned char* rows) {
      if (works(t)) multiply_rows(sums, rows);
    });
    arrive(&state_.fresh);
  }
  /// First m of the warp's share of the depth of a product.
  [[nodiscard]] __device__ int deep_row() const { return warp() / S::across * depth; }
  /// Whether the share has any.
  [[nodiscard]] __device__ bool works(const SweepTile& t) const {
    return deep_row() < Base::rows_of(t);
  }
  /// The end of a part.
  __device__ void finish(Sums<1>& sums, const SweepTile& t) {
    begin_phase();
    store_part(t, sums);
    clear<1>(sums);
  }

  /// sums += what a tile of W1 adds to W1^T d1, and it learns from d1.
  __device__ void errors(Sums<1>& sums, const OutputWeights& before, const SweepTile& t) {
    begin_phase();
    const unsigned char* n = Base::rows_of_n(t);
    ErrorSums score;
    begin_phase();
    const Turns<S::stages> turn{stage_++};
    barrier_wait(&state_.stages[turn.place()].full, turn.parity());
    // published: d1 of the step before, for W1's copy alone
    if (!Base::publishes()) multiply_errors(sums, score, before, turn, n, t);
    learn(turn, n, t);
    Base::leave_n(t);
    if (Base::publishes()) return;
    arrive(&state_.fresh);
    Base::add_score(score);
  }
  /// Targets become d1, where they are, and are multiplied with W(t).
  __device__ void multiply_errors(Sums<1>& sums, ErrorSums& score, const OutputWeights& before,
                                  const Turns<S::stages>& turn, const unsigned char* n,
                                  const SweepTile& t) {
    unsigned char* stage = shared_ + turn.place() * S::stage_bytes;
    if (exists(t.panel)) {  // rows that do not exist came as zeros
      Base::template turn_block<S::rows>(score, stage + warp() * 16 * S::row_stride, n, before, t,
                                         warp() * 16, 0, S::row_bytes);
    }
    sync_readers();
    barrier_wait(&state_.fresh, 0);  // W1(t) is there
    if (works(t)) multiply_rows(sums, stage);
  }
  /// Warps that multiply the same m wait for each other's errors of these.
  __device__ void sync_readers() const {
    if constexpr (S::across > 1) {
      sync_warps(1 + warp() / S::across, S::across * 32);
    } else {
      __syncwarp();
    }
  }
  /// The warp's m learn from the stage, d1 of a tile.
  __device__ void learn(const Turns<S::stages>& turn, const unsigned char* n, const SweepTile& t) {
    Exchange& exchange = state_.stages[turn.place()];
    if (!exists(t.panel)) return arrive(&exchange.empty);
    Fragment g;
    clear(g);
    learn_rows(g, shared_ + turn.place() * S::stage_bytes, n);
    arrive(&exchange.empty);
    Base::move(g, t);
    Base::store_copy(t.panel, g);
  }

  /// W(t) of the tile, [m][56], for all warps after the next barrier.
  __device__ void put_fresh(const Fragment& w) const {
    put_pairs([&](int n, int k) { return M::pair(w[n][2 * k], w[n][2 * k + 1]); });
  }
  /// pair(tile of 8, row of two) being two columns of it.
  template <class Pair>
  __device__ void put_pairs(Pair&& pair) const {
    unsigned char* to = shared_ + S::fresh_start + (warp() * 16 + (lane() >> 2)) * S::fresh_stride +
                        (lane() & 3) * 4;
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
      *reinterpret_cast<std::uint32_t*>(to + n * 16) = pair(n, 0);
      *reinterpret_cast<std::uint32_t*>(to + 8 * S::fresh_stride + n * 16) = pair(n, 1);
    }
  }
  /// W1 of the warp's 16 m in 16 bits, of so many steps before.
  __device__ void load_copy(OutputWeights& w, const Panel& p, int back) const {
    const std::uint32_t slot = slot_before(state_.cursor.y, y_slots, back);
    read_output_weights(w, Base::copy_of(p, warp() * 16, slot), lane(), FromDevice{});
  }
  /// The same of W1, from its copy.
  __device__ void put_copy(const Panel& p) {
    begin_phase();
    OutputWeights w{};
    if (exists(p)) load_copy(w, p, 0);
    barrier_wait(&state_.fresh, 1);  // all have read that of the tile before
    put_pairs([&](int n, int k) { return w[2 * n + k]; });
    arrive(&state_.fresh);
  }

  /// sums += rows W for a tile: a warp's 16 sequences and its share of the depth.
  __device__ void multiply_rows(Sums<1>& sums, const unsigned char* rows) const {
    const int l = lane();
    const int first = deep_row();
    const unsigned char* w = shared_ + S::fresh_start + (first + (l & 15)) * S::fresh_stride;
#pragma unroll
    for (int k = 0; k < depth; k += 16) {
      std::uint32_t a[4], b0, b1;
      const int row = first + k + (l & 7) + (l >> 4) * 8;
      const int byte = warp() % S::across * 32 + (l >> 3 & 1) * 16;
      load_matrices_transposed(a, rows + S::template at<S::rows>(row, byte));
#pragma unroll
      for (int i = 0; i < panel_tiles - 1; i += 2) {
        std::uint32_t b[4];
        load_matrices_transposed(b, w + k * S::fresh_stride + (i + (l >> 4)) * 16);
        M::multiply(sums[0][i], a, b[0], b[1]);
        M::multiply(sums[0][i + 1], a, b[2], b[3]);
      }
      load_two_matrices_transposed(b0, b1, w + k * S::fresh_stride + (panel_tiles - 1) * 16);
      M::multiply(sums[0][panel_tiles - 1], a, b0, b1);
    }
  }
  /// The block's part of a unit's sums is complete; the second kernel adds the parts up.
  __device__ void store_part(const SweepTile& t, const Sums<1>& sums) const {
    // of the last tile's rows, from the lane's on, those that exist: nobody reads the others
    const int rest = static_cast<int>(t.panel.n) - (panel_tiles - 1) * 8 - (lane() & 3) * 2;
    float* to = sweep_part<Bp>(a_, t.part) +
                (warp() / S::across * panel_width + (lane() & 3) * 2) * Bp +
                warp() % S::across * 16 + (lane() >> 2);
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
      const float* v = sums[0][n];
      float* at = to + n * 8 * Bp;
      if (n + 1 < panel_tiles || rest > 0) {
        at[0] = v[0];
        at[8] = v[2];
      }
      if (n + 1 < panel_tiles || rest > 1) {
        at[Bp] = v[1];
        at[Bp + 8] = v[3];
      }
    }
  }
};

}  // namespace pvm::inline v0::detail::batch
