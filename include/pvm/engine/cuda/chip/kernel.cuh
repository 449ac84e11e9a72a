// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The step for one sequence with 16-bit weights that stay on the chip: one persistent kernel, one
/// block of threads on every multiprocessor, whole units on each, so that only c(h) and its inner
/// products cross between multiprocessors. In step t one warp a unit
///   begins    by weighing the listed gradients with what the sources sent,
///   finishes  the unit when all warps have their part of W0 x(t): h(t), sent at once, its inner
///             products, and later d0(t);
/// the others
///   gather    x(t) from what the units sent in step t - 1, and write the factors of folds,
///   learn     after their part of W0 x(t): d1(t) = g(y(t-2)) e, W1^T d1(t), the next patches,
///   y(t);
/// all multiply, and fold the blocks whose turn it is. Barriers are between those that need each
/// other; no warp waits for the end of a step.
/// Values are multiplied as sums of two 16-bit numbers, which costs nothing: a tensor core has
/// eight rows where a vector has one. Only the weights are rounded to 16 bits; their fp32 masters
/// are in device memory and gain the listed gradients once every few steps.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/precision.cuh>
#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/chip/state.cuh>
#include <pvm/engine/cuda/instructions.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::chip {

/// What one multiprocessor does: a block of threads with whole units. Every function is inlined.
template <class Precision, int Hidden>
struct Multiprocessor {
  using S = Sizes<Hidden>;
  using Math = batch::Math<Precision>;
  using Words = Split<Precision>;
  using Fast = batch::FastPolynomial<Math>;

  const ChipArguments& a;
  const ChipProgram& p;
  std::uint32_t* shared;
  mutable int thread;  ///< in its block
  int turn;            ///< which of the two ChipNow

  /// What comes from the thread's number is made again from here on: registers are for weights, and
  /// the compiler would keep all of it for the whole run.
  __device__ __forceinline__ void begin_phase() const { thread = thread_number(); }
  __device__ __forceinline__ int warp() const { return thread >> 5; }
  __device__ __forceinline__ int lane() const { return thread & 31; }
  /// A lane's row and pair of columns in tensor-core operands.
  __device__ __forceinline__ int row() const { return lane() >> 2; }
  __device__ __forceinline__ int pair() const { return (lane() & 3) * 2; }

  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return reinterpret_cast<const T*>(shared + at);
  }
  __device__ __forceinline__ float* floats(std::uint32_t at) const {
    return reinterpret_cast<float*>(shared + at);
  }
  /// The area of unit u of this multiprocessor.
  __device__ __forceinline__ std::uint32_t* area(int u) const {
    return shared + a.areas.units + static_cast<std::uint32_t>(u) * S::unit_words;
  }
  __device__ __forceinline__ float* float_area(int u) const {
    return reinterpret_cast<float*>(area(u));
  }
  __device__ __forceinline__ ChipNow& now(int which) const {
    return *reinterpret_cast<ChipNow*>(shared + ChipAreas::now + which * 8);
  }
  __device__ __forceinline__ const ChipNow& now() const { return now(turn); }
  __device__ __forceinline__ ChipLaunch& launch() const {
    return *reinterpret_cast<ChipLaunch*>(shared + ChipAreas::launch);
  }
  /// Warps that finish units' hidden values; the others meanwhile do what nobody waits for.
  __device__ __forceinline__ int unit_threads() const { return unit_count() * 32; }
  __device__ __forceinline__ int other_threads() const { return threads - unit_threads(); }
  __device__ __forceinline__ const ChipUnit& unit(int u) const {
    return list<ChipUnit>(p.units)[u];
  }
  __device__ __forceinline__ int unit_count() const { return static_cast<int>(p.unit_count); }
  __device__ __forceinline__ std::uint32_t* past(unsigned long long step) const {
    return a.past + static_cast<std::size_t>(step & (ring - 1)) * a.row_words;
  }
  /// Of unit u, the values of step `step`: `what` is S::hidden, squeezed or d0.
  __device__ __forceinline__ float* history_row(std::uint32_t what, int u,
                                                unsigned long long step) const {
    return float_area(u) + what + static_cast<unsigned>(step & (history - 1)) * S::values;
  }
  /// The patch that a unit saw in step `step`.
  __device__ __forceinline__ float* seen(const ChipUnit& my, unsigned long long step) const {
    return floats(my.seen) + static_cast<unsigned>(step & (history - 1)) * a.patch_row;
  }
  /// Coefficients of the listed gradients by age, for blocks that fold at `phase`; then 0, 1, 0.
  __device__ __forceinline__ const float* weights_of(int u, int phase) const {
    const int since = now().phase - phase;
    return float_area(u) + S::tables + (since < 0 ? since + a.period : since) * sums;
  }
  __device__ __forceinline__ float* folds_of(int u) const {
    return float_area(u) + S::tables + S::most_period * sums;
  }
  /// Whether blocks of unit u gain anything when they fold in this step.
  __device__ __forceinline__ std::uint32_t& gains(int u) const {
    return area(u)[S::gains + static_cast<std::uint32_t>(turn)];
  }
  __device__ __forceinline__ float activate(float v) const {
    return a.activation == 2 ? Logistic::value(v) : Fast::value(v);
  }
  __device__ __forceinline__ float derive(float v) const {
    const int kind = a.activation == 1 && now().step < 2 ? 0 : a.activation;
    return kind == 0 ? Fast::derivative(v)
                     : (kind == 1 ? PolynomialTrue::derivative(v) : Logistic::derivative(v));
  }

  // -------------------------------------------------------------- products

  /// A vector as operand: even rows are the larger parts of its values, odd rows the rest.
  __device__ __forceinline__ void operand(std::uint32_t (&v)[4], const std::uint32_t* x) const {
    const unsigned int select = (row() & 1) != 0 ? 0x7632U : 0x5410U;
    const uint2 low = *reinterpret_cast<const uint2*>(x + pair());
    const uint2 high = *reinterpret_cast<const uint2*>(x + pair() + 8);
    v[0] = v[1] = __byte_perm(low.x, low.y, select);
    v[2] = v[3] = __byte_perm(high.x, high.y, select);
  }
  template <int Pairs, int Tiles>
  __device__ __forceinline__ static void multiply(float (&sum)[Tiles][4], const uint4* w,
                                                  const std::uint32_t (&x)[4]) {
    static_assert(Tiles >= 2 * Pairs);
#pragma unroll
    for (int i = 0; i < Pairs; ++i) {
      Math::multiply(sum[2 * i], x, w[i].x, w[i].y);
      Math::multiply(sum[2 * i + 1], x, w[i].z, w[i].w);
    }
  }
  /// The sum of both parts; every lane gets those of its pair of columns.
  __device__ __forceinline__ static float both_parts(float v) {
    return v + __shfl_xor_sync(every_lane, v, 4);
  }
  template <int Tiles>
  __device__ __forceinline__ void write_sums(const float (&sum)[Tiles][4], float* to) const {
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
      const float2 v = make_float2(both_parts(sum[i][0]), both_parts(sum[i][1]));
      if (row() == 0) *reinterpret_cast<float2*>(to + 8 * i + pair()) = v;
    }
  }
  template <int Tiles>
  __device__ __forceinline__ static void clear(float (&sum)[Tiles][4]) {
#pragma unroll
    for (int i = 0; i < Tiles; ++i) {
#pragma unroll
      for (int k = 0; k < 4; ++k) sum[i][k] = 0;
    }
  }
  /// Sums 32 values over the lanes; lane i gets the sum of value i.
  template <int Half = 16>
  __device__ __forceinline__ float sum_each(float (&v)[32]) const {
    const bool upper = (lane() & Half) != 0;
#pragma unroll
    for (int i = 0; i < Half; ++i) {
      const float send = upper ? v[i] : v[i + Half];
      const float keep = upper ? v[i + Half] : v[i];
      v[i] = keep + __shfl_xor_sync(every_lane, send, Half);
    }
    if constexpr (Half > 1) {
      return sum_each<Half / 2>(v);
    } else {
      return v[0];
    }
  }

  // -------------------------------------------------------------- a launch's start and end

  __device__ __forceinline__ void begin(unsigned long long step) const {
    ChipNow& n = now(0);
    n.step = step;
    n.phase = static_cast<int>(step % static_cast<unsigned>(a.period));
    n.lag = static_cast<int>(step % S::lags);
  }
  __device__ __forceinline__ void begin_launch() const {
    const Cursor cursor = *a.cursor;
    begin(cursor.step);
    now(0).frame = 0;
    ChipLaunch& l = launch();
    const std::size_t staging = cursor.block % static_cast<unsigned>(a.staging);
    const std::size_t tables = static_cast<std::size_t>(a.block_steps + 1) * a.layers;
    const std::size_t rows = staging * a.block_steps + cursor.frame;
    const std::uint32_t* index = a.index + staging * (1 + tables);
    const int left =
        static_cast<int>(index[0] & ~frames_are_floats) - static_cast<int>(cursor.frame);
    l.count = max(0, min(left, a.most_steps));
    l.ends = l.count == left;
    l.index = index + 1 + static_cast<std::size_t>(cursor.frame) * a.layers;
    l.coefficients = a.coefficients + staging * tables * a.table_stride;
    l.frames = a.frames + rows;
    l.scored = a.scored + rows;
    const std::size_t frame = static_cast<std::size_t>(a.patches) * a.patch;
    l.squeezed = (index[0] & frames_are_floats) != 0 ? a.squeezed + rows * frame : nullptr;
  }
  /// What steps need to know of their frames, to shared memory.
  __device__ __forceinline__ void load_launch() const {
    const ChipLaunch& l = launch();
    for (int i = thread; i < l.count; i += threads) {
      frames()[i] = l.squeezed == nullptr ? l.frames[i] : nullptr;
      shared[ChipAreas::scored + i] = l.scored[i];
    }
    for (int i = thread; i < l.count * unit_count(); i += threads) {
      const int u = i % unit_count();
      const int step = i / unit_count();
      area(u)[S::rates + static_cast<std::uint32_t>(step)] =
          l.index[static_cast<std::size_t>(step) * a.layers + unit(u).layer];
    }
    const int line = a.block_size * a.channels;
    for (int k = thread; k < a.patch; k += threads) {
      shared[ChipAreas::offsets + k] =
          static_cast<std::uint32_t>(k / line * a.side * a.channels + k % line);
    }
  }
  __device__ __forceinline__ const std::uint8_t** frames() const {
    return reinterpret_cast<const std::uint8_t**>(shared + ChipAreas::frames);
  }
  __device__ __forceinline__ void end_launch() const {
    const ChipLaunch& l = launch();
    Cursor end = *a.cursor;
    end.step += static_cast<unsigned>(l.count);
    end.frame += static_cast<unsigned>(l.count);
    if (l.ends) {
      end.frame = 0;
      ++end.block;
    }
    *a.cursor = end;
  }

  /// The past from device memory to shared memory.
  __device__ __forceinline__ void load_past() const {
    const unsigned long long t = now().step;
    for (std::uint32_t i = static_cast<std::uint32_t>(thread); i < p.x_words; i += threads)
      shared[p.x + i] = 0;
    for (std::uint32_t i = static_cast<std::uint32_t>(thread); i < 2 * p.out_count; i += threads)
      floats(p.y)[i] = 0;
    constexpr int parts = (warps + 1) * S::values + warps * S::part1_words;
    if (thread < unit_count()) area(thread)[S::opened] = ~0U;
    for (int i = thread; i < unit_count() * parts; i += threads) {
      float_area(i / parts)[S::part0 + static_cast<std::uint32_t>(i % parts)] = 0;
    }
    for (int i = thread; i < warps * 3; i += threads) {
      reinterpret_cast<double*>(shared + ChipAreas::score)[i] =
          a.score[static_cast<std::size_t>(blockIdx.x) * warps * 3 + i];
    }
    __syncthreads();
    for (int u = 0; u < unit_count(); ++u) {
      const ChipUnit& my = unit(u);
      for (int k = thread; k < history * Hidden; k += threads) {
        const unsigned long long step = t - 1 - static_cast<unsigned>(k / Hidden) + 2 * ring;
        const int i = k % Hidden;
        const std::size_t at = my.unit * Hidden + i;
        history_row(S::hidden, u, step)[i] =
            __ldcg(a.hidden + static_cast<std::size_t>(step & (ring - 1)) * a.hidden_row + at);
        history_row(S::d0, u, step)[i] =
            __ldcg(a.d0 + static_cast<std::size_t>(step & (history - 1)) * a.hidden_row + at);
        history_row(S::squeezed, u, step)[i] =
            Words::unpack(__ldcg(past(step) + my.unit * S::record + in_pieces(i)));
        if (i == 0) history_row(S::hidden, u, step)[Hidden] = 1;  // r of the bias
      }
      for (std::uint32_t o = static_cast<std::uint32_t>(thread); o < 2 * my.padded; o += threads) {
        for (int k = 0; k < 2; ++k) {
          floats(p.y)[k * p.out_count + my.out + o] =
              __ldcg(a.y + static_cast<std::size_t>(k) * a.output_row + my.all_out + o);
        }
      }
      if (thread == 0) shared[my.one] = Words::pack(1.0F);
      const std::uint32_t* from = past(t - 1 + ring);  // what is B now
      if (my.patch != not_a_patch) {
        for (std::uint32_t k = static_cast<std::uint32_t>(thread); k < my.base; k += threads) {
          shared[my.x + ((t & 1) != 0 ? 0 : my.padded) + k] =
              __ldcg(from + a.first_patch + my.patch * a.patch_record + in_pieces(k));
        }
        for (std::uint32_t i = static_cast<std::uint32_t>(thread); i < history * my.base;
             i += threads) {
          const unsigned long long step = t - 1 - i / my.base + 2 * ring;
          const std::uint32_t k = i % my.base;
          seen(my, step)[k] = Words::unpack(
              __ldcg(past(step) + a.first_patch + my.patch * a.patch_record + in_pieces(k)));
        }
      }
    }
    // Primary sources of step t - 1 are c(h(t-2)).
    gather_values(t - 2, (t & 1) == 0, thread, threads);
  }

  /// Copies one block's fp32 weights to 16 bits.
  __device__ __forceinline__ void round_block(const float* master, uint4 (&w)[S::pairs]) const {
    const float4* from = reinterpret_cast<const float4*>(master) + lane();
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) {
      const float4 low = __ldcg(from + 2 * i * 32), high = __ldcg(from + (2 * i + 1) * 32);
      w[i] = make_uint4(Math::pair(low.x, low.y), Math::pair(high.x, high.y),
                        Math::pair(low.z, low.w), Math::pair(high.z, high.w));
    }
  }
  /// A block that is not in registers: two paths, because shared memory has loads of its own.
  __device__ __forceinline__ uint4* in_shared(const ChipBlock& block) const {
    return reinterpret_cast<uint4*>(shared + block.where) + lane();
  }
  __device__ __forceinline__ uint4* streamed(const ChipBlock& block) const {
    return reinterpret_cast<uint4*>(a.copy +
                                    static_cast<std::size_t>(block.block) * S::block_words) +
           lane();
  }
  __device__ __forceinline__ void load_block(const ChipBlock& block, uint4 (&w)[S::pairs]) const {
    if (block.where == in_memory) {
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) w[i] = __ldcg(streamed(block) + i * 32);
    } else {
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) w[i] = in_shared(block)[i * 32];
    }
  }
  __device__ __forceinline__ void store_block(const ChipBlock& block,
                                              const uint4 (&w)[S::pairs]) const {
    if (block.where == in_memory) {
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) streamed(block)[i * 32] = w[i];
    } else {
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) in_shared(block)[i * 32] = w[i];
    }
  }
  __device__ __forceinline__ const ChipBlock* my_blocks() const {
    return list<ChipBlock>(p.blocks) + p.block_start[warp()];
  }
  __device__ __forceinline__ int my_count() const {
    return static_cast<int>(p.block_start[warp() + 1] - p.block_start[warp()]);
  }
  /// Where pair i of the columns of a row beside the tiles is: a lane's two pairs side by side.
  __device__ __forceinline__ static int rest_place(int row_beside, int i) {
    return row_beside * 8 + i % 4 * 2 + i / 4;
  }
  /// The rows beside the tiles of this warp's k-th block.
  __device__ __forceinline__ std::uint32_t* rest_of(int k) const {
    return shared + p.rest_first[warp()] + k * S::rest_words;
  }
  __device__ __forceinline__ float* master_of(const ChipBlock& block) const {
    return a.master + static_cast<std::size_t>(block.block) * S::master0;
  }
  __device__ __forceinline__ float* master_of(const ChipWideBlock& block) const {
    return a.master + a.first_wide + static_cast<std::size_t>(block.block) * S::master1;
  }

  __device__ __forceinline__ void load_weights(uint4 (&held)[held_blocks][S::pairs]) const {
    const ChipBlock* blocks = my_blocks();
    const int count = my_count();
#pragma unroll
    for (int k = 0; k < held_blocks; ++k) {
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) held[k][i] = make_uint4(0, 0, 0, 0);
      if (k < count) round_block(master_of(blocks[k]), held[k]);
    }
#pragma unroll 1
    for (int k = held_blocks; k < count; ++k) {
      uint4 w[S::pairs];
      round_block(master_of(blocks[k]), w);
      store_block(blocks[k], w);
    }
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
      const float* from = master_of(blocks[k]) + S::tile_floats;
      for (int i = lane(); i < S::rest_words; i += 32) {
        rest_of(k)[rest_place(i / 8, i % 8)] =
            Math::pair(__ldcg(from + 2 * i), __ldcg(from + 2 * i + 1));
      }
    }
    load_wide();
  }
  /// W1, its last rows, and the listed d1 beside them.
  __device__ __forceinline__ void load_wide() const {
    const auto* blocks = list<ChipWideBlock>(p.wide_blocks);
#pragma unroll 1
    for (std::uint32_t k = p.wide_start[warp()]; k < p.wide_start[warp() + 1]; ++k) {
      const ChipWideBlock& block = blocks[k];
      const float* master = master_of(block);
      uint4 w[S::pairs];
      round_block(master, w);
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) store_wide_tiles(block, i, w[i]);
      const std::uint32_t out = unit(static_cast<int>(block.what & 0xff)).all_out + block.out -
                                unit(static_cast<int>(block.what & 0xff)).out;
      std::uint32_t v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // tile i / 2, half of the columns i % 2
        const int e = row() + i / 2 * 8;
        const int o = i % 2 * 8 + pair();
        const float* from;
        if (e <= S::rest) {
          from = master + S::tile_floats + e * columns + o;
        } else {
          const unsigned long long step = now().step + history - 1 - age_of(e);
          from = a.d1 + static_cast<std::size_t>(step & (history - 1)) * a.output_row + out + o;
        }
        v[i] = Math::pair(__ldcg(from), __ldcg(from + 1));
      }
      store_wide_tiles(block, S::pairs, make_uint4(v[0], v[1], v[2], v[3]));
    }
  }
  /// How old the gradient is that stands in column e of those beside W1's tiles; `lags - 1`: none.
  __device__ __forceinline__ int age_of(int e) const {
    const int age = now().lag - 1 - (e - S::rest - 1);
    return age < 0 ? age + S::lags : age;
  }
  /// Where in a table that column's coefficient stands: 14 is 1, for W1's own columns.
  __device__ __forceinline__ int table_place(int e) const {
    return e <= S::rest ? sums - 2 : age_of(e);
  }

  // -------------------------------------------------------------- gather

  /// Values of sources of step `step` to x, in the places of even or odd steps; waits for them. The
  /// work of `count` threads, of which this is number `me`.
  __device__ __forceinline__ void gather_values(unsigned long long step, bool odd, int me,
                                                int count) const {
    constexpr int at_once = 4;
    const std::uint32_t* from = past(step);
    const auto mark = static_cast<std::uint32_t>(step + 1);
    const int pieces = static_cast<int>(p.slot_count) * S::value_pieces;
    const auto* slots = list<ChipSlot>(p.slots);
#pragma unroll 1
    for (int first = me; first < pieces; first += at_once * count) {
      uint4 v[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int k = min(first + i * count, pieces - 1);
        v[i] = receive_piece(from + slots[k / S::value_pieces].from + k % S::value_pieces * 4);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int k = min(first + i * count, pieces - 1);
        const ChipSlot slot = slots[k / S::value_pieces];
        const int piece = k % S::value_pieces;
        while (v[i].w != mark) v[i] = receive_piece(from + slot.from + piece * 4);
        std::uint32_t* to = shared + (odd ? slot.to >> 16 : slot.to & 0xffffU) + piece * 3;
        to[0] = v[i].x;
        if (piece * 3 + 1 < Hidden) to[1] = v[i].y;
        if (piece * 3 + 2 < Hidden) to[2] = v[i].z;
      }
    }
  }

  /// A lane's piece of a source's inner products. As many lanes as there are pieces have a
  /// source's.
  struct Products {
    float v[3];
  };
  /// Where this lane's piece of a source's products is in a row.
  __device__ __forceinline__ std::uint32_t products_at(const ChipSlot& slot) const {
    return slot.from + 4 * (S::value_pieces + lane() % S::product_pieces);
  }
  __device__ __forceinline__ static void add_products(Products& sum, uint4 piece, const float* w) {
    sum.v[0] += w[0] * __uint_as_float(piece.x);
    sum.v[1] += w[1] * __uint_as_float(piece.y);
    sum.v[2] += w[2] * __uint_as_float(piece.z);
  }
  /// The sum over the sources; lane i gets that of age i.
  __device__ __forceinline__ float over_sources(const Products& sum) const {
    float out = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      float v = sum.v[i];
      float all = v;
#pragma unroll
      for (int s = 1; s < panel_slots; ++s) {
        all += __shfl_sync(every_lane, v, (lane() + s * S::product_pieces) & 31);
      }
      const float mine = __shfl_sync(every_lane, all, lane() / 3);
      if (lane() % 3 == i) out = mine;
    }
    return out;
  }
  /// The sum over the primary sources of a unit of the products that they sent in step `step`.
  __device__ __forceinline__ float primary_products(int u, unsigned long long step) const {
    const ChipPanel& panel = list<ChipPanel>(p.panels)[unit(u).first_panel];
    const float ones[3] = {1, 1, 1};
    Products sum = {{0, 0, 0}};
#pragma unroll 1
    for (std::uint32_t from = 0; from < panel.count; from += panel_slots) {
      const std::uint32_t s = from + static_cast<std::uint32_t>(lane() / S::product_pieces);
      if (s < panel.count && lane() < panel_slots * S::product_pieces) {
        add_products(sum, wait_for_products(panel.first + s, step), ones);
      }
    }
    return over_sources(sum);
  }
  __device__ __forceinline__ uint4 wait_for_products(std::uint32_t slot,
                                                     unsigned long long step) const {
    const std::uint32_t* at = past(step) + products_at(list<ChipSlot>(p.slots)[slot]);
    uint4 piece = receive_piece(at);
    while (piece.w != static_cast<std::uint32_t>(step + 1)) piece = receive_piece(at);
    return piece;
  }
  /// Of the products of the primary sources, or of a patch, by age.
  __device__ __forceinline__ float* primary_sums(int u, unsigned long long step) const {
    return float_area(u) + S::primary + static_cast<unsigned>(step & 1) * sums;
  }
  /// What the listed gradients add to a unit's W0 x, one warp's work: the sum over ages of T d0(j),
  /// where T is the sum over the blocks that fold together of w(age) x(j-2).x(t).
  __device__ __forceinline__ void listed_share(int u) const {
    const unsigned long long t = now().step;
    const ChipUnit& my = unit(u);
    const bool patch = my.patch != not_a_patch;
    const std::uint32_t first = patch ? 0 : 1;
    const std::uint32_t* sent = past(t - 1 + ring);
    const auto mark = static_cast<std::uint32_t>(t);
    const std::uint32_t* places = shared + my.products + lane();
    constexpr int at_once = 3;
    Products sum = {{0, 0, 0}};
#pragma unroll 1
    for (std::uint32_t from = first; from < my.panels; from += at_once) {
      uint4 piece[at_once];
      std::uint32_t at[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        at[i] = from + i < my.panels ? places[(from + i) * 32] : no_product;
        if (at[i] != no_product) piece[i] = receive_piece(sent + at[i]);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (at[i] == no_product) continue;
        while (piece[i].w != mark) piece[i] = receive_piece(sent + at[i]);
        const ChipPanel& panel = list<ChipPanel>(p.panels)[my.first_panel + from + i];
        add_products(
            sum, piece[i],
            weights_of(u, static_cast<int>(panel.phase)) + 3 * (lane() % S::product_pieces));
      }
    }
    __syncwarp();
    float total = over_sources(sum);
    float products = 0;  // of A
    if (patch) {
      if (lane() < sums) products = primary_sums(u, t)[lane()];
    } else {
      products = primary_products(u, t - 1);
      if (lane() < sums) primary_sums(u, t)[lane()] = products;
    }
    if (lane() < S::terms) {
      total += weights_of(u, static_cast<int>(my.own_phase[0]))[lane()] * products;
      total +=
          weights_of(u, static_cast<int>(my.own_phase[1]))[lane()] * primary_sums(u, t + 1)[lane()];
      total += weights_of(u, static_cast<int>(my.own_phase[2]))[lane()];
    }
    constexpr int rows = (Hidden + 31) / 32;
    float share[rows];
#pragma unroll
    for (int k = 0; k < rows; ++k) share[k] = 0;
#pragma unroll
    for (int age = 0; age < S::terms; ++age) {
      const float weight = __shfl_sync(every_lane, total, age);
      const float* d0 = history_row(S::d0, u, t - 1 - age + history);
#pragma unroll
      for (int k = 0; k < rows; ++k) {
        const int i = lane() + 32 * k;
        if (i < Hidden) share[k] += weight * d0[i];
      }
    }
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const int i = lane() + 32 * k;
      if (i < Hidden) float_area(u)[S::listed_part + i] = share[k];
    }
  }
  /// The tables of this step's rates, where they are others than those that are there.
  __device__ __forceinline__ void open_tables(int u) const {
    const std::uint32_t table = area(u)[S::rates + static_cast<unsigned>(now().frame)];
    if (table == area(u)[S::opened]) return;
    __syncwarp();
    if (lane() == 0) area(u)[S::opened] = table;
    const float* from = launch().coefficients + static_cast<std::size_t>(table) * a.table_stride;
    const int square = a.period * S::terms;
#pragma unroll 1
    for (int k = lane(); k < (a.period + 1) * sums; k += 32) {
      const int since = k / sums;
      const int age = k % sums;
      const bool folds = since == a.period;
      float v = 0;
      if (age < S::terms) v = __ldg(from + (folds ? 2 * square : since * S::terms) + age);
      if (age == sums - 2) v = 1;
      // Of the row of folds: how many of them there are.
      if (age == sums - 1 && folds) v = __ldg(from + 2 * square + S::terms);
      (folds ? folds_of(u) : float_area(u) + S::tables + since * sums)[age] = v;
    }
    __syncwarp();
  }

  /// A of a unit that sees a patch, for the frame `ahead_by` behind the current one, and its inner
  /// products with the listed past: one warp's work.
  __device__ __forceinline__ void read_patch(int u, int ahead_by) const {
    const ChipUnit& my = unit(u);
    const ChipLaunch& l = launch();
    const int frame = now().frame + ahead_by;
    const unsigned long long t = now().step + static_cast<unsigned>(ahead_by);
    const int across = a.side / a.block_size;
    const auto patch = static_cast<int>(my.patch);
    const int corner =
        (patch / across * a.block_size * a.side + patch % across * a.block_size) * a.channels;
    const std::size_t size = static_cast<std::size_t>(a.patches) * a.patch;
    const float* values = l.squeezed == nullptr
                              ? nullptr
                              : l.squeezed + static_cast<std::size_t>(frame) * size + corner;
    const std::uint8_t* bytes = frames()[frame];
    const std::uint8_t* next = frame + 1 < l.count ? frames()[frame + 1] : nullptr;
    std::uint32_t* record = past(t) + a.first_patch + my.patch * a.patch_record;
    std::uint32_t* x = shared + my.x + ((t & 1) != 0 ? my.padded : 0);
    float v[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) v[i] = 0;
    constexpr int at_once = 3;  // pixels that a lane has under way
#pragma unroll 1
    for (int first = lane(); first < a.patch; first += 32 * at_once) {
      std::uint32_t words[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int k = first + 32 * i;
        words[i] = 0;
        if (k >= a.patch) continue;
        const std::uint32_t at = shared[ChipAreas::offsets + k];
        words[i] = Words::pack(
            values != nullptr ? __ldcg(values + at)
                              : squeeze_pixel(static_cast<float>(__ldcg(bytes + corner + at))));
        if (next != nullptr) prefetch_line(next + corner + at);
      }
      float pixel[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int k = first + 32 * i;
        pixel[i] = Words::unpack(words[i]);
        if (k >= a.patch) continue;
        x[k] = words[i];
        record[in_pieces(k)] = words[i];
        seen(my, t)[k] = pixel[i];
      }
#pragma unroll
      for (int age = 0; age < S::terms; ++age) {
        const float* then = seen(my, t - 3 - age + ring) + first;
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          if (first + 32 * i < a.patch) v[age] = __fmaf_rn(pixel[i], then[32 * i], v[age]);
        }
      }
    }
    const float sum = sum_each(v);
    if (lane() < sums) {
      record[a.patch_products + lane()] = __float_as_uint(sum);
      primary_sums(u, t)[lane()] = sum;
    }
  }

  // -------------------------------------------------------------- errors

  /// d1(t), beside W1 too, and the scores: the work of the warps that have no unit to finish. Half
  /// a warp has sixteen outputs at a time.
  __device__ __forceinline__ void errors() const {
    const ChipNow& n = now();
    const unsigned long long t = n.step;
    const bool scored = shared[ChipAreas::scored + n.frame] != 0;
    const unsigned parity = (static_cast<unsigned>(t) & 1U) * 16;
    const float* y = floats(p.y) + static_cast<unsigned>(t & 1) * p.out_count;
    float* row = a.d1 + static_cast<std::size_t>(t & (history - 1)) * a.output_row;
    const std::uint32_t then = static_cast<unsigned>((t - 2) & (history - 1)) * a.patch_row;
    float loss = 0, missed = 0, moved = 0;
    const std::uint32_t c = static_cast<std::uint32_t>(thread % columns);
#pragma unroll 1
    for (std::uint32_t o = static_cast<std::uint32_t>(thread - unit_threads()); o < p.out_count;
         o += static_cast<unsigned>(other_threads())) {
      const ChipTarget target = list<ChipTarget>(p.targets)[o / columns];
      float d1 = 0;
      if (c < target.count) {
        const float wanted = Words::unpack(shared[(target.x >> parity & 0xffffU) + c]);
        const float before = y[o];
        float e = wanted - before;
        loss += e * e;
        if (scored && target.seen != no_pixel) {
          const float m = (wanted - 0.1F) * 1.25F - unsqueeze(before);
          const float s = (wanted - floats(then + target.seen)[c]) * 1.25F;
          missed += m * m;
          moved += s * s;
        }
        if (a.sign_error != 0) e = copysignf(1.0F, e);
        d1 = derive(before) * e;
      }
      row[target.out + c] = d1;
      shared[p.d1 + o] = Words::pack(d1);
      list_output(o, d1);
    }
    add_score(loss, missed, moved, scored);
  }
  /// Into the columns beside W1's tiles.
  __device__ __forceinline__ void list_output(std::uint32_t o, float d1) const {
    const int column = S::rest + 1 + now().lag;
    const auto c = static_cast<int>(o % columns);
    const std::uint32_t tile = p.wide + o / columns * S::wide_words + S::pairs * 128 +
                               static_cast<std::uint32_t>(((column >> 3) * 2 + (c >> 3)) * 32);
    auto* words = reinterpret_cast<std::uint16_t*>(shared + tile + (column & 7) * 4 + (c & 7) / 2);
    words[c & 1] = Math::operand(d1);
  }
  __device__ __forceinline__ void add_score(float loss, float missed, float moved,
                                            bool scored) const {
    const auto over_lanes = [](float v) {
#pragma unroll
      for (int half = 16; half >= 1; half /= 2) v += __shfl_xor_sync(every_lane, v, half);
      return v;
    };
    double* score = reinterpret_cast<double*>(shared + ChipAreas::score) + warp() * 3;
    loss = over_lanes(loss);
    if (lane() == 0) score[2] += static_cast<double>(loss);
    if (!scored) return;
    missed = over_lanes(missed);
    moved = over_lanes(moved);
    if (lane() == 0) {
      score[0] += static_cast<double>(missed);
      score[1] += static_cast<double>(moved);
    }
  }

  // -------------------------------------------------------------- forward

  /// What this warp's blocks have of W0 x, unit by unit.
  __device__ __forceinline__ void forward(const uint4 (&held)[held_blocks][S::pairs]) const {
    const ChipBlock* blocks = my_blocks();
    const int count = my_count();
    const unsigned parity = (static_cast<unsigned>(now().step) & 1U) * 16;
    const std::uint32_t* beside = rest_of(0) + rest_place(row(), lane() & 3);
    uint4 next[S::pairs];  // asked for while the one before is multiplied
    if (held_blocks < count) load_block(blocks[held_blocks], next);
#pragma unroll 1
    for (int begin = 0, end = 0; begin < count; begin = end) {
      const std::uint32_t what = blocks[begin].what;
      end = begin + static_cast<int>(what >> run_shift);
      float sum[S::tiles + 1][4];
      clear(sum);
      const auto multiply_block = [&](int k, const uint4(&w)[S::pairs]) {
        std::uint32_t v[4];
        operand(v, shared + (blocks[k].x >> parity & 0xffffU));
        multiply<S::pairs>(sum, w, v);
        // The rows beside the tiles are some of eight: lanes of the others have zeros.
        uint2 more = make_uint2(0, 0);
        if (row() < S::rest) {
          more = *reinterpret_cast<const uint2*>(beside + k * S::rest_words);
        }
        Math::multiply(sum[S::tiles], v, more.x, more.y);
      };
#pragma unroll
      for (int k = 0; k < held_blocks; ++k) {
        if (begin <= k && k < end) multiply_block(k, held[k]);
      }
#pragma unroll 1
      for (int k = max(begin, held_blocks); k < end; ++k) {
        uint4 w[S::pairs];
#pragma unroll
        for (int i = 0; i < S::pairs; ++i) w[i] = next[i];
        if (k + 1 < count) load_block(blocks[k + 1], next);
        multiply_block(k, w);
      }
      end_unit(static_cast<int>(what & 0xff), sum);
    }
  }
  __device__ __forceinline__ void end_unit(int u, const float (&sum)[S::tiles + 1][4]) const {
    float* to = float_area(u) + S::part0 + warp() * S::values;
#pragma unroll
    for (int i = 0; i <= S::tiles; ++i) {
      const float2 v = make_float2(both_parts(sum[i][0]), both_parts(sum[i][1]));
      if (row() == 0 && (i < S::tiles || pair() < S::rest)) {
        *reinterpret_cast<float2*>(to + 8 * i + pair()) = v;
      }
    }
  }

  /// Value i of those that the lanes have, `word[i / 32]` in lane i % 32.
  template <int Rows>
  __device__ __forceinline__ std::uint32_t value_of(const std::uint32_t (&word)[Rows],
                                                    int i) const {
    std::uint32_t out = 0;
#pragma unroll
    for (int k = 0; k < Rows; ++k) {
      const std::uint32_t v = __shfl_sync(every_lane, word[k], i & 31);
      if (i / 32 == k) out = v;
    }
    return out;
  }
  /// Sends `pieces` pieces of the values that the lanes have, marked as of step t.
  template <int Rows>
  __device__ __forceinline__ void send(std::uint32_t* to, int pieces,
                                       const std::uint32_t (&word)[Rows],
                                       unsigned long long t) const {
    uint4 v;
    const int i = 3 * min(lane(), pieces - 1);
    v.x = value_of(word, i);
    v.y = value_of(word, i + 1);
    v.z = value_of(word, i + 2);
    v.w = static_cast<std::uint32_t>(t + 1);
    if (lane() < pieces) send_piece(to + 4 * lane(), v);
  }
  /// h(t) of a unit, sent, and then its inner products: one warp's work.
  __device__ __forceinline__ void finish_unit(int u) const {
    constexpr int rows = (Hidden + 31) / 32;
    const unsigned long long t = now().step;
    const ChipUnit& my = unit(u);
    std::uint32_t* record = past(t) + my.unit * S::record;
    float h[rows], c[rows];
    std::uint32_t word[rows];
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const int i = lane() + 32 * k;
      h[k] = c[k] = 0;
      word[k] = 0;
      if (i >= Hidden) continue;
      const float* part = float_area(u) + S::part0 + i;
      float v = part[warps * S::values];  // of the listed gradients
#pragma unroll
      for (int w = 0; w < warps; ++w) v += part[w * S::values];
      h[k] = activate(v);
      word[k] = Words::pack(squeeze(h[k]));
    }
    send(record, S::value_pieces, word, t);
    float* row =
        a.hidden + static_cast<std::size_t>(t & (ring - 1)) * a.hidden_row + my.unit * Hidden;
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const int i = lane() + 32 * k;
      if (i >= Hidden) continue;
      c[k] = Words::unpack(word[k]);
      row[i] = h[k];
      history_row(S::hidden, u, t)[i] = h[k];
      history_row(S::squeezed, u, t)[i] = c[k];
      area(u)[S::raw + static_cast<std::uint32_t>(i)] = Words::pack(h[k]);
    }
    float v[32];
    inner_products<rows>(v, 0, c, [&](int age, int i) {
      return history_row(S::squeezed, u, t - 3 - age + history)[i];
    });
    inner_products<rows>(v, sums, h, [&](int age, int i) {
      return history_row(S::hidden, u, t - 3 - age + history)[i];
    });
    const float sum = sum_each(v);
    const std::uint32_t products[1] = {__float_as_uint(sum)};
    send(record + 4 * S::value_pieces, S::product_pieces, products, t);
    list_representation(u, sum);
  }
  /// v[at + age] = this lane's part of now . then(age); explicit, so that all kernels round alike.
  template <int Rows, class Then>
  __device__ __forceinline__ void inner_products(float (&v)[32], int at,
                                                 const float (&values)[Rows], Then then) const {
#pragma unroll
    for (int age = 0; age < sums; ++age) {
      float sum = 0;
#pragma unroll
      for (int k = 0; k < Rows; ++k) {
        const int i = lane() + 32 * k;
        if (age < S::terms && i < Hidden) sum = __fmaf_rn(values[k], then(age, i), sum);
      }
      v[at + age] = sum;
    }
  }
  /// What W1's columns beside the tiles are multiplied by, for blocks by when they last folded: the
  /// last hidden values, 1, and w r(j-2).r(t) of each listed gradient. `sum`: of lanes 16 and more.
  __device__ __forceinline__ void list_representation(int u, float sum) const {
    const int e = lane() & (sums - 1);
    const int age = e > S::rest ? age_of(e) : 0;
    const float product = __shfl_sync(every_lane, sum, sums + (age < S::terms ? age : 0)) + 1.0F;
    float v = 1;  // the bias
    if (e < S::rest) v = history_row(S::hidden, u, now().step)[S::tiles * 8 + e];
    if (e > S::rest) v = product;
    const int place = table_place(e);
    const float* tables = float_area(u) + S::tables + place;
    std::uint32_t* to = area(u) + S::listed + e;
#pragma unroll 1
    for (int since = lane() / sums; since < a.period; since += 32 / sums) {
      to[since * sums] = Words::pack(tables[since * sums] * v);
    }
  }

  // -------------------------------------------------------------- backward

  /// Two row tiles of a block of W1, as operands of products over its outputs, or over its hidden
  /// values (transposed). They lie so that the same words are read both ways.
  __device__ __forceinline__ uint4 wide_tiles(const ChipWideBlock& block, int pair_of_tiles) const {
    std::uint32_t r[4];
    load_matrices(r, shared + block.where + pair_of_tiles * 128 + lane() * 4);
    return make_uint4(r[0], r[1], r[2], r[3]);
  }
  __device__ __forceinline__ uint4 wide_tiles_transposed(const ChipWideBlock& block,
                                                         int pair_of_tiles) const {
    std::uint32_t r[4];
    load_matrices_transposed(r, shared + block.where + pair_of_tiles * 128 + lane() * 4);
    return make_uint4(r[0], r[1], r[2], r[3]);
  }
  __device__ __forceinline__ void store_wide_tiles(const ChipWideBlock& block, int pair_of_tiles,
                                                   uint4 w) const {
    std::uint32_t* to = shared + block.where + pair_of_tiles * 128 + lane();
    to[0] = w.x;
    to[32] = w.y;
    to[64] = w.z;
    to[96] = w.w;
  }

  /// What this warp's blocks have of W1^T d1 and of d1(j).d1, the latter with its coefficients.
  __device__ __forceinline__ void backward() const {
    const auto* blocks = list<ChipWideBlock>(p.wide_blocks);
    float sum[S::tiles][4], more[4];
    clear(sum);
    int place[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      more[i] = 0;
      place[i] = table_place(place_of(i));
    }
#pragma unroll 1
    for (std::uint32_t k = p.wide_start[warp()]; k < p.wide_start[warp() + 1]; ++k) {
      const ChipWideBlock block = blocks[k];
      const int u = static_cast<int>(block.what & 0xff);
      uint4 w[S::pairs + 1];
#pragma unroll
      for (int i = 0; i <= S::pairs; ++i) w[i] = wide_tiles(block, i);
      std::uint32_t v[4];
      operand(v, shared + p.d1 + block.out);
      multiply<S::pairs>(sum, w, v);
      float beside[2][4];
      clear(beside);
      multiply<1>(beside, w + S::pairs, v);
      const float* weights = weights_of(u, static_cast<int>(block.what >> 8 & 0xff));
#pragma unroll
      for (int i = 0; i < 4; ++i) more[i] += weights[place[i]] * beside[i / 2][i % 2];
      if (block.what >> run_shift > 1) continue;
      float* to = float_area(u) + S::part1 + warp() * S::part1_words;
      write_sums(sum, to);
      clear(sum);
      const float together[2][4] = {{more[0], more[1], 0, 0}, {more[2], more[3], 0, 0}};
      write_sums(together, to + S::tiles * 8);
#pragma unroll
      for (int i = 0; i < 4; ++i) more[i] = 0;
    }
  }

  /// d0(t) of a unit: one warp's work.
  __device__ __forceinline__ void finish_gradient(int u) const {
    constexpr int rows = (Hidden + 31) / 32;
    const unsigned long long t = now().step;
    const float* part = float_area(u) + S::part1;
    const auto total = [&](int column) {
      float v = 0;
#pragma unroll
      for (int w = 0; w < warps; ++w) v += part[w * S::part1_words + column];
      return v;
    };
    // Lane i: of the gradient in column i.
    const float product = total(S::tiles * 8 + S::rest + 1 + min(lane(), S::lags - 1));
    float z[rows];
#pragma unroll
    for (int k = 0; k < rows; ++k) z[k] = lane() + 32 * k < Hidden ? total(lane() + 32 * k) : 0.0F;
    int column = now().lag;
#pragma unroll
    for (int age = 0; age < S::terms; ++age) {
      column = column == 0 ? S::lags - 1 : column - 1;
      const float factor = __shfl_sync(every_lane, product, column);
      const float* then = history_row(S::hidden, u, t - 3 - age + history) + lane();
#pragma unroll
      for (int k = 0; k < rows; ++k) {
        if (lane() + 32 * k < Hidden) z[k] += factor * then[32 * k];
      }
    }
    const float* before = history_row(S::hidden, u, t - 2 + history) + lane();
    float* to = history_row(S::d0, u, t) + lane();
    float* row = a.d0 + static_cast<std::size_t>(t & (history - 1)) * a.hidden_row +
                 unit(u).unit * Hidden + lane();
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      if (lane() + 32 * k >= Hidden) continue;
      const float d0 = derive(before[32 * k]) * z[k];
      to[32 * k] = d0;
      row[32 * k] = d0;
    }
  }

  /// y(t) of this warp's blocks, and the folds of those whose turn it is.
  __device__ __forceinline__ void outputs() const {
    const auto* blocks = list<ChipWideBlock>(p.wide_blocks);
    const int next_phase = now().phase + 1 == a.period ? 0 : now().phase + 1;
    std::uint32_t v[S::pairs][4];
    int held = -1;  // whose hidden values are in v
#pragma unroll 1
    for (std::uint32_t k = p.wide_start[warp()]; k < p.wide_start[warp() + 1]; ++k) {
      const ChipWideBlock block = blocks[k];
      const int u = static_cast<int>(block.what & 0xff);
      const int phase = static_cast<int>(block.what >> 8 & 0xff);
      if (u != held) {
        held = u;
#pragma unroll
        for (int i = 0; i < S::pairs; ++i) {
          operand(v[i], area(u) + S::raw + i * 16);
        }
      }
      float sum[2][4];
      clear(sum);
      const auto multiply_tiles = [&](int i, const std::uint32_t(&values)[4]) {
        const uint4 w = wide_tiles_transposed(block, i);
        Math::multiply(sum[0], values, w.x, w.z);
        Math::multiply(sum[1], values, w.y, w.w);
      };
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) multiply_tiles(i, v[i]);
      std::uint32_t listed[4];
      operand(listed, listed_of(u, phase));
      multiply_tiles(S::pairs, listed);
      float* y = floats(p.y) + static_cast<unsigned>(now().step & 1) * p.out_count + block.out;
      // Rows are alike but for even and odd: the first makes half of the outputs, the second the
      // other half.
      const bool second = (row() & 1) != 0;
      const float low[2] = {both_parts(sum[0][0]), both_parts(sum[0][1])};
      const float high[2] = {both_parts(sum[1][0]), both_parts(sum[1][1])};
      const float2 made =
          make_float2(activate(second ? high[0] : low[0]), activate(second ? high[1] : low[1]));
      if (row() < 2) *reinterpret_cast<float2*>(y + 8 * row() + pair()) = made;
      if (phase == next_phase) prefetch<S::master1>(master_of(block));
      if (phase == now().phase && gains(u) != 0) fold_wide(block, master_of(block), true);
    }
  }
  /// See list_representation.
  __device__ __forceinline__ const std::uint32_t* listed_of(int u, int phase) const {
    const int since = now().phase - phase;
    return area(u) + S::listed + (since < 0 ? since + a.period : since) * sums;
  }

  // -------------------------------------------------------------- folds

  /// What a step folds lies in the second-level cache when its turn comes.
  template <int Floats>
  __device__ __forceinline__ void prefetch(const float* master) const {
    constexpr int line = 32;
    static_assert(Floats <= 32 * line);
    if (lane() * line < Floats) prefetch_line(master + lane() * line);
  }
  /// Place i of the list as this lane sees it.
  __device__ __forceinline__ int place_of(int i) const { return i / 2 * 8 + pair() + i % 2; }

  /// Where the factors of this step's folds are; `which` is S::fold0 or S::fold1.
  __device__ __forceinline__ uint4* factors_of(std::uint32_t which, int u) const {
    return reinterpret_cast<uint4*>(area(u) + which + turn * S::factor_words) + lane();
  }
  /// The factors of a unit's folds, rows by places of the list, as operands in shared memory:
  /// weight(place) times what `row_of(place)` points to. What is behind a unit's last row ends in
  /// rows that nobody reads.
  template <class Weight, class Row>
  __device__ __forceinline__ void write_factors(std::uint32_t which, int u, Weight weight_of,
                                                Row row_of) const {
    float weight[4];
    const float* from[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      weight[i] = weight_of(place_of(i));
      from[i] = row_of(place_of(i));
    }
    uint4* to = factors_of(which, u);
#pragma unroll
    for (int tile = 0; tile < S::operands; ++tile) {
      std::uint32_t v[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int r = 16 * tile + row() + i % 2 * 8;
        const int k = i / 2 * 2;
        v[i] = Math::pair(weight[k] * from[k][r], weight[k + 1] * from[k + 1][r]);
      }
      to[tile * 32] = make_uint4(v[0], v[1], v[2], v[3]);
    }
  }
  /// For blocks of W0: the listed d0.
  __device__ __forceinline__ void write_hidden_factors(int u, const float* coefficients) const {
    write_factors(
        S::fold0, u, [&](int age) { return age < S::terms ? coefficients[age] : 0.0F; },
        [&](int age) {
          return history_row(S::d0, u, now().step - 1 - (age < S::terms ? age : 0) + history);
        });
  }
  /// For blocks of W1, whose list stands beside them: the hidden values then.
  __device__ __forceinline__ void write_wide_factors(int u, const float* coefficients) const {
    const auto age_there = [&](int e) { return e <= S::rest ? S::terms : age_of(e); };
    write_factors(
        S::fold1, u,
        [&](int e) { return age_there(e) < S::terms ? coefficients[age_there(e)] : 0.0F; },
        [&](int e) {
          const int age = age_there(e) < S::terms ? age_there(e) : 0;
          return history_row(S::hidden, u, now().step - 3 - age + history);
        });
  }

  /// Adds the sum over the list of factors times columns to a block of fp32 weights, and rounds it.
  /// `more` rows lie beside the tiles; `columns_then(b)` gives the columns as operands. `w` gets
  /// the tiles, `beside(half, words)` two columns of one of the other rows.
  template <class Columns, class Beside>
  __device__ __forceinline__ void fold(const float* master, float* to, int more,
                                       const uint4* factors, Columns columns_then,
                                       uint4 (&w)[S::pairs], Beside beside) const {
    const float4* from = reinterpret_cast<const float4*>(master) + lane();
    float4* sink = reinterpret_cast<float4*>(to) + lane();
    const int at = S::tile_floats + row() * columns + pair();
    float4 old[S::pairs][2];
    float2 old_beside[2];
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) {
#pragma unroll
      for (int half = 0; half < 2; ++half) old[i][half] = __ldcg(from + (2 * i + half) * 32);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      old_beside[half] = row() < more
                             ? __ldcg(reinterpret_cast<const float2*>(master + at + 8 * half))
                             : make_float2(0, 0);
    }
    std::uint32_t b[2][2];
    columns_then(b);
#pragma unroll
    for (int i = 0; i < S::operands; ++i) {
      const uint4 u = factors[i * 32];
      const std::uint32_t v[4] = {u.x, u.y, u.z, u.w};
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        // Tensor cores add with truncation: what is gained is added in ordinary arithmetic.
        float gain[4] = {0, 0, 0, 0};
        Math::multiply(gain, v, b[half][0], b[half][1]);
        if (i == S::pairs) {
          const float2 before = old_beside[half];
          const float2 sum = make_float2(before.x + gain[0], before.y + gain[1]);
          if (row() < more) {
            *reinterpret_cast<float2*>(to + at + 8 * half) = sum;
            beside(half, Math::pair(sum.x, sum.y));
          }
        } else {
          float4& sum = old[i][half];
          sum = make_float4(sum.x + gain[0], sum.y + gain[1], sum.z + gain[2], sum.w + gain[3]);
          sink[(2 * i + half) * 32] = sum;
        }
      }
      if (i == S::pairs) continue;
      w[i] = make_uint4(Math::pair(old[i][0].x, old[i][0].y), Math::pair(old[i][1].x, old[i][1].y),
                        Math::pair(old[i][0].z, old[i][0].w), Math::pair(old[i][1].z, old[i][1].w));
    }
  }

  /// The inputs of a block's columns in the steps of the listed gradients, as operands.
  __device__ __forceinline__ void past_columns(const ChipBlock& block,
                                               std::uint32_t (&b)[2][2]) const {
    std::uint32_t at[2], word[2][4];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const auto c = static_cast<std::uint32_t>(8 * half + row());
      at[half] = c < block.cut ? block.first + in_pieces(block.from + c)
                               : block.second + in_pieces(c - block.cut);
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const auto age = static_cast<unsigned>(place_of(i));
      const std::uint32_t* then = past(now().step + 2 * ring - block.back - age);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        word[half][i] = age < S::terms ? __ldcg(then + at[half]) : 0U;
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      b[half][0] = __byte_perm(word[half][0], word[half][1], 0x5410);
      b[half][1] = __byte_perm(word[half][2], word[half][3], 0x5410);
    }
  }

  /// A block of W0, by the factors of its unit.
  __device__ __forceinline__ void fold_block(const ChipBlock& block, float* to,
                                             uint4 (&w)[S::pairs], std::uint32_t* rest) const {
    const uint4* factors = factors_of(S::fold0, static_cast<int>(block.what & 0xff));
    fold(
        master_of(block), to, S::rest, factors,
        [&](std::uint32_t(&b)[2][2]) { past_columns(block, b); }, w,
        [&](int half, std::uint32_t words) {
          if (rest != nullptr) rest[rest_place(row(), half * 4 + pair() / 2)] = words;
        });
  }
  /// A block of W1.
  __device__ __forceinline__ void fold_wide(const ChipWideBlock& block, float* to,
                                            bool keep) const {
    const uint4* factors = factors_of(S::fold1, static_cast<int>(block.what & 0xff));
    uint4 beside = wide_tiles(block, S::pairs);
    uint4 w[S::pairs];
    fold(
        master_of(block), to, S::rest + 1, factors,
        [&](std::uint32_t(&b)[2][2]) {
          const uint4 listed = wide_tiles_transposed(block, S::pairs);
          b[0][0] = listed.x;
          b[0][1] = listed.z;
          b[1][0] = listed.y;
          b[1][1] = listed.w;
        },
        w, [&](int half, std::uint32_t words) { (half == 0 ? beside.x : beside.y) = words; });
    if (!keep) return;
    __syncwarp();  // all lanes have read
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) store_wide_tiles(block, i, w[i]);
    store_wide_tiles(block, S::pairs, beside);
  }
  /// This warp's blocks of W0 whose turn it is; those that come next are sent for.
  __device__ __forceinline__ void fold_blocks(uint4 (&held)[held_blocks][S::pairs]) const {
    const ChipBlock* blocks = my_blocks();
    const std::uint32_t* start =
        list<std::uint32_t>(p.folding_start) + warp() * (a.period + 1) + now().phase;
    const std::uint32_t* mine = list<std::uint32_t>(p.folding);
    const std::uint32_t* next = now().phase + 1 == a.period ? start - now().phase : start + 1;
#pragma unroll 1
    for (std::uint32_t i = next[0]; i < next[1]; ++i) {
      prefetch<S::master0>(master_of(blocks[mine[i]]));
    }
#pragma unroll 1
    for (std::uint32_t i = start[0]; i < start[1]; ++i) {
      const auto k = static_cast<int>(mine[i]);
      const ChipBlock block = blocks[k];
      if (gains(static_cast<int>(block.what & 0xff)) == 0) continue;
      uint4 w[S::pairs];
      fold_block(block, master_of(block), w, rest_of(k));
#pragma unroll
      for (int h = 0; h < held_blocks; ++h) {
        if (h != k) continue;
#pragma unroll
        for (int r = 0; r < S::pairs; ++r) held[h][r] = w[r];
      }
      if (k >= held_blocks) store_block(block, w);
    }
  }

  // -------------------------------------------------------------- the step

  /// The barriers of a step but for the one that all wait at.
  enum : int { sums_made = 1, errors_made, gradients_made, hidden_made, tables_open, patch_read };

  __device__ __forceinline__ void run(uint4 (&held)[held_blocks][S::pairs]) {
#pragma unroll 1
    for (;;) {
      begin_phase();
      if (warp() < unit_count()) {
        begin_unit(warp());
      } else {
        gather_values(now().step - 1, (now().step & 1) != 0, thread - unit_threads(),
                      other_threads());
        begin_phase();
        write_all_factors();
      }
      begin_phase();
      if (thread == threads - 1) wait_for_slowest();
      __syncthreads();
      if (thread == 0) prepare_step();
      forward(held);
      begin_phase();
      if (warp() < unit_count()) {
        finish(warp());
      } else {
        learn();
      }
      begin_phase();
      fold_blocks(held);
      const bool last = now().frame + 1 == launch().count;
      turn ^= 1;
      if (last) break;
    }
    __syncthreads();
  }
  /// What of a unit's work needs nothing of x(t).
  __device__ __forceinline__ void begin_unit(int u) const {
    open_tables(u);
    arrive_warps(tables_open, 2 * unit_threads());
    if (unit(u).patch != not_a_patch && now().frame > 0) sync_warps(patch_read + u, 64);
    listed_share(u);
  }
  /// The factors of the units' folds, a unit for each of the first of the other warps.
  __device__ __forceinline__ void write_all_factors() const {
    const int u = warp() - unit_count();
    if (u >= unit_count()) return;
    sync_warps(tables_open, 2 * unit_threads());
    if (lane() == 0) gains(u) = folds_of(u)[sums - 1] != 0 ? 1 : 0;
    write_hidden_factors(u, folds_of(u));
    begin_phase();
    write_wide_factors(u, folds_of(u));
  }
  /// And the rest that one warp does.
  __device__ __forceinline__ void finish(int u) const {
    sync_warps(sums_made, threads);
    finish_unit(u);
    arrive_warps(hidden_made, threads);
    begin_phase();
    sync_warps(gradients_made, threads);
    finish_gradient(u);
  }
  /// What the other warps do meanwhile.
  __device__ __forceinline__ void learn() const {
    arrive_warps(sums_made, threads);
    errors();
    begin_phase();
    sync_warps(errors_made, other_threads());
    backward();
    arrive_warps(gradients_made, threads);
    begin_phase();
    sync_warps(hidden_made, threads);
    read_patches();
    begin_phase();
    outputs();
  }
  /// The next frame for units that see a patch, one for each of the first of the other warps.
  __device__ __forceinline__ void read_patches() const {
    if (now().frame + 1 == launch().count) return;
    for (int u = warp() - unit_count(); u < unit_count(); u += warps - unit_count()) {
      if (unit(u).patch == not_a_patch) continue;
      read_patch(u, 1);
      arrive_warps(patch_read + u, 64);
    }
  }
  /// Nobody writes over what the slowest may still read.
  __device__ __forceinline__ void wait_for_slowest() const {
    if (now().step < ahead) return;
    const unsigned long long step = now().step - ahead;
    const unsigned int* begun = a.begun + step % rounds;
    const unsigned int target = (static_cast<unsigned>(step / rounds) + 1) * gridDim.x;
    while (static_cast<int>(load_relaxed(begun) - target) < 0) {
    }
  }
  __device__ __forceinline__ void prepare_step() const {
    const ChipNow& n = now();
    ChipNow& next = now(turn ^ 1);
    next.step = n.step + 1;
    next.frame = n.frame + 1;
    next.phase = n.phase + 1 == a.period ? 0 : n.phase + 1;
    next.lag = n.lag + 1 == S::lags ? 0 : n.lag + 1;
    add_one_relaxed(a.begun + n.step % rounds);
  }
  __device__ __forceinline__ void store_results() const {
    for (int u = 0; u < unit_count(); ++u) {
      const ChipUnit& my = unit(u);
      for (std::uint32_t o = static_cast<std::uint32_t>(thread); o < 2 * my.padded; o += threads) {
        for (int k = 0; k < 2; ++k) {
          a.y[static_cast<std::size_t>(k) * a.output_row + my.all_out + o] =
              floats(p.y)[k * p.out_count + my.out + o];
        }
      }
    }
    for (int i = thread; i < warps * 3; i += threads) {
      a.score[static_cast<std::size_t>(blockIdx.x) * warps * 3 + i] =
          reinterpret_cast<double*>(shared + ChipAreas::score)[i];
    }
  }
};

/// Copies a multiprocessor's program to shared memory.
template <class Precision, int Hidden>
__device__ __forceinline__ Multiprocessor<Precision, Hidden> open_block(const ChipArguments& a,
                                                                        std::uint32_t* shared) {
  const std::uint32_t* from = a.programs + a.program_start[blockIdx.x];
  const auto* header = reinterpret_cast<const ChipProgram*>(from);
  const std::uint32_t words = header->words;
  std::uint32_t* program = shared + header->start;
  for (std::uint32_t i = threadIdx.x; i < words; i += threads) program[i] = from[i];
  __syncthreads();
  return {a, *reinterpret_cast<const ChipProgram*>(program), shared, thread_number(), 0};
}

template <class Precision, int Hidden>
__global__ void __launch_bounds__(threads, 1) steps(const __grid_constant__ ChipArguments a) {
  using S = Sizes<Hidden>;
  auto block = open_block<Precision, Hidden>(a, dynamic_shared<std::uint32_t>());
  if (threadIdx.x == 0) block.begin_launch();
  __syncthreads();
  if (block.launch().count == 0) return;
  block.load_launch();
  block.load_past();
  uint4 held[held_blocks][S::pairs];
  block.load_weights(held);
  const unsigned long long t = block.now().step;
  if (block.warp() < block.unit_count()) {  // what B has of the listed gradients, and A of a patch
    const int u = block.warp();
    const ChipUnit& my = block.unit(u);
    float products = 0;
    if (my.patch != not_a_patch) {
      const std::uint32_t* record =
          block.past(t - 1 + ring) + a.first_patch + my.patch * a.patch_record + a.patch_products;
      if (block.lane() < sums) products = __uint_as_float(__ldcg(record + block.lane()));
    } else {
      products = block.primary_products(u, t - 2);
    }
    if (block.lane() < sums) block.primary_sums(u, t + 1)[block.lane()] = products;
    if (my.patch != not_a_patch) block.read_patch(u, 0);
  }
  __syncthreads();
  block.run(held);
  block.store_results();
  // The last one advances the cursor: all have read it then.
  if (threadIdx.x == 0 && atomicAdd(a.barrier, 1U) == gridDim.x - 1) {
    *a.barrier = 0;
    block.end_launch();
  }
}

/// W(step) = masters + the listed gradients, into `to`, laid out like the masters.
template <class Precision, int Hidden>
__global__ void __launch_bounds__(threads, 1)
    materialise(const __grid_constant__ ChipArguments a, unsigned long long step,
                const std::uint32_t* index, const float* coefficients, float* to) {
  using S = Sizes<Hidden>;
  const auto block = open_block<Precision, Hidden>(a, dynamic_shared<std::uint32_t>());
  if (threadIdx.x == 0) {
    block.begin(step);
    block.now(0).frame = 0;
    block.launch().coefficients = coefficients;
  }
  if (static_cast<int>(threadIdx.x) < block.unit_count()) {
    const auto u = static_cast<int>(threadIdx.x);
    block.area(u)[S::rates] = index[block.unit(u).layer];
  }
  __syncthreads();
  block.load_past();
  block.load_wide();
  const int warp = block.warp();
  __syncthreads();
  if (warp < block.unit_count()) block.open_tables(warp);
  const ChipBlock* blocks = block.my_blocks();
  const auto* wide = block.template list<ChipWideBlock>(block.p.wide_blocks);
#pragma unroll 1
  for (int phase = 0; phase < a.period; ++phase) {
    __syncthreads();
    if (warp < block.unit_count()) {
      block.write_hidden_factors(warp, block.weights_of(warp, phase));
      block.write_wide_factors(warp, block.weights_of(warp, phase));
    }
    __syncthreads();
#pragma unroll 1
    for (int k = 0; k < block.my_count(); ++k) {
      if (static_cast<int>(blocks[k].what >> 8 & 0xff) != phase) continue;
      uint4 w[S::pairs];
      block.fold_block(blocks[k], to + (block.master_of(blocks[k]) - a.master), w, nullptr);
    }
#pragma unroll 1
    for (std::uint32_t k = block.p.wide_start[warp]; k < block.p.wide_start[warp + 1]; ++k) {
      if (static_cast<int>(wide[k].what >> 8 & 0xff) != phase) continue;
      block.fold_wide(wide[k], to + (block.master_of(wide[k]) - a.master), false);
    }
  }
}

/// The inner products of the last two rows of a past that was brought in from outside.
template <class Precision, int Hidden>
__global__ void __launch_bounds__(threads, 1)
    restore_products(const __grid_constant__ ChipArguments a, unsigned long long step) {
  using S = Sizes<Hidden>;
  using Words = Split<Precision>;
  const auto block = open_block<Precision, Hidden>(a, dynamic_shared<std::uint32_t>());
  if (block.warp() >= block.unit_count()) return;
  const ChipUnit& my = block.unit(block.warp());
#pragma unroll 1
  for (unsigned back = 1; back <= 2; ++back) {
    const unsigned long long t = step + 2 * ring - back;
    std::uint32_t* record = block.past(t) + my.unit * S::record;
    constexpr int rows = (Hidden + 31) / 32;
    float c[rows];
    for (int k = 0; k < rows; ++k) {
      const int i = block.lane() + 32 * k;
      c[k] = i < Hidden ? Words::unpack(__ldcg(record + in_pieces(i))) : 0.0F;
    }
    float v[32];
    for (int i = 0; i < 32; ++i) v[i] = 0;
    block.template inner_products<rows>(v, 0, c, [&](int age, int i) {
      return Words::unpack(__ldcg(block.past(t - 3 - static_cast<unsigned>(age)) +
                                  my.unit * S::record + in_pieces(i)));
    });
    const float sum = block.sum_each(v);
    const std::uint32_t products[1] = {__float_as_uint(sum)};
    block.send(record + 4 * S::value_pieces, S::product_pieces, products,
               step - static_cast<unsigned>(back));
  }
  if (my.patch == not_a_patch) return;
  const unsigned long long t = step + 2 * ring - 1;
  std::uint32_t* record = block.past(t) + a.first_patch + my.patch * a.patch_record;
  float v[32];
#pragma unroll
  for (int i = 0; i < 32; ++i) v[i] = 0;
#pragma unroll 1
  for (int k = block.lane(); k < a.patch; k += 32) {
    const float pixel = Words::unpack(__ldcg(record + in_pieces(k)));
    for (int age = 0; age < S::terms; ++age) {
      const std::uint32_t word = __ldcg(block.past(t - 3 - static_cast<unsigned>(age)) +
                                        a.first_patch + my.patch * a.patch_record + in_pieces(k));
      v[age] = __fmaf_rn(pixel, Words::unpack(word), v[age]);  // as read_patch does
    }
  }
  const float sum = block.sum_each(v);
  if (block.lane() < sums) {
    record[a.patch_products + block.lane()] = __float_as_uint(sum);
  }
}

}  // namespace pvm::inline v0::detail::chip
