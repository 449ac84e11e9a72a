// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Into how many shards a network can be divided.

#include <cstddef>

namespace pvm::inline v0::detail {

inline constexpr int most_shards = 16;  ///< of a network

/// Shards of one GPU, at most: the steps of all of them must run at the same time, and streams
/// beyond the eight that a GPU keeps apart by default may wait for each other.
inline constexpr std::size_t most_shards_of_device = 4;

}  // namespace pvm::inline v0::detail
