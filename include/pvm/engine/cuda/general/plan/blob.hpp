// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// The end of a program: chooses the panels that stay in shared memory during a launch (resident)
/// and writes the blob.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/general/plan/planner.hpp>
#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/tuning.hpp>

namespace pvm::inline v0::detail::general {

/// Completes a program whose lists and offsets are known.
inline void Planner::finish_program(Draft& d) {
  Program& p = d.program;
  sort_folds(d);
  d.items = d.early_items;
  d.items.insert(d.items.end(), d.late_items.begin(), d.late_items.end());
  d.warp_items.resize(d.items.size() * static_cast<std::size_t>(shape_.warps));
  count_lists(d);
  form_teams(p);
  // The list of resident panels follows the others. It is not known yet; reserve room for all.
  const std::size_t room = d.folds.size() + 4;
  std::size_t words = place_lists(d, false);
  if (words + room + d.shared > shared_floats_) words = place_lists(d, true);
  p.resident_list = u(words);
  const std::size_t used = place_areas(d, words + room);
  choose_residents(d, used);
  words += (d.resident_list.size() + 3) / 4 * 4;
  p.blob_words = u(words);
  p.resident = d.shared;  // behind the areas
  for (std::size_t k = 0; k < d.warp_items.size(); ++k) {
    d.warp_items[k] = for_warp(d.items[k % d.items.size()], static_cast<int>(k / d.items.size()),
                               p.column_count / 4);
  }
  write_blob(d);
}

/// Places the lists, or of the items only a window, behind the program. Returns the words in use.
inline std::size_t Planner::place_lists(Draft& d, bool windowed) const {
  Program& p = d.program;
  p.windowed = windowed ? 1 : 0;
  p.item_stride = windowed ? 2 * item_chunk : p.item_count;
  p.item_mask = windowed ? p.item_stride - 1 : ~0U;
  std::size_t words = (sizeof(Program) + 15) / 16 * 4;
  for_each_list(d, [&]<class T>(u32& at, const std::vector<T>& list) {
    const bool window = windowed && std::is_same_v<T, WarpItem>;
    at = u(words);
    const std::size_t count =
        window ? p.item_stride * static_cast<std::size_t>(shape_.warps) : list.size();
    words += (count * sizeof(T) + 15) / 16 * 4;
  });
  return words;
}

/// Forms the teams of warps. A piece of work costs as many round trips as one warp would need.
inline void Planner::form_teams(Program& p) const {
  const auto terms = static_cast<std::size_t>(shape_.terms);
  const auto sections = static_cast<std::size_t>(shape_.sections);
  const auto products = [&](std::size_t tasks) {  // eight lanes compute one
    return tasks * terms * ((hidden() + 63) / 64) / 4;
  };
  form(p.gather_teams, {(p.x_count + p.r_count) / 224, products(p.representation_count),
                        p.source_task_count * ((terms + 31) / 32), p.column_count / 32});
  form(p.hidden_teams, {p.hidden_count * hidden() / 32, p.output_count * sections * 2});
  form(p.finish_teams,
       {products(p.hidden_count), p.output_count * hidden() / 32, p.column_count / 32});
}

/// Gives each team one warp, and each further warp to the team that has most to do.
inline void Planner::form(std::uint32_t (&ends)[4], std::vector<std::size_t> costs) const {
  std::vector<std::size_t> team(costs.size(), 1);
  for (auto left = static_cast<std::size_t>(shape_.warps) - costs.size(); left > 0; --left) {
    std::size_t busiest = 0;
    for (std::size_t i = 1; i < costs.size(); ++i) {
      if (costs[i] * team[busiest] > costs[busiest] * team[i]) busiest = i;
    }
    ++team[busiest];
  }
  u32 end = 0;
  for (std::size_t i = 0; i < std::size(ends); ++i) {
    if (i < team.size()) end += u(team[i]);
    ends[i] = end;
  }
}

/// Sorts the folds by the step (modulo R) in which they are due.
inline void Planner::sort_folds(Draft& d) const {
  std::stable_sort(d.folds.begin(), d.folds.end(),
                   [](const Fold& a, const Fold& b) { return a.phase < b.phase; });
  d.fold_start.assign(static_cast<std::size_t>(shape_.period) + 1, 0);
  for (const Fold& fold : d.folds) ++d.fold_start[fold.phase + 1];
  std::partial_sum(d.fold_start.begin(), d.fold_start.end(), d.fold_start.begin());
}

inline void Planner::count_lists(Draft& d) {
  Program& p = d.program;
  p.early_item_count = u(d.early_items.size());
  p.item_count = u(d.items.size());
  p.source_task_count = u(d.source_tasks.size());
  p.hidden_count = u(d.hidden_units.size());
  p.representation_count = u(d.representation_tasks.size());
  p.output_count = u(d.output_units.size());
  p.block_count = u(d.blocks.size());
  p.fold_count = u(d.folds.size());
  p.layer_count = u(d.layers.size());
  p.patch_count = u(d.patches.size());
}

/// Calls visit(offset field of the program, list) for the lists of the blob in their order there,
/// except the last one, the list of resident panels.
template <class Visit>
void Planner::for_each_list(Draft& d, Visit visit) {
  Program& p = d.program;
  visit(p.items, d.warp_items);
  visit(p.source_tasks, d.source_tasks);
  visit(p.sources, d.sources);
  visit(p.hidden_units, d.hidden_units);
  visit(p.representation_tasks, d.representation_tasks);
  visit(p.output_units, d.output_units);
  visit(p.blocks, d.blocks);
  visit(p.phases, d.phases);
  visit(p.folds, d.folds);
  visit(p.fold_start, d.fold_start);
  visit(p.layer_list, d.layers);
  visit(p.patches, d.patches);
}

/// Decides which of the optional areas lie in shared memory (source words, coefficient tables,
/// partial y); the others stay in device memory. Shared memory holds the blob, then the areas, then
/// the resident panels. Returns the floats in use without resident panels. `blob_room`: words.
inline std::size_t Planner::place_areas(Draft& d, std::size_t blob_room) {
  Program& p = d.program;
  std::size_t used = (blob_room + d.shared + 3) / 4 * 4;
  // Takes room if at most the fraction `most` of shared memory is in use afterwards.
  const auto keep = [&](std::size_t floats, double most, u32& at) {
    at = d.shared;
    if (static_cast<double>(used + floats) > most * static_cast<double>(shared_floats_)) return 0U;
    (void)d.allocate(floats);
    used += (floats + 3) / 4 * 4;
    return 1U;
  };
  const std::size_t y_need = p.column_count * static_cast<std::size_t>(shape_.groups_at_once());
  p.words_shared = keep(p.x_count + p.r_count + p.column_count, 0.5, p.words_copy);
  p.tables_shared =
      keep(d.layers.size() * static_cast<std::size_t>(shape_.table_stride), 0.6, p.tables);
  p.y_shared = keep(y_need, 0.6, p.y);
  if (p.y_shared == 0) y_floats = std::max(y_floats, y_need);
  if (used <= shared_floats_) return used;
  throw Error(Fault::memory,
              "a multiprocessor's share of this network needs " + std::to_string(used * 4) +
                  " bytes of shared memory and the GPU has " + std::to_string(shared_floats_ * 4) +
                  "; use the host backend, or smaller layers");
}

/// Chooses the panels that are resident in the shared memory that is left: evenly spread over the
/// items, so that streamed and resident panels alternate, then whatever still fits.
inline void Planner::choose_residents(Draft& d, std::size_t used) const {
  Program& p = d.program;
  const auto has_panel = [](const Item& item) {
    return item.work != Work::none && item.work != Work::history;
  };
  std::size_t room = (shared_floats_ - used) * 4 / shape_.four_bytes;
  std::size_t total = 0;
  for (const Fold& fold : d.folds) total += fold.width * padded();
  const double fraction = total > 0 ? static_cast<double>(room) / static_cast<double>(total) : 0;
  double due = 0;
  for (const Item& item : d.items) {
    if (!has_panel(item)) continue;
    due += fraction;
    if (due < 1) continue;
    make_resident(d, item, room);
    due -= 1;
  }
  for (const Item& item : d.items) {
    if (has_panel(item)) make_resident(d, item, room);
  }
  for (Item& item : d.items) {
    for (const Fold& fold : d.folds) {
      if (has_panel(item) && fold.weight == item.weight) item.resident = fold.resident;
    }
  }
  mark_stays_in_l2(d.items, total - p.resident_f4);
  p.resident_count = u(d.resident_list.size());
}

/// Makes an item's panel resident if it is not yet and fits into `room` (f4), which it reduces.
inline void Planner::make_resident(Draft& d, const Item& item, std::size_t& room) const {
  const std::size_t size = item.width * padded();
  const auto fold = std::find_if(d.folds.begin(), d.folds.end(),
                                 [&](const Fold& f) { return f.weight == item.weight; });
  if (fold == d.folds.end() || fold->resident >= 0 || size > room) return;
  fold->resident = static_cast<std::int32_t>(d.program.resident_f4);
  d.resident_list.push_back(u(static_cast<std::size_t>(fold - d.folds.begin())));
  d.program.resident_f4 += u(size);
  room -= size;
}

/// Marks the items whose weights the L2 cache is to keep: all listed d1, and an evenly spread part
/// of the streamed panels; none if the list is long: the cache is to keep the past then, which is
/// read a few values at a time. `streamed_f4`: size of all panels that are not resident.
inline void Planner::mark_stays_in_l2(std::vector<Item>& items, std::size_t streamed_f4) const {
  if (shape_.terms > many_terms) return;
  const double fraction =
      streamed_f4 == 0 ? 1.0
                       : static_cast<double>(cache_bytes_ / shape_.four_bytes / jobs_.size()) /
                             static_cast<double>(streamed_f4);
  double due = 0;
  for (Item& item : items) {
    if (item.work == Work::history) {
      item.flags |= stays_in_l2;
    } else if (item.work != Work::none && item.resident < 0) {
      due += fraction;
      if (due < 1) continue;
      item.flags |= stays_in_l2;
      due = std::min(due - 1, 1.0);
    }
  }
}

/// The item as warp `warp` sees it. `history_stride`: f4 from one row of the listed d1 to the next.
inline WarpItem Planner::for_warp(const Item& item, int warp, u32 history_stride) const {
  const u32 group = u(static_cast<std::size_t>(warp / shape_.parts));
  const u32 part = u(static_cast<std::size_t>(warp % shape_.parts));
  const u32 whole = group + item.round * u(static_cast<std::size_t>(shape_.groups_at_once()));
  if (item.work == Work::none || whole >= u(static_cast<std::size_t>(shape_.groups))) return {};
  const u32 first_row = whole * u(static_cast<std::size_t>(shape_.rows_per_tile));
  const u32 first = part * item.part_width;
  const u32 lanes = first < item.width ? std::min(item.part_width, item.width - first) : 0;
  const bool history = item.work == Work::history;
  const bool has = first_row < item.rows;
  u32 flags = item.flags | (has ? u32{has_rows} : 0U);
  if (history) flags |= in_history;
  if (!history && item.resident >= 0) flags |= in_shared;
  if (has && item.work != Work::context) flags |= makes_sums;
  if (item.work != Work::hidden) flags |= makes_y;
  if (item.work == Work::hidden) flags |= hidden_only;
  const u32 from = (flags & in_shared) != 0 ? static_cast<u32>(item.resident) : item.weight;
  const u32 offset =
      from + (history ? first_row * history_stride + first
                      : first_row * item.width +
                            first * u(static_cast<std::size_t>(shape_.rows_per_tile)));
  return {offset, (item.column_vector + first) | lanes << 16 | flags << 22,
          (item.row_vector + first_row) | (item.sum + part * u(padded()) + first_row) << 16,
          item.y + group * item.y_stride + first};
}

/// Appends the program's blob to those of the other SMs, with all items behind it if shared memory
/// has a window of them.
inline void Planner::write_blob(Draft& d) {
  const Program& p = d.program;
  const std::size_t behind = p.windowed != 0 ? d.warp_items.size() * sizeof(WarpItem) / 4 : 0;
  std::vector<u32> blob(p.blob_words + behind);
  std::memcpy(blob.data(), &p, sizeof(p));
  const auto put = [&](u32 at, const auto& list) {
    if (!list.empty()) std::memcpy(blob.data() + at, list.data(), list.size() * sizeof(list[0]));
  };
  for_each_list(d, [&]<class T>(u32 at, const std::vector<T>& list) {
    put(std::is_same_v<T, WarpItem> && p.windowed != 0 ? p.blob_words : at, list);
  });
  put(p.resident_list, d.resident_list);
  blob_start.push_back(u(blobs.size()));
  blobs.insert(blobs.end(), blob.begin(), blob.end());
  resident_f4 += p.resident_f4;
  const std::size_t need = (p.blob_words + d.shared) * 4 + p.resident_f4 * shape_.four_bytes;
  shared_bytes = std::max(shared_bytes, need);
}

}  // namespace pvm::inline v0::detail::general
