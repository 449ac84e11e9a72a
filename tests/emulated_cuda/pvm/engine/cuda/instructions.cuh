// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Stands in for include/pvm/engine/cuda/instructions.cuh on the emulated device: the same
/// functions, with the layouts of the PTX ISA.

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

namespace pvm::inline v0::detail {

template <class T>
T* dynamic_shared() {
  return reinterpret_cast<T*>(emulated_cuda::block().shared());
}

inline unsigned char* aligned_dynamic_shared() { return dynamic_shared<unsigned char>(); }

inline int thread_number() { return static_cast<int>(threadIdx.x); }

// -------------------------------------------------------------- the second-level cache

inline unsigned long long leaves_last() { return 1; }
inline unsigned long long leaves_first() { return 2; }
template <int Percent>
unsigned long long partly_stays() {
  return 3;
}
inline float4 load_marked(const float4* p, unsigned long long) { return *p; }
inline float4 load_streamed(const float4* p, unsigned long long) { return *p; }

template <class T>
void store_held(T* p, T v, unsigned long long) {
  *p = v;
}

// -------------------------------------------------------------- arithmetic

inline float reciprocal(float v) { return 1.0F / v; }

// -------------------------------------------------------------- between blocks of threads

inline void add_one_release(unsigned int* counter) {
  std::atomic_ref(*counter).fetch_add(1, std::memory_order_release);
  emulated_cuda::Progress::get().happened();
}
inline unsigned int load_relaxed(const unsigned int* counter) {
  emulated_cuda::block().poll();
  return std::atomic_ref(*const_cast<unsigned int*>(counter)).load(std::memory_order_relaxed);
}
inline void add_one_relaxed(unsigned int* counter) { add_one_release(counter); }
inline void send_piece(void* to, uint4 v) {
  auto* words = static_cast<std::uint32_t*>(to);
  const std::uint32_t data[3] = {v.x, v.y, v.z};
  for (int i = 0; i < 3; ++i) {
    std::atomic_ref(words[i]).store(data[i], std::memory_order_relaxed);
  }
  std::atomic_ref(words[3]).store(v.w, std::memory_order_release);
  emulated_cuda::Progress::get().happened();
}
/// The mark is read first: with it come the words that were stored before it.
inline uint4 receive_piece(const void* from) {
  emulated_cuda::block().poll();
  auto* words = static_cast<std::uint32_t*>(const_cast<void*>(from));
  uint4 v;
  v.w = std::atomic_ref(words[3]).load(std::memory_order_acquire);
  v.x = std::atomic_ref(words[0]).load(std::memory_order_relaxed);
  v.y = std::atomic_ref(words[1]).load(std::memory_order_relaxed);
  v.z = std::atomic_ref(words[2]).load(std::memory_order_relaxed);
  return v;
}
inline void fence_device() { std::atomic_thread_fence(std::memory_order_seq_cst); }

inline void prefetch_line(const void*) {}

inline void sync_warps(int barrier, int threads) {
  emulated_cuda::block().named_barrier(barrier, threads, true);
}
inline void arrive_warps(int barrier, int threads) {
  emulated_cuda::block().named_barrier(barrier, threads, false);
}

inline void wait_for_previous_kernel() {}
inline void let_next_kernel_start() {}

// -------------------------------------------------------------- asynchronous copies

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
/// Lets the copies of all groups before `group` arrive.
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

inline constexpr bool has_bulk_copies = true;
using CopyBarrier = unsigned long long;

namespace emulated {

struct BarrierState {
  std::uint16_t arrivals, missing;
  std::uint32_t bytes : 31, parity : 1;  ///< bytes still to come; which phase is open
};
static_assert(sizeof(BarrierState) == sizeof(CopyBarrier));

template <class Change>
BarrierState change(CopyBarrier* barrier, Change&& change) {
  auto state = std::bit_cast<BarrierState>(*barrier);
  change(state);
  if (state.missing == 0 && state.bytes == 0) {
    state.parity ^= 1U;
    state.missing = state.arrivals;
  }
  *barrier = std::bit_cast<CopyBarrier>(state);
  return state;
}

}  // namespace emulated

inline void barrier_init(CopyBarrier* barrier, unsigned int arrivals) {
  const auto count = static_cast<std::uint16_t>(arrivals);
  *barrier = std::bit_cast<CopyBarrier>(emulated::BarrierState{count, count, 0, 0});
}
inline void barrier_expect(CopyBarrier* barrier, unsigned int bytes) {
  emulated::change(barrier, [&](emulated::BarrierState& s) {
    s.bytes = (s.bytes + bytes) & 0x7fffffffU;
    --s.missing;
  });
}
inline void barrier_arrive(CopyBarrier* barrier) {
  emulated::change(barrier, [](emulated::BarrierState& s) { --s.missing; });
}
inline void copies_arrive(CopyBarrier* barrier) {
  copies_wait_all();
  barrier_arrive(barrier);
}
inline void barrier_wait(CopyBarrier* barrier, unsigned int parity) {
  emulated_cuda::Block& block = emulated_cuda::block();
  for (;;) {
    const std::uint32_t arrived = block.bulk_arrive(barrier);
    const auto state = emulated::change(
        barrier, [&](emulated::BarrierState& s) { s.bytes = (s.bytes - arrived) & 0x7fffffffU; });
    if (state.parity != parity) return;
    block.poll();
  }
}
inline void copy_bulk_async(void* shared, const void* global, unsigned int bytes,
                            CopyBarrier* barrier) {
  if (bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
    emulated_cuda::fail("a bulk copy that is not aligned to 16 bytes");
  }
  emulated_cuda::block().bulk_copy({shared, global, bytes, barrier});
}

inline void copy_bulk_async(void* shared, const void* global, unsigned int bytes,
                            CopyBarrier* barrier, unsigned long long) {
  copy_bulk_async(shared, global, bytes, barrier);
}

inline void prefetch_bulk(const void* p, unsigned int bytes) {
  if (reinterpret_cast<std::uintptr_t>(p) % 16 != 0 || bytes % 16 != 0) {
    emulated_cuda::fail("a bulk prefetch that is not aligned to 16 bytes");
  }
}
inline void show_to_copies() {}
/// They are read as late as they may be.
inline void store_bulk_async(void* global, const void* shared, unsigned int bytes,
                             unsigned long long) {
  if (bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(shared) % 16 != 0 ||
      reinterpret_cast<std::uintptr_t>(global) % 16 != 0) {
    emulated_cuda::fail("a bulk copy that is not aligned to 16 bytes");
  }
  emulated_cuda::Block& block = emulated_cuda::block();
  block.bulk_copy({global, shared, bytes, &block.now()});
}
inline void stores_have_landed() {
  emulated_cuda::Block& block = emulated_cuda::block();
  block.bulk_arrive(&block.now());
}
inline void stores_have_read() {
  emulated_cuda::Block& block = emulated_cuda::block();
  block.bulk_arrive(&block.now());
}

// -------------------------------------------------------------- matrices across a warp

namespace emulated {

inline constexpr unsigned full_warp = 0xffffffffU;

/// Rows of 16 bytes: lane l gives the address of row l % 8 of matrix l / 8. Returns the 32 bits at
/// row `row`, pair `pair` of matrix `matrix`; transposed: of the columns.
inline std::uint32_t matrix_word(emulated_cuda::Lanes lanes, int matrix, bool transposed) {
  const int lane = static_cast<int>(emulated_cuda::block().now().lane);
  const auto half = [&](int row, int column) {
    const unsigned char* address;
    std::memcpy(&address, lanes[matrix * 8 + row], sizeof(address));
    std::uint16_t value;
    std::memcpy(&value, address + column * 2, 2);
    return static_cast<std::uint32_t>(value);
  };
  const int line = lane / 4, pair = lane % 4 * 2;
  return transposed ? half(pair, line) | half(pair + 1, line) << 16
                    : half(line, pair) | half(line, pair + 1) << 16;
}
/// `Count` matrices; what lies in shared memory is read before any lane goes on.
template <int Count>
std::array<std::uint32_t, Count> load(const void* row, bool transposed, const char* what) {
  emulated_cuda::Block& block = emulated_cuda::block();
  if (static_cast<int>(block.now().lane) < Count * 8 &&
      reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    emulated_cuda::fail("a row of a matrix that is not aligned");
  }
  const emulated_cuda::Lanes lanes = block.meet(full_warp, what, row).lanes;
  std::array<std::uint32_t, Count> out;
  for (int i = 0; i < Count; ++i)
    out[static_cast<std::size_t>(i)] = matrix_word(lanes, i, transposed);
  block.meet(full_warp, what, char{});
  return out;
}

/// The operands of a product, a lane's words one behind the other: 4 of a, 2 of b.
struct Operands {
  std::uint32_t word[6];
};
/// c[16][8] = a[16][Depth] b[Depth][8] of the lanes' words, left where the lanes find their four.
/// `value(word, i)`: number i of a word, which holds Depth / 8 of them.
template <int Depth, class Value>
__attribute__((optimize("O3"))) void multiply_lanes(emulated_cuda::Lanes lanes, Value value) {
  constexpr int each = Depth / 8;
  float a[16][Depth], b[Depth][8], c[16][8] = {};
  for (int lane = 0; lane < 32; ++lane) {
    Operands o;
    std::memcpy(&o, lanes[lane], sizeof(o));
    const int g = lane / 4, t = lane % 4;
    for (int i = 0; i < each; ++i) {
      for (int w = 0; w < 4; ++w) {
        a[g + w % 2 * 8][w / 2 * (Depth / 2) + t * each + i] = value(o.word[w], i);
      }
      for (int w = 0; w < 2; ++w) b[w * (Depth / 2) + t * each + i][g] = value(o.word[4 + w], i);
    }
  }
  for (int m = 0; m < 16; ++m) {
    for (int k = 0; k < Depth; ++k) {
      for (int n = 0; n < 8; ++n) c[m][n] += a[m][k] * b[k][n];
    }
  }
  for (int lane = 0; lane < 32; ++lane) {
    const int g = lane / 4, t = lane % 4 * 2;
    const float mine[4] = {c[g][t], c[g][t + 1], c[g + 8][t], c[g + 8][t + 1]};
    std::memcpy(lanes[lane], mine, sizeof(mine));
  }
}
inline void multiply(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0, std::uint32_t b1,
                     const char* what, void (*finish)(emulated_cuda::Lanes)) {
  const Operands mine{{a[0], a[1], a[2], a[3], b0, b1}};
  emulated_cuda::Block& block = emulated_cuda::block();
  const emulated_cuda::Lanes lanes = block.meet(full_warp, what, mine, finish).lanes;
  float sums[4];
  std::memcpy(sums, lanes[block.now().lane], sizeof(sums));
  for (int i = 0; i < 4; ++i) c[i] += sums[i];
}

}  // namespace emulated

inline void load_matrices(std::uint32_t (&r)[4], const void* row) {
  const auto words = emulated::load<4>(row, false, "ldmatrix.x4");
  for (std::size_t i = 0; i < 4; ++i) r[i] = words[i];
}
inline void load_matrices_transposed(std::uint32_t (&r)[4], const void* row) {
  const auto words = emulated::load<4>(row, true, "ldmatrix.x4.trans");
  for (std::size_t i = 0; i < 4; ++i) r[i] = words[i];
}
inline void load_two_matrices(std::uint32_t& r0, std::uint32_t& r1, const void* row) {
  const auto words = emulated::load<2>(row, false, "ldmatrix.x2");
  r0 = words[0];
  r1 = words[1];
}
inline void load_two_matrices_transposed(std::uint32_t& r0, std::uint32_t& r1, const void* row) {
  const auto words = emulated::load<2>(row, true, "ldmatrix.x2.trans");
  r0 = words[0];
  r1 = words[1];
}
inline bool is_elected() {
  emulated_cuda::Block& block = emulated_cuda::block();
  block.meet(emulated::full_warp, "elect", char{});
  return block.now().lane == 0;
}
inline void store_matrices(void* row, const std::uint32_t (&r)[4]) {
  struct Given {
    void* row;
    std::uint32_t word[4];
  } given{row, {r[0], r[1], r[2], r[3]}};
  emulated_cuda::Block& block = emulated_cuda::block();
  if (reinterpret_cast<std::uintptr_t>(row) % 16 != 0) {
    emulated_cuda::fail("a row of a matrix that is not aligned");
  }
  const emulated_cuda::Lanes lanes = block.meet(emulated::full_warp, "stmatrix.x4", given).lanes;
  const unsigned lane = block.now().lane;
  for (unsigned pair = 0; pair < 4; ++pair) {
    std::memcpy(&given, lanes[lane % 8 * 4 + pair], sizeof(given));
    std::memcpy(static_cast<unsigned char*>(row) + pair * 4, &given.word[lane / 8], 4);
  }
  block.meet(emulated::full_warp, "stmatrix.x4", char{});
}
inline std::uint32_t transpose(std::uint32_t v) {
  emulated_cuda::Block& block = emulated_cuda::block();
  const emulated_cuda::Lanes lanes = block.meet(emulated::full_warp, "movmatrix", v).lanes;
  const unsigned lane = block.now().lane;
  const auto half = [&](unsigned row, unsigned column) {
    std::uint16_t value;
    std::memcpy(&value, lanes[row * 4 + column / 2] + column % 2 * 2, 2);
    return static_cast<std::uint32_t>(value);
  };
  return half(lane % 4 * 2, lane / 4) | half(lane % 4 * 2 + 1, lane / 4) << 16;
}

inline void multiply_bf16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                          std::uint32_t b1) {
  emulated::multiply(c, a, b0, b1, "mma.bf16", [](emulated_cuda::Lanes lanes) {
    emulated::multiply_lanes<16>(lanes, [](std::uint32_t word, int i) {
      return std::bit_cast<float>(i == 0 ? word << 16 : word & 0xffff0000U);
    });
  });
}
inline void multiply_fp16(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                          std::uint32_t b1) {
  emulated::multiply(c, a, b0, b1, "mma.fp16", [](emulated_cuda::Lanes lanes) {
    emulated::multiply_lanes<16>(lanes, [](std::uint32_t word, int i) {
      return emulated_cuda::half_from_table(word >> (16 * i) & 0xffffU);
    });
  });
}
inline void multiply_shallow_bf16(float (&c)[4], std::uint32_t a0, std::uint32_t a1,
                                  std::uint32_t b) {
  multiply_bf16(c, {a0, a1, 0, 0}, b, 0);
}
inline void multiply_shallow_fp16(float (&c)[4], std::uint32_t a0, std::uint32_t a1,
                                  std::uint32_t b) {
  multiply_fp16(c, {a0, a1, 0, 0}, b, 0);
}
inline std::uint32_t pair_cut_to_fp16(float first, float second) {
  const auto cut = [](float v) {
    unsigned short bits = emulated_cuda::half_bits(v);
    if (std::fabs(emulated_cuda::half_value(bits)) > std::fabs(v)) --bits;
    return static_cast<std::uint32_t>(bits);
  };
  return cut(first) | cut(second) << 16;
}
/// The tensor cores read the upper 19 bits of an operand.
inline void multiply_tf32(float (&c)[4], const std::uint32_t (&a)[4], std::uint32_t b0,
                          std::uint32_t b1) {
  emulated::multiply(c, a, b0, b1, "mma.tf32", [](emulated_cuda::Lanes lanes) {
    emulated::multiply_lanes<8>(
        lanes, [](std::uint32_t word, int) { return std::bit_cast<float>(word & 0xffffe000U); });
  });
}

// -------------------------------------------------------------- products of four warps

#if !defined(PVM_EMULATED_GROUPS)
#define PVM_EMULATED_GROUPS true
#endif
inline constexpr bool multiplies_in_groups = PVM_EMULATED_GROUPS;

using GroupOperand = std::uint64_t;
inline GroupOperand group_operand(const void* shared) {
  return reinterpret_cast<std::uintptr_t>(shared) / 16;
}
inline void show_to_products() {}
inline void products_begin() {}
inline void products_commit() {}
template <int>
void products_wait() {}
inline void products_end() {}

namespace emulated {

/// Number `column` of row `row` of an operand.
template <int RowBytes>
std::uint16_t group_value(GroupOperand operand, int row, int column) {
  std::uintptr_t at = operand * 16 + static_cast<std::uintptr_t>(row * RowBytes + column * 2);
  at ^= (at >> 7 & (RowBytes == 128 ? 7U : 3U)) << 4;
  std::uint16_t value;
  std::memcpy(&value, reinterpret_cast<const void*>(at), sizeof(value));
  return value;
}
/// The calling lane's sums; its warp meets, as the instruction is the whole warp's.
template <int RowBytes, class Value>
void multiply_group(float (&c)[7][4], GroupOperand a, GroupOperand b, Value value) {
  emulated_cuda::block().meet(full_warp, "wgmma", char{});
  const auto operand = [&](GroupOperand from, int line, int k) {
    return value(group_value<RowBytes>(from, line, k));
  };
  const int warp = thread_number() / 32 % 4, lane = thread_number() % 32;
  float rows[2][16];
  for (int i = 0; i < 2; ++i) {
    for (int k = 0; k < 16; ++k) rows[i][k] = operand(a, warp * 16 + lane / 4 + i * 8, k);
  }
  for (int n = 0; n < 7; ++n) {
    for (int j = 0; j < 2; ++j) {
      float sums[2] = {};
      for (int k = 0; k < 16; ++k) {
        const float column = operand(b, n * 8 + lane % 4 * 2 + j, k);
        for (int i = 0; i < 2; ++i) sums[i] += rows[i][k] * column;
      }
      for (int i = 0; i < 2; ++i) c[n][i * 2 + j] += sums[i];
    }
  }
}

/// 64 x 16 by 16 x 64.
template <int RowBytes, class Value>
void multiply_square(float (&c)[8][4], GroupOperand a, GroupOperand b, Value value) {
  emulated_cuda::block().meet(full_warp, "wgmma", char{});
  const int warp = thread_number() / 32 % 4, lane = thread_number() % 32;
  for (int n = 0; n < 8; ++n) {
    for (int e = 0; e < 4; ++e) {
      const int row = warp * 16 + lane / 4 + e / 2 * 8, column = n * 8 + lane % 4 * 2 + e % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k) {
        sum += value(group_value<RowBytes>(a, row, k)) * value(group_value<RowBytes>(b, column, k));
      }
      c[n][e] += sum;
    }
  }
}
/// The warp's 16 x 16 in registers by 16 x 32 to 128, whose pieces lie `b >> 48` apart.
template <int RowBytes, int Octets, class Value>
void multiply_held(float (&c)[Octets][4], const std::uint32_t (&a)[4], GroupOperand b, bool adds,
                   Value value) {
  struct Words {
    std::uint32_t word[4];
  } words{{a[0], a[1], a[2], a[3]}};
  const emulated_cuda::Lanes lanes =
      emulated_cuda::block().meet(full_warp, "wgmma of registers", words).lanes;
  const int lane = thread_number() % 32;
  float rows[2][16];
  for (int k = 0; k < 16; ++k) {
    std::memcpy(&words, lanes[lane / 4 * 4 + k % 8 / 2], sizeof(words));
    for (int i = 0; i < 2; ++i) {
      rows[i][k] = value(static_cast<std::uint16_t>(words.word[k / 8 * 2 + i] >> (k % 2 * 16)));
    }
  }
  const GroupOperand apart = b >> 48, start = b & 0xffffffffffffU;
  for (int n = 0; n < Octets; ++n) {
    for (int e = 0; e < 4; ++e) {
      const int column = n * 8 + lane % 4 * 2 + e % 2;
      float sum = 0;
      for (int k = 0; k < 16; ++k) {
        constexpr int piece = RowBytes / 2;
        const GroupOperand at = start + static_cast<GroupOperand>(column / piece) * apart;
        sum += rows[e / 2][k] * value(group_value<RowBytes>(at, k, column % piece));
      }
      c[n][e] = adds ? c[n][e] + sum : sum;
    }
  }
}

}  // namespace emulated

template <int RowBytes>
void multiply_group_bf16(float (&c)[7][4], GroupOperand a, GroupOperand b) {
  emulated::multiply_group<RowBytes>(c, a, b, [](std::uint16_t v) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
  });
}
template <int RowBytes>
void multiply_group_fp16(float (&c)[7][4], GroupOperand a, GroupOperand b) {
  emulated::multiply_group<RowBytes>(
      c, a, b, [](std::uint16_t v) { return emulated_cuda::half_from_table(v); });
}

template <int RowBytes>
void multiply_square_bf16(float (&c)[8][4], GroupOperand a, GroupOperand b) {
  emulated::multiply_square<RowBytes>(c, a, b, [](std::uint16_t v) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
  });
}
template <int RowBytes, int Octets>
void multiply_held_bf16(float (&c)[Octets][4], const std::uint32_t (&a)[4], GroupOperand b,
                        bool adds) {
  emulated::multiply_held<RowBytes>(c, a, b, adds, [](std::uint16_t v) {
    return std::bit_cast<float>(static_cast<std::uint32_t>(v) << 16);
  });
}
template <int RowBytes>
void multiply_square_fp16(float (&c)[8][4], GroupOperand a, GroupOperand b) {
  emulated::multiply_square<RowBytes>(
      c, a, b, [](std::uint16_t v) { return emulated_cuda::half_from_table(v); });
}
template <int RowBytes, int Octets>
void multiply_held_fp16(float (&c)[Octets][4], const std::uint32_t (&a)[4], GroupOperand b,
                        bool adds) {
  emulated::multiply_held<RowBytes>(
      c, a, b, adds, [](std::uint16_t v) { return emulated_cuda::half_from_table(v); });
}
/// How far the pieces are apart is in the upper 16 bits.
template <int Apart>
GroupOperand wide_operand(const void* shared) {
  return group_operand(shared) | static_cast<GroupOperand>(Apart / 16) << 48;
}
template <class Registers>
void hold(Registers&) {}
template <int>
void keep_apart(float (&)[4]) {}
inline const unsigned char* as_one(const unsigned char* sum) { return sum; }
inline void clear_in_place(float (&v)[4]) { v[0] = v[1] = v[2] = v[3] = 0; }
template <int>
void take_registers() {}
template <int>
void leave_registers() {}

}  // namespace pvm::inline v0::detail
