// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Work on large arrays, divided among threads that exist only for it: the initial weights, changes
/// of layout, copies of a state. (Steps have threads of their own.)

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

namespace pvm::inline v0::detail {

/// How many threads are worth their start for work on `values` values, the caller's included.
inline std::size_t threads_for(std::size_t values) {
  constexpr std::size_t most = 16;                    // more of them only wait for memory
  constexpr std::size_t each = std::size_t{1} << 17;  // some 100 us of work
  const std::size_t cores = std::max(1U, std::thread::hardware_concurrency());
  return std::clamp<std::size_t>(values / each, 1, std::min(most, cores));
}

/// The failure that a loop over the items would have met first.
class FirstFailure {
 public:
  void note(std::size_t item) noexcept {
    const std::lock_guard lock(mutex_);
    if (failure_ && item_ < item) return;
    item_ = item;
    failure_ = std::current_exception();
  }
  void rethrow() const {
    if (failure_) std::rethrow_exception(failure_);
  }

 private:
  std::mutex mutex_;
  std::size_t item_ = 0;
  std::exception_ptr failure_;
};

/// Calls work(i) for every i below `items`, in any order and on several threads, and returns when
/// all calls have returned. `values`: how many values they work on together. Calls must not write
/// to the same memory. If some of them throw, the exception of the smallest i is thrown.
template <class Work>
void in_parallel(std::size_t items, std::size_t values, const Work& work) {
  std::atomic<std::size_t> next = 0;
  FirstFailure failure;
  const auto take_items = [&] {
    for (std::size_t i = next.fetch_add(1); i < items; i = next.fetch_add(1)) {
      try {
        work(i);
      } catch (...) {
        failure.note(i);
      }
    }
  };
  std::vector<std::thread> others;
  const std::size_t wanted = std::min(items, threads_for(values));
  try {
    others.reserve(wanted);
    while (others.size() + 1 < wanted) others.emplace_back(take_items);
  } catch (const std::system_error&) {  // fewer threads do it, too
  }
  take_items();
  for (std::thread& other : others) other.join();
  failure.rethrow();
}

/// Calls work(begin, end) for ranges that together are the indices below `n`, as `in_parallel`
/// does. All ranges but the last are multiples of `unit` long.
template <class Work>
void in_parallel_ranges(std::size_t n, std::size_t unit, const Work& work) {
  const std::size_t threads = threads_for(n);
  const std::size_t pieces = threads == 1 ? 1 : 4 * threads;  // so that no thread waits for long
  const std::size_t length = std::max(unit, (n / pieces + unit) / unit * unit);
  in_parallel((n + length - 1) / length, n,
              [&](std::size_t piece) { work(piece * length, std::min(n, (piece + 1) * length)); });
}

}  // namespace pvm::inline v0::detail
