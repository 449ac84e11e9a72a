// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The second kernel of a swept step of up to 32 sequences, a short one: the sums of parts that
/// the sweep left become h, c(h) and d0, which the next sweep needs whole.

#include <cstdint>

#include <pvm/engine/cuda/batch/errors.cuh>
#include <pvm/engine/cuda/check.hpp>
#include <pvm/engine/cuda/launch.hpp>

namespace pvm::inline v0::detail::batch {

/// A thread gathers four sequences of a row.
template <int Bp>
struct GatherShape {
  static constexpr int quads = Bp / 4;                 ///< of a row
  static constexpr int shares = SweepWarps<Bp>::deep;  ///< of a part
  /// Few sequences come in many shares and are few threads: these have registers to ask for all.
  static constexpr int at_once = shares - 1;
  static constexpr int blocks = Bp == 16 ? 4 : 6;  ///< on a multiprocessor
};

/// Four sequences of a row of a panel, the panel's `quad`-th, in the step that `now` says.
template <class M, int Bp>
class GatheredQuad {
  using G = GatherShape<Bp>;

 public:
  __device__ GatheredQuad(const Arguments& a, const Cursor& now, const PanelSums& panel,
                          unsigned quad)
      : a_(a),
        now_(now),
        panel_(panel),
        quad_(quad),
        from_(reinterpret_cast<const float4*>(sweep_part<Bp>(a, panel.part)) + quad) {}

  /// h and c(h), or d0.
  __device__ void publish() const {
    float4 sum = __ldcg(from_);
    const std::size_t row = panel_.out + quad_ / G::quads;
    const std::size_t sequence = quad_ % G::quads * 4;
    if (panel_.gradient != 0) {
      const KeptQuad<M> h = hidden_before<M>(a_, now_, row, sequence);
      add_more(sum);
      publish_gradient<M>(a_, now_, row, sequence, h, {sum.x, sum.y, sum.z, sum.w});
    } else {
      add_more(sum);
      batch::publish<M>(a_, now_.hidden, row, sequence, {sum.x, sum.y, sum.z, sum.w});
    }
  }

 private:
  /// What comes behind the first share of the first part.
  __device__ void add_more(float4& sum) const {
    constexpr int share_quads = panel_width * G::quads;
    const int shares = static_cast<int>(panel_.parts) * G::shares;
#pragma unroll G::at_once
    for (int share = 1; share < shares; ++share) {
      const float4 more = __ldcg(from_ + share * share_quads);
      sum.x += more.x;
      sum.y += more.y;
      sum.z += more.z;
      sum.w += more.w;
    }
  }

  const Arguments& a_;
  const Cursor& now_;
  const PanelSums& panel_;
  unsigned quad_;
  const float4* from_;
};

/// Leaves what the next sweep begins with; by the threads of one block.
template <class M>
__device__ __forceinline__ void begin_next_step(const Arguments& a, const Cursor& now) {
  const auto i = static_cast<int>(threadIdx.x);
  const Cursor next = next_step(a.shape, now, false);
  if (i == 0) a.first->cursor = next;
  if (i < start_places) a.first->places[i] = start_place<M>(a, next, i);
}

/// The cursor goes on to the next step.
template <class M, int Bp>
__global__ void __launch_bounds__(threads, GatherShape<Bp>::blocks)
    gather_kernel(const __grid_constant__ Arguments a) {
  using G = GatherShape<Bp>;
  const auto each = static_cast<unsigned int>(a.sum_rows * G::quads);  // of a panel
  const unsigned int quad = blockIdx.x * threads + threadIdx.x;
  const unsigned int number = quad / each;
  PanelSums panel{};
  if (number < a.sum_count) panel = a.sums[number];
  wait_for_previous_kernel();
  let_next_kernel_start();       // not before: it may read masters at once
  const Cursor now = *a.second;  // asked for before anybody waits for the panel
  if (blockIdx.x == 0) begin_next_step<M>(a, now);
  if (number < a.sum_count) GatheredQuad<M, Bp>(a, now, panel, quad - number * each).publish();
}

/// Launches `gather_kernel` for a batch that is known at run time.
template <class M>
struct GatherLauncher {
  int padded;
  bool early;

  template <class What>
  void for_batch(What&& what) const {
    with_constant<16, 32>(padded, what);
  }
  void operator()(const Arguments& a, cudaStream_t stream) const {
    for_batch([&]<int Bp>() {
      using G = GatherShape<Bp>;
      const auto quads = a.sum_count * static_cast<unsigned int>(a.sum_rows * G::quads);
      const dim3 grid((quads + threads - 1) / threads);
      cuda_check(launch(gather_kernel<M, Bp>, {grid, threads, 0, stream, early}, a),
                 "launching the gather kernel");
    });
  }
};

}  // namespace pvm::inline v0::detail::batch
