// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Where everything is in shared memory, and which blocks of weights are in registers, in shared
/// memory, or in device memory only.

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/chip/plan.hpp>
#include <pvm/engine/cuda/chip/plan_draft.hpp>
#include <pvm/engine/cuda/chip/sizes.hpp>

namespace pvm::inline v0::detail::chip {

template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::lay_out_areas() {
  std::size_t n = 0;
  for (const auto& units : share_) n = std::max(n, units.size());
  if (n > S::most_units) problem_ = "it has too many units";
  Places place{ChipAreas::offsets};
  (void)place(base(0));
  areas.scratch = place((S::specialised ? S::folders : S::multipliers) * S::scratch_words);
  areas.units = place.at;
}

/// Shared memory behind the common areas: the program, everything that is not W0, then W0 while
/// there is room.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_all(Draft& draft, std::size_t shared_words_there) {
  Places place{areas.units + (S::streams ? 0 : narrow(draft.units.size()) * S::unit_words)};
  place_lists(draft, place);
  place_areas(draft, place);
  place_wide(draft, shared_words_there, place);
  if (place.at > shared_words_there) problem_ = "its units do not fit a multiprocessor";
  place_pasts(draft, shared_words_there, place);
  make_absolute(draft);
  place_blocks(draft, shared_words_there, place);
  shared_words = std::max<std::size_t>(shared_words, place.at);
}

/// The program with its lists.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_lists(Draft& draft, Places& place) const {
  ChipProgram& p = draft.p;
  p.start = place.at;
  const std::size_t count = draft.block_count(), wide_count = draft.wide_count();
  (void)place(sizeof(ChipProgram) / 4);
  p.units = place(draft.units.size() * sizeof(ChipUnit) / 4);
  p.slots = place(draft.slots.size() * sizeof(ChipSlot) / 4);
  if constexpr (!S::pipelined) {
    p.blocks = place((count + 2) * sizeof(ChipBlock) / 4);  // what follows the last is looked at
  }
  p.wide_blocks = place(wide_count * sizeof(ChipWideBlock) / 4);
  p.products = place(draft.products.size());
  p.targets = place(draft.targets.size() * sizeof(ChipTarget) / 4);
  p.input_count = S::pipelined || S::specialised ? narrow(count + 2) : 0;
  p.inputs = place(2 * p.input_count);
  if constexpr (S::pipelined) p.folding_start = place(S::multipliers * (period_ + 1));
  if constexpr (!S::streams) {
    // At most: what is streamed is known when all have their place.
    p.folding = place(count + (S::specialised ? wide_count : 0));
    p.folding_start =
        place(S::specialised ? 3 * S::folders * period_ + 1 : S::multipliers * (period_ + 1));
    p.first_in_pass = place(S::whole ? S::multipliers * period_ : 0);
    p.reload = place(S::specialised ? S::multipliers * period_ : 0);
    std::size_t run_count = 0;
    for (const auto& list : draft.blocks) {
      for (const ChipBlock& block : list) run_count += left_in(block.what) == 1 ? 1 : 0;
    }
    p.runs = place(S::specialised ? run_count * sizeof(ChipRun) / 4 : 0);
  }
  p.words = place.at - p.start;
  if constexpr (S::pipelined) p.blocks = place.at;  // behind what comes to shared memory
}

/// What a step works with, but for weights in tiles.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_areas(Draft& draft, Places& place) {
  ChipProgram& p = draft.p;
  p.x = place(draft.x);
  p.x_words = draft.x;
  p.d1 = place(S::specialised ? 0 : draft.out);  // or in the place of outputs
  p.seen = place(draft.patches * history * patch_row);
  if constexpr (S::streams) {
    p.lists = narrow(list_words);
    list_words += draft.wide_count() * S::list_words;
  } else {
    p.y = place(2 * draft.out);
    std::uint32_t rest = place(draft.block_count() * S::rest_words);
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      p.rest_first[w] = rest;
      rest += narrow(draft.blocks[w].size() * S::rest_words);
    }
    p.lists = place(draft.wide_count() * S::list_words);
  }
}

/// What units had in the last steps, while there is room, where all is streamed: warps that finish
/// units make fewer trips to device memory. First of those units that share a warp with others.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_pasts(Draft& draft, std::size_t shared_words_there,
                                                Places& place) const {
  if constexpr (S::streams) {
    constexpr std::size_t warps = S::pipelined ? S::finishers : S::warps;
    const std::size_t count = draft.units.size();
    const auto shares_a_warp = [&](std::size_t u) { return u >= warps || u + warps < count; };
    const auto put = [&](std::uint32_t ChipUnit::*where, std::size_t words) {
      for (const bool sharing : {true, false}) {
        for (std::size_t u = 0; u < count; ++u) {
          if (shares_a_warp(u) != sharing || place.at + words > shared_words_there) continue;
          draft.units[u].*where = place(words);
        }
      }
    };
    put(&ChipUnit::past, S::past_words);
    put(&ChipUnit::squeezed, S::squeezed_words);
  }
}

/// From offsets in x to words of shared memory, for even and odd steps.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::make_absolute(Draft& draft) {
  const std::uint32_t x = draft.p.x;
  for (ChipUnit& unit : draft.units) {
    unit.x += x;
    unit.one += x;
    unit.seen += draft.p.seen;
    unit.products += draft.p.products;
  }
  for (ChipSlot& slot : draft.slots) slot.to += x | x << 16;
  for (auto& list : draft.blocks) {
    for (ChipBlock& block : list) block.x += x | x << 16;
  }
  for (ChipTarget& target : draft.targets) {
    target.x += x | x << 16;
    if (target.seen != no_pixel) target.seen += draft.p.seen;
  }
}

/// W1 goes before W0, but for the first of each warp's, if so many are to be streamed. Of fp32
/// weights there may be more than there is room for; 16-bit ones are nowhere else, if they are on
/// the chip.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_wide(Draft& draft, std::size_t shared_words_there,
                                               Places& place) {
  for (auto& list : draft.wide) {
    for (std::size_t k = 0; k < list.size(); ++k) {
      const bool room = k + 1 > S::wide_ahead && place.at + S::block_words <= shared_words_there;
      const bool stays = !S::streams && (room || !S::whole);
      list[k].where = stays ? place(S::block_words) : in_memory;
      if (!stays) ++wide_streamed;
    }
  }
}

/// W0: some of each warp's are held in registers, others lie in shared memory, warp by warp
/// alike, and there is no room for the rest, which is streamed. A warp has the held first, then
/// the streamed, the first of which is asked for before all; where warps have roles the streamed
/// come first and last, so that the last can be on their way while others are multiplied.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_blocks(Draft& draft, std::size_t shared_words_there,
                                                 Places& place) {
  std::uint32_t next = place.at;
  const auto left = fill_shared(draft, shared_words_there, place);
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    auto& list = draft.blocks[w];
    const std::size_t held_here = std::min<std::size_t>(left[w], S::held_blocks);
    const std::size_t streamed_here = left[w] - held_here;
    const std::size_t early =
        S::specialised ? std::min<std::size_t>(streamed_here, S::under_way) : streamed_here;
    const std::size_t first_shared = held_here + early;
    const std::size_t late = list.size() - (streamed_here - early);
    streamed += streamed_here;
    draft.p.streamed_to[w] = narrow(S::specialised ? early : left[w]);
    draft.p.late_from[w] = narrow(late);
    draft.p.shared_from[w] = next;
    for (std::size_t k = 0; k < list.size(); ++k) {
      list[k].where = in_memory;  // of those that are held, what others fold
      if (k < first_shared || k >= late) continue;
      list[k].where = next;
      next += S::block_words;
    }
  }
}

/// How many of each warp's blocks are left when shared memory is full: the warps that have most
/// get room first.
template <class Precision, int Hidden, Home home>
auto Plan<Precision, Hidden, home>::fill_shared(const Draft& draft, std::size_t shared_words_there,
                                                Places& place) -> Left {
  Left left{};
  std::size_t most = 0;
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    left[w] = draft.blocks[w].size();
    held += std::min<std::size_t>(left[w], S::held_blocks);
    most = std::max(most, left[w]);
  }
  for (; most > S::held_blocks && !S::streams; --most) {
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      if (left[w] < most || place.at + S::block_words > shared_words_there) continue;
      --left[w];
      place(S::block_words);
      ++shared;
    }
  }
  return left;
}

}  // namespace pvm::inline v0::detail::chip
