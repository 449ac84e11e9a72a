// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Deals a network's matrices out to the multiprocessors and writes each one's program.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <queue>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/fused/program.hpp>
#include <pvm/engine/cuda/tuning.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/unit/deferred.hpp>

namespace pvm::inline v0::detail::fused {

enum class Work : std::uint32_t {
  none = 0,
  hidden = 1,   ///< W0: rows . x
  history = 2,  ///< listed d1: rows . d1, and their share of y
  output = 3,   ///< W1^T, hidden rows: rows . d1, and their share of y
  context = 4,  ///< W1^T, fed context rows: their share of y only
};

/// What all warps do with a panel. "f4" offsets count float4, others floats; offsets other than
/// `weight` are in shared memory.
struct Item {
  std::uint32_t weight;    ///< f4, in the arena, or in the history for Work::history
  std::int32_t resident;   ///< f4 in shared memory, or -1
  std::uint32_t width;     ///< f4 columns
  std::uint32_t each;      ///< f4 columns of one part
  std::uint32_t rows;      ///< rows that exist
  std::uint32_t vec;       ///< f4: the column vector (x or d1)
  std::uint32_t coef;      ///< the row vector (r, or the listed gradients' weights)
  std::uint32_t sum;       ///< where row sums go, [part][rows padded]
  std::uint32_t y;         ///< f4: partial y, [row group of a pass][y_stride]
  std::uint32_t y_stride;  ///< f4
  std::uint32_t pass;
  Work work;
  std::uint32_t flags;
  std::uint32_t slab;  ///< of the history
};

/// Rows of a tile for units of `hidden` values: those that pad them least.
constexpr int tile_rows_for(int hidden) {
  return (hidden + 6) / 7 * 7 <= (hidden + 7) / 8 * 8 ? 7 : 8;
}

/// Sizes that follow from the spec, the batch and the plan.
struct StepShape {
  int rows_per_tile = 7;  ///< RG
  int groups = 7;         ///< row groups of a unit
  int parts = 2;          ///< warps side by side on a panel
  int passes = 1;
  int padded = 49;  ///< rows, padded to groups * RG
  int terms = 23;   ///< L
  int period = 16;  ///< R
  int batch = 1;
  int list = 23;                      ///< T = L * batch
  int history = 25;                   ///< M: rows of the d1 ring, times batch
  int history_slabs = 1;              ///< of `padded` rows, the bias row included
  int chunks = 3;                     ///< of terms_per_task terms
  int table_stride = 0;               ///< floats of a layer's coefficients, see CoefficientTables
  std::size_t values = 0, frame = 0;  ///< units * H, pixels of a frame

  StepShape(const Spec& spec, const Connectome& net, DeferralPlan plan, int batch_)
      : batch(batch_), frame(spec.frame_size()) {
    const int hidden = net.hidden;
    values = net.units.size() * static_cast<std::size_t>(hidden);
    rows_per_tile = tile_rows_for(hidden);
    groups = (hidden + rows_per_tile - 1) / rows_per_tile;
    padded = groups * rows_per_tile;
    parts = std::max(1, step_warps / groups);
    passes = (groups * parts + step_warps - 1) / step_warps;
    terms = plan.terms;
    period = plan.period;
    list = terms * batch;
    history = terms + 2;
    history_slabs = (history * batch + 1 + padded - 1) / padded;
    table_stride = (2 * terms * (period + 1) + 1 + 3) / 4 * 4;
    chunks = (list + terms_per_task - 1) / terms_per_task;
  }
  [[nodiscard]] int panel_columns() const { return std::min(parts, 2) * 128; }
  /// Row groups of a pass: the partial sums of y.
  [[nodiscard]] int y_groups() const { return passes == 1 ? groups : step_warps; }
  [[nodiscard]] int history_rows() const { return history_slabs * padded; }

  // A row of the past: [c(h) | h | d0 | frame | 0 | 1 | pad].
  [[nodiscard]] std::size_t squeezed(std::size_t value) const { return value; }
  [[nodiscard]] std::size_t raw(std::size_t value) const { return values + value; }
  [[nodiscard]] std::size_t d0(std::size_t value) const { return 2 * values + value; }
  [[nodiscard]] std::size_t pixel(std::size_t index) const { return 3 * values + index; }
  [[nodiscard]] std::size_t zero() const { return 3 * values + frame; }
  [[nodiscard]] std::size_t one() const { return zero() + 1; }
  [[nodiscard]] std::size_t row() const { return (zero() + 2 + 31) / 32 * 32; }
};

/// A panel with what the host needs to carry weights in and out.
struct Panel {
  std::uint32_t unit = 0;
  bool output = false;       ///< W1 (transposed) rather than W0
  std::uint32_t slab = 0;    ///< W1: 0 hidden rows, s: rows of context slot s - 1
  std::uint32_t column = 0;  ///< W0: start in the unit's source words; W1: first output
  std::uint32_t width = 0;   ///< f4
  std::uint32_t weight = 0;  ///< f4 in the arena
  std::uint32_t phase = 0;
};

class Planner {
 public:
  Planner(const Spec& spec, const Connectome& net, StepShape shape, int blocks,
          std::size_t shared_bytes, std::size_t cache_bytes)
      : spec_(spec),
        net_(net),
        shape_(shape),
        shared_floats_(shared_bytes / 4),
        cache_bytes_(cache_bytes) {
    history_start.resize(net.units.size());
    history_stride.resize(net.units.size());
    output_start.resize(net.units.size());
    deal(blocks);
    for (auto& sm : jobs_) write_program(sm);
  }

  std::vector<Panel> panels;                ///< by arena position
  std::vector<std::uint32_t> blobs;         ///< all programs
  std::vector<std::uint32_t> blob_start;    ///< words, by SM
  std::vector<std::uint32_t> x_words;       ///< source words of x, r, targets
  std::vector<std::int32_t> x_reference;    ///< beside x_words: column of W0, or -1
  std::vector<std::size_t> history_start;   ///< by unit: row 0 of its listed d1, floats
  std::vector<std::size_t> history_stride;  ///< by unit: floats between rows
  std::vector<std::uint32_t> output_start;  ///< by unit: its first y
  std::size_t y_columns = 0;                ///< all y, padding included
  std::size_t arena_f4 = 0;
  std::size_t history_floats = 0;
  std::size_t y_floats = 0;      ///< largest global y scratch of an SM
  std::size_t shared_bytes = 0;  ///< largest need of an SM, residents included
  std::size_t resident_f4 = 0;   ///< all SMs together

 private:
  struct Job {
    std::uint32_t unit;
    bool output;
    double cost;
  };
  using u32 = std::uint32_t;
  static u32 u(std::size_t v) { return static_cast<u32>(v); }
  static u32 word(u32 back, std::size_t place) { return back << back_shift | u(place); }
  [[nodiscard]] u32 zero_word() const { return word(0, shape_.zero()); }
  [[nodiscard]] std::size_t hidden() const { return static_cast<std::size_t>(net_.hidden); }
  [[nodiscard]] u32 slabs(u32 unit) const {
    return spec_.feed_context_in_complex_layer ? 1 + u(net_.context[unit].size()) : 1;
  }

  /// Largest first to the least loaded: by bytes read a step.
  void deal(int blocks) {
    std::vector<Job> all;
    for (u32 i = 0; i < net_.units.size(); ++i) {
      const Unit& unit = net_.units[i];
      const double history = shape_.history * shape_.batch;
      all.push_back({i, false, 1.0 * net_.hidden * unit.inputs});
      all.push_back({i, true, 1.1 * unit.outputs * (unit.representation + history)});
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Job& a, const Job& b) { return a.cost > b.cost; });
    using Load = std::pair<double, std::size_t>;
    std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
    jobs_.resize(static_cast<std::size_t>(blocks));
    for (std::size_t i = 0; i < jobs_.size(); ++i) least.push({0, i});
    for (const Job& job : all) {
      auto [load, sm] = least.top();
      least.pop();
      jobs_[sm].push_back(job);
      least.push({load + job.cost, sm});
    }
  }

  /// An SM's tables while they are being written.
  struct Draft {
    std::vector<Item> first, second;
    std::vector<SlotTask> slot_tasks;
    std::vector<Slot> slots;
    std::vector<HiddenUnit> hidden_units;
    std::vector<RawTask> raw_tasks;
    std::vector<OutputUnit> output_units;
    std::vector<OutputBlock> blocks;
    std::vector<u32> phases;
    std::vector<Fold> folds;
    std::vector<u32> r_words, targets;
    std::vector<u32> layers, patches;
    std::vector<u32> output_ids, first_column;  // units with a W1 here, and where d1 starts
    u32 next_phase = 0;
    u32 shared = 0;  // floats taken so far
    Program program{};
  };

  static u32 local_layer(Draft& d, int layer) {
    const u32 id = static_cast<u32>(layer);
    const auto found = std::find(d.layers.begin(), d.layers.end(), id);
    const std::size_t at = static_cast<std::size_t>(found - d.layers.begin());
    if (found == d.layers.end()) d.layers.push_back(id);
    return u(at);
  }

  u32 take(Draft& d, std::size_t floats) {
    const u32 at = d.shared;
    d.shared += u((floats + 3) / 4 * 4);
    return at;
  }

  void write_program(const std::vector<Job>& jobs) {
    Draft d;
    Program& p = d.program;
    p.x_words = u(x_words.size());
    const std::size_t x_start = x_words.size();
    for (const Job& job : jobs) {
      if (!job.output) gather_hidden(d, job.unit, x_start);
    }
    p.x_count = u(x_words.size() - x_start);
    p.x = take(d, p.x_count);
    for (const Job& job : jobs) {
      if (job.output) gather_output(d, job.unit);
    }
    p.r_count = u(d.r_words.size());
    const u32 r_at = take(d, p.r_count);
    if (r_at != p.x + p.x_count) throw Error(Fault::usage, "internal: r must follow x");
    x_words.insert(x_words.end(), d.r_words.begin(), d.r_words.end());
    x_words.insert(x_words.end(), d.targets.begin(), d.targets.end());
    x_reference.resize(x_words.size(), -1);
    place_outputs(d);
    p.d1 = take(d, p.column_count);
    p.stage = take(d, fold_stage_floats);
    p.rows = take(d, static_cast<std::size_t>(16 * shape_.groups * 8));
    p.terms = take(d, d.layers.size());
    p.now = take(d, 32);  // struct Now
    fix_offsets(d, r_at);
    finish(d);
  }

  /// Where the listed d1 and the y of an SM's units lie.
  void place_outputs(Draft& d) {
    Program& p = d.program;
    p.column_count = u(d.targets.size());
    p.history = u(history_floats / 4);
    p.outputs = u(y_columns);
    for (std::size_t k = 0; k < d.output_ids.size(); ++k) {
      history_start[d.output_ids[k]] = history_floats + d.first_column[k];
      history_stride[d.output_ids[k]] = p.column_count;
      output_start[d.output_ids[k]] = p.outputs + d.first_column[k];
    }
    history_floats +=
        static_cast<std::size_t>(p.column_count) * static_cast<std::size_t>(shape_.history_rows());
    y_columns += p.column_count;
  }

  void gather_hidden(Draft& d, u32 unit, std::size_t x_start);
  void gather_output(Draft& d, u32 unit);
  void fix_offsets(Draft& d, u32 r_at);
  void finish(Draft& d);

  /// Marks what of the streamed weights the second-level cache shall keep: evenly spread.
  void mark_kept(std::vector<Item>& items, std::size_t streamed_f4) const {
    const double share = streamed_f4 == 0 ? 1.0
                                          : static_cast<double>(cache_bytes_ / 16 / jobs_.size()) /
                                                static_cast<double>(streamed_f4);
    double due = 0;
    for (Item& item : items) {
      if (item.work == Work::history) {
        item.flags |= stays_in_l2;
      } else if (item.work != Work::none && item.resident < 0) {
        due += share;
        if (due < 1) continue;
        item.flags |= stays_in_l2;
        due = std::min(due - 1, 1.0);
      }
    }
  }

  u32 new_panel(Draft& d, Panel panel) {
    panel.weight = u(arena_f4);
    arena_f4 += static_cast<std::size_t>(panel.width) * static_cast<std::size_t>(shape_.padded);
    if (arena_f4 >= (1ULL << 32)) throw Error(Fault::usage, "the network is too large for a GPU");
    panels.push_back(panel);
    (void)d;
    return panel.weight;
  }
  /// Columns of one part of a panel.
  [[nodiscard]] u32 each(u32 width) const {
    const u32 parts = static_cast<u32>(shape_.parts);
    return (width + parts - 1) / parts;
  }
  /// An item as one warp sees it.
  [[nodiscard]] WarpItem for_warp(const Item& item, int warp, u32 history_stride) const {
    const u32 group = u(static_cast<std::size_t>(warp / shape_.parts));
    const u32 part = u(static_cast<std::size_t>(warp % shape_.parts));
    const u32 whole = group + item.pass * u(static_cast<std::size_t>(step_warps));
    if (item.work == Work::none || whole >= u(static_cast<std::size_t>(shape_.groups))) return {};
    const u32 first_row = whole * u(static_cast<std::size_t>(shape_.rows_per_tile));
    const u32 first = part * item.each;
    const u32 lanes = first < item.width ? std::min(item.each, item.width - first) : 0;
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
    return {offset, (item.vec + first) | lanes << 16 | flags << 22,
            (item.coef + first_row) |
                (item.sum + part * u(static_cast<std::size_t>(shape_.padded)) + first_row) << 16,
            item.y + group * item.y_stride + first};
  }
  u32 new_phase(Draft& d) { return d.next_phase++ % u(static_cast<std::size_t>(shape_.period)); }

  const Spec& spec_;
  const Connectome& net_;
  StepShape shape_;
  std::size_t shared_floats_;
  std::size_t cache_bytes_;  // of the second-level cache, for weights
  std::vector<std::vector<Job>> jobs_;
};

/// W0 of a unit: its sources in groups that fold together, its panels, its items.
inline void Planner::gather_hidden(Draft& d, u32 id, std::size_t x_start) {
  const Unit& unit = net_.units[id];
  const std::size_t h = hidden();
  struct Piece {
    u32 source, older, back;
    std::size_t place, length, reference;
  };
  std::vector<Piece> pieces;
  const auto base = static_cast<std::size_t>(unit.base);
  std::size_t at = 0;
  const auto hidden_piece = [&](u32 source, u32 older) {
    pieces.push_back({source, older, 1 + older, shape_.squeezed(source * h), h, at});
    at += h;
  };
  const u32 patch = unit.layer == 0 ? id : Slot::none;
  if (unit.layer == 0) {
    const u32 source = u(net_.units.size()) + id;
    pieces.push_back({source, 0, 0, shape_.pixel(id * base), base, 0});
    pieces.push_back({source, 1, 1, shape_.pixel(id * base), base, base});
    at = 2 * base;
  } else {
    for (const auto s : net_.primary[id]) hidden_piece(s, 0);
    for (const auto s : net_.primary[id]) hidden_piece(s, 1);
  }
  for (const auto s : net_.context[id]) hidden_piece(s, 0);
  const u32 bias = u(net_.units.size() + net_.layer_start[1]);
  pieces.push_back({bias, 0, 0, shape_.one(), 1, at});

  HiddenUnit hu{};
  hu.unit = id;
  hu.layer = local_layer(d, unit.layer);
  hu.patch = patch;
  hu.sum = take(d, static_cast<std::size_t>((shape_.parts + shape_.chunks) * shape_.padded));
  hu.corr = hu.sum + u(static_cast<std::size_t>(shape_.parts * shape_.padded));
  if (patch != Slot::none) d.patches.push_back(patch);
  hu.q = take(d, static_cast<std::size_t>(shape_.list));
  hu.now = take(d, static_cast<std::size_t>(2 * shape_.padded));
  hu.first_task = u(d.slot_tasks.size());

  // Groups of about equal length that fold together.
  const auto most = static_cast<std::size_t>(shape_.panel_columns());
  const auto inputs = static_cast<std::size_t>(unit.inputs);
  const std::size_t wanted = (inputs + most - 1) / most;
  std::vector<Item> items;
  std::size_t i = 0;
  std::size_t done = 0;
  for (std::size_t group = 0; i < pieces.size(); ++group) {
    const std::size_t goal =
        group + 1 >= wanted ? most : std::min(most, (inputs - done) / (wanted - group) + h / 2);
    const u32 phase = new_phase(d);
    const std::size_t start = x_words.size();
    std::size_t length = 0;
    const std::size_t first = i;
    while (i < pieces.size() && (i == first || length + pieces[i].length <= goal ||
                                 (pieces[i].length == 1 && length + 1 <= most))) {
      const Piece& piece = pieces[i++];
      for (std::size_t k = 0; k < piece.length; ++k) {
        x_words.push_back(word(piece.back, piece.place + k));
        x_reference.push_back(static_cast<std::int32_t>(piece.reference + k));
      }
      length += piece.length;
      d.slots.push_back({piece.source, phase, piece.older});
    }
    done += length;
    for (std::size_t slot = d.slots.size() - (i - first); slot < d.slots.size();
         slot += slots_per_task) {
      d.slot_tasks.push_back({u(slot),
                              u(std::min<std::size_t>(slots_per_task, d.slots.size() - slot)),
                              hu.layer, take(d, static_cast<std::size_t>(shape_.list))});
    }
    while ((x_words.size() - start) % 4 != 0) {
      x_words.push_back(zero_word());
      x_reference.push_back(-1);
    }
    const std::size_t columns_f4 = (x_words.size() - start) / 4;
    const std::size_t panel_f4 = most / 4;
    const std::size_t cuts = (columns_f4 + panel_f4 - 1) / panel_f4;
    for (std::size_t cut = 0, from = 0; cut < cuts; ++cut) {
      const std::size_t width = (columns_f4 - from) / (cuts - cut);
      const u32 weight = new_panel(d, {id, false, 0, u(start + from * 4), u(width), 0, phase});
      Item item{};
      item.weight = weight;
      item.resident = -1;
      item.width = u(width);
      item.each = each(item.width);
      item.rows = u(static_cast<std::size_t>(shape_.padded));
      item.vec = u((start - x_start) / 4 + from);
      item.sum = hu.sum;
      item.work = Work::hidden;
      items.push_back(item);
      d.folds.push_back({weight, -1, u(width), each(u(width)), hu.layer, phase, id, 0,
                         u(start - x_start + from * 4), 0});
      from += width;
    }
  }
  hu.tasks = u(d.slot_tasks.size()) - hu.first_task;
  d.hidden_units.push_back(hu);
  for (int pass = 0; pass < shape_.passes; ++pass) {
    for (std::size_t k = 0; k < items.size(); ++k) {
      items[k].pass = u(static_cast<std::size_t>(pass));
      items[k].flags = (k == 0 ? starts_sum : 0) | (k + 1 == items.size() ? ends_sum : 0);
      d.first.push_back(items[k]);
    }
  }
}

/// W1 of a unit: columns in blocks, rows in slabs (hidden, then every fed context source), and the
/// listed d1 as further rows.
inline void Planner::gather_output(Draft& d, u32 id) {
  const Unit& unit = net_.units[id];
  const std::size_t h = hidden();
  const auto padded = static_cast<std::size_t>(shape_.padded);
  const auto outputs = static_cast<std::size_t>(unit.outputs);
  const auto base = static_cast<std::size_t>(unit.base);
  OutputUnit ou{};
  ou.unit = id;
  ou.layer = local_layer(d, unit.layer);
  ou.first_block = u(d.blocks.size());
  ou.first_raw = u(d.raw_tasks.size());
  ou.raws = slabs(id);
  ou.r = u(d.r_words.size());
  for (u32 slab = 0; slab < ou.raws; ++slab) {
    const u32 source = slab == 0 ? id : net_.context[id][slab - 1];
    for (std::size_t i = 0; i < padded; ++i) {
      d.r_words.push_back(i < h ? word(slab == 0 ? 1 : 2, shape_.raw(source * h + i))
                                : zero_word());
    }
    d.raw_tasks.push_back({source, slab == 0 ? 1U : 2U, 0});
  }
  ou.older = u(d.r_words.size());
  for (std::size_t i = 0; i < padded; ++i) {
    d.r_words.push_back(i < h ? word(2, shape_.raw(id * h + i)) : zero_word());
  }
  while (d.r_words.size() % 4 != 0) d.r_words.push_back(zero_word());

  const u32 first_column = u(d.targets.size());
  const auto target = [&](std::size_t o) {
    const std::size_t k = o % base;
    const u32 older = o < base ? 0 : 1;
    if (unit.layer == 0) return word(older, shape_.pixel(id * base + k));
    return word(1 + older, shape_.squeezed(net_.primary[id][k / h] * h + k % h));
  };
  const u32 f4 = u((outputs + 3) / 4);
  for (std::size_t o = 0; o < f4 * 4; ++o) {
    d.targets.push_back(o < outputs ? target(o) : zero_word());
  }
  d.output_ids.push_back(id);
  d.first_column.push_back(first_column);
  const u32 most = u(static_cast<std::size_t>(shape_.panel_columns())) / 4;
  const u32 cuts = (f4 + most - 1) / most;
  ou.sum = 0;
  for (u32 cut = 0, from = 0; cut < cuts; ++cut) {
    const u32 width = (f4 - from) / (cuts - cut);
    OutputBlock block{};
    block.unit = u(d.output_units.size());
    block.first_phase = u(d.phases.size());
    Item item{};
    item.resident = -1;
    item.width = width;
    item.vec = first_column / 4 + from;
    item.each = each(width);
    item.y = first_column / 4 + from;
    for (u32 slab = 0; slab < ou.raws; ++slab) {
      const u32 phase = new_phase(d);
      d.phases.push_back(phase);
      if (slab == 0) block.phase = phase;
      const u32 weight = new_panel(d, {id, true, slab, from * 4, width, 0, phase});
      item.weight = weight;
      item.rows = u(padded);
      item.coef = ou.r + slab * u(padded);
      item.work = slab == 0 ? Work::output : Work::context;
      item.sum = block.unit;  // fixed later
      item.flags = slab == 0 ? (cut == 0 ? starts_sum : 0) | (cut + 1 == cuts ? ends_sum : 0) : 0;
      d.second.push_back(item);
      const u32 source = slab == 0 ? id : net_.context[id][slab - 1];
      d.folds.push_back({weight, -1, width, each(width), ou.layer, phase, source,
                         slab == 0 ? 1U : 2U, first_column + from * 4, slab == 0 ? 1U : 0U});
    }
    for (int slab = 0; slab < shape_.history_slabs; ++slab) {
      Item past = item;
      past.weight = first_column / 4 + from;  // completed later
      const int rows = shape_.history * shape_.batch + 1 - slab * shape_.padded;
      past.rows = u(static_cast<std::size_t>(std::min(rows, shape_.padded)));
      past.coef = u(static_cast<std::size_t>(slab) * padded);  // completed later
      past.sum = u(d.blocks.size());                           // completed later
      past.work = Work::history;
      past.slab = u(static_cast<std::size_t>(slab));
      past.flags = starts_sum | ends_sum | (slab == 0 ? starts_y : 0);
      d.first.push_back(past);
    }
    d.blocks.push_back(block);
    from += width;
  }
  ou.blocks = cuts;
  d.output_units.push_back(ou);
}

/// Places what could not be placed while x grew, and repeats items by pass.
inline void Planner::fix_offsets(Draft& d, u32 r_at) {
  const auto padded = static_cast<std::size_t>(shape_.padded);
  const auto parts = static_cast<std::size_t>(shape_.parts);
  for (RawTask& task : d.raw_tasks) task.out = take(d, static_cast<std::size_t>(shape_.list));
  for (OutputUnit& unit : d.output_units) {
    unit.sum = take(d, (parts + static_cast<std::size_t>(shape_.chunks)) * padded);
    unit.corr = unit.sum + u(parts * padded);
    unit.r += r_at;
    unit.older += r_at;
  }
  for (OutputBlock& block : d.blocks) {
    block.sum = take(d, static_cast<std::size_t>(shape_.history_slabs) * parts * padded);
    block.coef = take(d, static_cast<std::size_t>(shape_.history_rows()));
  }
  const u32 x_f4 = d.program.x / 4;
  const u32 d1_f4 = d.program.d1 / 4;
  std::vector<Item> first, second;
  for (Item& item : d.first) {
    if (item.work == Work::hidden) {
      item.vec += x_f4;
      first.push_back(item);  // repeated by pass already
      continue;
    }
    const OutputBlock& block = d.blocks[item.sum];
    const u32 stride = d.program.column_count / 4;
    item.weight += d.program.history + item.slab * u(padded) * stride;
    item.y_stride = stride;
    item.vec += d1_f4;
    item.coef += block.coef;
    item.sum = block.sum + item.slab * u(parts * padded);
    for (int pass = 0; pass < shape_.passes; ++pass) {
      item.pass = u(static_cast<std::size_t>(pass));
      if (pass > 0) item.flags &= ~starts_y;
      first.push_back(item);
    }
  }
  // A pass's row sums go on over all column blocks of a unit.
  for (std::size_t at = 0; at < d.second.size();) {
    std::size_t end = at;
    while (end < d.second.size() && d.second[end].sum == d.second[at].sum) ++end;
    for (int pass = 0; pass < shape_.passes; ++pass) {
      for (std::size_t k = at; k < end; ++k) {
        Item item = d.second[k];
        item.vec += d1_f4;
        item.y_stride = d.program.column_count / 4;
        item.coef += r_at;
        item.sum = d.output_units[item.sum].sum;
        item.pass = u(static_cast<std::size_t>(pass));
        second.push_back(item);
      }
    }
    at = end;
  }
  // The history first: its weights are the ones prefetched while the frame arrives.
  std::stable_partition(first.begin(), first.end(),
                        [](const Item& item) { return item.work == Work::history; });
  if (first.size() % 2 != 0) first.push_back(Item{});
  if (second.size() % 2 != 0) second.push_back(Item{});
  d.first = std::move(first);
  d.second = std::move(second);
}

template <class T>
void append_words(std::vector<std::uint32_t>& out, const std::vector<T>& list) {
  static_assert(sizeof(T) % 4 == 0);
  const std::size_t at = out.size();
  out.resize(at + list.size() * sizeof(T) / 4);
  if (!list.empty()) std::memcpy(out.data() + at, list.data(), list.size() * sizeof(T));
}

/// Chooses what stays in shared memory and writes the blob.
inline void Planner::finish(Draft& d) {
  Program& p = d.program;
  std::stable_sort(d.folds.begin(), d.folds.end(),
                   [](const Fold& a, const Fold& b) { return a.phase < b.phase; });
  std::vector<u32> fold_start(static_cast<std::size_t>(shape_.period) + 1, 0);
  for (const Fold& fold : d.folds) ++fold_start[fold.phase + 1];
  std::partial_sum(fold_start.begin(), fold_start.end(), fold_start.begin());

  std::size_t words = (sizeof(Program) + 15) / 16 * 4;
  const auto place = [&](const auto& list) {
    const std::size_t at = words;
    words += (list.size() * sizeof(list[0]) + 15) / 16 * 4;
    return u(at);
  };
  std::vector<Item> items = d.first;
  items.insert(items.end(), d.second.begin(), d.second.end());
  std::vector<u32> resident_list;
  p.first_items = u(d.first.size());
  p.all_items = u(items.size());
  p.slot_task_count = u(d.slot_tasks.size());
  p.hidden_count = u(d.hidden_units.size());
  p.raw_count = u(d.raw_tasks.size());
  p.output_count = u(d.output_units.size());
  p.block_count = u(d.blocks.size());
  p.fold_count = u(d.folds.size());
  p.layer_count = u(d.layers.size());
  p.patch_count = u(d.patches.size());
  std::vector<WarpItem> warp_items(items.size() * static_cast<std::size_t>(step_warps));
  p.items = place(warp_items);
  p.slot_tasks = place(d.slot_tasks);
  p.slots = place(d.slots);
  p.hidden_units = place(d.hidden_units);
  p.raw_tasks = place(d.raw_tasks);
  p.output_units = place(d.output_units);
  p.blocks = place(d.blocks);
  p.phases = place(d.phases);
  p.folds = place(d.folds);
  p.fold_start = place(fold_start);
  p.layer_list = place(d.layers);
  p.patches = place(d.patches);
  p.resident_list = u(words);
  const std::size_t blob_room = words + d.folds.size() + 4;

  // The blob lies at the start of shared memory, the areas behind it, then what is resident.
  std::size_t used = blob_room + d.shared;
  used = (used + 3) / 4 * 4;
  const auto keep = [&](std::size_t floats, double most, u32& at) {
    at = d.shared;
    if (static_cast<double>(used + floats) > most * static_cast<double>(shared_floats_)) return 0U;
    (void)take(d, floats);
    used += (floats + 3) / 4 * 4;
    return 1U;
  };
  const std::size_t y_need = p.column_count * static_cast<std::size_t>(shape_.y_groups());
  p.words_shared = keep(p.x_count + p.r_count + p.column_count, 0.5, p.words_copy);
  p.tables_shared =
      keep(d.layers.size() * static_cast<std::size_t>(shape_.table_stride), 0.6, p.tables);
  p.y_shared = keep(y_need, 0.6, p.y);
  if (p.y_shared == 0) y_floats = std::max(y_floats, y_need);
  if (used > shared_floats_) {
    throw Error(Fault::memory, "a multiprocessor's share of this network needs " +
                                   std::to_string(used * 4) +
                                   " bytes of shared memory and the GPU has " +
                                   std::to_string(shared_floats_ * 4) +
                                   "; use the host backend, or smaller layers");
  }
  // Every k-th panel, so that streamed and resident ones alternate.
  std::size_t room = (shared_floats_ - used) / 4;
  std::size_t total = 0;
  for (const Fold& fold : d.folds) total += fold.width * static_cast<std::size_t>(shape_.padded);
  double due = 0;
  u32 resident = 0;
  const auto try_panel = [&](const Item& item) {
    const std::size_t size = item.width * static_cast<std::size_t>(shape_.padded);
    const auto fold = std::find_if(d.folds.begin(), d.folds.end(),
                                   [&](const Fold& f) { return f.weight == item.weight; });
    if (fold == d.folds.end() || fold->resident >= 0 || size > room) return;
    fold->resident = static_cast<std::int32_t>(resident);
    resident_list.push_back(u(static_cast<std::size_t>(fold - d.folds.begin())));
    resident += u(size);
    room -= size;
  };
  const double share = total > 0 ? static_cast<double>(room) / static_cast<double>(total) : 0;
  for (const Item& item : items) {
    if (item.work == Work::none || item.work == Work::history) continue;
    due += share;
    if (due < 1) continue;
    try_panel(item);
    due -= 1;
  }
  for (const Item& item : items) {
    if (item.work != Work::none && item.work != Work::history) try_panel(item);
  }
  for (Item& item : items) {
    for (const Fold& fold : d.folds) {
      if (item.work != Work::none && item.work != Work::history && fold.weight == item.weight) {
        item.resident = fold.resident;
      }
    }
  }
  mark_kept(items, total - resident);
  p.resident_count = u(resident_list.size());
  p.resident_f4 = resident;
  resident_f4 += resident;
  words += (resident_list.size() + 3) / 4 * 4;
  p.words = u(words);
  p.resident = d.shared;  // behind the areas

  std::vector<u32> blob(words);
  std::memcpy(blob.data(), &p, sizeof(p));
  const auto put = [&](u32 at, const auto& list) {
    if (!list.empty()) std::memcpy(blob.data() + at, list.data(), list.size() * sizeof(list[0]));
  };
  for (std::size_t k = 0; k < warp_items.size(); ++k) {
    warp_items[k] =
        for_warp(items[k % items.size()], static_cast<int>(k / items.size()), p.column_count / 4);
  }
  put(p.items, warp_items);
  put(p.slot_tasks, d.slot_tasks);
  put(p.slots, d.slots);
  put(p.hidden_units, d.hidden_units);
  put(p.raw_tasks, d.raw_tasks);
  put(p.output_units, d.output_units);
  put(p.blocks, d.blocks);
  put(p.phases, d.phases);
  put(p.folds, d.folds);
  put(p.fold_start, fold_start);
  put(p.layer_list, d.layers);
  put(p.patches, d.patches);
  put(p.resident_list, resident_list);
  blob_start.push_back(u(blobs.size()));
  blobs.insert(blobs.end(), blob.begin(), blob.end());
  const std::size_t need = words + d.shared + resident * 4;
  shared_bytes = std::max(shared_bytes, need * 4);
}

}  // namespace pvm::inline v0::detail::fused
