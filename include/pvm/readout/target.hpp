// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// What a readout is to show for a label: how much of each cell of the heatmap the object's box
/// covers.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::readout {

/// Throws Error (Fault::usage) unless `label` can be one of a frame of `side` x `side` pixels: the
/// box of an object that is present has finite numbers, a width and a height above 0, and overlaps
/// the frame.
inline void check_label(const io::Label& label, int side) {
  if (label.state != io::LabelState::present) return;
  const io::Box& box = label.box;
  const auto say = [&](const std::string& what) {
    throw Error(Fault::usage, "the label's box " + std::to_string(box.x) + "," +
                                  std::to_string(box.y) + "," + std::to_string(box.width) + "," +
                                  std::to_string(box.height) + " " + what);
  };
  const bool finite = std::isfinite(box.x) && std::isfinite(box.y) && std::isfinite(box.width) &&
                      std::isfinite(box.height);
  if (!finite) say("has a value that is no number; leave the frame unlabelled");
  if (!(box.width > 0 && box.height > 0)) {
    say("is empty; an object that is not there is Label::absent()");
  }
  const auto edge = static_cast<float>(side);
  if (box.x >= edge || box.y >= edge || box.x + box.width <= 0 || box.y + box.height <= 0) {
    say("lies outside of the frame, which has " + std::to_string(side) + " x " +
        std::to_string(side) + " pixels; boxes are in pixels of the network's frame");
  }
}

/// Writes into `rows` and `columns` which share of each row and column of cells the box of `label`
/// covers, where a frame of `side` pixels has rows.size() of either: 0 to 1, and all 0 if the
/// object is absent. The share of a cell is the product of the two.
inline void cover_lines(const io::Label& label, int side, std::span<float> rows,
                        std::span<float> columns) {
  const auto shares = [&](float from, float length, std::span<float> share) {
    const float cell = static_cast<float>(side) / static_cast<float>(share.size());
    for (std::size_t i = 0; i < share.size(); ++i) {
      const float low = static_cast<float>(i) * cell;
      const float covered = std::min(from + length, low + cell) - std::max(from, low);
      share[i] = std::clamp(covered / cell, 0.0F, 1.0F);
    }
  };
  const io::Box box = label.state == io::LabelState::present ? label.box : io::Box{};
  shares(box.y, box.height, rows);
  shares(box.x, box.width, columns);
}

/// Writes into `out`, [cells][cells], which share of each cell of `side / cells` pixels the box of
/// `label` covers: 0 to 1, and all 0 if the object is absent.
inline void cover_cells(const io::Label& label, int side, std::span<float> out, int cells) {
  std::vector<float> rows(static_cast<std::size_t>(cells)), columns(rows.size());
  cover_lines(label, side, rows, columns);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    for (std::size_t j = 0; j < columns.size(); ++j)
      out[i * columns.size() + j] = rows[i] * columns[j];
  }
}

}  // namespace pvm::inline v0::readout
