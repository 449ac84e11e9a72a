// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What the host and a kernel that runs a block of steps tell each other.

#include <cstdint>

namespace pvm::inline v0::detail {

/// The position of a run, in device memory. Each launch advances it.
struct Cursor {
  unsigned long long step;   ///< steps done
  unsigned long long block;  ///< staged blocks used up
  unsigned int frame;        ///< frames (steps) used of the current block
  unsigned int barriers;     ///< grid-wide barriers passed so far
};

/// Flag in the first word of a staged block's index: its frames are floats, not bytes.
inline constexpr std::uint32_t frames_are_floats = 1U << 31;

}  // namespace pvm::inline v0::detail
