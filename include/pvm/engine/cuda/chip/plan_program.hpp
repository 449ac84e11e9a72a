// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Writes a multiprocessor's program when all lists are complete.

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <pvm/engine/cuda/chip/plan.hpp>
#include <pvm/engine/cuda/chip/plan_draft.hpp>
#include <pvm/engine/cuda/chip/sizes.hpp>

namespace pvm::inline v0::detail::chip {

/// Puts the program behind those of the multiprocessors before.
template <class Precision, int Hidden, Home home>
void Plan<Precision, Hidden, home>::append(Draft& draft) {
  ChipProgram& p = draft.p;
  p.unit_count = narrow(draft.units.size());
  p.slot_count = narrow(draft.slots.size());
  p.out_count = draft.out;
  const auto blocks_of_all = join(draft.blocks, p.block_start);
  const auto wide_of_all = join(draft.wide, p.wide_start);
  const std::size_t start = programs.size();
  program_start.push_back(narrow(start));
  programs.resize(start + p.words);
  const auto put = [&](std::uint32_t at, const auto& values) {
    if (values.empty()) return;
    std::memcpy(programs.data() + start + at - p.start, values.data(),
                values.size() * sizeof(values[0]));
  };
  std::memcpy(programs.data() + start, &p, sizeof(p));
  put(p.units, draft.units);
  put(p.panels, draft.panels);
  put(p.slots, draft.slots);
  put(p.blocks, blocks_of_all);  // and zeros
  put(p.wide_blocks, wide_of_all);
  put(p.products, draft.products);
  put(p.targets, draft.targets);
  put(p.folding, draft.folding);
  put(p.folding_start, draft.folding_start);
  put(p.first_in_pass, draft.first_in_pass);
  put(p.wide_folding, draft.wide_folding);
  put(p.wide_folding_start, draft.wide_folding_start);
  put(p.reload, draft.reload);
  put(p.inputs, first_inputs(p, blocks_of_all));
}

/// The blocks of all warps, one warp's behind the other's; warps that do not multiply have none.
template <class Precision, int Hidden, Home home>
template <class Lists>
typename Lists::value_type Plan<Precision, Hidden, home>::join(
    const Lists& lists, std::uint32_t (&start)[most_warps + 1]) {
  typename Lists::value_type all;
  for (std::size_t w = 0; w < S::multipliers; ++w) {
    start[w] = narrow(all.size());
    all.insert(all.end(), lists[w].begin(), lists[w].end());
  }
  for (std::size_t w = S::multipliers; w <= S::warps; ++w) start[w] = narrow(all.size());
  return all;
}

/// Where blocks' inputs are on even steps, then on odd ones. Behind the last block it is x, because
/// a warp looks beyond its own.
template <class Precision, int Hidden, Home home>
std::vector<std::uint32_t> Plan<Precision, Hidden, home>::first_inputs(
    const ChipProgram& p, const std::vector<ChipBlock>& all) {
  std::vector<std::uint32_t> inputs(2 * p.input_count, p.x);
  for (std::size_t k = 0; k < p.input_count && k < all.size(); ++k) {
    inputs[k] = all[k].x & 0xffffU;
    inputs[p.input_count + k] = all[k].x >> 16;
  }
  return inputs;
}

}  // namespace pvm::inline v0::detail::chip
