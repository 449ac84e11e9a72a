// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The second kernel of a step: every weight moves along its rank-B gradient
///     g[m][n] = sum_b rows_m[m][b] rows_n[n][b]      (W0: x(t-2) d0(t); W1: d1(t) r(t-2))
/// in fp32, and its working copies for the next step's products are written at the same time.
///
/// Either the learning rule keeps its floats beside every weight; or, for a momentum that dies out
/// soon, the last T gradients are listed (unit/deferred.hpp, folded every step): the master Z gains
/// each gradient with its final share, W = Z + sum_j w_j g(t-j) only lives in the working copy, and
/// the array of momenta, half of all the bytes, is gone.

#include <cstdint>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/check.hpp>
#include <pvm/unit/learning_rule.hpp>

namespace pvm::inline v0::detail::batch {

/// What the update kernel is to do with the gradients.
enum class Task {
  learn,    ///< the step's update
  publish,  ///< only write all working copies, of the weights as they are
  read,     ///< only write W to `copy`
};

/// Rows of a stage: 128 of m, 56 of n, `Bytes` of each.
template <int Bytes>
struct UpdateShape {
  static constexpr int stride = Bytes + 16;
  static constexpr int rows = tile_rows + panel_width;
  static constexpr int chunks = Bytes / 16;
  static constexpr int stage_bytes = rows * stride;
  static constexpr int stages = 2;
  static constexpr int shared_bytes = stages * stage_bytes;
};

/// A warp's 16 x 56 part of a panel, in the layout of accumulators: lane l holds rows l/4 and
/// l/4 + 8, columns 2(l%4) and the next, of every 8.
using Fragment = float[panel_tiles][4];

/// Calls f(value of fragment, float of memory) for all that exists of the 16 x n at `memory`.
template <bool Store, class Panel_>
__device__ __forceinline__ void move_fragment(Fragment& w, float* memory, const Panel_& p) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const int full = static_cast<int>(p.n) / 8;
  const int rest = static_cast<int>(p.n) % 8;
#pragma unroll
  for (int n = 0; n < panel_tiles; ++n) {
    if (n < full) {
      auto* at = reinterpret_cast<float4*>(memory) + n * 32 + lane;
      if constexpr (Store) {
        __stcs(at, make_float4(w[n][0], w[n][1], w[n][2], w[n][3]));
      } else {
        const float4 v = __ldcs(at);
        w[n][0] = v.x;
        w[n][1] = v.y;
        w[n][2] = v.z;
        w[n][3] = v.w;
      }
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int column = (lane & 3) * 2 + (k & 1);
        float* at = memory + full * 128 + ((lane >> 2) + (k >> 1) * 8) * rest + column;
        const bool exists = n == full && column < rest;
        if constexpr (Store) {
          if (exists) __stcs(at, w[n][k]);
        } else {
          w[n][k] = exists ? __ldcs(at) : 0.0F;
        }
      }
    }
  }
}

/// The working copy for products that contract over m: block m / M::block, its half of 16-bit
/// operands transposed across the warp.
template <class M>
__device__ __forceinline__ void store_work(std::uint32_t* work, const Fragment& w, int m16) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
  if constexpr (sizeof(typename M::Word) == 2) {
    std::uint32_t r[14];
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
      r[2 * n] = transpose(M::pair(w[n][0], w[n][1]));
      r[2 * n + 1] = transpose(M::pair(w[n][2], w[n][3]));
    }
    std::uint32_t* at = work + static_cast<std::size_t>(m16 / 2) * block_words + lane * 4;
    if (m16 % 2 == 0) {
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        *reinterpret_cast<uint4*>(at + i * 128) =
            make_uint4(r[4 * i], r[4 * i + 1], r[4 * i + 2], r[4 * i + 3]);
      }
      *reinterpret_cast<uint2*>(at + 3 * 128) = make_uint2(r[12], r[13]);
    } else {
      *reinterpret_cast<uint2*>(at + 3 * 128 + 2) = make_uint2(r[0], r[1]);
#pragma unroll
      for (int i = 0; i < 3; ++i) {
        *reinterpret_cast<uint4*>(at + (4 + i) * 128) =
            make_uint4(r[4 * i + 2], r[4 * i + 3], r[4 * i + 4], r[4 * i + 5]);
      }
    }
  } else {
    std::uint32_t* at = work + static_cast<std::size_t>(m16) * block_words;
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int depth = lane >> 2;  // of 8, in half k / 2
        const int column = (lane & 3) * 2 + (k & 1);
        const int e = ((k >> 1) * 7 + n) * 2 + depth / 4;
        at[(e / 4) * 128 + (column * 4 + depth % 4) * 4 + e % 4] = M::operand(w[n][k]);
      }
    }
  }
}

/// The working copy of W1 for y = W1 r, that contracts over n: groups of 56 m, n padded to 64.
template <class M>
__device__ __forceinline__ void store_work_y(std::uint32_t* work, const Fragment& w, int m16,
                                             std::uint32_t group_blocks) {
  const int lane = static_cast<int>(threadIdx.x) & 31;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int eight = m16 * 2 + half;  // 8 outputs
    const int tile = eight % panel_tiles;
    std::uint32_t* group =
        work + static_cast<std::size_t>(eight / panel_tiles) * group_blocks * block_words;
    if constexpr (sizeof(typename M::Word) == 2) {
#pragma unroll
      for (int n = 0; n < 8; n += 2) {
        const std::uint32_t low = M::pair(w[n][2 * half], w[n][2 * half + 1]);
        std::uint32_t high = 0;
        if (n + 1 < panel_tiles) high = M::pair(w[n + 1][2 * half], w[n + 1][2 * half + 1]);
        const int e = ((n / 2 % 2) * 7 + tile) * 2;
        *reinterpret_cast<uint2*>(group + (n / 4) * block_words + (e / 4) * 128 + lane * 4 +
                                  e % 4) = make_uint2(low, high);
      }
    } else {
#pragma unroll
      for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const int depth = (lane & 3) * 2 + k;  // of 8
          const int e = ((n % 2) * 7 + tile) * 2 + depth / 4;
          group[(n / 2) * block_words + (e / 4) * 128 + ((lane >> 2) * 4 + depth % 4) * 4 + e % 4] =
              M::operand(w[n][2 * half + k]);
        }
      }
    }
  }
}

/// sums += rows_m[16] rows_n[56] over `Bytes` of sequences.
template <class M, int Bytes>
__device__ __forceinline__ void multiply_stage(Fragment& sums, const unsigned char* rows_m,
                                               const unsigned char* rows_n) {
  constexpr int stride = UpdateShape<Bytes>::stride;
  const int lane = static_cast<int>(threadIdx.x) & 31;
  const unsigned char* m = rows_m + (lane & 15) * stride + (lane >> 4) * 16;
  const unsigned char* n = rows_n + ((lane & 7) + (lane >> 4) * 8) * stride + ((lane >> 3) & 1) * 16;
#pragma unroll
  for (int k = 0; k < Bytes; k += 32) {
    std::uint32_t a[4];
    load_matrices(a, m + k);
#pragma unroll
    for (int i = 0; i < panel_tiles - 1; i += 2) {
      std::uint32_t b[4];
      load_matrices(b, n + i * 8 * stride + k);
      M::multiply(sums[i], a, b[0], b[1]);
      M::multiply(sums[i + 1], a, b[2], b[3]);
    }
    std::uint32_t b0, b1;
    load_two_matrices(b0, b1, rows_n + (48 + (lane & 7)) * stride + ((lane >> 3) & 1) * 16 + k);
    M::multiply(sums[panel_tiles - 1], a, b0, b1);
  }
}

struct UpdateState {
  const unsigned char* base[most_terms][static_cast<int>(Stream::count)];
  std::uint32_t words[tile_rows + panel_width];
  Cursor cursor;
};

/// Brings sequences `chunk` of the listed gradient `term` into shared memory.
template <class M, int Bytes>
__device__ __forceinline__ void bring_rows(const UpdateState& state, std::size_t row_bytes,
                                           int term, int chunk, unsigned char* to) {
  using S = UpdateShape<Bytes>;
  for (int i = static_cast<int>(threadIdx.x); i < S::rows * S::chunks; i += threads) {
    const int row = i / S::chunks;
    const int at = i % S::chunks;
    const std::uint32_t word = state.words[row];
    copy_async(to + row * S::stride + at * 16,
               state.base[term][word >> stream_shift] + (word & row_mask) * row_bytes +
                   static_cast<std::size_t>(chunk) * Bytes + at * 16);
  }
  copies_commit();
}

__device__ __forceinline__ void clear(Fragment& f) {
#pragma unroll
  for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) f[n][k] = 0.0F;
  }
}
__device__ __forceinline__ void add(Fragment& to, float factor, const Fragment& f) {
#pragma unroll
  for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
    for (int k = 0; k < 4; ++k) to[n][k] += factor * f[n][k];
  }
}

/// The gradients of the tile, term by term: what(term, gradient).
template <class M, int Bytes, class What>
__device__ __forceinline__ void each_gradient(const Arguments& a, const UpdateState& state,
                                              int terms, unsigned char* shared, What&& what) {
  using S = UpdateShape<Bytes>;
  const std::size_t row_bytes = static_cast<std::size_t>(a.shape.padded) * sizeof(typename M::Word);
  const int chunks = static_cast<int>(row_bytes) / Bytes;
  const int count = terms * chunks;
  const int warp = static_cast<int>(threadIdx.x) >> 5;
  bring_rows<M, Bytes>(state, row_bytes, 0, 0, shared);
  int stage = 0;
  for (int term = 0; term < terms; ++term) {
    Fragment sums;
    clear(sums);
    for (int chunk = 0; chunk < chunks; ++chunk, ++stage) {
      copies_wait<0>();
      __syncthreads();
      if (stage + 1 < count) {
        bring_rows<M, Bytes>(state, row_bytes, (stage + 1) / chunks, (stage + 1) % chunks,
                             shared + (stage + 1) % 2 * S::stage_bytes);
      }
      const unsigned char* rows = shared + stage % 2 * S::stage_bytes;
      if constexpr (M::in_parts) {
        Fragment part;
        clear(part);
        multiply_stage<M, Bytes>(part, rows + warp * 16 * S::stride, rows + tile_rows * S::stride);
        add(sums, 1.0F, part);
      } else {
        multiply_stage<M, Bytes>(sums, rows + warp * 16 * S::stride, rows + tile_rows * S::stride);
      }
    }
    what(term, sums);
  }
}

/// Blocks: one for each tile. Where it learns, the cursor goes on to the next step.
template <class M, class Rule, bool Listed, int Bytes>
__global__ void __launch_bounds__(threads, M::in_parts ? 1 : 2)
    update_kernel(const __grid_constant__ Arguments a, Task task) {
  extern __shared__ __align__(16) unsigned char shared[];
  __shared__ UpdateState state;
  const Tile tile = a.tiles[blockIdx.x];
  const Panel p = a.panels[tile.panel];
  const int terms = Listed ? a.shape.terms : 1;
  if (threadIdx.x == 0) state.cursor = *a.second;
  if (threadIdx.x < tile_rows + panel_width) {
    const bool is_m = threadIdx.x < tile_rows;
    const std::uint32_t i = is_m ? tile.first + threadIdx.x : threadIdx.x - tile_rows;
    const bool exists = i < (is_m ? p.m : p.n);
    state.words[threadIdx.x] = exists ? a.rows[(is_m ? p.m_rows : p.n_rows) + i] : zero_row;
  }
  __syncthreads();
  const unsigned long long step = state.cursor.step;
  const float* table = a.now_table;
  if (table == nullptr) {
    table = a.tables + static_cast<std::size_t>(ring_slot(step, a.shape.frames, 0)) *
                           static_cast<std::size_t>(a.shape.table);
  }
  const bool learns = task != Task::learn || table[0] != 0.0F;
  if (task == Task::learn && blockIdx.x == 0 && threadIdx.x == 0) {
    const std::uint32_t now = state.cursor.now;
    *a.first = {step + 1, learns ? 1 - now : now, now, 1, 0};
  }
  if (!learns) return;
  for (int i = static_cast<int>(threadIdx.x); i < terms * static_cast<int>(Stream::count);
       i += threads) {
    const int term = i / static_cast<int>(Stream::count);
    const int stream = i % static_cast<int>(Stream::count);
    state.base[term][stream] =
        stream_base<M>(a, static_cast<Stream>(stream), step, 2 + term, term);
  }
  __syncthreads();

  const int m16 = static_cast<int>(tile.first) / 16 + (static_cast<int>(threadIdx.x) >> 5);
  const bool exists = m16 * 16 < static_cast<int>(p.m);
  const std::size_t at = p.master + static_cast<std::size_t>(m16) * 16 * p.n;
  Fragment w;
  if (exists) {
    move_fragment<false>(w, a.master + at, p);
  } else {
    clear(w);
  }
  const float* rates = table + 4 + p.layer * (Listed ? 2 * terms : 2);
  if constexpr (Listed) {
    Fragment pending;  // sum_j w_j g(t-j)
    clear(pending);
    each_gradient<M, Bytes>(a, state, terms, shared, [&](int term, const Fragment& g) {
      if (task == Task::learn) add(w, rates[2 * term], g);
      add(pending, rates[2 * term + 1], g);
    });
    if (!exists) return;
    if (task == Task::learn) move_fragment<true>(w, a.master + at, p);
    add(w, 1.0F, pending);
  } else if (task == Task::learn) {
    Fragment old[Rule::state > 0 ? Rule::state : 1];
#pragma unroll
    for (int k = 0; k < Rule::state; ++k) {
      if (exists) move_fragment<false>(old[k], a.states + k * a.weights + at, p);
    }
    each_gradient<M, Bytes>(a, state, 1, shared, [&](int, const Fragment& g) {
      const RuleStep rule{rates[0], rates[1], step};
#pragma unroll
      for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
        for (int k = 0; k < 4; ++k) {
          float s[Rule::state > 0 ? Rule::state : 1];
#pragma unroll
          for (int i = 0; i < Rule::state; ++i) s[i] = old[i][n][k];
          w[n][k] = Rule::apply(w[n][k], s, g[n][k], rule);
#pragma unroll
          for (int i = 0; i < Rule::state; ++i) old[i][n][k] = s[i];
        }
      }
    });
    if (!exists) return;
    move_fragment<true>(w, a.master + at, p);
#pragma unroll
    for (int k = 0; k < Rule::state; ++k) move_fragment<true>(old[k], a.states + k * a.weights + at, p);
    // A rule may move what does not exist (its gradient is 0): the working copy must not.
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int lane = static_cast<int>(threadIdx.x) & 31;
        const bool real =
            n * 8 + (lane & 3) * 2 + (k & 1) < static_cast<int>(p.n) &&
            m16 * 16 + (lane >> 2) + (k >> 1) * 8 < static_cast<int>(p.m);
        if (!real) w[n][k] = 0.0F;
      }
    }
  } else if (!exists) {
    return;
  }
  if (task == Task::read) {
    move_fragment<true>(w, a.copy + at, p);
    return;
  }
  const int copies = task == Task::publish && p.flips != 0 ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    const std::uint32_t version = task == Task::publish ? copy : 1 - state.cursor.now;
    std::uint32_t* work = a.work + (p.flips != 0 ? version * a.flip : 0);
    if (p.work != Panel::none) {
      store_work<M>(work + static_cast<std::size_t>(p.work) * block_words, w, m16);
    }
    if (p.work_y != Panel::none) {
      store_work_y<M>(work + static_cast<std::size_t>(p.work_y) * block_words, w, m16, p.group);
    }
  }
}

/// Launches `update_kernel` for rows of a length that is known at run time.
template <class M, class Rule>
struct UpdateLauncher {
  int bytes;    ///< of a row in a stage: 32, 64 or 128
  bool listed;

  template <class What>
  void for_kernel(What&& what) const {
    const auto with = [&]<int Bytes>() {
      if constexpr (std::is_same_v<Rule, Momentum>) {
        if (listed) return what(update_kernel<M, Rule, true, Bytes>, UpdateShape<Bytes>::shared_bytes);
      }
      what(update_kernel<M, Rule, false, Bytes>, UpdateShape<Bytes>::shared_bytes);
    };
    switch (bytes) {
      case 32: with.template operator()<32>(); break;
      case 64: with.template operator()<64>(); break;
      default: with.template operator()<128>(); break;
    }
  }
  /// Once, before the first launch.
  void prepare() const {
    for_kernel([](auto* kernel, int shared) {
      cuda_check(
          cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared),
          "preparing the update kernel");
    });
  }
  void operator()(const Arguments& a, unsigned int tiles, Task task, cudaStream_t stream) const {
    for_kernel([&](auto* kernel, int shared) {
      kernel<<<tiles, threads, shared, stream>>>(a, task);
      cuda_check(cudaGetLastError(), "launching the update kernel");
    });
  }
};

}  // namespace pvm::inline v0::detail::batch
