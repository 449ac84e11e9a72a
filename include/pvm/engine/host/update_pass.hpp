// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Updates that are passes of their own: the fold of weights with a 16-bit copy, and learning rules
/// that are not deferred. The pass that multiplies finds the weights in the cache afterwards.

#include <cstddef>

#include <pvm/engine/host/host_rule.hpp>
#include <pvm/engine/host/matrix_pass.hpp>
#include <pvm/engine/host/simd.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0 {

/// Gradients of one matrix M, as factors: G[r] = sum_j factor[r][j] * term[j].
struct MatrixUpdate {
  std::size_t offset = 0;  // of M in the store
  std::size_t rows = 0;
  std::size_t columns = 0;
  const float* const* term = nullptr;
  const float* factor = nullptr;  // [rows][terms]
  std::size_t terms = 0;
};

/// Calls visit(index in the store, first row, rows, first column) for every block of M that is one
/// stretch of memory: a group of columns of a tile's rows, or of one row behind the tiles.
template <std::size_t Group, class Visit>
[[gnu::always_inline]] inline void for_each_block(const MatrixUpdate& m, Visit visit) {
  std::size_t index = m.offset;
  for (std::size_t r = 0; r < m.rows;) {
    const std::size_t rows = r + simd::tile_rows <= m.rows ? simd::tile_rows : 1;
    for (std::size_t c = 0; c < m.columns; c += Group, index += rows * Group) {
      visit(index, r, rows, c);
    }
    r += rows;
  }
}

/// w += G[r], for a group of columns from `c` on.
template <class Group>
[[gnu::always_inline]] inline void add_gradient(Group& w, const MatrixUpdate& m, std::size_t r,
                                                std::size_t c) {
  constexpr std::size_t parts = sizeof(Group) / sizeof(simd::Lanes);
  for (std::size_t j = 0; j < m.terms; ++j) {
    const float factor = m.factor[r * m.terms + j];
    for (std::size_t k = 0; k < parts; ++k) {
      w.part[k] += factor * simd::at(m.term[j] + c + k * simd::width);
    }
  }
}

/// M += G.
template <class Store>
[[gnu::always_inline]] inline void fold_matrix(Store& store, const MatrixUpdate& m) {
  constexpr std::size_t group = Store::group;
  for_each_block<group>(m, [&](std::size_t index, std::size_t r, std::size_t rows, std::size_t c) {
    for (std::size_t k = 0; k < rows; ++k) {
      auto w = store.load(index + k * group);
      add_gradient(w, m, r + k, c);
      store.store(index + k * group, w);
    }
  });
}

/// M and the rule's state, moved by G: M = apply(M, state, G).
template <class Store>
[[gnu::always_inline]] inline void apply_rule(Store& store, const MatrixUpdate& m,
                                              const HostRule& rule, float* state,
                                              std::size_t stride, RuleStep step) {
  constexpr std::size_t group = Store::group;
  using Group = typename Store::Group;
  for_each_block<group>(m, [&](std::size_t index, std::size_t r, std::size_t rows, std::size_t c) {
    Group w[simd::tile_rows] = {};
    Group g[simd::tile_rows] = {};
    for (std::size_t k = 0; k < rows; ++k) {
      w[k] = store.load(index + k * group);
      add_gradient(g[k], m, r + k, c);
    }
    rule.apply(reinterpret_cast<float*>(w), state + index, stride,
               reinterpret_cast<const float*>(g), rows * group, step);
    for (std::size_t k = 0; k < rows; ++k) store.store(index + k * group, w[k]);
  });
}

}  // namespace pvm::inline v0
