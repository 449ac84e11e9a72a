// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Makes the tables of the batched kernels (tables.hpp) from a connectome. This file declares the
/// tables and the order in which they are made; plan/rows.hpp, plan/products.hpp, plan/portions.hpp
/// and plan/sweep.hpp define how.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include <pvm/core/parallel.hpp>
#include <pvm/engine/cuda/batch/plan/tables.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail::batch {

/// Consecutive units, or rows: those from `first` up to `end`.
struct Range {
  std::size_t first = 0, end = 0;
};

/// All tables of a network, or of a shard of one, which has some of its units. A "thread block"
/// here is one of the sweep kernel's. A value, which a Planner makes once.
class Plan {
 public:
  Range units;        ///< whose tables these are; rows are numbered as in the whole network
  Range hidden_rows;  ///< of their hidden values, and of d0
  Range output_rows;  ///< of their y and d1
  bool whole = true;  ///< whether `units` are all units
  std::vector<std::uint32_t> rows;  ///< row words
  std::vector<Product> products;    ///< forward, then errors, then outputs; each longest first
  std::size_t first_output = 0;     ///< index of the first product that makes y
  std::vector<Panel> panels;
  std::vector<Tile> tiles;                  ///< of the update kernel
  std::vector<std::uint32_t> sweep_tiles;   ///< SweepTiles, each followed by its row words
  std::vector<std::uint32_t> sweep_starts;  ///< first SweepTile of each thread block, then the end
  std::vector<std::uint32_t> output_start;  ///< first row of y of each unit of the network
  std::size_t master = 0;                   ///< floats of the master
  /// Weight blocks of the working copies of all W0, and of one version of those of all W1.
  std::size_t w0_blocks = 0, w1_blocks = 0;
  std::size_t copies = 0;    ///< 16-bit copies of 16 m, for one version of all swept W1
  std::size_t scratch = 0;   ///< parts that store partial sums: of forward products, or of a sweep
  std::size_t counters = 0;  ///< forward products that are split into parts
  std::size_t scores = 0;    ///< scores (of three sums each): one for each unit; 0 for a sweep
  int columns = 0;           ///< most n of a panel

  struct Sweep {
    int padded = 0;           ///< sequences, one of `swept_sizes`; 0: nothing is swept
    unsigned int blocks = 0;  ///< thread blocks
  };

  /// Index in `rows` of the first row word of unit u's input x; u is one of `units`.
  [[nodiscard]] std::size_t input_start(std::size_t u) const {
    return input_start_[u - units.first];
  }

  /// Calls visit(index in reference order, index in the master) for every weight, on several
  /// threads.
  template <class Visit>
  void for_each_weight(const Visit& visit) const {
    in_parallel(panels.size(), master, [&](std::size_t p) {
      const Panel& panel = panels[p];
      const Origin& from = origins_[p];
      for (std::size_t m = 0; m < panel.m_end; ++m) {
        for (std::size_t n = 0; n < panel.n; ++n) {
          visit(from.start + m * from.per_m + n * from.per_n, index(panel, m, n));
        }
      }
    });
  }

 protected:
  /// Index of a panel's weight (0, 0) in reference order, and the strides along m and n.
  struct Origin {
    std::size_t start, per_m, per_n;
  };

  [[nodiscard]] bool is_swept() const { return swept_.padded > 0; }
  /// Whether the panel belongs to a swept W0: it is the only one without a working copy.
  [[nodiscard]] bool swept_w0(const Panel& panel) const {
    return is_swept() && panel.copy_over_m == Panel::none;
  }
  [[nodiscard]] std::size_t index(const Panel& panel, std::size_t m, std::size_t n) const {
    return panel.master + (swept_w0(panel) ? swept_master_index(panel.m_end, panel.n, m, n)
                                           : master_index(panel.n, m, n));
  }

  Sweep swept_;
  std::vector<Origin> origins_;  ///< by panel
  std::vector<std::size_t> input_start_;
};

/// Makes a Plan.
class Planner : private Plan {
 public:
  /// The plan of `units` of `spec`, of which `net` is the connectome. `block`: depth of a weight
  /// block. Forward products are split into parts of at most `part_blocks` weight blocks, except in
  /// a sweep, which needs no Products.
  static Plan make(const Spec& spec, const Connectome& net, const Range& units, int block,
                   int part_blocks, Sweep swept) {
    Planner planner(spec, net, block, part_blocks, swept);
    planner.choose(units);
    planner.make_tables();
    return planner;
  }

 private:
  Planner(const Spec& spec, const Connectome& net, int block, int part_blocks, Sweep swept)
      : spec_(spec), net_(net), block_(count(block)), part_blocks_(count(part_blocks)) {
    swept_ = swept;
  }

  void choose(const Range& chosen) {
    units = chosen;
    whole = chosen.first == 0 && chosen.end == net_.units.size();
    hidden_rows = {chosen.first * count(net_.hidden), chosen.end * count(net_.hidden)};
    std::uint32_t outputs = 0;
    for (const Unit& unit : net_.units) {
      output_start.push_back(outputs);
      outputs += static_cast<std::uint32_t>(unit.outputs);
    }
    output_rows = {output_start[chosen.first],
                   chosen.end == net_.units.size() ? outputs : output_start[chosen.end]};
  }
  void make_tables() {
    for (std::size_t u = units.first; u < units.end; ++u) add_unit(u);
    place_w1_copies();
    for (const Panel& panel : panels) add_tiles(panel);
    if (is_swept()) add_sweep();
    collect(forward_);
    collect(errors_);
    first_output = products.size();
    collect(outputs_);
  }

  /// Indices in `rows` of a unit's first row words.
  struct UnitRows {
    std::uint32_t x, r, d0, d1;
  };
  /// What a sweep reads and writes for a panel.
  struct SweepPlaces {
    std::uint32_t rows;     ///< index of the first row word of x (W0) or of the targets (W1)
    std::uint32_t out;      ///< first row of h (W0) or d0 (W1)
    std::uint32_t outputs;  ///< W1: first row of y
    std::size_t pixels;     ///< W1: the first `pixels` targets are pixels of the step's frame
    std::size_t unit;
  };
  /// A tile of a sweep before it becomes a SweepTile: `m` rows of panel `panel` from row `first`
  /// on. Portions are consecutive runs of pieces; thread block b has the portions b, b +
  /// blocks, ...
  struct Piece {
    std::size_t panel, first, m, portion;
    std::uint32_t part;  ///< index of its part's sums, as SweepTile::part
  };
  /// The parts of a panel. One thread block works on each.
  struct Parts {
    std::uint32_t first = 0, count = 0;  ///< their numbers are first, first + 1, ...
    std::uint32_t adds = 0;              ///< number of the part that adds up the sums of all
  };

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  static std::uint32_t word(std::size_t n) { return static_cast<std::uint32_t>(n); }
  static std::size_t ceil(std::size_t n, std::size_t by) { return (n + by - 1) / by; }

  void add_unit(std::size_t u) {
    const UnitRows unit_rows = add_unit_rows(u);
    for (std::size_t first = 0; first < count(net_.hidden); first += panel_width) {
      if (is_swept()) {
        add_swept_w0(u, unit_rows, first);
      } else {
        add_w0(u, unit_rows, first);
      }
    }
    if (is_swept()) {
      add_swept_w1(u, unit_rows);
    } else {
      add_w1(u, unit_rows);
    }
  }
  void add_panel(Panel panel, Origin origin) {
    columns = std::max(columns, static_cast<int>(panel.n));
    panel.master = master;
    master += ceil(panel.m_end, 16) * 16 * panel.n;
    panels.push_back(panel);
    origins_.push_back(origin);
  }
  /// A panel of unit u's W0, for its hidden values from `first` on. It has no working copy yet.
  [[nodiscard]] Panel w0_panel(std::size_t u, const UnitRows& unit_rows, std::size_t first) const {
    Panel panel{};
    panel.m_rows = unit_rows.x;
    panel.m_end = word(count(net_.units[u].inputs));
    panel.n_rows = unit_rows.d0 + word(first);
    panel.n = word(std::min(count(panel_width), count(net_.hidden) - first));
    panel.layer = word(count(net_.units[u].layer));
    panel.copy_over_m = Panel::none;
    panel.copy_over_n = Panel::none;
    return panel;
  }
  /// A panel of unit u's W1, for `n` columns of the representation, whose row words start at index
  /// `r`. It has no working copy yet.
  [[nodiscard]] Panel w1_panel(std::size_t u, const UnitRows& unit_rows, std::uint32_t r,
                               std::size_t n) const {
    Panel panel{};
    panel.m_rows = unit_rows.d1;
    panel.m_end = word(count(net_.units[u].outputs));
    panel.n_rows = r;
    panel.n = word(n);
    panel.layer = word(count(net_.units[u].layer));
    panel.copy_over_m = Panel::none;
    panel.copy_over_n = Panel::none;
    return panel;
  }
  [[nodiscard]] Origin w0_origin(std::size_t u, std::size_t first) const {
    const std::size_t inputs = count(net_.units[u].inputs);
    return {net_.units[u].w0 + first * inputs, 1, inputs};
  }
  [[nodiscard]] Origin w1_origin(std::size_t u, std::size_t first) const {
    return {net_.units[u].w1 + first, count(net_.units[u].representation), 1};
  }

  // plan/rows.hpp: the rows that a unit reads and writes
  UnitRows add_unit_rows(std::size_t u);
  std::uint32_t add_range(RowArray array, std::size_t first, std::size_t n);
  std::uint32_t add_inputs(std::size_t u);
  void add_patch(std::size_t u, RowArray array);
  void add_sources(std::span<const std::uint32_t> sources, RowArray array);
  std::uint32_t add_representation(std::size_t u);
  void pad_panel(std::uint32_t start);

  // plan/products.hpp: products and working copies where nothing is swept; the update kernel's
  // tiles
  void add_w0(std::size_t u, const UnitRows& unit_rows, std::size_t first);
  void add_forward(std::size_t u, const UnitRows& unit_rows, std::size_t first);
  void add_w1(std::size_t u, const UnitRows& unit_rows);
  void add_errors(std::size_t u, const UnitRows& unit_rows, std::size_t first);
  void add_outputs(std::size_t u, const UnitRows& unit_rows, std::size_t copy_over_n,
                   std::size_t group);
  void place_w1_copies();
  void add_tiles(Panel panel);
  void collect(std::vector<Product>& list);

  // plan/portions.hpp: the distribution of a sweep's tiles over thread blocks
  [[nodiscard]] std::vector<std::size_t> swept_order() const;
  [[nodiscard]] std::size_t portions_each() const;
  [[nodiscard]] std::size_t least_rows(const Panel& panel) const;
  [[nodiscard]] std::vector<Piece> balance_portions() const;
  [[nodiscard]] std::vector<Piece> fill_portions(const std::vector<std::size_t>& order,
                                                 std::size_t most) const;
  void number_parts(std::vector<Piece>& pieces);

  // plan/sweep.hpp: a sweep's panels and tiles
  void add_swept_w0(std::size_t u, const UnitRows& unit_rows, std::size_t first);
  void add_swept_w1(std::size_t u, const UnitRows& unit_rows);
  void add_sweep();
  void add_block(const std::vector<Piece>& mine);
  [[nodiscard]] SweepTile tile_of(const Piece& piece) const;
  void describe_next(SweepTile& tile, const Piece& next) const;
  void add_words(const SweepTile& tile);
  void add_row_words(std::uint32_t first, std::size_t n, std::size_t room);

  const Spec& spec_;
  const Connectome& net_;
  std::size_t block_, part_blocks_;
  std::vector<SweepPlaces> sweep_places_;  ///< by panel, for a sweep
  std::vector<Parts> parts_;               ///< by panel, for a sweep
  std::vector<Product> forward_, errors_, outputs_;
};

}  // namespace pvm::inline v0::detail::batch

#include <pvm/engine/cuda/batch/plan/portions.hpp>
#include <pvm/engine/cuda/batch/plan/products.hpp>
#include <pvm/engine/cuda/batch/plan/rows.hpp>
#include <pvm/engine/cuda/batch/plan/sweep.hpp>
