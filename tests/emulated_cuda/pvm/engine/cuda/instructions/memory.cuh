// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Replaces the library's instructions/memory.cuh on the emulated device.

#include <cuda_runtime.h>

#include <atomic>
#include <cstdint>

namespace pvm::inline v0::detail {

// -------------------------------------------------------------- the L2 cache

inline unsigned long long evict_last() { return 1; }
inline unsigned long long evict_first() { return 2; }
template <int Percent>
unsigned long long evict_last_fraction() {
  return 3;
}
template <class T>
T load_l2_with_policy(const T* p, unsigned long long) {
  return *p;
}
template <class T>
void load_l2_in_place(T& v, const T* p, unsigned long long) {
  v = *p;
}
template <class T>
T load_streamed(const T* p, unsigned long long) {
  return *p;
}

template <class T>
void store_with_policy(T* p, T v, unsigned long long) {
  *p = v;
}

inline void prefetch_line(const void*) {}
inline void prefetch_line_if(bool, const void*) {}

/// If the L2 cache has two sides: SMs with odd numbers are on one, and chunks of 4 KB are on
/// either.
inline unsigned int sm_number() {
  return blockIdx.x % static_cast<unsigned>(emulated_cuda::facts.multiprocessors);
}
inline unsigned long long nanosecond_timer() {
  return static_cast<unsigned long long>(
      std::chrono::steady_clock::now().time_since_epoch().count());
}
inline int time_atomic(std::uint32_t* p, std::uint32_t* sink) {
  *sink = *p;
  const auto address = reinterpret_cast<std::uintptr_t>(p);
  const unsigned side = (address >> 12 ^ address >> 14 ^ address >> 17) & 1U;
  return !emulated_cuda::facts.sides || side == (sm_number() & 1U) ? 270 : 450;
}
inline void prefetch_bulk(const void* p, unsigned int bytes) {
  if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0 || bytes % 16 != 0) {
    emulated_cuda::fail("a bulk prefetch that is not aligned to 16 bytes");
  }
}

// -------------------------------------------------------------- between blocks of threads

inline void add_one_release(unsigned int* counter) {
  std::atomic_ref(*counter).fetch_add(1, std::memory_order_release);
  emulated_cuda::EventCounter::get().happened();
}
inline unsigned int load_relaxed(const unsigned int* counter) {
  emulated_cuda::block().poll();
  return std::atomic_ref(*const_cast<unsigned int*>(counter)).load(std::memory_order_relaxed);
}
inline void add_one_relaxed(unsigned int* counter) { add_one_release(counter); }
inline void store_relaxed_16(void* to, uint4 v) {
  auto* words = static_cast<std::uint32_t*>(to);
  const std::uint32_t data[3] = {v.x, v.y, v.z};
  for (int i = 0; i < 3; ++i) {
    std::atomic_ref(words[i]).store(data[i], std::memory_order_relaxed);
  }
  std::atomic_ref(words[3]).store(v.w, std::memory_order_release);
  emulated_cuda::EventCounter::get().happened();
}
/// The tag is loaded first, with acquire: the words stored before it are visible then.
inline uint4 load_relaxed_16(const void* from) {
  emulated_cuda::block().poll();
  auto* words = static_cast<std::uint32_t*>(const_cast<void*>(from));
  uint4 v;
  v.w = std::atomic_ref(words[3]).load(std::memory_order_acquire);
  v.x = std::atomic_ref(words[0]).load(std::memory_order_relaxed);
  v.y = std::atomic_ref(words[1]).load(std::memory_order_relaxed);
  v.z = std::atomic_ref(words[2]).load(std::memory_order_relaxed);
  return v;
}
// -------------------------------------------------------------- between devices

inline unsigned int load_relaxed_system(const unsigned int* counter) {
  return load_relaxed(counter);
}
inline void fence_system() {
  emulated_cuda::block().fence();
  std::atomic_thread_fence(std::memory_order_seq_cst);
}
inline void add_one_system(unsigned int* counter) {
  emulated_cuda::block().store_late([=] { add_one_relaxed(counter); });
}
inline void store_relaxed_16_system(void* to, uint4 v) {
  emulated_cuda::block().store_late([=] { store_relaxed_16(to, v); });
}
inline uint4 load_relaxed_16_system(const void* from) { return load_relaxed_16(from); }
inline void fence_device() { std::atomic_thread_fence(std::memory_order_seq_cst); }

}  // namespace pvm::inline v0::detail
