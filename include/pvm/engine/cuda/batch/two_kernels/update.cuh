// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The second kernel of a step that is not swept: it updates every weight by its rank-B gradient
///     g[m][n] = sum_b rows_m[m][b] rows_n[n][b]      (W0: x(t-2) d0(t); W1: d1(t) r(t-2))
/// in fp32, and writes the working copies for the next step's products at the same time.
///
/// There are two schemes. Either the learning rule keeps its floats beside every weight. Or, for a
/// momentum that dies out soon, the last T gradients are listed (unit/deferred.hpp, folded every
/// step): the master Z gains each gradient with its final share, W = Z + sum_j w_j g(t-j) exists in
/// the working copy only, and there is no momentum array, which would be half of all the bytes. The
/// listed gradients are then computed anew from their rows in every step.
///
/// Each thread block has an equal portion of the tiles (128 m by up to 56 n), each of its 8 warps
/// 16 m of a tile. It loads with cp.async: rows stage by stage through a ring buffer that runs on
/// from tile to tile, tile descriptors three tiles ahead, and masters one tile ahead.

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/fragments.cuh>
#include <pvm/engine/cuda/batch/rates.hpp>
#include <pvm/engine/cuda/device/check.hpp>
#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/instructions/copies.cuh>
#include <pvm/engine/cuda/instructions/matrices.cuh>
#include <pvm/engine/cuda/instructions/shared_memory.cuh>
#include <pvm/engine/cuda/instructions/warps.cuh>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0::detail::batch {

/// The dynamic shared memory of a thread block: [stages] of rows (128 of m, then 56 of n, `Bytes`
/// of each, padded to `stride`), [tiles] tiles, [2][rows] offsets of the rows of two stages, and
/// the masters and the rule's floats of a tile ([Floats][8 warps][16 * columns]).
template <int Bytes, int Floats>
struct UpdateShape {
  static constexpr int stride = Bytes + 16;  // padded: a warp's loads have no bank conflicts
  static constexpr int rows = tile_rows + panel_width;
  static constexpr int pieces = Bytes / 16;  ///< units of 16 bytes
  static constexpr int stage_bytes = rows * stride;
  static constexpr int stages = Floats == 1 ? 3 : 2;
  static constexpr int tiles = stages + 3;
  static constexpr int row_offsets_start =
      stages * stage_bytes + tiles * static_cast<int>(sizeof(Tile));
  static constexpr int masters_start = row_offsets_start + 2 * rows * 4;
  /// `columns`: the most n of a panel.
  static constexpr int shared_bytes(int columns) {
    return masters_start + Floats * tile_rows * columns * 4;
  }
};

/// sums += rows_m rows_n^T, 16 by 56, over the sequences in `Bytes` bytes of each row.
template <class M, int Bytes>
__device__ __forceinline__ void multiply_stage(Fragment& sums, const unsigned char* rows_m,
                                               const unsigned char* rows_n) {
  constexpr int stride = UpdateShape<Bytes, 1>::stride;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const unsigned char* m = rows_m + (lane & 15) * stride + (lane >> 4) * 16;
  const unsigned char* n =
      rows_n + ((lane & 7) + (lane >> 4) * 8) * stride + ((lane >> 3) & 1) * 16;
#pragma unroll
  for (int k = 0; k < Bytes; k += 32) {
    std::uint32_t a[4];
    load_matrices(a, m + k);
#pragma unroll
    for (int i = 0; i < panel_tiles - 1; i += 2) {
      std::uint32_t b[4];
      load_matrices(b, n + i * 8 * stride + k);
      M::multiply(sums[i], a, b[0], b[1]);
      M::multiply(sums[i + 1], a, b[2], b[3]);
    }
    std::uint32_t b0, b1;
    load_two_matrices(b0, b1, rows_n + (48 + (lane & 7)) * stride + ((lane >> 3) & 1) * 16 + k);
    M::multiply(sums[panel_tiles - 1], a, b0, b1);
  }
}

/// Static shared memory of a thread block.
struct UpdateState {
  /// Where, for each listed gradient, the rows of each array start: in units of 16 bytes from the
  /// arena's start.
  std::uint32_t array_offsets[most_terms][static_cast<int>(RowArray::count)];
  StepCursor cursor;
};

/// What a thread does: it goes through the tiles of its thread block. A tile has `terms_` gradients
/// (listed ones, or one), and a gradient has `sections_` stages, each with `Bytes` bytes of every
/// row.
///
/// Groups of asynchronous copies alternate: one of a stage's rows, then one of the next tile's
/// masters, empty except at the end of a tile. `copies_wait` can thus count groups at compile time.
template <class M, class Rule, bool Listed, int Bytes>
class Updater {
  static constexpr int state_floats = Listed ? 0 : Rule::state;     ///< beside each weight
  static constexpr bool counted = !Listed && counts_updates<Rule>;  ///< RateKind::counted
  using S = UpdateShape<Bytes, 1 + state_floats>;

 public:
  __device__ Updater(const Arguments& a, Task task, const UpdateState& state, const float* table,
                     unsigned char* shared)
      : a_(a),
        task_(task),
        state_(state),
        table_(table),
        stages_(shared),
        tiles_(reinterpret_cast<Tile*>(shared + S::stages * S::stage_bytes)),
        row_bytes_(static_cast<std::size_t>(a.shape.padded) * sizeof(typename M::Word)),
        terms_(Listed ? a.shape.terms : 1),
        sections_(static_cast<int>(row_bytes_) / Bytes),
        first_(static_cast<unsigned>(static_cast<unsigned long long>(a.tile_count) * blockIdx.x /
                                     gridDim.x)),
        count_(
            static_cast<int>(static_cast<unsigned>(static_cast<unsigned long long>(a.tile_count) *
                                                   (blockIdx.x + 1) / gridDim.x) -
                             first_)) {
    row_offsets_ = reinterpret_cast<std::uint32_t*>(shared + S::row_offsets_start);
    masters_ = reinterpret_cast<float*>(shared + S::masters_start) + warp() * 16 * a.shape.columns;
  }

  /// Updates all tiles of the thread block.
  __device__ void run() {
    start();
    int stage = 0;
    for (int tile = 0; tile < count_; ++tile) {
      const Panel& p = tiles_[tile % S::tiles].panel;
      Fragment pending;  // sum_j w_j g(t-j)
      Fragment gains;    // listed: what is added to the master; else the gradient
      clear(pending);
      clear(gains);
      RuleStep rule;
      for (int term = 0; term < terms_; ++term) {
        Fragment listed;
        Fragment& sums = Listed ? listed : gains;
        clear(sums);
        // Loaded early, so that the product hides the latency.
        const float* rates =
            table_ + 4 + p.layer * (counted ? 8 : 2 * terms_) + (Listed ? 2 * term : 0);
        const float first = rates[0], second = rates[1];
        if constexpr (counted) {
          rule.step = number_of(rates + 2);
#pragma unroll
          for (int k = 0; k < 4; ++k) rule.own[k] = rates[4 + k];
        }
        for (int section = 0; section < sections_; ++section, ++stage) {
          copies_wait<2 * (S::stages - 2) + 1>();
          __syncthreads();
          issue();
          copies_commit();
          multiply(sums, stages_ + stage % S::stages * S::stage_bytes);
          if (term + 1 < terms_ || section + 1 < sections_) copies_commit();  // empty, no masters
        }
        if constexpr (Listed) {
          if (task_ == Task::learn && first != 0.0F) add(gains, first, sums);
          add(pending, second, sums);
        } else {
          rule.rate = first;
          rule.momentum = second;
        }
      }
      copies_wait<1>();
      finish(p, tile, gains, pending, rule);
      copies_commit();
    }
    copies_wait<0>();
  }

 private:
  /// Loads the first three tiles; then starts loading the first tile's masters and the rows of all
  /// stages of the ring buffer but one.
  __device__ void start() {
    load_tile(0);
    load_tile(1);
    load_tile(2);
    copies_commit();
    copies_wait<0>();
    __syncthreads();
    find_rows();
    load_masters(0);
    for (int i = 0; i < S::stages - 1; ++i) {
      __syncthreads();
      issue();
      copies_commit();
      if (i < S::stages - 2) copies_commit();  // an empty group in place of masters
    }
    copies_commit();
  }

  __device__ static int warp() { return static_cast<int>(threadIdx.x) >> 5; }

  /// Starts loading the block's `tile`-th tile, if there is one.
  __device__ void load_tile(int tile) {
    constexpr int pieces = sizeof(Tile) / 16;
    if (tile >= count_ || threadIdx.x >= pieces) return;
    copy_async(reinterpret_cast<uint4*>(tiles_ + tile % S::tiles) + threadIdx.x,
               reinterpret_cast<const uint4*>(a_.tiles + first_ + tile) + threadIdx.x);
  }

  /// Whether the tile has any of the warp's 16 m.
  __device__ static bool exists(const Panel& p) { return p.m_begin + warp() * 16 < p.m_end; }
  /// Index of their first float in the master.
  __device__ static std::size_t first_master(const Panel& p) {
    return p.master + static_cast<std::size_t>(p.m_begin + warp() * 16) * p.n;
  }
  /// Starts loading the warp's masters, and the rule's floats, of a tile.
  __device__ void load_masters(int tile) {
    if (tile >= count_) return;
    const Panel& p = tiles_[tile % S::tiles].panel;
    if (!exists(p)) return;
    copy_fragment_async(masters_, a_.master + first_master(p), p.n);
#pragma unroll
    for (int k = 0; k < state_floats; ++k) {
      copy_fragment_async(masters_ + (k + 1) * tile_rows * a_.shape.columns,
                          a_.states + k * a_.weight_count + first_master(p), p.n);
    }
  }

  /// Starts loading the next stage of rows, and with a tile's first stage the tile three further
  /// on.
  __device__ void issue() {
    if (ahead_tile_ >= count_) return;
    constexpr int each = (S::rows * S::pieces + threads - 1) / threads;
    constexpr int apart = threads / S::pieces;
    const int first = static_cast<int>(threadIdx.x) / S::pieces;
    const int at = static_cast<int>(threadIdx.x) % S::pieces * 16;
    const std::uint32_t* offsets = row_offsets_ + ahead_ % 2 * S::rows;
    unsigned char* to = stages_ + ahead_ % S::stages * S::stage_bytes + first * S::stride + at;
    const unsigned char* from = a_.arena + ahead_section_ * Bytes + at;
    std::uint32_t offset[each];
#pragma unroll
    for (int k = 0; k < each; ++k) {
      if (k + 1 < each || first + k * apart < S::rows) offset[k] = offsets[first + k * apart];
    }
#pragma unroll
    for (int k = 0; k < each; ++k) {
      if (k + 1 < each || first + k * apart < S::rows) {
        copy_row_async(to + k * apart * S::stride, from, offset[k]);
      }
    }
    if (ahead_term_ == 0 && ahead_section_ == 0) load_tile(ahead_tile_ + 3);
    ++ahead_;
    if (++ahead_section_ == sections_) {
      ahead_section_ = 0;
      if (++ahead_term_ == terms_) {
        ahead_term_ = 0;
        ++ahead_tile_;
      }
    }
    find_rows();
  }
  /// Looks up where the rows of the next stage lie, for all threads to read after the next
  /// __syncthreads.
  __device__ void find_rows() {
    if (ahead_tile_ >= count_ || threadIdx.x >= S::rows) return;
    row_offsets_[ahead_ % 2 * S::rows + static_cast<int>(threadIdx.x)] = row_offset(
        state_.array_offsets[ahead_term_], tiles_[ahead_tile_ % S::tiles].rows[threadIdx.x],
        static_cast<std::uint32_t>(row_bytes_ / 16));
  }

  /// Adds a stage's products to the warp's sums; for fp32 (M::in_parts) they are accumulated from
  /// zero, because tensor cores truncate, and added in ordinary arithmetic.
  __device__ void multiply(Fragment& sums, const unsigned char* rows) const {
    const unsigned char* m = rows + warp() * 16 * S::stride;
    const unsigned char* n = rows + tile_rows * S::stride;
    if constexpr (M::in_parts) {
      Fragment part;
      clear(part);
      multiply_stage<M, Bytes>(part, m, n);
      add(sums, 1.0F, part);
    } else {
      multiply_stage<M, Bytes>(sums, m, n);
    }
  }

  /// Once the tile's gradients are complete: starts loading the next tile's masters, updates the
  /// weights (Task::learn), and stores the working copies, or W (Task::read).
  __device__ void finish(const Panel& p, int tile, const Fragment& gains, const Fragment& pending,
                         RuleStep rule) {
    Fragment w;
    Fragment old[state_floats > 0 ? state_floats : 1];
    read_fragment(w, masters_, p.n);
#pragma unroll
    for (int k = 0; k < state_floats; ++k) {
      read_fragment(old[k], masters_ + (k + 1) * tile_rows * a_.shape.columns, p.n);
    }
    const bool real = exists(p);
    __syncwarp();
    load_masters(tile + 1);
    if (!real) return;
    const std::size_t at = first_master(p);
    if constexpr (Listed) {
      if (task_ == Task::learn) {
        add(w, 1.0F, gains);
        store_fragment(w, a_.master + at, p.n);
      }
      add(w, 1.0F, pending);
    } else if (task_ == Task::learn) {
      learn(w, old, gains, rule, a_.shape.sequence_weight);
      store_fragment(w, a_.master + at, p.n);
#pragma unroll
      for (int k = 0; k < state_floats; ++k) {
        store_fragment(old[k], a_.states + k * a_.weight_count + at, p.n);
      }
    }
    if (task_ == Task::read) {
      store_fragment(w, a_.weights_out + at, p.n);
    } else {
      store_working_copies(p, w);
    }
  }

  /// The number of a layer's update, counted from 1, of two words of the rate table; 0 if the layer
  /// makes none in this step.
  __device__ static unsigned long long number_of(const float* words) {
    return static_cast<unsigned long long>(__float_as_uint(words[1])) << 32 |
           __float_as_uint(words[0]);
  }

  /// Applies the rule to all weights of the warp. `old`: the rule's floats; `g`: the gradient,
  /// summed over the sequences; `sequence_weight`: its factor, which only counted rates do not
  /// include yet.
  template <class Old>
  __device__ static void learn(Fragment& w, Old& old, const Fragment& g, RuleStep rule,
                               float sequence_weight) {
    if constexpr (counted) {
      if (rule.step-- == 0) return;
    }
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        float s[state_floats > 0 ? state_floats : 1];
#pragma unroll
        for (int i = 0; i < state_floats; ++i) s[i] = old[i][n][k];
        const float gradient = counted ? sequence_weight * g[n][k] : g[n][k];
        w[n][k] = Rule::apply(w[n][k], s, gradient, rule);
#pragma unroll
        for (int i = 0; i < state_floats; ++i) old[i][n][k] = s[i];
      }
    }
  }

  /// Stores the working copies of W. Of W1, which has two, the one that is not read in this step;
  /// for Task::write_copies both.
  __device__ void store_working_copies(const Panel& p, const Fragment& w) const {
    const int m16 = static_cast<int>(p.m_begin) / 16 + warp();
    const std::uint32_t copies = task_ == Task::write_copies && p.double_buffered != 0 ? 2 : 1;
    for (std::uint32_t copy = 0; copy < copies; ++copy) {
      const std::uint32_t version =
          task_ == Task::write_copies ? copy : 1 - state_.cursor.current_copy;
      std::uint32_t* to =
          a_.working_copies + (p.double_buffered != 0 ? version * a_.copy_stride : 0);
      if (p.copy_over_m != Panel::none) {
        store_copy_over_m<M>(to + static_cast<std::size_t>(p.copy_over_m) * block_words, w, m16);
      }
      if (p.copy_over_n != Panel::none) {
        store_copy_over_n<M>(to + static_cast<std::size_t>(p.copy_over_n) * block_words, w, m16,
                             p.group_blocks);
      }
    }
  }

  const Arguments& a_;
  const Task task_;
  const UpdateState& state_;
  const float* table_;  ///< the step's rates
  unsigned char* stages_;
  Tile* tiles_;
  /// [2][rows] offsets in the arena, in units of 16 bytes: of the next stage to load and, as other
  /// threads may still read them, of the stage before.
  std::uint32_t* row_offsets_;
  float* masters_;               ///< the warp's
  const std::size_t row_bytes_;  ///< of a whole row
  const int terms_, sections_;
  const unsigned first_;  ///< index of the block's first tile
  const int count_;       ///< the block's number of tiles
  /// The next stage to load: its number, and its tile, gradient and section.
  int ahead_ = 0, ahead_tile_ = 0, ahead_term_ = 0, ahead_section_ = 0;
};

/// Thread blocks per SM. With two floats of a rule beside each weight there is shared memory for
/// one only, which may then have all registers.
template <class Rule, bool Listed>
inline constexpr int update_blocks = !Listed && Rule::state >= 2 ? 1 : 2;

/// Grid: any number of thread blocks, which share the tiles evenly. With Task::learn the cursor
/// advances to the next step.
template <class M, class Rule, bool Listed, int Bytes>
__global__ void __launch_bounds__(threads, update_blocks<Rule, Listed>)
    update_kernel(const __grid_constant__ Arguments a, Task task) {
  auto* shared = dynamic_shared<unsigned char>();
  __shared__ UpdateState state;
  let_next_kernel_start();
  wait_for_previous_kernel();
  if (threadIdx.x == 0) state.cursor = *a.update_cursor;
  __syncthreads();
  const float* table = a.table_override;
  if (table == nullptr) {
    table = a.tables +
            static_cast<std::size_t>(state.cursor.frame) * static_cast<std::size_t>(a.shape.table);
  }
  const bool learns = task != Task::learn || table[0] != 0.0F;
  if (task == Task::learn && blockIdx.x == 0 && threadIdx.x == 0) {
    a.step_start->cursor = next_step(a.shape, state.cursor, learns);
  }
  if (!learns) return;
  const int terms = Listed ? a.shape.terms : 1;
  for (int i = static_cast<int>(threadIdx.x); i < terms * static_cast<int>(RowArray::count);
       i += threads) {
    const int term = i / static_cast<int>(RowArray::count);
    const int array = i % static_cast<int>(RowArray::count);
    state.array_offsets[term][array] =
        array_offset<M>(a, static_cast<RowArray>(array), state.cursor, 2 + term, term);
  }
  __syncthreads();
  Updater<M, Rule, Listed, Bytes>(a, task, state, table, shared).run();
}

/// Launches `update_kernel` for rows of a length known at run time.
template <class M, class Rule>
struct UpdateLauncher {
  int bytes;            ///< bytes of a row in a stage: 32, 64 or 128
  bool listed;          ///< whether gradients are listed; else the rule has floats beside weights
  int multiprocessors;  ///< of the device
  bool early;           ///< whether the kernel may start while the one before it ends
  int columns;          ///< the most n of a panel

  template <class What>
  void for_kernel(What&& what) const {
    const auto with = [&]<int Bytes>() {
      if constexpr (std::is_same_v<Rule, Momentum>) {
        if (listed) {
          return what(update_kernel<M, Rule, true, Bytes>,
                      UpdateShape<Bytes, 1>::shared_bytes(columns));
        }
      }
      what(update_kernel<M, Rule, false, Bytes>,
           UpdateShape<Bytes, 1 + Rule::state>::shared_bytes(columns));
    };
    with_constant<32, 64, 128>(bytes, with);
  }
  /// Chooses `bytes`, for rows of `row` bytes, a multiple of 32: as many as divide a row's length
  /// and leave room for everything else in `limit` bytes of shared memory; 32 if none do.
  void choose_bytes(int row, std::size_t limit) {
    for (bytes = 128; bytes > 32; bytes /= 2) {
      if (row % bytes == 0 && static_cast<std::size_t>(shared_bytes()) <= limit) return;
    }
  }
  /// Shared memory of a thread block.
  [[nodiscard]] int shared_bytes() const {
    int all = 0;
    for_kernel([&](auto*, int dynamic_bytes) {
      all = dynamic_bytes + static_cast<int>(sizeof(UpdateState));
    });
    return all;
  }
  void operator()(const Arguments& a, Task task, cudaStream_t stream) const {
    const auto blocks = std::min(a.tile_count, 2 * static_cast<unsigned int>(multiprocessors));
    for_kernel([&](auto* kernel, int shared) {
      cuda_check(
          launch(kernel, {dim3(blocks), threads, static_cast<std::size_t>(shared), stream, early},
                 a, task),
          "launching the update kernel");
    });
  }
};

}  // namespace pvm::inline v0::detail::batch
