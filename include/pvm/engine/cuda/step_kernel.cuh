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

#include <pvm/engine/cuda/step_program.hpp>
#include <pvm/engine/cuda/tuning.hpp>
#include <pvm/model/spec.hpp>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail {

/// Where a run stands; lives on the device and is advanced there.
struct Cursor {
  unsigned long long step;   ///< steps done
  unsigned long long block;  ///< staging blocks used up
  unsigned int frame;        ///< frames used of the current one
  unsigned int barriers;     ///< grid barriers passed so far
};

/// What comes with a staging block: [0] the number of steps, then for every step and layer (and
/// one step more) the index of the layer's coefficients.
struct StepArguments {
  // Sizes.
  int hidden, padded, groups, parts, passes;
  int terms, period, batch, list, history, history_rows, chunks;
  int ring;  ///< rows of the rings of h, c(h), d0 and frames
  int units, layers, patches, patch, block_size, channels, side;
  int outputs;
  int activation;  ///< 0 polynomial, 1 with the true derivative, 2 logistic
  int sign_error;
  int staging, block_steps, coefficient_stride;
  int most_steps;  ///< steps of this launch
  // Tables.
  const std::uint32_t* blobs;
  const std::uint32_t* blob_start;
  const std::uint32_t* words;
  const OutputColumn* columns;
  // State.
  float4* arena;     ///< Z
  float* past_d1;    ///< [unit][history rows][outputs padded]; a row behind them: Z of the bias
  float* raw;        ///< h    [ring][batch][units][hidden]
  float* squeezed;   ///< c(h) [ring][batch][units][hidden]
  float* d0;         ///< [ring][batch][units][hidden]
  float* frames;     ///< c(pixel) [ring][batch][patches][patch]
  float* y;          ///< [2][batch][outputs]
  float* inner;      ///< [3][batch][units + patches][list]
  double* score;     ///< [blocks][threads][3]
  float* y_scratch;  ///< [blocks][y_scratch_floats]
  unsigned long long y_scratch_floats;
  Cursor* cursor;
  unsigned int* barrier;
  // Staging: [staging][...]
  const std::uint8_t* pixels;  ///< [staging][block_steps][batch][side][side][channels]
  const std::uint8_t* scored;  ///< [staging][block_steps][batch]
  const std::uint32_t* index;  ///< [staging][1 + (block_steps + 1) * layers]
  const float* coefficients;   ///< [staging][(block_steps + 1) * layers][coefficient_stride]
};

namespace step_kernel {

inline constexpr unsigned int full_warp = 0xffffffffU;

__device__ __forceinline__ float load_fresh(const float* p) { return __ldcg(p); }

__device__ __forceinline__ float activate(int kind, float a) {
  return kind == 2 ? Logistic::value(a) : Polynomial::value(a);
}
__device__ __forceinline__ float derive(int kind, float v) {
  return kind == 0 ? Polynomial::derivative(v)
                   : (kind == 1 ? PolynomialTrue::derivative(v) : Logistic::derivative(v));
}

/// Row of a ring, `back` rows before `now`.
__device__ __forceinline__ int ring_row(int now, int back, int rows) {
  const int row = now - back;
  return row < 0 ? row + rows : row;
}

/// A barrier of all blocks in two halves. `target` counts arrivals since the engine was made.
__device__ __forceinline__ void barrier_arrive(unsigned int* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
  }
}
__device__ __forceinline__ void barrier_wait(const unsigned int* counter, unsigned int target) {
  if (threadIdx.x == 0) {
    unsigned int seen;
    do {
      asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(seen) : "l"(counter) : "memory");
    } while (static_cast<int>(seen - target) < 0);
    __threadfence();
  }
  __syncthreads();
}

/// A warp's piece of a panel in registers.
template <int RG>
struct Tile {
  float4 w[RG];
};

/// Everything a block knows while it runs.
template <int RG>
struct Block {
  const StepArguments& a;
  const Program& p;
  const std::uint32_t* blob;  // shared
  float* area;                // shared
  float4* resident;           // shared
  float4* y_part;             // shared or global
  int warp, lane;

  // Of the current step.
  int t_ring, t_inner, t_history, t_phase, t_y;  // t modulo ring, 3, history, R, 2
  int b;                                         // sequence
  int kind;                                      // activation, for derivatives of this step
  const std::uint32_t* index;                    // of this step, by layer
  const float* coefficients;

  template <class T>
  __device__ const T* list(std::uint32_t at) const {
    return reinterpret_cast<const T*>(blob + at);
  }
  __device__ const float* layer_table(std::uint32_t layer) const {
    return coefficients + static_cast<std::size_t>(__ldg(index + layer)) *
                              static_cast<std::size_t>(a.coefficient_stride);
  }
  /// Row of the weights of the listed gradients for a panel of `phase`.
  __device__ int phase_row(std::uint32_t phase) const {
    const int row = t_phase - static_cast<int>(phase);
    return (row < 0 ? row + a.period : row) * a.terms;
  }
  __device__ std::size_t hidden_row(int ring, int batch) const {
    return (static_cast<std::size_t>(ring) * a.batch + batch) * a.units * a.hidden;
  }
  __device__ std::size_t frame_row(int ring, int batch) const {
    return (static_cast<std::size_t>(ring) * a.batch + batch) * a.patches * a.patch;
  }
  /// The value of a source word as of step t - back.
  __device__ __forceinline__ float value(std::uint32_t word, int back, int batch) const {
    const std::uint32_t at = word & take_mask;
    switch (static_cast<Take>(word >> take_shift)) {
      case Take::zero:
        return 0.0F;
      case Take::one:
        return 1.0F;
      case Take::squeezed1:
        return load_fresh(a.squeezed + hidden_row(ring_row(t_ring, back + 1, a.ring), batch) + at);
      case Take::squeezed2:
        return load_fresh(a.squeezed + hidden_row(ring_row(t_ring, back + 2, a.ring), batch) + at);
      case Take::pixel0:
        return load_fresh(a.frames + frame_row(ring_row(t_ring, back, a.ring), batch) + at);
      case Take::pixel1:
        return load_fresh(a.frames + frame_row(ring_row(t_ring, back + 1, a.ring), batch) + at);
      case Take::raw1:
        return load_fresh(a.raw + hidden_row(ring_row(t_ring, back + 1, a.ring), batch) + at);
      default:
        return load_fresh(a.raw + hidden_row(ring_row(t_ring, back + 2, a.ring), batch) + at);
    }
  }

  // -------------------------------------------------------------- tiles

  /// Where a warp's tile of an item lies: false if it has none.
  struct Spot {
    int group, first, lanes;
  };
  __device__ __forceinline__ bool spot(const Item& item, Spot& s) const {
    const int tile = static_cast<int>(item.pass) * step_warps + warp;
    s.group = tile / a.parts;
    const int part = tile - s.group * a.parts;
    const int width = static_cast<int>(item.width);
    const int each = (width + a.parts - 1) / a.parts;
    s.first = part * each;
    s.lanes = min(each, width - s.first);
    return s.group < a.groups && s.group * RG < static_cast<int>(item.rows) && lane < s.lanes;
  }

  __device__ __forceinline__ void load(Tile<RG>& tile, const Item& item, bool tail = false) const {
    if (tail && item.work == Work::hidden) return;
    Spot s;
    const bool active = spot(item, s);
    const int width = static_cast<int>(item.width);
    const bool plain = item.stride != 0;
    const int stride = plain ? static_cast<int>(item.stride) : s.lanes;
    const int offset =
        plain ? s.group * RG * stride + s.first + lane : s.group * RG * width + s.first * RG + lane;
    if (!active) {
#pragma unroll
      for (int r = 0; r < RG; ++r) tile.w[r] = make_float4(0, 0, 0, 0);
    } else if (item.resident >= 0) {
      const float4* from = resident + item.resident + offset;
#pragma unroll
      for (int r = 0; r < RG; ++r) tile.w[r] = from[r * stride];
    } else {
      const float4* from =
          (plain ? reinterpret_cast<const float4*>(a.past_d1) : a.arena) + item.weight + offset;
#pragma unroll
      for (int r = 0; r < RG; ++r) tile.w[r] = __ldcg(from + r * stride);
    }
  }

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
      const bool upper = (lane & (half * 4)) != 0;
#pragma unroll
      for (int i = 0; i < half; ++i) {
        const float send = upper ? v[i] : v[i + half];
        const float keep = upper ? v[i + half] : v[i];
        v[i] = keep + __shfl_xor_sync(full_warp, send, half * 4);
      }
    }
    v[0] += __shfl_xor_sync(full_warp, v[0], 2);
    v[0] += __shfl_xor_sync(full_warp, v[0], 1);
    const int row = lane >> 2;
    if ((lane & 3) == 0 && row < RG) out[row] = v[0];
  }

  __device__ __forceinline__ void compute(const Tile<RG>& tile, const Item& item, float (&sums)[RG],
                                          bool tail) const {
    if (item.work == Work::none || (tail && item.work == Work::hidden)) return;
    Spot s;
    const bool active = spot(item, s);
    if (s.group >= a.groups) return;
    if (item.flags & starts_sum) {
#pragma unroll
      for (int r = 0; r < RG; ++r) sums[r] = 0;
    }
    if (item.work != Work::context && active) {
      const float4 x = reinterpret_cast<const float4*>(area)[item.vec + s.first + lane];
#pragma unroll
      for (int r = 0; r < RG; ++r) sums[r] += dot(tile.w[r], x);
    }
    if (item.work != Work::hidden && lane < s.lanes) add_to_y(tile, item, s, active);
    if (item.flags & ends_sum) {
      const int part = static_cast<int>(item.pass) * step_warps + warp - s.group * a.parts;
      sum_rows(sums, area + item.sum + part * a.padded + s.group * RG);
    }
  }

  __device__ __forceinline__ void add_to_y(const Tile<RG>& tile, const Item& item, const Spot& s,
                                           bool active) const {
    float4* at = y_part + item.y + (warp / a.parts) * item.y_stride + s.first + lane;
    float4 sum = make_float4(0, 0, 0, 0);
    if (!(item.flags & starts_y)) {
      sum = *at;
      if (!active) return;
    }
    if (active) {
      const float* coef = area + item.coef + s.group * RG;
#pragma unroll
      for (int r = 0; r < RG; ++r) {
        sum.x += coef[r] * tile.w[r].x;
        sum.y += coef[r] * tile.w[r].y;
        sum.z += coef[r] * tile.w[r].z;
        sum.w += coef[r] * tile.w[r].w;
      }
    }
    *at = sum;
  }

  /// Items [first, last); `one` and `two` hold the first two tiles and, at the end, the next two.
  __device__ __forceinline__ void run_items(std::uint32_t first, std::uint32_t last, bool ahead,
                                            Tile<RG>& one, Tile<RG>& two, float (&sums)[RG],
                                            bool tail) const {
    const Item* items = list<Item>(p.items);
    for (std::uint32_t i = first; i < last; i += 2) {
      const std::uint32_t next = i + 2;
      const bool more = next < last || ahead;
      const std::uint32_t at = next < p.all_items ? next : 0;
      compute(one, items[i], sums, tail);
      if (more) load(one, items[at], tail);
      compute(two, items[i + 1], sums, tail);
      if (more) load(two, items[at + 1], tail);
    }
  }
  __device__ __forceinline__ void prefetch(Tile<RG>& one, Tile<RG>& two) const {
    if (p.all_items == 0) return;
    const Item* items = list<Item>(p.items);
    load(one, items[0]);
    load(two, items[1]);
  }

  // -------------------------------------------------------------- inner products

  /// out[k] for k = task * T + term: the inner product of now(task) and the value `3 + age` rows
  /// before its row. Four at a time, so that their loads overlap.
  template <class Now, class Then, class Out>
  __device__ __forceinline__ void inner_products(int tasks, int length, Now now, Then then,
                                                 Out out) const {
    constexpr int together = 4;
    const int count = tasks * a.list;
    for (int base = warp; base < count; base += together * step_warps) {
      float sum[together];
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int k = base + i * step_warps;
        sum[i] = 0;
        if (k >= count) continue;
        const int task = k / a.list;
        const int term = k - task * a.list;
        const int age = term / a.batch;
        const float* v = now(task);
        const float* w = then(task, age, term - age * a.batch);
        float s = 0;
#pragma unroll 2
        for (int o = lane; o < length; o += 32) s += load_fresh(w + o) * v[o];
        sum[i] = s;
      }
#pragma unroll
      for (int step = 16; step > 0; step /= 2) {
#pragma unroll
        for (int i = 0; i < together; ++i) sum[i] += __shfl_xor_sync(full_warp, sum[i], step);
      }
#pragma unroll
      for (int i = 0; i < together; ++i) {
        const int k = base + i * step_warps;
        if (lane == 0 && k < count) *out(k / a.list, k - k / a.list * a.list) = sum[i];
      }
    }
  }
  __device__ float* inner_row(int version, int batch, std::uint32_t source) const {
    const int slot = version % 3;
    return a.inner +
           ((static_cast<std::size_t>(slot) * a.batch + batch) * (a.units + a.patches) + source) *
               a.list;
  }

  /// Of the frame of step t + ahead, for the patches of this block's units.
  __device__ void patch_products(int ahead) const {
    const HiddenUnit* units = list<HiddenUnit>(p.hidden_units);
    for (int batch = 0; batch < a.batch; ++batch) {
      for (std::uint32_t n = 0; n < p.hidden_count; ++n) {
        const std::uint32_t patch = units[n].patch;
        if (patch == Slot::none) continue;
        const int now = ring_row(t_ring + ahead, 0, a.ring) % a.ring;
        const float* current = a.frames + frame_row(now, batch) + patch * a.patch;
        inner_products(
            1, a.patch, [&](int) { return current; },
            [&](int, int age, int other) {
              return a.frames + frame_row(ring_row(now, 3 + age, a.ring), other) + patch * a.patch;
            },
            [&](int, int term) {
              return inner_row(t_inner + ahead, batch, a.units + patch) + term;
            });
      }
    }
  }

  // -------------------------------------------------------------- stages

  /// x(t), r(t-1) and h(t-2).
  __device__ void gather_inputs(bool tail) const {
    const std::uint32_t first = tail ? p.x_count : 0;
    const std::uint32_t* words = a.words + p.x_words;
    for (std::uint32_t c = first + threadIdx.x; c < p.x_count + p.r_count; c += step_threads) {
      area[p.x + c] = value(__ldg(words + c), 0, b);
    }
  }

  /// The part of every listed gradient in this step's sums, q = sum over slots of w * (x_j . x).
  __device__ void gather_slots() const {
    const SlotTask* tasks = list<SlotTask>(p.slot_tasks);
    const Slot* slots = list<Slot>(p.slots);
    for (std::uint32_t k = warp; k < p.slot_task_count; k += step_warps) {
      const SlotTask task = tasks[k];
      const float* weights = layer_table(task.layer);
      for (int term = lane; term < a.list; term += 32) {
        const int age = term / a.batch;
        float q = 0;
#pragma unroll 4
        for (std::uint32_t i = 0; i < task.count; ++i) {
          const Slot slot = slots[task.first + i];
          const float product =
              slot.source == Slot::none
                  ? 1.0F
                  : load_fresh(
                        inner_row(t_inner + 3 - static_cast<int>(slot.older), b, slot.source) +
                        term);
          q += __ldg(weights + phase_row(slot.phase) + age) * product;
        }
        area[task.out + term] = q;
      }
    }
  }

  /// d1(t) = g(y(t-2)) e, and the scores.
  __device__ void gather_errors(bool scored, double (&score)[3]) const {
    const OutputColumn* columns = a.columns + p.columns;
    const float* y = a.y + (static_cast<std::size_t>(t_y) * a.batch + b) * a.outputs;
    for (std::uint32_t c = threadIdx.x; c < p.column_count; c += step_threads) {
      const OutputColumn column = columns[c];
      float d1 = 0;
      if (column.y != Slot::none) {
        const float before = load_fresh(y + column.y);
        const float target = value(column.target, 0, b);
        float e = target - before;
        score[2] += static_cast<double>(e * e);
        if (scored && static_cast<Take>(column.target >> take_shift) == Take::pixel0) {
          const float then = value(column.target, 2, b);
          const float missed = (target - 0.1F) * 1.25F - unsqueeze(before);
          const float moved = (target - then) * 1.25F;
          score[0] += static_cast<double>(missed * missed);
          score[1] += static_cast<double>(moved * moved);
        }
        if (a.sign_error) e = copysignf(1.0F, e);
        d1 = derive(kind, before) * e;
      }
      area[p.d1 + c] = d1;
      const int row = t_history * a.batch + b;
      a.past_d1[column.history + static_cast<std::size_t>(row) * column.stride] = d1;
    }
  }

  /// Inner products of r(t-1) with the listed ones, slab by slab.
  __device__ void gather_raw() const {
    const RawTask* tasks = list<RawTask>(p.raw_tasks);
    inner_products(
        static_cast<int>(p.raw_count), a.hidden,
        [&](int k) {
          const RawTask& task = tasks[k];
          return a.raw + hidden_row(ring_row(t_ring, static_cast<int>(task.back), a.ring), b) +
                 static_cast<std::size_t>(task.source) * a.hidden;
        },
        [&](int k, int age, int other) {
          const RawTask& task = tasks[k];
          return a.raw +
                 hidden_row(ring_row(t_ring, static_cast<int>(task.back) + 3 + age, a.ring),
                            other) +
                 static_cast<std::size_t>(task.source) * a.hidden;
        },
        [&](int k, int term) { return area + tasks[k].out + term; });
  }

  /// q, and the weights of the listed d1 in y(t-1).
  __device__ void weigh_terms(bool tail) const {
    const HiddenUnit* hidden_units = list<HiddenUnit>(p.hidden_units);
    const SlotTask* tasks = list<SlotTask>(p.slot_tasks);
    if (!tail) {
      for (int k = threadIdx.x; k < static_cast<int>(p.hidden_count) * a.list; k += step_threads) {
        const HiddenUnit& unit = hidden_units[k / a.list];
        const int term = k - k / a.list * a.list;
        float q = 0;
        for (std::uint32_t i = 0; i < unit.tasks; ++i) {
          q += area[tasks[unit.first_task + i].out + term];
        }
        area[unit.q + term] = q;
      }
    }
    const OutputBlock* blocks = list<OutputBlock>(p.blocks);
    const OutputUnit* units = list<OutputUnit>(p.output_units);
    const RawTask* raws = list<RawTask>(p.raw_tasks);
    const int rows = a.history_rows;
    for (int k = threadIdx.x; k < static_cast<int>(p.block_count) * rows; k += step_threads) {
      const OutputBlock& block = blocks[k / rows];
      const int row = k - k / rows * rows;
      const OutputUnit& unit = units[block.unit];
      float weight = row == a.history * a.batch ? 1.0F : 0.0F;  // the bias row
      const int m = row / a.batch;
      int age = t_history - 2 - m;  // y(t-1) knows the gradients up to t-2
      age = age < 0 ? age + a.history : age;
      if (row < a.history * a.batch && age < a.terms) {
        const float* table = layer_table(unit.layer) + a.period * a.terms;
        for (std::uint32_t s = 0; s < unit.raws; ++s) {
          const float product =
              area[raws[unit.first_raw + s].out + age * a.batch + row - m * a.batch];
          const std::uint32_t phase = list<std::uint32_t>(p.phases)[block.first_phase + s];
          weight += __ldg(table + phase_row(phase) + age) * (s == 0 ? product + 1.0F : product);
        }
      }
      area[block.coef + row] = weight;
    }
  }

  /// sum over a few terms of factor(term) * past(term)[row], rows over lanes.
  template <class Factor, class Past>
  __device__ __forceinline__ void correct(int chunk, float* out, Factor factor, Past past) const {
    const int first = chunk * terms_per_task;
    const int count = min(terms_per_task, a.list - first);
    const float mine = lane < count ? factor(first + lane) : 0.0F;
    for (int row = lane; row < a.padded + 31; row += 32) {  // whole warps: shuffles inside
      float loaded[terms_per_task];
#pragma unroll
      for (int i = 0; i < terms_per_task; ++i) {
        loaded[i] = i < count && row < a.hidden ? load_fresh(past(first + i) + row) : 0.0F;
      }
      float sum = 0;
#pragma unroll
      for (int i = 0; i < terms_per_task; ++i) {
        sum += __shfl_sync(full_warp, mine, i) * loaded[i];
      }
      if (row < a.padded) out[chunk * a.padded + row] = sum;
      if (row - lane + 32 >= a.padded) break;
    }
  }

  /// What the listed gradients add to W0 x: sum of q_j d0_j.
  __device__ void correct_hidden() const {
    const HiddenUnit* units = list<HiddenUnit>(p.hidden_units);
    for (int k = warp; k < static_cast<int>(p.hidden_count) * a.chunks; k += step_warps) {
      const HiddenUnit& unit = units[k / a.chunks];
      correct(
          k % a.chunks, area + unit.corr, [&](int term) { return area[unit.q + term]; },
          [&](int term) {
            const int age = term / a.batch;
            return a.d0 + hidden_row(ring_row(t_ring, 1 + age, a.ring), term - age * a.batch) +
                   static_cast<std::size_t>(unit.unit) * a.hidden;
          });
    }
  }

  /// What the listed gradients add to W1^T d1: sum of r_j (w_j d1_j . d1).
  __device__ void correct_output() const {
    const OutputUnit* units = list<OutputUnit>(p.output_units);
    const OutputBlock* blocks = list<OutputBlock>(p.blocks);
    for (int k = warp; k < static_cast<int>(p.output_count) * a.chunks; k += step_warps) {
      const OutputUnit& unit = units[k / a.chunks];
      const float* table = layer_table(unit.layer);
      correct(
          k % a.chunks, area + unit.corr,
          [&](int term) {
            const int age = term / a.batch;
            int m = t_history - 1 - age;
            m = m < 0 ? m + a.history : m;
            const int row = m * a.batch + term - age * a.batch;
            float u = 0;
            for (std::uint32_t c = 0; c < unit.blocks; ++c) {
              const OutputBlock& block = blocks[unit.first_block + c];
              const float* sums = area + block.sum + row / a.padded * a.parts * a.padded;
              float part = 0;
              for (int i = 0; i < a.parts; ++i) part += sums[i * a.padded + row % a.padded];
              u += __ldg(table + phase_row(block.phase) + age) * part;
            }
            return u;
          },
          [&](int term) {
            const int age = term / a.batch;
            return a.raw + hidden_row(ring_row(t_ring, 3 + age, a.ring), term - age * a.batch) +
                   static_cast<std::size_t>(unit.unit) * a.hidden;
          });
    }
  }

  /// Row sums plus corrections.
  __device__ __forceinline__ float total(std::uint32_t sum, std::uint32_t corr, int row) const {
    float v = 0;
    for (int i = 0; i < a.parts; ++i) v += area[sum + i * a.padded + row];
    for (int i = 0; i < a.chunks; ++i) v += area[corr + i * a.padded + row];
    return v;
  }

  __device__ void finish_hidden() const {
    const HiddenUnit* units = list<HiddenUnit>(p.hidden_units);
    for (int k = threadIdx.x; k < static_cast<int>(p.hidden_count) * a.hidden; k += step_threads) {
      const HiddenUnit& unit = units[k / a.hidden];
      const int row = k - k / a.hidden * a.hidden;
      const float h = activate(a.activation, total(unit.sum, unit.corr, row));
      const std::size_t at =
          hidden_row(t_ring, b) + static_cast<std::size_t>(unit.unit) * a.hidden + row;
      a.raw[at] = h;
      a.squeezed[at] = squeeze(h);
      area[unit.now + row] = squeeze(h);
    }
  }

  __device__ void publish_products() const {
    const HiddenUnit* units = list<HiddenUnit>(p.hidden_units);
    inner_products(
        static_cast<int>(p.hidden_count), a.hidden, [&](int k) { return area + units[k].now; },
        [&](int k, int age, int other) {
          return a.squeezed + hidden_row(ring_row(t_ring, 3 + age, a.ring), other) +
                 static_cast<std::size_t>(units[k].unit) * a.hidden;
        },
        [&](int k, int term) { return inner_row(t_inner + 1, b, units[k].unit) + term; });
  }

  __device__ void finish_gradient() const {
    const OutputUnit* units = list<OutputUnit>(p.output_units);
    for (int k = threadIdx.x; k < static_cast<int>(p.output_count) * a.hidden; k += step_threads) {
      const OutputUnit& unit = units[k / a.hidden];
      const int row = k - k / a.hidden * a.hidden;
      const float older = area[unit.older + row];
      a.d0[hidden_row(t_ring, b) + static_cast<std::size_t>(unit.unit) * a.hidden + row] =
          derive(kind, older) * total(unit.sum, unit.corr, row);
    }
  }

  /// y(t-1).
  __device__ void finish_outputs() const {
    const OutputColumn* columns = a.columns + p.columns;
    float* y = a.y + (static_cast<std::size_t>(1 - t_y) * a.batch + b) * a.outputs;
    const float* partial = reinterpret_cast<const float*>(y_part);
    const int groups = a.passes == 1 ? a.groups : step_warps;
    for (std::uint32_t c = threadIdx.x; c < p.column_count; c += step_threads) {
      const OutputColumn column = columns[c];
      if (column.y == Slot::none) continue;
      // A unit's partial sums start where its columns do, times the number of groups.
      const float* from =
          partial + static_cast<std::size_t>(c - column.inside) * groups + column.inside;
      float sum = 0;
      for (int g = 0; g < groups; ++g) sum += from[static_cast<std::size_t>(g) * column.stride];
      y[column.y] = activate(a.activation, sum);
    }
  }

  /// Converts a frame of the block: [row][column][channel] bytes to patches of squeezed floats.
  __device__ void convert_frame(const std::uint8_t* bytes, int ahead) const {
    const int size = a.patches * a.patch;
    const int now = (t_ring + ahead) % a.ring;
    const int across = a.side / a.block_size;
    const int line = a.block_size * a.channels;
    for (int k = blockIdx.x * step_threads + threadIdx.x; k < size * a.batch;
         k += gridDim.x * step_threads) {
      const int batch = k / size;
      const int pixel = k - batch * size;
      const int patch = pixel / a.patch;
      const int inside = pixel - patch * a.patch;
      const int row = patch / across * a.block_size + inside / line;
      const int at = (row * a.side + patch % across * a.block_size) * a.channels + inside % line;
      a.frames[frame_row(now, batch) + pixel] =
          squeeze_pixel(static_cast<float>(bytes[static_cast<std::size_t>(batch) * size + at]));
    }
  }

  // -------------------------------------------------------------- folding

  /// Adds listed gradients to a panel: out = panel + sum over `count` ages of factor(i) g(age(i)).
  template <class Age, class Factor>
  __device__ void fold_panel(const Fold& fold, int count, Age age_of, Factor factor_of,
                             float4* copy) const {
    const int width = static_cast<int>(fold.width);
    const int columns = width * 4;
    const int most = min(16, fold_stage_floats / columns);
    const int terms = count * a.batch;
    float* stage = area + p.stage;
    float* rows = area + p.rows;
    const float4* source = fold.resident >= 0 ? resident + fold.resident : a.arena + fold.weight;
    float4* sink = copy != nullptr
                       ? copy + fold.weight
                       : (fold.resident >= 0 ? resident + fold.resident : a.arena + fold.weight);
    for (int base = 0; base < terms || (base == 0 && copy != nullptr); base += most) {
      const int now = min(most, terms - base);
      __syncthreads();
      stage_rows(fold, base, now, age_of, factor_of, rows);
      stage_columns(fold, base, now, age_of, stage);
      __syncthreads();
      fold_tiles(width, now, base == 0 ? source : sink, sink, stage, rows);
      if (fold.bias != Slot::none) fold_bias(fold, base, now, age_of, factor_of, stage, copy);
    }
  }

  template <class Age, class Factor>
  __device__ void stage_rows(const Fold& fold, int base, int now, Age age_of, Factor factor_of,
                             float* rows) const {
    for (int k = threadIdx.x; k < now * a.padded; k += step_threads) {
      const int i = k / a.padded;
      const int row = k - i * a.padded;
      const int n = (base + i) / a.batch;
      const int batch = base + i - n * a.batch;
      float v = 0;
      if (row < a.hidden) {
        const int age = age_of(n);
        const std::size_t at = static_cast<std::size_t>(fold.row_source) * a.hidden + row;
        v = fold.history_stride == 0
                ? load_fresh(a.d0 + hidden_row(ring_row(t_ring, 1 + age, a.ring), batch) + at)
                : load_fresh(a.raw +
                             hidden_row(ring_row(t_ring, static_cast<int>(fold.row_back) + 2 + age,
                                                 a.ring),
                                        batch) +
                             at);
        v *= factor_of(n);
      }
      rows[k] = v;
    }
  }

  template <class Age>
  __device__ void stage_columns(const Fold& fold, int base, int now, Age age_of,
                                float* stage) const {
    const int columns = static_cast<int>(fold.width) * 4;
    for (int c = threadIdx.x; c < columns; c += step_threads) {
      const std::uint32_t word = fold.history_stride == 0 ? __ldg(a.words + fold.columns + c) : 0;
#pragma unroll 4
      for (int i = 0; i < now; ++i) {
        const int n = (base + i) / a.batch;
        const int batch = base + i - n * a.batch;
        const int age = age_of(n);
        if (fold.history_stride == 0) {
          stage[i * columns + c] = value(word, 3 + age, batch);
        } else {
          int m = t_history - 1 - age;
          m = m < 0 ? m + a.history : m;
          stage[i * columns + c] =
              load_fresh(a.past_d1 + fold.columns +
                         static_cast<std::size_t>(m * a.batch + batch) * fold.history_stride + c);
        }
      }
    }
  }

  __device__ void fold_tiles(int width, int now, const float4* source, float4* sink,
                             const float* stage, const float* rows) const {
    for (int pass = 0; pass < a.passes; ++pass) {
      Item item{};
      item.width = static_cast<std::uint32_t>(width);
      item.rows = static_cast<std::uint32_t>(a.padded);
      item.pass = static_cast<std::uint32_t>(pass);
      Spot s;
      if (!spot(item, s)) continue;
      const int offset = s.group * RG * width + s.first * RG + lane;
      float4 w[RG];
#pragma unroll
      for (int r = 0; r < RG; ++r) w[r] = source[offset + r * s.lanes];
      for (int i = 0; i < now; ++i) {
        const float4 x = reinterpret_cast<const float4*>(stage)[i * width + s.first + lane];
        const float* d = rows + i * a.padded + s.group * RG;
#pragma unroll
        for (int r = 0; r < RG; ++r) {
          const float f = d[r];
          w[r].x += f * x.x;
          w[r].y += f * x.y;
          w[r].z += f * x.z;
          w[r].w += f * x.w;
        }
      }
#pragma unroll
      for (int r = 0; r < RG; ++r) sink[offset + r * s.lanes] = w[r];
    }
  }

  /// The bias column of W1: r = 1 there. In place it is a row behind the listed d1; in a copy it
  /// lies behind the panels.
  template <class Age, class Factor>
  __device__ void fold_bias(const Fold& fold, int base, int now, Age age_of, Factor factor_of,
                            const float* stage, float4* copy) const {
    (void)age_of;
    const int columns = static_cast<int>(fold.width) * 4;
    float* own = a.past_d1 + fold.columns +
                 static_cast<std::size_t>(a.history * a.batch) * fold.history_stride;
    float* out = copy != nullptr
                     ? bias_copy + fold.columns +
                           static_cast<std::size_t>(a.history * a.batch) * fold.history_stride
                     : own;
    for (int c = threadIdx.x; c < columns; c += step_threads) {
      float v = base == 0 ? own[c] : out[c];
      for (int i = 0; i < now; ++i) v += factor_of((base + i) / a.batch) * stage[i * columns + c];
      out[c] = v;
    }
  }
  float* bias_copy;  // laid out like past_d1

  /// The panels whose turn it is.
  __device__ void fold_step() const {
    const std::uint32_t* start = list<std::uint32_t>(p.fold_start);
    const Fold* folds = list<Fold>(p.folds);
    for (std::uint32_t k = start[t_phase]; k < start[t_phase + 1]; ++k) {
      const Fold& fold = folds[k];
      const float* table = layer_table(fold.layer) + 2 * a.period * a.terms;
      const float* ages = table + a.terms;  // how many, then which
      const int count = static_cast<int>(__ldg(ages));
      if (count == 0) continue;
      fold_panel(
          fold, count, [&](int n) { return static_cast<int>(__ldg(ages + 1 + n)); },
          [&](int n) { return __ldg(table + static_cast<int>(__ldg(ages + 1 + n))); }, nullptr);
    }
  }

  /// Resident panels in (from the arena) or out.
  __device__ void move_resident(bool in) const {
    const std::uint32_t* which = list<std::uint32_t>(p.resident_list);
    const Fold* folds = list<Fold>(p.folds);
    for (std::uint32_t k = 0; k < p.resident_count; ++k) {
      const Fold& fold = folds[which[k]];
      const int size = static_cast<int>(fold.width) * a.padded;
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

  __device__ void set_step(unsigned long long t, const std::uint32_t* staging_index, int frame) {
    t_ring = static_cast<int>(t % static_cast<unsigned>(a.ring));
    t_inner = static_cast<int>(t % 3);
    t_history = static_cast<int>(t % static_cast<unsigned>(a.history));
    t_phase = static_cast<int>(t % static_cast<unsigned>(a.period));
    t_y = static_cast<int>(t % 2);
    kind = a.activation == 1 && t < 2 ? 0 : a.activation;
    index = staging_index + 1 + static_cast<std::size_t>(frame) * a.layers;
  }

  /// One step of one sequence, up to the publication.
  __device__ __forceinline__ void step_sequence(bool scored, bool keep_y, bool ahead,
                                                double (&score)[3], Tile<RG>& one,
                                                Tile<RG>& two) const {
    float sums[RG];
    gather_inputs(false);
    gather_slots();
    gather_errors(scored, score);
    gather_raw();
    __syncthreads();
    weigh_terms(false);
    __syncthreads();
    correct_hidden();
    run_items(0, p.first_items, true, one, two, sums, false);
    __syncthreads();
    finish_hidden();
    correct_output();
    run_items(p.first_items, p.all_items, ahead, one, two, sums, false);
    __syncthreads();
    publish_products();
    finish_gradient();
    if (keep_y) finish_outputs();
  }

  /// y of the last step, for whoever looks, and for the next launch.
  __device__ void last_outputs(Tile<RG>& one, Tile<RG>& two) const {
    float sums[RG];
    gather_inputs(true);
    gather_raw();
    __syncthreads();
    weigh_terms(true);
    __syncthreads();
    prefetch(one, two);
    run_items(0, p.first_items, true, one, two, sums, true);
    run_items(p.first_items, p.all_items, false, one, two, sums, true);
    __syncthreads();
    finish_outputs();
    __syncthreads();
  }
};

/// Copies an SM's blob to shared memory and makes the block's view of the world.
template <int RG>
__device__ __forceinline__ Block<RG> open_block(const StepArguments& a, float* shared) {
  const std::uint32_t* from = a.blobs + a.blob_start[blockIdx.x];
  const std::uint32_t words = from[0];
  auto* blob = reinterpret_cast<std::uint32_t*>(shared);
  for (std::uint32_t i = threadIdx.x; i < words; i += step_threads) blob[i] = from[i];
  __syncthreads();
  const Program& p = *reinterpret_cast<const Program*>(blob);
  float* area = shared + words;
  float4* y_part = p.y_shared != 0
                       ? reinterpret_cast<float4*>(area + p.y)
                       : reinterpret_cast<float4*>(a.y_scratch + blockIdx.x * a.y_scratch_floats);
  Block<RG> block{a,
                  p,
                  blob,
                  area,
                  reinterpret_cast<float4*>(area + p.resident),
                  y_part,
                  static_cast<int>(threadIdx.x / 32),
                  static_cast<int>(threadIdx.x % 32)};
  block.b = 0;
  block.coefficients = nullptr;
  block.bias_copy = nullptr;
  return block;
}

template <int RG>
__global__ void __launch_bounds__(step_threads, 1) steps(const __grid_constant__ StepArguments a) {
  extern __shared__ float4 shared4[];
  Block<RG> block = open_block<RG>(a, reinterpret_cast<float*>(shared4));
  const Cursor begin = *a.cursor;
  const int staging = static_cast<int>(begin.block % static_cast<unsigned>(a.staging));
  const int layers = a.layers;
  const std::size_t index_words = 1 + static_cast<std::size_t>(a.block_steps + 1) * layers;
  const std::uint32_t* index = a.index + staging * index_words;
  block.coefficients = a.coefficients + static_cast<std::size_t>(staging) * (a.block_steps + 1) *
                                            layers * a.coefficient_stride;
  const std::size_t frame_bytes = static_cast<std::size_t>(a.side) * a.side * a.channels * a.batch;
  const std::uint8_t* pixels =
      a.pixels + static_cast<std::size_t>(staging) * a.block_steps * frame_bytes;
  const std::uint8_t* scored =
      a.scored + static_cast<std::size_t>(staging) * a.block_steps * a.batch;
  const int available = static_cast<int>(index[0]);
  const int first = static_cast<int>(begin.frame);
  const int last = min(available, first + a.most_steps);
  unsigned int passed = begin.barriers;
  double* home = a.score + (static_cast<std::size_t>(blockIdx.x) * step_threads + threadIdx.x) * 3;
  double score[3] = {home[0], home[1], home[2]};
  Tile<RG> one, two;

  block.set_step(begin.step, index, first);
  for (int ahead = 0; ahead < 3 && first + ahead < last; ++ahead) {
    block.convert_frame(pixels + (first + ahead) * frame_bytes, ahead);
  }
  barrier_arrive(a.barrier);
  block.move_resident(true);
  barrier_wait(a.barrier, ++passed * gridDim.x);
  block.patch_products(0);
  block.prefetch(one, two);
  __syncthreads();

  for (int frame = first; frame < last; ++frame) {
    block.set_step(begin.step + (frame - first), index, frame);
    for (int b = 0; b < a.batch; ++b) {
      block.b = b;
      block.step_sequence(scored[frame * a.batch + b] != 0, frame > first, b + 1 < a.batch, score,
                          one, two);
      if (b + 1 < a.batch) __syncthreads();
    }
    barrier_arrive(a.barrier);
    block.fold_step();
    if (frame + 3 < last) block.convert_frame(pixels + (frame + 3) * frame_bytes, 3);
    if (frame + 1 < last) block.patch_products(1);
    __syncthreads();
    if (frame + 1 < last) block.prefetch(one, two);
    barrier_wait(a.barrier, ++passed * gridDim.x);
  }

  block.set_step(begin.step + (last - first), index, last);
  for (int b = 0; b < a.batch; ++b) {
    block.b = b;
    block.last_outputs(one, two);
  }
  block.move_resident(false);
  home[0] = score[0];
  home[1] = score[1];
  home[2] = score[2];
  if (blockIdx.x == 0 && threadIdx.x == 0) {
    Cursor end = begin;
    end.step += last - first;
    end.frame = last;
    end.barriers = passed;
    if (last == available) {
      end.frame = 0;
      ++end.block;
    }
    *a.cursor = end;
  }
}

/// W(step) = Z + sum of the listed gradients, into `copy` and `bias_copy`, laid out like the arena
/// and past_d1. `coefficients` are one step's, by layer.
template <int RG>
__global__ void __launch_bounds__(step_threads, 1)
    materialise(const __grid_constant__ StepArguments a, unsigned long long step,
                const std::uint32_t* index, const float* coefficients, float4* copy,
                float* bias_copy) {
  extern __shared__ float4 shared4[];
  Block<RG> block = open_block<RG>(a, reinterpret_cast<float*>(shared4));
  block.set_step(step, index, 0);
  block.coefficients = coefficients;
  block.bias_copy = bias_copy;
  const Fold* folds = block.template list<Fold>(block.p.folds);
  for (std::uint32_t k = 0; k < block.p.fold_count; ++k) {
    Fold fold = folds[k];
    fold.resident = -1;
    const float* table = block.layer_table(fold.layer) + block.phase_row(fold.phase);
    block.fold_panel(
        fold, a.terms, [](int n) { return n; }, [&](int n) { return __ldg(table + n); }, copy);
  }
}

/// The inner products a step starts from, for a past that was brought in from outside.
template <int RG>
__global__ void __launch_bounds__(step_threads, 1)
    restore_products(const __grid_constant__ StepArguments a, unsigned long long step) {
  extern __shared__ float4 shared4[];
  Block<RG> block = open_block<RG>(a, reinterpret_cast<float*>(shared4));
  const HiddenUnit* units = block.template list<HiddenUnit>(block.p.hidden_units);
  // Version t is made of c(h(t-1)): what step t - 1 published.
  for (int back = 1; back <= 2; ++back) {
    block.set_step(step + 6 * static_cast<unsigned long long>(a.ring) - back, nullptr, 0);
    for (int b = 0; b < a.batch; ++b) {
      block.b = b;
      for (int k = threadIdx.x; k < static_cast<int>(block.p.hidden_count) * a.hidden;
           k += step_threads) {
        const HiddenUnit& unit = units[k / a.hidden];
        const int row = k % a.hidden;
        block.area[unit.now + row] =
            load_fresh(a.squeezed + block.hidden_row(block.t_ring, b) +
                       static_cast<std::size_t>(unit.unit) * a.hidden + row);
      }
      __syncthreads();
      block.publish_products();
      __syncthreads();
    }
    if (back == 1) block.patch_products(0);
  }
}

}  // namespace step_kernel
}  // namespace pvm::inline v0::detail
