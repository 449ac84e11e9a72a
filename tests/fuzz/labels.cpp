// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Label files: boxes are finite and have an area, and every label keeps its state when it is
/// written and read again.

#include <cmath>
#include <string>

#include <pvm/io/labels.hpp>

#include "fuzz.hpp"

namespace io = pvm::io;

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t frames = 5;
  const auto labels = io::parse_labels(fuzz::text_of(data, size), frames, "labels.txt");
  fuzz::require(labels.size() == frames, "one label for each frame");
  for (const io::Label& label : labels) {
    std::string line = io::detail::label_line(label);
    line.pop_back();
    const auto again = io::parse_label(line);
    fuzz::require(again && again->state == label.state, "a written label has the same state");
    if (label.state != io::LabelState::present) continue;
    for (const float v : {label.box.x, label.box.y, label.box.width, label.box.height})
      fuzz::require(std::isfinite(v), "a box is finite");
    fuzz::require(label.box.width > 0 && label.box.height > 0, "a box has an area");
  }
  return 0;
}
