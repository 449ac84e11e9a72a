// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The fused step: one persistent kernel, one block on every multiprocessor, one barrier a step.
///
/// In step t a block computes, for what it owns,
///   gather    x(t), d1(t) = g(y(t-2)) e, r(t-1), inner products with the listed past
///   phase 1   listed d1 as rows (their shares of W1^T d1 and of y), then W0 x
///   phase 2   h(t); then W1: W1^T d1(t) and W1 r(t-1), one pass for both
///   publish   h, c(h) and their inner products, d0(t), y(t-1)
///   arrive    at the barrier; in its shadow: fold, convert a later frame, prefetch weights
/// Everything is summed in an order that depends on the layout alone: no atomics on floats.
///
/// This file is the table of contents: what a block knows, and what it can do. The files that are
/// named in it say how.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include <pvm/engine/cuda/fused/arguments.hpp>
#include <pvm/engine/cuda/fused/device.cuh>
#include <pvm/engine/cuda/fused/program.hpp>
#include <pvm/engine/cuda/tuning.hpp>

namespace pvm::inline v0::detail::fused {

/// A warp's piece of a panel in registers.
template <int RG>
struct Tile {
  float4 w[RG];
};

/// Where a block stands: in shared memory, because registers are for weights.
struct Now {
  int ring, inner, history, phase, y;  ///< t modulo ring, 3, history, R, 2
  int sequence;
  int kind;  ///< activation, for derivatives of this step
  int frame, first, last;
  unsigned int passed;        ///< barriers
  unsigned long long begin;   ///< step of the launch
  const float* coefficients;  ///< of the staging block
  const std::uint32_t* index;
  const std::uint8_t* const* frames;
  const float* squeezed;  ///< instead of frames, or null
  const std::uint8_t* scored;
};

static_assert(sizeof(Now) <= 32 * sizeof(float), "the planner keeps 32 words for it");

/// Everything a block knows while it runs. Every function is inlined: the code of a step has to
/// stay in the instruction cache, so each appears once, and loops are unrolled only to overlap
/// loads.
template <int RG, bool Single, class Known>
struct Block {
  const StepArguments& a;
  const Program& p;
  Now& now;
  const std::uint32_t* blob;  // shared
  float* area;                // shared
  float4* resident;           // shared
  float4* y_part;             // shared or global

  // -------------------------------------------------------------- what it knows

  // Sizes, constants where the kernel is compiled for them.
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
  __device__ __forceinline__ int by_stage_row(int n) const {
    return fixed ? n / (fixed_groups * 8 + !fixed) : a.by_stage_row.quotient(n);
  }

  /// The activation of a sum, and the derivative at a value of step t - 2.
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
  /// Of this warp's tiles in the first pass.
  __device__ __forceinline__ int group() const { return by_parts(warp()); }
  __device__ __forceinline__ int part() const { return warp() - group() * parts(); }

  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return reinterpret_cast<const T*>(blob + at);
  }
  __device__ __forceinline__ int batch() const { return Single ? 1 : a.batch; }
  /// A term of the list is an age and a sequence.
  __device__ __forceinline__ int age_of(int term) const {
    return Single ? term : a.by_batch.quotient(term);
  }
  __device__ __forceinline__ int sequence_of(int term, int age) const {
    return Single ? 0 : term - age * a.batch;
  }

  /// Coefficients of a layer of `layer_list`.
  __device__ __forceinline__ const float* layer_table(std::uint32_t layer) const {
    return p.tables_shared != 0
               ? area + p.tables + layer * a.table_stride
               : now.coefficients + static_cast<std::size_t>(held()[layer]) * a.table_stride;
  }
  /// Which tables are held, by layer of `layer_list`.
  __device__ __forceinline__ std::uint32_t* held() const {
    return reinterpret_cast<std::uint32_t*>(area + p.terms);
  }
  /// Row of the weights of the listed gradients for a panel of `phase`.
  __device__ __forceinline__ int phase_row(std::uint32_t phase) const {
    const int row = now.phase - static_cast<int>(phase);
    return (row < 0 ? row + a.period : row) * a.terms;
  }
  /// Offset of step t - back; back >= 0.
  __device__ __forceinline__ unsigned int past_row(int back, int sequence) const {
    int row = now.ring - back;
    row = row < 0 ? row + a.ring : row;
    return static_cast<unsigned>(Single ? row : row * a.batch + sequence) * a.past_row;
  }
  __device__ __forceinline__ const std::uint32_t* source_words() const {
    return p.words_shared != 0 ? reinterpret_cast<const std::uint32_t*>(area + p.words_copy)
                               : a.words + p.x_words;
  }

  // -------------------------------------------------------------- step.cuh

  /// Where step t stands in the rings. One thread's work, and so is the next; the others wait.
  __device__ void set_step(unsigned long long t) const;
  __device__ void next_step() const;
  /// Makes the tables of a step current. `index` lists the step's tables, by layer.
  __device__ void open_tables() const;
  /// One step of one sequence, up to the publication. `tail`: only y of the step before, for
  /// whoever looks and for the next launch.
  __device__ void step_sequence(bool again, bool tail, Tile<RG>& one, Tile<RG>& two) const;

  // -------------------------------------------------------------- gather.cuh

  /// x(t), r(t-1) and h(t-2).
  __device__ void gather_inputs(bool tail) const;
  /// The part of every listed gradient in this step's sums, q = sum over slots of w * (x_j . x).
  __device__ void gather_slots() const;
  /// d1(t) = g(y(t-2)) e, and the scores.
  __device__ void gather_errors(bool scored) const;

  // -------------------------------------------------------------- products.cuh

  /// out(task, term) gets the sum over o < length of current(task, o) times the value `back(task) +
  /// 3 + age` steps ago at `place(task) + o`. Eight lanes work on one.
  template <class Current, class Place, class Out>
  __device__ void inner_products(int tasks, int length, Current current, Place place,
                                 Out out) const;
  /// Where the inner products of a source with the listed ones lie.
  __device__ float* inner_row(int version, int sequence, std::uint32_t source) const;
  /// Inner products of r(t-1) with the listed ones, slab by slab.
  __device__ void gather_raw() const;
  /// Those of c(h(t)), for all that read it in the next step.
  __device__ void publish_products() const;

  // -------------------------------------------------------------- corrections.cuh

  /// q, and the weights of the listed d1 in y(t-1).
  __device__ void weigh_terms(bool tail) const;
  /// out[row] = sum over a chunk of the terms of factor(term) * value, `back` + age steps ago, at
  /// `place` + row.
  template <class Factor>
  __device__ void correct(int chunk, float* out, std::uint32_t place, int back,
                          Factor factor) const;
  /// What the listed gradients add to W0 x: sum of q_j d0_j.
  __device__ void correct_hidden() const;
  /// What the listed gradients add to W1^T d1: sum of r_j (w_j d1_j . d1).
  __device__ void correct_output() const;

  // -------------------------------------------------------------- tiles.cuh

  __device__ static int lanes_of(const WarpItem& item);
  /// Lanes without a part of the tile keep what they had: `compute` does not use it.
  __device__ void load(Tile<RG>& tile, const WarpItem& item, bool tail) const;
  /// Four products are added before they meet a sum over many columns: it is more exact so.
  __device__ static float dot(float4 w, float4 x);
  /// Sums `v[r]` over the lanes and writes the sums to out[r].
  __device__ void sum_rows(const float (&sums)[RG], float* out) const;
  /// What an item asks for: row sums go on in `sums`, partial y in `y_part`.
  __device__ void compute(const Tile<RG>& tile, const WarpItem& item, float (&sums)[RG]) const;
  __device__ void add_to_y(const Tile<RG>& tile, const WarpItem& item, std::uint32_t flags) const;
  /// All items, with `middle` between the phases. `one` and `two` hold the first two tiles and, if
  /// another sequence follows, hold them again at the end.
  template <class Middle>
  __device__ void run_items(bool again, bool tail, Tile<RG>& one, Tile<RG>& two,
                            Middle middle) const;
  __device__ const WarpItem* warp_items() const;
  /// Asks for the first two tiles.
  __device__ void prefetch(Tile<RG>& one, Tile<RG>& two) const;

  // -------------------------------------------------------------- finish.cuh

  /// Row sums plus corrections, which lie behind them.
  __device__ float total(std::uint32_t sum, int row) const;
  /// h(t) and c(h(t)).
  __device__ void finish_hidden() const;
  /// d0(t).
  __device__ void finish_gradient() const;
  /// y(t-1).
  __device__ void finish_outputs() const;

  // -------------------------------------------------------------- frames.cuh

  /// Converts the frame of step t + ahead: [row][column][channel] bytes to patches of floats.
  __device__ void convert_frame(int ahead) const;
  /// Inner products of the frame of step t, for the patches of this block's units.
  __device__ void patch_products() const;

  // -------------------------------------------------------------- folds.cuh

  /// The panels whose turn it is; the first one's gradients have been asked for.
  __device__ void fold_step() const;
  /// Asks for what the step's first fold will need.
  __device__ void stage_first_fold() const;
  /// Adds listed gradients to a panel: out = panel + sum over n < listed of factor(n) g(age(n)).
  /// `staged`: the first terms have been asked for.
  template <class Age, class Factor>
  __device__ void fold_panel(const Fold& fold, int listed, bool staged, Age age, Factor factor,
                             const float4* source, float4* sink, float* bias_sink) const;
  /// That there is room to stage at a time.
  __device__ static int most_terms(const Fold& fold);
  /// Asks for d0 and x (W0) or r and d1 (W1): [term][row group][8] and [term][column].
  template <class Age>
  __device__ void stage_gradients(const Fold& fold, int base, int count, Age age) const;
  /// Rows beyond the unit's last gather rubbish, as finite as the last: nobody reads them.
  template <class Factor>
  __device__ void fold_tiles(const Fold& fold, int base, int count, Factor factor,
                             const float4* source, float4* sink) const;
  /// The bias column of W1, r = 1: a row behind the listed d1, in place or in a copy.
  template <class Factor>
  __device__ void fold_bias(const Fold& fold, int base, int count, Factor factor,
                            float* sink) const;
  /// Resident panels in (from the arena) or out.
  __device__ void move_resident(bool in) const;
};

}  // namespace pvm::inline v0::detail::fused
