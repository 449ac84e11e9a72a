// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The consumer warps of a sweep: how the four of them work on a tile together. sweep/kernel.cuh
/// has the overview and the formulas.
///
/// In the products of W0 and in W1^T d1 hidden values are the rows, 16 a warp. The accumulators of
/// W0's gradient then lie across a warp as the mma operand A of the next product: a warp packs
/// W0(t) into 16-bit operands (`pack_operands`) and multiplies it with x(t) without leaving the
/// registers. The accumulators `Sums`, of which h or d0 is made, stay in registers over all tiles
/// of a part. The warps wait for each other (named barrier 1) only twice: in a tile of W1, until d1
/// is complete, because all of them read all of it; and at the end of a part, before one of them
/// reuses the shared memory of the part's last stage. While they wait, the other thread blocks of
/// the SM work.
///
/// On sm_90a the four warps multiply as one (wgmma, asynchronous, B and often A in shared memory);
/// else each multiplies for itself (mma.sync).

#include <cstdint>

#include <pvm/engine/cuda/batch/sweep/consumer_base.cuh>
#include <pvm/engine/cuda/batch/sweep/results.cuh>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/group_products.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>
#include <pvm/engine/cuda/instructions/memory.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>

namespace pvm::inline v0::detail::batch {

/// What a thread of a consumer warp does.
template <class M, int Bp, SweepKind Kind>
class SweepConsumer : public SweepConsumerBase<M, Bp, Kind> {
  using Base = SweepConsumerBase<M, Bp, Kind>;
  using Base::a_, Base::state_, Base::shared_, Base::stage_, Base::steps;
  using Base::reread_thread, Base::warp, Base::lane, Base::arrive;
  using typename Base::S;

  using Sums = SweepSums<Bp>;
  using Results = SweepResults<M, Bp>;
  /// W0's gradient of the warp's 16 hidden values by the tile's 64 inputs, as accumulators: of
  /// every 8 inputs four values a lane.
  using Gradient = float[8][4];
  /// The warp's 16 rows of W0(t), or of W1(t) transposed, by 64 m as mma operands A: of every 16 m
  /// four registers.
  using Weights = std::uint32_t[4][4];
  static constexpr int piece = S::piece_bytes;
  static constexpr int n_piece = panel_width * piece;  ///< bytes of a piece of all rows of n
  static constexpr int chunks = S::chunks;
  static constexpr int pieces = S::chunk_bytes / piece;  ///< pieces of a row's chunk
  static constexpr int chunk_octets = sum_octets<Bp>;
  /// Bytes of a row whose errors a warp computes at a time, in tiles with fewer than four groups of
  /// 16 m (`compute_d1`).
  static constexpr int share_bytes = Bp == 256 ? 128 : 64;
  static constexpr int x_stage_products = S::x_stage_rows / 16;  ///< products over 16 m in a stage
  static_assert(static_cast<int>(sweep_stages(Bp, S::rows, true)) ==  // as the plan counts them
                chunks + S::rows / S::x_stage_rows);

 public:
  __device__ SweepConsumer(const Arguments& a, Task task, SweepState<Bp>& state,
                           unsigned char* shared)
      : Base(a, task, state, shared) {}

  /// Works through all tiles of the thread block.
  __device__ __forceinline__ void run() {
    Sums sums;
    clear(sums);
    Base::for_each_tile([&](const SweepTile& t) {
      if (steps) stage_ = static_cast<int>(t.stage);  // no register keeps it from tile to tile
      if (steps && t.ends != 0) {
        Results(a_, t, Base::live_bytes()).prefetch_inputs(state_.cursor);
      }
      if (t.is_w0 != 0) {
        process_w0(sums, t);
      } else {
        process_w1(sums, t);
      }
      if (steps && t.ends != 0) finish(sums, t);
      if (steps && (t.is_w0 != 0 || t.ends != 0))
        arrive(&barriers_of(static_cast<int>(t.last_stage)).empty);
    });
    if (is_elected()) stores_wait_all();  // of masters: the next sweep reads them
    // The last warp has the fewest hidden values, and so the least to do.
    if (steps && warp() == S::consumer_warps - 1) write_next_step_start();
  }

 private:
  template <int Count>
  __device__ static void clear(float (&v)[Count][4]) {
#pragma unroll
    for (int i = 0; i < Count; ++i) v[i][0] = v[i][1] = v[i][2] = v[i][3] = 0.0F;
  }
  __device__ static void clear(Sums& sums) {
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) clear(sums[chunk]);
  }
  __device__ static void hold_all(Sums& sums) {
#pragma unroll
    for (int chunk = 0; chunk < chunks; ++chunk) fence_registers(sums[chunk]);
  }

  // In steps `process_w0`, and `process_w1` with the last tile of a part, do not release the tile's
  // last stage; `run` does. At the end of a part `finish` uses its shared memory before.

  /// W0: gradient of the step before, update, and sums += W0(t) x(t).
  __device__ __forceinline__ void process_w0(Sums& sums, const SweepTile& t) {
    if (Base::only_writes_copies()) return Base::skip_tile(t);
    reread_thread();
    const int rows = Base::rows_of(t);  // fields that are used repeatedly are read once
    const bool begins = t.begins != 0, ends = t.ends != 0;
    const float* rates = Base::rates_of(t);
    const float gain = rates[0], share = rates[1];
    const unsigned char* n = Base::rows_of_n(t);
    Gradient g;
    clear(g);
    int stage = stage_;
    stage_ += chunks;
    for (int chunk = 0; chunk < chunks; ++chunk) {
      wait_for_stage(stage + chunk);
      multiply_gradient_w0(g, n + chunk * pieces * n_piece, stage_data(stage + chunk));
    }
    if constexpr (chunks == 2) {
      products_wait<1>();
      arrive(&barriers_of(stage).empty);
    }
    products_wait<0>();
    arrive(&barriers_of(stage + chunks - 1).empty);
    fence_registers(g);
    if (ends) Base::release_n(t);
    update_masters(g, t, rows, gain, share);
    if (Base::only_updates_w0()) return Base::load_next_masters_if_single_buffered(t);
    Weights w;
    pack_operands(w, g);
    stage = stage_;
    wait_for_stage(stage);
    multiply_x<0>(sums, w, stage_data(stage), !begins);
    if constexpr (chunks == 2) {
      if (rows > S::x_stage_rows) {
        wait_for_stage(stage + 1);
        multiply_x<1>(sums, w, stage_data(stage + 1), true);
      }
    }
    // While the tensor cores multiply:
    if (!steps || !ends) Base::load_next_masters_if_single_buffered(t);
    if (chunks == 2 && rows > S::x_stage_rows) {
      products_wait<1>();
      arrive(&barriers_of(stage).empty);
    }
    products_wait<0>();
    fence_registers(w);
    hold_all(sums);
  }
  /// W1: errors, gradient, sums += W1(t)^T d1, and update.
  __device__ __forceinline__ void process_w1(Sums& sums, const SweepTile& t) {
    if (Base::only_updates_w0()) return Base::skip_tile(t);
    reread_thread();
    const unsigned char* n = Base::rows_of_n(t);
    const int copies = stage_, stage = copies + (Base::only_writes_copies() ? 0 : S::copy_stages);
    stage_ = stage + chunks;
    Fragment g;
    // Zero-initialised: otherwise the registers of w stay live across the loop over tiles.
    Weights w = {};
    if (Base::only_writes_copies()) {  // the gradient of step t-1, for W1(t); no errors, no sums
      batch::clear(g);
      for (int chunk = 0; chunk < chunks; ++chunk) {
        wait_for_stage(stage + chunk);
        multiply_gradient_w1(g, stage_data(stage + chunk), n, chunk);
      }
    } else {
      const ErrorSums score = compute_d1(copies, stage, n, t);
      reread_thread();
      load_weights(w, copies, t);
      Base::add_score(score);
      for (int chunk = 0; chunk < chunks; ++chunk) wait_for_stage(stage + chunk);
      fence_async_proxy();
      named_barrier_sync(1, S::consumer_warps * 32);
      transpose_all(w);
      if (state_.stores_d1) store_d1(stage, t);
      batch::clear(g);
      multiply_d1(sums, g, w, stage, n, t.begins == 0);
    }
    products_wait<steps ? 1 : 0>();  // g is ready; only in steps there is a second group
    fence_registers(g);
    Base::release_n(t);
    Base::update_masters(g, t);  // while the tensor cores multiply W1^T d1
    products_wait<0>();
    fence_registers(w);
    hold_all(sums);
    reread_thread();
    // The first stage of d1, in steps read again: no register keeps it.
    const int first = steps ? static_cast<int>(t.stage) + S::copy_stages : stage;
    if constexpr (chunks == 2) arrive(&barriers_of(first).empty);
    if (!steps || t.ends == 0) arrive(&barriers_of(first + chunks - 1).empty);
    Base::store_copy(t.panel, g);
    if (!steps || t.ends == 0) Base::load_next_masters_if_single_buffered(t);
  }
  // Stages are counted over all tiles of the thread block, from 0.

  [[nodiscard]] __device__ SlotBarriers& barriers_of(int stage) const {
    return state_.stages[RingUse<S::stages>{stage}.slot()];
  }
  __device__ void wait_for_stage(int stage) const {
    mbarrier_wait(&barriers_of(stage).full, RingUse<S::stages>{stage}.parity());
  }
  [[nodiscard]] __device__ unsigned char* stage_data(int stage) const {
    return shared_ + RingUse<S::stages>{stage}.slot() * S::stage_bytes;
  }
  /// After the last tile of a part: its sums become h or d0, or are stored for another thread
  /// block.
  __device__ __forceinline__ void finish(const Sums& sums, const SweepTile& t) {
    reread_thread();
    Results results(a_, t, Base::live_bytes());
    if (!results.adds()) {
      results.store_partial_sums(sums, state_.cursor);
    } else {
      named_barrier_sync(1, S::consumer_warps * 32);  // all warps have read the last stage
      static_assert(Results::all_buffers_bytes <= S::stage_bytes);
      // `make_results` copies another part's sums over the tile's masters: their store must have
      // read them.
      if (is_elected()) stores_wait_read();
      __syncwarp();
      results.make_results(sums, state_.cursor, stage_data(static_cast<int>(t.last_stage)),
                           reinterpret_cast<unsigned char*>(Base::masters(t.number)));
    }
    fence_async_proxy();  // before the next masters are copied over what was read there
    Base::load_next_masters_if_single_buffered(t);
  }

  /// Writes what the block's next step begins with; all warps have read this step's. Prefetches the
  /// next step's rates and flags to the L2 cache.
  __device__ void write_next_step_start() const {
    static_assert(array_offset_count < 32);
    const StepCursor next = next_step(a_.shape, state_.cursor, false);
    StepStart& start = Base::step_start();
    if (lane() < array_offset_count)
      start.array_offsets[lane()] = step_start_offset<M>(a_, next, lane());
    if (lane() == array_offset_count) start.cursor = next;
    if (lane() == array_offset_count + 1) {
      prefetch_line(a_.tables + static_cast<std::size_t>(next.frame) *
                                    static_cast<std::size_t>(a_.shape.table));
      prefetch_line(a_.scored + static_cast<std::size_t>(next.frame) *
                                    static_cast<std::size_t>(a_.shape.padded));
    }
  }

  /// Starts g += n x^T over a chunk of the sequences, where `n` holds d0 and `x` a stage's rows.
  __device__ __forceinline__ void multiply_gradient_w0(Gradient& g, const unsigned char* n,
                                                       const unsigned char* x) const {
    if constexpr (multiplies_in_groups) {
      const GroupOperand rows_n = group_operand(n), rows_x = group_operand(x);
      begin_products();
      fence_registers(g);
      products_begin();
#pragma unroll
      for (unsigned i = 0; i < pieces; ++i) {
#pragma unroll
        for (unsigned k = 0; k < piece / 32; ++k) {
          M::template multiply_square<piece>(g, rows_n + i * (n_piece / 16) + 2 * k,
                                             rows_x + i * (S::rows * piece / 16) + 2 * k);
        }
      }
      products_commit();
    } else {
      const int l = lane();
      for (int byte = 0; byte < pieces * piece; byte += 32) {
        std::uint32_t a[4], b[4];
        load_matrices(
            a,
            n + S::template at<panel_width>(warp() * 16 + (l & 15), byte % piece + (l >> 4) * 16) +
                byte / piece * n_piece);
#pragma unroll
        for (int i = 0; i < 8; i += 2) {
          load_matrices(b, x + S::template at<S::rows>(i * 8 + (l & 7) + (l >> 4) * 8,
                                                       byte + (l >> 3 & 1) * 16));
          M::multiply(g[i], a, b[0], b[1]);
          M::multiply(g[i + 1], a, b[2], b[3]);
        }
      }
    }
  }
  /// Z += gain g in shared memory, then starts the store to device memory; g becomes
  /// W = Z + share g. `rows`: m of the tile. For rows beyond the last hidden value g stays as it
  /// is; the sums that follow from them are not used.
  __device__ __forceinline__ void update_masters(Gradient& g, const SweepTile& t, int rows,
                                                 float gain, float share) {
    reread_thread();
    const Panel& p = t.panel;
    Base::wait_for_masters(t);
    const int values = static_cast<int>(p.n) - warp() * 16;
    if (values <= 0) return;
    const int columns = (rows + 15) / 16 * 16;
    const auto change = [&](float& gradient, float z) {
      const float updated = fmaf(gain, gradient, z);
      gradient = fmaf(share, gradient, updated);
      return updated;
    };
    float* z = Base::masters(t.number);
    if (values >= 16) {
      change_quads(reinterpret_cast<float4*>(z) + lane(), g, columns, change);
    } else {
      const int row = lane() >> 2;
      auto* pairs = reinterpret_cast<float2*>(z + row * columns) + (lane() & 3);
      if (row < values) change_pairs<0>(pairs, g, columns, change);
      if (row + 8 < values) change_pairs<2>(pairs + 4 * columns, g, columns, change);
    }
    fence_async_proxy();
    __syncwarp();
    if (!is_elected()) return;
    store_bulk_async(a_.master + t.first_master + static_cast<unsigned>(warp() * 16 * columns), z,
                     static_cast<unsigned>(min(values, 16) * columns * 4), evict_first());
  }
  /// z = change(g, z) for 16 hidden values by `columns` inputs in the order of accumulators; `z` is
  /// the lane's first quad.
  template <class Change>
  __device__ __forceinline__ static void change_quads(float4* z, Gradient& g, int columns,
                                                      Change&& change) {
#pragma unroll
    for (int first = 0; first < 8; first += 4) {  // four loads before their stores, for latency
      // Zero-initialised: otherwise the registers of v stay live across the loop over tiles.
      float4 v[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if ((first + i) * 8 < columns) v[i] = z[(first + i) * 32];
      }
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float(&mine)[4] = g[first + i];
        if ((first + i) * 8 < columns) {
          z[(first + i) * 32] = make_float4(change(mine[0], v[i].x), change(mine[1], v[i].y),
                                            change(mine[2], v[i].z), change(mine[3], v[i].w));
        }
      }
    }
  }
  /// The same for fewer than 16 hidden values, whose masters lie row by row: for one of the lane's
  /// two rows, whose values are elements `Row` and `Row` + 1 of each quad of `g` (0: row l/4; 2:
  /// row l/4 + 8). `z` is the lane's first pair in that row.
  template <int Row, class Change>
  __device__ __forceinline__ static void change_pairs(float2* z, Gradient& g, int columns,
                                                      Change&& change) {
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if (i * 8 >= columns) break;
      const float2 v = z[i * 4];
      z[i * 4] = make_float2(change(g[i][Row], v.x), change(g[i][Row + 1], v.y));
    }
  }
  /// Packs accumulators into mma operands A: both lie across the warp in the same way.
  __device__ __forceinline__ static void pack_operands(Weights& w, const Gradient& g) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* v = g[2 * k + i / 2] + i % 2 * 2;
        w[k][i] = M::pair(v[0], v[1]);
      }
    }
  }
  /// Starts sums += W x over the m in the tile's stage number `Stage` of x(t), or sums = W x unless
  /// `adds`. (If the sums were set to 0 under a condition instead, the compiler would move all of
  /// them to other registers.) `x`: that stage.
  template <int Stage>
  __device__ __forceinline__ void multiply_x(Sums& sums, Weights& w, const unsigned char* x,
                                             bool adds) const {
    if constexpr (multiplies_in_groups) {
      const GroupOperand rows = wide_operand<S::x_stage_rows * piece>(x);
      begin_products();
      fence_registers(w);
      hold_all(sums);
      products_begin();
#pragma unroll
      for (int k = 0; k < x_stage_products; ++k) {
        const GroupOperand at = rows + static_cast<unsigned>(k) * (16 * piece / 16);
#pragma unroll
        for (unsigned chunk = 0; chunk < chunks; ++chunk) {
          M::template multiply_registers<piece>(
              sums[chunk], w[x_stage_products * Stage + k],
              at + chunk * (pieces * S::x_stage_rows * piece / 16), k > 0 || adds);
        }
      }
      products_commit();
    } else {
      if (!adds) clear(sums);
#pragma unroll
      for (int k = 0; k < x_stage_products; ++k) {
#pragma unroll
        for (int chunk = 0; chunk < chunks; ++chunk) {
          multiply_sixteen<S::x_stage_rows>(sums[chunk], w[x_stage_products * Stage + k], x, k * 16,
                                            chunk * S::chunk_bytes);
        }
      }
    }
  }
  /// Without wgmma: sums += w rows over 16 rows from row `first` of `Rows` on, and a chunk of the
  /// sequences from byte `start` of a row on.
  template <int Rows>
  __device__ void multiply_sixteen(float (&sums)[chunk_octets][4], const std::uint32_t (&w)[4],
                                   const unsigned char* rows, int first, int start) const {
    const int l = lane();
#pragma unroll
    for (int i = 0; i < chunk_octets; i += 2) {
      std::uint32_t b[4];
      load_matrices_transposed(
          b, rows + S::template at<Rows>(first + (l & 15), start + i * 16 + (l >> 4) * 16));
      M::multiply(sums[i], w, b[0], b[1]);
      M::multiply(sums[i + 1], w, b[2], b[3]);
    }
  }

  /// Where the copy of 16 m lies in shared memory: of W1(t) if `current`, else of W1(t-2).
  /// `copies`: the tile's first stage; `group`: number of the 16 m in the tile.
  [[nodiscard]] __device__ const unsigned char* copy_at(int copies, bool current, int group) const {
    const int stage = current ? S::copy_stages - 1 : 0;
    return stage_data(copies + stage) + (current && stage == 0 ? S::copy_bytes : 0) +
           group * (copy_words * 4);
  }
  /// Loads W1(t) of the tile, 64 m by the warp's 16 hidden values; each 8 x 8 matrix has yet to be
  /// transposed. Then releases the stages of the copies: the warp has read both.
  __device__ __forceinline__ void load_weights(Weights& w, int copies, const SweepTile& t) const {
    if constexpr (S::copy_stages == 2) wait_for_stage(copies + 1);
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      uint4 v = make_uint4(0, 0, 0, 0);
      if (k * 16 < Base::rows_of(t)) {
        const unsigned char* copy = copy_at(copies, true, k);
        if (warp() < 3) {
          v = reinterpret_cast<const uint4*>(copy)[warp() * 32 + lane()];
        } else {
          const uint2 few = reinterpret_cast<const uint2*>(copy + 3 * 512)[lane()];
          v.x = few.x;
          v.y = few.y;
        }
      }
      w[k][0] = v.x;
      w[k][1] = v.z;
      w[k][2] = v.y;
      w[k][3] = v.w;
    }
    for (int i = 0; i < S::copy_stages; ++i) arrive(&barriers_of(copies + i).empty);
  }
  /// Transposes each 8 x 8 matrix.
  __device__ __forceinline__ static void transpose_all(Weights& w) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) w[k][i] = transpose(w[k][i]);
    }
  }
  /// The number of groups of 16 m of a tile.
  [[nodiscard]] __device__ static int groups_of(const SweepTile& t) {
    return (Base::rows_of(t) + 15) / 16;
  }
  /// Replaces the targets by d1 where they lie, in the stages from `stage` on. With four groups of
  /// 16 m each warp has one of them and all sequences; with fewer groups the warps take turns at
  /// the shares of all groups, `share_bytes` of a row each. Returns the thread's part of the score.
  /// `copies`: the tile's first stage, with W1(t-2); `n`: rows of r(t-2).
  __device__ __forceinline__ ErrorSums compute_d1(int copies, int stage, const unsigned char* n,
                                                  const SweepTile& t) {
    wait_for_stage(copies);
    const int groups = groups_of(t);
    ErrorSums score;
    const bool full = groups == S::consumer_warps;
    const int bytes = full ? piece : share_bytes;
    constexpr int shares = S::row_bytes / share_bytes;  // shares of a group
    const int turns =
        full ? S::row_bytes / piece : (groups * shares + S::consumer_warps - 1) / S::consumer_warps;
#pragma unroll 1
    for (int i = 0; i < turns; ++i) {
      const int share = i * S::consumer_warps + warp();
      const int group = full ? warp() : share / shares;
      const int begin = (full ? i : share % shares) * bytes;
      if (group >= groups) break;
      OutputWeights w;
      read_output_weights(w, copy_at(copies, false, group), lane(), FromShared{});
      const int at = stage + begin / S::chunk_bytes;
      wait_for_stage(at);
      unsigned char* rows =
          stage_data(at) + (begin / piece % pieces * S::rows + group * 16) * piece;
      Base::template compute_d1_of_block<S::rows>(score, rows, n + begin / piece * n_piece, w, t,
                                                  group * 16, begin, bytes);
    }
    return score;
  }
  /// Stores d1 of the tile in device memory, by all warps.
  __device__ void store_d1(int stage, const SweepTile& t) const {
    constexpr unsigned row_length = S::row_bytes / 16;
    uint4* to = reinterpret_cast<uint4*>(
        a_.d1 + Base::slot_bytes(state_.cursor.gradient, t.outputs * row_length));
    const int count = Base::rows_of(t) * static_cast<int>(row_length);
#pragma unroll 1
    for (int i = thread_number(); i < count; i += S::consumer_warps * 32) {
      const int row = i / static_cast<int>(row_length),
                byte = i % static_cast<int>(row_length) * 16;
      const unsigned char* half = stage_data(stage + byte / S::chunk_bytes);
      to[i] = *reinterpret_cast<const uint4*>(half +
                                              S::template at<S::rows>(row, byte % S::chunk_bytes));
    }
  }
  /// Starts g += d1 r^T and then sums += W1^T d1 (sums = W1^T d1 unless `adds`), each a group of
  /// asynchronous products of its own. d1 lies in the stages from `stage` on, r in `n`.
  __device__ __forceinline__ void multiply_d1(Sums& sums, Fragment& g, Weights& w, int stage,
                                              const unsigned char* n, bool adds) const {
    if constexpr (multiplies_in_groups) {
      begin_products();
      fence_registers(w);
      hold_all(sums);
      fence_registers(g);
      products_begin();
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        issue_gradient_w1(g, stage_data(stage + chunk), n + chunk * pieces * n_piece);
      }
      products_commit();
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const GroupOperand deep = wide_operand<S::rows * piece>(stage_data(stage + chunk));
#pragma unroll
        for (unsigned k = 0; k < 4; ++k) {
          M::template multiply_registers<piece>(sums[chunk], w[k], deep + k * (16 * piece / 16),
                                                k > 0 || adds);
        }
      }
      products_commit();
    } else {
      if (!adds) clear(sums);
#pragma unroll
      for (int chunk = 0; chunk < chunks; ++chunk) {
        const unsigned char* rows = stage_data(stage + chunk);
#pragma unroll
        for (int k = 0; k < 4; ++k) multiply_sixteen<S::rows>(sums[chunk], w[k], rows, k * 16, 0);
        multiply_gradient_w1(g, rows, n, chunk);
      }
    }
  }
  /// Issues the products of g += d1 r^T over a chunk of the sequences, for a group of products that
  /// the caller opens and commits.
  __device__ __forceinline__ static void issue_gradient_w1(Fragment& g, const unsigned char* d1,
                                                           const unsigned char* n) {
    const GroupOperand rows = group_operand(d1), rows_n = group_operand(n);
#pragma unroll
    for (unsigned i = 0; i < pieces; ++i) {
#pragma unroll
      for (unsigned k = 0; k < piece / 32; ++k) {
        M::template multiply_group<piece>(g, rows + i * (S::rows * piece / 16) + 2 * k,
                                          rows_n + i * (n_piece / 16) + 2 * k);
      }
    }
  }
  /// g += d1 r^T over chunk `chunk`, and waits for it. `d1`: the chunk's stage.
  __device__ __forceinline__ void multiply_gradient_w1(Fragment& g, const unsigned char* d1,
                                                       const unsigned char* n, int chunk) const {
    if constexpr (multiplies_in_groups) {
      begin_products();
      fence_registers(g);
      products_begin();
      issue_gradient_w1(g, d1, n + chunk * pieces * n_piece);
      products_end();
      fence_registers(g);
    } else {
      for (int byte = 0; byte < S::chunk_bytes; byte += piece) {
        Base::template multiply_gradient_w1_piece<S::rows>(g, d1, warp() * 16, byte, n,
                                                           chunk * S::chunk_bytes + byte);
      }
    }
  }
  /// Makes what the warp has written or seen in shared memory visible to wgmma.
  __device__ static void begin_products() {
    __syncwarp();
    fence_async_proxy();
  }
};

}  // namespace pvm::inline v0::detail::batch
