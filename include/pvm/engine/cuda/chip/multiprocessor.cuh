// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a multiprocessor does for its units in a step, piece by piece. Who does which piece, and
/// when, is in resident.cuh, specialised.cuh and streamed.cuh; how a block of weights is multiplied
/// and folded in blocks_16bit.cuh and blocks_fp32.cuh.

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
      Base::unit_count, Base::past, Base::history_row, Base::seen, Base::weights_of, Base::folds_of,
      Base::list_of, Base::age_of, Base::table_place, Base::outputs_of;
  template <class T>
  __device__ __forceinline__ const T* list(std::uint32_t at) const {
    return Base::template list<T>(at);
  }

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

  /// Sums 32 values over the lanes; lane i gets the sum of value i.
  template <int Half = 16>
  __device__ __forceinline__ float sum_each(float (&v)[32]) const {
    const bool upper = (lane() & Half) != 0;
#pragma unroll
    for (int i = 0; i < Half; ++i) {
      const float send = upper ? v[i] : v[i + Half];
      const float keep = upper ? v[i + Half] : v[i];
      v[i] = keep + __shfl_xor_sync(every_lane, send, Half);
    }
    if constexpr (Half > 1) {
      return sum_each<Half / 2>(v);
    } else {
      return v[0];
    }
  }

  // -------------------------------------------------------------- a launch's start and end

  __device__ __forceinline__ void begin(unsigned long long step) const {
    ChipNow& n = now(0);
    n.step = step;
    n.phase = static_cast<int>(step % static_cast<unsigned>(a.period));
    n.lag = static_cast<int>(step % S::lags);
  }
  __device__ __forceinline__ void begin_launch() const {
    const Cursor cursor = *a.cursor;
    begin(cursor.step);
    now(0).frame = 0;
    ChipLaunch& l = launch();
    const std::size_t staging = cursor.block % static_cast<unsigned>(a.staging);
    const std::size_t tables = static_cast<std::size_t>(a.block_steps + 1) * a.layers;
    const std::size_t rows = staging * a.block_steps + cursor.frame;
    const std::uint32_t* index = a.index + staging * (1 + tables);
    const int left =
        static_cast<int>(index[0] & ~frames_are_floats) - static_cast<int>(cursor.frame);
    l.count = max(0, min(left, a.most_steps));
    l.ends = l.count == left;
    l.index = index + 1 + static_cast<std::size_t>(cursor.frame) * a.layers;
    l.coefficients = a.coefficients + staging * tables * a.table_stride;
    l.frames = a.frames + rows;
    l.scored = a.scored + rows;
    const std::size_t frame = static_cast<std::size_t>(a.patches) * a.patch;
    l.squeezed = (index[0] & frames_are_floats) != 0 ? a.squeezed + rows * frame : nullptr;
  }
  /// What steps need to know of their frames, to shared memory.
  __device__ __forceinline__ void load_launch() const {
    const ChipLaunch& l = launch();
    for (int i = thread; i < l.count; i += S::threads) {
      frames()[i] = l.squeezed == nullptr ? l.frames[i] : nullptr;
      shared[ChipAreas::scored + i] = l.scored[i];
    }
    for (int i = thread; i < l.count * unit_count(); i += S::threads) {
      const int u = i % unit_count();
      const int step = i / unit_count();
      area(u)[S::rates + static_cast<std::uint32_t>(step)] =
          l.index[static_cast<std::size_t>(step) * a.layers + unit(u).layer];
    }
    const int line = a.block_size * a.channels;
    for (int k = thread; k < a.patch; k += S::threads) {
      shared[ChipAreas::offsets + k] =
          static_cast<std::uint32_t>(k / line * a.side * a.channels + k % line);
    }
  }
  __device__ __forceinline__ const std::uint8_t** frames() const {
    return reinterpret_cast<const std::uint8_t**>(shared + ChipAreas::frames);
  }
  __device__ __forceinline__ void end_launch() const {
    const ChipLaunch& l = launch();
    Cursor end = *a.cursor;
    end.step += static_cast<unsigned>(l.count);
    end.frame += static_cast<unsigned>(l.count);
    if (l.ends) {
      end.frame = 0;
      ++end.block;
    }
    *a.cursor = end;
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
  /// The past from device memory to shared memory.
  __device__ __forceinline__ void load_past() const {
    const unsigned long long t = now().step;
    for (std::uint32_t i = static_cast<std::uint32_t>(thread); i < p.x_words; i += S::threads)
      shared[p.x + i] = 0;
    constexpr int parts = (S::multipliers + 1) * S::values + S::multipliers * S::part1_words;
    if (thread < unit_count()) area(thread)[S::opened] = ~0U;
    for (int i = thread; i < unit_count() * parts; i += S::threads) {
      float_area(i / parts)[S::part0 + static_cast<std::uint32_t>(i % parts)] = 0;
    }
    for (int i = thread; i < S::warps * 3; i += S::threads) {
      reinterpret_cast<double*>(shared + ChipAreas::score)[i] =
          a.score[static_cast<std::size_t>(blockIdx.x) * S::warps * 3 + i];
    }
    __syncthreads();
    const auto step_of = [&](int i) { return t - 1 - static_cast<unsigned>(i) + 2 * ring; };
    struct Values {
      float hidden, d0;
      std::uint32_t squeezed;
    };
    copy_each(
        unit_count() * history * Hidden, thread, S::threads,
        [&](int k) -> Values {
          const unsigned long long step = step_of(k / Hidden % history);
          const int i = k % Hidden;
          const std::uint32_t number = unit(k / Hidden / history).unit;
          const std::size_t at = number * Hidden + i;
          return {
              __ldcg(a.hidden + static_cast<std::size_t>(step & (ring - 1)) * a.hidden_row + at),
              __ldcg(a.d0 + static_cast<std::size_t>(step & (history - 1)) * a.hidden_row + at),
              __ldcg(past(step) + number * S::record + in_pieces(i))};
        },
        [&](int k, Values v) {
          const unsigned long long step = step_of(k / Hidden % history);
          const int i = k % Hidden, u = k / Hidden / history;
          history_row(S::hidden, u, step)[i] = v.hidden;
          history_row(S::d0, u, step)[i] = v.d0;
          history_row(S::squeezed, u, step)[i] = Words::unpack(v.squeezed);
          if (i == 0) history_row(S::hidden, u, step)[Hidden] = 1;  // r of the bias
        });
    if constexpr (!S::streams) {
      copy_each(
          static_cast<int>(2 * p.out_count), thread, S::threads,
          [&](int i) { return __ldcg(&all_output(i)); },
          [&](int i, float v) { own_output(i) = v; });
    }
    for (int u = 0; u < unit_count(); ++u) {
      const ChipUnit& my = unit(u);
      if (thread == 0) shared[my.one] = Words::pack(1.0F);
      if (my.patch == not_a_patch) continue;
      const auto base = static_cast<int>(my.base);
      copy_each(
          history * base, thread, S::threads,
          [&](int i) {
            return __ldcg(past(step_of(i / base)) + a.first_patch + my.patch * a.patch_record +
                          in_pieces(i % base));
          },
          [&](int i, std::uint32_t v) {
            seen(my, step_of(i / base))[i % base] = Words::unpack(v);
            // The last is B now.
            if (i < base) shared[my.x + ((t & 1) != 0 ? 0 : my.padded) + i] = v;
          });
    }
    // Primary sources of step t - 1 are c(h(t-2)).
    gather_values(t - 2, (t & 1) == 0, thread, S::threads);
  }

  /// The rows beside the tiles of this warp's blocks of W0.
  __device__ __forceinline__ void load_rests() const {
    copy_each(
        this->my_count() * S::rest_words, lane(), 32,
        [&](int i) {
          const ChipBlock& block = this->my_blocks()[i / S::rest_words];
          return this->beside_word(block, i % S::rest_words);
        },
        [&](int i, std::uint32_t word) {
          this->rest_of(i / S::rest_words)[i % S::rest_words] = word;
        });
  }
  /// W1, its last rows, and the listed d1 beside them.
  __device__ __forceinline__ void load_wide_weights() const {
    const auto* blocks = list<ChipWideBlock>(p.wide_blocks);
#pragma unroll 1
    for (std::uint32_t k = p.wide_start[warp()]; k < p.wide_start[warp() + 1]; ++k) {
      const ChipWideBlock& block = blocks[k];
      const ChipUnit& my = unit(static_cast<int>(block.what & 0xff));
      const std::uint32_t out = my.all_out + block.out - my.out;
      this->store_list(list_of(block.out), block, [&](int e, int o) {
        const unsigned long long step = now().step + history - 1 - static_cast<unsigned>(age_of(e));
        return a.d1 + static_cast<std::size_t>(step & (history - 1)) * a.output_row + out + o;
      });
      if constexpr (!S::streams) {
        if (block.where == in_memory) continue;
        Weights w;
        this->load_streamed(w, this->streamed(block));
        this->store_wide(block, w);
      }
    }
  }

  // -------------------------------------------------------------- gather

  /// Values of sources of step `step` to x, in the places of even or odd steps; waits for them. The
  /// work of `count` threads, of which this is number `me`.
  __device__ __forceinline__ void gather_values(unsigned long long step, bool odd, int me,
                                                int count) const {
    constexpr int at_once = S::specialised ? 6 : 4;
    constexpr std::uint32_t whole = 1U << 31;  // all three words of a piece are values
    const std::uint32_t* from = past(step);
    const auto mark = static_cast<std::uint32_t>(step + 1);
    const int pieces = static_cast<int>(p.slot_count) * S::value_pieces;
    const auto* slots = list<ChipSlot>(p.slots);
#pragma unroll 1
    for (int first = me; first < pieces; first += at_once * count) {
      uint4 v[at_once];
      std::uint32_t at[at_once], to[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const auto k = static_cast<std::uint32_t>(min(first + i * count, pieces - 1));
        const ChipSlot slot = slots[k / S::value_pieces];
        const std::uint32_t piece = k % S::value_pieces;
        at[i] = slot.from + piece * 4;
        to[i] = (odd ? slot.to >> 16 : slot.to & 0xffffU) + piece * 3;
        if (piece * 3 + 2 < Hidden) to[i] |= whole;
        v[i] = receive_piece(from + at[i]);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        while (v[i].w != mark) v[i] = receive_piece(from + at[i]);
        std::uint32_t* words = shared + (to[i] & ~whole);
        words[0] = v[i].x;
        if (Hidden % 3 == 2 || (to[i] & whole) != 0) words[1] = v[i].y;
        if ((to[i] & whole) != 0) words[2] = v[i].z;
      }
    }
  }

  /// A lane's piece of a source's inner products. As many lanes as there are pieces have a
  /// source's.
  struct Products {
    float v[3];
  };
  /// Where this lane's piece of a source's products is in a row.
  __device__ __forceinline__ std::uint32_t products_at(const ChipSlot& slot) const {
    return slot.from + 4 * (S::value_pieces + lane() % S::product_pieces);
  }
  __device__ __forceinline__ static void add_products(Products& sum, uint4 piece, const float* w) {
    sum.v[0] += w[0] * __uint_as_float(piece.x);
    sum.v[1] += w[1] * __uint_as_float(piece.y);
    sum.v[2] += w[2] * __uint_as_float(piece.z);
  }
  /// Where in a row of the past this lane finds its piece of a panel's: listed, or, to save shared
  /// memory, found anew.
  __device__ __forceinline__ std::uint32_t product_place(const ChipUnit& my,
                                                         std::uint32_t panel) const {
    if constexpr (!S::streams) {
      return shared[my.products + panel * 32 + static_cast<unsigned>(lane())];
    }
    const ChipPanel& there = list<ChipPanel>(p.panels)[my.first_panel + panel];
    const auto source = static_cast<std::uint32_t>(lane() / S::product_pieces);
    if (source >= min(there.count, static_cast<std::uint32_t>(panel_slots))) return no_product;
    return products_at(list<ChipSlot>(p.slots)[there.first + source]);
  }
  /// The sum over the sources; lane i gets that of age i.
  __device__ __forceinline__ float over_sources(const Products& sum) const {
    float out = 0;
#pragma unroll
    for (int i = 0; i < 3; ++i) {
      float v = sum.v[i];
      float all = v;
#pragma unroll
      for (int s = 1; s < panel_slots; ++s) {
        all += __shfl_sync(every_lane, v, (lane() + s * S::product_pieces) & 31);
      }
      const float mine = __shfl_sync(every_lane, all, lane() / 3);
      if (lane() % 3 == i) out = mine;
    }
    return out;
  }
  /// A piece that may not be there yet, and where it comes to, if anywhere.
  struct Asked {
    const std::uint32_t* at;
    uint4 piece;
  };
  /// Asks for this lane's piece of what some of a unit's primary sources, from number `from`, send
  /// in step `step`.
  __device__ __forceinline__ Asked ask_primary(int u, unsigned long long step,
                                               std::uint32_t from) const {
    const ChipPanel& panel = list<ChipPanel>(p.panels)[unit(u).first_panel];
    const std::uint32_t s = from + static_cast<std::uint32_t>(lane() / S::product_pieces);
    if (s >= panel.count || lane() >= panel_slots * S::product_pieces) return {nullptr, {}};
    const std::uint32_t* at = past(step) + products_at(list<ChipSlot>(p.slots)[panel.first + s]);
    return {at, receive_piece(at)};
  }
  /// The sum over the primary sources of a unit of the products that they sent in step `step`, the
  /// first of which were asked for.
  __device__ __forceinline__ float primary_products(int u, unsigned long long step,
                                                    Asked asked) const {
    const std::uint32_t count = list<ChipPanel>(p.panels)[unit(u).first_panel].count;
    const float ones[3] = {1, 1, 1};
    Products sum = {{0, 0, 0}};
#pragma unroll 1
    for (std::uint32_t from = 0;;) {
      if (asked.at != nullptr) {
        while (asked.piece.w != static_cast<std::uint32_t>(step + 1)) {
          asked.piece = receive_piece(asked.at);
        }
        add_products(sum, asked.piece, ones);
      }
      from += panel_slots;
      if (from >= count) return over_sources(sum);
      asked = ask_primary(u, step, from);
    }
  }
  /// Of the products of the primary sources, or of a patch, by age.
  __device__ __forceinline__ float* primary_sums(int u, unsigned long long step) const {
    return float_area(u) + S::primary + static_cast<unsigned>(step & 1) * sums;
  }
  /// What the listed gradients add to a unit's W0 x, one warp's work: the sum over ages of T d0(j),
  /// where T is the sum over the blocks that fold together of w(age) x(j-2).x(t).
  __device__ __forceinline__ void listed_share(int u) const {
    const unsigned long long t = now().step;
    const ChipUnit& my = unit(u);
    const bool patch = my.patch != not_a_patch;
    const std::uint32_t first = patch ? 0 : 1;
    const std::uint32_t* sent = past(t - 1 + ring);
    const auto mark = static_cast<std::uint32_t>(t);
    constexpr int at_once = S::streams ? 3 : 4;
    Asked primary{};
    if (!patch) primary = ask_primary(u, t - 1, 0);
    Products sum = {{0, 0, 0}};
#pragma unroll 1
    for (std::uint32_t from = first; from < my.panels; from += at_once) {
      uint4 piece[at_once] = {};
      std::uint32_t at[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        at[i] = from + i < my.panels ? product_place(my, from + i) : no_product;
        if (at[i] != no_product) piece[i] = receive_piece(sent + at[i]);
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        if (at[i] == no_product) continue;
        while (piece[i].w != mark) piece[i] = receive_piece(sent + at[i]);
        const ChipPanel& panel = list<ChipPanel>(p.panels)[my.first_panel + from + i];
        add_products(
            sum, piece[i],
            weights_of(u, static_cast<int>(panel.phase)) + 3 * (lane() % S::product_pieces));
      }
    }
    __syncwarp();
    float total = over_sources(sum);
    float products = 0;  // of A
    if (patch) {
      if (lane() < sums) products = primary_sums(u, t)[lane()];
    } else {
      products = primary_products(u, t - 1, primary);
      if (lane() < sums) primary_sums(u, t)[lane()] = products;
    }
    if (lane() < S::terms) {
      total += weights_of(u, static_cast<int>(my.own_phase[0]))[lane()] * products;
      total +=
          weights_of(u, static_cast<int>(my.own_phase[1]))[lane()] * primary_sums(u, t + 1)[lane()];
      total += weights_of(u, static_cast<int>(my.own_phase[2]))[lane()];
    }
    constexpr int rows = (Hidden + 31) / 32;
    float share[rows];
#pragma unroll
    for (int k = 0; k < rows; ++k) share[k] = 0;
#pragma unroll
    for (int age = 0; age < S::terms; ++age) {
      const float weight = __shfl_sync(every_lane, total, age);
      const float* d0 = history_row(S::d0, u, t - 1 - age + history);
#pragma unroll
      for (int k = 0; k < rows; ++k) {
        const int i = lane() + 32 * k;
        if (i < Hidden) share[k] += weight * d0[i];
      }
    }
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const int i = lane() + 32 * k;
      if (i < Hidden) float_area(u)[S::listed_part + i] = share[k];
    }
  }
  /// The tables of this step's rates, where they are others than those that are there.
  __device__ __forceinline__ void open_tables(int u) const {
    const std::uint32_t table = area(u)[S::rates + static_cast<unsigned>(now().frame)];
    if (table == area(u)[S::opened]) return;
    __syncwarp();
    if (lane() == 0) area(u)[S::opened] = table;
    const float* from = launch().coefficients + static_cast<std::size_t>(table) * a.table_stride;
    const int square = a.period * S::terms;
#pragma unroll 1
    for (int k = lane(); k < (a.period + 1) * sums; k += 32) {
      const int since = k / sums;
      const int age = k % sums;
      const bool folds = since == a.period;
      float v = 0;
      if (age < S::terms) v = __ldg(from + (folds ? 2 * square : since * S::terms) + age);
      if (age == sums - 2) v = 1;
      // Of the row of folds: how many of them there are.
      if (age == sums - 1 && folds) v = __ldg(from + 2 * square + S::terms);
      (folds ? folds_of(u) : float_area(u) + S::tables + since * sums)[age] = v;
    }
    __syncwarp();
  }

  /// A of a unit that sees a patch, for the frame `ahead_by` behind the current one, and its inner
  /// products with the listed past: one warp's work.
  __device__ __forceinline__ void read_patch(int u, int ahead_by) const {
    const ChipUnit& my = unit(u);
    const ChipLaunch& l = launch();
    const int frame = now().frame + ahead_by;
    const unsigned long long t = now().step + static_cast<unsigned>(ahead_by);
    const int across = a.side / a.block_size;
    const auto patch = static_cast<int>(my.patch);
    const int corner =
        (patch / across * a.block_size * a.side + patch % across * a.block_size) * a.channels;
    const std::size_t size = static_cast<std::size_t>(a.patches) * a.patch;
    const float* values = l.squeezed == nullptr
                              ? nullptr
                              : l.squeezed + static_cast<std::size_t>(frame) * size + corner;
    const std::uint8_t* bytes = frames()[frame];
    const std::uint8_t* next = frame + 1 < l.count ? frames()[frame + 1] : nullptr;
    std::uint32_t* record = past(t) + a.first_patch + my.patch * a.patch_record;
    std::uint32_t* x = shared + my.x + ((t & 1) != 0 ? my.padded : 0);
    float v[32];
#pragma unroll
    for (int i = 0; i < 32; ++i) v[i] = 0;
    constexpr int at_once = 3;  // pixels that a lane has under way
#pragma unroll 1
    for (int first = lane(); first < a.patch; first += 32 * at_once) {
      std::uint32_t words[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int k = first + 32 * i;
        words[i] = 0;
        if (k >= a.patch) continue;
        const std::uint32_t at = shared[ChipAreas::offsets + k];
        words[i] = Words::pack(
            values != nullptr ? __ldcg(values + at)
                              : squeeze_pixel(static_cast<float>(__ldcg(bytes + corner + at))));
        if (next != nullptr) prefetch_line(next + corner + at);
      }
      float pixel[at_once];
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const int k = first + 32 * i;
        pixel[i] = Words::unpack(words[i]);
        if (k >= a.patch) continue;
        x[k] = words[i];
        record[in_pieces(k)] = words[i];
        seen(my, t)[k] = pixel[i];
      }
#pragma unroll
      for (int age = 0; age < S::terms; ++age) {
        const float* then = seen(my, t - 3 - age + ring) + first;
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          if (first + 32 * i < a.patch) v[age] = __fmaf_rn(pixel[i], then[32 * i], v[age]);
        }
      }
    }
    const float sum = sum_each(v);
    if (lane() < sums) {
      record[a.patch_products + lane()] = __float_as_uint(sum);
      primary_sums(u, t)[lane()] = sum;
    }
  }

  // -------------------------------------------------------------- errors

  /// d1(t), beside W1 too, and the scores, of outputs `from`, `from + step` and so on, up to
  /// `end`. Half a warp has sixteen outputs at a time. What does not change is read once: behind
  /// each store to shared memory the compiler would read it again.
  __device__ __forceinline__ void errors(int from, int end, int step) const {
    const ChipNow& n = now();
    const unsigned long long t = n.step;
    const bool scored = shared[ChipAreas::scored + n.frame] != 0;
    const bool signs = a.sign_error != 0;
    const int kind = derivative_kind();
    const bool keeps = keeps_row(history);
    const unsigned parity = (static_cast<unsigned>(t) & 1U) * 16;
    const std::uint32_t then = static_cast<unsigned>((t - 2) & (history - 1)) * a.patch_row;
    const auto c = static_cast<std::uint32_t>(thread % columns);
    const int place = this->list_place(S::rest + 1 + n.lag, static_cast<int>(c));
    const auto* targets = list<ChipTarget>(p.targets);
    const float* y = outputs_of(t, 0, 0);
    std::uint32_t* d1_here = shared + p.d1;
    std::uint32_t* lists = list_of(0);
    float* row = a.d1 + static_cast<std::size_t>(t & (history - 1)) * a.output_row;
    float loss = 0, missed = 0, moved = 0;
    constexpr int at_once = S::streams ? 4 : 1;  // y(t-2) that a thread has under way
#pragma unroll 1
    for (int first = from; first < end; first += at_once * step) {
      float before[at_once] = {};
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const auto o = static_cast<std::uint32_t>(first + i * step);
        if (i > 0 && static_cast<int>(o) >= end) continue;
        const ChipTarget& target = targets[o / columns];
        if (c < target.count) before[i] = y[S::streams ? target.out + c : o];
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const auto o = static_cast<std::uint32_t>(first + i * step);
        if (i > 0 && static_cast<int>(o) >= end) continue;
        const ChipTarget target = targets[o / columns];
        float d1 = 0;
        if (c < target.count) {
          const float wanted = Words::unpack(shared[(target.x >> parity & 0xffffU) + c]);
          float e = wanted - before[i];
          loss += e * e;
          if (scored && target.seen != no_pixel) {
            const float m = (wanted - 0.1F) * 1.25F - unsqueeze(before[i]);
            const float s = (wanted - floats(then + target.seen)[c]) * 1.25F;
            missed += m * m;
            moved += s * s;
          }
          if (signs) e = copysignf(1.0F, e);
          d1 = derive(before[i], kind) * e;
        }
        if (keeps) row[target.out + c] = d1;
        d1_here[o] = Words::pack(d1);
        this->list_value(lists + o / columns * S::list_words, place, d1);
      }
    }
    add_score(loss, missed, moved);
  }
  __device__ __forceinline__ void add_score(float loss, float missed, float moved) const {
#pragma unroll
    for (int half = 16; half >= 1; half /= 2) {
      loss += __shfl_xor_sync(every_lane, loss, half);
      missed += __shfl_xor_sync(every_lane, missed, half);
      moved += __shfl_xor_sync(every_lane, moved, half);
    }
    const float sum = lane() == 0 ? missed : (lane() == 1 ? moved : loss);
    double* score = reinterpret_cast<double*>(shared + ChipAreas::score) + warp() * 3;
    if (lane() < 3) score[lane()] += static_cast<double>(sum);
  }

  // -------------------------------------------------------------- hidden values

  /// Value i of those that the lanes have, `word[i / 32]` in lane i % 32.
  template <int Rows>
  __device__ __forceinline__ std::uint32_t value_of(const std::uint32_t (&word)[Rows],
                                                    int i) const {
    std::uint32_t out = 0;
#pragma unroll
    for (int k = 0; k < Rows; ++k) {
      const std::uint32_t v = __shfl_sync(every_lane, word[k], i & 31);
      if (i / 32 == k) out = v;
    }
    return out;
  }
  /// Sends `pieces` pieces of the values that the lanes have, marked as of step t.
  template <int Rows>
  __device__ __forceinline__ void send(std::uint32_t* to, int pieces,
                                       const std::uint32_t (&word)[Rows],
                                       unsigned long long t) const {
    uint4 v;
    const int i = 3 * min(lane(), pieces - 1);
    v.x = value_of(word, i);
    v.y = value_of(word, i + 1);
    v.z = value_of(word, i + 2);
    v.w = static_cast<std::uint32_t>(t + 1);
    if (lane() < pieces) send_piece(to + 4 * lane(), v);
  }
  /// h(t) of a unit, sent, and then its inner products: one warp's work.
  __device__ __forceinline__ void finish_unit(int u) const {
    constexpr int rows = (Hidden + 31) / 32;
    const unsigned long long t = now().step;
    const ChipUnit& my = unit(u);
    std::uint32_t* record = past(t) + my.unit * S::record;
    float h[rows];
    std::uint32_t word[rows];
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const int i = lane() + 32 * k;
      h[k] = 0;
      word[k] = 0;
      if (i >= Hidden) continue;
      const float* part = float_area(u) + S::part0 + i;
      float v = part[S::multipliers * S::values];  // of the listed gradients
#pragma unroll
      for (int w = 0; w < S::multipliers; ++w) v += part[w * S::values];
      h[k] = activate(v);
      word[k] = Words::pack(squeeze(h[k]));
    }
    send(record, S::value_pieces, word, t);
    float* row =
        a.hidden + static_cast<std::size_t>(t & (ring - 1)) * a.hidden_row + my.unit * Hidden;
    const bool keeps = keeps_row(ring);
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      const int i = lane() + 32 * k;
      if (i >= Hidden) continue;
      if (keeps) row[i] = h[k];
      history_row(S::hidden, u, t)[i] = h[k];
      history_row(S::squeezed, u, t)[i] = Words::unpack(word[k]);
      area(u)[S::raw + static_cast<std::uint32_t>(i)] = Words::pack(h[k]);
    }
    __syncwarp();  // the lanes read what all have written
    const float sum = unit_products(u, t);
    const std::uint32_t products[1] = {__float_as_uint(sum)};
    send(record + 4 * S::value_pieces, S::product_pieces, products, t);
    list_representation(u, sum);
  }
  /// Inner products of a unit's values in step t with the listed ones: of c(h) to the first sixteen
  /// lanes, of h to the others, each that of an age.
  __device__ __forceinline__ float unit_products(int u, unsigned long long t) const {
    const std::uint32_t what = lane() < sums ? S::squeezed : S::hidden;
    const int age = min(lane() & (sums - 1), S::terms - 1);
    const float* now_row = history_row(what, u, t);
    const float* then = history_row(what, u, t - 3 - static_cast<unsigned>(age) + history);
    const float sum = inner_product(
        [&](int i) { return four(now_row + i); }, [&](int i) { return four(then + i); },
        [&](int i) { return now_row[i]; }, [&](int i) { return then[i]; });
    return (lane() & (sums - 1)) < S::terms ? sum : 0.0F;
  }
  __device__ __forceinline__ static float4 four(const float* from) {
    return *reinterpret_cast<const float4*>(from);
  }
  /// The sum over a unit's values of a(i) b(i), of which `four_a(i)` are those from i on. Explicit,
  /// so that all kernels round alike.
  template <class FourA, class FourB, class OneA, class OneB>
  __device__ __forceinline__ static float inner_product(FourA four_a, FourB four_b, OneA one_a,
                                                        OneB one_b) {
    float4 sum = {0, 0, 0, 0};
#pragma unroll
    for (int i = 0; i < Hidden / 4 * 4; i += 4) {
      const float4 v = four_a(i), w = four_b(i);
      sum.x = __fmaf_rn(v.x, w.x, sum.x);
      sum.y = __fmaf_rn(v.y, w.y, sum.y);
      sum.z = __fmaf_rn(v.z, w.z, sum.z);
      sum.w = __fmaf_rn(v.w, w.w, sum.w);
    }
#pragma unroll
    for (int i = Hidden / 4 * 4; i < Hidden; ++i) sum.x = __fmaf_rn(one_a(i), one_b(i), sum.x);
    return (sum.x + sum.y) + (sum.z + sum.w);
  }
  /// What W1's columns beside the tiles are multiplied by, for blocks by when they last folded: the
  /// last hidden values, 1, and w r(j-2).r(t) of each listed gradient. `sum`: of lanes 16 and more.
  __device__ __forceinline__ void list_representation(int u, float sum) const {
    const int e = lane() & (sums - 1);
    const int age = e > S::rest ? age_of(e) : 0;
    const float product = __shfl_sync(every_lane, sum, sums + (age < S::terms ? age : 0)) + 1.0F;
    float v = 1;  // the bias
    if (e < S::rest) v = history_row(S::hidden, u, now().step)[S::tiles * 8 + e];
    if (e > S::rest) v = product;
    const int place = table_place(e);
    const float* tables = float_area(u) + S::tables + place;
    std::uint32_t* to = area(u) + S::listed + e;
#pragma unroll 1
    for (int since = lane() / sums; since < a.period; since += 32 / sums) {
      to[since * sums] = Words::pack(tables[since * sums] * v);
    }
  }

  // -------------------------------------------------------------- W1

  /// The way through a warp's blocks of W1, unit by unit.
  struct WideWalk {
    typename Base::Rows h{};
    typename Base::Sums sum;
    typename Base::ListSums more;
    bool first = true;  ///< of its unit
  };
  /// y(t) of a block whose tiles are in `w`, and what it has of W1^T d1 and of d1(j).d1, the latter
  /// with its coefficients. `load_next` is called when the tiles have been multiplied: others may
  /// come to their place while sums are added up.
  template <class LoadNext>
  __device__ __forceinline__ void learn_block(WideWalk& on, const ChipWideBlock& block,
                                              const Weights& w, LoadNext load_next) const {
    const int u = static_cast<int>(block.what & 0xff);
    const int phase = static_cast<int>(block.what >> 8 & 0xff);
    if (on.first) on.h = this->rows(area(u) + S::raw);
    const auto d1 = this->values(shared + p.d1 + block.out);
    typename Base::ColumnSums y;
    this->multiply_wide(on.sum, y, w, d1, on.h);
    load_next();
    const std::uint32_t* list = list_of(block.out);
    const typename Base::ListSums beside = this->multiply_list(list, d1);
    this->multiply_listed_rows(y, list, this->listed_of(u, phase));
    this->write_outputs(y, outputs_of(now().step, block.out, block.block * columns),
                        [&](float v) { return activate(v); });
    const float* weights = weights_of(u, phase);
#pragma unroll
    for (int i = 0; i < Base::listed_places; ++i) {
      on.more.v[i] += weights[table_place(this->place_of(i))] * beside.v[i];
    }
    on.first = block.what >> run_shift == 1;
    if (on.first) hand_over(u, on.sum, on.more);
  }
  /// This warp's part of both of the latter, to the warp that makes d0 of it.
  __device__ __forceinline__ void hand_over(int u, typename Base::Sums& sum,
                                            typename Base::ListSums& more) const {
    float* to = float_area(u) + S::part1 + warp() * S::part1_words;
    this->write_wide_sums(sum, more, to);
    sum = {};
    more = {};
  }

  // -------------------------------------------------------------- gradients

  /// d0(t) of a unit: one warp's work.
  __device__ __forceinline__ void finish_gradient(int u) const {
    constexpr int rows = (Hidden + 31) / 32;
    const unsigned long long t = now().step;
    const float* part = float_area(u) + S::part1;
    const auto total = [&](int column) {
      float v = 0;
#pragma unroll
      for (int w = 0; w < S::multipliers; ++w) v += part[w * S::part1_words + column];
      return v;
    };
    // Lane i: of the gradient in column i.
    const float product = total(S::tiles * 8 + S::rest + 1 + min(lane(), S::lags - 1));
    float z[rows];
#pragma unroll
    for (int k = 0; k < rows; ++k) z[k] = lane() + 32 * k < Hidden ? total(lane() + 32 * k) : 0.0F;
    int column = now().lag;
#pragma unroll
    for (int age = 0; age < S::terms; ++age) {
      column = column == 0 ? S::lags - 1 : column - 1;
      const float factor = __shfl_sync(every_lane, product, column);
      const float* then = history_row(S::hidden, u, t - 3 - age + history) + lane();
#pragma unroll
      for (int k = 0; k < rows; ++k) {
        if (lane() + 32 * k < Hidden) z[k] += factor * then[32 * k];
      }
    }
    const int kind = derivative_kind();
    const float* before = history_row(S::hidden, u, t - 2 + history) + lane();
    float* to = history_row(S::d0, u, t) + lane();
    float* row = a.d0 + static_cast<std::size_t>(t & (history - 1)) * a.hidden_row +
                 unit(u).unit * Hidden + lane();
    const bool keeps = keeps_row(history);
#pragma unroll
    for (int k = 0; k < rows; ++k) {
      if (lane() + 32 * k >= Hidden) continue;
      const float d0 = derive(before[32 * k], kind) * z[k];
      to[32 * k] = d0;
      if (keeps) row[32 * k] = d0;
    }
  }

  // -------------------------------------------------------------- the step

  /// Nobody writes over what the slowest may still read: before step t all have begun step t -
  /// ahead. How many have done so is counted here.
  __device__ __forceinline__ const unsigned int* slowest_at(unsigned long long t) const {
    return a.begun + (t + rounds - ahead) % rounds;
  }
  __device__ __forceinline__ unsigned int ask_slowest(unsigned long long t) const {
    return load_relaxed(slowest_at(t));
  }
  /// `begun` is what has been asked for.
  __device__ __forceinline__ void wait_for_slowest(unsigned long long t, unsigned int begun) const {
    if (t < ahead) return;
    const unsigned long long step = t - ahead;
    const unsigned int target = (static_cast<unsigned>(step / rounds) + 1) * gridDim.x;
    while (static_cast<int>(begun - target) < 0) begun = load_relaxed(slowest_at(t));
  }
  __device__ __forceinline__ void wait_for_slowest(unsigned long long t) const {
    wait_for_slowest(t, ask_slowest(t));
  }
  /// What follows the current step.
  __device__ __forceinline__ void prepare(ChipNow& next) const {
    const ChipNow& n = now();
    next.step = n.step + 1;
    next.frame = n.frame + 1;
    next.phase = n.phase + 1 == a.period ? 0 : n.phase + 1;
    next.lag = n.lag + 1 == S::lags ? 0 : n.lag + 1;
  }
  __device__ __forceinline__ void prepare_step() const {
    prepare(now(turn ^ 1));
    add_one_relaxed(a.begun + now().step % rounds);
  }
  __device__ __forceinline__ void store_results() const {
    for (int i = thread; i < static_cast<int>(2 * p.out_count) && !S::streams; i += S::threads) {
      all_output(i) = own_output(i);
    }
    for (int i = thread; i < S::warps * 3; i += S::threads) {
      a.score[static_cast<std::size_t>(blockIdx.x) * S::warps * 3 + i] =
          reinterpret_cast<double*>(shared + ChipAreas::score)[i];
    }
  }
};

}  // namespace pvm::inline v0::detail::chip
