// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a kernel that runs a block of steps and the host tell each other.

#include <cstdint>

namespace pvm::inline v0::detail {

/// Where a run stands; lives on the device and is advanced there.
struct Cursor {
  unsigned long long step;   ///< steps done
  unsigned long long block;  ///< staging blocks used up
  unsigned int frame;        ///< frames used of the current one
  unsigned int barriers;     ///< barriers of all multiprocessors passed so far
};

/// In the first word of a staged index: its frames lie among the floats, not among the bytes.
inline constexpr std::uint32_t frames_are_floats = 1U << 31;

}  // namespace pvm::inline v0::detail
