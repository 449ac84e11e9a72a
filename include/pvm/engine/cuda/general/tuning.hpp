// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Compile-time constants of the general engine's kernels; the same for all architectures so far.

#include <concepts>
#include <cstddef>

#include <pvm/core/config.hpp>
#include <pvm/core/tags.hpp>

namespace pvm::inline v0::detail {

/// Warps of a thread block: multiples of the row groups of common units. 49 rows are seven groups
/// of seven, so 14 warps are two column parts; 64 rows are eight groups of eight.
template <class Precision>
constexpr int step_warps(int rows_per_tile) {
  return std::same_as<Precision, fp32> && rows_per_tile == 7 ? 14 : 16;
}
inline constexpr std::size_t panels_of_a_group = 4;  ///< of sources that fold together, at most
inline constexpr int fold_depth = 16;  ///< gradients that a fold of 16-bit weights adds at once
inline constexpr std::size_t most_folds_at_once = 4;  ///< of 16-bit panels
/// Words of a row of staged factors of 16-bit folds, [pair of gradients][n]: 8 more than a multiple
/// of 32, so that the lanes of an operand read different banks.
PVM_HOST_DEVICE constexpr int fold_stride(int n) { return (n + 23) / 32 * 32 + 8; }
inline constexpr int fold_stage_floats = 4096;  ///< [gradients][columns] staged for one fold
inline constexpr int sources_per_task = 6;  ///< sources whose inner products a warp adds up at once
inline constexpr int terms_per_task = 8;    ///< listed gradients that a warp corrects with at once
/// Whether early and late items are filled up to whole groups of tiles in flight. It costs small
/// networks time; large units with tiles of eight rows were slower without, by 4 %.
PVM_HOST_DEVICE constexpr bool whole_groups(int rows_per_tile) { return rows_per_tile == 8; }
/// Gradients in a list that is long: the L2 cache cannot keep it and the past as well.
inline constexpr int many_terms = 64;

/// What an SM does for a matrix besides reading it, as the number of values that it could read in
/// that time: for any; for each listed gradient of a W0; for the patch of a unit of layer 0.
inline constexpr double cost_of_matrix = 8000, term_cost_of_w0 = 60;
inline constexpr double cost_of_patch = 2000, term_cost_of_patch = 150;

}  // namespace pvm::inline v0::detail
