// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes large vectors quickly. The system hands out memory page by page, when it is first written,
/// and for hundreds of megabytes that takes longer than what is then written to it.

#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <vector>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <pvm/core/parallel.hpp>

namespace pvm::inline v0::detail {

/// Asks the system for the pages of `bytes` bytes at `memory` at once: huge ones if it has them,
/// and on several threads. What it refuses comes page by page, as ever. Contents do not change.
inline void take_pages(void* memory, std::size_t bytes) {
#if defined(__linux__)
  constexpr std::uintptr_t page = 4096;
  constexpr std::size_t huge_page = std::size_t{2} << 20;
  if (bytes < 4 * huge_page) return;
  const auto begin = (reinterpret_cast<std::uintptr_t>(memory) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(memory) + bytes) / page * page;
  const auto at = [begin](std::size_t offset) { return reinterpret_cast<void*>(begin + offset); };
  (void)::madvise(at(0), end - begin, MADV_HUGEPAGE);
  constexpr int populate_write = 23;  // MADV_POPULATE_WRITE, of Linux 5.14
  in_parallel_ranges(end - begin, huge_page, [&](std::size_t from, std::size_t to) {
    (void)::madvise(at(from), to - from, populate_write);
  });
#else
  (void)memory;
  (void)bytes;
#endif
}

/// values.resize(n), quickly.
template <class T>
requires std::is_trivially_copyable_v<T>
void resize_large(std::vector<T>& values, std::size_t n) {
  if (n > values.capacity()) {
    values.reserve(n);
    take_pages(static_cast<void*>(values.data()), n * sizeof(T));
  }
  values.resize(n);
}

/// A vector of `n` zeros.
template <class T>
std::vector<T> large_vector(std::size_t n) {
  std::vector<T> values;
  resize_large(values, n);
  return values;
}

}  // namespace pvm::inline v0::detail
