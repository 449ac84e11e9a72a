// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// A shard's part of a plan. Programs are dealt in turn, because their order is that of their loads
/// and of their numbers of units: all shards get about the same of either.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include <pvm/engine/cuda/units/plan/plan.hpp>
#include <pvm/engine/cuda/units/sizes.hpp>

namespace pvm::inline v0::detail::units {

template <class Precision, int Hidden, Home home>
auto Plan<Precision, Hidden, home>::part(std::size_t shard, std::size_t shards) const -> Plan {
  Plan own = *this;
  for (auto* list : {&own.program_blocks, &own.program_w1_blocks, &own.program_first_block}) {
    list->clear();
  }
  own.programs.clear();
  own.program_start.clear();
  own.portions_.clear();
  own.has_unit_.assign(net_.units.size(), false);
  if constexpr (S::streams && !S::lists_in_slots) own.list_words = 0;
  for (std::size_t m = shard; m < program_start.size(); m += shards) {
    const std::size_t start = program_start[m];
    const std::size_t end = m + 1 < program_start.size() ? program_start[m + 1] : programs.size();
    Program p;
    std::memcpy(&p, programs.data() + start, sizeof p);
    p.number = narrow(own.program_start.size());
    if constexpr (S::streams && !S::lists_in_slots) {
      p.lists = narrow(own.list_words);
      own.list_words += program_w1_blocks[m] * S::list_words;
    }
    own.program_start.push_back(narrow(own.programs.size()));
    own.programs.insert(own.programs.end(), programs.begin() + static_cast<std::ptrdiff_t>(start),
                        programs.begin() + static_cast<std::ptrdiff_t>(end));
    std::memcpy(own.programs.data() + own.program_start.back(), &p, sizeof p);
    own.program_blocks.push_back(program_blocks[m]);
    own.program_w1_blocks.push_back(program_w1_blocks[m]);
    own.program_first_block.push_back(program_first_block[m]);
    own.portions_.push_back(portions_[m]);
    for (const std::size_t u : portions_[m]) own.has_unit_[u] = true;
  }
  return own;
}

}  // namespace pvm::inline v0::detail::units
