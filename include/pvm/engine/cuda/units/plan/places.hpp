// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Allocates shared memory, and decides which blocks of weights are held in registers, lie in
/// shared memory, or are streamed from device memory. The layout, from the start:
///   common areas (Areas) | scratch of the warps that fold | units' areas, on the chip |
///   program and its lists | x, d1, patches' histories, y, remainder rows, W1's lists |
///   tiles of W1 | units' histories, where all is streamed | tiles of W0

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include <pvm/engine/cuda/units/plan/draft.hpp>
#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// Allocates what all thread blocks have at the same places, up to the units' areas.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::lay_out_areas() {
  std::size_t n = 0;
  for (const auto& units : portions_) n = std::max(n, units.size());
  if (n > S::most_units) problem_ = "it has too many units";
  if constexpr (S::reads_context) {
    for (const auto& units : portions_) {
      std::size_t row_groups = units.size();
      for (const std::size_t u : units) row_groups += groups(u);
      if (row_groups > S::most_units) problem_ = "its units have too many outputs";
    }
  }
  SharedAllocator allocate{Areas::offsets};
  (void)allocate(base(0));
  areas.scratch = allocate((S::specialised ? S::folders : S::multipliers) * S::scratch_words);
  areas.units = allocate.at;
}

/// Allocates a thread block's shared memory behind the common areas: the program, everything but
/// W0, then as much of W0 as there is room for.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_all(Draft& draft, std::size_t shared_words_there) {
  SharedAllocator allocate{areas.units +
                           (S::streams ? 0 : narrow(draft.units.size()) * S::unit_words)};
  place_lists(draft, allocate);
  place_areas(draft, allocate);
  place_w1(draft, shared_words_there, allocate);
  if (allocate.at > shared_words_there) problem_ = "its units do not fit a multiprocessor";
  place_histories(draft, shared_words_there, allocate);
  make_absolute(draft);
  place_blocks(draft, shared_words_there, allocate);
  shared_words = std::max<std::size_t>(shared_words, allocate.at);
}

/// Allocates the program with its lists.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_lists(Draft& draft, SharedAllocator& allocate) const {
  Program& p = draft.p;
  p.start = allocate.at;
  const std::size_t count = draft.block_count(), w1_count = draft.w1_count();
  (void)allocate(sizeof(Program) / 4);
  p.units = allocate(draft.units.size() * sizeof(ProgramUnit) / 4);
  p.sources = allocate(draft.sources.size() * sizeof(Source) / 4);
  if constexpr (!S::pipelined) {
    // The kernel reads two beyond the last.
    p.blocks = allocate((count + 2) * sizeof(W0Block) / 4);
  }
  p.w1_blocks = allocate(w1_count * sizeof(W1Block) / 4);
  p.products = allocate(draft.products.size());
  p.places = allocate(draft.places.size());
  p.targets = allocate(draft.targets.size() * sizeof(Target) / 4);
  // The kernel reads some entries beyond the last.
  constexpr std::size_t beyond = S::pipelined ? S::prefetched_blocks + 2 : 2;
  p.input_count = S::pipelined || S::specialised ? narrow(count + beyond) : 0;
  p.inputs = allocate(2 * p.input_count);
  if constexpr (S::pipelined) {
    p.folding_start = allocate(S::multipliers * (S::phases + 1));
    p.row_groups = allocate(draft.row_groups.size() * sizeof(RowGroup) / 4);
    p.row_group_count = narrow(draft.row_groups.size());
    p.list_slots = allocate(draft.out / columns);
  }
  if constexpr (!S::streams) {
    // An upper bound: which blocks are streamed, and not listed, is known only at the end.
    p.folding = allocate(count + (S::specialised ? w1_count : 0));
    p.folding_start =
        allocate(S::specialised ? 3 * S::folders * period + 1 : S::multipliers * (period + 1));
    p.first_in_pass = allocate(S::fp32_weights ? S::multipliers * period : 0);
    p.reload = allocate(S::specialised ? S::multipliers * period : 0);
    std::size_t run_count = 0;
    for (const auto& list : draft.blocks) {
      for (const W0Block& block : list) run_count += left_in(block.what) == 1 ? 1 : 0;
    }
    p.runs = allocate(S::specialised ? run_count * sizeof(UnitRun) / 4 : 0);
  }
  p.words = allocate.at - p.start;
  // These stay in device memory, behind the words that are copied to shared memory.
  if constexpr (S::pipelined) p.blocks = allocate.at;
}

/// Allocates what a step works with, except for tiles of weights.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_areas(Draft& draft, SharedAllocator& allocate) {
  Program& p = draft.p;
  p.x = allocate(draft.x * (S::reads_context ? 2 : 1));
  p.x_words = draft.x;
  p.context_y = allocate(S::reads_context ? 2 * draft.out : 0);
  p.d1 = allocate(S::specialised ? 0 : draft.out);  // with warp roles d1(t) replaces y(t-2)
  p.seen = allocate(draft.patches * S::past_rows * patch_row);
  if constexpr (S::streams && !S::lists_in_slots) {
    p.lists = narrow(list_words);
    list_words += draft.w1_count() * S::list_words;
  }
  if constexpr (!S::streams) {
    p.y = allocate(2 * draft.out);
    std::uint32_t remainder = allocate(draft.block_count() * S::remainder_words);
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      p.remainder_first[w] = remainder;
      remainder += narrow(draft.blocks[w].size() * S::remainder_words);
    }
    p.lists = allocate(draft.w1_count() * S::list_words);
  }
}

/// Where all is streamed: allocates the histories of units (hidden values and d0, then squeezed
/// values) in shared memory as long as there is room, which saves the warps that finish units round
/// trips to device memory. Units that share a warp with another unit come first.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_histories(Draft& draft, std::size_t shared_words_there,
                                                    SharedAllocator& allocate) const {
  if constexpr (S::streams) {
    constexpr std::size_t warps = S::pipelined ? S::finishers : S::warps;
    const std::size_t count = draft.units.size();
    const auto shares_a_warp = [&](std::size_t u) { return u >= warps || u + warps < count; };
    const auto put = [&](std::uint32_t ProgramUnit::*where, std::size_t words) {
      for (const bool sharing : {true, false}) {
        for (std::size_t u = 0; u < count; ++u) {
          if (shares_a_warp(u) != sharing || allocate.at + words > shared_words_there) continue;
          draft.units[u].*where = allocate(words);
        }
      }
    };
    put(&ProgramUnit::history, S::history_words);
    put(&ProgramUnit::squeezed, S::squeezed_words);
  }
}

/// Turns offsets in x, in patches' histories and in the list of products into words of shared
/// memory; those in x for even and odd steps.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::make_absolute(Draft& draft) {
  const std::uint32_t x = draft.p.x;
  for (ProgramUnit& unit : draft.units) {
    unit.x += x;
    unit.one += x;
    unit.seen += draft.p.seen;
    unit.products += draft.p.products;
  }
  for (Source& slot : draft.sources) slot.to += x | x << 16;
  for (auto& list : draft.blocks) {
    for (W0Block& block : list) {
      block.x += x | x << 16;
      if (block.cut == listed_places) block.first += draft.p.places;
    }
  }
  for (Target& target : draft.targets) {
    target.x += x | x << 16;
    if (target.seen != no_pixel) target.seen += draft.p.seen;
  }
}

/// Allocates W1's tiles, before those of W0. The first `w1_always_streamed` blocks of each warp are
/// streamed although there is room, and so are fp32 blocks for which there is no room. 16-bit
/// blocks have to be in shared memory if weights stay on the chip at all: place_all() reports it if
/// they do not fit.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_w1(Draft& draft, std::size_t shared_words_there,
                                             SharedAllocator& allocate) {
  for (auto& list : draft.w1) {
    for (std::size_t k = 0; k < list.size(); ++k) {
      const bool room =
          k + 1 > S::w1_always_streamed && allocate.at + S::block_words <= shared_words_there;
      const bool stays = !S::streams && (room || !S::fp32_weights);
      list[k].where = stays ? allocate(S::block_words) : in_memory;
      if (!stays) ++w1_streamed;
    }
  }
}

/// Places W0's blocks: some of each warp's are held in registers, others lie in shared memory, with
/// about the same number left over for each warp, and these are streamed. The order of a warp's
/// blocks is
///   without roles:  held | streamed | in shared memory
///   with roles:     early streamed | held | in shared memory | late streamed
/// In both cases the first streamed blocks are loaded before anything else; with roles the late
/// ones are loaded while other blocks are multiplied.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_blocks(Draft& draft, std::size_t shared_words_there,
                                                 SharedAllocator& allocate) {
  std::uint32_t next = allocate.at;
  const auto left = fill_shared(draft, shared_words_there, allocate);
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    auto& list = draft.blocks[w];
    const std::size_t held_here = std::min<std::size_t>(left[w], S::held_blocks);
    const std::size_t streamed_here = left[w] - held_here;
    const std::size_t early =
        S::specialised ? std::min<std::size_t>(streamed_here, S::blocks_in_flight) : streamed_here;
    const std::size_t first_shared = held_here + early;
    const std::size_t late = list.size() - (streamed_here - early);
    streamed += streamed_here;
    draft.p.streamed_to[w] = narrow(S::specialised ? early : left[w]);
    draft.p.late_from[w] = narrow(late);
    draft.p.shared_from[w] = next;
    for (std::size_t k = 0; k < list.size(); ++k) {
      list[k].where = in_memory;  // also of held blocks: folders fold their copy in device memory
      if (k < first_shared || k >= late) continue;
      list[k].where = next;
      next += S::block_words;
    }
  }
}

/// Allocates shared memory for tiles of W0, one block at a time for the warps that have the most
/// blocks left, until it is full or no warp has more left than fit its registers. Returns how many
/// blocks each warp has left, held ones included.
template <class Precision, int Hidden, Home home>
auto Plan<Precision, Hidden, home>::fill_shared(const Draft& draft, std::size_t shared_words_there,
                                                SharedAllocator& allocate) -> BlockCounts {
  BlockCounts left{};
  std::size_t most = 0;
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    left[w] = draft.blocks[w].size();
    held += std::min<std::size_t>(left[w], S::held_blocks);
    most = std::max(most, left[w]);
  }
  for (; most > S::held_blocks && !S::streams; --most) {
    for (std::size_t w = 0; w < S::multipliers; ++w) {
      if (left[w] < most || allocate.at + S::block_words > shared_words_there) continue;
      --left[w];
      allocate(S::block_words);
      ++shared;
    }
  }
  return left;
}

}  // namespace pvm::inline v0::detail::units
