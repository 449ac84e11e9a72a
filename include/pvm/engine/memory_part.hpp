// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Memory by purpose.

#include <cstddef>
#include <string>
#include <vector>

namespace pvm::inline v0 {

/// Memory for one purpose.
struct MemoryPart {
  std::string purpose;
  std::size_t bytes = 0;
};

using MemoryParts = std::vector<MemoryPart>;

/// Bytes of all parts together.
inline std::size_t sum_of(const MemoryParts& parts) {
  std::size_t sum = 0;
  for (const MemoryPart& part : parts) sum += part.bytes;
  return sum;
}

}  // namespace pvm::inline v0
