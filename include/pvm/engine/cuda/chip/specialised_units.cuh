// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What is done for a unit where warps have roles, in little code: three roles share the
/// instruction cache, so that loops are unrolled only where somebody waits for them. Where all
/// warps do the same (fp32, and where units are streamed) the functions of Multiprocessor are:
/// there a warp that has a unit has other work, too, and is what all wait for, and straight code
/// takes it least time.

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/chip/sizes.hpp>
#include <pvm/engine/cuda/chip/specialised.cuh>
#include <pvm/engine/cuda/instructions.cuh>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::listed_share(int u) const {
  const unsigned long long t = now().step;
  const ChipUnit& my = unit(u);
  const bool patch = my.patch != not_a_patch;
  const std::uint32_t* sent = past(t - 1 + ring);
  const auto mark = static_cast<std::uint32_t>(t);
  constexpr int at_once = 3;
  Products sum = {{0, 0, 0}}, of_primary = {{0, 0, 0}};  // the first group is the primary sources
#pragma unroll 1
  for (std::uint32_t from = 0; from < my.groups; from += at_once) {
    uint4 piece[at_once];
    std::uint32_t at[at_once];
    bool all_there = true;
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      at[i] = from + i < my.groups ? source_place(my, from + i) : no_source;
      piece[i] = make_uint4(0, 0, 0, mark);
      if (at[i] != no_source) piece[i] = receive_piece(sent + (at[i] & no_source));
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) all_there = all_there && piece[i].w == mark;
    if (!all_there) {
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        while (piece[i].w != mark) piece[i] = receive_piece(sent + (at[i] & no_source));
      }
    }
#pragma unroll
    for (int i = 0; i < at_once; ++i) {
      if (i == 0 && from == 0 && !patch) {
        const float ones[3] = {1, 1, 1};
        add_products(of_primary, piece[i], ones);
        continue;
      }
      const int phase = at[i] == no_source ? 0 : static_cast<int>(at[i] >> phase_shift);
      add_products(sum, piece[i], weights_of(u, phase) + 3 * (lane() % S::product_pieces));
    }
  }
  if (!patch && list<ChipPanel>(p.panels)[my.first_panel].count > group_slots) {
    const Products others = primary_products(u, t - 1, group_slots);
#pragma unroll
    for (int i = 0; i < 3; ++i) of_primary.v[i] += others.v[i];
  }
  __syncwarp();
  float total = 0, products = 0;  // the latter of A
#pragma unroll 1
  for (int context = patch ? 1 : 0; context < 2; ++context) {
    Products of;
#pragma unroll
    for (int i = 0; i < 3; ++i) of.v[i] = context != 0 ? sum.v[i] : of_primary.v[i];
    products = total;
    total = over_sources(of);
  }
  if (lane() < sums) {
    if (patch) {
      products = primary_sums(u, t)[lane()];
    } else {
      primary_sums(u, t)[lane()] = products;
    }
  }
  if (lane() < S::terms) {
    total += weights_of(u, static_cast<int>(my.own_phase[0]))[lane()] * products;
    total +=
        weights_of(u, static_cast<int>(my.own_phase[1]))[lane()] * primary_sums(u, t + 1)[lane()];
    total += weights_of(u, static_cast<int>(my.own_phase[2]))[lane()];
  }
  float2 share = weigh_rows(S::d0, u, t - 1, total);
  if (2 * lane() + 1 >= Hidden) share.y = 0;
  if (2 * lane() < Hidden) {
    reinterpret_cast<float2*>(float_area(u) + S::listed_part)[lane()] = share;
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ Products Specialised<Precision, Hidden>::primary_products(
    int u, unsigned long long step, std::uint32_t from) const {
  const ChipPanel& panel = list<ChipPanel>(p.panels)[unit(u).first_panel];
  const float ones[3] = {1, 1, 1};
  Products sum = {{0, 0, 0}};
#pragma unroll 1
  for (; from < panel.count; from += group_slots) {
    const std::uint32_t s = from + static_cast<std::uint32_t>(lane() / S::product_pieces);
    if (s >= panel.count || lane() >= group_slots * S::product_pieces) continue;
    const std::uint32_t* at = past(step) + products_at(list<ChipSlot>(p.slots)[panel.first + s]);
    uint4 piece = receive_piece(at);
    while (piece.w != static_cast<std::uint32_t>(step + 1)) piece = receive_piece(at);
    add_products(sum, piece, ones);
  }
  return sum;
}

template <class Precision, int Hidden>
__device__ __forceinline__ float2 Specialised<Precision, Hidden>::weigh_rows(
    std::uint32_t what, int u, unsigned long long newest, float weight) const {
  const int mine = min(lane(), (Hidden - 1) / 2);
  float2 sum = {0, 0};
  const auto add = [&](float of_row, const float* row) {
    const float2 v = reinterpret_cast<const float2*>(row)[mine];
    sum.x += of_row * v.x;
    sum.y += of_row * v.y;
  };
  // In the order in which rows lie, which spares finding them. Nobody needs what stands in this
  // place meanwhile.
  float* weights = float_area(u) + S::listed_part;
  if (lane() < history) {
    const auto row = static_cast<unsigned>(newest - static_cast<unsigned>(lane()));
    weights[row & (history - 1)] = lane() < S::terms ? weight : 0.0F;
  }
  __syncwarp();
#pragma unroll 2
  for (int i = 0; i < history; i += 4) {
    const float4 w = four(weights + i);
    const float* rows = float_area(u) + what + i * S::values;
    add(w.x, rows);
    add(w.y, rows + S::values);
    add(w.z, rows + 2 * S::values);
    add(w.w, rows + 3 * S::values);
  }
  __syncwarp();
  return sum;
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::finish_unit(int u) const {
  const unsigned long long t = now().step;
  const ChipUnit& my = unit(u);
  std::uint32_t* record = past(t) + my.unit * S::record;
  std::uint32_t* words = area(u) + S::listed_part;
  float* row =
      a.hidden + static_cast<std::size_t>(t & (ring - 1)) * a.hidden_row + my.unit * Hidden;
  const bool keeps = keeps_row(ring);
#pragma unroll 1
  for (int i = lane(); i < Hidden; i += 32) {
    const float* part = float_area(u) + S::part0 + i;
    float v = part[S::multipliers * S::values];  // of the listed gradients
#pragma unroll
    for (int w = 0; w < S::multipliers; ++w) v += part[w * S::values];
    const float h = activate(v);
    const std::uint32_t word = Words::pack(squeeze(h));
    words[i] = word;  // nobody reads what was there any more
    if (keeps) row[i] = h;
    history_row(S::hidden, u, t)[i] = h;
    history_row(S::squeezed, u, t)[i] = Words::unpack(word);
    area(u)[S::raw + static_cast<std::uint32_t>(i)] = Words::pack(h);
  }
  __syncwarp();  // the lanes read what all have written
  send_words(
      record, S::value_pieces, [&](int i) { return words[i]; }, t);
  const float sum = unit_products(u, t);
  const std::uint32_t products[1] = {__float_as_uint(sum)};
  this->send(record + 4 * S::value_pieces, S::product_pieces, products, t);
  this->list_representation(u, sum);
}

template <class Precision, int Hidden>
template <class Word>
__device__ __forceinline__ void Specialised<Precision, Hidden>::send_words(
    std::uint32_t* to, int pieces, Word word, unsigned long long t) const {
  const int i = 3 * min(lane(), pieces - 1);
  const uint4 v = make_uint4(word(i), word(i + 1), word(i + 2), static_cast<std::uint32_t>(t + 1));
  if (lane() < pieces) send_piece(to + 4 * lane(), v);
}

template <class Precision, int Hidden>
__device__ __forceinline__ auto Specialised<Precision, Hidden>::ask_pixels(int u, int ahead_by,
                                                                           int first) const
    -> Pixels {
  const ChipLaunch& l = launch();
  const int frame = now().frame + ahead_by;
  Pixels pixels{};
  if (frame >= l.count) return pixels;
  const std::uint32_t corner = area(u)[S::corner];
  const bool squeezed = l.squeezed != nullptr;
  const std::size_t size = static_cast<std::size_t>(a.patches) * a.patch;
  const float* values = l.squeezed + static_cast<std::size_t>(frame) * size + corner;
  const std::uint8_t* bytes = frames()[frame] + corner;
#pragma unroll
  for (int i = 0; i < pixels_at_once; ++i) {
    const int k = first + 32 * i;
    if (k >= a.patch) continue;
    const std::uint32_t at = shared[ChipAreas::offsets + k];
    pixels.v[i] = squeezed ? __float_as_uint(__ldcg(values + at)) : __ldcg(bytes + at);
  }
  return pixels;
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::place_pixels(
    int u, int ahead_by, int first, const Pixels& pixels) const {
  const ChipUnit& my = unit(u);
  const unsigned long long t = now().step + static_cast<unsigned>(ahead_by);
  const bool squeezed = launch().squeezed != nullptr;
  std::uint32_t* record = past(t) + a.first_patch + my.patch * a.patch_record;
  std::uint32_t* x = shared + my.x + ((t & 1) != 0 ? my.padded : 0);
  float* saw = seen(my, t);
#pragma unroll
  for (int i = 0; i < pixels_at_once; ++i) {
    const int k = first + 32 * i;
    if (k >= a.patch) continue;
    const std::uint32_t word = Words::pack(
        squeezed ? __uint_as_float(pixels.v[i]) : squeeze_pixel(static_cast<float>(pixels.v[i])));
    x[k] = word;
    record[in_pieces(k)] = word;
    saw[k] = Words::unpack(word);
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::finish_patch(int u,
                                                                             int ahead_by) const {
  const ChipUnit& my = unit(u);
  const unsigned long long t = now().step + static_cast<unsigned>(ahead_by);
  __syncwarp();  // the lanes read what all have written
  const float* saw = seen(my, t);
  const int age = min(lane() & (sums - 1), S::terms - 1);
  const float* then = seen(my, t - 3 - static_cast<unsigned>(age) + history);
  const float sum =
      patch_product([&](int k) { return four(saw + k); }, [&](int k) { return four(then + k); },
                    [&](int k) { return saw[k]; }, [&](int k) { return then[k]; });
  if (lane() < sums) {
    std::uint32_t* record = past(t) + a.first_patch + my.patch * a.patch_record;
    record[a.patch_products + lane()] = __float_as_uint(sum);
    primary_sums(u, t)[lane()] = sum;
  }
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::read_patch(int u,
                                                                           int ahead_by) const {
#pragma unroll 1
  for (int first = lane(); first - lane() < a.patch; first += 32 * pixels_at_once) {
    place_pixels(u, ahead_by, first, ask_pixels(u, ahead_by, first));
  }
  finish_patch(u, ahead_by);
}

template <class Precision, int Hidden>
template <class FourNow, class FourThen, class NowAt, class ThenAt>
__device__ __forceinline__ float Specialised<Precision, Hidden>::patch_product(
    FourNow four_now, FourThen four_then, NowAt now_at, ThenAt then_at) const {
  const int half = lane() / sums;
  const int in_fours = a.patch / 4 * 4;
  float4 sum = {0, 0, 0, 0};
#pragma unroll 3
  for (int k = 4 * half; k < in_fours; k += 8) {
    const float4 v = four_now(k), w = four_then(k);
    sum.x = __fmaf_rn(v.x, w.x, sum.x);
    sum.y = __fmaf_rn(v.y, w.y, sum.y);
    sum.z = __fmaf_rn(v.z, w.z, sum.z);
    sum.w = __fmaf_rn(v.w, w.w, sum.w);
  }
#pragma unroll 1
  for (int k = in_fours + half; k < a.patch; k += 2) {
    sum.x = __fmaf_rn(now_at(k), then_at(k), sum.x);
  }
  const float mine = (sum.x + sum.y) + (sum.z + sum.w);
  const float all = mine + __shfl_xor_sync(every_lane, mine, sums);
  return (lane() & (sums - 1)) < S::terms ? all : 0.0F;
}

template <class Precision, int Hidden>
__device__ __forceinline__ void Specialised<Precision, Hidden>::finish_gradient(int u) const {
  const unsigned long long t = now().step;
  const float* part = float_area(u) + S::part1;
  const int mine = 2 * min(lane(), (Hidden - 1) / 2);  // and the next
  // Lane i: of the gradient in column i.
  float product = 0;
  float2 z = {0, 0};
#pragma unroll 4
  for (int w = 0; w < S::multipliers; ++w, part += S::part1_words) {
    product += part[S::tiles * 8 + S::rest + 1 + min(lane(), S::lags - 1)];
    const float2 v = *reinterpret_cast<const float2*>(part + mine);
    z.x += v.x;
    z.y += v.y;
  }
  const int column = now().lag - 1 - min(lane(), S::terms - 1);  // of the gradient of this age
  const float2 of_past =
      weigh_rows(S::hidden, u, t - 3,
                 __shfl_sync(every_lane, product, column < 0 ? column + S::lags : column));
  const int kind = derivative_kind();
  const float* before = history_row(S::hidden, u, t - 2 + history);
  float* to = history_row(S::d0, u, t);
  float* row =
      a.d0 + static_cast<std::size_t>(t & (history - 1)) * a.hidden_row + unit(u).unit * Hidden;
  const bool keeps = keeps_row(history);
#pragma unroll 1
  for (int k = 0; k < 2; ++k) {
    const int i = 2 * lane() + k;
    if (i >= Hidden) continue;
    const float d0 = derive(before[i], kind) * (k == 0 ? z.x + of_past.x : z.y + of_past.y);
    to[i] = d0;
    if (keeps) row[i] = d0;
  }
}

}  // namespace pvm::inline v0::detail::chip
