// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

// Tests the emulated device itself: what its instructions compute, and that it exposes missing
// synchronisation.

#include <array>
#include <cmath>
#include <cstdint>
#include <vector>

#include <cuda_bf16.h>

#include <pvm/engine/cuda/device/launch.hpp>
#include <pvm/engine/cuda/instructions/all.cuh>

#include "../catch.hpp"

namespace {

using namespace pvm::detail;

/// Runs a kernel on one thread block and returns what it wrote to its first argument.
template <class... Parameters, class... Values>
std::vector<float> run(void (*kernel)(float*, Parameters...), int threads, std::size_t results,
                       const Values&... values) {
  float* out = nullptr;
  REQUIRE(cudaMalloc(&out, results * sizeof(float)) == cudaSuccess);
  REQUIRE(launch(kernel, {dim3(1), threads, 20 << 10, nullptr}, out, values...) == cudaSuccess);
  std::vector<float> all(results);
  REQUIRE(cudaMemcpy(all.data(), out, results * sizeof(float), cudaMemcpyDeviceToHost) ==
          cudaSuccess);
  REQUIRE(cudaFree(out) == cudaSuccess);
  return all;
}

__global__ void copies(float* out, const float* from, bool wait) {
  auto* shared = dynamic_shared<float>();
  copy_async(shared + threadIdx.x * 4, from + threadIdx.x * 4);
  copies_commit();
  if (wait) copies_wait<0>();
  __syncthreads();
  for (int k = 0; k < 4; ++k) out[threadIdx.x * 4 + k] = shared[(63 - threadIdx.x) * 4 + k];
}

__global__ void bulk(float* out, const float* from) {
  auto* shared = dynamic_shared<float>();
  __shared__ MBarrier barrier;
  if (threadIdx.x == 0) mbarrier_init(&barrier, 1);
  __syncthreads();
  for (unsigned round = 0; round < 3; ++round) {
    if (threadIdx.x == 0) {
      mbarrier_expect(&barrier, 256);
      copy_bulk_async(shared, from + round * 64, 256, &barrier);
    }
    mbarrier_wait(&barrier, round % 2);
    out[round * 64 + threadIdx.x] = shared[threadIdx.x];
    __syncthreads();
  }
}

__global__ void bulk_stores(float* out, bool wait) {
  auto* shared = dynamic_shared<float>();
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  fence_async_proxy();
  __syncthreads();
  if (threadIdx.x != 0) return;
  store_bulk_async(out, shared, 256, evict_first());
  if (wait) stores_wait_read();
}

/// Each thread stores a value and reads that of a thread of another warp, which may not be there
/// yet without the barrier.
__global__ void turns(float* out, bool barrier) {
  auto* shared = dynamic_shared<float>();
  shared[threadIdx.x] = static_cast<float>(threadIdx.x);
  if (barrier) __syncthreads();
  out[threadIdx.x] = shared[127 - threadIdx.x];
}

__global__ void sums(float* out) {
  const auto mine = static_cast<int>(threadIdx.x);
  float v = static_cast<float>(mine);
  for (int other = 16; other > 0; other /= 2) v += __shfl_xor_sync(~0U, v, other);
  const unsigned odd = __ballot_sync(~0U, mine % 2);
  const int before = __shfl_up_sync(~0U, mine, 1);
  const int total = __reduce_add_sync(~0U, mine);
  out[mine] = v + static_cast<float>(__popc(odd) + before * 1000 + total * 100000);
}

__global__ void elections(float* out) {
  for (int i = 0; i < 2; ++i) out[threadIdx.x * 2 + i] = is_elected() ? 1.0F : 0.0F;
}

/// 16 x 16 by 16 x 8 in bf16, with operands from shared memory through ldmatrix.
__global__ void product(float* out) {
  auto* a = dynamic_shared<std::uint16_t>();  // [16][16]
  std::uint16_t* b = a + 256;                 // [n 8][k 16]
  const auto lane = static_cast<int>(threadIdx.x);
  const auto bits = [](int v) {
    return __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(v)));
  };
  for (int i = lane; i < 256; i += 32) a[i] = bits(i % 13 - i / 16);
  for (int i = lane; i < 128; i += 32) b[i] = bits(i % 7 + i / 16);
  __syncwarp();
  std::uint32_t x[4], y0, y1;
  load_matrices(x, a + lane % 16 * 16 + lane / 16 * 8);
  load_two_matrices(y0, y1, b + lane % 8 * 16 + lane / 8 % 2 * 8);
  float c[4] = {};
  multiply_16bit<pvm::bf16>(c, x, y0, y1);
  for (int i = 0; i < 4; ++i) {
    out[(lane / 4 + i / 2 * 8) * 8 + lane % 4 * 2 + i % 2] = c[i];
  }
}

/// Four 8 x 8 matrices, loaded by ldmatrix and stored elsewhere by stmatrix.
__global__ void moved_matrices(float* out) {
  auto* from = dynamic_shared<std::uint16_t>();  // [16][16]
  std::uint16_t* to = from + 256;
  const auto lane = static_cast<int>(threadIdx.x);
  for (int i = lane; i < 256; i += 32) from[i] = static_cast<std::uint16_t>(i);
  __syncwarp();
  const int row = lane % 16 * 16 + lane / 16 * 8;
  std::uint32_t r[4];
  load_matrices(r, from + row);
  store_matrices(to + row, r);
  __syncwarp();
  for (int i = lane; i < 256; i += 32) out[i] = static_cast<float>(to[i]);
}

int left(int row, int column) { return (row * 3 + column * 5) % 7 - row % 3; }
int right(int row, int column) { return (row + column * 2) % 5 - column % 4; }
/// Stores a value into a wgmma operand in shared memory with swizzled rows of 128 or 64 bytes.
template <int RowBytes = 128>
void put_operand(unsigned char* to, int row, int column, int v) {
  const int twist = RowBytes == 128 ? row % 8 : row / 2 % 4;
  const int at = row * RowBytes + ((column / 8) ^ twist) * 16 + column % 8 * 2;
  *reinterpret_cast<std::uint16_t*>(to + at) =
      __bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(v)));
}
/// 64 x 64 by 64 x 56 in bf16, by wgmma (four warps).
__global__ void group_product(float* out) {
  unsigned char* a = aligned_dynamic_shared();
  unsigned char* b = a + 64 * 128;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 64 * 64; i += 128) {
    put_operand(a, i / 64, i % 64, left(i / 64, i % 64));
    put_operand(b, i / 64, i % 64, right(i / 64, i % 64));
  }
  fence_async_proxy();
  __syncthreads();
  float c[7][4] = {};
  const GroupOperand x = group_operand(a), y = group_operand(b);
  products_begin();
  for (unsigned k = 0; k < 4; ++k) {
    multiply_group<pvm::bf16, 128>(c, x + k * 2, y + k * 2);
  }
  products_end();
  const int row = thread / 32 * 16 + thread % 32 / 4;
  for (int n = 0; n < 7; ++n) {
    for (int i = 0; i < 4; ++i) {
      out[(row + i / 2 * 8) * 56 + n * 8 + thread % 4 * 2 + i % 2] = c[n][i];
    }
  }
}

/// 64 x 16 by 16 x 64 by wgmma; the rows of both operands run along the depth.
template <int RowBytes>
__global__ void square_product(float* out) {
  unsigned char* a = aligned_dynamic_shared();
  unsigned char* b = a + 64 * RowBytes;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 64 * 16; i += 128) {
    put_operand<RowBytes>(a, i / 16, i % 16, left(i / 16, i % 16));
    put_operand<RowBytes>(b, i / 16, i % 16, right(i / 16, i % 16));
  }
  __syncthreads();
  float c[8][4] = {};
  multiply_square<pvm::bf16, RowBytes>(c, group_operand(a), group_operand(b));
  const int row = thread / 32 * 16 + thread % 32 / 4;
  for (int n = 0; n < 8; ++n) {
    for (int i = 0; i < 4; ++i) {
      out[(row + i / 2 * 8) * 64 + n * 8 + thread % 4 * 2 + i % 2] = c[n][i];
    }
  }
}
/// 64 x 16 in registers by 16 x 32 (up to 128) in shared memory, which consists of pieces of 16
/// rows. The result is added to `before` or replaces it.
template <int RowBytes, int Columns>
__global__ void held_product(float* out, float before, bool adds) {
  unsigned char* b = aligned_dynamic_shared();
  constexpr int apart = 16 * RowBytes, piece = RowBytes / 2;
  const auto thread = static_cast<int>(threadIdx.x);
  for (int i = thread; i < 16 * Columns; i += 128) {
    const int row = i / Columns, column = i % Columns;
    put_operand<RowBytes>(b + column / piece * apart, row, column % piece, right(row, column));
  }
  __syncthreads();
  const int row = thread / 32 * 16 + thread % 32 / 4;
  std::uint32_t a[4];
  for (int i = 0; i < 4; ++i) {
    std::uint32_t word = 0;
    for (int k = 0; k < 2; ++k) {
      const int v = left(row + i % 2 * 8, i / 2 * 8 + thread % 4 * 2 + k);
      word |= std::uint32_t{__bfloat16_as_ushort(__float2bfloat16_rn(static_cast<float>(v)))}
              << (16 * k);
    }
    a[i] = word;
  }
  float c[Columns / 8][4];
  for (int i = 0; i < Columns / 2; ++i) c[i / 4][i % 4] = before;
  multiply_registers<pvm::bf16, RowBytes>(c, a, wide_operand<apart>(b), adds);
  for (int n = 0; n < Columns / 8; ++n) {
    for (int i = 0; i < 4; ++i) {
      out[(row + i / 2 * 8) * Columns + n * 8 + thread % 4 * 2 + i % 2] = c[n][i];
    }
  }
}

struct Numbers {
  float* at = nullptr;
  explicit Numbers(int count) {
    std::vector<float> values;
    for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(i));
    REQUIRE(cudaMalloc(&at, values.size() * sizeof(float)) == cudaSuccess);
    REQUIRE(cudaMemcpy(at, values.data(), values.size() * sizeof(float), cudaMemcpyHostToDevice) ==
            cudaSuccess);
  }
  ~Numbers() { static_cast<void>(cudaFree(at)); }
};

}  // namespace

TEST_CASE("Asynchronous copies are there after the wait, and a forgotten wait shows") {
  const Numbers numbers(256);
  const auto good = run(copies, 64, 256, numbers.at, true);
  for (std::size_t i = 0; i < 256; ++i) {
    CHECK(good[i] == static_cast<float>((63 - i / 4) * 4 + i % 4));
  }
  CHECK(run(copies, 64, 256, numbers.at, false) != good);
}

TEST_CASE("Bulk copies are there when their barrier opens") {
  const Numbers numbers(192);
  const auto out = run(bulk, 64, 192, numbers.at);
  for (std::size_t i = 0; i < 192; ++i) CHECK(out[i] == static_cast<float>(i));
}

TEST_CASE("Bulk copies to global memory are made at the wait") {
  const auto good = run(bulk_stores, 64, 64, true);
  for (std::size_t i = 0; i < 64; ++i) CHECK(good[i] == static_cast<float>(i));
  CHECK(run(bulk_stores, 64, 64, false) != good);
}

TEST_CASE("A forgotten barrier shows") {
  const auto good = run(turns, 128, 128, true);
  for (std::size_t i = 0; i < 128; ++i) CHECK(good[i] == static_cast<float>(127 - i));
  CHECK(run(turns, 128, 128, false) != good);
}

TEST_CASE("Lanes of a warp exchange what they have") {
  const auto out = run(sums, 32, 32);
  for (int i = 0; i < 32; ++i) {
    const int before = i == 0 ? 0 : i - 1;
    CHECK(out[static_cast<std::size_t>(i)] ==
          static_cast<float>(496 + 16 + before * 1000 + 496 * 100000));
  }
}

TEST_CASE("One lane of every warp is elected, always the same") {
  const auto out = run(elections, 64, 128);
  for (std::size_t warp = 0; warp < 2; ++warp) {
    float elected = 0, again = 0;
    for (std::size_t i = 0; i < 32; ++i) {
      const float* lane = out.data() + (warp * 32 + i) * 2;
      elected += lane[0];
      again += lane[0] * lane[1];
    }
    CHECK(elected == 1);
    CHECK(again == 1);
  }
}

TEST_CASE("A product across a warp is that of its matrices") {
  const auto out = run(product, 32, 128);
  for (int m = 0; m < 16; ++m) {
    for (int n = 0; n < 8; ++n) {
      int sum = 0;
      for (int k = 0; k < 16; ++k) sum += ((m * 16 + k) % 13 - m) * ((n * 16 + k) % 7 + n);
      CHECK(out[static_cast<std::size_t>(m * 8 + n)] == static_cast<float>(sum));
    }
  }
}

TEST_CASE("Matrices across a warp go back to where they came from") {
  const auto out = run(moved_matrices, 32, 256);
  for (std::size_t i = 0; i < 256; ++i) CHECK(out[i] == static_cast<float>(i));
}

TEST_CASE("A product of four warps is that of its matrices") {
  const auto out = run(group_product, 128, 64 * 56);
  for (int m = 0; m < 64; ++m) {
    for (int n = 0; n < 56; ++n) {
      int sum = 0;
      for (int k = 0; k < 64; ++k) sum += left(m, k) * right(n, k);
      CHECK(out[static_cast<std::size_t>(m * 56 + n)] == static_cast<float>(sum));
    }
  }
}

/// The expected product, over a depth of 16, of the matrices that the kernels create: those of
/// `square_product` or those of `held_product`.
float exact_product(int m, int n, bool held) {
  int sum = 0;
  for (int k = 0; k < 16; ++k) sum += left(m, k) * (held ? right(k, n) : right(n, k));
  return static_cast<float>(sum);
}
template <int RowBytes>
void check_square_product() {
  const auto square = run(square_product<RowBytes>, 128, 64 * 64);
  for (std::size_t i = 0; i < square.size(); ++i) {
    CHECK(square[i] == exact_product(static_cast<int>(i / 64), static_cast<int>(i % 64), false));
  }
}
template <int RowBytes, int Columns>
void check_held_product() {
  const auto added = run(held_product<RowBytes, Columns>, 128, 64 * Columns, 3.0F, true);
  const auto written = run(held_product<RowBytes, Columns>, 128, 64 * Columns, 3.0F, false);
  for (std::size_t i = 0; i < added.size(); ++i) {
    const float sum =
        exact_product(static_cast<int>(i / Columns), static_cast<int>(i % Columns), true);
    CHECK(added[i] == sum + 3);
    CHECK(written[i] == sum);
  }
}

TEST_CASE("Products of four warps with 32 to 128 columns are those of their matrices") {
  check_square_product<64>();
  check_square_product<128>();
  check_held_product<64, 32>();
  check_held_product<128, 64>();
  check_held_product<64, 96>();
  check_held_product<128, 128>();
}

TEST_CASE("Impossible launches and copies are refused") {
  CHECK(launch(turns, {dim3(1), 2048, 0, nullptr}, static_cast<float*>(nullptr), true) ==
        cudaErrorInvalidConfiguration);
  CHECK(launch(turns, {dim3(1), 32, 1 << 20, nullptr}, static_cast<float*>(nullptr), true) ==
        cudaErrorInvalidValue);
  float host = 0;
  CHECK(cudaMemcpy(&host, &host, sizeof(host), cudaMemcpyHostToDevice) == cudaErrorInvalidValue);
  void* much = nullptr;
  CHECK(cudaMalloc(&much, std::size_t{1} << 60) == cudaErrorMemoryAllocation);
  static_cast<void>(cudaGetLastError());
}
