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
  const auto low_pairs = [&](const std::vector<std::size_t>& blocks_of) {
    return S::fp32_weights ? 0 : pairs(blocks_of, S::low_slot);
  };
  SlotPairs first{};
  first.low_halves = pairs(program_blocks, S::block_slot);
  first.wide = first.low_halves + low_pairs(program_blocks);
  first.wide_low_halves = first.wide + pairs(program_wide_blocks, S::wide_slot);
  first.end = first.wide_low_halves + low_pairs(program_wide_blocks);
  return first;
}

template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::place_in_slots(const Sides& sides) {
  const SlotPairs first = slot_pairs(sides);
  SlotDealer dealer(sides, 0, S::block_slot), low(sides, first.low_halves, S::low_slot),
      wide(sides, first.wide, S::wide_slot), wide_low(sides, first.wide_low_halves, S::low_slot);
  slots.assign(blocks + wide_blocks, {});
  std::size_t number = 0;  // blocks are numbered in the order of the passes over W0
  for (const std::uint32_t start : program_start) {
    ChipProgram p;
    std::memcpy(&p, programs.data() + start, sizeof p);
    const auto words_at = [&](std::uint32_t at) {
      return programs.data() + start + (at - p.start);
    };
    const std::size_t count = p.block_start[S::warps];
    for (std::size_t k = 0; k < count; ++k) {
      slots[number++] = {dealer.next(p.number), S::fp32_weights ? 0 : low.next(p.number)};
    }
    change_each<ChipBlock>(words_at(p.blocks), count, [&](ChipBlock& block) {
      const SlotLines& lines = slots[block.block];
      if constexpr (S::streams) {
        block.where = lines.high;
        block.block = lines.low;
      } else {
        block.block = lines.high;
      }
    });
    if constexpr (S::pipelined) {
      change_each<ChipInput>(words_at(p.inputs), count, [&](ChipInput& input) {
        const std::uint32_t block = input.slot & (input_lines - 1);
        input.slot += slots[block].high - block;
      });
    }
    change_each<ChipWideBlock>(
        words_at(p.wide_blocks), p.wide_start[S::warps], [&](ChipWideBlock& block) {
          SlotLines& lines = slots[blocks + block.block];
          lines = {wide.next(p.number), S::fp32_weights ? 0 : wide_low.next(p.number)};
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
