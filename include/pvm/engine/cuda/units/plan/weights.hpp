// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The place of each weight in device memory. The four parts of the layout are at Plan::first_w1().
/// Within a block of 16 columns, tiles of 8 rows (hidden values) are stored in the order of the
/// tensor core's mma operands, so that a lane loads its part of two tiles at once: lane 4 (row % 8)
/// + (column % 8) / 2 has one row and two pairs of columns of each tile.

#include <cstddef>

#include <pvm/core/parallel.hpp>
#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/model/connectome.hpp>

namespace pvm::inline v0::detail::units {

template <class Precision, int Hidden, Home home>
template <class Visit>
void Plan<Precision, Hidden, home>::for_each_weight(Visit visit) const {
  in_parallel(net_.units.size(), net_.weights, [&](std::size_t u) {
    if (!has(u)) return;
    visit_hidden(u, visit);
    visit_output(u, visit);
    if constexpr (S::reads_context) visit_context(u, visit);
  });
}

/// Visits W0 of unit u: tiles and remainder rows.
template <class Precision, int Hidden, Home home>
template <class Visit>
void Plan<Precision, Hidden, home>::visit_hidden(std::size_t u, Visit& visit) const {
  const Unit& unit = net_.units[u];
  const auto inputs = static_cast<std::size_t>(unit.inputs);
  for (std::size_t k = 0; k < inputs; ++k) {
    const std::size_t column = padded_column(u, k);
    const std::size_t block = block_number_[first_block_index_[u] + column / columns];
    for (std::size_t i = 0; i < used(); ++i) {
      visit(unit.w0 + i * inputs + k,
            in_tiles(i) ? weights_in(block * S::unpacked_words) + element(i, column % columns)
                        : weights_in(first_remainder() + block * S::remainder_words) +
                              remainder_element(i, column % columns));
    }
  }
}

/// Visits W1 of unit u, which is stored transposed: rows are hidden values and, as the last of the
/// remainder rows, the bias; columns are outputs.
template <class Precision, int Hidden, Home home>
template <class Visit>
void Plan<Precision, Hidden, home>::visit_output(std::size_t u, Visit& visit) const {
  const Unit& unit = net_.units[u];
  const std::size_t p = base(u);
  for (std::size_t o = 0; o < 2 * p; ++o) {
    const std::size_t column = o < p ? o : padded(u) + o - p;
    const std::size_t block = (output_start[u] + column) / columns;
    for (std::size_t i = 0; i <= used(); ++i) {
      const std::size_t row = i < used() ? i : Hidden;  // the bias is behind the padding
      visit(unit.w1 + o * static_cast<std::size_t>(unit.representation) + i,
            in_tiles(row) ? weights_in(first_w1() + block * S::unpacked_words) +
                                element(row, column % columns)
                          : weights_in(first_w1_remainder() + block * S::w1_remainder_words) +
                                remainder_element(row, column % columns));
    }
  }
}

/// Visits the columns of W1 of unit u that read the context: rows are outputs, in groups, columns
/// are those of the context in W0.
template <class Precision, int Hidden, Home home>
template <class Visit>
void Plan<Precision, Hidden, home>::visit_context(std::size_t u, Visit& visit) const {
  const Unit& unit = net_.units[u];
  const std::size_t p = base(u), context = net_.context[u].size() * used();
  const std::size_t in_group = context_width(u) / columns;
  for (std::size_t k = 0; k < context; ++k) {
    const std::size_t column = padded_column(u, 2 * p + k) - 2 * padded(u);
    for (std::size_t o = 0; o < 2 * p; ++o) {
      const std::size_t row = o < p ? o : padded(u) + o - p;
      const std::size_t block = block_number_[first_context_index_[u] +
                                              row / S::group_outputs * in_group + column / columns];
      visit(unit.w1 + o * static_cast<std::size_t>(unit.representation) + used() + 1 + k,
            weights_in(block * S::unpacked_words) +
                element(row % S::group_outputs, column % columns));
    }
  }
}

/// The index of the weight in row i, column c among a block's tiles. A lane's eight weights of two
/// tiles are one word of 16 bytes in 16 bits; in fp32 they are two such words, one for each half of
/// the columns, 32 such words apart.
template <class Precision, int Hidden, Home home>
std::size_t Plan<Precision, Hidden, home>::element(std::size_t i, std::size_t c) {
  const std::size_t lane = i % 8 * 4 + c % 8 / 2, lower = i % 16 / 8, right = c / 8;
  return S::fp32_weights ? ((i / 16 * 2 + right) * 32 + lane) * 4 + lower * 2 + c % 2
                         : (i / 16 * 32 + lane) * 8 + right * 4 + lower * 2 + c % 2;
}

/// The index of the weight in row i, column c among a block's remainder rows. fp32 rows are stored
/// in the order of the columns; in 16 bits a lane's two pairs of columns lie side by side.
template <class Precision, int Hidden, Home home>
std::size_t Plan<Precision, Hidden, home>::remainder_element(std::size_t i, std::size_t c) {
  const std::size_t row = (i - S::tiles * 8) * columns;
  return row + (S::fp32_weights ? c : c % 8 / 2 * 4 + c / 8 * 2 + c % 2);
}

}  // namespace pvm::inline v0::detail::units
