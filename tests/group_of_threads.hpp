// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Ranks that are threads, and serve one of them.

#include <string>
#include <thread>
#include <vector>

#include <pvm/dist/group.hpp>

#include "thread_ranks.hpp"

namespace pvm_test {

using Group = pvm::dist::Group<ThreadRank>;

/// Calls work(group) on rank 0 of `size` ranks. `mark(rank, path)`: what a rank knows of a file.
/// `gpus`: a Group's further arguments.
template <class Work, class Mark, class... Gpus>
void with_marked_ranks(int size, Work work, Mark mark, Gpus... gpus) {
  Post post(size);
  std::vector<std::thread> others;
  for (int r = 1; r < size; ++r) {
    others.emplace_back([&post, &mark, r, gpus...] {
      ThreadRank rank(post, r);
      Group group(rank, gpus...);
      static_cast<void>(group.serve([&](const std::string& path) { return mark(r, path); }));
    });
  }
  ThreadRank rank(post, 0);
  Group group(rank, gpus...);
  work(group);
  group.end(0);
  for (std::thread& other : others) other.join();
}
template <class Work, class... Gpus>
void with_ranks(int size, Work work, Gpus... gpus) {
  with_marked_ranks(
      size, work, [](int, const std::string&) { return std::string(); }, gpus...);
}

}  // namespace pvm_test
