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

#include <cstdint>
#include <type_traits>

#include <pvm/engine/cuda/cursor.hpp>
#include <pvm/engine/cuda/fused/program.hpp>
#include <pvm/engine/cuda/instructions.cuh>
#include <pvm/engine/cuda/tuning.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::fused {

/// Division by a number that is known at launch; exact while n * d < 2^31.
struct Divider {
  unsigned int d = 1, magic = 1U << 31;

  Divider() = default;
  explicit Divider(int divisor)
      : d(static_cast<unsigned>(divisor)), magic(((1U << 31) + d - 1) / d) {}
  __device__ __forceinline__ int quotient(int n) const {
    return static_cast<int>((static_cast<unsigned long long>(n) * magic) >> 31);
  }
};

struct StepArguments {
  // Sizes.
  int hidden, padded, groups, parts, passes;
  int terms, period, batch, list, history, history_rows, chunks;
  int ring;  ///< rows of the past
  int units, layers, patches, patch, block_size, channels, side;
  unsigned int past_row;                          ///< floats of a row, one sequence
  unsigned int first_raw, first_d0, first_pixel;  ///< where h, d0 and the frame start in a row
  int y_columns;
  int activation;  ///< 0 polynomial, 1 with the true derivative, 2 logistic
  int sign_error;
  int staging, block_steps, table_stride;
  int most_steps;  ///< steps of this launch
  Divider by_list, by_hidden, by_history_rows, by_chunks, by_padded, by_batch, by_stage_row,
      by_parts;
  // Tables.
  const std::uint32_t* blobs;
  const std::uint32_t* blob_start;
  const std::uint32_t* words;
  // State.
  float4* arena;     ///< Z
  float* past_d1;    ///< SM by SM [history rows][its columns]; Z of the bias is the row behind them
  float* past;       ///< [ring][batch][c(h) | h | d0 | frame | 0 | 1]
  float* y;          ///< [2][batch][columns]
  float* inner;      ///< [3][batch][units + patches + 1][list], the last row is 1
  double* score;     ///< [blocks][threads][3]
  float* y_scratch;  ///< [blocks][y_scratch_floats]
  unsigned long long y_scratch_floats;
  Cursor* cursor;
  unsigned int* barrier;
  // Staging: [staging][...]
  const std::uint8_t* const* frames;  ///< [staging][block_steps][batch]: [side][side][channels]
  const float* squeezed;       ///< [staging][block_steps][batch][...], where a block brings floats
  const std::uint8_t* scored;  ///< [staging][block_steps][batch]
  /// [staging][1 + (block_steps + 1) * layers]: the number of steps (with `frames_are_floats`),
  /// then for every step, and the one after them, which table every layer has.
  const std::uint32_t* index;
  const float* coefficients;  ///< [staging][(block_steps + 1) * layers][table_stride]
};

inline constexpr unsigned int full_warp = 0xffffffffU;

/// Values that other multiprocessors write: never from a stale first-level cache.
__device__ __forceinline__ float load_fresh(const float* p) { return __ldcg(p); }

__device__ __forceinline__ float activate(int kind, float a) {
  return kind == 2 ? Logistic::value(a) : Polynomial::value(a);
}
__device__ __forceinline__ float derive(int kind, float v) {
  return kind == 0 ? Polynomial::derivative(v)
                   : (kind == 1 ? PolynomialTrue::derivative(v) : Logistic::derivative(v));
}

/// A barrier of all blocks in two halves; `passed` counts since the engine was made.
__device__ __forceinline__ void barrier_arrive(unsigned int* counter) {
  __syncthreads();
  if (threadIdx.x == 0) add_one_release(counter);
}
/// Polls without ordering, which would empty the first-level cache every time; orders once.
__device__ __forceinline__ void barrier_wait(const unsigned int* counter, unsigned int& passed) {
  if (threadIdx.x == 0) {
    const unsigned int target = ++passed * gridDim.x;
    while (static_cast<int>(load_relaxed(counter) - target) < 0) {
    }
    fence_device();
  }
  __syncthreads();
}

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
  /// Makes the tables of a step current. `index` lists the step's tables, by layer.
  __device__ __forceinline__ void open_tables() const {
    const std::uint32_t* index = now.index + static_cast<std::size_t>(now.frame) * a.layers;
    const std::uint32_t* layers = list<std::uint32_t>(p.layer_list);
    std::uint32_t mine = 0;
    if (threadIdx.x < p.layer_count) mine = __ldg(index + layers[threadIdx.x]);
    const bool changed = threadIdx.x < p.layer_count && mine != held()[threadIdx.x];
    if (!__syncthreads_or(changed)) return;
    if (changed) held()[threadIdx.x] = mine;
    __syncthreads();
    if (p.tables_shared != 0) {
#pragma unroll 1
      for (std::uint32_t l = 0; l < p.layer_count; ++l) {
        const float* from = now.coefficients + static_cast<std::size_t>(held()[l]) * a.table_stride;
        float* to = area + p.tables + l * a.table_stride;
#pragma unroll 2
        for (int i = threadIdx.x; i < a.table_stride; i += step_threads) to[i] = __ldg(from + i);
      }
      __syncthreads();
    }
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

  // -------------------------------------------------------------- tiles

  __device__ __forceinline__ static int lanes_of(const WarpItem& item) {
    return static_cast<int>(item.what >> 16 & 63U);
  }
  /// Lanes without a part of the tile keep what they had: `compute` does not use it.
  __device__ __forceinline__ void load(Tile<RG>& tile, const WarpItem& item, bool tail) const {
    const std::uint32_t flags = item.what >> 22;
    const int lanes = lanes_of(item);
    if (lane() >= lanes || (flags & has_rows) == 0 || (tail && (flags & hidden_only) != 0)) return;
    if ((flags & in_shared) != 0) {
      const float4* from = resident + item.offset + lane();
#pragma unroll
      for (int r = 0; r < RG; ++r) tile.w[r] = from[r * lanes];
      return;
    }
    const bool history = (flags & in_history) != 0;
    const int stride = history ? static_cast<int>(p.column_count / 4) : lanes;
    const float4* from =
        (history ? reinterpret_cast<const float4*>(a.past_d1) : a.arena) + item.offset + lane();
    // Part of the weights stays in the second-level cache from step to step; the rest passes
    // through without pushing that part out.
    const unsigned long long policy = (flags & stays_in_l2) != 0 ? leaves_last() : leaves_first();
#pragma unroll
    for (int r = 0; r < RG; ++r) tile.w[r] = load_streamed(from + r * stride, policy);
  }

  /// Four products are added before they meet a sum over many columns: it is more exact so.
  __device__ __forceinline__ static float dot(float4 w, float4 x) {
    return w.x * x.x + w.y * x.y + w.z * x.z + w.w * x.w;
  }

  /// Sums `v[r]` over the lanes and writes the sums to out[r].
  __device__ __forceinline__ void sum_rows(const float (&sums)[RG], float* out) const {
    float v[8];
#pragma unroll
    for (int r = 0; r < 8; ++r) v[r] = r < RG ? sums[r] : 0.0F;
#pragma unroll
    for (int half = 4; half >= 1; half /= 2) {
      const bool upper = (lane() & (half * 4)) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float send = upper ? v[i] : v[i + half];
        const float keep = upper ? v[i + half] : v[i];
        v[i] = keep + __shfl_xor_sync(full_warp, send, half * 4);
      }
    }
    v[0] += __shfl_xor_sync(full_warp, v[0], 2);
    v[0] += __shfl_xor_sync(full_warp, v[0], 1);
    const int row = lane() >> 2;
    if ((lane() & 3) == 0 && row < RG) out[row] = v[0];
  }

  __device__ __forceinline__ void compute(const Tile<RG>& tile, const WarpItem& item,
                                          float (&sums)[RG]) const {
    const std::uint32_t flags = item.what >> 22;
    if ((flags & starts_sum) != 0) {
#pragma unroll
      for (int r = 0; r < RG; ++r) sums[r] = 0;
    }
    if (lane() < lanes_of(item)) {
      if ((flags & makes_sums) != 0) {
        const float4 x = reinterpret_cast<const float4*>(area)[(item.what & 0xffffU) + lane()];
#pragma unroll
        for (int r = 0; r < RG; ++r) sums[r] += dot(tile.w[r], x);
      }
      if ((flags & makes_y) != 0) add_to_y(tile, item, flags);
    }
    if ((flags & ends_sum) != 0) {
      __syncwarp();
      sum_rows(sums, area + (item.places >> 16));
    }
  }

  __device__ __forceinline__ void add_to_y(const Tile<RG>& tile, const WarpItem& item,
                                           std::uint32_t flags) const {
    float4* at = y_part + item.y + lane();
    float4 sum = (flags & starts_y) != 0 ? make_float4(0, 0, 0, 0) : *at;
    if ((flags & has_rows) != 0) {
      const float* coef = area + (item.places & 0xffffU);
#pragma unroll
      for (int r = 0; r < RG; ++r) {
        const float c = coef[r];
        sum.x += c * tile.w[r].x;
        sum.y += c * tile.w[r].y;
        sum.z += c * tile.w[r].z;
        sum.w += c * tile.w[r].w;
      }
    }
    *at = sum;
  }

  /// All items, with `middle` between the phases. `one` and `two` hold the first two tiles and, if
  /// another sequence follows, hold them again at the end.
  template <class Middle>
  __device__ __forceinline__ void run_items(bool again, bool tail, Tile<RG>& one, Tile<RG>& two,
                                            Middle middle) const {
    const WarpItem* items = warp_items();
    float sums[RG];
#pragma unroll
    for (int r = 0; r < RG; ++r) sums[r] = 0;
#pragma unroll 1
    for (std::uint32_t i = 0;; i += 2) {
      if (i == p.first_items) middle();
      if (i == p.all_items) break;
      const bool wraps = i + 2 == p.all_items;
      const std::uint32_t next = wraps ? 0 : i + 2;
      const WarpItem first = items[i], second = items[i + 1];
      compute(one, first, sums);
      if (!wraps || again) load(one, items[next], tail);
      compute(two, second, sums);
      if (!wraps || again) load(two, items[next + 1], tail);
    }
  }
  __device__ __forceinline__ const WarpItem* warp_items() const {
    return list<WarpItem>(p.items) + static_cast<unsigned>(warp()) * p.all_items;
  }
  __device__ __forceinline__ void prefetch(Tile<RG>& one, Tile<RG>& two) const {
    one = Tile<RG>{};  // nothing lives on through the folds
    two = Tile<RG>{};
    if (p.all_items == 0) return;
    const WarpItem* items = warp_items();
    load(one, items[0], false);
    load(two, items[1], false);
  }

  // -------------------------------------------------------------- inner products

  /// out(task, term) gets the sum over o < length of current(task, o) times the value `back(task) +
  /// 3 + age` steps ago at `place(task) + o`. Eight lanes work on one.
  template <class Current, class Place, class Out>
  __device__ __forceinline__ void inner_products(int tasks, int length, Current current,
                                                 Place place, Out out) const {
    const int count = tasks * a.list;
    const int sub = lane() & 7;
#pragma unroll 1
    for (int start = 0; start < count; start += step_threads / 8) {
      const int k = start + static_cast<int>(threadIdx.x >> 3);
      const int task = a.by_list.quotient(min(k, count - 1));
      const int term = min(k, count - 1) - task * a.list;
      const int age = age_of(term);
      const uint2 where = place(task);
      const float* then =
          a.past + past_row(static_cast<int>(where.y) + 3 + age, sequence_of(term, age)) + where.x;
      float sum = 0;
#pragma unroll 1
      for (int base = sub; base < length; base += 64) {
        float v[8], w[8];
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const int o = min(base + 8 * i, length - 1);
          w[i] = load_fresh(then + o);
          v[i] = current(task, o);
        }
#pragma unroll
        for (int i = 0; i < 8; ++i) sum += base + 8 * i < length ? v[i] * w[i] : 0.0F;
      }
      sum += __shfl_xor_sync(full_warp, sum, 4);
      sum += __shfl_xor_sync(full_warp, sum, 2);
      sum += __shfl_xor_sync(full_warp, sum, 1);
      if (sub == 0 && k < count) *out(task, term) = sum;
    }
  }
  __device__ __forceinline__ float* inner_row(int version, int sequence,
                                              std::uint32_t source) const {
    const int slot = version >= 3 ? version - 3 : version;
    const int row = (Single ? slot : slot * a.batch + sequence) * (a.units + a.patches + 1);
    return a.inner + (static_cast<unsigned>(row) + source) * static_cast<unsigned>(a.list);
  }

  /// Of the frame of step t, for the patches of this block's units.
  __device__ __forceinline__ void patch_products() const {
    const std::uint32_t* patches = list<std::uint32_t>(p.patches);
#pragma unroll 1
    for (int sequence = 0; sequence < batch(); ++sequence) {
      const float* pixels = a.past + past_row(0, sequence) + a.first_pixel;
      inner_products(
          static_cast<int>(p.patch_count), a.patch,
          [&](int k, int o) { return load_fresh(pixels + patches[k] * a.patch + o); },
          [&](int k) { return make_uint2(a.first_pixel + patches[k] * a.patch, 0); },
          [&](int k, int term) {
            return inner_row(now.inner, sequence, a.units + patches[k]) + term;
          });
    }
  }

  // -------------------------------------------------------------- stages

  /// x(t), r(t-1) and h(t-2).
  __device__ __forceinline__ void gather_inputs(bool tail) const {
    constexpr int together = 7;
    const std::uint32_t* words = source_words();
    const std::uint32_t end = p.x_count + p.r_count;
    const unsigned int rows[3] = {past_row(0, now.sequence), past_row(1, now.sequence),
                                  past_row(2, now.sequence)};
#pragma unroll 1
    for (std::uint32_t c = (tail ? p.x_count : 0) + threadIdx.x; c < end;
         c += together * step_threads) {
      float v[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const std::uint32_t word = words[min(c + i * step_threads, end - 1)];
        const std::uint32_t back = word >> back_shift;
        const unsigned int row = back == 0 ? rows[0] : (back == 1 ? rows[1] : rows[2]);
        v[i] = load_fresh(a.past + row + (word & place_mask));
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const std::uint32_t at = c + i * step_threads;
        if (at < end) area[p.x + at] = v[i];
      }
    }
  }

  /// The part of every listed gradient in this step's sums, q = sum over slots of w * (x_j . x).
  __device__ __forceinline__ void gather_slots() const {
    const SlotTask* tasks = list<SlotTask>(p.slot_tasks);
    const Slot* slots = list<Slot>(p.slots);
#pragma unroll 1
    for (std::uint32_t k = warp(); k < p.slot_task_count; k += step_warps) {
      const SlotTask task = tasks[k];
      const float* weights = layer_table(task.layer);
#pragma unroll 1
      for (int term = lane(); term < a.list; term += 32) {
        const int age = age_of(term);
        float product[slots_per_task], weight[slots_per_task];
#pragma unroll
        for (int i = 0; i < slots_per_task; ++i) {
          const bool real = i < static_cast<int>(task.count);
          const Slot slot = slots[task.first + (real ? i : 0)];
          product[i] = load_fresh(
              inner_row(now.inner + 3 - static_cast<int>(slot.older), now.sequence, slot.source) +
              term);
          weight[i] = real ? weights[phase_row(slot.phase) + age] : 0.0F;
        }
        float q = 0;
#pragma unroll
        for (int i = 0; i < slots_per_task; ++i) q += weight[i] * product[i];
        area[task.out + term] = q;
      }
    }
  }

  /// d1(t) = g(y(t-2)) e, and the scores.
  __device__ __forceinline__ void gather_errors(bool scored) const {
    const std::uint32_t* words = source_words() + p.x_count + p.r_count;
    const float* y =
        a.y + static_cast<std::size_t>(now.y * batch() + now.sequence) * a.y_columns + p.outputs;
    float* listed = a.past_d1 + static_cast<std::size_t>(p.history) * 4 +
                    static_cast<std::size_t>(now.history * batch() + now.sequence) * p.column_count;
    double* score =
        a.score + (static_cast<std::size_t>(blockIdx.x) * step_threads + threadIdx.x) * 3;
    const std::uint32_t zero = a.first_pixel + a.patches * a.patch;
    const unsigned int rows[3] = {past_row(0, now.sequence), past_row(1, now.sequence),
                                  past_row(2, now.sequence)};
#pragma unroll 1
    for (std::uint32_t base = threadIdx.x; base < p.column_count; base += 2 * step_threads) {
      float before[2], target[2], then[2];
      std::uint32_t word[2];
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t c = min(base + i * step_threads, p.column_count - 1);
        word[i] = words[c];
        const std::uint32_t back = word[i] >> back_shift;
        const unsigned int row = back == 0 ? rows[0] : (back == 1 ? rows[1] : rows[2]);
        before[i] = load_fresh(y + c);
        target[i] = load_fresh(a.past + row + (word[i] & place_mask));
        then[i] = word[i] < zero && scored ? load_fresh(a.past + rows[2] + word[i]) : 0.0F;
      }
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const std::uint32_t c = base + i * step_threads;
        if (c >= p.column_count) break;
        float e = target[i] - before[i];
        if (word[i] == zero) e = 0;  // padding
        score[2] += static_cast<double>(e * e);
        if (scored && word[i] < zero) {  // a pixel of this frame
          const float missed = (target[i] - 0.1F) * 1.25F - unsqueeze(before[i]);
          const float moved = (target[i] - then[i]) * 1.25F;
          score[0] += static_cast<double>(missed * missed);
          score[1] += static_cast<double>(moved * moved);
        }
        if (a.sign_error && word[i] != zero) e = copysignf(1.0F, e);
        const float d1 = derived(before[i]) * e;
        area[p.d1 + c] = d1;
        listed[c] = d1;
      }
    }
  }

  /// Inner products of r(t-1) with the listed ones, slab by slab.
  __device__ __forceinline__ void gather_raw() const {
    const RawTask* tasks = list<RawTask>(p.raw_tasks);
    inner_products(
        static_cast<int>(p.raw_count), hidden(),
        [&](int k, int o) {
          return load_fresh(a.past + past_row(static_cast<int>(tasks[k].back), now.sequence) +
                            a.first_raw + tasks[k].source * hidden() + o);
        },
        [&](int k) { return make_uint2(a.first_raw + tasks[k].source * hidden(), tasks[k].back); },
        [&](int k, int term) { return area + tasks[k].out + term; });
  }

  /// q, and the weights of the listed d1 in y(t-1).
  __device__ __forceinline__ void weigh_terms(bool tail) const {
    const HiddenUnit* hidden_units = list<HiddenUnit>(p.hidden_units);
    const SlotTask* tasks = list<SlotTask>(p.slot_tasks);
    const int qs = tail ? 0 : static_cast<int>(p.hidden_count) * a.list;
#pragma unroll 1
    for (int k = threadIdx.x; k < qs; k += step_threads) {
      const int n = a.by_list.quotient(k);
      const HiddenUnit& unit = hidden_units[n];
      const int term = k - n * a.list;
      float q = 0;
#pragma unroll 4
      for (std::uint32_t i = 0; i < unit.tasks; ++i) {
        q += area[tasks[unit.first_task + i].out + term];
      }
      area[unit.q + term] = q;
    }
    const OutputBlock* blocks = list<OutputBlock>(p.blocks);
    const OutputUnit* units = list<OutputUnit>(p.output_units);
    const RawTask* raws = list<RawTask>(p.raw_tasks);
    const int rows = a.history_rows;
    const int listed = a.history * batch();
#pragma unroll 1
    for (int k = step_threads - 1 - threadIdx.x; k < static_cast<int>(p.block_count) * rows;
         k += step_threads) {  // from the other end: the first threads have q to do
      const int n = a.by_history_rows.quotient(k);
      const OutputBlock& block = blocks[n];
      const int row = k - n * rows;
      const OutputUnit& unit = units[block.unit];
      float weight = row == listed ? 1.0F : 0.0F;  // the bias row
      const int m = age_of(row);
      int age = now.history - 2 - m;  // y(t-1) knows the gradients up to t-2
      age = age < 0 ? age + a.history : age;
      if (row < listed && age >= 0 && age < a.terms) {  // -1: the gradient of t-1
        const float* table = layer_table(unit.layer) + a.period * a.terms;
        const int term = age * batch() + sequence_of(row, m);
#pragma unroll 1
        for (std::uint32_t s = 0; s < unit.raws; ++s) {
          const float product = area[raws[unit.first_raw + s].out + term];
          const std::uint32_t phase = list<std::uint32_t>(p.phases)[block.first_phase + s];
          weight += table[phase_row(phase) + age] * (s == 0 ? product + 1.0F : product);
        }
      }
      area[block.coef + row] = weight;
    }
  }

  /// out[row] = sum over a chunk of the terms of factor(term) * value, `back` + age steps ago, at
  /// `place` + row.
  template <class Factor>
  __device__ __forceinline__ void correct(int chunk, float* out, std::uint32_t place, int back,
                                          Factor factor) const {
    const int first = chunk * terms_per_task;
    const int last = min(first + terms_per_task, a.list) - 1;
    const float mine = lane() <= last - first ? factor(first + lane()) : 0.0F;
#pragma unroll 1
    for (int start = 0; start < padded(); start += 64) {  // whole warps: shuffles inside
      const int row = start + lane();
      const int low = min(row, hidden() - 1);
      const int high = min(row + 32, hidden() - 1);
      float loaded[terms_per_task][2];
#pragma unroll
      for (int i = 0; i < terms_per_task; ++i) {
        const int term = min(first + i, last);
        const int age = age_of(term);
        const float* from = a.past + past_row(back + age, sequence_of(term, age)) + place;
        loaded[i][0] = load_fresh(from + low);
        loaded[i][1] = load_fresh(from + high);
      }
      float sum[2] = {0, 0};
#pragma unroll
      for (int i = 0; i < terms_per_task; ++i) {
        const float weight = __shfl_sync(full_warp, mine, i);
        sum[0] += weight * loaded[i][0];
        sum[1] += weight * loaded[i][1];
      }
      if (row < padded()) out[chunk * padded() + row] = sum[0];
      if (row + 32 < padded()) out[chunk * padded() + row + 32] = sum[1];
    }
  }

  /// What the listed gradients add to W0 x: sum of q_j d0_j.
  __device__ __forceinline__ void correct_hidden() const {
    const HiddenUnit* units = list<HiddenUnit>(p.hidden_units);
#pragma unroll 1
    for (int k = warp(); k < static_cast<int>(p.hidden_count) * a.chunks; k += step_warps) {
      const int n = a.by_chunks.quotient(k);
      const HiddenUnit& unit = units[n];
      correct(k - n * a.chunks, area + unit.corr, a.first_d0 + unit.unit * hidden(), 1,
              [&](int term) { return area[unit.q + term]; });
    }
  }

  /// What the listed gradients add to W1^T d1: sum of r_j (w_j d1_j . d1).
  __device__ __forceinline__ void correct_output() const {
    const OutputUnit* units = list<OutputUnit>(p.output_units);
    const OutputBlock* blocks = list<OutputBlock>(p.blocks);
#pragma unroll 1
    for (int k = warp(); k < static_cast<int>(p.output_count) * a.chunks; k += step_warps) {
      const int n = a.by_chunks.quotient(k);
      const OutputUnit& unit = units[n];
      const float* table = layer_table(unit.layer);
      correct(k - n * a.chunks, area + unit.corr, a.first_raw + unit.unit * hidden(), 3,
              [&](int term) {
                const int age = age_of(term);
                int m = now.history - 1 - age;
                m = m < 0 ? m + a.history : m;
                const int row = m * batch() + sequence_of(term, age);
                const int slab = a.by_padded.quotient(row);
                float u = 0;
#pragma unroll 1
                for (std::uint32_t c = 0; c < unit.blocks; ++c) {
                  const OutputBlock& block = blocks[unit.first_block + c];
                  const float* sums = area + block.sum + slab * (parts() - 1) * padded() + row;
                  float piece = 0;
#pragma unroll 1
                  for (int i = 0; i < parts(); ++i) piece += sums[i * padded()];
                  u += table[phase_row(block.phase) + age] * piece;
                }
                return u;
              });
    }
  }

  /// Row sums plus corrections, which lie behind them.
  __device__ __forceinline__ float total(std::uint32_t sum, int row) const {
    float v = 0;
    const int pieces = parts() + a.chunks;
#pragma unroll 4
    for (int i = 0; i < pieces; ++i) v += area[sum + i * padded() + row];
    return v;
  }

  __device__ __forceinline__ void finish_hidden() const {
    const HiddenUnit* units = list<HiddenUnit>(p.hidden_units);
#pragma unroll 1
    for (int k = threadIdx.x; k < static_cast<int>(p.hidden_count) * hidden(); k += step_threads) {
      const int n = by_hidden(k);
      const HiddenUnit& unit = units[n];
      const int row = k - n * hidden();
      const float h = activated(total(unit.sum, row));
      float* at = a.past + past_row(0, now.sequence) + unit.unit * hidden() + row;
      at[0] = squeeze(h);
      at[a.first_raw] = h;
      area[unit.now + row] = squeeze(h);
    }
  }

  __device__ __forceinline__ void publish_products() const {
    const HiddenUnit* units = list<HiddenUnit>(p.hidden_units);
    inner_products(
        static_cast<int>(p.hidden_count), hidden(),
        [&](int k, int o) { return area[units[k].now + o]; },
        [&](int k) { return make_uint2(units[k].unit * hidden(), 0); },
        [&](int k, int term) {
          return inner_row(now.inner + 1, now.sequence, units[k].unit) + term;
        });
  }

  __device__ __forceinline__ void finish_gradient() const {
    const OutputUnit* units = list<OutputUnit>(p.output_units);
#pragma unroll 1
    for (int k = threadIdx.x; k < static_cast<int>(p.output_count) * hidden(); k += step_threads) {
      const int n = by_hidden(k);
      const OutputUnit& unit = units[n];
      const int row = k - n * hidden();
      const float older = area[unit.older + row];
      a.past[past_row(0, now.sequence) + a.first_d0 + unit.unit * hidden() + row] =
          derived(older) * total(unit.sum, row);
    }
  }

  /// y(t-1).
  __device__ __forceinline__ void finish_outputs() const {
    float* y = a.y + static_cast<std::size_t>((1 - now.y) * batch() + now.sequence) * a.y_columns +
               p.outputs;
    const float* partial = reinterpret_cast<const float*>(y_part);
    const int pieces = passes() == 1 ? groups() : step_warps;
#pragma unroll 1
    for (std::uint32_t c = threadIdx.x; c < p.column_count; c += step_threads) {
      float sum = 0;
#pragma unroll 4
      for (int g = 0; g < pieces; ++g) sum += partial[g * p.column_count + c];
      y[c] = activated(sum);
    }
  }

  /// Converts the frame of step t + ahead: [row][column][channel] bytes to patches of floats.
  __device__ __forceinline__ void convert_frame(int ahead) const {
    const int size = a.patches * a.patch;
    const std::size_t first = static_cast<std::size_t>(now.frame + ahead) * batch();
    const int across = a.side / a.block_size;
    const int line = a.block_size * a.channels;
#pragma unroll 1
    for (int k = blockIdx.x * step_threads + threadIdx.x; k < size * batch();
         k += gridDim.x * step_threads) {
      const int sequence = Single ? 0 : k / size;
      const int pixel = k - sequence * size;
      const int patch = pixel / a.patch;
      const int inside = pixel - patch * a.patch;
      const int row = patch / across * a.block_size + inside / line;
      const int at = (row * a.side + patch % across * a.block_size) * a.channels + inside % line;
      const std::size_t frame = first + static_cast<std::size_t>(sequence);
      a.past[past_row(a.ring - ahead, sequence) + a.first_pixel + pixel] =
          now.squeezed != nullptr ? now.squeezed[frame * size + at]
                                  : squeeze_pixel(static_cast<float>(now.frames[frame][at]));
    }
  }

  // -------------------------------------------------------------- folding

  __device__ __forceinline__ static int most_terms(const Fold& fold) {
    return min(16, fold_stage_floats / static_cast<int>(fold.width * 4));
  }

  /// Adds listed gradients to a panel: out = panel + sum over n < listed of factor(n) g(age(n)).
  /// `staged`: the first terms have been asked for.
  template <class Age, class Factor>
  __device__ __forceinline__ void fold_panel(const Fold& fold, int listed, bool staged, Age age,
                                             Factor factor, const float4* source, float4* sink,
                                             float* bias_sink) const {
    const int most = most_terms(fold);
    const int terms = listed * batch();
#pragma unroll 1
    for (int base = 0; base < terms; base += most) {
      const int count = min(most, terms - base);
      if (base > 0 || !staged) {
        __syncthreads();
        stage_gradients(fold, base, count, age);
      }
      copies_wait_all();
      __syncthreads();
      fold_tiles(fold, base, count, factor, base == 0 ? source : sink, sink);
      if (fold.bias != 0) fold_bias(fold, base, count, factor, bias_sink);
    }
  }

  /// Asks for d0 and x (W0) or r and d1 (W1): [term][row group][8] and [term][column].
  template <class Age>
  __device__ __forceinline__ void stage_gradients(const Fold& fold, int base, int count,
                                                  Age age) const {
    const int each = groups() * 8;
    const int columns = static_cast<int>(fold.width) * 4;
    const bool output = fold.row_back != 0;
    const unsigned int place =
        (output ? a.first_raw : a.first_d0) + fold.row_source * static_cast<unsigned>(hidden());
    const int back = output ? static_cast<int>(fold.row_back) + 2 : 1;
#pragma unroll 2
    for (int k = threadIdx.x; k < count * each; k += step_threads) {
      const int i = by_stage_row(k);
      const int inside = k - i * each;
      const int row = min((inside >> 3) * RG + min(inside & 7, RG - 1), hidden() - 1);
      const int n = age_of(base + i);
      copy_word_async(area + p.rows + k,
                      a.past + past_row(back + age(n), sequence_of(base + i, n)) + place + row);
    }
    // Half the threads take the even terms, half the odd ones.
    const int half = threadIdx.x >= step_threads / 2 ? 1 : 0;
#pragma unroll 1
    for (int c = threadIdx.x - half * (step_threads / 2); c < columns; c += step_threads / 2) {
      const std::uint32_t word = output ? 0 : source_words()[fold.columns + c];
      const int from_back = 3 + static_cast<int>(word >> back_shift);
      const float* from =
          output ? a.past_d1 + static_cast<std::size_t>(p.history) * 4 + fold.columns + c
                 : a.past + (word & place_mask);
#pragma unroll 4
      for (int i = half; i < count; i += 2) {
        const int n = age_of(base + i);
        const int sequence = sequence_of(base + i, n);
        const int old = age(n);
        int m = now.history - 1 - old;
        m = m < 0 ? m + a.history : m;
        const unsigned int listed = static_cast<unsigned>(m * batch() + sequence) * p.column_count;
        copy_word_async(area + p.stage + i * columns + c,
                        from + (output ? listed : past_row(from_back + old, sequence)));
      }
    }
  }

  /// Rows beyond the unit's last gather rubbish, as finite as the last: nobody reads them.
  template <class Factor>
  __device__ __forceinline__ void fold_tiles(const Fold& fold, int base, int count, Factor factor,
                                             const float4* source, float4* sink) const {
    const int width = static_cast<int>(fold.width);
    const int first = part() * static_cast<int>(fold.each);
    const int lanes = min(static_cast<int>(fold.each), width - first);
    const float4* stage = reinterpret_cast<const float4*>(area + p.stage) + first + lane();
#pragma unroll 1
    for (int g = group(); g < groups() && lane() < lanes; g += step_warps) {
      const int offset = g * RG * width + first * RG + lane();
      float4 w[RG];
#pragma unroll
      for (int r = 0; r < RG; ++r) w[r] = source[offset + r * lanes];
#pragma unroll 2
      for (int i = 0; i < count; ++i) {
        const float f = factor(age_of(base + i));
        float4 x = stage[i * width];
        x = make_float4(f * x.x, f * x.y, f * x.z, f * x.w);
        const float4* rows =
            reinterpret_cast<const float4*>(area + p.rows) + (i * groups() + g) * 2;
        const float4 low = rows[0];
        const float4 high = rows[1];
        const float d[8] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
#pragma unroll
        for (int r = 0; r < RG; ++r) {
          w[r].x += d[r] * x.x;
          w[r].y += d[r] * x.y;
          w[r].z += d[r] * x.z;
          w[r].w += d[r] * x.w;
        }
      }
#pragma unroll
      for (int r = 0; r < RG; ++r) sink[offset + r * lanes] = w[r];
    }
  }

  /// The bias column of W1, r = 1: a row behind the listed d1, in place or in a copy.
  template <class Factor>
  __device__ __forceinline__ void fold_bias(const Fold& fold, int base, int count, Factor factor,
                                            float* sink) const {
    const int columns = static_cast<int>(fold.width) * 4;
    const std::size_t at = static_cast<std::size_t>(p.history) * 4 + fold.columns +
                           static_cast<std::size_t>(a.history * batch()) * p.column_count;
#pragma unroll 1
    for (int c = threadIdx.x; c < columns; c += step_threads) {
      float v = (base == 0 ? a.past_d1 : sink)[at + c];
#pragma unroll 4
      for (int i = 0; i < count; ++i) {
        v += factor(age_of(base + i)) * area[p.stage + i * columns + c];
      }
      sink[at + c] = v;
    }
  }

  /// The panels whose turn it is; the first one's gradients have been asked for.
  __device__ __forceinline__ void fold_step() const {
    const std::uint32_t* start = list<std::uint32_t>(p.fold_start);
#pragma unroll 1
    for (std::uint32_t k = start[now.phase]; k < start[now.phase + 1]; ++k) {
      const Fold& fold = list<Fold>(p.folds)[k];
      const float* table = layer_table(fold.layer) + 2 * a.period * a.terms;
      const float* ages = table + a.terms;  // how many, then which
      float4* home = fold.resident >= 0 ? resident + fold.resident : a.arena + fold.weight;
      fold_panel(
          fold, static_cast<int>(ages[0]), k == start[now.phase],
          [&](int n) { return static_cast<int>(ages[1 + n]); },
          [&](int n) { return table[static_cast<int>(ages[1 + n])]; }, home, home, a.past_d1);
    }
  }
  /// Asks for what the step's first fold will need.
  __device__ __forceinline__ void stage_first_fold() const {
    const std::uint32_t* start = list<std::uint32_t>(p.fold_start);
    if (start[now.phase] == start[now.phase + 1]) return;
    const Fold& fold = list<Fold>(p.folds)[start[now.phase]];
    const float* ages = layer_table(fold.layer) + (2 * a.period + 1) * a.terms;
    stage_gradients(fold, 0, min(most_terms(fold), static_cast<int>(ages[0]) * batch()),
                    [&](int n) { return static_cast<int>(ages[1 + n]); });
  }

  /// Resident panels in (from the arena) or out.
  __device__ __forceinline__ void move_resident(bool in) const {
    const std::uint32_t* which = list<std::uint32_t>(p.resident_list);
    const Fold* folds = list<Fold>(p.folds);
#pragma unroll 1
    for (std::uint32_t k = 0; k < p.resident_count; ++k) {
      const Fold& fold = folds[which[k]];
      const int size = static_cast<int>(fold.width) * padded();
      float4* home = a.arena + fold.weight;
      float4* here = resident + fold.resident;
#pragma unroll 4
      for (int i = threadIdx.x; i < size; i += step_threads) {
        if (in) {
          here[i] = __ldcg(home + i);
        } else {
          home[i] = here[i];
        }
      }
    }
  }

  /// One thread's work; the others wait.
  __device__ __forceinline__ void set_step(unsigned long long t) const {
    now.ring = static_cast<int>(t % static_cast<unsigned>(a.ring));
    now.inner = static_cast<int>(t % 3);
    now.history = static_cast<int>(t % static_cast<unsigned>(a.history));
    now.phase = static_cast<int>(t % static_cast<unsigned>(a.period));
    now.y = static_cast<int>(t % 2);
    now.sequence = 0;
    now.kind = a.activation == 1 && t < 2 ? 0 : a.activation;
  }
  __device__ __forceinline__ void next_step() const {
    const auto next = [](int& value, int modulus) { value = value + 1 == modulus ? 0 : value + 1; };
    next(now.ring, a.ring);
    next(now.inner, 3);
    next(now.history, a.history);
    next(now.phase, a.period);
    next(now.y, 2);
    ++now.frame;
    now.sequence = 0;
    now.kind = a.activation == 1 && now.begin + (now.frame - now.first) < 2 ? 0 : a.activation;
  }

  /// One step of one sequence, up to the publication. `tail`: only y of the step before, for
  /// whoever looks and for the next launch.
  __device__ __forceinline__ void step_sequence(bool again, bool tail, Tile<RG>& one,
                                                Tile<RG>& two) const {
    gather_inputs(tail);
    if (!tail) {
      gather_slots();
      gather_errors(now.scored[now.frame * batch() + now.sequence] != 0);
    }
    gather_raw();
    __syncthreads();
    weigh_terms(tail);
    __syncthreads();
    if (!tail) {
      if (now.sequence == 0) stage_first_fold();
      correct_hidden();
    }
    run_items(again, tail, one, two, [&] {
      __syncthreads();
      if (!tail) {
        finish_hidden();
        correct_output();
      }
    });
    __syncthreads();
    if (!tail) {
      publish_products();
      finish_gradient();
    }
    if (now.frame > now.first) finish_outputs();
  }
};

/// Copies an SM's blob to shared memory and makes the block's view of the world.
template <int RG, bool Single, class Known>
__device__ __forceinline__ Block<RG, Single, Known> open_block(const StepArguments& a,
                                                               float* shared) {
  const std::uint32_t* from = a.blobs + a.blob_start[blockIdx.x];
  const std::uint32_t words = from[0];
  auto* blob = reinterpret_cast<std::uint32_t*>(shared);
#pragma unroll 1
  for (std::uint32_t i = threadIdx.x; i < words; i += step_threads) blob[i] = from[i];
  __syncthreads();
  const Program& p = *reinterpret_cast<const Program*>(blob);
  float* area = shared + words;
  float4* y_part = p.y_shared != 0
                       ? reinterpret_cast<float4*>(area + p.y)
                       : reinterpret_cast<float4*>(a.y_scratch + blockIdx.x * a.y_scratch_floats);
  const Block<RG, Single, Known> block{a,     p,    *reinterpret_cast<Now*>(area + p.now),
                                       blob,  area, reinterpret_cast<float4*>(area + p.resident),
                                       y_part};
  if (p.words_shared != 0) {
    auto* copy = reinterpret_cast<std::uint32_t*>(area + p.words_copy);
    const std::uint32_t count = p.x_count + p.r_count + p.column_count;
#pragma unroll 1
    for (std::uint32_t i = threadIdx.x; i < count; i += step_threads) {
      copy[i] = a.words[p.x_words + i];
    }
  }
  if (threadIdx.x < p.layer_count) block.held()[threadIdx.x] = 0xffffffffU;
  return block;
}

/// Where the launch starts: one thread's work.
template <int RG, bool Single, class Known>
__device__ __forceinline__ void begin_launch(const StepArguments& a,
                                             const Block<RG, Single, Known>& block) {
  const Cursor begin = *a.cursor;
  Now& now = block.now;
  const std::size_t staging = begin.block % static_cast<unsigned>(a.staging);
  const std::size_t tables = static_cast<std::size_t>(a.block_steps + 1) * a.layers;
  const std::size_t rows = staging * a.block_steps * block.batch();
  const std::size_t frame = static_cast<std::size_t>(a.patches) * a.patch;
  block.set_step(begin.step);
  now.begin = begin.step;
  now.index = a.index + staging * (1 + tables);
  now.first = static_cast<int>(begin.frame);
  now.frame = now.first;
  now.last = min(static_cast<int>(now.index[0] & ~frames_are_floats), now.first + a.most_steps);
  now.coefficients = a.coefficients + staging * tables * a.table_stride;
  now.frames = a.frames + rows;
  now.squeezed = (now.index[0] & frames_are_floats) != 0 ? a.squeezed + rows * frame : nullptr;
  now.index += 1;
  now.scored = a.scored + rows;
  now.passed = begin.barriers;
}

template <int RG, bool Single, class Known>
__device__ __forceinline__ void end_launch(const StepArguments& a,
                                           const Block<RG, Single, Known>& block) {
  const Now& now = block.now;
  Cursor end = *a.cursor;
  end.step += now.last - now.first;
  end.frame = now.last;
  end.barriers = now.passed;
  if (now.last == static_cast<int>(now.index[-1] & ~frames_are_floats)) {
    end.frame = 0;
    ++end.block;
  }
  *a.cursor = end;
}

template <int RG, bool Single, class Known>
__global__ void __launch_bounds__(step_threads, 1) steps(const __grid_constant__ StepArguments a) {
  const Block<RG, Single, Known> block = open_block<RG, Single, Known>(a, dynamic_shared<float>());
  Now& now = block.now;
  if (threadIdx.x == 0) begin_launch(a, block);
  __syncthreads();
  Tile<RG> one, two;
#pragma unroll 1
  for (int ahead = 0; ahead < 3 && now.first + ahead < now.last; ++ahead) {
    block.convert_frame(ahead);
  }
  barrier_arrive(a.barrier);
  block.move_resident(true);
#pragma unroll 1
  for (;;) {
    // In the shadow of the barrier.
    const bool tail = now.frame == now.last;
    if (!tail && now.frame > now.first) block.patch_products();
    block.open_tables();
    block.prefetch(one, two);
    barrier_wait(a.barrier, now.passed);
    if (now.frame == now.first) {
      block.patch_products();
      __syncthreads();
    }
#pragma unroll 1
    for (;;) {
      const bool again = now.sequence + 1 < block.batch();
      block.step_sequence(again, tail, one, two);
      if (Single || !again) break;
      __syncthreads();
      if (threadIdx.x == 0) ++now.sequence;
      __syncthreads();
    }
    if (tail) break;
    barrier_arrive(a.barrier);
    block.fold_step();
    if (now.frame + 3 < now.last) block.convert_frame(3);
    __syncthreads();
    if (threadIdx.x == 0) block.next_step();
    __syncthreads();
  }
  __syncthreads();
  block.move_resident(false);
  if (blockIdx.x == 0 && threadIdx.x == 0) end_launch(a, block);
}

/// W(step) = Z + sum of the listed gradients, into `copy` and `bias_copy`, laid out like the arena
/// and past_d1. `coefficients` are one step's, by layer.
template <int RG, bool Single, class Known>
__global__ void __launch_bounds__(step_threads, 1)
    materialise(const __grid_constant__ StepArguments a, unsigned long long step,
                const std::uint32_t* index, const float* coefficients, float4* copy,
                float* bias_copy) {
  const Block<RG, Single, Known> block = open_block<RG, Single, Known>(a, dynamic_shared<float>());
  if (threadIdx.x == 0) {
    block.set_step(step);
    block.now.coefficients = coefficients;
    block.now.index = index;
    block.now.frame = 0;
  }
  __syncthreads();
  block.open_tables();
  const Fold* folds = block.template list<Fold>(block.p.folds);
#pragma unroll 1
  for (std::uint32_t k = 0; k < block.p.fold_count; ++k) {
    const Fold& fold = folds[k];
    const float* table = block.layer_table(fold.layer) + block.phase_row(fold.phase);
    block.fold_panel(
        fold, a.terms, false, [](int n) { return n; }, [&](int n) { return table[n]; },
        a.arena + fold.weight, copy + fold.weight, bias_copy);
  }
}

/// The inner products a step starts from, for a past that was brought in from outside.
template <int RG, bool Single, class Known>
__global__ void __launch_bounds__(step_threads, 1)
    restore_products(const __grid_constant__ StepArguments a, unsigned long long step) {
  const Block<RG, Single, Known> block = open_block<RG, Single, Known>(a, dynamic_shared<float>());
  const HiddenUnit* units = block.template list<HiddenUnit>(block.p.hidden_units);
  // Version t is made of c(h(t-1)): what step t - 1 published.
#pragma unroll 1
  for (int back = 1; back <= 2; ++back) {
    for (int b = 0; b < block.batch(); ++b) {
      __syncthreads();
      if (threadIdx.x == 0) {
        block.set_step(step + 6 * static_cast<unsigned long long>(a.ring) - back);
        block.now.sequence = b;
      }
      __syncthreads();
      const int hidden = block.hidden();
      for (int k = threadIdx.x; k < static_cast<int>(block.p.hidden_count) * hidden;
           k += step_threads) {
        const HiddenUnit& unit = units[k / hidden];
        const int row = k % hidden;
        block.area[unit.now + row] =
            load_fresh(a.past + block.past_row(0, b) + unit.unit * hidden + row);
      }
      __syncthreads();
      block.publish_products();
      __syncthreads();
    }
    if (back == 1) block.patch_products();
  }
}

}  // namespace pvm::inline v0::detail::fused
