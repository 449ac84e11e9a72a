// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0

/// Label files: boxes are finite and have an area, whatever the text.

#include <cmath>
#include <optional>

#include <pvm/io/labels.hpp>

#include "fuzz.hpp"

int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  constexpr std::size_t frames = 5;
  const auto labels = pvm::io::parse_labels(fuzz::text_of(data, size), frames, "labels.txt");
  fuzz::require(labels.size() == frames, "one label for each frame");
  for (const auto& label : labels) {
    if (!label) continue;
    const auto& box = *label;
    for (const float v : {box.x, box.y, box.width, box.height})
      fuzz::require(std::isfinite(v), "a box is finite");
    fuzz::require(box.width > 0 && box.height > 0, "a box has an area");
  }
  return 0;
}
