// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a streaming multiprocessor (SM) does for its units in a step. This file declares the pieces
/// of that work, by the file that explains and defines them. Which warps do which piece, in which
/// order, is in resident.cuh (fp32 on the chip), specialised.cuh (16 bits on the chip),
/// streamed.cuh (fp32 streamed) and pipelined.cuh (16 bits streamed). How a block of weights is
/// multiplied and folded is in blocks_16bit.cuh and blocks_fp32.cuh.
///
/// The work on unit u in step t:
///     gather.cuh   x(t) from the records that the thread blocks of its sources sent in step t - 1
///     patches.cuh  x(t) of layer 0: pixels, and their inner products with the listed past
///     listed.cuh   what the listed gradients add to W0 x(t), and what W1's lists are multiplied by
///     (blocks)     W0 x(t), by all warps that multiply, each for its own blocks
///     hidden.cuh   h(t), its inner products with the listed past; both are sent as a record
///     errors.cuh   d1(t) of the outputs, and the scores
///     learn.cuh    y(t) and W1^T d1(t) in one pass over W1, then d0(t)
///
/// A record holds the values of a unit in one step and their inner products with the unit's values
/// in the steps of the listed gradients. It is the only data that thread blocks exchange in a step,
/// in tagged 16-byte pieces (see `in_pieces`), which readers poll for.

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
/// all ages of a source, and a warp has group_sources sources.
struct Products {
  float v[3];
};

/// What a thread of a thread block with whole units does. Every function is inlined. Parameters
/// called `u` are local numbers of units. Functions whose comment says "one warp's work" are called
/// by all lanes of a warp.
template <class Precision, int Hidden, Home home, class Own>
struct ThreadBlock : Blocks<Precision, Hidden, home> {
  using Base = Blocks<Precision, Hidden, home>;
  using S = Sizes<Precision, Hidden, home>;
  using Words = Split<Precision>;
  using Fast = FastPolynomial<detail::Math<Precision>>;
  using Weights = typename Base::Weights;
  static constexpr int hidden = Hidden;
  using Base::a, Base::p, Base::shared, Base::thread, Base::turn, Base::reread_thread, Base::warp,
      Base::lane, Base::floats, Base::area, Base::float_area, Base::now, Base::launch, Base::unit,
      Base::unit_count, Base::past, Base::history_rows, Base::history_row, Base::seen,
      Base::coefficients_of, Base::w1_coefficients_of, Base::fold_coefficients, Base::list_of,
      Base::age_of, Base::table_index, Base::outputs_of;
  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return Base::template list<T>(at);
  }

  // -------------------------------------------------------------- what it knows

  __device__ __forceinline__ float activate(float v) const {
    if constexpr (!std::is_void_v<Own>) return Own::value(v);
    return a.activation == 2 ? Logistic::value(v) : Fast::value(v);
  }
  /// Hidden values that a unit has, and whether value i is one of them.
  __device__ __forceinline__ unsigned used() const {
    return S::pads ? static_cast<unsigned>(a.used) : static_cast<unsigned>(Hidden);
  }
  __device__ __forceinline__ bool is_used(int i) const {
    return !S::pads || static_cast<unsigned>(i) < used();
  }
  /// Which derivative this step takes: 0 compatible, 1 true, 2 logistic. Steps 0 and 1 never take
  /// the true one, which is 0 for the all-ones past.
  __device__ __forceinline__ int derivative_kind() const {
    return a.activation == 1 && now().step < 2 ? 0 : a.activation;
  }
  __device__ __forceinline__ static float derive(float v, int kind) {
    if constexpr (!std::is_void_v<Own>) return Own::derivative(v);
    if (kind == 0) return Fast::derivative(v);
    // Asks for a bit: of comparisons with three numbers the compiler made a jump table in `errors`.
    return (kind & 1) != 0 ? PolynomialTrue::derivative(v) : Logistic::derivative(v);
  }
  /// Sets the first Now of a launch, except for `frame`.
  __device__ __forceinline__ void begin(unsigned long long step) const {
    Now& n = now(0);
    n.step = step;
    n.phase = static_cast<int>(step % S::period);
    n.d1_row = static_cast<int>(step % S::list_d1_rows);
    if constexpr (S::two_plans) n.w1_phase = static_cast<int>(step % S::w1_period);
    if constexpr (S::counts_rows) n.past_row = static_cast<int>(step % S::past_rows);
  }
  /// Pointers to the frames of the launch, and whether each of them is scored, by step of the
  /// launch; in shared memory.
  __device__ __forceinline__ const std::uint8_t** frames() const {
    return reinterpret_cast<const std::uint8_t**>(shared + Areas::frames);
  }
  __device__ __forceinline__ std::uint8_t* scored() const {
    return reinterpret_cast<std::uint8_t*>(shared + Areas::scored);
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
  /// Output i of [2][out_count], the outputs of this thread block in the last two steps: in shared
  /// memory, and its place among all outputs in device memory.
  __device__ __forceinline__ float& own_output(int i) const { return floats(p.y)[i]; }
  __device__ __forceinline__ float& all_output(int i) const {
    const std::uint32_t o = static_cast<std::uint32_t>(i) % p.out_count;
    const std::uint32_t odd = static_cast<std::uint32_t>(i) / p.out_count;
    const std::uint32_t first = list<Target>(p.targets)[o / columns].out;
    return a.y[static_cast<std::size_t>(odd) * a.output_row + first + o % columns];
  }
  /// Inner products of A(step), the patch or the values of all primary sources, with A in the steps
  /// of the listed gradients, by age, [table_row]. The last two steps' are kept.
  __device__ __forceinline__ float* primary_sums(int u, unsigned long long step) const {
    return float_area(u) + S::primary + static_cast<unsigned>(step & 1) * S::table_row;
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

  /// A gate is an mbarrier: warps of one role arrive at it, warps of another role wait at it.
  /// Unlike at a named barrier, a waiting warp does not wait for the other warps that wait.
  static constexpr int most_gates =
      (Areas::score - Areas::gates) * 4 / static_cast<int>(sizeof(MBarrier));
  __device__ __forceinline__ MBarrier* gate(int which) const {
    return reinterpret_cast<MBarrier*>(shared + Areas::gates) + which;
  }
  /// Moves this warp on to the next step. Roles do not begin a step at the same time, so there are
  /// four Now.
  __device__ __forceinline__ void next_step() { turn = (turn + 1) & 3; }
  /// Arrives at a gate, with all that this warp has written. A gate opens once a step, when all who
  /// arrive at it have arrived.
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
  struct W1Pass {
    typename Base::Rows h{};            ///< h of the unit, multiplied by the tiles for y
    typename Base::Sums sum;            ///< W1^T d1 of the unit's blocks so far: the rows in tiles
    typename Base::ListSums list_sums;  ///< and the list rows, times their coefficients
    bool first = true;                  ///< the next block is the first of its unit
  };

  // -------------------------------------------------------------- launch.cuh

  __device__ void begin_launch() const;
  __device__ void load_launch() const;
  __device__ void load_past() const;
  __device__ void start_areas() const;
  __device__ void load_histories(unsigned long long t) const;
  __device__ void load_outputs() const;
  __device__ void load_patches(unsigned long long t) const;
  /// Index in a frame of the first pixel of patch number `patch`.
  __device__ __forceinline__ std::uint32_t corner_of(std::uint32_t patch) const {
    const auto across = static_cast<std::uint32_t>(a.side / a.block_size);
    const auto down = static_cast<std::uint32_t>(a.block_size * a.channels);
    return patch / across * down * static_cast<std::uint32_t>(a.side) + patch % across * down;
  }
  /// Step t - 1 - i, plus a multiple of both ring sizes: steps before step 0 have rows, too.
  __device__ __forceinline__ static unsigned long long step_before(unsigned long long t, int i) {
    return t - 1 - static_cast<unsigned>(i) + 2 * S::ring;
  }
  __device__ void load_remainders() const;
  __device__ void load_w1_weights() const;
  __device__ void store_results() const;
  __device__ void end_launch() const;
  __device__ void prepare(Now& next) const;
  __device__ void prepare_step() const;
  __device__ const unsigned int* slowest_counter(unsigned long long t) const;
  __device__ unsigned int load_slowest(unsigned long long t) const;
  __device__ void wait_for_slowest(unsigned long long t, unsigned int begun) const;
  __device__ void wait_for_slowest(unsigned long long t) const;

  // -------------------------------------------------------------- gather.cuh

  __device__ void gather_values(unsigned long long step, bool odd, int me, int count) const;
  __device__ std::uint32_t products_at(const Source& source) const;
  __device__ static void add_products(Products& sum, uint4 piece, const float* w);
  /// This lane's element of `ProgramUnit::products` for a group of sources: where its piece of the
  /// inner products is in a row of the past, and the phase of what the source feeds.
  __device__ __forceinline__ std::uint32_t source_place(const ProgramUnit& my,
                                                        std::uint32_t group) const {
    return shared[my.products + group * 32 + static_cast<unsigned>(lane())];
  }
  __device__ Products primary_products(int u, unsigned long long step, std::uint32_t from) const;
  __device__ Products context_products(int u, unsigned long long step) const;
  __device__ float sum_over_sources(const Products& sum) const;

  // -------------------------------------------------------------- listed.cuh

  __device__ void load_coefficients(int u) const;
  __device__ void copy_table(const float* from, int terms, int period, float* to,
                             float* after) const;
  __device__ void make_listed_part(int u) const;
  __device__ void load_context_sums(int u, unsigned long long t) const;
  __device__ void keep_context_products(int u, unsigned long long t, float products) const;
  __device__ const float* source_coefficients(int u, std::uint32_t source) const;
  /// Number of groups of sources whose pieces a lane has in flight.
  static constexpr int pieces_at_once = 3;
  __device__ static void poll_pieces(uint4 (&piece)[pieces_at_once],
                                     const std::uint32_t (&at)[pieces_at_once],
                                     const std::uint32_t* sent, std::uint32_t tag);
  __device__ void add_own_products(int u, const ProgramUnit& my, bool patch, unsigned long long t,
                                   float products, float& total) const;
  /// A lane's elements of a row of a unit's values: v[k] has elements 2 i and 2 i + 1 for pair
  /// number i = `value_pair(k)` of the row.
  struct ValuePairs {
    float2 v[(Hidden + 63) / 64] = {};
  };
  static constexpr int pairs_per_lane = (Hidden + 63) / 64;
  __device__ __forceinline__ int value_pair(int k) const { return lane() + 32 * k; }
  /// The same, but no larger than the number of the last pair that has a value.
  __device__ __forceinline__ int valid_pair(int k) const {
    return min(value_pair(k), (Hidden - 1) / 2);
  }
  __device__ ValuePairs weigh_rows(std::uint32_t what, int u, int newest, int terms,
                                   float weight) const;
  __device__ ValuePairs weigh_device_rows(const float* rows, unsigned long long newest,
                                          float weight) const;
  __device__ ValuePairs weigh_shared_rows(std::uint32_t what, int u, int newest,
                                          float weight) const;
  __device__ void write_list_factors(int u, float sum, int first) const;
  __device__ void write_last_list_factors(int u) const;

  // -------------------------------------------------------------- patches.cuh

  /// Pixels of a patch that a lane has in flight: number `first` and every 32nd after it.
  static constexpr int pixels_at_once = 3;
  struct Pixels {
    std::uint32_t v[pixels_at_once];
  };
  __device__ Pixels load_pixels(int u, int ahead_by, int first) const;
  __device__ void store_pixels(int u, int ahead_by, int first, const Pixels& pixels) const;
  __device__ void finish_patch(int u, int ahead_by) const;
  __device__ void read_patch(int u, int ahead_by) const;
  template <class FourNow, class FourThen, class NowAt, class ThenAt>
  __device__ float patch_product(FourNow four_now, FourThen four_then, NowAt now_at,
                                 ThenAt then_at) const;

  // -------------------------------------------------------------- hidden.cuh

  __device__ void finish_unit(int u) const;
  __device__ void finish_products(int u, unsigned long long t, std::uint32_t* record) const;
  __device__ float hidden_sum(int u, int i) const;
  __device__ std::uint32_t keep_hidden(int u, int i, float sum, float* row, bool survives) const;
  __device__ float unit_products(int u, std::uint32_t what) const;
  template <class FourA, class FourB, class OneA, class OneB>
  __device__ static float inner_product(FourA four_a, FourB four_b, OneA one_a, OneB one_b);
  /// Word i of the words that lanes have of a unit's values: lane l has words l, l + 32 and so on.
  static constexpr int words_per_lane = (Hidden + 31) / 32;
  __device__ static std::uint32_t word_of_lanes(const std::uint32_t (&of_lane)[words_per_lane],
                                                int i);
  template <class Word>
  __device__ void send_words(std::uint32_t* to, int pieces, Word word, unsigned long long t) const;
  __device__ void send_products(std::uint32_t* record, float product, unsigned long long t) const;

  // -------------------------------------------------------------- errors.cuh

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
  __device__ float output_error(const Target& target, std::uint32_t c, float wanted, float y,
                                const ErrorRule& rule, SquaredErrors& squares) const;
  __device__ void add_score(float loss, float prediction_error, float persistence_error) const;

  // -------------------------------------------------------------- learn.cuh

  template <class LoadNext>
  __device__ void learn_block(W1Pass& on, const W1Block& block, const Weights& w,
                              LoadNext load_next) const;
  __device__ void hand_over(int u, typename Base::Sums& sum,
                            typename Base::ListSums& list_sums) const;
  __device__ void finish_gradient(int u) const;
};

}  // namespace pvm::inline v0::detail::units
