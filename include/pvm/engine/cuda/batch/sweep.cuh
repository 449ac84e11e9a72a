// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The first kernel of a step where products are of 16 bits, the momentum dies out soon and W1 is
/// no wider than a panel: one pass over the master weights that makes everything but sums of parts.
/// What the step before left W0 to learn moves a tile of it, and while W0(t) is in the
/// multiprocessor it is multiplied with x(t), so that no copy of it is ever written. W1 needs
/// nothing of this step's h: d1(t) is multiplied with W1(t) and teaches it at once, so that no
/// other step needs d1. It is made on the spot of the targets and of y(t-2) = f(W1(t-2) r(t-2)),
/// which the multiprocessor makes only now: r(t-2) is there for the gradient, and no y is ever
/// written. W1(t) and W1(t-2) are copies in 16 bits that earlier steps left. The tiles of both hide
/// each other's latencies.
///
/// The master Z holds every gradient with its final share; W = Z + w g of the youngest gradient.
/// The older ones are in it a step or two early (`youngest_suffices`).

#include <cstdint>

#include <pvm/engine/cuda/batch/errors.cuh>
#include <pvm/engine/cuda/batch/fragments.cuh>
#include <pvm/engine/cuda/batch/product_core.cuh>
#include <pvm/engine/cuda/batch/sweep_errors.cuh>
#include <pvm/engine/cuda/batch/sweep_outputs.cuh>
#include <pvm/engine/cuda/check.hpp>
#include <pvm/engine/cuda/launch.hpp>

namespace pvm::inline v0::detail::batch {

/// How a block of threads works on tiles of [rows m][56 n] with `Bp` sequences: warps that compute,
/// 16 m each, and two or four that bring what they need. Rows come in stages: for a gradient of W0
/// all m and a chunk of the sequences; for a product a part of the m and all sequences.
template <int Bp>
struct SweepShape : SweepWarps<Bp> {
  using SweepWarps<Bp>::warps;
  using SweepWarps<Bp>::across;
  using SweepWarps<Bp>::deep;
  using SweepWarps<Bp>::kept;
  static constexpr int blocks = Bp == 256 ? 1 : 2;       ///< on a multiprocessor
  static constexpr int bringers = Bp == 256 ? 128 : 64;  ///< threads
  static constexpr int threads = warps * 32 + bringers;
  static constexpr int rows = sweep_rows(Bp);
  static constexpr int row_bytes = Bp * 2;
  static constexpr int chunk_bytes = row_bytes < 128 ? row_bytes : 128;
  static constexpr int chunks = row_bytes / chunk_bytes;
  static constexpr int part_rows = rows / chunks;
  /// Rows of 128 bytes and more lie as products of four warps read them: column by column of 128
  /// bytes, with pieces of 16 in other places in every row, so that any reads find different banks.
  static constexpr bool moved = row_bytes >= 128;
  static constexpr bool grouped = moved && multiplies_in_groups;
  /// Warps that make a part's errors for the same chunk, 16 m each.
  static constexpr int makers = part_rows / 16;
  /// Warps that multiply the same m of a part, so that they wait for each other's errors.
  static constexpr int readers = grouped ? 4 : across;
  static constexpr int row_stride = moved ? 128 : row_bytes + 16;  // shorter ones have a gap
  /// Where byte `byte`, a multiple of 16, of row `row` of `Rows` lies.
  template <int Rows>
  __device__ static constexpr int at(int row, int byte) {
    if constexpr (!moved) return row * row_stride + byte;
    return (byte >> 7) * (Rows * 128) + row * 128 + ((byte & 127) ^ (row & 7) << 4);
  }
  /// `bytes` further on in the same row, a multiple of 32 and within 128.
  __device__ static constexpr int further(int place, int bytes) {
    return moved ? place ^ bytes : place + bytes;
  }
  static constexpr int stage_bytes = rows * row_stride;
  static constexpr int stages = 3;
  static constexpr int part_depth = part_rows / deep;  ///< of a warp
  static_assert(across * 16 == Bp && part_depth % 16 == 0);
  static constexpr int fresh_stride = moved ? 128 : panel_width * 2;  ///< of W(t) for the product
  static constexpr int tiles = 4;
  static constexpr int tile_bytes = sweep_tile_bytes(Bp);
  static constexpr int n_buffers = Bp <= 64 ? 2 : 1;
  static constexpr int n_bytes = panel_width * row_stride * chunks;
  static_assert(stage_bytes >= n_bytes && stage_bytes >= part_rows * row_stride * chunks);
  static constexpr int n_start = stages * stage_bytes;
  static constexpr int fresh_start = n_start + n_buffers * n_bytes;
  static constexpr int tiles_start = fresh_start + rows * fresh_stride;
  static constexpr int state_start = tiles_start + tiles * tile_bytes;
  static_assert(state_start % 16 == 0);
};

inline constexpr int most_swept_layers = 32;
/// Barriers of warps (`sync_warps`); the first are of warps that make errors together.
inline constexpr int bringers_meet = 14, sweepers_meet = 15;

/// A warp arrives at a barrier by its first lane, behind __syncwarp. compute-sanitizer's racecheck
/// does not see that this orders what the other lanes did; in a program that is compiled with
/// PVM_RACECHECK all of them arrive.
#if defined(PVM_RACECHECK)
inline constexpr unsigned warp_arrivals = 32;
#else
inline constexpr unsigned warp_arrivals = 1;
#endif

/// Something in shared memory that is full, or empty, in turns.
struct Exchange {
  CopyBarrier full, empty;
};
/// The places of exchange `i` of `Count` that follow each other.
template <int Count>
struct Turns {
  int i = 0;
  [[nodiscard]] __device__ int place() const { return i % Count; }
  /// What the wait for it to be full asks for; to be empty, the opposite.
  [[nodiscard]] __device__ unsigned parity() const { return static_cast<unsigned>(i / Count) & 1U; }
};

/// What a block of threads shares beside that.
template <int Bp>
struct SweepState {
  using S = SweepShape<Bp>;
  Cursor cursor;
  std::uint32_t places[sweep_views][static_cast<int>(Stream::count)];
  /// What the master gains of a gradient and what W has beside it, of the step before and of this.
  float rates[2][most_swept_layers][2];
  bool keeps;  ///< whether d1 is stored, for a checkpoint or whoever reads the weights
  Exchange stages[S::stages], tiles[S::tiles], n[S::n_buffers];
  CopyBarrier masters[S::warps];  ///< of each warp, full
  CopyBarrier fresh, errors;
  double score[S::warps][2];  ///< what each warp's predictions and outputs have missed
  std::uint16_t who[Bp / 8];  ///< of every 8 sequences, for their errors
};

/// Where masters lie in shared memory, behind that: bulk copies to what is no multiple of 128 bytes
/// are slower. Then how much there is of it all.
template <int Bp>
inline constexpr int masters_start = SweepShape<Bp>::state_start +
                                     (static_cast<int>(sizeof(SweepState<Bp>)) + 127) / 128 * 128;
template <int Bp>
constexpr int sweep_shared_bytes(int columns) {
  return masters_start<Bp> + SweepShape<Bp>::rows * columns * 4;
}

/// What warps of both kinds know. `Steps`: all that the kernel does is steps; else it does none.
template <class M, int Bp, bool Steps>
class SweepRole {
 protected:
  using S = SweepShape<Bp>;

  __device__ SweepRole(const Arguments& a, Task task, SweepState<Bp>& state, unsigned char* shared)
      : a_(a),
        state_(state),
        shared_(shared),
        task_(task),
        first_(a.sweep_starts[blockIdx.x]),
        count_(static_cast<int>(a.sweep_starts[blockIdx.x + 1] - first_)) {}

  [[nodiscard]] __device__ bool settles() const { return !Steps && task_ == Task::settle; }
  [[nodiscard]] __device__ bool publishes() const { return !Steps && task_ != Task::settle; }
  [[nodiscard]] __device__ unsigned char* slot_of(int tile) const {
    return shared_ + S::tiles_start + tile % S::tiles * S::tile_bytes;
  }
  [[nodiscard]] __device__ const SweepTile& tile_at(int tile) const {
    return *reinterpret_cast<const SweepTile*>(slot_of(tile));
  }
  /// m of a tile that exist.
  [[nodiscard]] __device__ static int rows_of(const SweepTile& t) {
    return static_cast<int>(min(t.panel.m - t.panel.first, static_cast<unsigned>(S::rows)));
  }
  /// Parts of the product of a tile with so many m.
  [[nodiscard]] __device__ static int parts_of(int rows) {
    return (rows + S::part_rows - 1) / S::part_rows;
  }

  const Arguments& a_;
  SweepState<Bp>& state_;
  unsigned char* shared_;
  const Task task_;
  const unsigned first_;
  const int count_;
};

/// Brings tiles and rows, as far ahead as there is room.
template <class M, int Bp, bool Steps>
class Bringer : SweepRole<M, Bp, Steps> {
  using Base = SweepRole<M, Bp, Steps>;
  using Base::a_, Base::state_, Base::shared_, Base::count_;
  using typename Base::S;
  static constexpr int bringing_warps = S::bringers / 32;
  static constexpr std::uint32_t unit = S::row_bytes / 16;
  template <int Rows>
  static constexpr int rows_a_lane = (Rows / bringing_warps + 31) / 32;

 public:
  __device__ Bringer(const Arguments& a, Task task, SweepState<Bp>& state, unsigned char* shared)
      : Base(a, task, state, shared), me_(static_cast<int>(threadIdx.x) - S::warps * 32) {}

  /// The first tiles; they do not depend on the kernel before.
  __device__ void start() {
    bring_tile(0);
    bring_tile(1);
  }
  /// Where rows start in this step.
  __device__ void look() const {
    static_assert(start_places <= S::bringers);
    if (me_ < start_places) (&state_.places[0][0])[me_] = a_.first->places[me_];
    sync_warps(bringers_meet, S::bringers);
  }
  __device__ void run() {
    for (int i = 0; i < count_; ++i) {
      const Turns<S::tiles> turn{i};
      barrier_wait(&state_.tiles[turn.place()].full, turn.parity());
      const SweepTile& t = Base::tile_at(i);
      const auto* words = reinterpret_cast<const std::uint32_t*>(Base::slot_of(i) + sizeof(t));
      if (t.forward != 0) {
        bring_w0(t, words);
      } else {
        bring_w1(t, words);
      }
      bring_tile(i + 2);
      __syncwarp();
    }
  }

 private:
  __device__ static int lane() { return static_cast<int>(threadIdx.x) & 31; }

  __device__ void bring_tile(int tile) {
    if (tile >= count_ || me_ != 0) return;
    const Turns<S::tiles> turn{tile};
    Exchange& exchange = state_.tiles[turn.place()];
    barrier_wait(&exchange.empty, turn.parity() ^ 1U);
    barrier_expect(&exchange.full, S::tile_bytes);
    copy_bulk_async(Base::slot_of(tile),
                    a_.sweep + (Base::first_ + static_cast<std::size_t>(tile)) * S::tile_bytes,
                    S::tile_bytes, &exchange.full);
  }
  // The tile that `words` are of may be gone after its last stage.

  __device__ void bring_w0(const SweepTile& t, const std::uint32_t* words) {
    const int rows = Base::rows_of(t);
    if (t.begins != 0) bring_n(words, before_view);
    if (Base::publishes()) return;
    for (int chunk = 0; chunk < S::chunks; ++chunk) {
      bring_stage<S::rows, S::chunk_bytes>(listed(words, before_view),
                                           a_.arena + chunk * S::chunk_bytes);
    }
    if (Base::settles()) return;
    for (int part = 0; part < Base::parts_of(rows); ++part) {
      bring_part(listed(words + part * S::part_rows, forward_view));
    }
  }
  __device__ void bring_w1(const SweepTile& t, const std::uint32_t* words) {
    const int rows = Base::rows_of(t);
    if (t.begins != 0) bring_n(words, Base::publishes() ? before_view : gradient_view);
    if (Base::settles()) return;
    const std::uint32_t d1 =
        state_.places[before_view][static_cast<int>(Stream::output_gradient)] + t.outputs * unit;
    for (int part = 0; part < Base::parts_of(rows); ++part) {
      const int first = part * S::part_rows;
      if (Base::publishes()) {
        bring_part(range(d1, first, rows));
      } else {
        bring_part(listed(words + first, forward_view));
      }
    }
  }

  // Where a row lies, by its number.

  __device__ auto listed(const std::uint32_t* words, SweepView view) const {
    const std::uint32_t* streams = state_.places[view];
    return [=](int row) { return row_place(streams, words[row], unit); };
  }
  /// Those that follow row `first` behind `start`, where there are `count`.
  __device__ static auto range(std::uint32_t start, int first, int count) {
    return [=](int row) {
      const int at = first + row;
      return at < count ? start + static_cast<std::uint32_t>(at) * unit : nowhere;
    };
  }

  /// The rows of n, once a panel, whole.
  __device__ void bring_n(const std::uint32_t* words, SweepView view) {
    const Turns<S::n_buffers> turn{panel_++};
    Exchange& exchange = state_.n[turn.place()];
    std::uint32_t places[rows_a_lane<panel_width>];
    find_rows<panel_width>(places, listed(words + S::rows, view));
    barrier_wait(&exchange.empty, turn.parity() ^ 1U);
    __syncwarp();
    bring_rows<panel_width, S::row_bytes>(places, a_.arena,
                                          shared_ + S::n_start + turn.place() * S::n_bytes);
    copies_arrive(&exchange.full);
  }
  template <class Place>
  __device__ void bring_part(Place&& place) {
    bring_stage<S::part_rows, S::row_bytes>(place, a_.arena);
  }
  template <int Rows, int Bytes, class Place>
  __device__ void bring_stage(Place&& place, const unsigned char* from) {
    const Turns<S::stages> turn{stage_++};
    Exchange& exchange = state_.stages[turn.place()];
    std::uint32_t places[rows_a_lane<Rows>];
    find_rows<Rows>(places, place);
    barrier_wait(&exchange.empty, turn.parity() ^ 1U);
    __syncwarp();
    bring_rows<Rows, Bytes>(places, from, shared_ + turn.place() * S::stage_bytes);
    copies_arrive(&exchange.full);
  }
  /// Where a warp's share of `Rows` rows lies, rows 32 apart a lane.
  template <int Rows, class Place>
  __device__ void find_rows(std::uint32_t (&places)[rows_a_lane<Rows>], Place&& place) const {
    constexpr int mine = Rows / bringing_warps;
#pragma unroll
    for (int k = 0; k < rows_a_lane<Rows>; ++k) {
      const int row = k * 32 + lane();
      places[k] = row < mine ? place(me_ / 32 * mine + row) : nowhere;
    }
  }
  template <int Rows, int Bytes>
  __device__ void bring_rows(const std::uint32_t (&places)[rows_a_lane<Rows>],
                             const unsigned char* from, unsigned char* to) const {
    constexpr int mine = Rows / bringing_warps;
    constexpr int pieces = Bytes / 16;
    constexpr int at_once = 32 / pieces;  ///< rows
    static_assert(32 % pieces == 0 && Rows % bringing_warps == 0);
    const int first = lane() / pieces;
    const int at = lane() % pieces * 16;
    const int warp_row = me_ / 32 * mine;
#pragma unroll
    for (int k = 0; k < (mine + at_once - 1) / at_once; ++k) {
      const int row = k * at_once;
      const std::uint32_t place = __shfl_sync(~0U, places[row / 32], row % 32 + first);
      if (mine % at_once == 0 || row + first < mine) {
        copy_row_async(to + S::template at<Rows>(warp_row + first + row, at), from + at, place);
      }
    }
  }

  const int me_;
  int stage_ = 0, panel_ = 0;
};

/// A warp that computes.
template <class M, int Bp, bool Steps>
class Sweeper : SweepRole<M, Bp, Steps> {
  using Base = SweepRole<M, Bp, Steps>;
  using Base::a_, Base::state_, Base::shared_;
  using typename Base::S;

 public:
  __device__ Sweeper(const Arguments& a, Task task, SweepState<Bp>& state, unsigned char* shared)
      : Base(a, task, state, shared) {}

  /// The first masters, and the score so far: the kernel before does not touch them, and the one
  /// before that has ended.
  __device__ void start() {
    if (Base::count_ == 0) return;
    wait_for_tile(0);
    if (lane() != 0) return;
    const Panel& p = Base::tile_at(0).panel;
    bring_masters(p.master + p.first * p.n, p.m - p.first, p.n);
    state_.score[warp()][0] = score_place()[0];
    state_.score[warp()][1] = score_place()[2];
  }
  __device__ void run() {
    Sums<1> sums;
    clear<1>(sums);
    if (Base::count_ == 0) return;
    for (const SweepTile* t = &Base::tile_at(0);;) {  // there, as its masters were asked for
      work(sums, *t);
      const int number = static_cast<int>(t->number);
      const bool goes_on = t->ends != 2;
      arrive(&state_.tiles[number % S::tiles].empty);
      if (!goes_on) break;
      wait_for_tile(number + 1);
      t = &Base::tile_at(number + 1);
    }
    if constexpr (Steps) publish_score();
  }

 private:
  /// What follows from the thread's number is found anew in every phase of a tile: kept over all of
  /// them, it would take the registers that sums need.
  __device__ void begin_phase() { me_ = thread_number(); }
  [[nodiscard]] __device__ int warp() const { return me_ >> 5; }
  [[nodiscard]] __device__ int lane() const { return me_ & 31; }

  __device__ void work(Sums<1>& sums, const SweepTile& t) {
    if (t.forward != 0) {
      work_w0(sums, t);
    } else {
      work_w1(sums, t);
    }
    if (Steps && t.ends != 0) finish(sums, t);
  }
  __device__ void work_w0(Sums<1>& sums, const SweepTile& shared) {
    const SweepTile t = shared;  // or what is asked of it would be read again behind each barrier
    if (Base::publishes()) return pass(t);
    Fragment g;
    clear(g);
    gradient(g, t);
    move(g, t);
    if (Base::settles()) return bring_next_masters(t);
    multiply(sums, g, t);
  }
  __device__ void work_w1(Sums<1>& sums, const SweepTile& t) {
    if (Base::settles()) return pass(t);
    if (!Base::publishes()) put_copy(t.panel);
    errors(sums, t);
    bring_next_masters(t);
  }
  /// A tile that the task leaves as it is.
  __device__ void pass(const SweepTile& t) {
    begin_phase();
    (void)rows_of_n(t);
    leave_n(t);
    barrier_wait(&state_.masters[warp()], t.number & 1U);
    bring_next_masters(t);
  }

  __device__ void wait_for_tile(int tile) const {
    const Turns<S::tiles> turn{tile};
    barrier_wait(&state_.tiles[turn.place()].full, turn.parity());
  }
  /// Of the warp.
  __device__ void arrive(CopyBarrier* barrier) const {
    __syncwarp();
    if (warp_arrivals > 1 || lane() == 0) barrier_arrive(barrier);
  }
  template <class What>
  __device__ void with_stage(What&& what) {
    const Turns<S::stages> turn{stage_++};
    Exchange& exchange = state_.stages[turn.place()];
    barrier_wait(&exchange.full, turn.parity());
    what(shared_ + turn.place() * S::stage_bytes);
    arrive(&exchange.empty);
  }

  // W1's working copies, each 16 m as the first operand of y = W1 r lies in registers.

  /// The copy of 16 m of the panel, from the tile's `row` on, for the step in slot `slot`.
  __device__ unsigned char* copy_of(const Panel& p, int row, std::uint32_t slot) const {
    return reinterpret_cast<unsigned char*>(
        a_.work + slot * a_.flip +
        static_cast<std::size_t>(p.work + (p.first + static_cast<unsigned>(row)) / 16) *
            copy_words);
  }
  __device__ void load_copy(OutputWeights& w, const Panel& p, int row, int back) const {
    read_output_weights(w, copy_of(p, row, slot_before(state_.cursor.y, y_slots, back)), lane());
  }
  __device__ void store_copy(const Panel& p, const Fragment& w) const {
    if (!exists(p)) return;
    const unsigned long long policy = leaves_last();
    const std::uint32_t now = state_.cursor.y;
    unsigned char* to = copy_of(p, warp() * 16, Base::publishes() ? now : slot_after(now, y_slots));
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      const float* even = w[2 * i];
      const float* odd = w[2 * i + 1];
      store_held(reinterpret_cast<uint4*>(to) + i * 32 + lane(),
                 make_uint4(M::pair(even[0], even[1]), M::pair(even[2], even[3]),
                            M::pair(odd[0], odd[1]), M::pair(odd[2], odd[3])),
                 policy);
    }
    store_held(reinterpret_cast<uint2*>(to + 3 * 512) + lane(),
               make_uint2(M::pair(w[6][0], w[6][1]), M::pair(w[6][2], w[6][3])), policy);
  }

  [[nodiscard]] __device__ bool exists(const Panel& p) const { return p.first + warp() * 16 < p.m; }
  /// Of the four warps that multiply as one.
  [[nodiscard]] __device__ int group() const { return warp() >> 2; }
  [[nodiscard]] __device__ bool group_exists(const Panel& p) const {
    return p.first + group() * 64 < p.m;
  }
  [[nodiscard]] __device__ std::size_t place(const Panel& p) const {
    return p.master + static_cast<std::size_t>(p.first + warp() * 16) * p.n;
  }

  /// The rows of n of the tile's panel, once they are there.
  __device__ const unsigned char* rows_of_n(const SweepTile& t) {
    const Turns<S::n_buffers> turn{static_cast<int>(t.turn)};
    if (t.begins != 0) barrier_wait(&state_.n[turn.place()].full, turn.parity());
    return shared_ + S::n_start + turn.place() * S::n_bytes;
  }
  __device__ void leave_n(const SweepTile& t) const {
    const Turns<S::n_buffers> turn{static_cast<int>(t.turn)};
    if (t.ends != 0) arrive(&state_.n[turn.place()].empty);
  }

  /// g of a tile of W0, chunk by chunk of the sequences.
  __device__ void gradient(Fragment& g, const SweepTile& t) {
    begin_phase();
    const unsigned char* n = rows_of_n(t);
    for (int chunk = 0; chunk < S::chunks; ++chunk) {
      with_stage([&](const unsigned char* rows) {
        begin_phase();
        if constexpr (S::grouped) {
          if (group_exists(t.panel)) {
            multiply_group_gradient<S::rows, 1>(g, rows + group() * 64 * 128,
                                                n + chunk * panel_width * 128);
          }
        } else if (exists(t.panel)) {
          multiply_gradient<S::rows>(g, rows, warp() * 16, 0, n, chunk * S::chunk_bytes);
        }
      });
    }
    leave_n(t);
  }
  /// ... of W1, where the part of its rows has the warp's.
  __device__ void part_gradient(Fragment& g, const unsigned char* rows, const unsigned char* n,
                                int part) const {
    const int row = first_row() - part * S::part_rows;
    if constexpr (S::grouped) {
      multiply_group_gradient<S::part_rows, S::chunks>(g, rows + row * 128, n);
    } else {
      for (int start = 0; start < S::row_bytes; start += S::chunk_bytes) {
        multiply_gradient<S::part_rows>(g, rows, row, start, n, start);
      }
    }
  }
  /// First m of the warps that make a gradient as one.
  [[nodiscard]] __device__ int first_row() const { return S::grouped ? group() * 64 : warp() * 16; }
  [[nodiscard]] __device__ bool learns(const SweepTile& t, int part) const {
    return first_row() / S::part_rows == part && first_row() < Base::rows_of(t);
  }

  /// g += rows_m rows_n over a chunk of the sequences: byte `m_start` of rows `row` and on of
  /// `Rows`, byte `n_start` of rows_n.
  template <int Rows>
  __device__ void multiply_gradient(Fragment& g, const unsigned char* rows, int row, int m_start,
                                    const unsigned char* n_rows, int n_start) const {
    const int l = lane();
    const auto n_at = [&](int n, int byte) {
      return n_rows + S::template at<panel_width>(n, n_start + byte + (l >> 3 & 1) * 16);
    };
#pragma unroll
    for (int k = 0; k < S::chunk_bytes; k += 32) {
      std::uint32_t a[4], b0, b1;
      load_matrices(a, rows + S::template at<Rows>(row + (l & 15), m_start + k + (l >> 4) * 16));
#pragma unroll
      for (int i = 0; i < panel_tiles - 1; i += 2) {
        std::uint32_t b[4];
        load_matrices(b, n_at(i * 8 + (l & 7) + (l >> 4) * 8, k));
        M::multiply(g[i], a, b[0], b[1]);
        M::multiply(g[i + 1], a, b[2], b[3]);
      }
      load_two_matrices(b0, b1, n_at(48 + (l & 7), k));
      M::multiply(g[panel_tiles - 1], a, b0, b1);
    }
  }
  /// The same by four warps, straight from shared memory, over `Chunks` chunks of `Rows` rows.
  template <int Rows, int Chunks>
  __device__ void multiply_group_gradient(Fragment& g, const unsigned char* rows,
                                          const unsigned char* n_rows) const {
    const GroupOperand m = group_operand(rows);
    const GroupOperand n = group_operand(n_rows);
    __syncwarp();
    show_to_products();
    products_begin();
#pragma unroll
    for (unsigned chunk = 0; chunk < Chunks; ++chunk) {
#pragma unroll
      for (unsigned k = 0; k < 4; ++k) {
        M::template multiply_group<false>(g, m + chunk * (Rows * 8) + 2 * k,
                                          n + chunk * (panel_width * 8) + 2 * k);
      }
    }
    products_end();
  }

  /// Asynchronously, by one lane, the warp's own of a tile of m x n weights.
  __device__ void bring_masters(std::uint64_t first, unsigned m, unsigned n) const {
    const auto row = static_cast<unsigned>(warp() * 16);
    const unsigned bytes = row < m ? 64 * n : 0;
    barrier_expect(&state_.masters[warp()], bytes);
    if (bytes == 0) return;
    copy_bulk_async(masters(), a_.master + first + row * n, bytes, &state_.masters[warp()],
                    leaves_first());
  }
  __device__ float* masters() const {
    return reinterpret_cast<float*>(shared_ + masters_start<Bp>) + warp() * 16 * a_.shape.columns;
  }

  /// Z += gain g, where it lies, and back to device memory; g becomes W = Z + share g.
  __device__ void move(Fragment& g, const SweepTile& t) {
    begin_phase();
    const Panel& p = t.panel;
    const float* rates = state_.rates[t.forward == 0 && !Base::publishes() ? 1 : 0][p.layer];
    const float gain = rates[0], share = rates[1];
    barrier_wait(&state_.masters[warp()], t.number & 1U);
    if (!exists(p)) return;
    float* z_at = masters();
    change_floats(z_at, p.n, [&](int n, int k, float z) {
      const float moved = fmaf(gain, g[n][k], z);
      g[n][k] = fmaf(share, g[n][k], moved);
      return moved;
    });
    show_to_copies();
    __syncwarp();
    if (lane() == 0) store_bulk_async(a_.master + place(p), z_at, 64 * p.n, leaves_first());
  }
  /// Once the tile's masters have left their place the next ones may come.
  __device__ void bring_next_masters(const SweepTile& t) {
    begin_phase();
    __syncwarp();  // all have seen the tile's masters come
    if (lane() == 0) {
      stores_have_read();
      if (t.next_m != 0) bring_masters(t.next_master, t.next_m, t.next_n);
    }
    __syncwarp();
  }

  /// sums += what the tile of W0 adds, W(t) of which is `w`, to h.
  __device__ void multiply(Sums<1>& sums, const Fragment& w, const SweepTile& t) {
    begin_phase();
    barrier_wait(&state_.fresh, 1);  // all have read that of the tile before
    put_fresh(w);
    arrive(&state_.fresh);
    bring_next_masters(t);
    barrier_wait(&state_.fresh, 0);
    for (int part = 0; part < Base::parts_of(Base::rows_of(t)); ++part) {
      begin_phase();
      with_stage([&](const unsigned char* rows) {
        if (works(t, part)) multiply_rows(sums, rows, part);
      });
    }
    arrive(&state_.fresh);
  }
  /// First m of the warp's share of the depth of a product's part.
  [[nodiscard]] __device__ int deep_row() const { return warp() / S::across * S::part_depth; }
  /// Whether the share has any.
  [[nodiscard]] __device__ bool works(const SweepTile& t, int part) const {
    return part * S::part_rows + deep_row() < Base::rows_of(t);
  }
  /// The end of a part.
  __device__ void finish(Sums<1>& sums, const SweepTile& t) {
    begin_phase();
    if constexpr (S::deep == 2) add_halves(sums);
    store_part(t, sums);
    clear<1>(sums);
  }

  /// sums += what a tile of W1 adds to W1^T d1, and it learns from d1.
  __device__ void errors(Sums<1>& sums, const SweepTile& t) {
    begin_phase();
    const unsigned char* n = rows_of_n(t);
    if (!Base::publishes()) barrier_wait(&state_.fresh, 0);
    ErrorSums score;
    for (int part = 0; part < Base::parts_of(Base::rows_of(t)); ++part) {
      begin_phase();
      const Turns<S::stages> turn{stage_++};
      if (Base::publishes()) {  // d1 of the step before, for W1's copy alone
        barrier_wait(&state_.stages[turn.place()].full, turn.parity());
      } else {
        multiply_errors(sums, score, turn, n, t, part);
      }
      learn(turn, n, t, part);
    }
    leave_n(t);
    if (Base::publishes()) return;
    arrive(&state_.fresh);
    add_score(score);
  }
  /// A part's targets become d1, where they are, and are multiplied with W(t).
  __device__ void multiply_errors(Sums<1>& sums, ErrorSums& score, const Turns<S::stages>& turn,
                                  const unsigned char* n, const SweepTile& t, int part) {
    turn_into_errors(score, turn, n, t, part);
    if constexpr (S::grouped) show_to_products();
    if constexpr (S::readers > 1) {
      sync_warps(1 + warp() / S::readers, S::readers * 32);
    } else {
      __syncwarp();
    }
    if constexpr (S::chunks > 1) {
      barrier_wait(&state_.errors, errors_ ^ 1U);  // or it would count for the part before
      arrive(&state_.errors);
    }
    if (works(t, part)) multiply_rows(sums, shared_ + turn.place() * S::stage_bytes, part);
    if constexpr (S::chunks > 1) {  // the gradient needs those of all sequences
      if (learns(t, part)) barrier_wait(&state_.errors, errors_);
      errors_ ^= 1U;
    }
  }
  /// Where the stage, d1 of a part, has the warp's m, they learn from it.
  __device__ void learn(const Turns<S::stages>& turn, const unsigned char* n, const SweepTile& t,
                        int part) {
    Exchange& exchange = state_.stages[turn.place()];
    if (!learns(t, part)) return arrive(&exchange.empty);
    Fragment g;
    clear(g);
    part_gradient(g, shared_ + turn.place() * S::stage_bytes, n, part);
    arrive(&exchange.empty);
    move(g, t);
    store_copy(t.panel, g);
  }
  /// Of 16 m of a part and a chunk of the sequences. Rows that do not exist came as zeros.
  __device__ void turn_into_errors(ErrorSums& score, const Turns<S::stages>& turn,
                                   const unsigned char* n, const SweepTile& t, int part) {
    const int row = warp() % S::makers * 16, first = part * S::part_rows + row;
    CopyBarrier* full = &state_.stages[turn.place()].full;
    if (first >= Base::rows_of(t)) return barrier_wait(full, turn.parity());
    OutputWeights w;
    load_copy(w, t.panel, first, 2);
    barrier_wait(full, turn.parity());
    const int chunk = warp() / S::makers;
    const ErrorBlock<M> block(a_.shape, lane(), Base::rows_of(t) - first,
                              static_cast<int>(t.pixels) - first);
    const unsigned char* r = n + chunk * panel_width * S::row_stride;
    unsigned char* rows =
        shared_ + turn.place() * S::stage_bytes + (chunk * S::part_rows + row) * S::row_stride;
    const std::uint16_t* who = state_.who + chunk * (S::chunk_bytes / 16);
    // of the first values in a slot of a ring of all outputs, 16 bytes each
    const std::uint32_t start = (t.outputs + static_cast<unsigned>(first)) * (S::row_bytes / 16) +
                                static_cast<unsigned>(chunk * (S::chunk_bytes / 16));
    const bool plain = block.plain() && state_.cursor.given == 0 && !state_.keeps;
    with_derivative<M>(a_.shape.activation, state_.cursor.step, [&](auto derivative) {
      if (plain) {
        turn_rows<true>(score, rows, r, w, block, who, start, derivative);
      } else {
        turn_rows<false>(score, rows, r, w, block, who, start, derivative);
      }
    });
  }
  template <bool Plain, class Derivative>
  __device__ __forceinline__ void turn_rows(ErrorSums& score, unsigned char* rows,
                                            const unsigned char* r, const OutputWeights& w,
                                            const ErrorBlock<M>& block, const std::uint16_t* who,
                                            std::uint32_t start, Derivative derivative) const {
    const int l = lane();
    const int target = S::template at<S::part_rows>(l & 15, (l >> 4) * 16);
    const int upper = S::template at<panel_width>(l & 15, (l >> 4) * 16);
    const int last = S::template at<panel_width>(48 + (l & 7), (l >> 3 & 1) * 16);
#pragma unroll 1
    for (int at = 0; at < S::chunk_bytes; at += 32) {
      float y[2][4];
      if (!Plain && state_.cursor.given != 0) {
        block.read_outputs(y,
                           a_.y + slot_bytes(slot_before(state_.cursor.y, y_slots, 2), start) + at,
                           S::row_bytes);
      } else {
        multiply_outputs<M, 16 * S::row_stride>(y, w, r + S::further(upper, at),
                                                r + S::further(last, at));
        activate_outputs<M>(y, ActivationOf<M, Derivative>{});
      }
      unsigned char* piece = rows + S::further(target, at);
      std::uint32_t d1[4];
      load_matrices(d1, piece);
      block.template make<Plain>(d1, score, derivative, y, who + at / 16);
      store_matrices(piece, d1);
      if (!Plain && state_.keeps) {
        block.keep(d1, a_.d1 + slot_bytes(state_.cursor.gradient, start) + at, S::row_bytes);
      }
    }
  }
  /// Bytes to the `start`-th 16 bytes of a slot of a ring of all outputs.
  [[nodiscard]] __device__ std::size_t slot_bytes(std::uint32_t slot, std::uint32_t start) const {
    return (static_cast<std::size_t>(slot) * static_cast<std::size_t>(a_.shape.outputs) *
                (S::row_bytes / 16) +
            start) *
           16;
  }
  __device__ void add_score(ErrorSums score) const {
    for (int other = 16; other > 0; other /= 2) {
      score.prediction += __shfl_xor_sync(~0U, score.prediction, other);
      score.loss += __shfl_xor_sync(~0U, score.loss, other);
    }
    if (lane() != 0) return;
    state_.score[warp()][0] += static_cast<double>(score.prediction);
    state_.score[warp()][1] += static_cast<double>(score.loss);
  }
  __device__ void publish_score() {
    begin_phase();
    if (lane() != 0) return;
    score_place()[0] = state_.score[warp()][0];
    score_place()[2] = state_.score[warp()][1];
  }
  /// The warp's place of it.
  [[nodiscard]] __device__ double* score_place() const {
    return a_.score + (blockIdx.x * S::warps + static_cast<unsigned>(warp())) * 3;
  }

  /// W(t) of the tile, [m][56], for all warps after the next barrier.
  __device__ void put_fresh(const Fragment& w) const {
    put_pairs([&](int n, int k) { return M::pair(w[n][2 * k], w[n][2 * k + 1]); });
  }
  /// pair(tile of 8, row of two) being two columns of it.
  template <class Pair>
  __device__ void put_pairs(Pair&& pair) const {
    unsigned char* to = shared_ + S::fresh_start + (warp() * 16 + (lane() >> 2)) * S::fresh_stride +
                        (lane() & 3) * 4;
    const int move = S::moved ? lane() >> 2 : 0;
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
      const int at = (n ^ move) * 16;
      *reinterpret_cast<std::uint32_t*>(to + at) = pair(n, 0);
      *reinterpret_cast<std::uint32_t*>(to + 8 * S::fresh_stride + at) = pair(n, 1);
    }
    if constexpr (S::grouped) show_to_products();
  }
  /// The same of W1, from its copy.
  __device__ void put_copy(const Panel& p) {
    begin_phase();
    OutputWeights w{};
    if (exists(p)) load_copy(w, p, warp() * 16, 0);
    barrier_wait(&state_.fresh, 1);  // all have read that of the tile before
    put_pairs([&](int n, int k) { return w[2 * n + k]; });
    arrive(&state_.fresh);
  }

  /// sums += rows W for a part of the tile's m: a warp's 16 sequences and its share of the depth.
  __device__ void multiply_rows(Sums<1>& sums, const unsigned char* rows, int part) const {
    if constexpr (S::grouped) return multiply_group_rows(sums, rows, part);
    const int l = lane();
    const int first = deep_row();
    const unsigned char* w =
        shared_ + S::fresh_start + (part * S::part_rows + first + (l & 15)) * S::fresh_stride;
    const auto w_at = [&](int k, int n) {
      return w + k * S::fresh_stride + (S::moved ? n ^ (l & 7) : n) * 16;
    };
#pragma unroll
    for (int k = 0; k < S::part_depth; k += 16) {
      std::uint32_t a[4], b0, b1;
      const int row = first + k + (l & 7) + (l >> 4) * 8;
      const int byte = warp() % S::across * 32 + (l >> 3 & 1) * 16;
      load_matrices_transposed(a, rows + S::template at<S::part_rows>(row, byte));
#pragma unroll
      for (int i = 0; i < panel_tiles - 1; i += 2) {
        std::uint32_t b[4];
        load_matrices_transposed(b, w_at(k, i + (l >> 4)));
        M::multiply(sums[0][i], a, b[0], b[1]);
        M::multiply(sums[0][i + 1], a, b[2], b[3]);
      }
      load_two_matrices_transposed(b0, b1, w_at(k, panel_tiles - 1));
      M::multiply(sums[0][panel_tiles - 1], a, b0, b1);
    }
  }
  /// The same by four warps: 64 sequences.
  __device__ void multiply_group_rows(Sums<1>& sums, const unsigned char* rows, int part) const {
    const int first = deep_row();
    const int chunk = warp() % S::across >> 2;
    const GroupOperand x = group_operand(rows + (chunk * S::part_rows + first) * 128);
    const GroupOperand w =
        group_operand(shared_ + S::fresh_start + (part * S::part_rows + first) * 128);
    __syncwarp();
    show_to_products();
    products_begin();
#pragma unroll
    for (int k = 0; k < S::part_depth / 16; ++k) {
      M::template multiply_group<true>(sums[0], x + 128 * static_cast<unsigned>(k),
                                       w + 128 * static_cast<unsigned>(k));
    }
    products_end();
  }

  /// The first half of the warps gains what the second has, which worked on the rest of the depth.
  __device__ void add_halves(Sums<1>& sums) const {
    static_assert(S::across * panel_tiles * 32 * 16 <= S::rows * S::fresh_stride);
    auto* at = reinterpret_cast<float4*>(shared_ + S::fresh_start) +
               warp() % S::across * panel_tiles * 32 + lane();
    const bool gives = warp() >= S::across;
    barrier_wait(&state_.fresh, 1);  // nobody reads W(t) any more
    if (gives) put(at, sums);
    arrive(&state_.fresh);
    barrier_wait(&state_.fresh, 0);
    if (!gives) {
#pragma unroll
      for (int n = 0; n < panel_tiles; ++n) {
        const float4 more = at[n * 32];
        sums[0][n][0] += more.x;
        sums[0][n][1] += more.y;
        sums[0][n][2] += more.z;
        sums[0][n][3] += more.w;
      }
    }
    arrive(&state_.fresh);
  }
  __device__ static void put(float4* to, const Sums<1>& sums) {
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
      to[n * 32] = make_float4(sums[0][n][0], sums[0][n][1], sums[0][n][2], sums[0][n][3]);
    }
  }
  /// The block's part of a unit's sums is complete; the second kernel adds the parts up.
  __device__ void store_part(const SweepTile& t, const Sums<1>& sums) const {
    if (warp() >= S::kept) return;
    // of the last tile's rows, from the lane's on, those that exist: nobody reads the others
    const int rest = static_cast<int>(t.panel.n) - (panel_tiles - 1) * 8 - (lane() & 3) * 2;
    float* to = sweep_part<Bp>(a_, t.part) +
                (warp() / S::across * panel_width + (lane() & 3) * 2) * Bp +
                warp() % S::across * 16 + (lane() >> 2);
#pragma unroll
    for (int n = 0; n < panel_tiles; ++n) {
      const float* v = sums[0][n];
      float* at = to + n * 8 * Bp;
      if (n + 1 < panel_tiles || rest > 0) {
        at[0] = v[0];
        at[8] = v[2];
      }
      if (n + 1 < panel_tiles || rest > 1) {
        at[Bp] = v[1];
        at[Bp + 8] = v[3];
      }
    }
  }

  int me_ = thread_number();
  int stage_ = 0;
  unsigned errors_ = 0;  ///< parity of the next errors that warps share
};

/// Blocks have tiles as the plan says. In a step the cursor goes on to the second kernel. What
/// steps run is a kernel of its own: the instruction cache has no room for more.
template <class M, int Bp, bool Steps>
__global__ void __launch_bounds__(SweepShape<Bp>::threads, SweepShape<Bp>::blocks)
    sweep_kernel(const __grid_constant__ Arguments a, Task task) {
  using S = SweepShape<Bp>;
  auto* shared = aligned_dynamic_shared();
  auto& state = *reinterpret_cast<SweepState<Bp>*>(shared + S::state_start);
  const auto i = static_cast<int>(threadIdx.x);
  let_next_kernel_start();
  if (i == 0) {
    const auto prepare = [](Exchange& exchange, unsigned arrivals) {
      barrier_init(&exchange.full, arrivals);
      barrier_init(&exchange.empty, S::warps * warp_arrivals);
    };
    for (Exchange& exchange : state.stages) prepare(exchange, S::bringers);
    for (Exchange& exchange : state.n) prepare(exchange, S::bringers);
    for (Exchange& exchange : state.tiles) prepare(exchange, 1);
    for (CopyBarrier& masters : state.masters) barrier_init(&masters, 1);
    barrier_init(&state.fresh, S::warps * warp_arrivals);
    barrier_init(&state.errors, S::warps * warp_arrivals);
  }
  __syncthreads();
  const bool brings = i >= S::warps * 32;
  Bringer<M, Bp, Steps> bringer(a, task, state, shared);
  Sweeper<M, Bp, Steps> sweeper(a, task, state, shared);
  if (brings) {
    bringer.start();
  } else {
    sweeper.start();
  }
  wait_for_previous_kernel();
  if (brings) {
    bringer.look();
    bringer.run();
    return;
  }
  const Cursor cursor = a.first->cursor;
  if (i == 0) state.cursor = cursor;
  if (Steps && i == 0 && blockIdx.x == 0) *a.second = cursor;
  if (i < Bp / 8) {
    state.who[i] =
        static_cast<std::uint16_t>(ErrorMath<M>::look(a, cursor, static_cast<std::size_t>(i) * 8));
  }
  if (i < 2 * a.shape.layers) {
    const int layer = i >> 1, now = i & 1;
    const float* table =
        a.tables + static_cast<std::size_t>(slot_before(cursor.frame, a.shape.frames, 1 - now)) *
                       static_cast<std::size_t>(a.shape.table);
    const float* rates = table + 4 + layer * 2 * a.shape.terms;
    state.rates[now][layer][0] = now != 0 || cursor.owed != 0 ? rates[0] : 0.0F;
    state.rates[now][layer][1] = rates[1];
    if (i == 1) state.keeps = table[1] != 0.0F;
  }
  sync_warps(sweepers_meet, S::warps * 32);
  sweeper.run();
}

/// Launches `sweep_kernel` for a batch that is known at run time.
template <class M>
struct SweepLauncher {
  int padded;
  int columns;  ///< most n of a panel
  bool early;

  /// Whether there is a kernel for so many sequences.
  [[nodiscard]] static bool knows(int padded) {
    return padded == 16 || padded == 32 || padded == 64 || padded == 128 || padded == 256;
  }
  /// Blocks of threads that a multiprocessor runs at once.
  [[nodiscard]] static unsigned int blocks_each(int padded) {
    return static_cast<unsigned int>(padded == 256 ? SweepShape<256>::blocks
                                                   : SweepShape<128>::blocks);
  }

  template <class What>
  void for_batch(What&& what) const {
    with_constant<16, 32, 64, 128, 256>(padded, what);
  }
  /// Of a block of threads.
  [[nodiscard]] int shared_bytes() const {
    int bytes = 0;
    for_batch([&]<int Bp>() { bytes = sweep_shared_bytes<Bp>(columns); });
    return bytes;
  }
  /// Once, before the first launch.
  void prepare() const {
    for_batch([&]<int Bp>() {
      for (const auto kernel : {sweep_kernel<M, Bp, true>, sweep_kernel<M, Bp, false>}) {
        cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                        shared_bytes()),
                   "preparing the sweep kernel");
      }
    });
  }
  void operator()(const Arguments& a, Task task, unsigned int blocks, cudaStream_t stream) const {
    for_batch([&]<int Bp>() {
      const auto kernel =
          task == Task::learn ? sweep_kernel<M, Bp, true> : sweep_kernel<M, Bp, false>;
      cuda_check(launch(kernel,
                        {dim3(blocks), SweepShape<Bp>::threads,
                         static_cast<std::size_t>(shared_bytes()), stream, early},
                        a, task),
                 "launching the sweep kernel");
    });
  }
};

}  // namespace pvm::inline v0::detail::batch
