// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Blocks of 16-bit weights: where they are, products on tensor cores, and folds (folds_16bit.cuh).
/// Weights are the first operand, 16 rows of them; the second is a vector's values, as sums of two
/// 16-bit numbers, which costs nothing: a tensor core has eight columns where a vector is one. Only
/// the weights are rounded to 16 bits.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/batch/precision.cuh>
#include <pvm/engine/cuda/chip/masters.cuh>
#include <pvm/engine/cuda/chip/view.cuh>
#include <pvm/engine/cuda/instructions.cuh>

namespace pvm::inline v0::detail::chip {

/// What a warp does with a block. Those of fp32 weights (blocks_fp32.cuh) have the same functions.
template <class Precision, int Hidden, Home home>
struct Blocks : View<Precision, Hidden, home> {
  using Base = View<Precision, Hidden, home>;
  using S = typename Base::S;
  using Math = batch::Math<Precision>;
  using M = Masters<Precision>;
  using Base::a, Base::shared, Base::lane, Base::row, Base::pair, Base::now;

  using Word = uint4;  ///< of a lane: its part of two tiles
  struct Weights {
    Word tiles[S::pairs];
  };
  /// Sixteen values as operand: even columns are the larger parts, odd columns the rest.
  struct Values {
    std::uint32_t v[2];
  };
  /// A unit's values as operands of products over its rows.
  struct Rows {
    Values of[S::pairs];
  };
  /// Of rows, two tiles at a time, then of those beside the tiles: of the larger parts and the rest
  /// of rows `row()`, then of those eight on.
  struct Sums {
    float v[S::pairs + 1][4] = {};
  };
  /// Of the columns of a block.
  struct ColumnSums {
    float v[4] = {};
  };
  /// What a lane has of sums over the columns of the list beside W1.
  static constexpr int listed_places = 2;
  struct ListSums {
    float v[listed_places] = {};
  };
  /// Place i of the list as this lane has it, and as it has it of an operand that lists sum over.
  __device__ __forceinline__ int place_of(int i) const { return row() + 8 * i; }
  __device__ __forceinline__ int operand_place(int i) const { return i / 2 * 8 + pair() + i % 2; }

  // -------------------------------------------------------------- where weights are

  __device__ __forceinline__ uint4* in_shared(std::uint32_t where) const {
    return reinterpret_cast<uint4*>(shared + where) + lane();
  }
  template <class Block>
  __device__ __forceinline__ uint4* streamed(const Block& block) const {
    return reinterpret_cast<uint4*>(this->words_of(block)) + lane();
  }
  /// Where the rows beside the tiles of this warp's k-th block are in shared memory.
  __device__ __forceinline__ std::uint32_t* rest_of(int k) const {
    return shared + this->p.rest_first[this->warp()] + k * S::rest_words;
  }
  /// Where all is streamed, nothing of it stays in the second-level cache.
  __device__ __forceinline__ static uint4 load_word(const uint4* from) {
    if constexpr (!S::streams) return __ldcg(from);
    const float4 v = load_marked(reinterpret_cast<const float4*>(from), leaves_first());
    return make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z),
                      __float_as_uint(v.w));
  }
  __device__ __forceinline__ static void load_streamed(Weights& w, const uint4* from) {
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) w.tiles[i] = load_word(from + i * 32);
  }
  __device__ __forceinline__ static void load_shared(Weights& w, const uint4* from) {
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) w.tiles[i] = from[i * 32];
  }
  /// Where a block is multiplied from, if not from registers.
  __device__ __forceinline__ void store(const ChipBlock& block, const Weights& w) const {
    write_tiles(block.where == in_memory ? streamed(block) : in_shared(block.where), w);
  }
  __device__ __forceinline__ static void write_tiles(uint4* to, const Weights& w) {
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) to[i * 32] = w.tiles[i];
  }
  /// Where the smaller halves are of weights that start at word `start` of all.
  __device__ __forceinline__ std::uint32_t* masters_of(std::uint32_t* weights,
                                                       std::size_t start) const {
    return weights + a.masters + start;
  }
  template <class Block>
  __device__ __forceinline__ const std::uint32_t* masters_of(const Block& block) const {
    return masters_of(a.weights, this->start_of(block));
  }
  /// Word i of the rows beside a block's tiles.
  template <class Block>
  __device__ __forceinline__ std::uint32_t beside_word(const Block& block, int i) const {
    return __ldcg(a.weights + this->beside_of(block) + i);
  }
  /// Where a lane's two pairs of columns of a row beside the tiles are: side by side.
  __device__ __forceinline__ int beside_at(int row_beside) const { return row_beside * 8 + pair(); }
  /// W1's tiles lie in shared memory such that the same words are read as operands of products over
  /// its outputs, and over its hidden values (transposed).
  __device__ __forceinline__ void store_wide(const ChipWideBlock& block, const Weights& w) const {
    if constexpr (S::streams) {
      write_tiles(streamed(block), w);
    } else {
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) store_tiles(shared + block.where + i * 128, w.tiles[i]);
    }
  }
  /// In device memory a lane's words lie side by side.
  __device__ __forceinline__ void store_tiles(std::uint32_t* to, uint4 w) const {
    if constexpr (S::streams) {
      reinterpret_cast<uint4*>(to)[lane()] = w;
      return;
    }
    to += lane();
    to[0] = w.x;
    to[32] = w.y;
    to[64] = w.z;
    to[96] = w.w;
  }
  __device__ __forceinline__ uint4 tiles_at(const std::uint32_t* from) const {
    if constexpr (S::streams) return reinterpret_cast<const uint4*>(from)[lane()];
    std::uint32_t r[4];
    load_matrices(r, from + lane() * 4);
    return make_uint4(r[0], r[1], r[2], r[3]);
  }
  /// For products over hidden values: the two tiles of the left columns are apart in operands.
  __device__ __forceinline__ uint4 transposed_tiles_at(const std::uint32_t* from) const {
    if constexpr (S::streams) {
      return transposed(tiles_at(from));
    } else {
      std::uint32_t r[4];
      const int tile = lane() >> 3;
      const int other = (tile & 1) * 2 + (tile >> 1);
      load_matrices_transposed(r, from + other * 32 + (lane() & 7) * 4);
      return make_uint4(r[0], r[1], r[2], r[3]);
    }
  }
  __device__ __forceinline__ static uint4 transposed(uint4 w) {
    return make_uint4(transpose(w.x), transpose(w.z), transpose(w.y), transpose(w.w));
  }
  /// Fills the list of a block of W1: its rows beside the tiles, then what `value_of(e, o)` points
  /// to, row e, columns o and o + 1.
  template <class Value>
  __device__ __forceinline__ void store_list(std::uint32_t* list, const ChipWideBlock& block,
                                             Value value_of) const {
    std::uint32_t v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // half of the columns i / 2, tile i % 2
      const int e = row() + i % 2 * 8;
      if (e <= S::rest) {
        v[i] = beside_word(block, beside_at(e) + i / 2);
      } else {
        const float* from = value_of(e, i / 2 * 8 + pair());
        v[i] = Math::pair(__ldcg(from), __ldcg(from + 1));
      }
    }
    store_tiles(list, make_uint4(v[0], v[1], v[2], v[3]));
  }
  /// Where row e, column o of a list is, and a value to such a place.
  __device__ __forceinline__ static int list_place(int e, int o) {
    const int tile = (o >> 3) * 2 + (e >> 3), place = (e & 7) * 4 + (o & 7) / 2;
    return 2 * (S::streams ? place * 4 + tile : tile * 32 + place) + (o & 1);
  }
  __device__ __forceinline__ static void list_value(std::uint32_t* list, int place, float v) {
    reinterpret_cast<std::uint16_t*>(list)[place] = Math::operand(v);
  }

  // -------------------------------------------------------------- products

  /// A lane's words of sixteen values, and what it has of them as operand.
  struct Inputs {
    uint2 low, high;
  };
  __device__ __forceinline__ Inputs inputs(const std::uint32_t* x) const {
    return {*reinterpret_cast<const uint2*>(x + pair()),
            *reinterpret_cast<const uint2*>(x + pair() + 8)};
  }
  __device__ __forceinline__ Values operand(const Inputs& x) const {
    const unsigned int select = (row() & 1) != 0 ? 0x7632U : 0x5410U;
    const std::uint32_t first = __byte_perm(x.low.x, x.low.y, select);
    const std::uint32_t second = __byte_perm(x.high.x, x.high.y, select);
    return {{first, second}};
  }
  __device__ __forceinline__ Values values(const std::uint32_t* x) const {
    return operand(inputs(x));
  }
  __device__ __forceinline__ Rows rows(const std::uint32_t* h) const {
    Rows r;
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) r.of[i] = values(h + i * 16);
    return r;
  }
  __device__ __forceinline__ static void multiply_tiles(float (&sum)[4], uint4 w, const Values& x) {
    const std::uint32_t a[4] = {w.x, w.y, w.z, w.w};
    Math::multiply(sum, a, x.v[0], x.v[1]);
  }
  __device__ __forceinline__ static void multiply(Sums& sum, const Weights& w, const Values& x) {
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) multiply_tiles(sum.v[i], w.tiles[i], x);
  }
  /// And loads the weights that come into their place, which are in shared memory.
  __device__ __forceinline__ static void multiply_and_load_shared(Sums& sum, Weights& w,
                                                                  const Values& x,
                                                                  const uint4* next) {
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) {
      multiply_tiles(sum.v[i], w.tiles[i], x);
      w.tiles[i] = next[i * 32];
    }
  }
  /// And asks for the weights that come into their place.
  __device__ __forceinline__ static void multiply_and_load(Sums& sum, Weights& w, const Values& x,
                                                           const uint4* next) {
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) {
      multiply_tiles(sum.v[i], w.tiles[i], x);
      w.tiles[i] = load_word(next + i * 32);
    }
  }
  /// The rows beside the tiles are some of sixteen: what lanes make of others is not looked at.
  __device__ __forceinline__ uint2 rest_weights(const std::uint32_t* rest) const {
    const int mine = S::rest == 1 ? 0 : min(row(), S::rest - 1);
    return *reinterpret_cast<const uint2*>(rest + beside_at(mine));
  }
  /// The columns of a product that are one vector are shared out: the first four are the first
  /// eight values, times which rows `row()` count, the others the last eight, times which those
  /// eight on do: half a product, and no words to move.
  __device__ __forceinline__ void multiply_rest(Sums& sum, uint2 w, const Values& x) const {
    Math::multiply_shallow(sum.v[S::pairs], w.x, w.y, lane() < 16 ? x.v[0] : x.v[1]);
  }
  /// Sum i over both parts, eight rows each; the four lanes of a row have the same.
  __device__ __forceinline__ static float both_parts(const float (&v)[4], int i) {
    return v[2 * i] + v[2 * i + 1];
  }
  /// Writes eight rows of each of `Count` sums, four sums at a time: lane i of a row writes that of
  /// sum i.
  template <int Count>
  __device__ __forceinline__ void write_rows(const float (&sum)[Count], float* to) const {
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
      const auto value = [&](int k) { return sum[min(i + k, Count - 1)]; };
      const bool upper = (lane() & 2) != 0, odd = (lane() & 1) != 0;
      const float first = odd ? value(1) : value(0), second = odd ? value(3) : value(2);
      const int mine = i + (lane() & 3);
      if (mine < Count) to[mine * 8 + row()] = upper ? second : first;
    }
  }
  /// The four lanes of a row have the same: one writes, because shorter code is fetched sooner.
  __device__ __forceinline__ void write_sums(const Sums& sum, float* to) const {
    const float last_half = __shfl_xor_sync(every_lane, both_parts(sum.v[S::pairs], 1), 2);
    if ((lane() & 3) == 0) {
#pragma unroll
      for (int i = 0; i < S::tiles; ++i) to[i * 8 + row()] = both_parts(sum.v[i / 2], i % 2);
      if (row() < S::rest) {
        to[S::tiles * 8 + row()] = both_parts(sum.v[S::pairs], 0) + last_half;
      }
    }
  }
  __device__ __forceinline__ static void clear(Sums& sum) {
#pragma unroll
    for (int i = 0; i <= S::pairs; ++i) clear_in_place(sum.v[i]);
  }
  /// Of W1: its tiles, then the list.
  __device__ __forceinline__ void write_wide_sums(const Sums& sum, const ListSums& more,
                                                  float* to) const {
    float v[S::tiles + 2];
#pragma unroll
    for (int i = 0; i < S::tiles; ++i) v[i] = both_parts(sum.v[i / 2], i % 2);
    v[S::tiles] = more.v[0];
    v[S::tiles + 1] = more.v[1];
    write_rows(v, to);
  }

  /// The two tiles of a list.
  using List = Word;
  __device__ __forceinline__ List load_list(const std::uint32_t* list) const {
    return tiles_at(list);
  }
  __device__ __forceinline__ static ListSums multiply_list(const List& list, const Values& d1) {
    float sum[4] = {};
    multiply_tiles(sum, list, d1);
    return {{both_parts(sum, 0), both_parts(sum, 1)}};
  }
  /// What a block of W1 whose tiles are in `w` has of W1^T d1 and of W1 r.
  __device__ __forceinline__ static void multiply_wide(Sums& sum, ColumnSums& y, const Weights& w,
                                                       const Values& d1, const Rows& h) {
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) {
      multiply_tiles(sum.v[i], w.tiles[i], d1);
      multiply_tiles(y.v, transposed(w.tiles[i]), h.of[i]);
    }
  }
  __device__ __forceinline__ void load_wide(Weights& w, const std::uint32_t* tiles) const {
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) w.tiles[i] = tiles_at(tiles + i * 128);
  }
  /// The latter, by tiles `from` to `to` in shared memory, which can be read transposed.
  __device__ __forceinline__ void multiply_rows(ColumnSums& sum, const std::uint32_t* tiles,
                                                const Rows& h, int from, int to) const {
#pragma unroll
    for (int i = from; i < to; ++i) {
      multiply_tiles(sum.v, transposed_tiles_at(tiles + i * 128), h.of[i]);
    }
  }
  __device__ __forceinline__ static void add(ColumnSums& sum, const ColumnSums& more) {
#pragma unroll
    for (int i = 0; i < 4; ++i) sum.v[i] += more.v[i];
  }
  __device__ __forceinline__ void multiply_listed_rows(ColumnSums& sum, const std::uint32_t* list,
                                                       const std::uint32_t* listed) const {
    multiply_tiles(sum.v, transposed_tiles_at(list), values(listed));
  }
  __device__ __forceinline__ static void multiply_listed_rows(ColumnSums& sum, const List& list,
                                                              const Values& listed) {
    multiply_tiles(sum.v, transposed(list), listed);
  }
  /// Of the four lanes of a row one makes its output, another the one eight on.
  template <class Activate>
  __device__ __forceinline__ void write_outputs(const ColumnSums& sum, float* y,
                                                Activate activate) const {
    const bool second = (lane() & 1) != 0;
    const float made = activate(second ? both_parts(sum.v, 1) : both_parts(sum.v, 0));
    if ((lane() & 2) == 0) y[(second ? 8 : 0) + row()] = made;
  }

  // -------------------------------------------------------------- folds_16bit.cuh

  /// The factors of a unit's folds with these coefficients, by age, as operands in shared memory:
  /// for blocks of W0 the listed d0, by age; for blocks of W1, whose list stands beside them, the
  /// hidden values then, by places of the list. What is behind a unit's last row ends in rows that
  /// nobody reads.
  __device__ void write_factors(int u, bool wide, const float* coefficients) const;
  __device__ __forceinline__ void write_factors(int u, const float* coefficients) const {
#pragma unroll 1
    for (int wide = 0; wide < 2; ++wide) write_factors(u, wide != 0, coefficients);
  }
  __device__ __forceinline__ uint4* in_shared_factors(std::uint32_t which, int u) const {
    return reinterpret_cast<uint4*>(this->factors_of(which, u)) + lane();
  }

  /// What a step folds lies in the second-level cache when its turn comes.
  template <class Block>
  __device__ __forceinline__ void prefetch_masters(const Block& block) const {
    this->template prefetch<S::block_words>(masters_of(block));
  }
  /// A lane's words of the rows beside the tiles, where weights are in device memory.
  template <class Block>
  __device__ __forceinline__ std::size_t beside_start(const Block& block) const {
    return this->beside_of(block) + static_cast<unsigned>(beside_at(row()));
  }
  /// These words, of the first `rows` of such rows.
  template <class Block>
  __device__ uint2 beside_in_memory(const Block& block, int rows) const;
  /// Where a block is among all weights: its tiles, this lane's words of the rows beside them, and
  /// how many rows these are.
  struct Place {
    std::size_t start, beside;
    int rows;
  };
  __device__ __forceinline__ Place place(const ChipBlock& block) const {
    return {this->start_of(block), beside_start(block), S::rest};
  }
  __device__ __forceinline__ Place place(const ChipWideBlock& block) const {
    return {this->start_of(block), beside_start(block), S::rest + 1};
  }
  /// The smaller halves of a lane's words of a block.
  struct Smaller {
    uint4 tiles[S::pairs];
    uint2 beside;
  };
  __device__ Smaller smaller_halves(const Place& at) const;
  /// Columns as operands.
  struct Columns {
    std::uint32_t v[2][2];
  };
  /// Adds the sum over the list of factors times columns to a block whose tiles are in `w`, with
  /// the rows beside them in `beside`. The smaller halves, and these rows, go to `to`, laid out
  /// like all weights.
  __device__ void fold(const Place& at, std::uint32_t* to, const uint4* factors,
                       const Columns& columns, Smaller& smaller, Weights& w, uint2& beside) const;

  /// What a lane asks for of the inputs of a block's columns in the steps of the listed gradients,
  /// and all of them as operands.
  struct Past {
    std::uint32_t word[2][4];
  };
  __device__ Past ask_past(const ChipBlock& block) const;
  __device__ static Columns past_columns(const Past& past);
  /// The listed d1 of a block of W1.
  __device__ __forceinline__ Columns listed_columns(const std::uint32_t* list) const {
    const uint4 there = transposed_tiles_at(list);
    return {{{there.x, there.z}, {there.y, there.w}}};
  }

  /// A block of W0 whose tiles are in `w`, by the factors of its unit, to `to`.
  __device__ void fold_block(const ChipBlock& block, std::uint32_t* to, Weights& w,
                             uint2& beside) const;
  /// One where it is multiplied from, or, if it is held, where it is loaded from again. The rows
  /// beside its tiles are at `rest`, and go to `rest_to`.
  __device__ void fold(const ChipBlock& block, const std::uint32_t* rest,
                       std::uint32_t* rest_to) const;
  /// A streamed block, the rows beside whose tiles are in device memory, too, by the past that it
  /// has asked for. `meanwhile` asks for something else.
  template <class Meanwhile>
  __device__ void fold_streamed(const ChipBlock& block, const Past& past,
                                Meanwhile meanwhile) const;
  /// A block of W1 whose tiles are in `w`.
  __device__ __forceinline__ void fold_wide(const ChipWideBlock& block, Weights& w) const {
    fold_wide_block(block, a.weights, w, true);
  }
  /// And one in shared memory.
  __device__ void fold_wide(const ChipWideBlock& block) const;
  /// W of a block by its unit's factors, to `to`; the block stays what it is.
  __device__ void materialise(const ChipBlock& block, std::uint32_t* to) const;
  __device__ void materialise(const ChipWideBlock& block, std::uint32_t* to) const;
  /// A block of W1, whose d1 are in its list.
  __device__ void fold_wide_block(const ChipWideBlock& block, std::uint32_t* to, Weights& w,
                                  bool keep) const;
};

}  // namespace pvm::inline v0::detail::chip
