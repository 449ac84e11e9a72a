// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Tuning parameters of a sweep's plan: what tiles cost, and how many of them make a share.

#include <cstddef>

namespace pvm::inline v0::detail::batch {

/// Estimated cost in clock cycles of a thread block.
struct SweepCycles {
  /// Of starting a part, of a tile of W0, of a tile of W1, and in addition of every 16 m of the
  /// latter. Most of this is a chain of latencies that does not depend on the number of rows.
  std::size_t part, w0, w1, w1_rows;
  /// In addition for the last part of a panel, which usually is the one that makes h or d0.
  std::size_t hidden, gradients;

  /// A tile of `m` rows of W0 (`is_w0`) or of W1.
  [[nodiscard]] constexpr std::size_t tile(bool is_w0, std::size_t m) const {
    return is_w0 ? w0 : w1 + (m + 15) / 16 * w1_rows;
  }
  /// Of making h (`is_w0`) or d0.
  [[nodiscard]] constexpr std::size_t results(bool is_w0) const {
    return is_w0 ? hidden : gradients;
  }
};

/// Costs for a padded batch, tuned on GPUs: for 64, 128 and 256 by a least-squares fit of the end
/// times of thread blocks to their tiles, on an H200; for the others by trial of the step time, on
/// an H100.
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

/// Approximate number of tiles of a share. With shares this small all thread blocks work on
/// neighbouring units at the same time, and the rows that these read fit in the L2 cache.
inline constexpr std::size_t share_tiles = 24;

}  // namespace pvm::inline v0::detail::batch
