// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// For how many sequences there are kernels, and which of them a batch takes. Of a batch that is
/// known at compile time no others are compiled.

#include <cstddef>
#include <iterator>
#include <utility>

#include <pvm/core/tags.hpp>
#include <pvm/engine/cuda/launch.hpp>

namespace pvm::inline v0::detail::batch {

inline constexpr int slice_sizes[] = {16, 32, 64, 128, 256};

/// The sequences that one block of threads of the products kernel works on, at most `most`, so
/// that the batch is padded least; larger slices read the weights less often.
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

/// Sequences that a sweep has room for: it takes a batch as one.
inline constexpr int swept_sizes[] = {32, 64, 96, 128, 192, 256};
/// The least of these that has room for all of a batch, or the largest. With some sequences of
/// padding a sweep is sooner than slices that have none.
constexpr int swept_size(int batch) {
  for (const int size : swept_sizes) {
    if (size >= batch) return size;
  }
  return std::end(swept_sizes)[-1];
}

/// Calls the template what() with the constant that is the slice of a batch.
template <class M, int Batch, class What>
void with_slice(int slice, What&& what) {
  constexpr int most = 128 * M::most_tiles;
  if constexpr (Batch == dynamic) {
    with_constant<16, 32, 64, 128, most>(slice, what);
  } else {
    what.template operator()<choose_slice(Batch, most)>();
  }
}
/// Calls the template what() with the constant of `swept_sizes` that a batch takes.
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
