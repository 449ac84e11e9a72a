// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The products of weights in 8 bits with values in 8 bits: where the weights lie, and what a
/// kernel gets. Sums have 32 bits and no rounding, so every kernel gives the same.

#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::infer {

/// Columns that a row is padded to, and rows that lie beside each other in a tile.
inline constexpr std::size_t int8_group = 64;
inline constexpr std::size_t int8_tile_rows = 8;
/// The most columns whose sum always fits into 32 bits.
inline constexpr std::size_t int8_most_columns = (std::size_t{1} << 31) / (127 * 255);

/// The index of row `r`, column `c` in a matrix of whole groups of columns: tiles of eight rows,
/// group by group; the remainder rows one after the other.
constexpr std::size_t int8_index(std::size_t rows, std::size_t columns, std::size_t r,
                                 std::size_t c) {
  const std::size_t tile = r / int8_tile_rows * int8_tile_rows;
  if (tile + int8_tile_rows > rows) return r * columns + c;
  return tile * columns + (c / int8_group * int8_tile_rows + r % int8_tile_rows) * int8_group +
         c % int8_group;
}

/// sums[b][r] = M[r] . x[b].
struct Int8Pass {
  const std::int8_t* weights = nullptr;  ///< see int8_index
  std::size_t rows = 0, columns = 0;     ///< whole groups of columns
  const std::uint8_t* x = nullptr;       ///< [batch][columns]
  std::size_t batch = 0;
  std::int32_t* sums = nullptr;  ///< [batch][stride]
  std::size_t stride = 0;
};

/// A kernel for passes, and its name for logs.
struct Int8Kernel {
  void (*run)(const Int8Pass& pass);
  const char* name;
};

}  // namespace pvm::inline v0::infer
