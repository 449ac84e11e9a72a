// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Ring buffers in device memory that hold the results of the last steps.

#include <cstddef>
#include <cstdint>

namespace pvm::inline v0::detail::batch {

/// Slot of the step `back` steps before `step` in a ring of `slots` slots; back <= 64 * slots.
inline std::size_t ring_slot(std::uint64_t step, std::uint64_t back, std::size_t slots) {
  return static_cast<std::size_t>((step + 64 * slots - back) % slots);
}

/// [slots][rows][padded] in device memory; a slot holds the rows of one step.
template <class T>
struct Ring {
  T* first = nullptr;
  std::size_t slots = 0;
  std::size_t rows = 0;
  std::size_t padded = 0;  ///< sequences of a row

  [[nodiscard]] std::size_t step_size() const noexcept { return rows * padded; }
  [[nodiscard]] std::size_t size() const noexcept { return slots * step_size(); }
  /// The rows of the step `back` steps before `step`.
  [[nodiscard]] T* at(std::uint64_t step, std::uint64_t back) const {
    return first + ring_slot(step, back, slots) * step_size();
  }
};

}  // namespace pvm::inline v0::detail::batch
