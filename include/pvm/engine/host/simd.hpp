// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Vectors of sixteen floats, in the vector extension of GCC and Clang, and the software
/// prefetcher. The compiler turns one `Lanes` into one AVX-512 register, two AVX registers or four
/// SSE registers. `for_best_isa` chooses the widest that the processor has at run time, so that one
/// binary serves all processors.

#include <cstddef>
#include <cstdint>

#include <pvm/core/config.hpp>

namespace pvm::inline v0::simd {

inline constexpr std::size_t width = 16;

using Lanes = float __attribute__((vector_size(64), aligned(4), may_alias));
/// The bits of Lanes, or 16 pairs of 16-bit numbers.
using Words = std::uint32_t __attribute__((vector_size(64), aligned(4), may_alias));
using SignedWords = std::int32_t __attribute__((vector_size(64), aligned(4), may_alias));

/// n rounded up to whole Lanes.
constexpr std::size_t padded(std::size_t n) { return (n + width - 1) / width * width; }

[[gnu::always_inline]] inline const Lanes& at(const float* p) {
  return *reinterpret_cast<const Lanes*>(p);
}
[[gnu::always_inline]] inline Lanes& at(float* p) { return *reinterpret_cast<Lanes*>(p); }

[[gnu::always_inline]] inline Words& words_at(void* p) { return *static_cast<Words*>(p); }
[[gnu::always_inline]] inline const Words& words_at(const void* p) {
  return *static_cast<const Words*>(p);
}

/// The bits of `v` as another vector type, valid while `v` lives. Returned by reference, because
/// the calling convention for vectors by value depends on the instruction set compiled for.
template <class To, class From>
[[gnu::always_inline]] inline const To& bits_as(const From& v) {
  return reinterpret_cast<const To&>(v);
}

/// Sum of the lanes, always in the same order.
[[gnu::always_inline]] inline float sum(const Lanes& v) {
  const auto eight = __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7) +
                     __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15);
  const auto four = __builtin_shufflevector(eight, eight, 0, 1, 2, 3) +
                    __builtin_shufflevector(eight, eight, 4, 5, 6, 7);
  return (four[0] + four[2]) + (four[1] + four[3]);
}

/// a . b over n floats, n a multiple of the width.
[[gnu::always_inline]] inline float dot(const float* a, const float* b, std::size_t n) {
  Lanes even = {};
  Lanes odd = {};
  std::size_t i = 0;
  for (; i + 2 * width <= n; i += 2 * width) {
    even += at(a + i) * at(b + i);
    odd += at(a + i + width) * at(b + i + width);
  }
  if (i < n) even += at(a + i) * at(b + i);
  even += odd;
  return sum(even);
}

/// y += x over n floats, n a multiple of the width.
[[gnu::always_inline]] inline void add(float* y, const float* x, std::size_t n) {
  for (std::size_t i = 0; i < n; i += width) at(y + i) += at(x + i);
}

/// y += factor * x over n floats, n a multiple of the width.
[[gnu::always_inline]] inline void add_scaled(float* y, float factor, const float* x,
                                              std::size_t n) {
  for (std::size_t i = 0; i < n; i += width) at(y + i) += factor * at(x + i);
}

/// The software prefetcher: prefetches weights that will be needed soon while the thread works on
/// others. A step is bound by memory bandwidth, so memory should not be idle while it computes. The
/// weights of a unit are one contiguous stretch of memory, and a thread goes through one stretch
/// after the other, front to back. The prefetcher runs up to `lead` cache lines in front of the
/// work, and continues with the next stretch at the end of the present one. Before the first
/// `begin` it does nothing.
class Prefetcher {
 public:
  /// Work on the stretch [start, end) begins; the stretch at `next` (null: unknown) will follow.
  void begin(const void* start, const void* end, const void* next) {
    const auto* const first = static_cast<const char*>(start);
    const auto* const last = static_cast<const char*>(end);
    if (at_ < first || at_ > last) {  // else it has been prefetched already, up to at_
      at_ = first;
      room_ = lead;
    }
    end_ = last;
    next_ = static_cast<const char*>(next);
  }
  /// The work has used `lines` more cache lines of the stretch; prefetches as many. The distance to
  /// the work therefore grows only in the small pieces of work between passes, which call
  /// `prefetch` alone.
  [[gnu::always_inline]] inline void advance(std::ptrdiff_t lines) {
    if (end_ == nullptr) return;
    room_ += lines;
    if (room_ > lead) {  // the work has overtaken the prefetcher
      at_ += (room_ - lead) * line;
      room_ = lead;
    }
    prefetch(lines);
  }
  /// Prefetches `lines` more cache lines, if that is no more than `lead` in front of the work.
  [[gnu::always_inline]] inline void prefetch(std::ptrdiff_t lines) {
    if (room_ < lines) return;
    if (at_ >= end_) {
      if (next_ == nullptr) return;
      at_ = next_;
      end_ = at_ + (std::ptrdiff_t{1} << 40);
      next_ = nullptr;
    }
    for (std::ptrdiff_t i = 0; i < lines; ++i) __builtin_prefetch(at_ + i * line, 0, 2);
    at_ += lines * line;
    room_ -= lines;
  }

 private:
  static constexpr std::ptrdiff_t line = 64;    // bytes
  static constexpr std::ptrdiff_t lead = 2048;  // cache lines: 128 KiB, a part of a core's L2 cache
  const char* at_ = nullptr;                    // the next address to prefetch
  const char* end_ = nullptr;                   // end of the stretch that it is in
  const char* next_ = nullptr;                  // start of the next stretch; null: unknown
  std::ptrdiff_t room_ = 0;  // lines that may be prefetched before the work moves on
};

/// Instruction sets. Each includes those before it; `baseline` is what the program is compiled for.
enum class Isa { baseline, avx2, avx512, avx512_bf16 };

#if defined(__x86_64__)
// The instructions of x86-64-v3 and -v4 one by one: added to those that the program is compiled for
// (-march=native), where "arch=" would take their place. Functions can be inlined into such only as
// do not have less than they.
#define PVM_X86_64_V3 "avx,avx2,bmi,bmi2,f16c,fma,lzcnt,movbe,popcnt,sse4.2"
#define PVM_X86_64_V4 PVM_X86_64_V3 ",avx512f,avx512bw,avx512cd,avx512dq,avx512vl"

/// Calls `work()`, compiled for AVX-512 or AVX2. Its call operator, and the functions that it
/// calls, must be always_inline to be compiled so.
#if defined(__clang__)
#define PVM_AVX512 PVM_X86_64_V4
#else
#define PVM_AVX512 PVM_X86_64_V4 ",prefer-vector-width=512"
#endif
template <class Work>
[[gnu::target(PVM_AVX512)]] void run_avx512(const Work& work) {
  work();
}
template <class Work>
[[gnu::target(PVM_X86_64_V3)]] void run_avx2(const Work& work) {
  work();
}

/// The best instruction set that this processor has.
inline Isa best_isa() {
  static const Isa isa = [] {
    if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) return Isa::baseline;
    const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
                        __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq");
    if (!avx512) return Isa::avx2;
    return __builtin_cpu_supports("avx512bf16") ? Isa::avx512_bf16 : Isa::avx512;
  }();
  return isa;
}

inline const char* isa_name() {
  switch (best_isa()) {
    case Isa::avx512_bf16:
      return "AVX-512 with bf16";
    case Isa::avx512:
      return "AVX-512";
    case Isa::avx2:
      return "AVX2";
    case Isa::baseline:
      break;
  }
  return "SSE2";
}

template <class Work>
void for_best_isa(const Work& work) {
  switch (best_isa()) {
    case Isa::avx512_bf16:
    case Isa::avx512:
      return run_avx512(work);
    case Isa::avx2:
      return run_avx2(work);
    case Isa::baseline:
      return work();
  }
}
#else
inline Isa best_isa() { return Isa::baseline; }
inline const char* isa_name() { return "the compiler's vectors"; }

template <class Work>
void for_best_isa(const Work& work) {
  work();
}
#endif

/// Calls `work()` compiled for `isa`, which the processor must have.
template <Isa isa, class Work>
[[gnu::always_inline]] inline void for_isa(const Work& work) {
#if defined(__x86_64__)
  if constexpr (isa >= Isa::avx512) return run_avx512(work);
  if constexpr (isa == Isa::avx2) return run_avx2(work);
#endif
  if constexpr (isa == Isa::baseline) work();
}

}  // namespace pvm::inline v0::simd
