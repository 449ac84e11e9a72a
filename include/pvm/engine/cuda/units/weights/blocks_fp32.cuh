// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Blocks of fp32 weights, in the same order of rows and columns as 16-bit ones (sizes.hpp), but
/// multiplied in ordinary arithmetic. There are no low halves: a fold (folds_fp32.cuh) changes a
/// block where it is, and blocks on the chip are stored to device memory when a launch ends.
///
/// With row = lane / 4 and pair = 2 * (lane % 4), a lane has four columns, pair, pair + 1, pair + 8
/// and pair + 9, of row `row` of each tile. Its sums over columns or rows are partial; they are
/// added over the lanes when they are written.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/units/step/view.cuh>
#include <pvm/engine/cuda/units/weights/blocks_16bit.cuh>

namespace pvm::inline v0::detail::units {

template <int Hidden, Home home>
struct Blocks<fp32, Hidden, home> : View<fp32, Hidden, home> {
  using Base = View<fp32, Hidden, home>;
  using S = typename Base::S;
  using Base::a, Base::shared, Base::lane, Base::row, Base::pair, Base::warp, Base::now,
      Base::list_of, Base::listed_row;

  /// Words (float4) of a lane. Word 2i + k has columns 8k + pair and the next one: x and y of tile
  /// 2i, z and w of tile 2i + 1.
  static constexpr int words = 2 * S::pairs;
  struct Weights {
    float4 tiles[words];
  };
  /// Values for a lane's four columns: of[k] for 8k + pair and the next one.
  struct Values {
    float2 of[2];
  };
  /// Values for a lane's rows, one for each tile.
  struct Rows {
    float v[S::tiles];
  };
  /// Partial sums over a lane's columns: a row of each tile, then remainder row `row()`.
  struct Sums {
    float v[S::tiles + 1] = {};
  };
  /// Partial sums over a lane's rows: v[2k + i] is that of column 8k + pair + i.
  struct ColumnSums {
    float v[4] = {};
  };
  /// Partial sums over a lane's columns of a list of W1, for list rows `list_row_of(i)`.
  static constexpr int list_rows_per_lane = S::list_rows / 8;
  struct ListSums {
    float v[list_rows_per_lane] = {};
  };
  __device__ __forceinline__ int list_row_of(int i) const { return row() + 8 * i; }

  // -------------------------------------------------------------- where weights are

  /// The tiles of a block in device memory.
  template <class Block>
  __device__ __forceinline__ float* tiles_in_memory(const Block& block) const {
    return reinterpret_cast<float*>(this->words_of(block));
  }
  /// The remainder rows of a block in device memory, [rows][columns].
  template <class Block>
  __device__ __forceinline__ float* remainder_in_memory(const Block& block) const {
    return reinterpret_cast<float*>(a.weights + this->remainder_start_of(block));
  }
  /// This lane's first word of tiles at word `where` of shared memory. Word i of all lanes is 32
  /// consecutive float4.
  __device__ __forceinline__ float4* in_shared(std::uint32_t where) const {
    return reinterpret_cast<float4*>(shared + where) + lane();
  }
  /// This lane's first word of the tiles of a block in device memory.
  template <class Block>
  __device__ __forceinline__ const float4* streamed(const Block& block) const {
    return reinterpret_cast<const float4*>(tiles_in_memory(block)) + lane();
  }
  __device__ __forceinline__ static void load_streamed(Weights& w, const float4* from) {
#pragma unroll
    for (int i = 0; i < words; ++i) w.tiles[i] = load_l2_with_policy(from + i * 32, policy());
  }
  /// L2 cache policy of streamed weights. If all weights are streamed they leave the cache first;
  /// otherwise a part of them, as much as the cache can keep, is marked to stay.
  __device__ __forceinline__ static unsigned long long policy() {
    if constexpr (S::streams) return evict_first();
    return evict_last_fraction<S::evict_last_percent>();
  }
  /// Word i of the remainder rows of a block, from device memory.
  template <class Block>
  __device__ __forceinline__ std::uint32_t remainder_word(const Block& block, int i) const {
    return __ldcg(a.weights + this->remainder_start_of(block) + i);
  }
  __device__ __forceinline__ static void write_tiles(float4* to, const Weights& w) {
#pragma unroll
    for (int i = 0; i < words; ++i) to[i * 32] = w.tiles[i];
  }
  __device__ __forceinline__ void store_to_memory(float* to, const Weights& w) const {
    write_tiles(reinterpret_cast<float4*>(to) + lane(), w);
  }
  /// Stores the tiles of a block where they are loaded from: device memory or shared memory.
  template <class Block>
  __device__ __forceinline__ void store(const Block& block, const Weights& w) const {
    if (this->is_in_memory(block.where)) {
      store_to_memory(tiles_in_memory(block), w);
    } else {
      write_tiles(in_shared(block.where), w);
    }
  }
  __device__ __forceinline__ void store_w1(const W1Block& block, const Weights& w) const {
    store(block, w);
  }
  /// The remainder rows of this warp's k-th block of W0, where multiplying warps read them.
  __device__ __forceinline__ std::uint32_t* my_remainder(int k) const {
    if constexpr (S::streams) {
      return a.weights + this->remainder_start_of(this->my_blocks()[k]);
    }
    return shared + this->p.remainder_first[warp()] + k * S::remainder_words;
  }
  /// Word of row e, column o of a list, which is laid out like two tiles. A third one follows,
  /// whose words (float2) have the same order.
  __device__ __forceinline__ static int list_index(int e, int o) {
    if (S::long_lists && e >= 16) {
      return 16 * columns + ((o >> 3) * 32 + (e & 7) * 4 + (o & 7) / 2) * 2 + (o & 1);
    }
    return ((o >> 3) * 32 + (e & 7) * 4 + (o & 7) / 2) * 4 + (e >> 3) * 2 + (o & 1);
  }
  /// Fills the list of a block of W1: first the remainder rows and the bias, from device memory,
  /// then d1 of the last steps. `value_of(e, o)` points to the values for list row e, columns o and
  /// o + 1.
  template <class Value>
  __device__ __forceinline__ void store_list(std::uint32_t* list, const W1Block& block,
                                             Value value_of) const {
    const float* remainder = remainder_in_memory(block);
    float v[4 * list_rows_per_lane];
#pragma unroll
    for (int i = 0; i < 4 * list_rows_per_lane; ++i) {
      const int e = row() + i / 4 * 8, o = i / 2 % 2 * 8 + pair();
      v[i] =
          __ldcg((e <= S::remainder_rows ? remainder + e * columns + o : value_of(e, o)) + i % 2);
    }
#pragma unroll
    for (int i = 0; i < 4 * list_rows_per_lane; ++i) {
      store_list_value(list, list_index(row() + i / 4 * 8, i / 2 % 2 * 8 + pair() + i % 2), v[i]);
    }
  }
  /// Stores a value to word `word` of a list.
  __device__ __forceinline__ static void store_list_value(std::uint32_t* list, int word, float v) {
    list[word] = __float_as_uint(v);
  }

  // -------------------------------------------------------------- products

  /// This lane's values of a vector of 16.
  __device__ __forceinline__ Values values(const std::uint32_t* x) const {
    const auto* from = reinterpret_cast<const float*>(x) + pair();
    return {{*reinterpret_cast<const float2*>(from), *reinterpret_cast<const float2*>(from + 8)}};
  }
  __device__ __forceinline__ Rows rows(const std::uint32_t* h) const {
    Rows r;
#pragma unroll
    for (int i = 0; i < S::tiles; ++i) r.v[i] = __uint_as_float(h[8 * i + row()]);
    return r;
  }
  __device__ __forceinline__ static float dot(float sum, float w0, float w1, float2 x) {
    return __fmaf_rn(w1, x.y, __fmaf_rn(w0, x.x, sum));
  }
  __device__ __forceinline__ static void multiply_word(Sums& sum, int i, float4 w,
                                                       const Values& x) {
    const int tile = i / 2 * 2;
    sum.v[tile] = dot(sum.v[tile], w.x, w.y, x.of[i % 2]);
    sum.v[tile + 1] = dot(sum.v[tile + 1], w.z, w.w, x.of[i % 2]);
  }
  __device__ __forceinline__ static void multiply(Sums& sum, const Weights& w, const Values& x) {
#pragma unroll
    for (int i = 0; i < words; ++i) multiply_word(sum, i, w.tiles[i], x);
  }
  /// The same with weights in shared memory.
  __device__ __forceinline__ static void multiply_shared(Sums& sum, const float4* from,
                                                         const Values& x) {
#pragma unroll
    for (int i = 0; i < words; ++i) multiply_word(sum, i, from[i * 32], x);
  }
  /// `multiply`, which loads each word of the next block into the registers of the word that it has
  /// multiplied. The loads stay in flight.
  __device__ __forceinline__ static void multiply_and_load(Sums& sum, Weights& w, const Values& x,
                                                           const float4* next) {
#pragma unroll
    for (int i = 0; i < words; ++i) {
      multiply_word(sum, i, w.tiles[i], x);
      w.tiles[i] = load_l2_with_policy(next + i * 32, policy());
    }
  }
  /// This lane's weights of remainder row `row()`. Lanes beyond the last remainder row load a valid
  /// row, whose sums are never read.
  __device__ __forceinline__ Values remainder_weights(const std::uint32_t* remainder) const {
    return values(remainder +
                  (S::remainder_rows == 1 ? 0 : min(row(), S::remainder_rows - 1)) * columns);
  }
  __device__ __forceinline__ static void multiply_remainder(Sums& sum, const Values& w,
                                                            const Values& x) {
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      sum.v[S::tiles] = dot(sum.v[S::tiles], w.of[k].x, w.of[k].y, x.of[k]);
    }
  }
  /// Sums each of four values over the four lanes of a row; lane i of the four gets the sum of v_i.
  __device__ __forceinline__ float sum_over_columns(float v0, float v1, float v2, float v3) const {
    const bool upper = (lane() & 2) != 0, odd = (lane() & 1) != 0;
    const float a0 = (upper ? v2 : v0) + __shfl_xor_sync(every_lane, upper ? v0 : v2, 2);
    const float a1 = (upper ? v3 : v1) + __shfl_xor_sync(every_lane, upper ? v1 : v3, 2);
    return (odd ? a1 : a0) + __shfl_xor_sync(every_lane, odd ? a0 : a1, 1);
  }
  /// Completes and writes the sums of `Tiles` tiles, where tile S::tiles is the remainder rows:
  /// to[8 * tile + row()].
  template <int Tiles>
  __device__ __forceinline__ void write_rows(const Sums& sum, float* to) const {
#pragma unroll
    for (int i = 0; i < Tiles; i += 4) {
      const auto value = [&](int k) { return i + k < Tiles ? sum.v[i + k] : 0.0F; };
      const float v = sum_over_columns(value(0), value(1), value(2), value(3));
      const int tile = i + (lane() & 3);
      if (tile < S::tiles || (tile < Tiles && row() < S::remainder_rows)) to[tile * 8 + row()] = v;
    }
  }
  /// Completes and writes the sums of all rows of a block of W0, [Hidden].
  __device__ __forceinline__ void write_sums(const Sums& sum, float* to) const {
    write_rows<S::tiles + 1>(sum, to);
  }

  /// Loads the tiles of a block from device memory or shared memory.
  template <class Block>
  __device__ __forceinline__ void load(Weights& w, const Block& block) const {
    if (this->is_in_memory(block.where)) {
      load_streamed(w, streamed(block));
    } else {
#pragma unroll
      for (int i = 0; i < words; ++i) w.tiles[i] = in_shared(block.where)[i * 32];
    }
  }
  /// Of the third tile of a list: this lane's columns 8k + pair and the next one.
  __device__ __forceinline__ float2 third_tile(const std::uint32_t* list, int k) const {
    return reinterpret_cast<const float2*>(list + 16 * columns)[k * 32 + lane()];
  }
  /// List times d1: the remainder rows of W1^T d1, and d1(j).d1 for each listed gradient.
  __device__ __forceinline__ ListSums multiply_list(const std::uint32_t* list,
                                                    const Values& d1) const {
    const float4* w = reinterpret_cast<const float4*>(list) + lane();
    ListSums sum;
#pragma unroll
    for (int k = 0; k < 2; ++k) {
      sum.v[0] = dot(sum.v[0], w[k * 32].x, w[k * 32].y, d1.of[k]);
      sum.v[1] = dot(sum.v[1], w[k * 32].z, w[k * 32].w, d1.of[k]);
      if constexpr (S::long_lists) {
        const float2 third = third_tile(list, k);
        sum.v[2] = dot(sum.v[2], third.x, third.y, d1.of[k]);
      }
    }
    return sum;
  }
  /// Completes and writes the sums of a block of W1: those of the rows in tiles, then those of the
  /// list rows.
  __device__ __forceinline__ void write_w1_sums(const Sums& sum, const ListSums& list_sums,
                                                float* to) const {
    write_rows<S::tiles>(sum, to);
    const float v =
        sum_over_columns(list_sums.v[0], list_sums.v[1], S::long_lists ? list_sums.v[2] : 0.0F, 0);
    if ((lane() & 3) < list_rows_per_lane) to[(S::tiles + (lane() & 3)) * 8 + row()] = v;
  }
  /// Adds the products of a word 2i + k with the values for its two rows: `upper` for tile 2i,
  /// `lower` for tile 2i + 1.
  __device__ __forceinline__ static void multiply_rows_word(ColumnSums& sum, int k, float4 w,
                                                            float upper, float lower) {
    sum.v[2 * k] = __fmaf_rn(w.z, lower, __fmaf_rn(w.x, upper, sum.v[2 * k]));
    sum.v[2 * k + 1] = __fmaf_rn(w.w, lower, __fmaf_rn(w.y, upper, sum.v[2 * k + 1]));
  }
  /// Adds what the tiles of a block of W1, in `w`, contribute to W1^T d1 (`sum`) and to W1 r (`y`).
  __device__ __forceinline__ static void multiply_w1(Sums& sum, ColumnSums& y, const Weights& w,
                                                     const Values& d1, const Rows& h) {
#pragma unroll
    for (int i = 0; i < words; ++i) {
      multiply_word(sum, i, w.tiles[i], d1);
      multiply_rows_word(y, i % 2, w.tiles[i], h.v[i / 2 * 2], h.v[i / 2 * 2 + 1]);
    }
  }
  /// Adds what the list contributes to W1 r: the remainder rows, the bias and the correction for
  /// the listed gradients. `list_factors` (see View::list_factors_of) has the 16 factors of the
  /// list rows.
  __device__ __forceinline__ void multiply_listed_rows(ColumnSums& sum, const std::uint32_t* list,
                                                       const std::uint32_t* list_factors) const {
    const float4* w = reinterpret_cast<const float4*>(list) + lane();
    const float upper = __uint_as_float(list_factors[row()]);
    const float lower = __uint_as_float(list_factors[row() + 8]);
#pragma unroll
    for (int k = 0; k < 2; ++k) multiply_rows_word(sum, k, w[k * 32], upper, lower);
    if constexpr (S::long_lists) {
      const float last = __uint_as_float(list_factors[row() + 16]);
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float2 third = third_tile(list, k);
        sum.v[2 * k] = __fmaf_rn(third.x, last, sum.v[2 * k]);
        sum.v[2 * k + 1] = __fmaf_rn(third.y, last, sum.v[2 * k + 1]);
      }
    }
  }
  /// y of the 16 outputs of a block: completes the sums over the eight lanes that share four
  /// columns. Each of these lanes makes one output; two make the same one, and one of the two
  /// writes it.
  template <class Activate>
  __device__ __forceinline__ void write_outputs(const ColumnSums& sum, float* y,
                                                Activate activate) const {
    const bool high = (lane() & 16) != 0, odd = (lane() & 8) != 0;
    float v[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const float send = high ? sum.v[i] : sum.v[2 + i];
      v[i] = (high ? sum.v[2 + i] : sum.v[i]) + __shfl_xor_sync(every_lane, send, 16);
    }
    float all = (odd ? v[1] : v[0]) + __shfl_xor_sync(every_lane, odd ? v[0] : v[1], 8);
    all += __shfl_xor_sync(every_lane, all, 4);
    const float made = activate(all);
    if ((lane() & 4) == 0) y[(high ? 8 : 0) + pair() + (odd ? 1 : 0)] = made;
  }

  // -------------------------------------------------------------- folds_fp32.cuh

  __device__ void write_factors(int u, const float* coefficients) const;
  /// Writes those of the unit's blocks that fold at `phase`, with their present coefficients, for
  /// `materialise`.
  __device__ __forceinline__ void write_present_factors(int u, int phase) const {
    write_factors(u, this->coefficients_of(u, phase));
  }
  __device__ __forceinline__ float factor(int u, int age) const {
    return __uint_as_float(this->factors_of(S::fold0, u)[age]);
  }
  __device__ __forceinline__ int ages(int u) const {
    return static_cast<int>(this->factors_of(S::fold0, u)[S::table_row - 1]);
  }

  /// A lane's four columns of remainder row `row()`.
  struct Remainder {
    float2 of[2];
  };
  /// Offset of of[k] in the remainder rows of a block, [rows][columns].
  __device__ __forceinline__ int remainder_offset(int k) const {
    return row() * columns + pair() + 8 * k;
  }
  __device__ Remainder load_remainder(const float* rows, int row_count) const;
  __device__ void store_remainder(float* rows, const Remainder& remainder, int row_count) const;
  __device__ void add_outer(Weights& w, Remainder& remainder, const float* d, float c, Values x,
                            int row_count) const;

  /// The inputs of a block's columns in the steps of the listed gradients, [terms][columns] by age,
  /// in this warp's scratch memory.
  __device__ __forceinline__ std::uint32_t* past_inputs() const {
    return shared + a.areas.scratch + warp() * S::scratch_words;
  }
  /// The word behind them: the global number of the block whose past was loaded early in the step,
  /// or ~0 if there is none.
  __device__ __forceinline__ std::uint32_t* prepared_block() const {
    return past_inputs() + S::terms * columns;
  }
  /// Loads the past inputs of a block to `past_inputs`.
  __device__ __forceinline__ void copy_past_inputs(const W0Block& block) const {
    store_past_inputs(load_past_inputs(block));
  }
  /// The past inputs that a lane loads: column lane % 16, ages lane / 16 + 2i.
  struct PastInputs {
    std::uint32_t v[(S::terms + 1) / 2];
  };
  __device__ PastInputs load_past_inputs(const W0Block& block) const;
  __device__ void store_past_inputs(const PastInputs& past) const;
  __device__ void add_gradients(Weights& w, Remainder& remainder, const W0Block& block) const;
  __device__ void fold_prepared(const W0Block& block, Weights& w,
                                std::uint32_t* remainder_at) const;
  __device__ void fold(const W0Block& block, Weights& w, std::uint32_t* remainder_at) const;
  template <class Block>
  __device__ void store_streamed(const Block& block, const Weights& w) const;
  __device__ void fold_streamed(const W0Block& block, Weights& w,
                                std::uint32_t* remainder_at) const;
  __device__ void add_w1_gradients(Weights& w, Remainder& remainder, int u,
                                   const float* list) const;
  /// A lane's columns 8k + pair and the next one of list row `row()`. The first list rows are the
  /// remainder rows of W1 and the bias.
  __device__ __forceinline__ float2* list_remainder(float* list, int k) const {
    return reinterpret_cast<float2*>(list + list_index(row(), 8 * k + pair()));
  }
  __device__ Remainder load_list_remainder(float* list) const;
  __device__ void store_list_remainder(float* list, const Remainder& remainder) const;
  __device__ void fold_w1(const W1Block& block, Weights& w) const;
  __device__ void materialise(const W0Block& block, std::uint32_t* to) const;
  __device__ void materialise(const W1Block& block, std::uint32_t* to) const;

  // -------------------------------------------------------------- a launch's end

  /// Stores the remainder rows of a block from where folds keep them (shared memory, or the list of
  /// W1) to device memory.
  __device__ __forceinline__ void store_remainder_to_memory(const W0Block& block,
                                                            const std::uint32_t* from) const {
    float* rows = remainder_in_memory(block);
    store_remainder(rows, load_remainder(reinterpret_cast<const float*>(from), S::remainder_rows),
                    S::remainder_rows);
  }
  __device__ __forceinline__ void store_remainder_to_memory(const W1Block& block) const {
    auto* list = reinterpret_cast<float*>(list_of(block.out));
    store_remainder(remainder_in_memory(block), load_list_remainder(list), S::remainder_rows + 1);
  }
};

}  // namespace pvm::inline v0::detail::units
