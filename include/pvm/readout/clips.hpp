// SPDX-FileCopyrightText: 2026 The pvm authors
// SPDX-License-Identifier: Apache-2.0
#pragma once

/// Labelled clips in memory, which a comparison of trackers goes through again and again.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <pvm/core/error.hpp>
#include <pvm/io/any_source.hpp>
#include <pvm/io/source.hpp>

namespace pvm::inline v0::readout {

/// The frames of one pass of a source, and their labels in pixels of these frames.
struct Clip {
  std::string name;
  io::FrameShape shape;
  std::vector<std::uint8_t> pixels;  ///< [frame][height][width][channels]
  std::vector<io::Label> labels;     ///< one for each frame

  [[nodiscard]] std::size_t size() const noexcept { return labels.size(); }
  [[nodiscard]] std::span<const std::uint8_t> frame(std::size_t i) const {
    return std::span(pixels).subspan(i * shape.size(), shape.size());
  }
  /// How many frames have a label of this state.
  [[nodiscard]] std::size_t count(io::LabelState state) const {
    std::size_t n = 0;
    for (const io::Label& label : labels) n += label.state == state ? 1 : 0;
    return n;
  }
};

/// Reads one pass of `source`. Throws what it throws, and Error (Fault::usage) if it has no end.
inline Clip read_clip(io::AnySource source, const io::FrameShape& shape) {
  const auto length = source.count_frames();
  if (!length) {
    throw Error(Fault::usage, quote(source.name()) + " never ends; name a file or a directory");
  }
  Clip clip{source.name(), shape, {}, {}};
  std::vector<std::uint8_t> frame(shape.size());
  for (std::uint64_t i = 0; i < *length; ++i) {
    const io::FrameInfo info = source.next(shape, frame);
    if (info.starts_sequence && i > 0) break;  // unreadable frames were left out
    clip.pixels.insert(clip.pixels.end(), frame.begin(), frame.end());
    clip.labels.push_back(info.label);
  }
  return clip;
}

}  // namespace pvm::inline v0::readout
