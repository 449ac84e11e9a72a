// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The emulation of what CUDA C++ adds to the language: keywords, vector types, and the built-in
/// functions of device code.

#include <algorithm>
#include <atomic>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "block.hpp"

#define PVM_EMULATED_CUDA 1
#define __CUDACC__ 1
#define __CUDA_ARCH__ 900

#define __global__
#define __device__
#define __host__
#define __constant__ const
#define __shared__ static thread_local  // static only; dynamic: pvm's dynamic_shared<T>()
#define __forceinline__ inline
#define __grid_constant__
#define __launch_bounds__(...)
#define __align__(n) __attribute__((aligned(n)))

// -------------------------------------------------------------- vector types

#define PVM_VECTORS(type, name, align)                                        \
  struct name##1 {                                                            \
    type x;                                                                   \
  };                                                                          \
  struct alignas((align) >= 2 ? (align) / 2 : 1) name##2 {                    \
    type x, y;                                                                \
  };                                                                          \
  struct name##3 {                                                            \
    type x, y, z;                                                             \
  };                                                                          \
  struct alignas(align) name##4 {                                             \
    type x, y, z, w;                                                          \
  };                                                                          \
  inline name##2 make_##name##2(type x, type y) { return {x, y}; }            \
  inline name##3 make_##name##3(type x, type y, type z) { return {x, y, z}; } \
  inline name##4 make_##name##4(type x, type y, type z, type w) { return {x, y, z, w}; }
PVM_VECTORS(float, float, 16)
PVM_VECTORS(int, int, 16)
PVM_VECTORS(unsigned, uint, 16)
PVM_VECTORS(short, short, 8)
PVM_VECTORS(unsigned short, ushort, 8)
PVM_VECTORS(signed char, char, 4)
PVM_VECTORS(unsigned char, uchar, 4)
#undef PVM_VECTORS
struct alignas(16) double2 {
  double x, y;
};
inline double2 make_double2(double x, double y) { return {x, y}; }
struct alignas(16) ulonglong2 {
  unsigned long long x, y;
};
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }

struct dim3 {
  unsigned x = 1, y = 1, z = 1;
  constexpr dim3() = default;
  constexpr dim3(unsigned x_, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};

inline constexpr int warpSize = 32;

// -------------------------------------------------------------- synchronisation

inline void __syncthreads() { (void)emulated_cuda::block().barrier(false); }
inline int __syncthreads_count(int predicate) {
  return static_cast<int>(emulated_cuda::block().barrier(predicate != 0));
}
inline int __syncthreads_or(int predicate) { return __syncthreads_count(predicate) != 0 ? 1 : 0; }
inline int __syncthreads_and(int predicate) {
  return __syncthreads_count(predicate == 0 ? 1 : 0) == 0 ? 1 : 0;
}
inline void __syncwarp(unsigned mask = 0xffffffffU) {
  (void)emulated_cuda::block().meet(mask, "__syncwarp", char{});
}
inline unsigned __activemask() { return emulated_cuda::block().warp().live; }
inline void __threadfence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_block() { std::atomic_thread_fence(std::memory_order_seq_cst); }
inline void __threadfence_system() { std::atomic_thread_fence(std::memory_order_seq_cst); }
[[noreturn]] inline void __trap() { emulated_cuda::fail("__trap"); }
inline void __nanosleep(unsigned) { emulated_cuda::block().poll(); }

// -------------------------------------------------------------- across a warp

namespace emulated_cuda {

/// A shuffle: returns the value of lane `source(lane)`, both counted from the beginning of the
/// lane's segment of `width` lanes; the lane's own value if that is outside of the segment. `what`:
/// name of the instruction.
template <class T, class Source>
T shuffle(unsigned mask, T value, int width, const char* what, Source&& source) {
  Block& b = block();
  const Lanes lanes = b.meet(mask, what, value).lanes;
  const int lane = static_cast<int>(b.now().lane);
  const int first = lane / width * width;
  const int from = source(lane - first);
  T out = value;
  if (from >= 0 && from < width) std::memcpy(&out, lanes[first + from], sizeof(T));
  return out;
}
/// The lanes of `mask` whose predicate is true, as a mask.
inline unsigned ballot(unsigned mask, bool predicate) {
  Block& b = block();
  const unsigned char mine = predicate ? 1 : 0;
  const auto [lanes, participants] = b.meet(mask, "a vote", mine);
  unsigned out = 0;
  for (unsigned i = 0; i < 32; ++i) {
    if (participants >> i & 1U) out |= static_cast<unsigned>(lanes[i][0]) << i;
  }
  return out;
}
/// The values of all lanes of `mask`, combined by the binary operation `join`.
template <class T, class Join>
T reduce(unsigned mask, T value, Join&& join) {
  Block& b = block();
  const auto [lanes, participants] = b.meet(mask, "a reduction", value);
  T out = value;
  for (unsigned i = 0; i < 32; ++i) {
    if (i == b.now().lane || (participants >> i & 1U) == 0) continue;
    T other;
    std::memcpy(&other, lanes[i], sizeof(T));
    out = join(out, other);
  }
  return out;
}

}  // namespace emulated_cuda

template <class T>
T __shfl_sync(unsigned mask, T value, int lane, int width = 32) {
  return emulated_cuda::shuffle(mask, value, width, "__shfl_sync",
                                [&](int) { return (lane % width + width) % width; });
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32) {
  return emulated_cuda::shuffle(mask, value, width, "__shfl_xor_sync",
                                [&](int mine) { return mine ^ bits; });
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32) {
  return emulated_cuda::shuffle(mask, value, width, "__shfl_down_sync",
                                [&](int mine) { return mine + static_cast<int>(by); });
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32) {
  return emulated_cuda::shuffle(mask, value, width, "__shfl_up_sync",
                                [&](int mine) { return mine - static_cast<int>(by); });
}
inline unsigned __ballot_sync(unsigned mask, int predicate) {
  return emulated_cuda::ballot(mask, predicate != 0);
}
inline int __any_sync(unsigned mask, int predicate) {
  return emulated_cuda::ballot(mask, predicate != 0) != 0 ? 1 : 0;
}
inline int __all_sync(unsigned mask, int predicate) {
  return emulated_cuda::ballot(mask, predicate == 0) == 0 ? 1 : 0;
}
template <class T>
T __reduce_add_sync(unsigned mask, T value) {
  return emulated_cuda::reduce(mask, value, [](T a, T b) { return static_cast<T>(a + b); });
}
template <class T>
T __reduce_max_sync(unsigned mask, T value) {
  return emulated_cuda::reduce(mask, value, [](T a, T b) { return std::max(a, b); });
}
template <class T>
T __reduce_min_sync(unsigned mask, T value) {
  return emulated_cuda::reduce(mask, value, [](T a, T b) { return std::min(a, b); });
}
inline unsigned __reduce_or_sync(unsigned mask, unsigned value) {
  return emulated_cuda::reduce(mask, value, [](unsigned a, unsigned b) { return a | b; });
}
inline unsigned __reduce_and_sync(unsigned mask, unsigned value) {
  return emulated_cuda::reduce(mask, value, [](unsigned a, unsigned b) { return a & b; });
}

// -------------------------------------------------------------- memory

template <class T>
T __ldg(const T* p) {
  static_assert(!std::is_pointer_v<T>, "CUDA has it for numbers and vectors of them");
  return *p;
}
template <class T>
T __ldcg(const T* p) {
  static_assert(!std::is_pointer_v<T>, "CUDA has it for numbers and vectors of them");
  return *p;
}
template <class T>
T __ldcs(const T* p) {
  static_assert(!std::is_pointer_v<T>, "CUDA has it for numbers and vectors of them");
  return *p;
}
template <class T>
T __ldca(const T* p) {
  static_assert(!std::is_pointer_v<T>, "CUDA has it for numbers and vectors of them");
  return *p;
}
template <class T>
void __stcs(T* p, T value) {
  *p = value;
}
template <class T>
void __stcg(T* p, T value) {
  *p = value;
}

namespace emulated_cuda {

/// An atomic read-modify-write; returns the old value. Lets other threads run first, because the
/// caller may be in a loop that waits for one of them.
template <class T, class Operation>
T atomic(T* p, Operation&& operation) {
  static_assert(std::is_integral_v<T>, "sums of floats would depend on the order of threads");
  block().poll();
  std::atomic_ref<T> at(*p);
  T old = at.load();
  while (!at.compare_exchange_weak(old, operation(old))) {
  }
  EventCounter::get().happened();
  return old;
}

}  // namespace emulated_cuda

template <class T>
T atomicAdd(T* p, std::type_identity_t<T> value) {
  return emulated_cuda::atomic(p, [&](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicSub(T* p, std::type_identity_t<T> value) {
  return emulated_cuda::atomic(p, [&](T old) { return static_cast<T>(old - value); });
}
template <class T>
T atomicExch(T* p, std::type_identity_t<T> value) {
  return emulated_cuda::atomic(p, [&](T) { return value; });
}
template <class T>
T atomicOr(T* p, std::type_identity_t<T> value) {
  return emulated_cuda::atomic(p, [&](T old) { return static_cast<T>(old | value); });
}
template <class T>
T atomicAnd(T* p, std::type_identity_t<T> value) {
  return emulated_cuda::atomic(p, [&](T old) { return static_cast<T>(old & value); });
}
template <class T>
T atomicMax(T* p, std::type_identity_t<T> value) {
  return emulated_cuda::atomic(p, [&](T old) { return std::max(old, value); });
}
template <class T>
T atomicMin(T* p, std::type_identity_t<T> value) {
  return emulated_cuda::atomic(p, [&](T old) { return std::min(old, value); });
}
template <class T>
T atomicCAS(T* p, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  return emulated_cuda::atomic(p, [&](T old) { return old == expected ? value : old; });
}

// -------------------------------------------------------------- arithmetic

namespace emulated_cuda {

/// Four floats with which the compiler computes at once.
using Four = float __attribute__((vector_size(16)));
inline void add(float (&c)[4], Four sums) {
  Four before;
  std::memcpy(&before, c, sizeof(before));
  sums += before;
  std::memcpy(c, &sums, sizeof(sums));
}

}  // namespace emulated_cuda

inline unsigned __float_as_uint(float v) { return std::bit_cast<unsigned>(v); }
inline int __float_as_int(float v) { return std::bit_cast<int>(v); }
inline float __uint_as_float(unsigned v) { return std::bit_cast<float>(v); }
inline float __int_as_float(int v) { return std::bit_cast<float>(v); }
inline float __fmaf_rn(float a, float b, float c) { return std::fma(a, b, c); }
inline float __fmul_rn(float a, float b) { return a * b; }
inline float __fadd_rn(float a, float b) { return a + b; }
inline float __fdividef(float a, float b) { return a / b; }
inline float __fdiv_rn(float a, float b) { return a / b; }
inline float __frcp_rn(float a) { return 1.0F / a; }
inline float __expf(float a) { return std::exp(a); }
inline float rsqrtf(float a) { return 1.0F / std::sqrt(a); }
inline float __saturatef(float a) { return a > 0.0F ? (a < 1.0F ? a : 1.0F) : 0.0F; }
inline int __float2int_rn(float a) { return static_cast<int>(std::nearbyint(a)); }
inline int __popc(unsigned v) { return std::popcount(v); }
inline int __ffs(int v) { return v == 0 ? 0 : std::countr_zero(static_cast<unsigned>(v)) + 1; }
inline int __clz(int v) { return std::countl_zero(static_cast<unsigned>(v)); }
inline unsigned __brev(unsigned v) {
  unsigned out = 0;
  for (int i = 0; i < 32; ++i) out |= (v >> i & 1U) << (31 - i);
  return out;
}
inline unsigned __umulhi(unsigned a, unsigned b) {
  return static_cast<unsigned>(static_cast<unsigned long long>(a) * b >> 32);
}
inline unsigned __byte_perm(unsigned a, unsigned b, unsigned selector) {
  const unsigned long long bytes = static_cast<unsigned long long>(b) << 32 | a;
  unsigned out = 0;
  for (unsigned i = 0; i < 4; ++i) {
    const unsigned which = selector >> (4 * i) & 7U;
    out |= static_cast<unsigned>(bytes >> (8 * which) & 0xffU) << (8 * i);
  }
  return out;
}
inline long long clock64() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

#define PVM_MIN_MAX(type)                                      \
  constexpr type min(type a, type b) { return b < a ? b : a; } \
  constexpr type max(type a, type b) { return a < b ? b : a; }
PVM_MIN_MAX(int)
PVM_MIN_MAX(unsigned)
PVM_MIN_MAX(long)
PVM_MIN_MAX(unsigned long)
PVM_MIN_MAX(long long)
PVM_MIN_MAX(unsigned long long)
PVM_MIN_MAX(float)
PVM_MIN_MAX(double)
#undef PVM_MIN_MAX
