// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// From a connectome to the tables of the batched kernels (tables.hpp).

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <numeric>
#include <span>
#include <vector>

#include <pvm/engine/cuda/batch/tables.hpp>
#include <pvm/model/connectome.hpp>
#include <pvm/model/spec.hpp>

namespace pvm::inline v0::detail::batch {

/// All tables of a network.
class Plan {
 public:
  std::vector<std::uint32_t> rows;
  std::vector<Product> products;  ///< forward, errors, outputs; long ones first
  std::size_t first_output = 0;   ///< products from here on make y
  std::vector<Panel> panels;
  std::vector<Tile> tiles;
  std::vector<std::uint32_t> sweep;         ///< SweepTiles with their row words
  std::vector<std::uint32_t> sweep_starts;  ///< first tile of each block of threads, and the end
  std::vector<std::uint32_t> output_start;  ///< first row of y of each unit
  std::size_t master = 0;                   ///< floats
  std::size_t w0_blocks = 0, w1_blocks = 0;
  std::size_t copies = 0;   ///< of 16 m of a swept W1
  std::size_t scratch = 0;  ///< parts of forward products, or of a sweep
  std::size_t counters = 0;
  std::size_t scores = 0;
  int columns = 0;  ///< most n of a panel

  /// Whether, for how many sequences, and for how many blocks of threads tiles are to be swept.
  struct Sweep {
    int padded = 0;
    unsigned int blocks = 0;
  };

  /// `block`: depth of a weight block; forward products are split into parts of at most
  /// `part_blocks` blocks. A sweep makes them itself.
  Plan(const Spec& spec, const Connectome& net, int block, int part_blocks, Sweep swept)
      : spec_(spec),
        net_(net),
        block_(count(block)),
        part_blocks_(count(part_blocks)),
        swept_(swept) {
    std::uint32_t outputs = 0;
    for (std::size_t u = 0; u < net.units.size(); ++u) {
      output_start.push_back(outputs);
      add_unit(u);
      outputs += static_cast<std::uint32_t>(net.units[u].outputs);
    }
    for (Panel& panel : panels) {  // W1's copies lie behind all of W0's
      if (panel.work_y == Panel::none) continue;
      if (panel.work != Panel::none) panel.work += static_cast<std::uint32_t>(w0_blocks);
      panel.work_y += static_cast<std::uint32_t>(w0_blocks);
    }
    for (const Panel& panel : panels) add_tiles(panel);
    if (swept_.padded > 0) add_sweep();
    for (Product& p : errors_) p.weights += static_cast<std::uint32_t>(w0_blocks);
    for (Product& p : outputs_) p.weights += static_cast<std::uint32_t>(w0_blocks);
    collect(forward_);
    collect(errors_);
    first_output = products.size();
    collect(outputs_);
  }

  /// First row word of unit u's input.
  [[nodiscard]] std::size_t input_start(std::size_t u) const { return input_start_[u]; }

  /// Calls visit(index in reference order, index in the master) for every weight.
  template <class Visit>
  void for_each_weight(Visit&& visit) const {
    for (std::size_t p = 0; p < panels.size(); ++p) {
      const Panel& panel = panels[p];
      const Origin& from = origins_[p];
      for (std::size_t m = 0; m < panel.m; ++m) {
        for (std::size_t n = 0; n < panel.n; ++n) {
          visit(from.start + m * from.per_m + n * from.per_n, index(panel, m, n));
        }
      }
    }
  }

 private:
  /// Where weight (0, 0) of a panel is in reference order, and the strides.
  struct Origin {
    std::size_t start, per_m, per_n;
  };
  /// What a sweep makes of a panel.
  struct Made {
    std::uint32_t rows;     ///< first row word of x, or of the targets
    std::uint32_t out;      ///< first row of h or d0
    std::uint32_t outputs;  ///< W1: first row of y
    std::size_t pixels;     ///< W1: so many targets are pixels of this frame
    std::size_t unit;
  };

  static std::size_t count(int n) { return static_cast<std::size_t>(n); }
  static std::uint32_t word(std::size_t n) { return static_cast<std::uint32_t>(n); }
  static std::size_t ceil(std::size_t n, std::size_t by) { return (n + by - 1) / by; }

  /// Whether the panel is of a W0 that is swept.
  [[nodiscard]] bool swept_w0(const Panel& panel) const {
    return swept_.padded > 0 && panel.work == Panel::none;
  }
  [[nodiscard]] std::size_t index(const Panel& panel, std::size_t m, std::size_t n) const {
    return panel.master + (swept_w0(panel) ? swept_master_index(panel.m, panel.n, m, n)
                                           : master_index(panel.n, m, n));
  }

  void add_unit(std::size_t u) {
    const Unit& unit = net_.units[u];
    const std::size_t hidden = count(net_.hidden);
    const std::uint32_t x = add_inputs(u);
    input_start_.push_back(x);
    const std::uint32_t r = add_representation(u);
    const std::uint32_t d0 = add_range(Stream::hidden_gradient, u * hidden, hidden);
    const std::uint32_t d1 =
        add_range(Stream::output_gradient, output_start[u], count(unit.outputs));
    for (std::size_t first = 0; first < hidden; first += panel_width) {
      add_w0_panel(u, x, d0, first);
    }
    if (swept_.padded > 0) {
      add_swept_w1(u, x, r, d1);
    } else {
      add_w1(u, x, r, d1);
    }
  }

  std::uint32_t add_range(Stream stream, std::size_t first, std::size_t n) {
    const std::uint32_t start = word(rows.size());
    for (std::size_t i = 0; i < n; ++i) rows.push_back(row_word(stream, word(first + i)));
    return start;
  }

  /// x, padded with zeros to whole blocks.
  std::uint32_t add_inputs(std::size_t u) {
    const std::uint32_t start = word(rows.size());
    for (const bool older : {false, true}) {
      if (net_.units[u].layer == 0) {
        add_patch(u, older ? Stream::pixels_1 : Stream::pixels_0);
      } else {
        add_sources(net_.primary[u], older ? Stream::squeezed_2 : Stream::squeezed_1);
      }
    }
    add_sources(net_.context[u], Stream::squeezed_1);
    rows.push_back(one_row);
    while ((rows.size() - start) % block_ != 0) rows.push_back(zero_row);
    return start;
  }
  void add_patch(std::size_t u, Stream stream) {
    const Unit& unit = net_.units[u];
    const std::size_t side = count(spec_.frame_side());
    const std::size_t size = count(spec_.input_block_size);
    const std::size_t channels = count(spec_.input_channels);
    for (std::size_t i = 0; i < size; ++i) {
      const std::size_t pixel = ((count(unit.row) * size + i) * side + count(unit.column) * size);
      add_range(stream, pixel * channels, size * channels);
    }
  }
  void add_sources(std::span<const std::uint32_t> sources, Stream stream) {
    for (const auto s : sources) add_range(stream, s * count(net_.hidden), count(net_.hidden));
  }

  /// r in panels of 56 rows padded to 64.
  std::uint32_t add_representation(std::size_t u) {
    const std::uint32_t start = word(rows.size());
    const auto put = [&](std::uint32_t row) {
      if ((rows.size() - start) % panel_depth == panel_width) pad_panel(start);
      rows.push_back(row);
    };
    const std::size_t hidden = count(net_.hidden);
    for (std::size_t i = 0; i < hidden; ++i) {
      put(row_word(Stream::hidden_0, word(u * hidden + i)));
    }
    put(one_row);
    if (spec_.feed_context_in_complex_layer) {
      for (const auto s : net_.context[u]) {
        for (std::size_t i = 0; i < hidden; ++i) {
          put(row_word(Stream::hidden_1, word(s * hidden + i)));
        }
      }
    }
    pad_panel(start);
    return start;
  }
  void pad_panel(std::uint32_t start) {
    while ((rows.size() - start) % panel_depth != 0) rows.push_back(zero_row);
  }

  void add_panel(Panel panel, Origin origin) {
    columns = std::max(columns, static_cast<int>(panel.n));
    panel.master = master;
    master += ceil(panel.m, 16) * 16 * panel.n;
    panels.push_back(panel);
    origins_.push_back(origin);
  }

  void add_tiles(Panel panel) {
    for (panel.first = 0; panel.first < panel.m; panel.first += tile_rows) {
      Tile tile{};
      tile.panel = panel;
      for (std::uint32_t i = 0; i < tile_rows + panel_width; ++i) {
        const bool is_m = i < tile_rows;
        const std::uint32_t at = is_m ? panel.first + i : i - tile_rows;
        tile.rows[i] = at < (is_m ? panel.m : panel.n)
                           ? rows[(is_m ? panel.m_rows : panel.n_rows) + at]
                           : zero_row;
      }
      tiles.push_back(tile);
    }
  }

  /// Cycles of a block of threads: for a part, for a tile of W0 and for one of W1, at all and for
  /// 16 rows of it. Most of it is waiting for one thing after the other, however few rows there
  /// are.
  struct Cycles {
    std::size_t part, w0, w1, w1_rows;
    /// More for the last part of a panel, which mostly makes h, or d0, of its sums.
    std::size_t hidden, gradients;
  };
  /// As measured: 64, 128 and 256 by least squares of what each block of threads had and when it
  /// ended, on an H200; the others by trying what is soonest, on an H100.
  [[nodiscard]] Cycles cycles() const {
    switch (swept_.padded) {
      case 32:
        return {3500, 3000, 3200, 210, 1000, 2100};
      case 64:
        return {2500, 3000, 4500, 600, 2000, 3000};
      case 96:
        return {3500, 4000, 4000, 1000, 3500, 4800};
      case 128:
        return {5000, 5000, 3750, 2200, 5000, 6500};
      case 192:
        return {6000, 6100, 5900, 3200, 8600, 11500};
      default:
        return {7000, 7200, 8000, 4200, 12200, 16400};
    }
  }
  [[nodiscard]] static std::size_t cost(const Cycles& c, const Panel& panel, std::size_t m) {
    return panel.work == Panel::none ? c.w0 : c.w1 + ceil(m, 16) * c.w1_rows;
  }
  [[nodiscard]] static std::size_t results(const Cycles& c, const Panel& panel) {
    return panel.work == Panel::none ? c.hidden : c.gradients;
  }
  /// The panels, those of units at the same height of the image one behind the other.
  [[nodiscard]] std::vector<std::size_t> swept_order() const {
    std::vector<std::size_t> order(panels.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    const auto height = [&](std::size_t panel) {
      const Unit& unit = net_.units[made_[panel].unit];
      return (unit.row + 0.5) / spec_.layer_shapes[count(unit.layer)];
    };
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return height(a) < height(b); });
    return order;
  }
  /// Rows that a tile of the panel is cut at multiples of: a master of W0 has a tile's together.
  [[nodiscard]] std::size_t least_rows(const Panel& panel) const {
    return swept_w0(panel) ? sweep_rows : 16;
  }
  /// A tile of a sweep: `m` rows of a panel from `first` on, and in whose share.
  struct Piece {
    std::size_t panel, first, m, share;
  };
  /// Tiles in the panels' order, shared out so that no share costs more than `most`: one that is
  /// too much for what is left of a share is cut.
  [[nodiscard]] std::vector<Piece> share_out(const std::vector<std::size_t>& order,
                                             std::size_t most) const {
    const Cycles c = cycles();
    std::vector<Piece> pieces;
    std::size_t share = 0, spent = 0;
    for (const std::size_t k : order) {
      const std::size_t cut = least_rows(panels[k]);
      for (std::size_t first = 0; first < panels[k].m;) {
        const std::size_t start = spent + (first == 0 || spent == 0 ? c.part : 0);
        const std::size_t left = panels[k].m - first;
        const std::size_t m = std::min(count(sweep_rows), left);
        const auto with = [&](std::size_t rows) {
          return start + cost(c, panels[k], rows) + (rows == left ? results(c, panels[k]) : 0);
        };
        std::size_t fits = m;
        while (fits > 0 && with(fits) > most) fits = (fits - 1) / cut * cut;
        if (fits > 0) {
          pieces.push_back({k, first, fits, share});
          spent = with(fits);
          first += fits;
        }
        if (fits < m) {
          ++share;
          spent = 0;
        }
      }
    }
    return pieces;
  }
  /// Shares for each block of threads, of about 24 tiles: what all blocks work on at the same time
  /// is then units that are neighbours, and the second-level cache has room for the rows they read.
  [[nodiscard]] std::size_t shares_each() const {
    std::size_t tiles = 0;
    for (const Panel& panel : panels) tiles += ceil(panel.m, count(sweep_rows));
    return std::max<std::size_t>(1, tiles / (std::size_t{24} * swept_.blocks));
  }
  /// The same in so many shares that the one that costs most costs least.
  [[nodiscard]] std::vector<Piece> share_out() const {
    const std::vector<std::size_t> order = swept_order();
    const std::size_t shares = shares_each() * swept_.blocks;
    std::size_t least = 0, most = 0;
    const Cycles c = cycles();
    for (const Panel& panel : panels) {
      const std::size_t each = c.part + cost(c, panel, least_rows(panel)) + results(c, panel);
      least = std::max(least, each);
      most += ceil(panel.m, 16) * each;
    }
    while (least < most) {
      const std::size_t middle = (least + most) / 2;
      if (share_out(order, middle).back().share < shares) {
        most = middle;
      } else {
        least = middle + 1;
      }
    }
    return share_out(order, most);
  }
  /// The parts of a panel, that one block of threads works on each.
  struct Parts {
    std::uint32_t first = 0, count = 0;
    std::uint32_t adds = 0;  ///< the one that adds the others' sums to its own
  };
  /// A panel's pieces of the same share are one part: its number for each piece.
  /// The part of the last block of threads adds them up: it waits for blocks only that begin before
  /// it does. (Of two parts of that block, the one that it works on last.)
  [[nodiscard]] std::vector<std::uint32_t> number_parts(const std::vector<Piece>& pieces) {
    std::vector<std::uint32_t> numbers;
    std::size_t last = 0;
    parts_.resize(panels.size());
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const Piece& piece = pieces[i];
      Parts& parts = parts_[piece.panel];
      if (piece.first == 0) parts.first = word(scratch);
      if (piece.first == 0 || pieces[i - 1].share != piece.share) {
        const std::size_t block = piece.share % swept_.blocks;
        if (piece.first == 0 || block > last) {
          last = block;
          parts.adds = word(scratch);
        }
        ++parts.count;
        ++scratch;
      }
      numbers.push_back(word(scratch - 1));
    }
    return numbers;
  }
  void add_sweep() {
    const std::vector<Piece> pieces = share_out();
    const std::vector<std::uint32_t> parts = number_parts(pieces);
    std::vector<std::vector<std::size_t>> of_blocks(swept_.blocks);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      of_blocks[pieces[i].share % swept_.blocks].push_back(i);
    }
    sweep_starts.push_back(0);
    for (auto& mine : of_blocks) {
      // The part that a block shares with the one before is its last, so that the others' are there
      // when it adds a panel's up.
      std::reverse(mine.begin(), mine.end());
      add_block(pieces, parts, mine);
      sweep_starts.push_back(sweep_starts.back() + word(mine.size()));
    }
  }
  /// The tiles of a block of threads: `mine` of the pieces.
  void add_block(const std::vector<Piece>& pieces, const std::vector<std::uint32_t>& parts,
                 const std::vector<std::size_t>& mine) {
    std::uint32_t turn = 0, stage = 0;
    for (std::size_t k = 0; k < mine.size(); ++k) {
      const std::size_t i = mine[k];
      const Piece& piece = pieces[i];
      const Made& made = made_[piece.panel];
      const bool last = k + 1 == mine.size();
      SweepTile tile{};
      tile.panel = panels[piece.panel];
      tile.panel.first = word(piece.first);
      tile.panel.m = word(piece.first + piece.m);
      tile.forward = tile.panel.work == Panel::none ? 1 : 0;
      tile.part = parts[i];
      tile.begins = k == 0 || parts[mine[k - 1]] != tile.part ? 1 : 0;
      tile.ends = last ? 2 : (parts[mine[k + 1]] != tile.part ? 1 : 0);
      tile.number = word(k);
      turn += k == 0 ? 0 : tile.begins;
      tile.turn = turn;
      const Parts& of_panel = parts_[piece.panel];
      tile.out = made.out;
      tile.first_part = of_panel.first;
      tile.parts = of_panel.count;
      tile.adds = of_panel.adds == tile.part ? 1 : 0;
      tile.stage = stage;
      stage += sweep_stages(swept_.padded, word(piece.m), tile.forward != 0);
      tile.last_stage = stage - 1;
      tile.rows = word(piece.m);
      tile.first_master = tile.panel.master + piece.first * tile.panel.n;
      tile.outputs = made.outputs + word(piece.first);
      tile.pixels = word(std::max(made.pixels, piece.first) - piece.first);
      if (!last) {
        const Piece& next = pieces[mine[k + 1]];
        const Panel& panel = panels[next.panel];
        tile.next_master = panel.master + next.first * panel.n;
        tile.next_m = word(next.m);
        tile.next_n = panel.n;
        tile.next_forward = panel.work == Panel::none ? 1 : 0;
      }
      add_words(tile);
      add_rows(made.rows + word(piece.first), piece.m, count(sweep_rows));
      add_rows(tile.panel.n_rows, tile.panel.n, count(panel_width));
    }
  }
  /// The words of `n` rows and then, up to `room`, of rows that do not exist.
  void add_rows(std::uint32_t first, std::size_t n, std::size_t room) {
    for (std::size_t i = 0; i < room; ++i) {
      sweep.push_back(i < n ? rows[first + word(i)] : zero_row);
    }
  }
  void add_words(const SweepTile& tile) {
    std::uint32_t words[sizeof(SweepTile) / 4];
    std::memcpy(words, &tile, sizeof(tile));
    sweep.insert(sweep.end(), std::begin(words), std::end(words));
  }

  void add_w0_panel(std::size_t u, std::uint32_t x, std::uint32_t d0, std::size_t first) {
    const Unit& unit = net_.units[u];
    const std::size_t inputs = count(unit.inputs);
    const std::size_t n = std::min(count(panel_width), count(net_.hidden) - first);
    const std::size_t blocks = ceil(inputs, block_);
    Panel panel{};
    panel.m_rows = x;
    panel.m = word(inputs);
    panel.n_rows = d0 + word(first);
    panel.n = word(n);
    panel.layer = word(count(unit.layer));
    panel.work = swept_.padded > 0 ? Panel::none : word(w0_blocks);
    panel.work_y = Panel::none;
    add_panel(panel, {unit.w0 + first * inputs, 1, inputs});
    if (swept_.padded > 0) {
      made_.push_back({x, word(u * count(net_.hidden) + first), 0, 0, u});
      return;
    }
    const std::size_t each = ceil(blocks, ceil(blocks, part_blocks_));
    const std::size_t parts = ceil(blocks, each);
    for (std::size_t k = 0; k < parts; ++k) {
      const std::size_t start = k * each;
      Product p{};
      p.role = Role::forward;
      p.rows = x + word(start * block_);
      p.weights = word(w0_blocks + start);
      p.blocks = word(std::min(blocks, start + each) - start);
      p.depth = p.blocks * word(block_);
      p.out = word(u * count(net_.hidden) + first);
      p.count = word(n);
      p.parts = word(parts);
      p.part = word(k);
      p.scratch = word(scratch);
      p.counter = word(counters);
      forward_.push_back(p);
    }
    if (parts > 1) {
      scratch += parts;
      ++counters;
    }
    w0_blocks += blocks;
  }

  /// W1 of a sweep: one panel, whose copies the warps keep for themselves.
  void add_swept_w1(std::size_t u, std::uint32_t x, std::uint32_t r, std::uint32_t d1) {
    const Unit& unit = net_.units[u];
    const std::size_t outputs = count(unit.outputs);
    const std::size_t columns = count(unit.representation);
    Panel panel{};
    panel.m_rows = d1;
    panel.m = word(outputs);
    panel.n_rows = r;
    panel.n = word(columns);
    panel.layer = word(count(unit.layer));
    panel.work = word(copies);
    panel.work_y = Panel::none;
    copies += ceil(outputs, 16);
    add_panel(panel, {unit.w1, columns, 1});
    made_.push_back({x, word(u * count(net_.hidden)), output_start[u],
                     unit.layer == 0 ? count(unit.base) : 0, u});
  }

  void add_w1(std::size_t u, std::uint32_t x, std::uint32_t r, std::uint32_t d1) {
    const Unit& unit = net_.units[u];
    const std::size_t outputs = count(unit.outputs);
    const std::size_t columns = count(unit.representation);
    const std::size_t width = count(panel_width);
    const std::size_t count_panels = ceil(columns, width);
    const std::size_t depth_blocks = count(panel_depth) / block_;
    const std::size_t group = count_panels * depth_blocks;
    const std::size_t work_y = w1_blocks;
    w1_blocks += ceil(ceil(outputs, 16) * 16, width) * group;
    for (std::size_t k = 0; k < count_panels; ++k) {
      Panel panel{};
      panel.m_rows = d1;
      panel.m = word(outputs);
      panel.n_rows = r + word(k * panel_depth);
      panel.n = word(std::min(width, columns - k * width));
      panel.layer = word(count(unit.layer));
      panel.flips = 1;
      panel.work = Panel::none;
      panel.work_y = word(work_y + k * depth_blocks);
      panel.group = word(group);
      if (k * width < count(net_.hidden)) {
        panel.work = word(w1_blocks);
        add_errors(u, x, k * width);
        w1_blocks += ceil(outputs, block_);
      }
      add_panel(panel, {unit.w1 + k * width, columns, 1});
    }
    Product p{};
    p.role = Role::outputs;
    p.rows = r;
    p.weights = word(work_y);
    p.blocks = word(group);
    p.out = output_start[u];
    p.count = word(outputs);
    outputs_.push_back(p);
  }

  void add_errors(std::size_t u, std::uint32_t x, std::size_t first) {
    const Unit& unit = net_.units[u];
    Product p{};
    p.role = Role::errors;
    p.rows = x;
    p.depth = word(count(unit.outputs));
    p.weights = word(w1_blocks);
    p.blocks = word(ceil(count(unit.outputs), block_));
    p.out = word(u * count(net_.hidden) + first);
    p.count = word(std::min(count(panel_width), count(net_.hidden) - first));
    p.parts = first == 0 ? 1 : 0;
    p.errors = output_start[u];
    p.pixels = unit.layer == 0 ? word(count(unit.base)) : 0;
    p.score = word(scores);
    if (first == 0) ++scores;
    errors_.push_back(p);
  }

  void collect(std::vector<Product>& list) {
    std::stable_sort(list.begin(), list.end(), [](const Product& a, const Product& b) {
      return a.blocks + a.count / 8 > b.blocks + b.count / 8;
    });
    products.insert(products.end(), list.begin(), list.end());
  }

  const Spec& spec_;
  const Connectome& net_;
  std::size_t block_, part_blocks_;
  Sweep swept_;
  std::vector<Origin> origins_;
  std::vector<Made> made_;    ///< of the panels, swept
  std::vector<Parts> parts_;  ///< ... too
  std::vector<std::size_t> input_start_;
  std::vector<Product> forward_, errors_, outputs_;
};

}  // namespace pvm::inline v0::detail::batch
