// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The numbers of sequences that kernels are compiled for, and the one that a batch uses. For a
/// batch that is known at compile time only that one is compiled.

#include <cstddef>
#include <iterator>
#include <utility>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/device/launch.hpp>

namespace pvm::inline v0::detail::batch {

inline constexpr int slice_sizes[] = {16, 32, 64, 128, 256};

/// Chooses the slice: the sequences that one thread block of the products kernel works on, at most
/// `most`. The cost weighs padding against reading the weights once for every slice, which is taken
/// to cost as much as 12 sequences.
constexpr int choose_slice(int batch, int most) {
  int best = 16;
  double least = 1e30;
  for (const int slice : slice_sizes) {
    const int slices = (batch + slice - 1) / slice;
    const double cost = slices * (slice + 12.0);
    if (slice <= most && cost < least) {
      least = cost;
      best = slice;
    }
  }
  return best;
}

/// Padded batch sizes of the sweep kernels. A sweep does not divide the batch into slices.
inline constexpr int swept_sizes[] = {32, 64, 96, 128, 192, 256};
/// The smallest of these that holds the batch, or the largest if none does. A sweep with padding
/// is faster than slices without any.
constexpr int swept_size(int batch) {
  for (const int size : swept_sizes) {
    if (size >= batch) return size;
  }
  return std::end(swept_sizes)[-1];
}

/// Calls `what.operator()<Slice>()`, with `slice` (from `choose_slice`) as a compile-time constant.
template <class M, int Batch, class What>
void with_slice(int slice, What&& what) {
  constexpr int most = 128 * M::most_tiles;
  if constexpr (Batch == dynamic) {
    with_constant<16, 32, 64, 128, most>(slice, what);
  } else {
    what.template operator()<choose_slice(Batch, most)>();
  }
}
/// Calls `what.operator()<Bp>()`, with `padded` (one of `swept_sizes`) as a compile-time constant.
template <int Batch, class What>
void with_swept_size(int padded, What&& what) {
  if constexpr (Batch == dynamic) {
    [&]<std::size_t... I>(std::index_sequence<I...>) {
      with_constant<swept_sizes[I]...>(padded, what);
    }
    (std::make_index_sequence<std::size(swept_sizes)>{});
  } else {
    what.template operator()<swept_size(Batch)>();
  }
}

}  // namespace pvm::inline v0::detail::batch
