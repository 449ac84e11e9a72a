// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The numbers to turn of a sweep's plan: what tiles cost, and how many of them make a share.

#include <cstddef>

namespace pvm::inline v0::detail::batch {

/// Cycles of a block of threads: for a part, for a tile of W0 and for one of W1, at all and for
/// 16 rows of it. Most of it is waiting for one thing after the other, however few rows there
/// are.
struct SweepCycles {
  std::size_t part, w0, w1, w1_rows;
  /// More for the last part of a panel, which mostly makes h, or d0, of its sums.
  std::size_t hidden, gradients;

  /// A tile of `m` rows of W0 (`forward`) or of W1.
  [[nodiscard]] constexpr std::size_t tile(bool forward, std::size_t m) const {
    return forward ? w0 : w1 + (m + 15) / 16 * w1_rows;
  }
  [[nodiscard]] constexpr std::size_t results(bool forward) const {
    return forward ? hidden : gradients;
  }
};

/// As measured: 64, 128 and 256 by least squares of what each block of threads had and when it
/// ended, on an H200; the others by trying what is soonest, on an H100.
constexpr SweepCycles sweep_cycles(int padded) {
  switch (padded) {
    case 32:
      return {3500, 3000, 3200, 210, 1000, 2100};
    case 64:
      return {2500, 3000, 4500, 600, 2000, 3000};
    case 96:
      return {3500, 4000, 4000, 1000, 3500, 4800};
    case 128:
      return {5000, 5000, 3750, 2200, 5000, 6500};
    case 192:
      return {6000, 6100, 5900, 3200, 8600, 11500};
    default:
      return {7000, 7200, 8000, 4200, 12200, 16400};
  }
}

/// Tiles of a share, about: what all blocks of threads work on at the same time is then units that
/// are neighbours, and the second-level cache has room for the rows they read.
inline constexpr std::size_t share_tiles = 24;

}  // namespace pvm::inline v0::detail::batch
