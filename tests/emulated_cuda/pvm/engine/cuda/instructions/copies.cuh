// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's instructions/copies.cuh on the emulated device. Copies arrive as late as
/// possible: cp.async copies when their group is waited for, bulk copies when their mbarrier is
/// (or, by chance, at once, if PVM_EMULATION_SEED is set).

#include <cuda_runtime.h>

#include <bit>
#include <cstddef>
#include <cstdint>

namespace pvm::inline v0::detail {

// -------------------------------------------------------------- by threads

namespace emulated {

inline void ask(void* shared, const void* global, std::uint32_t bytes, std::uint32_t zeros) {
  const std::size_t size = bytes + zeros;
  if (reinterpret_cast<std::uintptr_t>(shared) % size != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % size != 0) {
    emulated_cuda::fail("an asynchronous copy from or to an address that is not aligned");
  }
  emulated_cuda::Block& block = emulated_cuda::block();
  emulated_cuda::Thread& thread = block.now();
  const emulated_cuda::Copy copy{shared, global, bytes, zeros, thread.group};
  if (block.order().coin()) {
    copy.arrive();
  } else {
    thread.copies.push_back(copy);
  }
}
/// Completes the copies of all groups before `group`.
inline void arrive_before(std::uint32_t group) {
  auto& copies = emulated_cuda::block().now().copies;
  std::size_t done = 0;
  while (done < copies.size() && copies[done].group < group) copies[done++].arrive();
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(done));
}

}  // namespace emulated

inline void copy_async(void* shared, const void* global) { emulated::ask(shared, global, 16, 0); }
inline void copy_async(void* shared, const void* global, unsigned long long) {
  emulated::ask(shared, global, 16, 0);
}
inline void copy_word_async(void* shared, const void* global) {
  emulated::ask(shared, global, 4, 0);
}
inline void copy_async_or_zero(void* shared, const void* global, int bytes) {
  emulated::ask(shared, global, bytes, 16 - bytes);
}
inline void copies_commit() { ++emulated_cuda::block().now().group; }
template <int Pending>
void copies_wait() {
  const std::uint32_t open = emulated_cuda::block().now().group;
  if (open >= Pending) emulated::arrive_before(open - Pending);
}
inline void copies_wait_all() {
  copies_commit();
  copies_wait<0>();
}

// -------------------------------------------------------------- in bulk

inline constexpr bool has_bulk_copies = true;
using MBarrier = unsigned long long;

namespace emulated {

struct BarrierState {
  std::uint16_t arrivals, missing;
  std::uint32_t bytes : 31, parity : 1;  ///< bytes still expected; parity of the current phase
};
static_assert(sizeof(BarrierState) == sizeof(MBarrier));

/// Changes a barrier, and wakes the threads that wait for it if only bytes are missing now, since
/// these arrive when a thread asks for them.
template <class Change>
BarrierState change(MBarrier* barrier, Change&& change) {
  auto state = std::bit_cast<BarrierState>(*barrier);
  change(state);
  if (state.missing == 0) emulated_cuda::block().wake(barrier);
  if (state.missing == 0 && state.bytes == 0) {
    state.parity ^= 1U;
    state.missing = state.arrivals;
  }
  *barrier = std::bit_cast<MBarrier>(state);
  return state;
}

}  // namespace emulated

inline void mbarrier_init(MBarrier* barrier, unsigned int arrivals) {
  const auto count = static_cast<std::uint16_t>(arrivals);
  *barrier = std::bit_cast<MBarrier>(emulated::BarrierState{count, count, 0, 0});
}
inline void mbarrier_expect(MBarrier* barrier, unsigned int bytes) {
  emulated::change(barrier, [&](emulated::BarrierState& s) {
    s.bytes = (s.bytes + bytes) & 0x7fffffffU;
    --s.missing;
  });
}
inline void mbarrier_arrive(MBarrier* barrier) {
  emulated::change(barrier, [](emulated::BarrierState& s) { --s.missing; });
}
inline void mbarrier_arrive_after_copies(MBarrier* barrier) {
  copies_wait_all();
  mbarrier_arrive(barrier);
}
inline void mbarrier_wait(MBarrier* barrier, unsigned int parity) {
  emulated_cuda::Block& block = emulated_cuda::block();
  for (;;) {
    if (const std::uint32_t arrived = block.bulk_arrive(barrier); arrived != 0) {
      emulated::change(
          barrier, [&](emulated::BarrierState& s) { s.bytes = (s.bytes - arrived) & 0x7fffffffU; });
    }
    if (std::bit_cast<emulated::BarrierState>(*barrier).parity != parity) return;
    block.sleep(barrier);
  }
}
inline void copy_bulk_async(void* shared, const void* global, unsigned int bytes,
                            MBarrier* barrier) {
  if (bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
    emulated_cuda::fail("a bulk copy that is not aligned to 16 bytes");
  }
  emulated_cuda::Block& block = emulated_cuda::block();
  block.bulk_copy({shared, global, bytes, barrier});
  block.wake(barrier);
}

inline void copy_bulk_async(void* shared, const void* global, unsigned int bytes, MBarrier* barrier,
                            unsigned long long) {
  copy_bulk_async(shared, global, bytes, barrier);
}

/// The source is read as late as possible: when the thread waits for its stores.
inline void store_bulk_async(void* global, const void* shared, unsigned int bytes,
                             unsigned long long) {
  if (bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
    emulated_cuda::fail("a bulk copy that is not aligned to 16 bytes");
  }
  emulated_cuda::Block& block = emulated_cuda::block();
  block.bulk_copy({global, shared, bytes, &block.now()});
}
inline void stores_wait_all() {
  emulated_cuda::Block& block = emulated_cuda::block();
  block.bulk_arrive(&block.now());
}
inline void stores_wait_read() {
  emulated_cuda::Block& block = emulated_cuda::block();
  block.bulk_arrive(&block.now());
}

}  // namespace pvm::inline v0::detail
