// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Blocks of 16-bit weights: where they are stored, their products on tensor cores, and the
/// declarations of their folds (folds_16bit.cuh). sizes.hpp describes blocks, tiles and lists.
///
/// A product is `mma` m16n8k16 (16 x 16 by 16 x 8). Operand A is two tiles of weights. Operand B
/// has eight columns, but a product with a vector needs one only. So even columns hold the values
/// rounded to 16 bits, odd columns what rounding left out (see Split in halves.hpp), and the sum of
/// an even and an odd column is the product with values of 16 or more bits of mantissa. Only the
/// weights are rounded to 16 bits, and this costs no additional time.
///
/// With row = lane / 4 and pair = 2 * (lane % 4), a lane has of these fragments:
///     A  (uint4)     x: row,     columns pair, pair + 1    z: row,     columns pair + 8, pair + 9
///                    y: row + 8, columns pair, pair + 1    w: row + 8, columns pair + 8, pair + 9
///     B  (2 words)   column `row`, values pair, pair + 1; then values pair + 8, pair + 9
///     accumulators   [0], [1]: row `row`, columns pair (rounded values), pair + 1 (residuals);
///                    [2], [3]: row `row` + 8; all four lanes of a row have the same sums

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/numbers/precision.cuh>
#include <pvm/engine/cuda/units/step/view.cuh>
#include <pvm/engine/cuda/units/weights/masters.cuh>
#include <pvm/engine/cuda/units/weights/stored_tiles.cuh>

namespace pvm::inline v0::detail::units {

/// What a warp can do with a block. The specialisation for fp32 weights (blocks_fp32.cuh) offers
/// the functions that code for both precisions uses, under the same names.
template <class Precision, int Hidden, Home home>
struct Blocks : View<Precision, Hidden, home> {
  using Base = View<Precision, Hidden, home>;
  using S = typename Base::S;
  using Math = detail::Math<Precision>;
  using M = Masters<Precision, S::packed>;
  using Base::a, Base::shared, Base::lane, Base::row, Base::pair, Base::now;

  using Word = uint4;  ///< a lane's part of two tiles: its fragment of operand A
  /// A lane's part of the tiles of a block, as it is stored (stored_tiles.cuh).
  using Weights = StoredTiles<S::pairs, S::packed>;
  /// Sixteen values as operand B: even columns hold the rounded values, odd columns the residuals.
  struct Values {
    std::uint32_t v[2];
  };
  /// All hidden values in tiles, as operands B of products that sum over rows (W1 r).
  struct Rows {
    Values of[S::pairs];
  };
  /// Accumulators of a product that sums over columns (W0 x, W1^T d1). v[i] belongs to tiles 2i and
  /// 2i + 1, one behind these to the remainder rows (`multiply_remainder`), if there are any.
  struct Sums {
    float v[S::pairs + (S::remainder_rows > 0 ? 1 : 0)][4] = {};
  };
  /// Accumulators of a product that sums over rows (W1 r). [0] and [1] belong to column `row()` of
  /// the block, [2] and [3] to column `row()` + 8.
  struct ColumnSums {
    float v[4] = {};
  };
  /// Sums over the columns of a list of W1 for list rows `list_row_of(i)`.
  static constexpr int list_rows_per_lane = 2;
  struct ListSums {
    float v[list_rows_per_lane] = {};
  };
  /// List row that element i of this lane's ListSums belongs to.
  __device__ __forceinline__ int list_row_of(int i) const { return row() + 8 * i; }
  /// List row, or age, of a lane's i-th value (0 to 3) in an operand that sums over the list.
  __device__ __forceinline__ int operand_k(int i) const { return i / 2 * 8 + pair() + i % 2; }

  // -------------------------------------------------------------- where weights are

  /// This lane's first word of the tiles of W0 at word `where` of shared memory. The words of a
  /// pair of tiles are 32 consecutive uint4, one for each lane. (W1's tiles: see `store_w1`.)
  __device__ __forceinline__ uint4* in_shared(std::uint32_t where) const {
    return reinterpret_cast<uint4*>(shared + where) + lane();
  }
  /// This lane's first word of the tiles of a block in device memory.
  template <class Block>
  __device__ __forceinline__ uint4* streamed(const Block& block) const {
    return reinterpret_cast<uint4*>(this->words_of(block)) + lane();
  }
  /// The remainder rows of this warp's k-th block of W0 in shared memory.
  __device__ __forceinline__ std::uint32_t* my_remainder(int k) const {
    return shared + this->p.remainder_first[this->warp()] + k * S::remainder_words;
  }
  /// Loads past the L1 cache. If all weights are streamed, the L2 cache evicts them first.
  __device__ __forceinline__ static uint4 load_word(const uint4* from) {
    if constexpr (!S::streams) return __ldcg(from);
    const float4 v = load_l2_with_policy(reinterpret_cast<const float4*>(from), evict_first());
    return make_uint4(__float_as_uint(v.x), __float_as_uint(v.y), __float_as_uint(v.z),
                      __float_as_uint(v.w));
  }
  __device__ __forceinline__ static std::uint32_t load_word(const std::uint32_t* from) {
    return load_l2_with_policy(from, evict_first());
  }
  /// Loads likewise, to the registers of `to`.
  template <class T>
  __device__ __forceinline__ static void load_in_place(T& to, const T* from) {
    load_l2_in_place(to, from, evict_first());
  }
  __device__ __forceinline__ void load_streamed(Weights& w, const uint4* from) const {
    w.load(from, lane(), [](auto& to, const auto* word) { to = load_word(word); });
  }
  __device__ __forceinline__ void load_shared(Weights& w, const uint4* from) const {
    w.load(from, lane(), [](auto& to, const auto* word) { to = *word; });
  }
  /// Stores the tiles of a block of W0 where multiplying warps load them from.
  __device__ __forceinline__ void store(const W0Block& block, const Weights& w) const {
    write_tiles(block.where == in_memory ? streamed(block) : in_shared(block.where), w);
  }
  __device__ __forceinline__ void write_tiles(uint4* to, const Weights& w) const {
    w.store(to, lane());
  }
  /// The words of `weights`, laid out like all weights, that have low halves, which start at word
  /// `start` of their slots or, unless all weights are streamed, of all low halves.
  __device__ __forceinline__ std::uint32_t* low_halves_of(std::uint32_t* weights,
                                                          std::size_t start) const {
    if constexpr (S::streams) return weights + start;
    return weights + a.low_halves + start;
  }
  /// `start` for the tiles of a block. Unless all weights are streamed, low halves are laid out
  /// like high ones.
  template <class Block>
  __device__ __forceinline__ std::size_t low_start_of(const Block& block) const {
    if constexpr (S::streams) return this->low_slot_of(block);
    return this->start_of(block);
  }
  /// Word i of the remainder rows of a block, from device memory.
  template <class Block>
  __device__ __forceinline__ std::uint32_t remainder_word(const Block& block, int i) const {
    return __ldcg(a.weights + this->remainder_start_of(block) + i);
  }
  /// Word offset, in the remainder rows of a block, of this lane's two words of a remainder row.
  /// They are adjacent and hold columns pair, pair + 1 and columns pair + 8, pair + 9.
  __device__ __forceinline__ int remainder_offset(int remainder_row) const {
    return remainder_row * 8 + pair();
  }
  /// Stores the tiles of a block of W1. In shared memory each quarter (8 x 8) of a pair of tiles is
  /// 32 consecutive words, so that `ldmatrix` reads the same words for products that sum over
  /// columns and, transposed, for products that sum over rows.
  __device__ __forceinline__ void store_w1(const W1Block& block, const Weights& w) const {
    if constexpr (S::streams) {
      write_tiles(streamed(block), w);
    } else {
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) store_tiles(shared + block.where + i * 128, w.get(i));
    }
  }
  /// Stores two tiles of W1, or those of a list. In device memory a lane's four words are adjacent.
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
  /// Loads two tiles that `store_tiles` stored.
  __device__ __forceinline__ uint4 tiles_at(const std::uint32_t* from) const {
    if constexpr (S::streams) return reinterpret_cast<const uint4*>(from)[lane()];
    std::uint32_t r[4];
    load_matrices(r, from + lane() * 4);
    return make_uint4(r[0], r[1], r[2], r[3]);
  }
  /// Loads two tiles from shared memory as the transposed operand A, for products that sum over
  /// rows. Transposing also exchanges the lower left and the upper right quarter, words y and z.
  __device__ __forceinline__ uint4 transposed_tiles_at(const std::uint32_t* from) const {
    std::uint32_t r[4];
    const int tile = lane() >> 3;
    const int other = (tile & 1) * 2 + (tile >> 1);
    load_matrices_transposed(r, from + other * 32 + (lane() & 7) * 4);
    return make_uint4(r[0], r[1], r[2], r[3]);
  }
  __device__ __forceinline__ static uint4 transposed(uint4 w) {
    return make_uint4(transpose(w.x), transpose(w.z), transpose(w.y), transpose(w.w));
  }
  /// Fills the list of a block of W1: first the remainder rows and the bias, from device memory,
  /// then d1 of the last steps. `value_of(e, o)` points to the values for list row e, columns o and
  /// o + 1.
  template <class Value>
  __device__ __forceinline__ void store_list(std::uint32_t* list, const W1Block& block,
                                             Value value_of) const {
    std::uint32_t v[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {  // half of the columns i / 2, tile i % 2
      const int e = row() + i % 2 * 8;
      if (e <= S::remainder_rows) {
        v[i] = remainder_word(block, remainder_offset(e) + i / 2);
      } else if (e < S::first_d1_row) {
        v[i] = 0;
      } else {
        const float* from = value_of(e, i / 2 * 8 + pair());
        v[i] = Math::pair(__ldcg(from), __ldcg(from + 1));
      }
    }
    store_tiles(list, make_uint4(v[0], v[1], v[2], v[3]));
  }
  /// Index, in 16-bit values, of row e, column o of a list.
  __device__ __forceinline__ static int list_index(int e, int o) {
    const int tile = (o >> 3) * 2 + (e >> 3), word = (e & 7) * 4 + (o & 7) / 2;
    return 2 * (S::streams ? word * 4 + tile : tile * 32 + word) + (o & 1);
  }
  /// Stores a value to element `index` of a list.
  __device__ __forceinline__ static void store_list_value(std::uint32_t* list, int index, float v) {
    reinterpret_cast<std::uint16_t*>(list)[index] = Math::operand(v);
  }
  __device__ __forceinline__ static float list_value(const std::uint32_t* list, int index) {
    return Math::value(reinterpret_cast<const std::uint16_t*>(list)[index]);
  }

  // -------------------------------------------------------------- products

  /// A lane's values of a vector of 16: elements pair, pair + 1, and pair + 8, pair + 9. Each word
  /// is a value as Split packs it.
  struct Inputs {
    uint2 low, high;
  };
  __device__ __forceinline__ Inputs inputs(const std::uint32_t* x) const {
    return {*reinterpret_cast<const uint2*>(x + pair()),
            *reinterpret_cast<const uint2*>(x + pair() + 8)};
  }
  /// Makes operand B: lanes of even columns take the low 16 bits of each word (the rounded value),
  /// those of odd columns the high 16 bits (the residual).
  __device__ __forceinline__ Values operand(const Inputs& x) const {
    const unsigned int select = (row() & 1) != 0 ? 0x7632U : 0x5410U;
    const std::uint32_t first = __byte_perm(x.low.x, x.low.y, select);
    const std::uint32_t second = __byte_perm(x.high.x, x.high.y, select);
    return {{first, second}};
  }
  /// If `reads_context`: the hidden value that is `word` in a record, where c(h) = 0.8 h + 0.1.
  /// Before the first step inputs and representations are 1, and padding is 0; c is neither.
  __device__ __forceinline__ static float context_value(std::uint32_t word) {
    const float c = detail::Split<Precision>::unpack(word);
    return c == 0.0F || c == 1.0F ? c : fmaf(1.25F, c, -0.125F);
  }
  __device__ __forceinline__ Values values(const std::uint32_t* x) const {
    return operand(inputs(x));
  }
  __device__ __forceinline__ Rows rows(const std::uint32_t* h) const {
    Rows r;
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) r.of[i] = scaled(values(h + i * 16));
    return r;
  }
  __device__ __forceinline__ static void multiply_tiles(float (&sum)[4], uint4 w, const Values& x) {
    const std::uint32_t a[4] = {w.x, w.y, w.z, w.w};
    Math::multiply(sum, a, x.v[0], x.v[1]);
  }
  /// Values as the other factor of a product with tiles: `packed` weights are stored scaled.
  __device__ __forceinline__ static Values scaled(const Values& x) {
    if constexpr (!S::packed) return x;
    return {{multiply_pair_bf16(x.v[0], PackedHalves::inverse_pair),
             multiply_pair_bf16(x.v[1], PackedHalves::inverse_pair)}};
  }
  /// Adds what a block contributes to W0 x or W1^T d1.
  __device__ __forceinline__ static void multiply(Sums& sum, const Weights& w, const Values& x) {
    static_assert(!S::packed, "packed blocks are multiplied while the next one loads");
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) multiply_tiles(sum.v[i], w.get(i), x);
  }
  /// Like `multiply`, and loads each word of the next block, from shared memory, into the registers
  /// of the word that has just been multiplied. `next`: this lane's first word of that block.
  __device__ __forceinline__ static void multiply_and_load_shared(Sums& sum, Weights& w,
                                                                  const Values& x,
                                                                  const uint4* next) {
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) {
      multiply_tiles(sum.v[i], w.get(i), x);
      w.set(i, next[i * 32]);
    }
  }
  /// Calls use(i, tiles) for the pairs of tiles of the block in `w`, and starts to load the next
  /// block, which is in device memory, to the registers of `w` as soon as they are free.
  template <class Use>
  __device__ __forceinline__ void use_and_load(Weights& w, const uint4* next, Use use) const {
    if constexpr (S::packed) {
      Word tiles[S::pairs];
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) tiles[i] = w.get(i);
      w.load(next, lane(), [](auto& to, const auto* word) { load_in_place(to, word); });
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) use(i, tiles[i]);
    } else {
#pragma unroll
      for (int i = 0; i < S::pairs; ++i) {
        use(i, w.tiles[i]);
        load_in_place(w.tiles[i], next + i * 32);
      }
    }
  }
  /// Multiplies, and loads the next block.
  __device__ __forceinline__ void multiply_and_load(Sums& sum, Weights& w, const Values& x,
                                                    const uint4* next) const {
    const Values factor = scaled(x);
    use_and_load(w, next,
                 [&](int i, const Word& tiles) { multiply_tiles(sum.v[i], tiles, factor); });
  }
  /// This lane's weights of remainder row `row()`. Lanes beyond the last remainder row load a valid
  /// row, whose sums are never read.
  __device__ __forceinline__ uint2 remainder_weights(const std::uint32_t* remainder) const {
    if constexpr (S::remainder_rows == 0) return {};
    const int mine = S::remainder_rows == 1 ? 0 : min(row(), S::remainder_rows - 1);
    return *reinterpret_cast<const uint2*>(remainder + remainder_offset(mine));
  }
  /// Multiplies the remainder rows by one m16n8k8 product, half the depth of the others, without
  /// moving words between lanes. Rows 0 to 7 of operand A have columns 0 to 7 of the remainder
  /// rows, rows 8 to 15 have columns 8 to 15. Columns 0 to 3 of operand B have values 0 to 7,
  /// columns 4 to 7 have values 8 to 15. So [0] and [1] are valid in the first two lanes of a row,
  /// [2] and [3] in the other two; `write_sums` adds them.
  __device__ __forceinline__ void multiply_remainder(Sums& sum, uint2 w, const Values& x) const {
    if constexpr (S::remainder_rows == 0) return;
    Math::multiply_shallow(sum.v[S::pairs], w.x, w.y, lane() < 16 ? x.v[0] : x.v[1]);
  }
  /// The complete sum of row `row()` + 8 * i of a pair of tiles: the products with the rounded
  /// values plus those with the residuals.
  __device__ __forceinline__ static float both_parts(const float (&v)[4], int i) {
    return v[2 * i] + v[2 * i + 1];
  }
  /// Stores a sum. If all weights are streamed, its place is in device memory, and the L2 cache
  /// would evict it, for the weights, before it is read.
  __device__ __forceinline__ static void store_sum(float* to, float sum) {
    if constexpr (S::streams) {
      store_with_policy(to, sum, evict_last());
    } else {
      *to = sum;
    }
  }
  /// Writes `Count` complete sums of each row: to[8 * i + row()] = sum[i]. The four lanes of a row
  /// have the same sums and write every fourth of them.
  template <int Count>
  __device__ __forceinline__ void write_rows(const float (&sum)[Count], float* to) const {
#pragma unroll
    for (int i = 0; i < Count; i += 4) {
      const auto value = [&](int k) { return sum[min(i + k, Count - 1)]; };
      const bool upper = (lane() & 2) != 0, odd = (lane() & 1) != 0;
      const float first = odd ? value(1) : value(0), second = odd ? value(3) : value(2);
      const int mine = i + (lane() & 3);
      if (mine < Count) store_sum(to + mine * 8 + row(), upper ? second : first);
    }
  }
  /// Writes the sums of W0 x for all rows, [Hidden]. One of the four lanes of a row writes all sums
  /// of this row: sharing the stores would take more instructions, which have to be fetched.
  __device__ __forceinline__ void write_sums(const Sums& sum, float* to) const {
    float remainder = 0;
    if constexpr (S::remainder_rows > 0) {
      const float last_half = __shfl_xor_sync(every_lane, both_parts(sum.v[S::pairs], 1), 2);
      remainder = both_parts(sum.v[S::pairs], 0) + last_half;
    }
    if ((lane() & 3) == 0) {
#pragma unroll
      for (int i = 0; i < S::tiles; ++i) {
        store_sum(to + i * 8 + row(), both_parts(sum.v[i / 2], i % 2));
      }
      if (row() < S::remainder_rows) store_sum(to + S::tiles * 8 + row(), remainder);
    }
  }
  __device__ __forceinline__ static void clear(Sums& sum) {
#pragma unroll
    for (auto& v : sum.v) clear_in_place(v);
  }
  /// Writes the sums of W1^T d1 for the rows in tiles, then those of the 16 list rows.
  __device__ __forceinline__ void write_w1_sums(const Sums& sum, const ListSums& list_sums,
                                                float* to) const {
    float v[S::tiles + 2];
#pragma unroll
    for (int i = 0; i < S::tiles; ++i) v[i] = both_parts(sum.v[i / 2], i % 2);
    v[S::tiles] = list_sums.v[0];
    v[S::tiles + 1] = list_sums.v[1];
    write_rows(v, to);
  }

  using List = Word;  ///< a lane's part of the two tiles of a list
  __device__ __forceinline__ List load_list(const std::uint32_t* list) const {
    return tiles_at(list);
  }
  /// List times d1: the remainder rows of W1^T d1, and d1(j).d1 for each listed gradient.
  __device__ __forceinline__ static ListSums multiply_list(const List& list, const Values& d1) {
    float sum[4] = {};
    multiply_tiles(sum, list, d1);
    return {{both_parts(sum, 0), both_parts(sum, 1)}};
  }
  /// Adds what a block of W1 contributes to W1^T d1 (`sum`) and to W1 r (`y`), and loads the next
  /// block.
  __device__ __forceinline__ void multiply_w1_and_load(Sums& sum, ColumnSums& y, Weights& w,
                                                       const Values& d1, const Rows& h,
                                                       const uint4* next) const {
    const Values factor = scaled(d1);
    use_and_load(w, next, [&](int i, const Word& tiles) {
      multiply_tiles(sum.v[i], tiles, factor);
      multiply_tiles(y.v, transposed(tiles), h.of[i]);
    });
  }
  __device__ __forceinline__ void load_w1(Weights& w, const std::uint32_t* tiles) const {
#pragma unroll
    for (int i = 0; i < S::pairs; ++i) w.set(i, tiles_at(tiles + i * 128));
  }
  /// Adds what pairs of tiles `from` to `to` (exclusive) in shared memory contribute to W1 r.
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
  /// Adds what the list contributes to W1 r: the remainder rows, the bias and the correction for
  /// the listed gradients. `list_factors` (see View::list_factors_of) has the 16 factors of the
  /// list rows.
  __device__ __forceinline__ void multiply_listed_rows(ColumnSums& sum, const std::uint32_t* list,
                                                       const std::uint32_t* list_factors) const {
    multiply_tiles(sum.v, transposed_tiles_at(list), values(list_factors));
  }
  __device__ __forceinline__ static void multiply_listed_rows(ColumnSums& sum, const List& list,
                                                              const Values& list_factors) {
    multiply_tiles(sum.v, transposed(list), list_factors);
  }
  /// y of the 16 outputs of a block. Of the four lanes that have the same sums, two write: one
  /// output `row()`, the other output `row()` + 8.
  template <class Activate>
  __device__ __forceinline__ void write_outputs(const ColumnSums& sum, float* y,
                                                Activate activate) const {
    const bool second = (lane() & 1) != 0;
    const float made = activate(second ? both_parts(sum.v, 1) : both_parts(sum.v, 0));
    if ((lane() & 2) == 0) y[(second ? 8 : 0) + row()] = made;
  }

  // -------------------------------------------------------------- folds_16bit.cuh

  __device__ void write_factors(int u, bool w1, const float* coefficients) const;
  /// Writes those of the unit's blocks of W0 and W1 that fold at `phase`, with their present
  /// coefficients, for `materialise`.
  __device__ __forceinline__ void write_present_factors(int u, int phase) const {
    write_factors(u, false, this->coefficients_of(u, phase));
    if (phase < S::w1_period) write_factors(u, true, this->w1_coefficients_of(u, phase));
  }
  /// This lane's word of the first of these operands, which are in the unit's area; the next ones
  /// follow 32 words (uint4) apart. `which` is S::fold0 (W0) or S::fold1 (W1).
  __device__ __forceinline__ uint4* factor_operands(std::uint32_t which, int u) const {
    return reinterpret_cast<uint4*>(this->factors_of(which, u)) + lane();
  }

  /// The factors of the folds of a unit, as operands A. In device memory all of them are requested
  /// at once, in shared memory each one where it is needed.
  struct Factors {
    const uint4* from;
    uint4 loaded[S::streams ? S::operands : 1];
    __device__ __forceinline__ uint4 operand(int i) const {
      if constexpr (S::streams) return loaded[i];
      return from[i * 32];
    }
  };
  __device__ __forceinline__ Factors load_factors(std::uint32_t which, int u) const {
    Factors factors;
    factors.from = factor_operands(which, u);
    if constexpr (S::streams) {
#pragma unroll
      for (int i = 0; i < S::operands; ++i) factors.loaded[i] = factors.from[i * 32];
    }
    return factors;
  }

  /// Prefetches the low halves of a block's tiles to the L2 cache, for a fold later in the step.
  template <class Block>
  __device__ __forceinline__ void prefetch_low_halves(const Block& block) const {
    this->template prefetch<S::unpacked_words>(low_halves_of(a.weights, low_start_of(block)));
  }
  /// Word offset, among all weights, of this lane's words of remainder row `row()`.
  template <class Block>
  __device__ __forceinline__ std::size_t lane_remainder_start(const Block& block) const {
    return this->remainder_start_of(block) + static_cast<unsigned>(remainder_offset(row()));
  }
  template <class Block>
  __device__ uint2 load_remainder(const Block& block, int rows) const;
  /// Where a block is in device memory.
  struct Place {
    std::size_t low_start;  ///< see low_halves_of
    std::size_t remainder;  ///< word offset of this lane's words of a remainder row
    int rows;               ///< number of remainder rows
  };
  /// `start` for the low halves of these words: where all weights are streamed, they follow those
  /// of the tiles.
  __device__ __forceinline__ std::size_t remainder_low_start(const Place& at) const {
    if constexpr (S::streams) {
      return at.low_start + S::unpacked_words + static_cast<unsigned>(remainder_offset(row()));
    }
    return at.remainder;
  }
  __device__ __forceinline__ Place place(const W0Block& block) const {
    return {low_start_of(block), lane_remainder_start(block), S::remainder_rows};
  }
  __device__ __forceinline__ Place place(const W1Block& block) const {
    return {low_start_of(block), lane_remainder_start(block), S::remainder_rows + 1};
  }
  /// The low halves of a lane's words of a block: of its tiles and of its remainder rows.
  struct LowHalves {
    uint4 tiles[S::pairs];
    uint2 remainder;
  };
  __device__ LowHalves load_low_halves(const Place& at) const;
  /// The second factor of a fold as operands B, for columns 0 to 7 and 8 to 15 of a block: past
  /// inputs by age, or listed d1 by list row.
  struct Columns {
    std::uint32_t v[2][2];
  };
  __device__ static void multiply_factors(Additions& added, const uint4& factors,
                                          const Columns& columns);
  __device__ void add_to_tiles(int i, const Additions& added, LowHalves& low, Weights& w,
                               std::uint32_t* sink) const;
  __device__ void fold(const Place& at, std::uint32_t* to, const Factors& factors,
                       const Columns& columns, LowHalves& low, Weights& w, uint2& remainder) const;

  /// Inputs of a block's columns in the steps of the listed gradients, as loaded: word[half][i] is
  /// that of column 8 * half + row(), age operand_k(i).
  struct PastInputs {
    std::uint32_t word[2][4];
  };
  /// Loads a word of the past. If all weights are streamed, the L2 cache evicts it last: folds of
  /// other blocks and of the next steps read it again.
  __device__ __forceinline__ static std::uint32_t load_past(const std::uint32_t* from) {
    if constexpr (!S::streams) return __ldcg(from);
    return load_l2_with_policy(from, evict_last());
  }
  template <class Age>
  __device__ PastInputs load_past_inputs(const W0Block& block, Age age_of_word, int terms) const;
  __device__ Columns context_columns(const PastInputs& past, const float* coefficients) const;
  __device__ static Columns past_columns(const PastInputs& past);
  /// The second factor of a fold of W1: the d1 in the block's list, whose tiles are `listed`.
  __device__ __forceinline__ Columns listed_columns(const std::uint32_t* list,
                                                    const uint4& listed) const {
    const uint4 tiles = S::streams ? transposed(listed) : transposed_tiles_at(list);
    return {{{tiles.x, tiles.z}, {tiles.y, tiles.w}}};
  }

  __device__ void fold_block(const W0Block& block, std::uint32_t* to, Weights& w,
                             uint2& remainder) const;
  __device__ void fold(const W0Block& block, const std::uint32_t* remainder_from,
                       std::uint32_t* remainder_to) const;
  __device__ void fold_streamed(const W0Block& block) const;
  __device__ void fold_context(const W0Block& block) const;
  __device__ void fold_context_block(const W0Block& block, const float* coefficients,
                                     std::uint32_t* to, Weights& w) const;
  __device__ void materialise_context(const W0Block& block, std::uint32_t* to) const;
  /// Folds a block of W1 whose tiles are in `w`.
  __device__ __forceinline__ void fold_w1(const W1Block& block, Weights& w) const {
    fold_w1_block(block, a.weights, w, true);
  }
  __device__ void fold_w1(const W1Block& block) const;
  __device__ void materialise(const W0Block& block, std::uint32_t* to) const;
  __device__ void materialise(const W1Block& block, std::uint32_t* to) const;
  __device__ void fold_w1_block(const W1Block& block, std::uint32_t* to, Weights& w,
                                bool keep) const;
};

}  // namespace pvm::inline v0::detail::units
