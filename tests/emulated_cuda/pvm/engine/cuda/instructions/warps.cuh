// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's instructions/warps.cuh on the emulated device.

#include <cuda_runtime.h>

namespace pvm::inline v0::detail {

namespace emulated {

inline constexpr unsigned full_warp = 0xffffffffU;

}  // namespace emulated

inline int thread_number() { return static_cast<int>(threadIdx.x); }
inline bool is_elected() {
  emulated_cuda::Block& block = emulated_cuda::block();
  block.meet(emulated::full_warp, "elect", char{});
  return block.now().lane == 0;
}

inline void named_barrier_sync(int barrier, int threads) {
  emulated_cuda::block().named_barrier(barrier, threads, true);
}
inline void named_barrier_arrive(int barrier, int threads) {
  emulated_cuda::block().named_barrier(barrier, threads, false);
}

inline void wait_for_previous_kernel() {}
inline void let_next_kernel_start() {}

}  // namespace pvm::inline v0::detail
