// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a streaming multiprocessor (SM) does for its units in a step. This file declares the pieces
/// of that work, by the file that defines them. Which warps do which piece, in which order, is in
/// resident.cuh (fp32 on the chip), specialised.cuh (16 bits on the chip), streamed.cuh (fp32
/// streamed) and pipelined.cuh (16 bits streamed). How a block of weights is multiplied and folded
/// is in blocks_16bit.cuh and blocks_fp32.cuh.
///
/// The work on unit u in step t:
///     gather.cuh   x(t) from the records that the SMs of its sources sent in step t - 1
///     patches.cuh  x(t) of layer 0: pixels, and their inner products with the listed past
///     listed.cuh   what the listed gradients add to W0 x(t), and what W1's lists are multiplied by
///     (blocks)     W0 x(t), by all warps that multiply, each for its own blocks
///     hidden.cuh   h(t), its inner products with the listed past; both are sent as a record
///     errors.cuh   d1(t) of the outputs, and the scores
///     learn.cuh    y(t) and W1^T d1(t) in one pass over W1, then d0(t)
///
/// A record holds the values of a unit in one step and their inner products with the unit's values
/// in the steps of the listed gradients. It is the only data that SMs exchange in a step, in tagged
/// 16-byte pieces (see `in_pieces`), which readers poll for.

#include <cuda_runtime.h>

#include <cstdint>

#include <pvm/engine/cuda/instructions/all.cuh>
#include <pvm/engine/cuda/numbers/fast_activation.cuh>
#include <pvm/engine/cuda/numbers/precision.cuh>
#include <pvm/engine/cuda/units/sizes.hpp>
#include <pvm/engine/cuda/units/step/state.cuh>
#include <pvm/engine/cuda/units/weights/blocks_16bit.cuh>
#include <pvm/engine/cuda/units/weights/blocks_fp32.cuh>
#include <pvm/unit/activation.hpp>

namespace pvm::inline v0::detail::units {

/// A lane's piece of a source's inner products: three ages. S::product_pieces adjacent lanes have
/// all ages of a source, and a warp has group_slots sources.
struct Products {
  float v[3];
};

/// One SM: a thread block with whole units. Every function is inlined. Parameters called `u` are
/// local numbers of units. Functions whose comment says "one warp's work" are called by all lanes
/// of a warp.
template <class Precision, int Hidden, Home home>
struct Multiprocessor : Blocks<Precision, Hidden, home> {
  using Base = Blocks<Precision, Hidden, home>;
  using S = Sizes<Precision, Hidden, home>;
  using Words = Split<Precision>;
  using Fast = FastPolynomial<detail::Math<Precision>>;
  using Weights = typename Base::Weights;
  static constexpr int hidden = Hidden;
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::reread_thread, Base::warp,
      Base::lane, Base::floats, Base::area, Base::float_area, Base::now, Base::launch, Base::unit,
      Base::unit_count, Base::past, Base::history_rows, Base::history_row, Base::seen,
      Base::coefficients_of, Base::wide_coefficients_of, Base::fold_coefficients, Base::list_of,
      Base::age_of, Base::table_index, Base::outputs_of;
  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return Base::template list<T>(at);
  }

  // -------------------------------------------------------------- what it knows

  __device__ __forceinline__ float activate(float v) const {
    return a.activation == 2 ? Logistic::value(v) : Fast::value(v);
  }
  /// Which derivative this step takes: 0 compatible, 1 true, 2 logistic. Steps 0 and 1 never take
  /// the true one, which is 0 for the all-ones past.
  __device__ __forceinline__ int derivative_kind() const {
    return a.activation == 1 && now().step < 2 ? 0 : a.activation;
  }
  __device__ __forceinline__ static float derive(float v, int kind) {
    if (kind == 0) return Fast::derivative(v);
    // Asks for a bit: of comparisons with three numbers the compiler made a jump table in `errors`.
    return (kind & 1) != 0 ? PolynomialTrue::derivative(v) : Logistic::derivative(v);
  }
  /// Sets the first ChipNow of a launch, except for `frame`.
  __device__ __forceinline__ void begin(unsigned long long step) const {
    ChipNow& n = now(0);
    n.step = step;
    n.phase = static_cast<int>(step % S::period);
    n.d1_row = static_cast<int>(step % S::list_d1_rows);
    if constexpr (S::two_plans) {
      n.wide_phase = static_cast<int>(step % S::wide_period);
      n.past_row = static_cast<int>(step % S::past_rows);
    }
  }
  /// Pointers to the frames of the launch, and whether each of them is scored, by step of the
  /// launch; in shared memory.
  __device__ __forceinline__ const std::uint8_t** frames() const {
    return reinterpret_cast<const std::uint8_t**>(shared + ChipAreas::frames);
  }
  __device__ __forceinline__ std::uint8_t* scored() const {
    return reinterpret_cast<std::uint8_t*>(shared + ChipAreas::scored);
  }
  /// Numbers of a unit's coefficient tables, by step of the launch.
  __device__ __forceinline__ std::uint16_t* table_numbers(int u) const {
    return reinterpret_cast<std::uint16_t*>(area(u) + S::table_numbers);
  }
  /// Whether this step's row of a ring buffer of `rows` rows in device memory survives until the
  /// launch ends. Only such rows of h, d0 and d1 are stored: nobody reads them before.
  __device__ __forceinline__ bool row_survives_launch(int rows) const {
    return now().frame + rows >= launch().count;
  }
  /// Output i of [2][out_count], the outputs of this SM in the last two steps: in shared memory,
  /// and its place among all outputs in device memory.
  __device__ __forceinline__ float& own_output(int i) const { return floats(p.y)[i]; }
  __device__ __forceinline__ float& all_output(int i) const {
    const std::uint32_t o = static_cast<std::uint32_t>(i) % p.out_count;
    const std::uint32_t odd = static_cast<std::uint32_t>(i) / p.out_count;
    const std::uint32_t first = list<ChipTarget>(p.targets)[o / columns].out;
    return a.y[static_cast<std::size_t>(odd) * a.output_row + first + o % columns];
  }
  /// Inner products of A(step), the patch or the values of all primary sources, with A in the steps
  /// of the listed gradients, by age, [table_row]. The last two steps' are kept.
  __device__ __forceinline__ float* primary_sums(int u, unsigned long long step) const {
    return float_area(u) + S::primary + static_cast<unsigned>(step & 1) * table_row;
  }
  __device__ __forceinline__ static float4 four(const float* from) {
    return *reinterpret_cast<const float4*>(from);
  }
  /// Whether this step is the first or the last of its launch.
  __device__ __forceinline__ bool first() const { return now().frame == 0; }
  __device__ __forceinline__ bool last() const { return now().frame + 1 == launch().count; }
  /// Calls work(u) for every step-th unit from first_unit on.
  template <class Work>
  __device__ __forceinline__ void each_unit(int first_unit, int step, Work work) const {
#pragma unroll 1
    for (int u = first_unit; u < unit_count(); u += step) work(u);
  }

  // -------------------------------------------------------------- gates, where warps have roles

  /// A gate is an mbarrier: warps of one role (producers) arrive at it, warps of another role wait
  /// at it. Unlike at a named barrier, a waiting warp does not wait for the other warps that wait.
  static constexpr int most_gates =
      (ChipAreas::score - ChipAreas::gates) * 4 / static_cast<int>(sizeof(MBarrier));
  __device__ __forceinline__ MBarrier* gate(int which) const {
    return reinterpret_cast<MBarrier*>(shared + ChipAreas::gates) + which;
  }
  /// Moves this warp on to the next step. Roles do not begin a step at the same time, so there are
  /// four ChipNow.
  __device__ __forceinline__ void next_step() { turn = (turn + 1) & 3; }
  /// Arrives at a gate, with all that this warp has written. A gate opens once a step, when all its
  /// producer warps have arrived.
  __device__ __forceinline__ void arrive_gate(int which) const {
    __syncwarp();
    if (lane() == 0) mbarrier_arrive(gate(which));
  }
  /// Waits until a gate has opened in step number `frame` of this launch.
  __device__ __forceinline__ void wait_gate(int which, int frame) const {
    mbarrier_wait(gate(which), static_cast<unsigned>(frame) & 1U);
    __syncwarp();
  }

  /// State of a warp's pass over its blocks of W1, unit by unit.
  struct WideWalk {
    typename Base::Rows h{};            ///< h of the unit, multiplied by the tiles for y
    typename Base::Sums sum;            ///< W1^T d1 of the unit's blocks so far: the rows in tiles
    typename Base::ListSums list_sums;  ///< and the list rows, times their coefficients
    bool first = true;                  ///< the next block is the first of its unit
  };

  // -------------------------------------------------------------- launch.cuh

  /// Fills the ChipLaunch from the cursor and the staged block of frames: one thread's work.
  __device__ void begin_launch() const;
  /// Loads to shared memory what the steps of the launch need: pointers to frames, table numbers,
  /// pixel offsets of a patch.
  __device__ void load_launch() const;
  /// Loads the past from device memory to where steps use it. It calls the next four functions.
  __device__ void load_past() const;
  /// Clears x and the warps' parts of sums, invalidates the coefficients, and loads the scores.
  __device__ void start_areas() const;
  /// Loads h and d0 of the last `history` steps before step t, and c(h) of the last `past_rows`.
  __device__ void load_histories(unsigned long long t) const;
  /// Loads y of the last two steps.
  __device__ void load_outputs() const;
  /// Loads the patches of the last `past_rows` steps before step t.
  __device__ void load_patches(unsigned long long t) const;
  /// Index in a frame of the first pixel of patch number `patch`.
  __device__ __forceinline__ std::uint32_t corner_of(std::uint32_t patch) const {
    const auto across = static_cast<std::uint32_t>(a.side / a.block_size);
    const auto down = static_cast<std::uint32_t>(a.block_size * a.channels);
    return patch / across * down * static_cast<std::uint32_t>(a.side) + patch % across * down;
  }
  /// Step t - 1 - i, plus a multiple of both ring sizes: steps before step 0 have rows, too.
  __device__ __forceinline__ static unsigned long long step_before(unsigned long long t, int i) {
    return t - 1 - static_cast<unsigned>(i) + 2 * ring;
  }
  /// Loads the remainder rows of this warp's blocks of W0 to shared memory.
  __device__ void load_remainders() const;
  /// Loads this warp's blocks of W1 that stay in shared memory, and fills the lists of all its
  /// blocks: remainder rows, bias and listed d1.
  __device__ void load_wide_weights() const;
  /// Stores outputs and scores to device memory.
  __device__ void store_results() const;
  /// Advances the cursor: one thread's work, when all thread blocks have read it.
  __device__ void end_launch() const;
  /// Sets `next` to the step after the current one.
  __device__ void prepare(ChipNow& next) const;
  /// Prepares the next step, and counts that this SM has begun the current one: one thread's work.
  __device__ void prepare_step() const;
  /// A row of the ring buffer in device memory is overwritten after `ring` steps. So that no SM
  /// overwrites a row that the slowest SM may still read, it waits before step t until all SMs have
  /// begun step t - ahead. `slowest_counter` counts the SMs that have; `load_slowest` loads it.
  __device__ const unsigned int* slowest_counter(unsigned long long t) const;
  __device__ unsigned int load_slowest(unsigned long long t) const;
  /// Waits; `begun` is what `load_slowest` has loaded earlier.
  __device__ void wait_for_slowest(unsigned long long t, unsigned int begun) const;
  __device__ void wait_for_slowest(unsigned long long t) const;

  // -------------------------------------------------------------- gather.cuh

  /// Copies the values that all sources of this SM's units sent in step `step` to x, to the places
  /// for odd or even steps; polls until they are there. The work of `count` threads, of which this
  /// is number `me`.
  __device__ void gather_values(unsigned long long step, bool odd, int me, int count) const;
  /// Word, in a row of the past, of this lane's piece of a source's inner products.
  __device__ std::uint32_t products_at(const ChipSlot& slot) const;
  /// Adds a received piece, each age times its coefficient w[0] to w[2].
  __device__ static void add_products(Products& sum, uint4 piece, const float* w);
  /// This lane's element of `ChipUnit::products` for a group of sources: where its piece of the
  /// inner products is in a row of the past, and the phase of what the source feeds.
  __device__ __forceinline__ std::uint32_t source_place(const ChipUnit& my,
                                                        std::uint32_t group) const {
    return shared[my.products + group * 32 + static_cast<unsigned>(lane())];
  }
  /// The inner products that the primary sources of a unit sent in step `step`, from source number
  /// `from` on: this lane's piece, summed over the groups of sources. Polls until they are there.
  __device__ Products primary_products(int u, unsigned long long step, std::uint32_t from) const;
  /// Sums over the sources of a group, which are in different lanes; lane i gets the sum of age i.
  __device__ float sum_over_sources(const Products& sum) const;

  // -------------------------------------------------------------- listed.cuh

  /// Copies this step's coefficients to a unit's area unless they are there: one warp's work.
  __device__ void load_coefficients(int u) const;
  /// Copies the coefficients of a matrix with `terms` listed gradients and as many phases: `from`
  /// its part of a table `to` rows of the unit's area, and those for y(t-1) to the rows `after`,
  /// unless that is null.
  __device__ void copy_table(const float* from, int terms, float* to, float* after) const;
  /// What the listed gradients add to W0 x(t) of a unit: one warp's work. It is the sum over ages
  /// of T(age) d0(j), where T(age) is the sum, over the panels of x, of the panel's coefficient
  /// w(age) times the panel's part of x(j-2).x(t).
  __device__ void listed_share(int u) const;
  /// The coefficients of this lane's piece of a source's inner products. `source`: an element of
  /// `ChipUnit::products`; if it is `no_source`, any coefficients.
  __device__ const float* source_coefficients(int u, std::uint32_t source) const;
  /// Number of groups of sources whose pieces a lane has in flight.
  static constexpr int pieces_at_once = 3;
  /// Loads pieces again, from `sent` (a row of the past) + `at`, until their tags are `tag`.
  __device__ static void poll_pieces(uint4 (&piece)[pieces_at_once],
                                     const std::uint32_t (&at)[pieces_at_once],
                                     const std::uint32_t* sent, std::uint32_t tag);
  /// Adds to `total`, which is T(age) of age lane(), what A, B and the bias contribute. `products`
  /// of lane i is the inner product of A(t) at age i. It is kept in `primary_sums`, for the next
  /// step's B. If the unit sees a patch, `products` is not used: `finish_patch` has already stored
  /// the inner products there.
  __device__ void add_own_products(int u, const ChipUnit& my, bool patch, unsigned long long t,
                                   float products, float& total) const;
  /// The sum over `terms` ages of weight(age) times the row of step newest - age of the ring buffer
  /// `what` (S::hidden or S::d0). `weight` of lane i is that of age i. A lane gets elements 2 lane
  /// and 2 lane + 1, so rows have at most 64 elements.
  ///
  /// Rows are summed in the order in which the ring buffer has them, so that their addresses are
  /// constants; the weights are rotated instead.
  __device__ float2 weigh_rows(std::uint32_t what, int u, unsigned long long newest, int terms,
                               float weight) const;
  /// `weigh_rows` where all weights are streamed, so that the unit's area is in device memory: the
  /// weights, one for each row, go from lane to lane by shuffles, which saves a round trip, and
  /// eight rows are in flight. `rows`: the ring buffer. The lane gets elements 2 mine, 2 mine + 1.
  __device__ float2 weigh_device_rows(const float* rows, int mine, unsigned long long newest,
                                      float weight) const;
  /// `weigh_rows` where the unit's area is in shared memory: the rotated weights are written there,
  /// too.
  __device__ float2 weigh_shared_rows(std::uint32_t what, int u, int mine,
                                      unsigned long long newest, float weight) const;
  /// Writes what the rows of W1's lists are multiplied by for y(t), S::list_factors, for blocks by
  /// the number of steps since they last folded: the hidden values of the remainder rows, 1 for the
  /// bias, and w r(j-2).r(t) for each listed gradient. `sum` is of `unit_products`; lanes 16 to 31
  /// have the products of h.
  __device__ void write_list_factors(int u, float sum) const;
  /// The same for y(t - 1), in step t, where h(t) is made before y(t - 1) (`pipelined`). Also
  /// writes h(t - 1) to S::packed_hidden.
  __device__ void write_last_list_factors(int u) const;

  // -------------------------------------------------------------- patches.cuh

  /// Pixels of a patch that a lane has in flight: number `first` and every 32nd after it.
  static constexpr int pixels_at_once = 3;
  struct Pixels {
    std::uint32_t v[pixels_at_once];
  };
  /// Starts the loads of pixels `first`, first + 32 and so on of a unit's patch, in the frame
  /// `ahead_by` steps after the current one. Loads nothing if the launch does not have that frame.
  __device__ Pixels load_pixels(int u, int ahead_by, int first) const;
  /// Stores these pixels to A of that frame's step, to its row of the past, and to the history.
  __device__ void store_pixels(int u, int ahead_by, int first, const Pixels& pixels) const;
  /// Makes the inner products of a complete patch with the listed past: one warp's work.
  __device__ void finish_patch(int u, int ahead_by) const;
  /// Loads, stores and finishes a patch: one warp's work.
  __device__ void read_patch(int u, int ahead_by) const;
  /// The inner product of two patches, of which `four_now(i)` and `four_then(i)` return pixels i to
  /// i + 3, `now_at(i)` and `then_at(i)` pixel i. Each half of the warp sums every other four
  /// pixels; both get the sum. Written with explicit fused multiply-adds, so that it is rounded
  /// alike in all kernels.
  template <class FourNow, class FourThen, class NowAt, class ThenAt>
  __device__ float patch_product(FourNow four_now, FourThen four_then, NowAt now_at,
                                 ThenAt then_at) const;

  // -------------------------------------------------------------- hidden.cuh

  /// Makes h(t) of a unit from the warps' parts of W0 x(t), sends c(h(t)), then makes and sends its
  /// inner products: one warp's work.
  __device__ void finish_unit(int u) const;
  /// Makes the inner products of h(t) of a unit and sends them to its record: one warp's work.
  __device__ void finish_products(int u, unsigned long long t, std::uint32_t* record) const;
  /// Element i of W0 x(t) of a unit: the sum of the warps' parts and of the listed gradients' part.
  __device__ float hidden_sum(int u, int i) const;
  /// Makes value i of h(t) of a unit from element i of W0 x(t). Stores it and c of it to the unit's
  /// ring buffers, and if `survives` h also to `row`, the unit's values in a row of
  /// `ChipArguments::hidden`. Returns the word of c(h) that is sent.
  __device__ std::uint32_t keep_hidden(int u, int i, float sum, float* row, bool survives) const;
  /// Inner products of a unit's values in step t with those in the steps of the listed gradients:
  /// lane i gets that of c(h) at age i, lane 16 + i that of h.
  __device__ float unit_products(int u) const;
  /// The sum over a unit's values of a(i) b(i), where `four_a(i)` returns a(i) to a(i + 3) and
  /// `one_a(i)` returns a(i). Written with explicit fused multiply-adds, so that it is rounded
  /// alike in all kernels.
  template <class FourA, class FourB, class OneA, class OneB>
  __device__ static float inner_product(FourA four_a, FourB four_b, OneA one_a, OneB one_b);
  /// Word i of the words that lanes have of a unit's values: lane l has words l, l + 32 and so on.
  static constexpr int words_per_lane = (Hidden + 31) / 32;
  __device__ static std::uint32_t word_of_lanes(const std::uint32_t (&of_lane)[words_per_lane],
                                                int i);
  /// Sends the words word(0), word(1) and so on as `pieces` pieces (at most 32) with the tag of
  /// step t. `word` is called by all lanes, also for indices behind the last value.
  template <class Word>
  __device__ void send_words(std::uint32_t* to, int pieces, Word word, unsigned long long t) const;
  /// Sends inner products to their place in a unit's record, behind the values; lane i has that of
  /// age i.
  __device__ void send_products(std::uint32_t* record, float product, unsigned long long t) const;

  // -------------------------------------------------------------- errors.cuh

  /// Makes d1(t), stores it to the row of W1's lists that belongs to this step as well, and adds up
  /// the scores, for outputs `from`, from + step and so on, up to `end` (exclusive). Half a warp
  /// has the 16 outputs of a block of W1 at a time. Invariant values are read to registers first:
  /// the compiler would read them again after each store to shared memory.
  __device__ void errors(int from, int end, int step) const;
  /// What is the same for the errors of all outputs in a step.
  struct ErrorRule {
    bool scored;         ///< whether the step's frame counts for the score
    bool signs;          ///< whether units learn from the sign of their error
    int kind;            ///< `derivative_kind`
    std::uint32_t then;  ///< word of the row of step t - 2, from row 0 of a patch's history
  };
  /// A thread's sums for `add_score`.
  struct SquaredErrors {
    float loss = 0, prediction = 0, persistence = 0;
  };
  /// Returns d1 of output y, column c of `target`, whose target value is `wanted`, and adds its
  /// squared errors to `squares`.
  __device__ float output_error(const ChipTarget& target, std::uint32_t c, float wanted, float y,
                                const ErrorRule& rule, SquaredErrors& squares) const;
  /// Adds the lanes' sums to this warp's scores: `loss` is the squared error of all outputs;
  /// `prediction_error` and `persistence_error` are the squared errors, in scored pixels, of the
  /// prediction and of repeating the frame of two steps before.
  __device__ void add_score(float loss, float prediction_error, float persistence_error) const;

  // -------------------------------------------------------------- learn.cuh

  /// In fp32: makes y(t) of a block of W1 whose tiles are in `w`, and adds up what the block
  /// contributes to W1^T d1 and, times their coefficients, to the products d1(j).d1. `load_next()`
  /// is called when the tiles have been multiplied: it may start to load the next tiles to `w`.
  template <class LoadNext>
  __device__ void learn_block(WideWalk& on, const ChipWideBlock& block, const Weights& w,
                              LoadNext load_next) const;
  /// Writes this warp's sums to its part in the unit's area (S::part1), for `finish_gradient`, and
  /// clears them.
  __device__ void hand_over(int u, typename Base::Sums& sum,
                            typename Base::ListSums& list_sums) const;
  /// Makes d0(t) of a unit from the warps' parts of W1^T d1(t): one warp's work.
  __device__ void finish_gradient(int u) const;
};

}  // namespace pvm::inline v0::detail::units
