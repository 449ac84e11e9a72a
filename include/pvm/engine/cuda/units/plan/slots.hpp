// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The slots of blocks in device memory (Sizes::in_slots), which are known when the array that has
/// them has been allocated, are written into the programs.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/cuda/units/plan/slot_dealer.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

/// Calls change(entry) for the first `count` entries of a list that starts at `words`.
template <class Entry, class Change>
void change_each(std::uint32_t* words, std::size_t count, Change change) {
  for (std::size_t k = 0; k < count; ++k, words += sizeof(Entry) / 4) {
    Entry entry;
    std::memcpy(&entry, words, sizeof entry);
    change(entry);
    std::memcpy(words, &entry, sizeof entry);
  }
}

template <class Precision, int Hidden, Home home>
SlotPairs Plan<Precision, Hidden, home>::slot_pairs(const Sides& sides) const {
  const auto pairs = [&](const std::vector<std::size_t>& blocks_of, typename S::SlotKind kind) {
    return SlotDealer<typename S::SlotKind>::pairs_for(sides, blocks_of, kind);
  };
  const auto low_pairs = [&](const std::vector<std::size_t>& blocks_of, typename S::SlotKind kind) {
    return S::fp32_weights ? 0 : pairs(blocks_of, kind);
  };
  SlotPairs first{};
  first.low_halves = pairs(program_blocks, S::block_slot);
  first.w1 = first.low_halves + low_pairs(program_blocks, S::low_slot);
  first.w1_low_halves = first.w1 + pairs(program_w1_blocks, S::w1_slot);
  first.end = first.w1_low_halves + low_pairs(program_w1_blocks, S::w1_slot);
  return first;
}

template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_in_slots(const Sides& sides) {
  const SlotPairs pairs = slot_pairs(sides);
  SlotDealer dealer(sides, 0, S::block_slot), low(sides, pairs.low_halves, S::low_slot),
      w1(sides, pairs.w1, S::w1_slot), w1_low(sides, pairs.w1_low_halves, S::w1_slot);
  slots.assign(blocks + w1_blocks, {no_slot, no_slot});
  for (const std::uint32_t start : program_start) {
    Program p;
    std::memcpy(&p, programs.data() + start, sizeof p);
    const auto words_at = [&](std::uint32_t at) {
      return programs.data() + start + (at - p.start);
    };
    const std::size_t count = p.block_start[S::warps];
    const std::size_t first = program_first_block[p.number];
    for (std::size_t k = 0; k < count; ++k) {  // numbered in the order of the passes over W0
      slots[first + k] = {dealer.next(p.number), S::fp32_weights ? 0 : low.next(p.number)};
    }
    change_each<W0Block>(words_at(p.blocks), count, [&](W0Block& block) {
      const SlotLines& lines = slots[block.block];
      if constexpr (S::streams) {
        block.where = lines.high;
        block.block = lines.low;
      } else {
        block.block = lines.high;
      }
    });
    if constexpr (S::pipelined) {
      change_each<W0Input>(words_at(p.inputs), count, [&](W0Input& input) {
        const std::uint32_t block = input.slot & (input_lines - 1);
        input.slot += slots[block].high - block;
      });
    }
    change_each<W1Block>(words_at(p.w1_blocks), p.w1_start[S::warps], [&](W1Block& block) {
      SlotLines& lines = slots[blocks + block.block];
      lines = {w1.next(p.number), S::fp32_weights ? 0 : w1_low.next(p.number)};
      if constexpr (S::streams) {
        block.where = lines.high | ((lines.low & chunk_lines) != 0 ? low_is_odd : 0);
      } else {
        block.block = lines.high;
      }
      if constexpr (S::lists_in_slots) {
        *words_at(p.list_slots + block.out / columns) = block.where;
      }
    });
  }
}

}  // namespace pvm::inline v0::detail::units
