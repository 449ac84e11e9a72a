// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Deals a network's matrices out to the streaming multiprocessors (SMs) and writes the program of
/// each SM (program.hpp). This file has the order of the work; its parts are in plan/hidden.hpp
/// (W0), plan/output.hpp (W1), plan/places.hpp (offsets) and plan/blob.hpp (resident panels, the
/// blob).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/engine/cuda/general/plan/draft.hpp>
#include <pvm/engine/cuda/general/program.hpp>
#include <pvm/engine/cuda/general/shape.hpp>
#include <pvm/engine/cuda/general/tuning.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail::general {

/// A panel with what the host needs to import and export its weights (WeightMap).
struct Panel {
  std::uint32_t unit = 0;
  bool output = false;       ///< W1 (transposed) rather than W0
  std::uint32_t slab = 0;    ///< W1: 0 for the unit's hidden rows, s > 0 for context source s - 1
  std::uint32_t column = 0;  ///< first column. W0: index into source_words; W1: output of the unit
  std::uint32_t width = 0;   ///< f4 columns
  std::uint32_t weight = 0;  ///< f4 in the arena
  std::uint32_t phase = 0;   ///< the panel folds at the steps that are this modulo R
};

/// Which SM computes what, and where everything lies. A value, which a Planner makes once.
struct Plan {
  std::vector<Panel> panels;                ///< in the order of the arena
  std::vector<std::uint32_t> blobs;         ///< the programs of all SMs
  std::vector<std::uint32_t> blob_start;    ///< [SM]: offset of its program, in words
  std::vector<std::uint32_t> source_words;  ///< source words of x, r and the targets, SM by SM
  std::vector<std::int32_t> x_reference;    ///< by index into source_words: column of W0, or -1
  std::vector<std::size_t> history_start;   ///< [unit]: offset of row 0 of its listed d1, in floats
  std::vector<std::size_t> history_stride;  ///< [unit]: floats from one row to the next
  std::vector<std::uint32_t> output_start;  ///< [unit]: column of its first y
  std::size_t y_columns = 0;                ///< columns of y of all SMs, padding included
  std::size_t arena_f4 = 0;                 ///< size of the arena
  std::size_t history_floats = 0;           ///< size of the listed d1 of all SMs
  std::size_t y_floats = 0;      ///< size of the largest partial y that is not in shared memory
  std::size_t shared_bytes = 0;  ///< largest need of an SM, resident panels included
  std::size_t resident_f4 = 0;   ///< resident panels of all SMs together
};

/// Makes a Plan.
class Planner : private Plan {
 public:
  /// The plan of `spec`, of which `net` is the connectome. `blocks`: SMs. `shared_bytes`: shared
  /// memory of one. `cache_bytes`: of the L2 cache, for weights. Throws Error (usage, memory),
  /// which says why, for networks that do not fit.
  static Plan make(const Spec& spec, const Connectome& net, StepShape shape, int blocks,
                   std::size_t shared_bytes, std::size_t cache_bytes) {
    Planner planner(spec, net, shape, shared_bytes, cache_bytes);
    planner.deal(blocks);
    for (const std::vector<Job>& sm : planner.jobs_) planner.write_program(sm);
    return planner;
  }

 private:
  Planner(const Spec& spec, const Connectome& net, StepShape shape, std::size_t shared_bytes,
          std::size_t cache_bytes)
      : spec_(spec),
        net_(net),
        shape_(shape),
        shared_floats_(shared_bytes / 4),
        cache_bytes_(cache_bytes) {
    history_start.resize(net.units.size());
    history_stride.resize(net.units.size());
    output_start.resize(net.units.size());
  }

  /// One matrix, W0 or W1 of a unit, and its part of a step's time.
  struct Job {
    std::uint32_t unit;
    bool output;
    double cost;
  };
  /// The consecutive values of one source in a unit's x.
  struct Piece {
    std::uint32_t source, in_b_half, back;  // see Source; x(t) holds values of step t - back
    // Index of the first value in a row of the past; how many; first column of W0, reference order.
    std::size_t place, length, reference;
  };
  /// A group of consecutive pieces that fold at the same steps.
  struct Group {
    std::uint32_t phase;
    std::size_t start;  // index of its first column in source_words
  };
  using u32 = std::uint32_t;
  static u32 u(std::size_t v) { return static_cast<u32>(v); }
  static u32 word(u32 back, std::size_t place) { return back << back_shift | u(place); }
  [[nodiscard]] u32 zero_word() const { return word(0, shape_.zero()); }
  [[nodiscard]] std::size_t hidden() const { return static_cast<std::size_t>(net_.hidden); }
  [[nodiscard]] std::size_t padded() const { return static_cast<std::size_t>(shape_.padded); }
  [[nodiscard]] std::size_t parts() const { return static_cast<std::size_t>(shape_.parts); }
  /// Slabs of a unit's W1: its own hidden values, then each fed context source.
  [[nodiscard]] u32 slabs(u32 unit) const {
    return spec_.feed_context_in_complex_layer ? 1 + u(net_.context[unit].size()) : 1;
  }
  /// The unit whose hidden values a slab of W1 multiplies, and how many steps before t they are of,
  /// in r(t-1).
  [[nodiscard]] u32 slab_source(u32 unit, u32 slab) const {
    return slab == 0 ? unit : net_.context[unit][slab - 1];
  }
  static u32 slab_back(u32 slab) { return slab == 0 ? 1U : 2U; }
  /// f4 columns of one part of a panel that is `width` f4 wide.
  [[nodiscard]] u32 part_width(u32 width) const { return (width + u(parts()) - 1) / u(parts()); }
  /// Deals phases out round robin, so that an SM folds about as much in every step.
  u32 new_phase(Draft& d) const {
    return d.next_phase++ % u(static_cast<std::size_t>(shape_.period));
  }
  /// Allocates a panel in the arena; returns its offset in f4.
  u32 new_panel(Panel panel) {
    const std::size_t line = 128 / shape_.four_bytes;  // panels begin at lines of the L2 cache
    arena_f4 = (arena_f4 + line - 1) / line * line;
    panel.weight = u(arena_f4);
    arena_f4 += static_cast<std::size_t>(panel.width) * padded();
    if (arena_f4 >= (1ULL << 32)) throw Error(Fault::usage, "the network is too large for a GPU");
    panels.push_back(panel);
    return panel.weight;
  }

  /// The matrices, with what each costs its SM in a step: the number of values that it could read
  /// in that time.
  [[nodiscard]] std::vector<Job> all_jobs() const {
    std::vector<Job> all;
    const double terms = shape_.terms;
    for (u32 i = 0; i < net_.units.size(); ++i) {
      const Unit& unit = net_.units[i];
      const double patch = unit.layer == 0 ? cost_of_patch + terms * term_cost_of_patch : 0;
      all.push_back(
          {i, false,
           1.0 * net_.hidden * unit.inputs + cost_of_matrix + terms * term_cost_of_w0 + patch});
      all.push_back(
          {i, true, 1.2 * unit.outputs * (unit.representation + shape_.history) + cost_of_matrix});
    }
    return all;
  }

  /// Deals the matrices out, the largest first, each to the SM with the least load so far. A step
  /// takes as long as the SM with the greatest load. So that one then exchanges matrices with
  /// others, as long as this helps; the rest counts for nothing beside what costs only estimate.
  void deal(int blocks) {
    std::vector<Job> all = all_jobs();
    std::stable_sort(all.begin(), all.end(),
                     [](const Job& a, const Job& b) { return a.cost > b.cost; });
    using Load = std::pair<double, std::size_t>;
    std::priority_queue<Load, std::vector<Load>, std::greater<>> least;
    jobs_.resize(static_cast<std::size_t>(blocks));
    std::vector<double> loads(jobs_.size());
    double enough = 0;
    for (std::size_t i = 0; i < jobs_.size(); ++i) least.push({0, i});
    for (const Job& job : all) {
      auto [load, sm] = least.top();
      least.pop();
      jobs_[sm].push_back(job);
      loads[sm] = load + job.cost;
      least.push({loads[sm], sm});
      enough += 1.005 * job.cost / static_cast<double>(blocks);
    }
    for (std::size_t i = 0; i < all.size() && exchange(loads, enough); ++i) {
    }
  }

  /// Exchanges a matrix of the SM with the greatest load with one of another SM, or gives it away,
  /// whichever makes the greater load of the two least. False if nothing helps, or if no load is
  /// more than `enough`.
  bool exchange(std::vector<double>& loads, double enough) {
    const auto top =
        static_cast<std::size_t>(std::max_element(loads.begin(), loads.end()) - loads.begin());
    if (loads[top] <= enough) return false;
    const Job nothing{0, false, 0};
    double least = loads[top] * (1 - 1e-6);
    std::size_t mine = 0, other = jobs_.size(), theirs = 0;
    for (std::size_t sm = 0; sm < jobs_.size(); ++sm) {
      if (sm == top) continue;
      for (std::size_t i = 0; i < jobs_[top].size(); ++i) {
        for (std::size_t k = 0; k <= jobs_[sm].size(); ++k) {
          const Job& job = k < jobs_[sm].size() ? jobs_[sm][k] : nothing;
          const double less = jobs_[top][i].cost - job.cost;
          const double load = std::max(loads[top] - less, loads[sm] + less);
          if (load >= least) continue;
          least = load;
          mine = i;
          other = sm;
          theirs = k;
        }
      }
    }
    if (other == jobs_.size()) return false;
    std::vector<Job>& from = jobs_[top];
    std::vector<Job>& to = jobs_[other];
    const double less = from[mine].cost - (theirs < to.size() ? to[theirs].cost : 0);
    if (theirs < to.size()) {
      std::swap(from[mine], to[theirs]);
    } else {
      to.push_back(from[mine]);
      from.erase(from.begin() + static_cast<std::ptrdiff_t>(mine));
    }
    loads[top] -= less;
    loads[other] += less;
    return true;
  }

  /// Writes the program of one SM.
  void write_program(const std::vector<Job>& jobs) {
    Draft d;
    Program& p = d.program;
    p.source_words = u(source_words.size());
    const std::size_t x_start = source_words.size();
    for (const Job& job : jobs) {
      if (!job.output) add_hidden_unit(d, job.unit, x_start);
    }
    p.x_count = u(source_words.size() - x_start);
    p.x = d.allocate(p.x_count);
    for (const Job& job : jobs) {
      if (job.output) add_output_unit(d, job.unit);
    }
    p.r_count = u(d.r_words.size());
    const u32 r_at = d.allocate(p.r_count);
    if (r_at != p.x + p.x_count) throw Error(Fault::usage, "internal: r must follow x");
    source_words.insert(source_words.end(), d.r_words.begin(), d.r_words.end());
    source_words.insert(source_words.end(), d.targets.begin(), d.targets.end());
    x_reference.resize(source_words.size(), -1);
    place_outputs(d);
    p.d1 = d.allocate(p.column_count);
    place_factors(d);
    p.table_numbers = d.allocate(d.layers.size());
    p.now = d.allocate(32);  // struct Now
    fix_offsets(d, r_at);
    finish_program(d);
  }

  // plan/hidden.hpp: W0 of a unit
  void add_hidden_unit(Draft& d, u32 id, std::size_t x_start);
  [[nodiscard]] std::vector<Piece> pieces_of(u32 id) const;
  [[nodiscard]] HiddenUnit new_hidden_unit(Draft& d, u32 id) const;
  static std::size_t fitting(std::span<const Piece> pieces, std::size_t most);
  void list_sources(Draft& d, std::span<const Piece> pieces, u32 phase);
  void add_source_tasks(Draft& d, std::size_t count, u32 layer) const;
  void cut_group(Draft& d, const HiddenUnit& unit, const Group& group, std::size_t x_start,
                 std::vector<Item>& items);

  // plan/output.hpp: W1 of a unit
  void add_output_unit(Draft& d, u32 id);
  void list_representation(Draft& d, OutputUnit& unit) const;
  u32 list_targets(Draft& d, u32 id) const;
  void add_slabs(Draft& d, const OutputUnit& unit, OutputBlock& block, Item item, u32 from,
                 u32 sum_flags);
  void add_history(Draft& d, const Item& columns) const;

  // plan/places.hpp: offsets that are known once the lists are complete
  void place_outputs(Draft& d);
  void fix_offsets(Draft& d, u32 r_at) const;
  void place_factors(Draft& d) const;
  void place_sums(Draft& d, u32 r_at) const;
  [[nodiscard]] std::vector<Item> placed_early_items(const Draft& d) const;
  [[nodiscard]] std::vector<Item> placed_late_items(const Draft& d, u32 r_at) const;

  // plan/blob.hpp: the resident panels, and the blob
  void finish_program(Draft& d);
  std::size_t place_lists(Draft& d, bool windowed) const;
  void form_teams(Program& p) const;
  void form(std::uint32_t (&ends)[4], std::vector<std::size_t> costs) const;
  void sort_folds(Draft& d) const;
  static void count_lists(Draft& d);
  template <class Visit>
  static void for_each_list(Draft& d, Visit visit);
  std::size_t place_areas(Draft& d, std::size_t blob_room);
  void choose_residents(Draft& d, std::size_t used) const;
  void make_resident(Draft& d, const Item& item, std::size_t& room) const;
  void mark_stays_in_l2(std::vector<Item>& items, std::size_t streamed_f4) const;
  [[nodiscard]] WarpItem for_warp(const Item& item, int warp, u32 history_stride) const;
  void write_blob(Draft& d);

  const Spec& spec_;
  const Connectome& net_;
  StepShape shape_;
  std::size_t shared_floats_;
  std::size_t cache_bytes_;             // of the L2 cache, for weights
  std::vector<std::vector<Job>> jobs_;  // by SM
};

}  // namespace pvm::inline v0::detail::general

#include <pvm/engine/cuda/general/plan/blob.hpp>
#include <pvm/engine/cuda/general/plan/hidden.hpp>
#include <pvm/engine/cuda/general/plan/output.hpp>
#include <pvm/engine/cuda/general/plan/places.hpp>
