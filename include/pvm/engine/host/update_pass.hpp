// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Updates that need a pass of their own: the fold of weights with a 16-bit copy, and learning
/// rules that are not deferred. The multiplying pass runs right after it and finds the weights in
/// the cache.

#include <cstddef>

#include <pvm/engine/host/host_rule.hpp>
#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// The update G of one matrix M, as factors: G[r] = sum_j factor[r][j] * term[j].
struct MatrixUpdate {
  std::size_t offset = 0;  // index of M in the store
  std::size_t rows = 0;
  std::size_t columns = 0;
  const float* const* term = nullptr;  // [terms]: rows of `columns` floats
  const float* factor = nullptr;       // [rows][terms]
  std::size_t terms = 0;
};

/// Iterates over M block by block. A block is contiguous in memory: a group of columns of the eight
/// rows of a tile, or of one remainder row.
template <std::size_t Group>
class BlockIterator {
 public:
  [[gnu::always_inline]] inline explicit BlockIterator(const MatrixUpdate& m)
      : m_(m), index(m.offset) {
    rows = rows_from(0);
  }
  [[gnu::always_inline]] inline bool valid() const { return row < m_.rows; }
  [[gnu::always_inline]] inline void next() {
    index += rows * Group;
    column += Group;
    if (column < m_.columns) return;
    column = 0;
    row += rows;
    rows = rows_from(row);
  }

 private:
  const MatrixUpdate& m_;
  [[gnu::always_inline]] inline std::size_t rows_from(std::size_t r) const {
    return r + simd::tile_rows <= m_.rows ? simd::tile_rows : 1;
  }

 public:
  std::size_t index;  ///< of the block's first weight in the store
  std::size_t row = 0;
  std::size_t rows = 0;  ///< of the block: 8 or 1
  std::size_t column = 0;
};

/// The weights of one block as floats, [row][column], on the stack.
template <class Store>
struct BlockValues {
  static constexpr std::size_t group = Store::group;
  alignas(64) float value[simd::tile_rows * group] = {};

  [[gnu::always_inline]] inline void load(const Store& store, const BlockIterator<group>& block) {
    for (std::size_t k = 0; k < block.rows; ++k) {
      const auto w = store.load(block.index + k * group);
      for (std::size_t i = 0; i < group; i += simd::width) {
        simd::at(value + k * group + i) = w.part[i / simd::width];
      }
    }
  }
  [[gnu::always_inline]] inline void save(Store& store, const BlockIterator<group>& block) const {
    for (std::size_t k = 0; k < block.rows; ++k) {
      typename Store::Group w;
      for (std::size_t i = 0; i < group; i += simd::width) {
        w.part[i / simd::width] = simd::at(value + k * group + i);
      }
      store.store(block.index + k * group, w);
    }
  }

  /// Adds the gradients. `Vector` has the width of the processor's registers. Eight sums are
  /// computed together in registers; with fewer, each addition would wait for the latency of the
  /// one before.
  template <class Vector>
  [[gnu::always_inline]] inline void add(const MatrixUpdate& m, const BlockIterator<group>& block) {
    constexpr std::size_t together = 8 / (group * sizeof(float) / sizeof(Vector));
    std::size_t k = 0;
    for (; k + together <= block.rows; k += together) add_rows<Vector, together>(m, block, k);
    for (; k < block.rows; ++k) add_rows<Vector, 1>(m, block, k);
  }
  template <class Vector, std::size_t Rows>
  [[gnu::always_inline]] inline void add_rows(const MatrixUpdate& m,
                                              const BlockIterator<group>& block, std::size_t k) {
    constexpr std::size_t parts = group * sizeof(float) / sizeof(Vector);
    const float* const factor = m.factor + (block.row + k) * m.terms;
    auto* const to = reinterpret_cast<Vector*>(value + k * group);
    Vector sums[Rows][parts];
    for (std::size_t r = 0; r < Rows; ++r) {
      for (std::size_t v = 0; v < parts; ++v) sums[r][v] = to[r * parts + v];
    }
    for (std::size_t j = 0; j < m.terms; ++j) {
      const auto* const term = reinterpret_cast<const Vector*>(m.term[j] + block.column);
      for (std::size_t r = 0; r < Rows; ++r) {
        for (std::size_t v = 0; v < parts; ++v) sums[r][v] += factor[r * m.terms + j] * term[v];
      }
    }
    for (std::size_t r = 0; r < Rows; ++r) {
      for (std::size_t v = 0; v < parts; ++v) to[r * parts + v] = sums[r][v];
    }
  }
  [[gnu::always_inline]] inline void add(const MatrixUpdate& m, const BlockIterator<group>& block) {
    using Eight = float __attribute__((vector_size(32), aligned(4), may_alias));
    if (simd::best_isa() >= simd::Isa::avx512) {
      add<simd::Lanes>(m, block);
    } else {
      add<Eight>(m, block);
    }
  }
};

/// M += G.
template <class Store>
[[gnu::always_inline]] inline void fold_matrix(Store& store, const MatrixUpdate& m) {
  BlockValues<Store> w;
  for (BlockIterator<Store::group> block(m); block.valid(); block.next()) {
    w.load(store, block);
    w.add(m, block);
    w.save(store, block);
  }
}

/// M = apply(M, state, G), which also updates the rule's state. `stride`: floats between the rule's
/// state arrays.
template <class Store>
[[gnu::always_inline]] inline void apply_rule(Store& store, const MatrixUpdate& m,
                                              const HostRule& rule, float* state,
                                              std::size_t stride, RuleStep step) {
  for (BlockIterator<Store::group> block(m); block.valid(); block.next()) {
    BlockValues<Store> w, gradient;
    w.load(store, block);
    gradient.add(m, block);
    rule.apply(w.value, state + block.index, stride, gradient.value, block.rows * Store::group,
               step);
    w.save(store, block);
  }
}

}  // namespace pvm::inline v0
