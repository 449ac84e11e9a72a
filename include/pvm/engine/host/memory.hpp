// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Large arrays of floats for the host engine, and checks of the available memory.

#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <limits>
#include <memory>
#include <new>
#include <span>
#include <sstream>
#include <string>

#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <pvm/core/error.hpp>
#include <pvm/core/parallel.hpp>

namespace pvm::inline v0 {

/// Bytes that the system can still provide without swapping; the largest number if it does not say.
inline std::size_t available_memory() {
  std::ifstream file("/proc/meminfo");
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream fields(line);
    std::string key;
    std::size_t kilobytes = 0;
    if (fields >> key >> kilobytes && key == "MemAvailable:") return kilobytes * 1024;
  }
  return std::numeric_limits<std::size_t>::max();
}

/// Throws Error (Fault::memory) if `bytes` exceed the available memory. The message says how much
/// `what` needs, how much is free, and what to change.
inline void require_memory(std::size_t bytes, const std::string& what) {
  const std::size_t free = available_memory();
  if (bytes <= free) return;
  const auto megabytes = [](std::size_t b) { return std::to_string(b / 1000000) + " MB"; };
  throw Error(Fault::memory, what + " needs " + megabytes(bytes) + " of memory and " +
                                 megabytes(free) +
                                 " are free; choose a smaller spec or a smaller batch");
}

/// A zero-initialised array, aligned to cache lines. Arrays of 2 MiB and more lie on huge pages
/// where the system has them: a step touches all weights, and with 4 KiB pages it would spend its
/// time in TLB misses.
class HugeArray {
 public:
  HugeArray() = default;
  explicit HugeArray(std::size_t count) : count_(count) {
    constexpr std::size_t page = std::size_t{2} << 20;
    constexpr std::size_t cache_line = 64;
    const std::size_t unit = count * sizeof(float) >= page ? page : cache_line;
    const std::size_t bytes = (count * sizeof(float) + unit - 1) / unit * unit + cache_line;
    const std::size_t rounded = (bytes + unit - 1) / unit * unit;
    data_.reset(static_cast<float*>(std::aligned_alloc(unit, rounded)));
    if (!data_) throw std::bad_alloc();
#if defined(__linux__)
    if (unit == page) madvise(data_.get(), rounded, MADV_HUGEPAGE);
#endif
    detail::in_parallel_ranges(rounded, page, [this](std::size_t begin, std::size_t end) {
      std::memset(reinterpret_cast<char*>(data_.get()) + begin, 0, end - begin);
    });
  }

  [[nodiscard]] float* data() noexcept { return data_.get(); }
  [[nodiscard]] const float* data() const noexcept { return data_.get(); }
  [[nodiscard]] std::size_t size() const noexcept { return count_; }
  [[nodiscard]] std::span<float> all() noexcept { return {data_.get(), count_}; }
  [[nodiscard]] std::span<const float> all() const noexcept { return {data_.get(), count_}; }

 private:
  struct Free {
    void operator()(float* p) const noexcept { std::free(p); }
  };
  std::unique_ptr<float, Free> data_;
  std::size_t count_ = 0;
};

}  // namespace pvm::inline v0
