// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A step is fused: one persistent kernel with one thread block on every streaming multiprocessor
/// (SM) and one grid-wide barrier per step.
///
/// The planner deals the matrices of the network (W0 and W1 of every unit) out to the SMs. In step
/// t a block does the following for the matrices it owns:
///   gather    load x(t), r(t-1) and h(t-2) from the past into shared memory; compute
///             d1(t) = g(y(t-2)) e and the inner products of x(t) and r(t-1) with the inputs of the
///             listed gradients
///   phase 1   multiply the listed d1, as rows of a matrix: with d1(t), for the correction of
///             W1^T d1(t), and with their weights, as the correction of y(t-1); then W0 x(t)
///   phase 2   finish h(t); then one pass over W1 computes both W1^T d1(t) and W1 r(t-1)
///   publish   store h(t), c(h(t)), the inner products of c(h(t)) with its past, d0(t) and y(t-1)
///             in device memory
///   arrive    at the barrier; while the other blocks finish: fold, convert a later frame, prefetch
///             the first weights of step t+1
/// y lags one step behind: h(t) of a unit may be computed on another SM than its W1, and y(t-1) is
/// not read before step t+1. So one pass over W1 serves both of its products.
///
/// Every sum has an order that depends on the layout alone: there are no atomics on floats.
///
/// This file lists the state of a block and declares its functions, grouped by the file that
/// implements them.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pvm/engine/cuda/general/arguments.hpp>
#include <pvm/engine/cuda/general/device.cuh>
#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/tuning.hpp>

namespace pvm::inline v0::detail::general {

/// A tile of a panel in the registers of a warp: RG rows, of which each lane holds one float4.
template <int RG>
struct Tile {
  float4 w[RG];
};

/// The position of a block in the run: step t and its frame. It lies in shared memory, because the
/// registers are needed for weights. One thread writes it.
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

/// The state of a running block. Every function is inlined. The code of a step has to stay in the
/// instruction cache: each function is called from as few places as possible, and loops are
/// unrolled only to overlap loads.
///
/// `RG`: rows of a tile. `Known`: NetworkConstants.
template <int RG, class Known>
struct Block {
  const StepArguments& a;
  const Program& p;
  Now& now;
  const std::uint32_t* blob;  // in shared memory: this SM's Program and its lists
  float* area;                // in shared memory, behind the blob: the base of all float offsets
  float4* resident;           // in shared memory: the panels that stay there during a launch
  float4* y_part;             // partial sums of y, in shared or device memory

  // -------------------------------------------------------------- sizes and places

  // Sizes: constants if the kernel is compiled for one number of hidden values.
  static constexpr int fixed_hidden = Known::hidden;
  static constexpr bool fixed = fixed_hidden != 0;
  static constexpr int fixed_groups = (fixed_hidden + RG - 1) / RG;
  static_assert(fixed_groups <= step_warps, "units of so many values take several passes");
  static constexpr int fixed_parts = fixed ? step_warps / (fixed_groups + !fixed) : 1;
  __device__ __forceinline__ int hidden() const { return fixed ? fixed_hidden : a.hidden; }
  __device__ __forceinline__ int groups() const { return fixed ? fixed_groups : a.groups; }
  __device__ __forceinline__ int padded() const { return fixed ? fixed_groups * RG : a.padded; }
  __device__ __forceinline__ int parts() const { return fixed ? fixed_parts : a.parts; }
  __device__ __forceinline__ int passes() const { return fixed ? 1 : a.passes; }
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
  /// Row group of this warp's tiles in the first pass, and column part of its tiles in any pass.
  __device__ __forceinline__ int group() const { return by_parts(warp()); }
  __device__ __forceinline__ int part() const { return warp() - group() * parts(); }

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

  /// Sets `now` to step t, or moves it to the next step. One thread calls these, between two
  /// __syncthreads() of the block.
  __device__ void set_step(unsigned long long t) const;
  __device__ void next_step() const;
  /// Makes the coefficient tables of the step current: if any table number changed, copies the
  /// tables to shared memory (if they lie there). All threads call it.
  __device__ void open_tables() const;
  /// One step, up to the publication. `tail`: the launch's last step is done; compute only its y,
  /// for readers and for the next launch. `one` and `two`: see run_items.
  __device__ void run_step(bool tail, Tile<RG>& one, Tile<RG>& two) const;

  // -------------------------------------------------------------- gather.cuh

  /// Loads x(t), r(t-1) and h(t-2); in a tail without x(t).
  __device__ void gather_inputs(bool tail) const;
  /// Weighted inner products for W0: for every slot task and every listed gradient j the sum over
  /// the task's slots of w_j * (x_j . x). correction_factors adds these up to q_j.
  __device__ void gather_slots() const;
  /// d1(t) = g(y(t-2)) e, in shared memory and as this step's row of the listed d1; and the scores.
  __device__ void gather_errors(bool scored) const;

  // -------------------------------------------------------------- products.cuh

  /// *out(task, age) = sum over o < length of current(task, o) times the value of step
  /// t - (back + 3 + age) at place + o, where place(task) returns {place, back}. Eight lanes
  /// compute one sum.
  template <class Current, class Place, class Out>
  __device__ void inner_products(int tasks, int length, Current current, Place place,
                                 Out out) const;
  /// The inner products of a source with the listed inputs, [age]. `version`: 0 to 5, taken
  /// modulo 3.
  __device__ float* inner_row(int version, std::uint32_t source) const;
  /// Inner products of r(t-1) with the r of the listed gradients, slab by slab.
  __device__ void representation_products() const;
  /// Inner products of c(h(t)) with its past, for all units that read c(h(t)): in step t+1 and, as
  /// part of the B half of x, in step t+2.
  __device__ void publish_products() const;

  // -------------------------------------------------------------- corrections.cuh

  /// Computes q_j for W0 (skipped in a tail), and the weights of the listed d1 in y(t-1).
  __device__ void correction_factors(bool tail) const;
  /// out[chunk][row] = sum, over the ages of the chunk, of factor(age) times the value of step
  /// t - (back + age) at place + row. One warp calls it.
  template <class Factor>
  __device__ void correct(int chunk, float* out, std::uint32_t place, int back,
                          Factor factor) const;
  /// What the listed gradients add to W0 x: the sum of q_j d0_j.
  __device__ void correct_hidden() const;
  /// What the listed gradients add to W1^T d1: the sum of w_j (d1_j . d1) h_j.
  __device__ void correct_output() const;

  // -------------------------------------------------------------- tiles.cuh

  /// The number of lanes that have columns of the item's tile.
  __device__ static int lanes_of(const WarpItem& item);
  /// Loads the item's tile. Lanes without columns of it keep their old values, which `compute` does
  /// not use.
  __device__ void load(Tile<RG>& tile, const WarpItem& item, bool tail) const;
  /// w . x. The four products are added up before they enter a sum over many columns: that is more
  /// accurate.
  __device__ static float dot(float4 w, float4 x);
  /// out[r] = the sum of sums[r] over the lanes of the warp.
  __device__ void sum_rows(const float (&sums)[RG], float* out) const;
  /// Computes the products that the item's flags name: adds to the row sums in `sums`, and to
  /// partial y in `y_part`.
  __device__ void compute(const Tile<RG>& tile, const WarpItem& item, float (&sums)[RG]) const;
  /// y_part += sum over the tile's rows r of coefficient(r) * row r.
  __device__ void add_to_y(const Tile<RG>& tile, const WarpItem& item, std::uint32_t flags) const;
  /// Runs this warp's items, with a call of `middle` between the phases. `one` and `two` hold the
  /// tiles of the first two items at the start.
  template <class Middle>
  __device__ void run_items(bool tail, Tile<RG>& one, Tile<RG>& two, Middle middle) const;
  /// The items of this warp.
  __device__ const WarpItem* warp_items() const;
  /// Issues the loads of the first two tiles.
  __device__ void prefetch(Tile<RG>& one, Tile<RG>& two) const;

  // -------------------------------------------------------------- finish.cuh

  /// The sum of a row: over the column parts, then over the chunks of corrections that lie behind
  /// them. `sum`: offset of [part + chunk][padded rows].
  __device__ float total(std::uint32_t sum, int row) const;
  /// Publishes h(t) and c(h(t)).
  __device__ void finish_hidden() const;
  /// Publishes d0(t) = g(h(t-2)) * (W1^T d1(t)).
  __device__ void finish_gradient() const;
  /// Adds up partial y and publishes y(t-1).
  __device__ void finish_outputs() const;

  // -------------------------------------------------------------- frames.cuh

  /// Converts the frames of step t + ahead, from [row][column][channel] bytes to patches of
  /// squeezed floats in that step's row of the past. All blocks share the work.
  __device__ void convert_frame(int ahead) const;
  /// Inner products of the frame of step t with its past, for the patches of this block's units.
  __device__ void patch_products() const;

  // -------------------------------------------------------------- folds.cuh

  /// Folds the panels whose phase is that of step t. stage_first_fold() has issued the copies for
  /// the first of them.
  __device__ void fold_step() const;
  /// Issues the copies of the gradients that the first fold of the step needs.
  __device__ void stage_first_fold() const;
  /// Adds listed gradients to a panel: sink = source + sum over n < terms of factor(n) g(age(n)),
  /// and the same for the bias row in `bias_sink`. `staged`: the copies of the first terms have
  /// been issued. All threads call it.
  template <class Age, class Factor>
  __device__ void fold_panel(const Fold& fold, int terms, bool staged, Age age, Factor factor,
                             const float4* source, float4* sink, float* bias_sink) const;
  /// How many terms can be staged at a time.
  __device__ static int most_terms(const Fold& fold);
  /// Issues the asynchronous copies of the factors of `count` terms from `base` on: the row factors
  /// (W0: d0, W1: r) to [term][row group][8] and the column factors (W0: x, W1: d1) to
  /// [term][column].
  template <class Age>
  __device__ void stage_gradients(const Fold& fold, int base, int count, Age age) const;
  /// Adds the staged terms to the panel. Padding rows get the row factors of the unit's last row.
  /// No result depends on them: their row sums are not used, and y multiplies them by 0, for which
  /// they only have to be finite.
  template <class Factor>
  __device__ void fold_tiles(const Fold& fold, int base, int count, Factor factor,
                             const float4* source, float4* sink) const;
  /// Adds the staged terms to the bias column of W1 (r = 1). It is stored as a row behind the
  /// listed d1, in `a.past_d1` or in a copy of it, `sink`.
  template <class Factor>
  __device__ void fold_bias(const Fold& fold, int base, int count, Factor factor,
                            float* sink) const;
  /// Copies the resident panels from the arena to shared memory, or back.
  __device__ void move_resident(bool in) const;
};

}  // namespace pvm::inline v0::detail::general
