// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A step is fused: one persistent kernel with one thread block on every streaming multiprocessor
/// (SM) and one grid-wide barrier per step.
///
/// The planner deals the matrices of the network (W0 and W1 of every unit) out to the SMs. In step
/// t a thread block does the following for the matrices it owns:
///   gather    load x(t), r(t-1) and h(t-2) from the past into shared memory; compute
///             d1(t) = g(y(t-2)) e and the inner products of x(t) and r(t-1) with the inputs of the
///             listed gradients
///   early     multiply the listed d1, as rows of a matrix: with d1(t), for the correction of
///             W1^T d1(t), and with their weights, as the correction of y(t-1); then W0 x(t)
///   late      finish h(t); then one pass over W1 computes both W1^T d1(t) and W1 r(t-1)
///   publish   store h(t), c(h(t)), the inner products of c(h(t)) with its past, d0(t) and y(t-1)
///             in device memory
///   arrive    at the barrier; while the other thread blocks finish: fold, convert a later frame,
///             prefetch the first weights of step t+1
/// y lags one step behind: h(t) of a unit may be computed on another SM than its W1, and y(t-1) is
/// not read before step t+1. So one pass over W1 serves both of its products.
///
/// Every sum has an order that depends on the layout alone: there are no atomics on floats.
///
/// This file lists the state of a thread block and declares its functions, grouped by the file that
/// explains and implements them.

#include <cuda_runtime.h>

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

#include <pvm/engine/cuda/general/arguments.hpp>
#include <pvm/engine/cuda/general/device.cuh>
#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/engine/cuda/general/weights.hpp>

namespace pvm::inline v0::detail::general {

/// A tile of a panel in the registers of a warp: RG rows, of which each lane holds four weights.
template <class Four, int RG>
struct TileOf {
  Four w[RG];
};
/// Where a panel's weights are: as products read them, and their low halves, if they have any.
template <class Four>
struct PanelHome {
  Four* weights;
  Four* low;
};

struct FoldedGradients;

/// The position of a thread block in the run: step t and its frame. It lies in shared memory,
/// because the registers are needed for weights. One thread writes it.
struct Now {
  int ring, inner, history, phase, y;  ///< t modulo a.ring, 3, a.history, R and 2
  int kind;                            ///< activation number for the derivatives of this step
  int frame, first, last;      ///< index in the staging block: now, launch's first, past its last
  unsigned int passed;         ///< grid-wide barriers passed since the engine was made
  unsigned long long begin;    ///< the number t of the launch's first step
  const float* coefficients;   ///< tables of the staging block, [table][table_stride]
  const std::uint32_t* index;  ///< [step of the staging block][layer]: table number
  const std::uint8_t* const* frames;  ///< [step of the staging block]
  const float* squeezed;              ///< instead of frames, or null
  const std::uint8_t* scored;         ///< [step of the staging block]
};

static_assert(sizeof(Now) <= 32 * sizeof(float), "the planner keeps 32 words for it");

/// The state of a running thread block. Every function is inlined. The code of a step has to stay
/// in the instruction cache: each function is called from as few places as possible, and loops are
/// unrolled only to overlap loads.
///
/// `Precision`: of the weights. `RG`: rows of a tile. `Known`: NetworkConstants.
template <class Precision, int RG, class Known>
struct ThreadBlock {
  using Weights = Stored<Precision>;
  using Four = typename Weights::Four;
  using Tile = TileOf<Four, RG>;
  /// Tiles whose loads are in flight while a warp multiplies, and those of them that stay in
  /// registers during other work.
  static constexpr int tiles_in_flight = Weights::tiles_in_flight;
  static constexpr int held_tiles = RG == 8 ? Weights::held_tall_tiles : Weights::held_tiles;
  struct Tiles {
    Tile of[tiles_in_flight];
  };
  /// Calls use(number, tile) for each tile. It is not a loop, because registers have no
  /// indices.
  template <class Use>
  __device__ __forceinline__ static void for_each_tile(Tiles& tiles, Use use) {
    [&]<int... K>(std::integer_sequence<int, K...>) { (use(K, tiles.of[K]), ...); }
    (std::make_integer_sequence<int, tiles_in_flight>{});
  }
  using Home = PanelHome<Four>;
  static constexpr int warps = step_warps<Precision>(RG), threads = warps * 32;

  const StepArguments& a;
  const Program& p;
  Now& now;
  std::uint32_t* blob;  // in shared memory: this SM's Program and its lists
  float* area;          // in shared memory, behind the blob: the base of all float offsets
  Four* resident;       // in shared memory: the panels that stay there during a launch
  float4* y_part;       // partial sums of y, in shared or device memory

  // -------------------------------------------------------------- sizes and places

  // Sizes: constants if the kernel is compiled for one number of hidden values.
  static constexpr int fixed_hidden = Known::hidden;
  static constexpr bool fixed = fixed_hidden != 0;
  static constexpr int fixed_groups = (fixed_hidden + RG - 1) / RG;
  static_assert(fixed_groups <= warps, "units of so many values take several rounds");
  static constexpr int fixed_parts = fixed ? warps / (fixed_groups + !fixed) : 1;
  __device__ __forceinline__ int hidden() const { return fixed ? fixed_hidden : a.hidden; }
  __device__ __forceinline__ int groups() const { return fixed ? fixed_groups : a.groups; }
  __device__ __forceinline__ int padded() const { return fixed ? fixed_groups * RG : a.padded; }
  __device__ __forceinline__ int parts() const { return fixed ? fixed_parts : a.parts; }
  __device__ __forceinline__ int rounds() const { return fixed ? 1 : a.rounds; }
  __device__ __forceinline__ int by_hidden(int n) const {
    return fixed ? n / (fixed_hidden + !fixed) : a.by_hidden.quotient(n);
  }
  __device__ __forceinline__ int by_parts(int n) const {
    return fixed ? n / fixed_parts : a.by_parts.quotient(n);
  }
  __device__ __forceinline__ int by_row_factors(int n) const {
    return fixed ? n / (fixed_groups * 8 + !fixed) : a.by_row_factors.quotient(n);
  }

  /// The activation of a sum, and the derivative at an activity of step t - 2.
  __device__ __forceinline__ float activated(float sum) const {
    if constexpr (std::is_void_v<typename Known::Own>) {
      return activate(a.activation, sum);
    } else {
      return Known::Own::value(sum);
    }
  }
  __device__ __forceinline__ float derived(float value) const {
    if constexpr (std::is_void_v<typename Known::Own>) {
      return derive(now.kind, value);
    } else {
      return Known::Own::derivative(value);
    }
  }

  __device__ __forceinline__ static int warp() { return static_cast<int>(threadIdx.x >> 5); }
  __device__ __forceinline__ static int lane() { return static_cast<int>(threadIdx.x & 31); }
  /// Row groups of a round.
  __device__ __forceinline__ int groups_at_once() const {
    return rounds() == 1 ? groups() : by_parts(warps);
  }
  /// Row group of this warp's tiles in the first round, and column part of its tiles in any round.
  __device__ __forceinline__ int group() const { return by_parts(warp()); }
  __device__ __forceinline__ int part() const { return warp() - group() * parts(); }

  /// A panel in the arena.
  __device__ __forceinline__ Home in_arena(std::uint32_t weight) const {
    return {static_cast<Four*>(a.arena) + weight, static_cast<Four*>(a.low_halves) + weight};
  }
  /// Warps that share a piece of work, while other warps do other pieces: `count` of them from
  /// `first` on.
  struct Team {
    int first, count;
    __device__ __forceinline__ bool has_me() const {
      return warp() >= first && warp() < first + count;
    }
    __device__ __forceinline__ int thread() const {
      return static_cast<int>(threadIdx.x) - 32 * first;
    }
    __device__ __forceinline__ int threads() const { return 32 * count; }
    __device__ __forceinline__ int my_warp() const { return warp() - first; }
  };
  __device__ __forceinline__ Team team(const std::uint32_t (&ends)[4], int which) const {
    const int first = which == 0 ? 0 : static_cast<int>(ends[which - 1]);
    return {first, static_cast<int>(ends[which]) - first};
  }
  __device__ __forceinline__ static Team everybody() { return {0, warps}; }

  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return reinterpret_cast<const T*>(blob + at);
  }

  /// The coefficients (see CoefficientTables) of a layer; `layer` is an index into `layer_list`.
  __device__ __forceinline__ const float* layer_table(std::uint32_t layer) const {
    return p.tables_shared != 0
               ? area + p.tables + layer * a.table_stride
               : now.coefficients +
                     static_cast<std::size_t>(table_numbers()[layer]) * a.table_stride;
  }
  /// The numbers of the current tables, by index into `layer_list`.
  __device__ __forceinline__ std::uint32_t* table_numbers() const {
    return reinterpret_cast<std::uint32_t*>(area + p.table_numbers);
  }
  /// Offset, in a table's weights [steps since the fold][age], of the row for a panel of `phase`.
  __device__ __forceinline__ int phase_row(std::uint32_t phase) const {
    const int row = now.phase - static_cast<int>(phase);
    return (row < 0 ? row + a.period : row) * a.terms;
  }
  /// Offset in floats of the row of step t - back in `a.past`; 0 <= back <= a.ring.
  __device__ __forceinline__ unsigned int past_row(int back) const {
    int row = now.ring - back;
    row = row < 0 ? row + a.ring : row;
    return static_cast<unsigned>(row) * a.past_row;
  }
  /// The source words of x, r and the targets, one list behind the other.
  __device__ __forceinline__ const std::uint32_t* source_words() const {
    return p.words_shared != 0 ? reinterpret_cast<const std::uint32_t*>(area + p.words_copy)
                               : a.source_words + p.source_words;
  }

  // -------------------------------------------------------------- step.cuh

  __device__ void set_step(unsigned long long t) const;
  __device__ void next_step() const;
  __device__ void open_tables() const;
  __device__ void run_step(bool tail, Tiles& tiles) const;

  // -------------------------------------------------------------- gather.cuh

  __device__ void gather_inputs(const Team& team, bool tail) const;
  __device__ void weigh_sources(const Team& team) const;
  __device__ void list_d1(std::size_t at, float v) const;
  __device__ void gather_errors(const Team& team, bool scored) const;

  // -------------------------------------------------------------- products.cuh

  template <class Current, class Place, class Out>
  __device__ void inner_products(const Team& team, int tasks, int length, Current current,
                                 Place place, Out out) const;
  __device__ float* inner_row(int version, std::uint32_t source) const;
  __device__ void representation_products(const Team& team) const;
  __device__ void publish_products(const Team& team) const;

  // -------------------------------------------------------------- corrections.cuh

  __device__ void correction_factors(bool tail) const;
  template <class Factor>
  __device__ void correct(int section, float* out, std::uint32_t place, int back,
                          Factor factor) const;
  __device__ void correct_hidden() const;
  __device__ void correct_output(const Team& team) const;

  // -------------------------------------------------------------- tiles.cuh

  __device__ static int lanes_of(const WarpItem& item);
  __device__ void load(Tile& tile, const WarpItem& item, bool tail) const;
  __device__ static float dot(float4 w, float4 x);
  __device__ void sum_rows(const float (&sums)[RG], float* out) const;
  __device__ void compute(const Tile& tile, const WarpItem& item, float (&sums)[RG]) const;
  __device__ void add_to_y(const Tile& tile, const WarpItem& item, std::uint32_t flags) const;
  template <class Middle>
  __device__ void run_items(bool tail, Tiles& tiles, Middle middle) const;
  __device__ const WarpItem* warp_items() const;
  __device__ const WarpItem& item_of(const WarpItem* items, std::uint32_t i) const;
  __device__ void open_chunk(std::uint32_t chunk) const;
  __device__ void prefetch(Tiles& tiles) const;

  // -------------------------------------------------------------- finish.cuh

  __device__ float total(std::uint32_t sum, int row) const;
  __device__ void finish_hidden(const Team& team) const;
  __device__ void finish_gradient(const Team& team) const;
  __device__ void finish_outputs(const Team& team) const;

  // -------------------------------------------------------------- frames.cuh

  __device__ void convert_frame(int ahead) const;
  __device__ void patch_products(const Team& team) const;

  // -------------------------------------------------------------- folds.cuh

  __device__ void fold_step() const;
  __device__ void stage_first_fold() const;
  template <class Age, class Factor>
  __device__ void fold_panel(const Fold& fold, int terms, bool staged, Age age, Factor factor,
                             const Four* source, Four* sink, float* bias_sink) const;
  __device__ static int most_terms(const Fold& fold);
  template <class Age>
  __device__ void stage_gradients(const Fold& fold, int base, int count, Age age) const;
  template <class Factor>
  __device__ void fold_tiles(const Fold& fold, int base, int count, Factor factor,
                             const Four* source, Four* sink) const;
  template <class Factor>
  __device__ void fold_bias(const Fold& fold, int base, int count, Factor factor,
                            float* sink) const;
  __device__ void move_resident(bool in) const;

  // -------------------------------------------------------------- folds_16bit.cuh

  /// Factors are staged `fold_scale` times as large: in fp16 a rate times d0 may be smaller than
  /// the smallest number, 2^-24.
  static constexpr float fold_scale = std::same_as<Precision, fp16> ? 0x1p12F : 1.0F;
  __device__ __forceinline__ std::uint32_t* staged_columns(int slot) const {
    return reinterpret_cast<std::uint32_t*>(area + p.column_factors) + slot * p.fold_slot;
  }
  __device__ __forceinline__ std::uint32_t* staged_rows(int slot) const {
    return reinterpret_cast<std::uint32_t*>(area + p.row_factors) + slot * p.fold_slot;
  }
  template <class Of, class From, class To>
  __device__ void fold_together(const Fold* folds, int count, Of of, From source, To sink,
                                float* bias_sink) const;
  __device__ void stage_factors(const Fold& fold, int slot, const FoldedGradients& gradients,
                                int base) const;
  __device__ const float* listed_d1(int age) const;
  template <class Value>
  __device__ void stage_pair(std::uint32_t* to, int count, const bool (&there)[2],
                             Value value) const;
  /// A lane's weights of a tile that folds: four of each of two rows, in four places.
  struct FoldedTile {
    Four high[4][2], low[4][2];
  };
  /// Where they are in the panel: `at` is this lane's first place.
  struct FoldPlace {
    int at, first, lanes, rows_here, columns_here;
    __device__ __forceinline__ bool has(int j, int r) const {
      return 8 * j < columns_here && r < rows_here;
    }
    __device__ __forceinline__ int of(int j, int r) const { return at + r * lanes + 8 * j; }
  };
  __device__ __forceinline__ FoldPlace fold_place(const Fold& fold, int group) const {
    const int e = lane() >> 2, row = 2 * (lane() & 3);
    const int width = static_cast<int>(fold.width);
    const int first = part() * static_cast<int>(fold.part_width);
    const int lanes = min(static_cast<int>(fold.part_width), width - first);
    return {(group * width + first) * RG + row * lanes + e, first, lanes, RG - row, lanes - e};
  }
  __device__ void load_halves(FoldedTile& tile, const Fold& fold, int group, Home source) const;
  __device__ void add_staged(FoldedTile& tile, const Fold& fold, int slot, int group,
                             Home sink) const;
  __device__ void add_to_bias(const Fold& fold, const FoldedGradients& gradients, int base,
                              float* sink) const;
  __device__ void fold_step_16bit() const;
  __device__ void prefetch_folds() const;
};

}  // namespace pvm::inline v0::detail::general
