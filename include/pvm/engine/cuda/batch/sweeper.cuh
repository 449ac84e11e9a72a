// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// How warps that compute work on a tile together: each moves 16 m, and multiplies 16 sequences.

#include <cstdint>

#include <pvm/engine/cuda/batch/product_core.cuh>
#include <pvm/engine/cuda/batch/sweep_worker.cuh>

namespace pvm::inline v0::detail::batch {

template <class M, int Bp, SweepKind Kind>
class Sweeper : public SweepWorker<M, Bp, Kind> {
  using Base = SweepWorker<M, Bp, Kind>;
  using Base::a_, Base::state_, Base::shared_, Base::stage_, Base::steps;
  using Base::begin_phase, Base::warp, Base::lane, Base::arrive, Base::exists, Base::with_stage;
  using typename Base::S;

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
      load_before(before, t, 0);  // comes while W1(t) does
      put_copy(t.panel);
    }
    errors(sums, before, t);
    Base::bring_next_masters(t);
  }
  /// Of the four warps that multiply as one.
  [[nodiscard]] __device__ int group() const { return warp() >> 2; }
  [[nodiscard]] __device__ bool group_exists(const Panel& p) const {
    return p.first + group() * 64 < p.m;
  }
  /// g of a tile of W0, chunk by chunk of the sequences.
  __device__ void gradient(Fragment& g, const SweepTile& t) {
    begin_phase();
    const unsigned char* n = Base::rows_of_n(t);
    for (int chunk = 0; chunk < S::chunks; ++chunk) {
      with_stage([&](const unsigned char* rows) {
        begin_phase();
        if constexpr (S::grouped) {
          if (group_exists(t.panel)) {
            Base::template multiply_group_gradient<S::rows, 1>(g, rows + group() * 64 * 128,
                                                               n + chunk * panel_width * 128);
          }
        } else if (exists(t.panel)) {
          Base::template multiply_gradient<S::rows>(g, rows, warp() * 16, 0, n,
                                                    chunk * S::chunk_bytes);
        }
      });
    }
    Base::leave_n(t);
  }
  /// ... of W1, where the part of its rows has the warp's.
  __device__ void part_gradient(Fragment& g, const unsigned char* rows, const unsigned char* n,
                                int part) const {
    const int row = first_row() - part * S::part_rows;
    if constexpr (S::grouped) {
      Base::template multiply_group_gradient<S::part_rows, S::chunks>(g, rows + row * 128, n);
    } else {
      for (int start = 0; start < S::row_bytes; start += S::chunk_bytes) {
        Base::template multiply_gradient<S::part_rows>(g, rows, row, start, n, start);
      }
    }
  }
  /// First m of the warps that make a gradient as one.
  [[nodiscard]] __device__ int first_row() const { return S::grouped ? group() * 64 : warp() * 16; }
  [[nodiscard]] __device__ bool learns(const SweepTile& t, int part) const {
    return first_row() / S::part_rows == part && first_row() < Base::rows_of(t);
  }

  /// sums += what the tile of W0 adds, W(t) of which is `w`, to h.
  __device__ void multiply(Sums<1>& sums, const Fragment& w, const SweepTile& t) {
    begin_phase();
    barrier_wait(&state_.fresh, 1);  // all have read that of the tile before
    put_fresh(w);
    arrive(&state_.fresh);
    Base::bring_next_masters(t);
    barrier_wait(&state_.fresh, 0);
    for (int part = 0; part < Base::parts_of(Base::rows_of(t)); ++part) {
      begin_phase();
      with_stage([&](const unsigned char* rows) {
        if (works(t, part)) multiply_rows(sums, rows, part);
      });
    }
    arrive(&state_.fresh);
  }
  /// First m of the warp's share of the depth of a product's part.
  [[nodiscard]] __device__ int deep_row() const { return warp() / S::across * S::part_depth; }
  /// Whether the share has any.
  [[nodiscard]] __device__ bool works(const SweepTile& t, int part) const {
    return part * S::part_rows + deep_row() < Base::rows_of(t);
  }
  /// The end of a part.
  __device__ void finish(Sums<1>& sums, const SweepTile& t) {
    begin_phase();
    if constexpr (S::deep == 2) add_halves(sums);
    store_part(t, sums);
    clear<1>(sums);
  }

  /// sums += what a tile of W1 adds to W1^T d1, and it learns from d1.
  __device__ void errors(Sums<1>& sums, OutputWeights& before, const SweepTile& t) {
    begin_phase();
    const unsigned char* n = Base::rows_of_n(t);
    ErrorSums score;
    for (int part = 0; part < Base::parts_of(Base::rows_of(t)); ++part) {
      begin_phase();
      const Turns<S::stages> turn{stage_++};
      if (Base::publishes()) {  // d1 of the step before, for W1's copy alone
        barrier_wait(&state_.stages[turn.place()].full, turn.parity());
      } else {
        if (part > 0) load_before(before, t, part);
        multiply_errors(sums, score, before, turn, n, t, part);
      }
      learn(turn, n, t, part);
    }
    Base::leave_n(t);
    if (Base::publishes()) return;
    arrive(&state_.fresh);
    Base::add_score(score);
  }
  /// A part's targets become d1, where they are, and are multiplied with W(t).
  __device__ void multiply_errors(Sums<1>& sums, ErrorSums& score, const OutputWeights& before,
                                  const Turns<S::stages>& turn, const unsigned char* n,
                                  const SweepTile& t, int part) {
    turn_into_errors(score, before, turn, n, t, part);
    if constexpr (S::grouped) show_to_products();
    if constexpr (S::readers > 1) {
      sync_warps(1 + warp() / S::readers, S::readers * 32);
    } else {
      __syncwarp();
    }
    if constexpr (S::chunks > 1) {
      barrier_wait(&state_.errors, errors_ ^ 1U);  // or it would count for the part before
      arrive(&state_.errors);
    }
    barrier_wait(&state_.fresh, 0);  // W1(t) is there
    if (works(t, part)) multiply_rows(sums, shared_ + turn.place() * S::stage_bytes, part);
    if constexpr (S::chunks > 1) {  // the gradient needs those of all sequences
      if (learns(t, part)) barrier_wait(&state_.errors, errors_);
      errors_ ^= 1U;
    }
  }
  /// Where the stage, d1 of a part, has the warp's m, they learn from it.
  __device__ void learn(const Turns<S::stages>& turn, const unsigned char* n, const SweepTile& t,
                        int part) {
    Exchange& exchange = state_.stages[turn.place()];
    if (!learns(t, part)) return arrive(&exchange.empty);
    Fragment g;
    clear(g);
    part_gradient(g, shared_ + turn.place() * S::stage_bytes, n, part);
    arrive(&exchange.empty);
    Base::move(g, t);
    Base::store_copy(t.panel, g);
  }
  /// W1(t-2) of the 16 m of a part that the warp makes errors of.
  __device__ void load_before(OutputWeights& w, const SweepTile& t, int part) {
    begin_phase();
    const int first = part * S::part_rows + warp() % S::makers * 16;
    if (first < Base::rows_of(t)) Base::load_copy(w, t.panel, first, 2);
  }
  /// Of 16 m of a part and a chunk of the sequences. Rows that do not exist came as zeros.
  __device__ void turn_into_errors(ErrorSums& score, const OutputWeights& w,
                                   const Turns<S::stages>& turn, const unsigned char* n,
                                   const SweepTile& t, int part) {
    const int row = warp() % S::makers * 16, first = part * S::part_rows + row;
    CopyBarrier* full = &state_.stages[turn.place()].full;
    if (first >= Base::rows_of(t)) return barrier_wait(full, turn.parity());
    barrier_wait(full, turn.parity());
    const int chunk = warp() / S::makers;
    unsigned char* rows =
        shared_ + turn.place() * S::stage_bytes + (chunk * S::part_rows + row) * S::row_stride;
    Base::template turn_block<S::part_rows>(score, rows, n + chunk * panel_width * S::row_stride, w,
                                            t, first, chunk * S::piece_bytes, S::piece_bytes);
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
    const int move = S::moved ? lane() >> 2 : 0;
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
      const int at = (n ^ move) * 16;
      *reinterpret_cast<std::uint32_t*>(to + at) = pair(n, 0);
      *reinterpret_cast<std::uint32_t*>(to + 8 * S::fresh_stride + at) = pair(n, 1);
    }
    if constexpr (S::grouped) show_to_products();
  }
  /// The same of W1, from its copy.
  __device__ void put_copy(const Panel& p) {
    begin_phase();
    OutputWeights w{};
    if (exists(p)) Base::load_copy(w, p, warp() * 16, 0);
    barrier_wait(&state_.fresh, 1);  // all have read that of the tile before
    put_pairs([&](int n, int k) { return w[2 * n + k]; });
    arrive(&state_.fresh);
  }

  /// sums += rows W for a part of the tile's m: a warp's 16 sequences and its share of the depth.
  __device__ void multiply_rows(Sums<1>& sums, const unsigned char* rows, int part) const {
    if constexpr (S::grouped) return multiply_group_rows(sums, rows, part);
    const int l = lane();
    const int first = deep_row();
    const unsigned char* w =
        shared_ + S::fresh_start + (part * S::part_rows + first + (l & 15)) * S::fresh_stride;
    const auto w_at = [&](int k, int n) {
      return w + k * S::fresh_stride + (S::moved ? n ^ (l & 7) : n) * 16;
    };
#pragma unroll
    for (int k = 0; k < S::part_depth; k += 16) {
      std::uint32_t a[4], b0, b1;
      const int row = first + k + (l & 7) + (l >> 4) * 8;
      const int byte = warp() % S::across * 32 + (l >> 3 & 1) * 16;
      load_matrices_transposed(a, rows + S::template at<S::part_rows>(row, byte));
#pragma unroll
      for (int i = 0; i < panel_tiles - 1; i += 2) {
        std::uint32_t b[4];
        load_matrices_transposed(b, w_at(k, i + (l >> 4)));
        M::multiply(sums[0][i], a, b[0], b[1]);
        M::multiply(sums[0][i + 1], a, b[2], b[3]);
      }
      load_two_matrices_transposed(b0, b1, w_at(k, panel_tiles - 1));
      M::multiply(sums[0][panel_tiles - 1], a, b0, b1);
    }
  }
  /// The same by four warps: 64 sequences.
  __device__ void multiply_group_rows(Sums<1>& sums, const unsigned char* rows, int part) const {
    const int first = deep_row();
    const int chunk = warp() % S::across >> 2;
    const GroupOperand x = group_operand(rows + (chunk * S::part_rows + first) * 128);
    const GroupOperand w =
        group_operand(shared_ + S::fresh_start + (part * S::part_rows + first) * 128);
    __syncwarp();
    show_to_products();
    products_begin();
#pragma unroll
    for (int k = 0; k < S::part_depth / 16; ++k) {
      M::template multiply_group<true>(sums[0], x + 128 * static_cast<unsigned>(k),
                                       w + 128 * static_cast<unsigned>(k));
    }
    products_end();
  }

  /// The first half of the warps gains what the second has, which worked on the rest of the depth.
  __device__ void add_halves(Sums<1>& sums) const {
    static_assert(S::across * panel_tiles * 32 * 16 <= S::rows * S::fresh_stride);
    auto* at = reinterpret_cast<float4*>(shared_ + S::fresh_start) +
               warp() % S::across * panel_tiles * 32 + lane();
    const bool gives = warp() >= S::across;
    barrier_wait(&state_.fresh, 1);  // nobody reads W(t) any more
    if (gives) put(at, sums);
    arrive(&state_.fresh);
    barrier_wait(&state_.fresh, 0);
    if (!gives) {
#pragma unroll
      for (int n = 0; n < panel_tiles; ++n) {
        const float4 more = at[n * 32];
        sums[0][n][0] += more.x;
        sums[0][n][1] += more.y;
        sums[0][n][2] += more.z;
        sums[0][n][3] += more.w;
      }
    }
    arrive(&state_.fresh);
  }
  __device__ static void put(float4* to, const Sums<1>& sums) {
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
      to[n * 32] = make_float4(sums[0][n][0], sums[0][n][1], sums[0][n][2], sums[0][n][3]);
    }
  }
  /// The block's part of a unit's sums is complete; the second kernel adds the parts up.
  __device__ void store_part(const SweepTile& t, const Sums<1>& sums) const {
    if (warp() >= S::kept) return;
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

  unsigned errors_ = 0;  ///< parity of the next errors that warps share
};

}  // namespace pvm::inline v0::detail::batch
