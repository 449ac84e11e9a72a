// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a multiprocessor does for its units in a step, piece by piece. Who does which piece, and
/// when, is in resident.cuh, specialised.cuh, streamed.cuh and pipelined.cuh; how a block is
/// multiplied and folded in blocks_16bit.cuh and blocks_fp32.cuh.
///
/// This file is the table of contents: what a multiprocessor knows, and what it can do. The files
/// that are named in it say how.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/batch/device.cuh>
#include <pvm/engine/cuda/batch/precision.cuh>
#include <pvm/engine/cuda/chip/blocks_16bit.cuh>
#include <pvm/engine/cuda/chip/blocks_fp32.cuh>
#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/chip/state.cuh>
#include <pvm/engine/cuda/instructions.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::chip {

/// A lane's piece of a source's inner products. As many lanes as there are pieces have a
/// source's.
struct Products {
  float v[3];
};

/// One multiprocessor: a block of threads with whole units. Every function is inlined.
template <class Precision, int Hidden, Home home>
struct Multiprocessor : Blocks<Precision, Hidden, home> {
  using Base = Blocks<Precision, Hidden, home>;
  using S = Sizes<Precision, Hidden, home>;
  using Words = Split<Precision>;
  using Fast = batch::FastPolynomial<batch::Math<Precision>>;
  using Weights = typename Base::Weights;
  static constexpr int hidden = Hidden;
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::begin_phase, Base::warp,
      Base::lane, Base::floats, Base::area, Base::float_area, Base::now, Base::launch, Base::unit,
      Base::unit_count, Base::past, Base::history_rows, Base::history_row, Base::seen,
      Base::weights_of, Base::folds_of, Base::list_of, Base::age_of, Base::table_place,
      Base::outputs_of;
  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return Base::template list<T>(at);
  }

  // -------------------------------------------------------------- what it knows

  __device__ __forceinline__ float activate(float v) const {
    return a.activation == 2 ? Logistic::value(v) : Fast::value(v);
  }
  /// Which derivative a step takes.
  __device__ __forceinline__ int derivative_kind() const {
    return a.activation == 1 && now().step < 2 ? 0 : a.activation;
  }
  __device__ __forceinline__ static float derive(float v, int kind) {
    if (kind == 0) return Fast::derivative(v);
    return kind == 1 ? PolynomialTrue::derivative(v) : Logistic::derivative(v);
  }
  /// Where a launch begins.
  __device__ __forceinline__ void begin(unsigned long long step) const {
    ChipNow& n = now(0);
    n.step = step;
    n.phase = static_cast<int>(step % static_cast<unsigned>(a.period));
    n.lag = static_cast<int>(step % S::lags);
  }
  /// Of the launch, in shared memory.
  __device__ __forceinline__ const std::uint8_t** frames() const {
    return reinterpret_cast<const std::uint8_t**>(shared + ChipAreas::frames);
  }
  __device__ __forceinline__ std::uint8_t* scored() const {
    return reinterpret_cast<std::uint8_t*>(shared + ChipAreas::scored);
  }
  /// Tables of a unit's rates, by step.
  __device__ __forceinline__ std::uint16_t* rates(int u) const {
    return reinterpret_cast<std::uint16_t*>(area(u) + S::rates);
  }
  /// Whether this step's row of a ring of so many in device memory is still there when the launch
  /// ends: nobody reads such rows before.
  __device__ __forceinline__ bool keeps_row(int rows) const {
    return now().frame + rows >= launch().count;
  }
  /// Outputs of the last two steps, where this multiprocessor has them and where all are.
  __device__ __forceinline__ float& own_output(int i) const { return floats(p.y)[i]; }
  __device__ __forceinline__ float& all_output(int i) const {
    const std::uint32_t o = static_cast<std::uint32_t>(i) % p.out_count;
    const std::uint32_t odd = static_cast<std::uint32_t>(i) / p.out_count;
    const std::uint32_t first = list<ChipTarget>(p.targets)[o / columns].out;
    return a.y[static_cast<std::size_t>(odd) * a.output_row + first + o % columns];
  }
  /// Of the products of the primary sources, or of a patch, by age.
  __device__ __forceinline__ float* primary_sums(int u, unsigned long long step) const {
    return float_area(u) + S::primary + static_cast<unsigned>(step & 1) * sums;
  }
  __device__ __forceinline__ static float4 four(const float* from) {
    return *reinterpret_cast<const float4*>(from);
  }
  /// Whether a step is the first or the last of its launch.
  __device__ __forceinline__ bool first() const { return now().frame == 0; }
  __device__ __forceinline__ bool last() const { return now().frame + 1 == launch().count; }
  /// Calls work(u) for every step-th unit.
  template <class Work>
  __device__ __forceinline__ void each_unit(int first_unit, int step, Work work) const {
#pragma unroll 1
    for (int u = first_unit; u < unit_count(); u += step) work(u);
  }

  // -------------------------------------------------------------- gates, where warps have roles

  /// What one role makes and another waits for. Who waits at a gate does not wait for others who
  /// wait.
  static constexpr int most_gates =
      (ChipAreas::score - ChipAreas::gates) * 4 / static_cast<int>(sizeof(CopyBarrier));
  __device__ __forceinline__ CopyBarrier* gate(int which) const {
    return reinterpret_cast<CopyBarrier*>(shared + ChipAreas::gates) + which;
  }
  /// Roles do not begin a step all at once: there is room for what is known of four.
  __device__ __forceinline__ void next_step() { turn = (turn + 1) & 3; }
  /// A gate opens once a step, when all warps who make what it stands for have said so.
  __device__ __forceinline__ void open_gate(int which) const {
    __syncwarp();
    if (lane() == 0) barrier_arrive(gate(which));
  }
  /// Of a step of this launch.
  __device__ __forceinline__ void pass_gate(int which, int frame) const {
    barrier_wait(gate(which), static_cast<unsigned>(frame) & 1U);
    __syncwarp();
  }

  /// The way through a warp's blocks of W1, unit by unit.
  struct WideWalk {
    typename Base::Rows h{};
    typename Base::Sums sum;
    typename Base::ListSums more;
    bool first = true;  ///< of its unit
  };

  // -------------------------------------------------------------- launch.cuh

  /// Where the launch stands among the staged frames: one thread's work.
  __device__ void begin_launch() const;
  /// What steps need to know of their frames, to shared memory.
  __device__ void load_launch() const;
  /// The past from device memory to shared memory.
  __device__ void load_past() const;
  /// Its parts: what starts as zeros, and the scores; what units did; their outputs; what patches
  /// were.
  __device__ void start_areas() const;
  __device__ void load_histories(unsigned long long t) const;
  __device__ void load_outputs() const;
  __device__ void load_patches(unsigned long long t) const;
  /// Where in a frame a patch begins.
  __device__ __forceinline__ std::uint32_t corner_of(std::uint32_t patch) const {
    const auto across = static_cast<std::uint32_t>(a.side / a.block_size);
    const auto down = static_cast<std::uint32_t>(a.block_size * a.channels);
    return patch / across * down * static_cast<std::uint32_t>(a.side) + patch % across * down;
  }
  /// Number i, the last first, of the steps before step t that are kept.
  __device__ __forceinline__ static unsigned long long step_before(unsigned long long t, int i) {
    return t - 1 - static_cast<unsigned>(i) + 2 * ring;
  }
  /// The rows beside the tiles of this warp's blocks of W0.
  __device__ void load_rests() const;
  /// W1, its last rows, and the listed d1 beside them.
  __device__ void load_wide_weights() const;
  /// Outputs and scores, to device memory.
  __device__ void store_results() const;
  /// Advances the cursor: one thread's work, when all have read it.
  __device__ void end_launch() const;
  /// What follows the current step.
  __device__ void prepare(ChipNow& next) const;
  /// Prepares the next step, and counts that the current one has begun: one thread's work.
  __device__ void prepare_step() const;
  /// Nobody writes over what the slowest may still read: before step t all have begun step t -
  /// ahead. How many have done so is counted here.
  __device__ const unsigned int* slowest_at(unsigned long long t) const;
  __device__ unsigned int ask_slowest(unsigned long long t) const;
  /// `begun` is what has been asked for.
  __device__ void wait_for_slowest(unsigned long long t, unsigned int begun) const;
  __device__ void wait_for_slowest(unsigned long long t) const;

  // -------------------------------------------------------------- gather.cuh

  /// Values of sources of step `step` to x, in the places of even or odd steps; waits for them. The
  /// work of `count` threads, of which this is number `me`.
  __device__ void gather_values(unsigned long long step, bool odd, int me, int count) const;
  /// Where this lane's piece of a source's products is in a row.
  __device__ std::uint32_t products_at(const ChipSlot& slot) const;
  /// Adds a piece that was received, times `w`.
  __device__ static void add_products(Products& sum, uint4 piece, const float* w);
  /// Where in a row of the past this lane finds its piece of a group's, and when what its source
  /// feeds folds.
  __device__ __forceinline__ std::uint32_t source_place(const ChipUnit& my,
                                                        std::uint32_t group) const {
    return shared[my.products + group * 32 + static_cast<unsigned>(lane())];
  }
  /// What this lane has of the primary sources of a unit, from number `from` on: the products that
  /// they sent in step `step`.
  __device__ Products primary_products(int u, unsigned long long step, std::uint32_t from) const;
  /// The sum over the sources; lane i gets that of age i.
  __device__ float over_sources(const Products& sum) const;

  // -------------------------------------------------------------- listed.cuh

  /// The tables of this step's rates, where they are others than those that are there.
  __device__ void open_tables(int u) const;
  /// What the listed gradients add to a unit's W0 x, one warp's work: the sum over ages of T d0(j),
  /// where T is the sum over the blocks that fold together of w(age) x(j-2).x(t).
  __device__ void listed_share(int u) const;
  /// The sum over the rows `what` of step `newest` and of those before it, times the weight of that
  /// age, which lane i has of age i: two values a lane.
  __device__ float2 weigh_rows(std::uint32_t what, int u, unsigned long long newest,
                               float weight) const;
  /// What W1's columns beside the tiles are multiplied by, for blocks by when they last folded: the
  /// last hidden values, 1, and w r(j-2).r(t) of each listed gradient. `sum`: of lanes 16 and more.
  __device__ void list_representation(int u, float sum) const;
  /// The same for y(t - 1), in step t, when others read h(t) already.
  __device__ void list_last_representation(int u) const;

  // -------------------------------------------------------------- patches.cuh

  /// Pixels of a patch that a lane has under way, every 32nd.
  static constexpr int pixels_at_once = 3;
  struct Pixels {
    std::uint32_t v[pixels_at_once];
  };
  /// Asks for pixels from `first` on of what a unit sees in the frame `ahead_by` behind the current
  /// one, if the launch has it.
  __device__ Pixels ask_pixels(int u, int ahead_by, int first) const;
  /// Those in A of the step of that frame, in the past, and in the patch's history.
  __device__ void place_pixels(int u, int ahead_by, int first, const Pixels& pixels) const;
  /// When all of a patch is there, its inner products with the listed past.
  __device__ void finish_patch(int u, int ahead_by) const;
  /// All of these: one warp's work.
  __device__ void read_patch(int u, int ahead_by) const;
  /// The inner product of two patches of which `four_now(i)` and `four_then(i)` are four pixels,
  /// and `now_at(i)` and `then_at(i)` one. Half a warp has every other four; both get the sum.
  /// Explicit, so that all kernels round alike.
  template <class FourNow, class FourThen, class NowAt, class ThenAt>
  __device__ float patch_product(FourNow four_now, FourThen four_then, NowAt now_at,
                                 ThenAt then_at) const;

  // -------------------------------------------------------------- hidden.cuh

  /// h(t) of a unit, sent, and then its inner products: one warp's work.
  __device__ void finish_unit(int u) const;
  /// Inner products of a unit's values in step t with the listed ones: of c(h) to the first sixteen
  /// lanes, of h to the others, each that of an age.
  __device__ float unit_products(int u, unsigned long long t) const;
  /// The sum over a unit's values of a(i) b(i), of which `four_a(i)` are those from i on. Explicit,
  /// so that all kernels round alike.
  template <class FourA, class FourB, class OneA, class OneB>
  __device__ static float inner_product(FourA four_a, FourB four_b, OneA one_a, OneB one_b);
  /// Word i of a unit's values, of which a lane has every 32nd.
  static constexpr int lanes_times = (Hidden + 31) / 32;
  __device__ static std::uint32_t word_of_lanes(const std::uint32_t (&of_lane)[lanes_times], int i);
  /// Sends `pieces` pieces of the words word(i), marked as of step t.
  template <class Word>
  __device__ void send_words(std::uint32_t* to, int pieces, Word word, unsigned long long t) const;
  /// Behind the values of a unit's record, its inner products; lane i has that of age i.
  __device__ void send_products(std::uint32_t* record, float product, unsigned long long t) const;

  // -------------------------------------------------------------- errors.cuh

  /// d1(t), beside W1 too, and the scores, of outputs `from`, `from + step` and so on, up to
  /// `end`. Half a warp has sixteen outputs at a time. What does not change is read once: behind
  /// each store to shared memory the compiler would read it again.
  __device__ void errors(int from, int end, int step) const;
  /// Adds a warp's to its scores.
  __device__ void add_score(float loss, float missed, float moved) const;

  // -------------------------------------------------------------- learn.cuh

  /// In fp32: y(t) of a block whose tiles are in `w`, and what it has of W1^T d1 and of d1(j).d1,
  /// the latter with its coefficients. `load_next` is called when the tiles have been multiplied:
  /// others may come to their place while sums are added up.
  template <class LoadNext>
  __device__ void learn_block(WideWalk& on, const ChipWideBlock& block, const Weights& w,
                              LoadNext load_next) const;
  /// This warp's part of both of the latter, to the warp that makes d0 of it.
  __device__ void hand_over(int u, typename Base::Sums& sum, typename Base::ListSums& more) const;
  /// d0(t) of a unit: one warp's work.
  __device__ void finish_gradient(int u) const;
};

}  // namespace pvm::inline v0::detail::chip
